"""How exactly transports are computed: from the accuracy that is wanted to limits, safe ranges, and what rounding adds.

All pure functions, in one place for all engines; what they promise is what certificates rest on.

**Units.** For p ≠ 1 distances are divided by a unit u, a power of 2 just above the largest one, before they are raised
to the power p. So costs C lie in [0, 1], nothing overflows, λ becomes λ/u^p, and an accuracy α becomes α/u. For p = 1
the unit is 1. Dividing by a power of 2 is exact; what underflows is `underflow`.

**Exact.** A tree whose reduced costs are at least −ε is within ε of the optimum (weak duality, masses sum to 1), so the
pricing may leave `pricing_share` of the largest cost. Rounding is counted by the kernels, node by node.

**Entropic.** Let a plan have exact rows and columns within η (L1). Made feasible, at most η/2 of its mass moves, so its
cost changes by at most η·max C; and the dual value is within the same of the optimum. So marginals within
0.9·accuracy/max C leave a tenth for rounding (`marginal_tolerance`). A root follows for p > 1, which magnifies what is
off near 0 (`root_error`): kernels then tighten single pairs. A kernel exp(−C/λ) is used while C/λ is at most
`safe_exponent`, since scalings reach its inverse; beyond, they are kept as logarithms.

**Ball.** Lower bounds (Lagrange) and upper bounds (feasible plans) close in on the answer until they are `ball_target`
apart; the marginals inside need not be tight (`ball_marginals`), as both bounds hold for any.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .sinkhorn import KLBall, Sinkhorn

DOUBLE = float(np.finfo(np.float64).eps)
ITERATION_LIMIT = 20_000  # scalings of one pair
DENSE_LIMIT = 400  # rounds of matrix products before the slow pairs are finished one by one
_SMALLEST, _LARGEST = 1e-290, 1e290  # of λ in the units of a sweep: its limits are reached long before


class EntropicBudget(NamedTuple):
    """What Sinkhorn's scalings may and must do in a sweep, in its units."""

    reg: float  # λ
    safe: float  # largest C/λ for which exp(−C/λ) is used
    in_logs: bool  # whether some cost is beyond that
    accuracy: float  # of an entry
    tightest: float  # L1 error of a marginal that can be reached
    loosest: float  # and at which a pair may stop
    marginals: float  # at which all pairs are accurate enough
    iterations: int  # most scalings of a pair
    rounds: int  # most rounds of matrix products
    eps: float  # unit round-off of the scalings


def entropic(
    transport: Sinkhorn, *, accuracy: float, unit: float, top: float, eps: float, eps_in_logs: float | None = None
) -> EntropicBudget:
    """The budget of a sweep with costs up to `top`, for transports within `accuracy`.

    Args:
        transport: its settings. accuracy: in units of distances. unit, top: of the sweep; an engine that does not know
            the largest cost yet gives infinity, and decides pair by pair with `safe`.
        eps: round-off of the engine's numbers. eps_in_logs: of those that it uses for logarithms.
    """
    reg = scaled_reg(transport.reg, transport.p, unit)
    safe = safe_exponent(eps)
    in_logs = not top <= safe * reg
    used = eps_in_logs if in_logs and eps_in_logs is not None else eps
    tightest = tightest_marginals(used)
    within = accuracy / unit
    marginals = marginal_tolerance(within, transport.p, top, transport.marginal_tol, tightest)
    loosest = float(max(transport.marginal_tol, tightest))
    return EntropicBudget(reg, safe, in_logs, within, tightest, loosest, marginals, ITERATION_LIMIT, DENSE_LIMIT, used)


class BallBudget(NamedTuple):
    """How far a search inside a KL ball goes, in the units of a sweep."""

    target: float  # how far apart bounds on an entry may be
    marginals: float
    iterations: int


def ball(transport: KLBall, *, accuracy: float, unit: float, top: float) -> BallBudget:
    """The budget of a sweep with costs up to `top`, for transports within `accuracy`."""
    within = accuracy / unit
    return BallBudget(ball_target(within, transport.p, top), ball_marginals(within, top), ITERATION_LIMIT)


