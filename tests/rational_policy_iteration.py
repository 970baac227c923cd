"""Metrics of tiny models in rational arithmetic, without any error: policy iteration over couplings.

The distance of a pair of states is the value of a game. The maximiser names an action (match="labels") or a choice of
one of the two states (match="hausdorff"); in a chain it has nothing to say. The minimiser answers with a choice of the
other state where that is open, and with a coupling of the two rows, a vertex of the transportation polytope. Where both
have fixed what they do, distances solve a linear system. The minimiser improves until it cannot (Howard), then the
maximiser does (Hoffman and Karp), and so on; both have finitely many ways, so this ends. That F(d) = d holds exactly
is asserted at the end, and d is then the only fixed point.

Results are arrays [S, T] of `fractions.Fraction`. Models of up to some six states take seconds at most.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from exact_truth import rational_row
from random_models import choices_of

import bisimetric as bm
from bisimetric.lumping import label_classes, respected_labels

Pair = tuple[int, int]
Plan = dict[Pair, Fraction]
Row = dict[int, Fraction]
Choice = tuple[Hashable, Fraction, Row]  # label, reward, distribution


def best_plan(a: Row, b: Row, cost: dict[Pair, Fraction]) -> tuple[Fraction, Plan]:
    """(min ⟨ω, cost⟩ over couplings of two distributions, a vertex that attains it), by the transportation simplex.

    Entering and leaving cells are the first that can be (Bland), so degenerate bases end no pivot in a circle.
    """
    rows, columns = list(a), list(b)
    basis = _north_west(a, b, rows, columns)
    cells = [(i, j) for i in rows for j in columns]
    while True:
        u, v = _potentials(rows[0], basis, cost)
        entering = next((x for x in cells if x not in basis and cost[x] < u[x[0]] + v[x[1]]), None)
        if entering is None:
            break
        # Mass moves along the circle that the entering cell closes: less at odd places, more at even ones.
        circle = [entering, *_path(basis, entering)]
        amount = min(basis[x] for x in circle[1::2])
        leaving = min(x for x in circle[1::2] if basis[x] == amount)
        basis[entering] = Fraction(0)
        for k, x in enumerate(circle):
            basis[x] += amount if k % 2 == 0 else -amount
        del basis[leaving]
    plan = {x: mass for x, mass in basis.items() if mass > 0}
    return sum((mass * cost[x] for x, mass in plan.items()), Fraction(0)), plan


def _north_west(a: Row, b: Row, rows: list[int], columns: list[int]) -> Plan:
    """A first basis: a tree of n + m − 1 cells, some of which may have no mass."""
    left, right, basis, i, j = dict(a), dict(b), {}, 0, 0
    while True:
        r, c = rows[i], columns[j]
        amount = min(left[r], right[c])
        basis[r, c] = amount
        left[r], right[c] = left[r] - amount, right[c] - amount
        if i + 1 == len(rows) and j + 1 == len(columns):
            return basis
        if j + 1 == len(columns) or (left[r] == 0 and i + 1 < len(rows)):
            i += 1
        else:
            j += 1


def _potentials(root: int, basis: Plan, cost: dict[Pair, Fraction]) -> tuple[dict[int, Fraction], dict[int, Fraction]]:
    """u, v with u + v = cost on the cells of the basis."""
    u, v = {root: Fraction(0)}, {}
    left = list(basis)
    while left:
        later = []
        for i, j in left:
            if i in u:
                v[j] = cost[i, j] - u[i]
            elif j in v:
                u[i] = cost[i, j] - v[j]
            else:
                later.append((i, j))
        left = later
    return u, v


def _path(basis: Plan, entering: Pair) -> list[Pair]:
    """Cells of the basis that lead from the row of a cell to its column, in turns within a row and within a column."""
    i, j = entering
    tails: list[tuple[tuple[str, int], list[Pair]]] = [(("row", i), [])]
    while True:
        (side, k), path = tails.pop()
        if (side, k) == ("column", j):
            return path
        for x in basis:
            if path and x == path[-1]:
                continue
            if side == "row" and x[0] == k:
                tails.append((("column", x[1]), [*path, x]))
            elif side == "column" and x[1] == k:
                tails.append((("row", x[0]), [*path, x]))


def solved(A: list[list[Fraction]]) -> list[Fraction]:
    """x with A x = b, for rows [A | b], by Gaussian elimination."""
    n = len(A)
    A = [list(row) for row in A]
    for k in range(n):
        pivot = next(r for r in range(k, n) if A[r][k] != 0)
        A[k], A[pivot] = A[pivot], A[k]
        top = [x / A[k][k] for x in A[k]]
        A[k] = top
        for r in range(n):
            factor = A[r][k]
            if r != k and factor != 0:
                A[r] = [x - factor * y if y else x for x, y in zip(A[r], top, strict=True)]
    return [row[n] for row in A]


@dataclass(frozen=True)
class Comparison:
    """One way in which two choices are compared: a constant, and the two rows between which mass is moved."""

    constant: Fraction
    mu: Row
    nu: Row


class Game:
    """d(s, t) = max over the maximiser's options of min over its answers of constant + c_T min_ω ⟨ω, d⟩.

    Attributes: shape [S, T]; c_T; fixed (distances that are given); unknown (number of the unknown of a pair; where
    distances are symmetric, both orders have the same); options (for each unknown, a list of lists of `Comparison`).
    """

    def __init__(self, shape: tuple[int, int], c_T: Fraction) -> None:
        self.shape, self.c_T = shape, c_T
        self.fixed: dict[Pair, Fraction] = {}
        self.unknown: dict[Pair, int] = {}
        self.options: list[list[list[Comparison]]] = []

    def add(self, options: list[list[Comparison]], *pairs: Pair) -> None:
        """An unknown distance, which these pairs share."""
        for pair in pairs:
            self.unknown[pair] = len(self.options)
        self.options.append(options)

    def at(self, d: Sequence[Fraction], pair: Pair) -> Fraction:
        return self.fixed[pair] if pair in self.fixed else d[self.unknown[pair]]

    def answer(self, d: Sequence[Fraction], way: Comparison) -> tuple[Fraction, Plan]:
        """(value of a comparison, the plan that attains it)."""
        cost = {(i, j): self.at(d, (i, j)) for i in way.mu for j in way.nu}
        least, plan = best_plan(way.mu, way.nu, cost)
        return way.constant + self.c_T * least, plan

    def best_answer(self, d: Sequence[Fraction], answers: list[Comparison]) -> tuple[Fraction, tuple[Fraction, Plan]]:
        """(the least value of these comparisons, constant and plan that attain it)."""
        found = [(*self.answer(d, way), way.constant) for way in answers]
        value, plan, constant = min(found, key=lambda item: item[0])
        return value, (constant, plan)

    def evaluated(self, policy: Sequence[tuple[Fraction, Plan]]) -> list[Fraction]:
        """Distances where both players have fixed what they do."""
        n = len(policy)
        A = [[Fraction(int(k == j)) for j in range(n)] + [constant] for k, (constant, _) in enumerate(policy)]
        for k, (_, plan) in enumerate(policy):
            for pair, mass in plan.items():
                if pair in self.fixed:
                    A[k][n] += self.c_T * mass * self.fixed[pair]
                else:
                    A[k][self.unknown[pair]] -= self.c_T * mass
        return solved(A)

    def answered(self, chosen: Sequence[int]) -> list[Fraction]:
        """The least distances where the maximiser has fixed its options."""
        answers = [options[k] for options, k in zip(self.options, chosen, strict=True)]
        start = [Fraction(0)] * len(answers)
        policy = [self.best_answer(start, ways)[1] for ways in answers]
        while True:
            d = self.evaluated(policy)
            better = [self.best_answer(d, ways) for ways in answers]
            improved = [k for k, (value, _) in enumerate(better) if value < d[k]]
            if not improved:
                assert all(value == x for (value, _), x in zip(better, d, strict=True))
                return d
            for k in improved:
                policy[k] = better[k][1]

    def applied(self, d: Sequence[Fraction]) -> list[list[Fraction]]:
        """For each unknown, the value of each option of the maximiser: F(d) is the largest."""
        return [[self.best_answer(d, ways)[0] for ways in options] for options in self.options]

    def distances(self) -> np.ndarray:
        """The fixed point [S, T]."""
        chosen = [0] * len(self.options)
        while True:
            d = self.answered(chosen)
            values = self.applied(d)
            improved = [k for k, of in enumerate(values) if max(of) > d[k]]
            if not improved:
                break
            for k in improved:
                chosen[k] = values[k].index(max(values[k]))
        assert [max(of) for of in values] == d  # F(d) = d, exactly
        table = np.empty(self.shape, dtype=object)
        for pair in np.ndindex(*self.shape):
            table[pair] = self.at(d, pair)
        return table


def options_of(here: list[Choice], there: list[Choice], match: str, c_R: Fraction) -> list[list[Comparison]] | None:
    """What the maximiser may name and the minimiser answer for a pair of states; None where labels do not match."""

    def compared(x: Choice, y: Choice) -> Comparison:
        return Comparison(c_R * abs(x[1] - y[1]), x[2], y[2])

    if match == "hausdorff":
        return [[compared(x, y) for y in there] for x in here] + [[compared(x, y) for x in here] for y in there]
    ours, theirs = ({choice[0]: choice for choice in choices} for choices in (here, there))
    assert (len(ours), len(theirs)) == (len(here), len(there))
    if ours.keys() != theirs.keys():
        return None
    return [[compared(ours[label], theirs[label])] for label in ours]


def sparse(row: Sequence[float] | np.ndarray) -> Row:
    """The distribution that a row of numbers stands for, without its zeros."""
    return {k: mass for k, mass in enumerate(rational_row(row)) if mass > 0}


def _exact_choices(choices: list[list[tuple[Hashable, float, np.ndarray]]]) -> list[list[Choice]]:
    return [[(label, Fraction(float(r)), sparse(row)) for label, r, row in of_state] for of_state in choices]


def chain_metric(
    P: np.ndarray,
    R: np.ndarray,
    c_R: float | Fraction,
    c_T: float | Fraction,
    apart: Sequence[int] | None = None,
    largest: Fraction | None = None,
) -> np.ndarray:
    """d(s, t) = c_R |R_s − R_t| + c_T W(d)(P_s, P_t), or `largest` where the states' numbers `apart` differ [S, S]."""
    choices = [[("", r, row)] for r, row in zip(R, P, strict=True)]
    return mdp_metric(choices, "labels", c_R, c_T, apart, largest)


