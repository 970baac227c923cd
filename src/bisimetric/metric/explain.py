"""Why two states are as far apart as they are: a distance split into what causes it.

One step of the fixed point is a sum over what a pair differs in at once and what comes next:

    d(s, t) = c_R |r − r'| + c_T W,        W = Σ ω(x, y) d(x, y)  for p = 1,

under the action that decides (the maximum over labels; under Hausdorff matching the choice that is farthest from all of
the other state's, with its nearest partner), where ω is the plan that the transport chooses. For p > 1 the share of
(x, y) in W is W times its part of Σ ω d^p; for Sinkhorn's value cost λ KL(ω) has its part too. Every pair (x, y) is
split up in the same way, and its parts are scaled to its share.

**What adds up.** The shares add up to F(d)(s, t). As d is within `error` of the fixed point and F is non-expansive with
factor c_T, |F(d) − d| ≤ (1 + c_T) · error; a rigorous metric for which this fails is not one of the model that it is
explained with, and is refused. What is not looked into, for depth or for small shares, is stated as a remainder.

**Origins.** The plans couple two walks, and d(s, t) = Σ over pairs of (expected discounted visits) · (what differs
there at once). Visits are found by pushing weight along plans, the largest open share first, until what is open is
below a share of the distance.

That the optimal policy of the coupling game explains a distance is shown for labelled chains by Vlasman, Nanah Ji,
Worrell and van Breugel, *Explainability is a Game for Probabilistic Bisimilarity Distances* (CONCUR 2025), after Rady
and van Breugel, *Explainability of Probabilistic Bisimilarity Distances for Labelled Markov Chains* (FoSSaCS 2023), who
explain them by formulas. Plans of least cost need not be unique: what is shown is one explanation, not the only one.

Cost: one transport for each pair that is looked into (times its choices); nothing of size S².
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..backends.comparison import Comparison
from ..backends.plans import plan_of, transport_cost
from ..certificates import Certificate
from ..checks import check_number, check_whole
from ..kinds import Array, Floats
from ..model import MDP, Chain
from ..showing import short
from ..transport import KLBall, Sinkhorn, Transport
from .explanation import Cause, Explanation, Origin
from .operator import comparison_of
from .settings import Question

_MOST, _MOST_ENTROPIC, _MOST_IN_BALL = 2000, 300, 30  # pairs that are looked into, at most: plans differ in cost
_LISTED = 10  # origins


class Successor(NamedTuple):
    """A pair of next states: its mass in the plan, and its share of F(d)(s, t)."""

    x: int
    y: int
    mass: float
    share: float


@dataclass(frozen=True)
class OneStep:
    """F(d)(s, t), split up once."""

    total: float
    rewards: tuple[float, float] | None = None
    reward: float = 0.0
    entropy: float = 0.0
    reason: str = ""
    apart: float = 0.0
    actions: tuple[str, str] | None = None
    rivals: tuple[tuple[str, float], ...] = ()
    successors: tuple[Successor, ...] = ()


class Steps:
    """One steps of pairs, each worked out once."""

    def __init__(self, model: Chain | MDP, question: Question, d: Array) -> None:
        self.model, self.question, self.d = model, question, d
        self.comparison: Comparison = comparison_of(model, question)
        self.transport: Transport = question.transport
        self._known: dict[tuple[int, int], OneStep] = {}

    def __call__(self, s: int, t: int) -> OneStep:
        known = self._known.get((s, t))
        if known is None:
            known = self._known[s, t] = self._look(s, t)
        return known

    def _look(self, s: int, t: int) -> OneStep:
        if s == t and not self._sees_diagonal:
            return OneStep(0.0, reason="the same state")
        if self.comparison.apart[s] != self.comparison.apart[t]:
            largest = self.comparison.largest
            return OneStep(largest, reason=self._difference(s, t), apart=largest)
        rows = [range(*self.comparison.row_pointers[[k, k + 1]]) for k in (s, t)]
        if self.question.match == "hausdorff":
            return self._hausdorff(list(rows[0]), list(rows[1]))
        if self.question.match == "labels":
            return self._labels(list(rows[0]), list(rows[1]))
        return self._rows(rows[0][0], rows[1][0])

    @property
    def most(self) -> int:
        """How many pairs may be looked into."""
        if isinstance(self.transport, KLBall):
            return _MOST_IN_BALL
        return _MOST_ENTROPIC if isinstance(self.transport, Sinkhorn) else _MOST

    @property
    def _sees_diagonal(self) -> bool:
        zero = isinstance(self.transport, Sinkhorn) and self.transport.diagonal == "zero"
        return self.transport.with_diagonal and not zero

    def _difference(self, s: int, t: int) -> str:
        """Which labels or actions differ."""
        labels = [
            f"{short(name, 30)} holds in the {'first' if holds[s] else 'second'} only"
            for name, holds in ((name, self.model.state_labels[name]) for name in self.question.respected)
            if holds[s] != holds[t]
        ]
        if labels:
            return "labels differ: " + ", ".join(labels[:5])
        assert isinstance(self.model, MDP)
        sets = []
        for k in (s, t):
            own = self.model.action_of_choice[slice(*self.model.choice_ptr[[k, k + 1]])]
            sets.append({self.model.action_labels[a] for a in own})
        only = [f"{short(a, 30)} in the first only" for a in sorted(sets[0] - sets[1])]
        only += [f"{short(a, 30)} in the second only" for a in sorted(sets[1] - sets[0])]
        return "actions differ: " + ", ".join(only[:5])

    def _rows(self, a: int, b: int) -> OneStep:
        """Two choices compared."""
        rows, c_R, c_T = self.comparison.rows, self.comparison.c_R, self.comparison.c_T
        (i, mu), (j, nu) = (_row(rows.indptr, rows.indices, rows.probs, row) for row in (a, b))
        r, q = (float(self.comparison.rewards[row]) for row in (a, b))
        C = np.asarray(self.d[np.ix_(i, j)], np.float64)
        plan = plan_of(self.transport, C, mu, nu)
        W, entropy = transport_cost(self.transport, C, plan, mu, nu)
        part = _parts(C, plan, self.transport.order)
        next_share = c_T * W * (1.0 - entropy)
        where = np.argwhere(plan > 0.0)
        found = [Successor(int(i[k]), int(j[m]), float(plan[k, m]), next_share * float(part[k, m])) for k, m in where]
        found.sort(key=lambda f: (-f.share, -f.mass, f.x, f.y))
        reward = c_R * abs(r - q)
        shown = (r, q) if c_R > 0.0 else None
        return OneStep(reward + c_T * W, shown, reward, c_T * W * entropy, successors=tuple(found))

    def _labels(self, rows: list[int], others: list[int]) -> OneStep:
        """The action that decides: the one under which the two are farthest apart."""
        assert isinstance(self.model, MDP)
        of_label = {int(self.model.action_of_choice[b]): b for b in others}
        found = []
        for a in rows:
            b = of_label[int(self.model.action_of_choice[a])]
            found.append((self._rows(a, b), (self.model.action_name(a), self.model.action_name(b))))
        best = max(range(len(found)), key=lambda k: (found[k][0].total, -k))
        rivals = [(names[0], step.total) for k, (step, names) in enumerate(found) if k != best]
        return _deciding(*found[best], rivals)

    def _hausdorff(self, rows: list[int], others: list[int]) -> OneStep:
        """The choice that is farthest from all of the other state's, with the nearest of these."""
        assert isinstance(self.model, MDP)
        steps = [[self._rows(a, b) for b in others] for a in rows]
        table = np.array([[step.total for step in row] for row in steps])
        forth, back = table.min(axis=1), table.min(axis=0)
        if forth.max() >= back.max():
            k = int(forth.argmax())
            m = int(table[k].argmin())
            rivals = [(self.model.action_name(rows[o]), float(forth[o])) for o in range(len(rows)) if o != k]
        else:
            m = int(back.argmax())
            k = int(table[:, m].argmin())
            rivals = [(self.model.action_name(others[o]), float(back[o])) for o in range(len(others)) if o != m]
        names = (self.model.action_name(rows[k]), self.model.action_name(others[m]))
        return _deciding(steps[k][m], names, rivals)