def pricing_share(eps: float) -> float:
    """Share of the largest cost by which a reduced cost may be negative in the end."""
    return 1e-13 if eps < 1e-10 else 8.0 * eps


def safe_exponent(eps: float) -> float:
    """Largest cost over λ for which K = exp(−C/λ) is used: scalings reach its inverse; half of the range is free."""
    return 300.0 if eps < 1e-10 else 30.0


def tightest_marginals(eps: float) -> float:
    """The smallest L1 error of a marginal that can be asked for."""
    return 64.0 * eps


def scaled_reg(reg: float, p: float, unit: float) -> float:
    """λ in units of costs, λ/u^p, kept inside the range of numbers; exact where p is whole."""
    if p == 1.0:
        return float(reg)
    mantissa, exponent = math.frexp(reg)
    power = exponent - p * (math.frexp(unit)[1] - 1)
    whole = math.floor(power)
    if not -900 < whole < 900:
        return _SMALLEST if whole < 0 else _LARGEST
    return min(max(math.ldexp(mantissa * 2.0 ** (power - whole), whole), _SMALLEST), _LARGEST)


def marginal_tolerance(accuracy: float, p: float, top: float, loosest: float, tightest: float) -> float:
    """L1 error of a marginal at which all pairs are within `accuracy`, where costs reach `top`."""
    cost = accuracy if p == 1.0 else math.pow(min(accuracy, 1.0), p)  # costs are at most 1 for p ≠ 1
    return float(max(min(loosest, 0.9 * cost / max(top, 1e-300)), tightest))


def ball_marginals(accuracy: float, top: float) -> float:
    """L1 error of the marginals inside a KL ball. The answer is stationary in them, so this need not be small."""
    return max(min(1e-6, 0.05 * accuracy / max(top, 1e-300)), tightest_marginals(DOUBLE))


def ball_target(accuracy: float, p: float, top: float) -> float:
    """How far apart bounds on an entry may be, above what rounding allows and below what is wanted."""
    largest = math.pow(top, 1.0 / p)
    return max(min(0.5 * accuracy, 1e-6 * largest), 1e-13 * largest)


def value_rounding(terms: int, reg: float, top: float, eps: float) -> float:
    """What rounding may do to λ times a sum of logarithms near 0, each of a sum of some of so many terms."""
    return eps * (reg * (terms + 8) + 8.0 * top)


def products_slack(marginal_error: float, terms: int, budget: EntropicBudget, top: float, as_value: bool) -> float:
    """How far a cost or value by matrix products may be off: marginals within an error, sums of so many terms."""
    rounding = value_rounding(terms, budget.reg, top, budget.eps) if as_value else 0.0
    return (marginal_error + terms * budget.eps) * top + rounding


def product_rounding(terms: int, eps: float, top: float, p: float) -> float:
    """What rounding may do to the cost of a product plan, where each entry is a sum of so many terms.

    All terms are positive, so a sum of n of them is off by n units of round-off of itself.
    """
    return float((terms + 8) * eps * top ** (1.0 / p))


def root_error(value: float, slack: float, p: float) -> float:
    """How far the p-th root of a number within `slack` of `value` may be from that of `value`."""
    if p == 1.0:
        return slack
    root = value ** (1.0 / p)
    return float(max((value + slack) ** (1.0 / p) - root, root - max(value - slack, 0.0) ** (1.0 / p)))


def sweep_rounding(eps: float, smallest: float, largest: float) -> float:
    """What rounding may add to an entry of a sweep beside its transport, for distances up to `largest`.

    Two products and two sums of numbers up to the largest distance: 16 units of round-off are more than enough.
    """
    return 16.0 * (eps * largest + smallest)


def underflow(p: float, unit: float, smallest: float) -> float:
    """What costs that are lost below the smallest number may add to an entry."""
    return 0.0 if p == 1.0 else unit * float(smallest) ** (1.0 / p)
