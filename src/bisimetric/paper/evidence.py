"""Rules that turn measurements over seeds into a verdict.

A number is measured for each seed; its mean over seeds is the effect, with a 95 % interval (Student's t). Each rule
says what of effect and interval makes a claim hold or fail. All else is undecided, and so is what rests on fewer than
two seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from .table import Setting

CLEAR_TREND = 0.7  # rank correlation
NEARLY_ALL, TOO_FEW = 0.95, 0.8  # shares of runs


class Verdict(Enum):
    """What the results say of a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Finding:
    """A verdict with the effect that it rests on, its 95 % interval, and the rule."""

    verdict: Verdict
    effect: float
    low: float
    high: float
    measure: str  # what the effect is
    rule: str
    seeds: int

    @classmethod
    def absent(cls, reason: str) -> Finding:
        return cls(Verdict.UNDECIDED, math.nan, math.nan, math.nan, reason, "needs results", 0)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of the 95 % interval for the mean; infinitely wide for fewer than two values."""
    from scipy.stats import t

    x = np.asarray(values, np.float64)
    if len(x) == 0 or not np.isfinite(x).all():
        return math.nan, -math.inf, math.inf
    mean = float(x.mean())
    if len(x) < 2:
        return mean, -math.inf, math.inf
    half = float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x)))
    return mean, mean - half, mean + half


def above(values: Iterable[float], threshold: float, measure: str) -> Finding:
    """Holds where the whole interval is above the threshold, fails where it is below."""
    numbers = list(values)
    mean, low, high = interval(numbers)
    verdict = Verdict.HOLDS if low > threshold else Verdict.FAILS if high < threshold else Verdict.UNDECIDED
    return Finding(verdict, mean, low, high, measure, f"interval above {threshold:g}", len(numbers))


def below(values: Iterable[float], threshold: float, measure: str) -> Finding:
    """Holds where the whole interval is below the threshold, fails where it is above."""
    numbers = list(values)
    mean, low, high = interval(numbers)
    verdict = Verdict.HOLDS if high < threshold else Verdict.FAILS if low > threshold else Verdict.UNDECIDED
    return Finding(verdict, mean, low, high, measure, f"interval below {threshold:g}", len(numbers))


def trend(measured: Mapping[Setting, Mapping[int, float]], measure: str, *, rising: bool) -> Finding:
    """Whether a quantity rises (or falls) with a setting, by the rank correlation within each seed.

    Holds where the mean correlation is clear (0.7) and its interval is on the right side of 0; fails where the
    interval ends below what is clear.

    Args:
        measured: for each value of the setting, the quantity for each seed.
    """
    settings = sorted(measured, key=float)
    seeds = set.intersection(*(set(measured[s]) for s in settings)) if settings else set()
    sign = 1.0 if rising else -1.0
    ranks = [
        sign * rank_correlation([float(s) for s in settings], [measured[s][seed] for s in settings])
        for seed in sorted(seeds)
    ]
    mean, low, high = interval(ranks)
    if low > 0.0 and mean >= CLEAR_TREND:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.FAILS if high < CLEAR_TREND else Verdict.UNDECIDED
    direction = "rises" if rising else "falls"
    rule = f"mean rank correlation at least {CLEAR_TREND:g}, interval above 0"
    low, high = max(low, -1.0), min(high, 1.0)
    return Finding(verdict, mean, low, high, f"{measure} {direction}: rank correlation", rule, len(ranks))


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's ρ, with ties; 0 where one side is constant."""
    from scipy.stats import rankdata

    a, b = rankdata(x), rankdata(y)
    if np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def share(flags: Mapping[int, Sequence[bool]], measure: str) -> Finding:
    """Whether runs show something: the share of the runs of each seed, and its mean over seeds.

    Holds where nearly all runs (95 %) show it, fails where under 80 % do.

    Args:
        flags: for each seed, whether each of its runs shows it.
    """
    parts = [float(np.mean(shown)) for shown in flags.values() if len(shown)]
    rule = f"shown by at least {NEARLY_ALL:.0%} of the runs; fails under {TOO_FEW:.0%}"
    mean, low, high = interval(parts)
    if len(parts) < 2 or not math.isfinite(mean):
        verdict = Verdict.UNDECIDED
    else:
        verdict = Verdict.HOLDS if mean >= NEARLY_ALL else Verdict.FAILS if mean < TOO_FEW else Verdict.UNDECIDED
    return Finding(verdict, mean, max(low, 0.0), min(high, 1.0), measure, rule, len(parts))
