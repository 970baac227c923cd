"""Numbers that claims are about: measures of one run, and the same for each seed of several settings.

Quantities are of the last quarter of a run's steps unless said otherwise: `level` is the mean there, `limsup` the
largest value, `wobble` the mean change from one step to the next.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..kinds import Floats
from .evidence import Finding, interval, trend
from .table import Row, Setting, Table


def tail(row: Row, name: str = "error") -> Floats:
    """The last quarter of a curve."""
    curve = row.arrays[name]
    return np.asarray(curve[-max(len(curve) // 4, 1) :], np.float64)


def level(name: str = "error") -> Callable[[Row], float]:
    return lambda row: float(tail(row, name).mean())


def limsup(row: Row) -> float:
    return float(tail(row).max())


def wobble(row: Row) -> float:
    return float(np.abs(np.diff(tail(row))).mean())


def as_drawn(name: str) -> Callable[[Row], float]:
    """The mean over the steps that are drawn, which lie evenly on the figures' logarithmic axis."""

    def measure(row: Row) -> float:
        curve = row.arrays[name]
        steps = np.unique(np.round(np.geomspace(1, len(curve), 40)).astype(np.int64)) - 1
        return float(curve[steps].mean())

    return measure


def spread(name: str) -> Callable[[Row], float]:
    return lambda row: float(tail(row, name).std())


def early(row: Row) -> float:
    """Mean error over the first tenth of the steps."""
    curve = row.arrays["error"]
    return float(curve[1 : max(len(curve) // 10, 5)].mean())


def overall(row: Row) -> float:
    return float(row.arrays["error"].mean())


_STILL_FALLING = 0.02
_TINY = 1e-12


def decline(row: Row) -> float:
    """The share of the error that is lost from the first half of the last quarter to the second."""
    end = tail(row)
    before, after = end[: len(end) // 2].mean() if len(end) > 1 else np.inf, end[len(end) // 2 :].mean()
    return float(1.0 - after / max(before, _TINY))


def still_falls(table: Table) -> bool:
    """Whether the error of a setting still falls: by 2 % on average over seeds, and more than chance would have it.

    An oscillating curve may fall for a while by chance, so the 95 % interval of the mean must lie above 0.
    """
    found = [decline(row) for row in table]
    mean, low, _ = interval(found)
    return mean > _STILL_FALLING and low > 0.0


def settled(table: Table, key: str) -> Table:
    """Rows of the settings that have settled: claims about limits are about these."""
    keep = [value for value in table.values(key) if not still_falls(table.where(**{key: value}))]
    return table.where(**{key: lambda value: value in keep})


_FEWEST = 3


def trend_in_the_limit(table: Table, key: str, measure: Callable[[Row], float], what: str) -> Finding:
    """Whether a quantity of the limit rises with a setting, over the settings whose runs have settled."""
    part = settled(table, key)
    values = part.values(key)
    if len(values) < _FEWEST:
        return Finding.absent(f"too few settings have settled: {', '.join(f'{value:g}' for value in values) or 'none'}")
    return trend(
        by_setting(part, key, measure), f"{what} ({len(values)} of {len(table.values(key))} settled)", rising=True
    )


def by_setting(table: Table, key: str, measure: Callable[[Row], float]) -> dict[Setting, dict[int, float]]:
    """The measure for each value of a setting and each seed."""
    return {value: table.where(**{key: value}).by_seed(measure) for value in table.values(key)}


def ratios(over: Table, under: Table, measure: Callable[[Row], float]) -> dict[int, float]:
    """The measure of one table over that of another, for each seed that both have."""
    a, b = over.by_seed(measure), under.by_seed(measure)
    return {seed: max(a[seed], _TINY) / max(b[seed], _TINY) for seed in sorted(a.keys() & b.keys())}


def worst_of(measured: list[dict[int, float]], choose: Callable[[list[float]], float] = np.max) -> list[float]:
    """The largest (or smallest) of several numbers, for each seed that has all of them; NaN stays NaN."""
    seeds = set.intersection(*(set(part) for part in measured)) if measured else set()
    return [float(choose([part[seed] for part in measured])) for seed in sorted(seeds)]


def flags_by_seed(table: Table, shows: Callable[[Row], bool]) -> dict[int, list[bool]]:
    found: dict[int, list[bool]] = {}
    for row in table:
        found.setdefault(row.seed, []).append(shows(row))
    return found


def distance_of_curves(table: Table, key: str, reference: Setting) -> list[float]:
    """For each seed, the largest over settings of mean_k |error_k − that of the reference|, over the first error."""
    base = {row.seed: row.arrays["error"] for row in table.where(**{key: reference})}

    def apart(row: Row) -> float:
        start = base[row.seed]
        return float(np.abs(row.arrays["error"] - start).mean() / start[0])

    others = table.where(**{key: lambda value: value != reference, "seed": lambda seed: seed in base})
    return worst_of([others.where(**{key: value}).by_seed(apart) for value in others.values(key)])
