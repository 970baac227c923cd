"""The plan of one pair: which successor of one row goes with which of another, and how much of it.

Sweeps keep no plans but compressed trees; who wants to see a single plan gets it here, on the host, in double
precision. Exact plans are those of the engine's own simplex, read from the tree that it leaves of the pair; entropic
ones come from the plain iteration of `reference`.
"""

from __future__ import annotations

import numpy as np

from ..kinds import Array, Floats
from ..model import Distributions
from ..transport import Exact, Independent, KLBall, Sinkhorn, Transport
from . import reference
from .select import host

_CROSSED = 2  # what the simplex keeps of two states a side: which diagonal took all that it could
_SMALL, _LARGE = 1e-9, 1e9  # shares of the largest cost: λ beyond them is as good as 0, or as endless
_HALVINGS = 40
_PASSES, _FEW_PASSES = 20_000, 1000  # of Sinkhorn's iteration, for one plan and for one of many


def plan_of(transport: Transport, costs: Floats, a: Floats, b: Floats) -> Floats:
    """The coupling ω [n, m] of masses a [n] and b [m] that a transport chooses for ground distances [n, m].

    Exact: one of least cost, within the simplex's pricing tolerance. Sinkhorn, KLBall: the regularised one.
    Independent: the product. Cost: that of one pair; entropic plans some milliseconds, more for small λ.
    """
    unit = float(costs.max(initial=0.0))
    if unit == 0.0 or len(a) == 1 or len(b) == 1 or isinstance(transport, Independent):
        return np.outer(a, b)
    C = np.asarray(costs, np.float64) / unit
    p = transport.order
    if isinstance(transport, Sinkhorn):
        return _entropic(C, a, b, _in_unit(transport.reg, unit, p), p)
    if isinstance(transport, KLBall):
        return _in_ball(C, a, b, transport.radius, p)
    if isinstance(transport, Exact):
        return _exact(C, a, b, p)
    raise TypeError(f"there are no plans of {type(transport).__name__}.")


def _in_unit(reg: float, unit: float, p: float) -> float:
    """λ for costs that were divided by unit^p."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.exp(np.clip(np.log(reg) - p * np.log(unit), -700.0, 700.0)))


def transport_cost(transport: Transport, costs: Floats, plan: Floats, a: Floats, b: Floats) -> tuple[float, float]:
    """(W, the share of W^p that is entropy and not cost), for a plan; the share is 0 but for Sinkhorn's value."""
    unit = float(costs.max(initial=0.0))
    if unit == 0.0:
        return 0.0, 0.0
    p = transport.order
    total = float(np.sum(plan * (costs / unit) ** p))
    entropy = 0.0
    if isinstance(transport, Sinkhorn) and transport.cost == "value":
        entropy = _in_unit(transport.reg, unit, p) * max(reference.relative_entropy(plan, a, b), 0.0)
    whole = total + entropy
    return unit * whole ** (1.0 / p), entropy / whole if whole > 0.0 else 0.0


def _exact(C: Floats, a: Floats, b: Floats, p: float) -> Floats:
    """The plan of the tree that the simplex keeps of the one pair."""
    n, m = C.shape
    rows = Distributions(
        np.array([0, n, n + m]),
        np.concatenate([np.arange(n), np.arange(m)]).astype(np.int32),
        np.concatenate([a, b]),
        max(n, m),
        split=1,  # each row over its own successors: the ground costs are a rectangle
        sides=(n, m),
    )
    solver = host().solver(rows, (np.arange(2),), Exact(p), True)
    solver.prepare(C, np.inf)
    solver.fill(0, 0, 1, np.zeros((1, 1)), _Nobody())
    (tree,) = solver.remembered().values()
    if tree[0] == 0:
        return np.outer(a, b)
    return _two_by_two(a, b, bool(tree[0] == _CROSSED)) if n + m == 4 else _of_tree(tree, a, b)


class _Nobody:
    """Nobody listens to what a solver reports."""

    def add(self, iterations: int, error: float) -> None:
        del iterations, error


def _two_by_two(a: Floats, b: Floats, crossed: bool) -> Floats:
    """One of the two diagonals takes all that it can; the rest goes where there is more."""
    b = b[::-1] if crossed else b
    rest = b[0] - a[0] if a[0] + b[0] < a[1] + b[1] else a[1] - b[1]  # on the side with less mass, where it is exact
    plan = np.array([[min(a[0], b[0]), max(-rest, 0.0)], [max(rest, 0.0), min(a[1], b[1])]])
    return plan[:, ::-1] if crossed else plan


def _of_tree(tree: Array, a: Floats, b: Floats) -> Floats:
    """The flows of a spanning tree, from the leaves up; (node, parent) entries, parents first."""
    n = len(a)
    flow = np.concatenate([a, b])
    plan = np.zeros((n, len(b)))
    for node, above in tree.reshape(-1, 2)[::-1].astype(np.int64):
        through = flow[node]
        flow[above] -= through
        i, j = (node, above - n) if node < n else (above, node - n)
        plan[i, j] = max(through, 0.0)
    return plan


def _entropic(C: Floats, a: Floats, b: Floats, reg: float, p: float, passes: int = _PASSES) -> Floats:
    if reg < _SMALL:
        return _exact(C, a, b, p)
    return np.outer(a, b) if reg > _LARGE else reference.entropic_plan(C, a, b, reg, p, iterations=passes)


def _in_ball(C: Floats, a: Floats, b: Floats, radius: float, p: float) -> Floats:
    """The plan of least cost with KL ≤ radius: that of the λ at which the constraint binds."""
    if radius == 0.0:
        return np.outer(a, b)
    low, high = np.log(1e-3), np.log(1e6)
    plan = _entropic(C, a, b, float(np.exp(low)), p, _FEW_PASSES)
    if reference.relative_entropy(plan, a, b) <= radius:
        return plan
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        plan = _entropic(C, a, b, float(np.exp(middle)), p, _FEW_PASSES)
        low, high = (middle, high) if reference.relative_entropy(plan, a, b) > radius else (low, middle)
    return _entropic(C, a, b, float(np.exp(high)), p)
