"""How exactly transports are computed, in one place for all engines: limits, safe ranges, and what rounding may add.

Costs are in the units of a sweep: for p ≠ 1 distances are divided by a unit u, a power of 2 just above the largest one,
before they are raised to the power p. So costs lie in [0, 1], λ becomes λ/u^p, and an accuracy α becomes α/u.
"""

from __future__ import annotations

import math

import numpy as np

ITERATION_LIMIT = 20_000  # scalings of one pair
DENSE_LIMIT = 400  # rounds of matrix products before the slow pairs are finished one by one
_SMALLEST, _LARGEST = (
    1e-290,
    1e290,
)  # of λ in the units of a sweep; the limits of small and large λ are reached long before


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
    return max(min(loosest, 0.9 * cost / max(top, 1e-300)), tightest)


def ball_marginals(accuracy: float, top: float) -> float:
    """L1 error of the marginals inside a KL ball. The answer is stationary in them, so this need not be small."""
    return max(min(1e-6, 0.05 * accuracy / max(top, 1e-300)), tightest_marginals(float(np.finfo(np.float64).eps)))


def ball_target(accuracy: float, p: float, top: float) -> float:
    """How far apart bounds on an entry may be, above what rounding allows and below what is wanted."""
    largest = math.pow(top, 1.0 / p)
    return max(min(0.5 * accuracy, 1e-6 * largest), 1e-13 * largest)


def value_rounding(terms: int, reg: float, top: float, eps: float) -> float:
    """What rounding may do to λ times a sum of logarithms near 0, each of a sum of some of so many terms."""
    return eps * (reg * (terms + 8) + 8.0 * top)


def root_error(value: float, slack: float, p: float) -> float:
    """How far the p-th root of a number within `slack` of `value` may be from that of `value`."""
    if p == 1.0:
        return slack
    root = value ** (1.0 / p)
    return float(max((value + slack) ** (1.0 / p) - root, root - max(value - slack, 0.0) ** (1.0 / p)))


def underflow(p: float, unit: float, smallest: float) -> float:
    """What costs that are lost below the smallest number may add to an entry."""
    return 0.0 if p == 1.0 else unit * float(smallest) ** (1.0 / p)