def _row(indptr: Array, indices: Array, probs: Floats, row: int) -> tuple[Array, Floats]:
    own = slice(int(indptr[row]), int(indptr[row + 1]))
    return indices[own].astype(np.int64), probs[own]


def _parts(C: Floats, plan: Floats, p: float) -> Floats:
    """Which part of Σ ω d^p each entry of the plan is."""
    top = float(C.max(initial=0.0))
    if top == 0.0:
        return np.zeros_like(C)
    costs = plan * (C / top) ** p
    whole = float(costs.sum())
    return costs / whole if whole > 0.0 else np.zeros_like(C)


def _deciding(step: OneStep, names: tuple[str, str], rivals: list[tuple[str, float]]) -> OneStep:
    rivals.sort(key=lambda rival: -rival[1])
    return replace(step, actions=names, rivals=tuple(rivals))


@dataclass
class _Node:
    """A pair in the making of the tree."""

    pair: tuple[int, int]
    level: int
    mass: float
    share: float
    step: OneStep | None = None
    children: tuple[_Node, ...] = ()
    cut: int = 0
    cut_share: float = 0.0


def explain(
    model: Chain | MDP,
    question: Question,
    d: Array,
    certificate: Certificate,
    pair: tuple[int, int],
    *,
    depth: int = 3,
    remainder: float = 0.01,
    width: int = 6,
) -> Explanation:
    """Split d(s, t) into its causes.

    Args:
        model: the model of the distances. question: what was asked of it. d: [S, S]. certificate: of d.
        pair: the two states.
        depth: how many steps ahead causes are looked into, at least 1.
        remainder: go on, the largest shares first, until less than this part of the distance is left; smaller shares
            are summed up.
        width: how many next pairs of each are listed at most.
    """
    if check_whole("depth", depth) < 1 or check_whole("width", width) < 1:
        raise ValueError(f"depth and width must be at least 1; got {depth} and {width}.")
    if not 0.0 <= check_number("remainder", remainder) <= 1.0:
        raise ValueError(f"remainder must be in [0, 1]; got {remainder}.")
    steps = Steps(model, question, d)
    first = steps(*pair)
    distance = float(d[pair])
    allowed = _allowed(steps, question, certificate, d)
    if certificate.rigorous and not abs(first.total - distance) <= allowed:
        raise ValueError(
            f"the distance {distance:.6g} of {short(model.name_of(pair[0]))} and {short(model.name_of(pair[1]))} is "
            f"{first.total:.6g} by this model, and {allowed:.2g} is allowed: the distances are not those of this model."
        )
    root = _tree(steps, pair, first, depth, remainder, width)
    origins, left = _origins(steps, pair, first, remainder)
    return Explanation(
        _cause(root, model, d),
        origins,
        left,
        distance,
        first.total,
        allowed,
        certificate,
        question.transport.order,
        _notes(question, root),
    )