def mdp_metric(
    choices: list[list[tuple[Hashable, float, np.ndarray]]],
    match: str,
    c_R: float | Fraction,
    c_T: float | Fraction,
    apart: Sequence[int] | None = None,
    largest: Fraction | None = None,
) -> np.ndarray:
    """The metric of choices[s] = [(label, reward, distribution)], matched by "labels" or as sets, "hausdorff" [S, S].

    `largest` is where states are whose numbers `apart` differ, or whose sets of action labels do.
    """
    c_R, c_T, n = Fraction(c_R), Fraction(c_T), len(choices)
    exact = _exact_choices(choices)
    game = Game((n, n), c_T)
    for s in range(n):
        game.fixed[s, s] = Fraction(0)
        for t in range(s + 1, n):
            options = options_of(exact[s], exact[t], match, c_R)
            if options is None or (apart is not None and apart[s] != apart[t]):
                assert largest is not None
                game.fixed[s, t] = game.fixed[t, s] = largest
            else:
                game.add(options, (s, t), (t, s))
    return game.distances()


def largest_distance(c_R: float | Fraction, c_T: float | Fraction, *models: bm.Chain | bm.MDP) -> Fraction:
    """c_R · span / (1 − c_T), with the range of all rewards of the models; 1 where they are all equal."""
    low = min(Fraction(model.reward_range[0]) for model in models)
    high = max(Fraction(model.reward_range[1]) for model in models)
    return Fraction(c_R) * (high - low or 1) / (1 - Fraction(c_T))


