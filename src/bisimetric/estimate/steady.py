"""How far an estimated row is from the true one, in the transport distance of the true metric.

The true metric d does not depend on the data, so Z = W_d(p̂, p) = sup of (p̂ − p)f over functions f that are 1-Lipschitz
for d (Kantorovich) is the supremum of an empirical process over a fixed class. With n independent samples, Bousquet's
form of Talagrand's inequality gives, with probability 1 − α and L = log(1/α),

    Z ≤ E Z + √(2 (v + 2bE Z) L/n) + bL/(3n),      v ≥ sup Var_p f,   b ≥ max |f − pf|.

All three numbers are bounded by an upper bound U ≥ d and the confidence set of p, so this needs no union over
functions: L does not grow with the number of states, unlike a ball of rows that must hold for every function at once.

    E Z ≤ Σ_e U(e) √(p_e (1 − p_e)/n)      for any tree over the states, p_e the mass beyond edge e: along a tree whose
                                           edges are as long as U the transport costs at least W_d (d is a metric), and
                                           it is Σ_e U(e) |p̂_e − p_e|. The tree is the shortest one for U.
    v ≤ ½ Σ p(x) p(y) U(x, y)²             as Var f = ½ E (f(X) − f(Y))².

For data gathered adaptively: nZ_n is a submartingale (a supremum of martingales), so by Doob's inequality the bound for
m samples holds for all n ≤ m at once, in the form nZ_n ≤ m·bound(m). Epochs m = 2, 4, 8, … share α as 1/((k+1)(k+2)).

Two rows i and j together (`steady_margins`) can be farther from the truth than either alone, but by less than the sum,
and one function is cheaper than the supremum of all.

    above   W_d(p_i, p_j) = (p_i − p_j)f for one f, the best potential of the true rows under the true metric. It does
            not depend on the data, and W_d(p̂_i, p̂_j) ≥ (p̂_i − p̂_j)f. So W_d(p_i, p_j) exceeds W_d(p̂_i, p̂_j) by no more
            than (p_i − p̂_i)f − (p_j − p̂_j)f, a sum of independent terms: Bernstein's inequality, once for each pair.
    below   W_d(p̂_i, p̂_j) = p̂_i u − p̂_j v at a vertex (u, v) of the dual problem between the *true* supports (p̂ has no
            others), and W_d(p_i, p_j) ≥ p_i u − p_j v. These vertices do not depend on the data either, and between k
            and l states there are at most C(k + l − 2, k − 1) of them (Balinski and Russakoff, 1984): Bernstein's
            inequality for each. Where supports are not known to be small, all sets of states as large as those observed
            are paid for instead, if that is cheaper. Which is cheaper is seen from the data, so each of the two has
            half of the share. At a vertex u(x) = min over y of d(x, y) + v(y), and likewise v, so both are 1-Lipschitz,
            and their variances are bounded as above.

With fixed numbers of samples the two rows are independent, so variances add up; for adaptive data each has its own
inequality for all n at once, and deviations add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..kinds import Floats, Ints
from .confidence import Confidence
from .intervals import bernstein

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_MOST_STATES = 3000  # beyond, S² numbers for the tree cost more than they bring
_ENUMERATED = 10  # observed successors up to which all sets of them are looked at


def usable(sets: Confidence) -> bool:
    """Whether the bound is worth its cost for so many states."""
    return sets.n_states <= _MOST_STATES


class Law(NamedTuple):
    """What is known of functions that are 1-Lipschitz for the true metric d ≤ U, in units of the largest U."""

    scale: float  # the largest U
    U: Floats  # divided by it [S, S]
    variance: Floats  # at least that of any such function under the true row [N]
    reach: Floats  # at least its largest deviation from its mean [N]

    @classmethod
    def of(cls, sets: Confidence, U: Floats) -> Law:
        scale = float(U.max()) or 1.0
        unit = U / scale
        reach = np.full(len(sets.rows), float(unit.max()))
        inside = np.flatnonzero(sets.unseen == 0.0)
        reach[inside] = np.minimum(reach[inside], _diameters(sets, unit)[inside])
        return cls(scale, unit, _variance(sets, unit), reach)


def steady_reach(sets: Confidence, law: Law, alpha: float) -> Floats:
    """A bound on W_d(p̂, p) of each row [N] for the true metric d ≤ U, with probability 1 − α for all rows together."""
    counted = sets.observed & np.isfinite(sets.visits)
    open_rows = max(int(np.isfinite(sets.visits).sum()), 1)
    n, L = np.where(counted, sets.visits, 1.0), np.full(len(sets.rows), np.log(open_rows / alpha))
    stretch = np.ones(len(n))
    if sets.design == "adaptive":
        k = np.maximum(np.ceil(np.log2(n)), 1.0)
        stretch, L = 2.0**k / n, L + np.log(k * (k + 1.0))
        n = 2.0**k
    mean, b = _expected(sets, law.U) / np.sqrt(n), law.reach
    bound = stretch * (mean + np.sqrt(2.0 * (law.variance + 2.0 * b * mean) * L / n) + b * L / (3.0 * n))
    return law.scale * np.where(counted, bound, np.where(sets.observed, 0.0, np.inf))


class PairQuestion(NamedTuple):
    """Pairs of rows [S] that are compared: mixtures of the rows of the sets, and how many such families there are."""

    mixing: csr_array  # [S, N]
    sizes: Ints  # observed successors of each [S]
    families: int
    unit: float  # the largest possible distance, which was known beforehand


def steady_margins(sets: Confidence, law: Law, question: PairQuestion, alpha: float) -> tuple[Floats, Floats]:
    """(above, below) [S, S]: by how much W_d of true rows can exceed W_d of the estimated ones, or fall short of it.

    With probability 1 − α for all pairs of all families together.
    """
    mixing, S = question.mixing, question.mixing.shape[0]
    price = np.log(2.0 * question.families * max(S * (S - 1) / 2, 1.0) / alpha)  # half of α for each side
    vertices = _log_vertices(sets, question)
    known = np.isinf(sets.visits)
    n = np.where(sets.observed, sets.visits, 0.0)
    if sets.design == "adaptive":
        most = max(int(np.diff(mixing.indptr).max(initial=0)), 1)
        deviations = []
        for more in (0.0, abs(mixing).sign().T @ vertices.max(axis=1, initial=0.0)):  # a row belongs to one state
            asked = price + np.log(2.0 * most) + more
            unit = question.unit / law.scale
            found = bernstein(law.variance, law.reach, np.where(known, 0.0, n), asked, "adaptive", unit)
            own = mixing @ np.where(known, 0.0, found)
            deviations.append(law.scale * (own[:, None] + own[None, :]))
        return deviations[0], deviations[1]
    per_visit = np.divide(1.0, n, out=np.full(len(n), np.inf), where=n > 0.0)  # rows never visited can be anything
    with np.errstate(invalid="ignore"):  # 0 · ∞, for laws without variance
        variance, reach = (np.where(n > 0.0, x * per_visit, np.inf) for x in (law.variance, law.reach))
    share = mixing.multiply(mixing) @ np.where(known, 0.0, variance)
    largest = mixing.multiply(np.where(known, 0.0, reach)[None, :]).tocsr().max(axis=1).toarray().reshape(-1)
    V, b = share[:, None] + share[None, :], np.maximum(largest[:, None], largest[None, :])

    def deviation(L: Floats | float) -> Floats:
        return np.asarray(law.scale * (np.sqrt(2.0 * V * L) + b * L / 3.0))

    return deviation(price), deviation(price + vertices)


def _log_vertices(sets: Confidence, question: PairQuestion) -> Floats:
    """log(how many vertices the dual problem between two rows may have) [S, S], sets of states paid for."""
    from scipy.special import gammaln

    def ways(n: Floats, k: Floats) -> Floats:
        return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))

    def between(k: Floats) -> Floats:
        rows, columns = np.broadcast_arrays(k[:, None], k[None, :])
        return ways(rows + columns - 2.0, rows - 1.0)

    S = float(sets.n_states)
    follow = abs(question.mixing).sign() @ sets.successors.astype(np.float64)
    possible, seen = np.minimum(np.maximum(follow, 1.0), S), question.sizes.astype(np.float64)
    chosen = np.log(S) + ways(np.full_like(seen, S), seen)
    either = np.minimum(between(possible), between(seen) + chosen[:, None] + chosen[None, :])
    return np.asarray(either + np.log(2.0))


def _expected(sets: Confidence, U: Floats) -> Floats:
    """√n · a bound on E W_d(p̂, p) of each row [N], by the shortest tree of U."""
    if len(U) < 2:
        return np.zeros(len(sets.rows))
    lengths, below = _shortest_tree(U)
    q = np.asarray(sets.rows.matrix() @ below)  # [N, edges]: mass beyond each edge
    empty = (q <= 0.0) | (q >= 1.0 - 1e-12)
    off = np.where(empty, np.minimum(sets.unseen, sets.spread)[:, None], sets.spread[:, None])
    low, high = np.clip(q - off, 0.0, 1.0), np.clip(q + off, 0.0, 1.0)
    nearest = np.clip(0.5, low, high)
    return np.asarray(np.sqrt(nearest * (1.0 - nearest)) @ lengths)


def _shortest_tree(U: Floats) -> tuple[Floats, Floats]:
    """(length of each edge, which states lie beyond it [S, edges]) of a minimum spanning tree."""
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    n = len(U)
    shifted = U + (1.0 + U.max())  # entries of 0 would be no edges
    np.fill_diagonal(shifted, 0.0)
    tree = minimum_spanning_tree(shifted)
    order, parent = breadth_first_order(tree, 0, directed=False)
    below = np.eye(n)
    for state in order[:0:-1]:  # leaves first: what is beyond a state is beyond its parent
        below[:, parent[state]] += below[:, state]
    states = np.asarray(order[1:], np.int64)
    return np.asarray(U[states, parent[states]]), np.asarray(below[:, states])


def _variance(sets: Confidence, U: Floats) -> Floats:
    """A bound on the variance of 1-Lipschitz functions over the set of each row [N], the smaller of two.

    ½ Σ p(x) p(y) U(x, y)²: with H = U², ½ pᵀHp − ½ p̂ᵀHp̂ = (p − p̂)ᵀH(p + p̂)/2 ≤ spread · max (H p̂) + spread² max H.
    D² max over A of p(A) (1 − p(A)), D the diameter of what was seen: the variance is convex in f, so largest where f
    is 0 or D everywhere. What was not seen adds at most its mass times the largest U².
    """
    H = U * U
    towards = np.asarray(sets.rows.matrix() @ H)  # [N, S]
    own = 0.5 * np.asarray(sets.rows.matrix().multiply(towards).sum(axis=1)).reshape(-1)
    far = float(H.max())
    moved = own + sets.spread * (towards.max(axis=1) + sets.spread * far)
    beyond = np.minimum(sets.unseen, sets.spread) * far
    halved = _diameters(sets, U) ** 2 * _evenly(sets) + beyond
    return np.asarray(np.minimum(np.minimum(moved, halved), 0.25 * far))  # f has range at most max U


def _evenly(sets: Confidence) -> Floats:
    """max over sets A of observed successors of p(A) (1 − p(A)) over the set of each row [N]; at most 1/4."""
    found = np.full(len(sets.rows), 0.25)
    for chosen, places in sets.blocks(1 << _ENUMERATED):
        m = places.shape[1]
        if m <= _ENUMERATED:
            members = (np.arange(2**m)[:, None] >> np.arange(m) & 1).astype(np.float64)
            q, off = sets.rows.probs[places] @ members.T, sets.spread[chosen][:, None]
            nearest = np.clip(0.5, np.clip(q - off, 0.0, 1.0), np.clip(q + off, 0.0, 1.0))
            found[chosen] = (nearest * (1.0 - nearest)).max(axis=1)
    return found


def _diameters(sets: Confidence, U: Floats) -> Floats:
    """max U over the observed successors of each row [N]."""
    found = np.empty(len(sets.rows))
    for chosen, places in sets.blocks():
        states = sets.rows.indices[places]
        found[chosen] = U[states[:, :, None], states[:, None, :]].max(axis=(1, 2))
    return found