def _allowed(steps: Steps, question: Question, certificate: Certificate, d: Array) -> float:
    """How far F(d)(s, t) may be from d(s, t)."""
    eps = float(np.finfo(d.dtype).eps)
    widest = int(steps.comparison.rows.sizes.max())
    return (1.0 + question.transition_weight) * certificate.error + 16.0 * (widest + 4) * eps * steps.comparison.largest


def _notes(question: Question, root: _Node) -> tuple[str, ...]:
    notes = []
    if question.transport.order > 1.0:
        notes.append(f"shares of next states are in proportion to mass × distance^{question.transport.order:g}")
    if root.step is not None and len(root.step.successors) > 1:
        notes.append("plans of least cost need not be unique; this is one of them")
    return tuple(notes)


def _tree(steps: Steps, pair: tuple[int, int], first: OneStep, depth: int, remainder: float, width: int) -> _Node:
    """Look into pairs, the largest share first."""
    root = _Node(pair, 0, 1.0, first.total)
    order = 0
    open_: list[tuple[float, int, _Node]] = [(-root.share, order, root)]
    left, looked = root.share, 0
    while open_ and looked < steps.most and (looked == 0 or left > remainder * root.share):
        _, _, node = heapq.heappop(open_)
        step = steps(*node.pair)
        if node is not root and not step.total > 0.0:
            continue  # a distance within its error of 0: nothing to split
        looked += 1
        scale = node.share / step.total if step.total > 0.0 else 0.0
        seen = [successor for successor in step.successors if successor.share > 0.0]
        large = [successor for successor in seen if scale * successor.share >= remainder * root.share]
        kept = large[:width] or seen[:1]
        cut = seen[len(kept) :]
        node.step = step
        node.children = tuple(_Node((x, y), node.level + 1, mass, scale * share) for x, y, mass, share in kept)
        node.cut, node.cut_share = len(cut), scale * sum(successor.share for successor in cut)
        left -= scale * (step.reward + step.apart + step.entropy) + node.cut_share
        for child in node.children:
            if child.level >= depth or child.share <= 0.0:
                left -= child.share
            else:
                order += 1
                heapq.heappush(open_, (-child.share, order, child))
    return root


