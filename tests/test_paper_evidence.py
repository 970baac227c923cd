"""The rules that turn numbers over seeds into verdicts, on numbers whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from bisimetric.paper.evidence import (
    CLEAR_TREND,
    NEARLY_ALL,
    TOO_FEW,
    Finding,
    Verdict,
    above,
    below,
    interval,
    rank_correlation,
    share,
    trend,
)

HOLDS, FAILS, UNDECIDED = Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED
INF, NAN = math.inf, math.nan


def runs(n, good):
    return [k < good for k in range(n)]


def table(rows, settings=(0.0, 1.0, INF)):
    """measured[setting][seed] from one row of numbers per seed."""
    return {s: {seed: row[i] for seed, row in enumerate(rows)} for i, s in enumerate(settings)}


# ---- interval ----


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.3, -0.2, 5.0, 5.0], list(range(10)), [1e9, 1e9 + 1.0, 1e9 - 1.0]])
def test_interval_is_students(values):
    mean, low, high = interval(values)
    expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert mean == pytest.approx(np.mean(values))
    assert (low, high) == pytest.approx(expected)


def test_interval_of_two_values_by_hand():
    assert interval([1.0, 3.0]) == pytest.approx((2.0, 2.0 - 12.7062047, 2.0 + 12.7062047))


def test_interval_covers_the_mean_about_95_times_in_100():
    rng = np.random.default_rng(0)
    inside = [low <= 1.0 <= high for _, low, high in (interval(rng.normal(1.0, 2.0, 4)) for _ in range(1000))]
    assert 0.93 <= np.mean(inside) <= 0.97


def test_interval_of_equal_values_is_a_point():
    assert interval([0.25, 0.25, 0.25]) == (0.25, 0.25, 0.25)


def test_interval_of_one_value_is_infinitely_wide():
    assert interval([2.0]) == (2.0, -INF, INF)


@pytest.mark.parametrize("values", [[], [NAN, 1.0], [INF, 1.0, 2.0], [-INF, -INF], [NAN]])
def test_interval_of_nothing_or_of_no_numbers(values):
    mean, low, high = interval(values)
    assert math.isnan(mean)
    assert (low, high) == (-INF, INF)


# ---- above and below ----


@pytest.mark.parametrize(
    ("values", "threshold", "over", "under"),
    [
        ([2.0, 2.1, 1.9], 1.0, HOLDS, FAILS),
        ([0.5, 0.6, 0.4], 1.0, FAILS, HOLDS),
        ([0.0, 2.0, 1.0], 1.0, UNDECIDED, UNDECIDED),
        ([1.0, 1.0], 1.0, UNDECIDED, UNDECIDED),  # on the threshold, neither above nor below
        ([5.0], 1.0, UNDECIDED, UNDECIDED),
        ([], 1.0, UNDECIDED, UNDECIDED),
        ([NAN, 5.0, 5.0], 1.0, UNDECIDED, UNDECIDED),
        ([INF, INF], 1.0, UNDECIDED, UNDECIDED),
        ([3.0, 3.0], 1.0, HOLDS, FAILS),
        ([-3.0, -3.0], 0.0, FAILS, HOLDS),
        ([1.2, 1.4], 1.0, UNDECIDED, UNDECIDED),  # two seeds: the interval is 12.7 standard errors wide
    ],
)
def test_above_and_below(values, threshold, over, under):
    for rule, verdict in ((above, over), (below, under)):
        found = rule(iter(values), threshold, "size")
        assert found.verdict is verdict
        assert found.seeds == len(values)
        assert found.measure == "size"
        assert f"{threshold:g}" in found.rule


def test_effect_and_interval_are_handed_on():
    found = above([1.0, 2.0, 3.0], 0.0, "x")
    assert (found.effect, found.low, found.high) == interval([1.0, 2.0, 3.0])


# ---- rank correlation ----


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([1.0, 2.0, 3.0, 4.0], [1.0, 4.0, 9.0, 16.0]),
        ([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]),
        ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]),
        ([1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 2.0, 2.0]),
        ([1.0, 1.0, 3.0], [5.0, 6.0, 6.0]),
        ([0.0, 0.1, 1.0, 10.0, 100.0], [3.0, 1.0, 2.0, 2.0, 7.0]),
    ],
)
def test_rank_correlation_is_spearmans(x, y):
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)


def test_rank_correlation_with_infinite_settings():
    regs = [0.0, 0.1, 1.0, 10.0, INF]
    assert rank_correlation(regs, [1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1.0)
    assert rank_correlation(regs, [5.0, 4.0, 3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    assert rank_correlation([0.0, 1.0, INF], [0.0, 5.0, INF]) == pytest.approx(1.0)
    assert rank_correlation([-INF, 0.0, INF], [1.0, 2.0, 3.0]) == pytest.approx(1.0)


@pytest.mark.parametrize(("x", "y"), [([1.0, 2.0, 3.0], [7.0, 7.0, 7.0]), ([1.0, 1.0], [1.0, 2.0]), ([1.0], [1.0])])
def test_rank_correlation_with_a_constant_is_zero(x, y):
    assert rank_correlation(x, y) == 0.0


def test_rank_correlation_does_not_hide_nan():
    assert math.isnan(rank_correlation([1.0, 2.0, 3.0], [1.0, NAN, 3.0]))


# ---- trend ----


@pytest.mark.parametrize(
    ("rows", "rising", "falling"),
    [
        ([(1, 2, 3), (2, 3, 4), (0, 5, 9)], HOLDS, FAILS),
        ([(3, 2, 1), (4, 3, 2), (9, 5, 0)], FAILS, HOLDS),
        ([(1, 1, 1), (2, 2, 2), (0, 0, 0)], FAILS, FAILS),  # no trend at all is no trend
        ([(1, 2, 3), (3, 2, 1)], UNDECIDED, UNDECIDED),  # two seeds that disagree
        ([(1, 2, 3)], UNDECIDED, UNDECIDED),
        ([], UNDECIDED, UNDECIDED),
        ([(1, 2, 3), (1, NAN, 3)], UNDECIDED, UNDECIDED),
        ([(1, 1, 2), (1, 1, 2), (1, 1, 2)], HOLDS, FAILS),  # ties within a seed: 0.87
        ([(2, 1, 3), (2, 1, 3), (2, 1, 3)], FAILS, FAILS),  # 0.5 in every seed: clearly under 0.7
    ],
)
def test_trend(rows, rising, falling):
    for up, verdict in ((True, rising), (False, falling)):
        found = trend(table(rows), "size with λ", rising=up)
        assert found.verdict is verdict
        assert found.seeds == len(rows)
        assert ("rises" if up else "falls") in found.measure


def test_trend_does_not_depend_on_the_order_of_settings():
    rows = [(1, 2, 3, 4), (1, 2, 4, 3), (1, 2, 3, 5)]
    there = trend(table(rows, (0.0, 0.1, 1.0, INF)), "x", rising=True)
    back = trend(dict(reversed(table(rows, (0.0, 0.1, 1.0, INF)).items())), "x", rising=True)
    assert there == back
    assert there.effect == pytest.approx((1.0 + 0.8 + 1.0) / 3)


def test_trend_needs_a_clear_mean_and_an_interval_above_zero():
    weak = trend(table([(1, 2, 3)] * 4 + [(2, 1, 3)] * 8), "x", rising=True)  # mean 0.667, interval up to 0.83
    assert weak.effect < CLEAR_TREND < weak.high
    assert weak.verdict is UNDECIDED
    wide = trend(table([(1, 2, 3), (1, 2, 3), (1, 3, 2)]), "x", rising=True)  # mean 0.83, interval from 0.12
    assert 0.0 < wide.low < CLEAR_TREND
    assert wide.verdict is HOLDS
    wider = trend(table([(1, 2, 3), (1, 3, 2)]), "x", rising=True)  # mean 0.75, interval reaches below 0
    assert wider.low < 0.0
    assert wider.verdict is UNDECIDED


def test_trend_uses_seeds_that_have_every_setting():
    measured = table([(1, 2, 3), (2, 3, 4), (3, 2, 1)])
    del measured[1.0][2]
    found = trend(measured, "x", rising=True)
    assert found.seeds == 2
    assert found.effect == pytest.approx(1.0)
    assert trend({}, "x", rising=True).verdict is UNDECIDED
    assert trend({0.0: {0: 1.0}, 1.0: {1: 2.0}}, "x", rising=True).verdict is UNDECIDED


# ---- share ----


@pytest.mark.parametrize(
    ("flags", "verdict"),
    [
        ([True] * 10, HOLDS),
        ([False] * 10, FAILS),
        (runs(20, 19), HOLDS),
        (runs(10, 9), UNDECIDED),
        (runs(10, 8), UNDECIDED),
        (runs(10, 7), FAILS),
        ([True], UNDECIDED),
        ([False], UNDECIDED),
        ([], UNDECIDED),
    ],
)
def test_share(flags, verdict):
    found = share({seed: [flag] for seed, flag in enumerate(flags)}, "runs")
    assert found.verdict is verdict
    assert found.seeds == len(flags)
    if len(flags) > 1:
        assert found.effect == pytest.approx(np.mean(flags))
        mean, low, high = interval([float(flag) for flag in flags])
        assert (found.low, found.high) == pytest.approx((max(low, 0.0), min(high, 1.0)))
        assert mean == found.effect


def test_share_counts_seeds_not_runs():
    """Runs of one seed are not independent: many of them are still one seed."""
    assert share({0: [True] * 50}, "runs").verdict is UNDECIDED
    found = share({0: [True, True, False, False], 1: np.array([True, True])}, "runs")
    assert (found.effect, found.seeds) == (0.75, 2)
    assert found.verdict is FAILS
    assert 0.0 < TOO_FEW < NEARLY_ALL <= 1.0


def test_a_finding_without_results():
    found = Finding.absent("no results of x")
    assert found.verdict is UNDECIDED
    assert math.isnan(found.effect)
    assert found.measure == "no results of x"
    assert found.seeds == 0