def metric_of(
    model: bm.Chain | bm.MDP, match: str | None = None, c_R: float = 1.0, c_T: float | None = None
) -> np.ndarray:
    """What `solve_metric` with `Exact()` approximates: the metric of a model, with its state labels respected."""
    c_T = model.gamma if c_T is None else c_T
    apart = label_classes(model, None)
    return mdp_metric(choices_of(model), match or "labels", c_R, c_T, apart, largest_distance(c_R, c_T, model))


def cross_metric(
    model: bm.Chain | bm.MDP, other: bm.Chain | bm.MDP, match: str | None = None, c_R: float = 1.0
) -> np.ndarray:
    """Distances between the states of two models [S, T]: D(s, t) = c_R |R_s − R'_t| + c_T W(D)(P_s, P'_t) for chains.

    Choices are matched as in `metric_of`. State labels are respected by name; both models must have the same.
    """
    assert model.gamma == other.gamma
    names = respected_labels(model, None)
    assert set(names) == set(respected_labels(other, None))
    exact, more = _exact_choices(choices_of(model)), _exact_choices(choices_of(other))
    game = Game((model.n_states, other.n_states), Fraction(model.gamma))
    largest = largest_distance(c_R, model.gamma, model, other)
    for s, t in np.ndindex(*game.shape):
        same = all(model.state_labels[name][s] == other.state_labels[name][t] for name in names)
        options = options_of(exact[s], more[t], match or "labels", Fraction(c_R)) if same else None
        if options is None:
            game.fixed[s, t] = largest
        else:
            game.add(options, (s, t))
    return game.distances()