def _cause(node: _Node, model: Chain | MDP, d: Array) -> Cause:
    """A node as others see it."""
    s, t = node.pair
    names = (model.name_of(s), model.name_of(t))
    bare = Cause(node.pair, names, node.mass, float(d[s, t]), node.share)
    step = node.step
    if step is None:
        return bare
    scale = node.share / step.total if step.total > 0.0 else 0.0
    return replace(
        bare,
        looked_into=True,
        rewards=step.rewards,
        reward_share=scale * step.reward,
        actions=step.actions,
        rivals=step.rivals,
        reason=step.reason,
        reason_share=scale * step.apart,
        entropy_share=scale * step.entropy,
        causes=tuple(_cause(child, model, d) for child in node.children),
        cut=node.cut,
        cut_share=node.cut_share,
    )


def _origins(steps: Steps, pair: tuple[int, int], first: OneStep, remainder: float) -> tuple[tuple[Origin, ...], float]:
    """Where two coupled walks differ at once, over all paths; (the largest, what is left)."""
    total = first.total
    waiting: dict[tuple[int, int], float] = {pair: total}  # shares of pairs that are still to be split up
    made: dict[tuple[int, int], float] = {}
    visits: dict[tuple[int, int], float] = {}
    heap = [(-total, pair)]
    left, pushes = total, 0
    while heap and pushes < steps.most and left > remainder * total:
        _, at = heapq.heappop(heap)
        share = waiting.pop(at, 0.0)
        step = steps(*at)
        if share <= 0.0 or not step.total > 0.0:
            continue
        pushes += 1
        scale = share / step.total
        own = scale * (step.reward + step.apart + step.entropy)
        visits[at] = visits.get(at, 0.0) + scale
        made[at] = made.get(at, 0.0) + own
        left -= own
        for x, y, _, part in step.successors:
            if part > 0.0:
                waiting[x, y] = waiting.get((x, y), 0.0) + scale * part
                heapq.heappush(heap, (-waiting[x, y], (x, y)))
    largest = sorted((at for at in made if made[at] > 0.0), key=lambda at: (-made[at], at))[:_LISTED]
    name_of = steps.model.name_of
    origins = tuple(
        Origin((name_of(at[0]), name_of(at[1])), at, made[at], visits[at], _what(steps(*at))) for at in largest
    )
    return origins, max(total - sum(origin.share for origin in origins), 0.0)


def _what(step: OneStep) -> str:
    if step.reason:
        return step.reason
    if step.rewards is None or step.reward == 0.0:
        return "entropy of the plan"
    return f"rewards {step.rewards[0]:.4g} and {step.rewards[1]:.4g}"