def bisimilar(P: np.ndarray, labels: Sequence[Hashable]) -> list[int]:
    """The number of each state's bisimulation class in a labelled chain [S], by exact partition refinement."""
    rows = [sparse(row) for row in P]
    classes = _numbered(list(labels))
    while True:
        signatures = []
        for s, row in enumerate(rows):
            mass: dict[int, Fraction] = {}
            for t, p in row.items():
                mass[classes[t]] = mass.get(classes[t], Fraction(0)) + p
            signatures.append((classes[s], frozenset(mass.items())))
        finer = _numbered(signatures)
        if max(finer) == max(classes):
            return classes
        classes = finer


def _numbered(items: list[Any]) -> list[int]:
    known: dict[Any, int] = {}
    return [known.setdefault(item, len(known)) for item in items]


def undiscounted(P: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
    """The metric of a labelled chain at discount one [S, S]: 1 where labels differ, else the least d = W(d)(P_s, P_t).

    The least fixed point is 0 at bisimilar pairs and nowhere else. With these at 0 there is one fixed point: the pairs
    that a coupling reaches without ever meeting different labels would be a bisimulation, so from all other pairs every
    coupling meets them, and no linear system is singular.
    """
    n, classes = len(P), bisimilar(P, labels)
    rows = [sparse(row) for row in P]
    game = Game((n, n), Fraction(1))
    for s in range(n):
        for t in range(s, n):
            if classes[s] == classes[t]:
                game.fixed[s, t] = game.fixed[t, s] = Fraction(0)
            elif labels[s] != labels[t]:
                game.fixed[s, t] = game.fixed[t, s] = Fraction(1)
            else:
                game.add([[Comparison(Fraction(0), rows[s], rows[t])]], (s, t), (t, s))
    d = game.distances()
    assert {pair for pair in np.ndindex(n, n) if d[pair] == 1} == furthest_pairs(P, labels)
    assert {pair for pair in np.ndindex(n, n) if d[pair] == 0} == set(zip(*_same(classes), strict=True))
    return d


def _same(classes: list[int]) -> tuple[list[int], list[int]]:
    of = np.array(classes)
    s, t = np.nonzero(of[:, None] == of[None, :])
    return s.tolist(), t.tolist()


def furthest_pairs(P: np.ndarray, labels: Sequence[Hashable]) -> set[Pair]:
    """Pairs at distance 1 in a labelled chain at discount one, from its graph alone.

    A coupling may put mass on any pair of successors. So a pair is at distance 1 where no path through pairs of equal
    labels leads to a bisimilar pair.
    """
    n, classes = len(P), bisimilar(P, labels)
    supports = [list(sparse(row)) for row in P]
    near = set(zip(*_same(classes), strict=True))
    while True:
        more = {
            (s, t)
            for s, t in np.ndindex(n, n)
            if (s, t) not in near
            and labels[s] == labels[t]
            and any((u, v) in near for u in supports[s] for v in supports[t])
        }
        if not more:
            return set(np.ndindex(n, n)) - near
        near |= more


def off_by(distance: np.ndarray, truth: np.ndarray) -> Fraction:
    """The largest difference between floating-point numbers and the truth, exactly."""
    assert distance.shape == truth.shape
    return max(abs(Fraction(float(x)) - y) for x, y in zip(distance.flat, truth.flat, strict=True))


def within(distance: np.ndarray, truth: np.ndarray, error: float) -> bool:
    """Whether floating-point numbers are as near to the truth as they claim."""
    return bool(off_by(distance, truth) <= Fraction(float(error)))


def enclosed(lower: np.ndarray, truth: np.ndarray, upper: np.ndarray) -> bool:
    """Whether the truth is between bounds, exactly."""
    assert lower.shape == truth.shape == upper.shape
    return all(
        Fraction(float(low)) <= x <= Fraction(float(high))
        for low, x, high in zip(lower.flat, truth.flat, upper.flat, strict=True)
    )


def eighths(rng: np.random.Generator, n_rows: int, n: int) -> np.ndarray:
    """Rows of multiples of 1/8 [N, S], which floating-point numbers hold exactly; some are equal, some have gaps."""
    rows = rng.multinomial(8, rng.dirichlet(np.full(n, rng.choice([0.2, 0.6, 3.0])), size=n_rows)) / 8.0
    if n_rows > 1 and rng.random() < 0.3:
        rows[1] = rows[0]
    return rows


def eighths_chain(seed: int, n: int, gamma: float = 0.875, *, labelled: bool = False, scale: float = 1.0) -> bm.Chain:
    """A chain whose rows and rewards are exact; with one or two state labels where wanted."""
    rng = np.random.default_rng(seed)
    P, R = eighths(rng, n, n), rng.integers(0, 5, size=n) / 4.0 * scale
    labels = {name: rng.random(n) < 0.4 for name in ("goal", "busy")[: 1 + seed % 2]} if labelled else {}
    return bm.Chain.from_arrays(P, R, gamma, state_labels=labels)


def eighths_mdp(seed: int, n: int, gamma: float = 0.875, *, labelled: bool = False) -> bm.MDP:
    """An MDP of this kind; states have one or two choices with action labels drawn from a and b."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 3, size=n)
    labels = [x for k in counts for x in sorted(rng.choice(["a", "b"], k, replace=False))]
    P, R = eighths(rng, int(counts.sum()), n), rng.integers(0, 5, size=counts.sum()) / 4.0
    mdp = bm.MDP.from_choices(P, R, np.concatenate([[0], np.cumsum(counts)]), gamma, labels)
    return mdp.with_labels({"goal": rng.random(n) < 0.4}) if labelled else mdp


def coin_chain(seed: int, n: int) -> bm.Chain:
    """A labelled chain without rewards: in some, states that nothing tells apart, or that all paths tell apart."""
    rng = np.random.default_rng(seed)
    P = eighths(rng, n, n)
    stays = rng.random(n) < 0.3
    P[stays] = np.eye(n)[stays]
    return bm.Chain.from_arrays(P, np.zeros(n), 0.5, state_labels={"heads": rng.random(n) < 0.35})
