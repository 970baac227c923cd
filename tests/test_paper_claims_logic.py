"""Every claim on made-up results whose answer is known, both ways; undecided where results are absent or of one seed.

In each scenario the rows that a claim is about behave as it says, and all others (another MDP, the authors' variant,
another number of sweeps) the opposite way; then the other way round. So a claim that looks at wrong rows is found out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from bisimetric.paper import FIGURES, figure
from bisimetric.paper.claims import CLAIMS, REASONS, decide_all
from bisimetric.paper.evidence import Verdict
from bisimetric.paper.jobs import CURVES, SharpnessJob
from bisimetric.paper.measures import still_falls
from bisimetric.paper.settings import ALPHAS, PROFILES, TEXT, Profile
from bisimetric.paper.table import Row, Table

PROFILE = Profile("made up", 40, 20, 4, 80, 80, 80, 80, 80, 80, 4, (4, 6), perturbed_exact=True)
LONG = replace(PROFILE, timed_steps=400)  # some claims need long runs; made-up ones have 80 steps all the same
INF = math.inf
HOLDS, FAILS, UNDECIDED = Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED
JITTERED = ("error", "metric_gap", "seconds", "metric_seconds", "value")
RANK = {alpha: k for k, alpha in enumerate(sorted(ALPHAS))}
REG_RANK = {reg: k for k, reg in enumerate((0.0, 0.1, 0.25, 1.0, 2.0, 10.0, INF))}

Keys = dict[str, Any]
Arrays = dict[str, Any]


@cache
def cells(name: str):
    return figure(name).cells(PROFILE, TEXT)


def default(job) -> Arrays:
    """Arrays of the right shapes that say nothing."""
    if isinstance(job, SharpnessJob):
        low, high = job.pairs
        return {"relative_error": np.full((low, high), 0.1), "reference_error": np.zeros((low, high))}
    arrays = {name: np.ones(job.steps) for name in CURVES}
    arrays["n_classes"] = np.full(job.steps, 20.0)
    if getattr(job, "medoids", None):
        arrays["metric_nmi"] = np.ones(job.steps)
    boxes = np.zeros((len(job.probes), 8))
    boxes[:, -1] = 1.0
    return {**arrays, "boxes": boxes, "optimal_value": np.linspace(1.0, 10.0, 40), "value": np.linspace(1.0, 10.0, 40)}


def made_up(name: str, fill: Callable[[Keys], Arrays]) -> Table:
    """A table with a row for every run of a figure; `fill` gives arrays, or numbers for constant curves."""
    rows = []
    for cell in cells(name):
        arrays = default(cell.job)
        for key, value in fill(cell.keys).items():
            arrays[key] = np.broadcast_to(np.asarray(value, np.float64), arrays[key].shape).copy()
        for key in JITTERED:
            if key in arrays:
                arrays[key] = arrays[key] * (1.0 + 0.01 * cell.keys["seed"])
        rows.append(Row(cell.keys, arrays))
    return Table(tuple(rows))


def steps(n: int, early: float, late: Any) -> np.ndarray:
    """A curve that is `early` in its first half, and then `late` (which may be an array for its last quarter)."""
    curve = np.full(n, float(early))
    curve[n // 2 :] = late if np.ndim(late) == 0 else late[0]
    if np.ndim(late):
        curve[-len(late) :] = late
    return curve


def alternating(n: int, low: float, high: float) -> np.ndarray:
    return np.where(np.arange(n) % 2 == 0, low, high)


class Scenario(NamedTuple):
    """Rows that a claim is about, and what they are like where it holds (True) and where it does not."""

    figures: tuple[str, ...]
    about: Callable[[Keys], bool]
    fill: Callable[[Keys, bool], Arrays]


def tables_of(scenario: Scenario, *, holds: bool) -> dict[str, Table]:
    def fill(keys: Keys) -> Arrays:
        return scenario.fill(keys, scenario.about(keys) == holds)

    return {name: made_up(name, fill) for name in scenario.figures}


SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str, figures: str, about: Callable[[Keys], bool] = lambda keys: True):
    def register(fill):
        SCENARIOS[name] = Scenario(tuple(figures.split()), about, fill)
        return fill

    return register


# ---- 1 to 4, and 12a, 12b: the step size ----


def early_error(keys, up):
    """Early errors fall with α, later ones rise with it."""
    i = RANK.get(keys["alpha"], 0)
    return {"error": steps(80, 10.0 - i, 1.0 + i) if up else steps(80, 10.0 + i, 6.0 - i)}


def late_peak(keys, up):
    """A lone peak in the last quarter; the mean there goes the other way."""
    i = RANK.get(keys["alpha"], 0)
    end = np.full(20, 2.0 - 0.1 * i if up else 1.0 + 0.1 * i)
    end[13] = 5.0 + i if up else 10.0 - i
    return {"error": steps(80, 20.0 - i if up else 20.0 + i, end)}


def wobbling(keys, up):
    """The largest value is the same for all; only the depth of the dips differs."""
    i = RANK[keys["alpha"]]
    depth = 1.0 + i if up else 6.0 - i
    return {"error": steps(80, 30.0, alternating(20, 20.0 - depth, 20.0))}


def gap_level(keys, up):
    i = RANK[keys["alpha"]]
    return {"metric_gap": steps(80, 1.0 if not up else 9.0 - i, 1.0 + i if up else 6.0 - i)}


def gap_spread(keys, up):
    """Equal means; deviations differ."""
    i = RANK[keys["alpha"]]
    depth = 1.0 + i if up else 6.0 - i
    return {"metric_gap": steps(80, 10.0, alternating(20, 10.0 - depth, 10.0 + depth))}


def true_classes(keys, up):
    """Where it does not hold, one α < 1 of four ends with a class too many."""
    wrong = keys["alpha"] == 1.0 or (not up and keys["alpha"] == 2.0**-6)
    return {"n_classes": steps(80, 20.0 if wrong else 40.0, 21.0 if wrong else 20.0)}


def unsettled(keys, up):
    bold = keys["alpha"] == 1.0
    return {"n_classes": steps(80, 40.0, alternating(20, 25.0, 30.0) if up == bold else 20.0)}


for _mdp, _letters in (("first", "abcabab"), ("second", "defcdcd")):

    def _about(keys, mdp=_mdp):
        return keys["variant"] == "chosen" and keys["mdp"] == mdp

    for _number, _letter, _fill in zip(
        "1112233",
        _letters,
        (early_error, late_peak, wobbling, gap_level, gap_spread, true_classes, unsettled),
        strict=True,
    ):
        scenario(_number + _letter, "alpha-ablation", _about)(_fill)


scenario("3e", "alpha-ablation", lambda keys: keys["variant"] == "authors" and keys["mdp"] == "second")(true_classes)


@scenario("4", "alpha-ablation", lambda keys: keys["variant"] == "chosen" and keys["alpha"] < 1.0)
def falling_classes(keys, up):
    return {"n_classes": steps(80, 40.0, 20.0) if up else steps(80, 20.0, 40.0)}


# ---- 5 and 6: naive, warm-started, decaying ----


def at(n, gamma=0.9):
    return lambda keys: keys["gamma"] == gamma and keys["n"] == n and keys["ties"] == "random"


@scenario("5a", "naive-vs-warm", at(28))
def naive_alike(keys, up):
    return {"error": steps(80, 5.0, (1.1 if up else 3.0) if keys["algorithm"] == "naive" else 1.0)}


for _name, _n in (("5b", 7), ("5c", 1)):

    @scenario(_name, "naive-vs-warm", at(_n))
    def naive_fails(keys, up):
        return {"error": steps(80, 5.0, (4.0 if up else 1.5) if keys["algorithm"] == "naive" else 1.0)}


@scenario("5d", "naive-vs-warm", at(1))
def warm_works(keys, up):
    """Where it does not hold, one of the three warm-started algorithms fails at n = 1. Naive API always does."""
    if keys["n"] == 1 and (keys["algorithm"] == "naive" or (not up and keys["algorithm"] == "API(2^-6)")):
        return {"error": steps(80, 5.0, 4.0)}
    return {"error": steps(80, 5.0, 1.0)}


for _name, _gamma in (("6a", 0.9), ("6c", 0.99)):

    @scenario(_name, "naive-vs-warm", at(28, _gamma))
    def steadier(keys, up):
        """A peak in the end that API(1) has, or has not; the mean of the whole run goes the other way."""
        end = np.ones(20)
        end[3] = (2.0 if up else 1.0) if keys["algorithm"] == "API(1)" else 1.5
        early = 8.0 if (keys["algorithm"] == "API(1)") != up else 9.0
        return {"error": steps(80, early, end)}


for _name, _gamma in (("6b", 0.9), ("6d", 0.99)):

    @scenario(_name, "naive-vs-warm", at(28, _gamma))
    def sooner(keys, up):
        slow = (keys["algorithm"] == "API(2^-6)") == up
        return {"error": steps(80, 9.0 if slow else 5.0, 1.0)}


# ---- 7, and 12c to 12e: regularisation and order ----


def rank_of(keys):
    return REG_RANK[keys["reg"]] if "reg" in keys else (1.0, 2.0, 4.0).index(keys["p"])


def alike(reference):
    """Curves that differ by little, or one of them by much; what differs is one setting, in the second half."""

    def fill(keys, up):
        value = keys["reg"] if "reg" in keys else keys["p"]
        return {"error": steps(80, 10.0, 2.0 + (0.1 * rank_of(keys) if up else 3.0 * (value == reference)))}

    return fill


def rising(quantity):
    def fill(keys, up):
        rank = rank_of(keys)
        return {quantity: steps(80, 30.0, 10.0 + rank if up else 20.0 - rank)}

    return fill


scenario("7a", "lambda-ablation")(alike(10.0))
scenario("7b", "p-ablation")(alike(4.0))
scenario("7c", "lambda-ablation")(rising("metric_gap"))
scenario("7d", "lambda-ablation")(rising("n_classes"))
scenario("7e", "p-ablation")(rising("metric_gap"))
scenario("7f", "p-ablation")(rising("n_classes"))


def third(sweep):
    return lambda keys: keys["sweep"] == sweep


scenario("12a", "third-family", third("alpha"))(early_error)
scenario("12b", "third-family", third("alpha"))(late_peak)
scenario("12c", "third-family", third("lambda"))(rising("metric_gap"))
scenario("12d", "third-family", third("lambda"))(rising("n_classes"))
scenario("12e", "third-family", third("lambda"))(alike(10.0))


@scenario("12f", "third-family", third("budget"))
def suboptimal(keys, up):
    return {"error": steps(80, 5.0, 3.0 if up == (keys["reg"] == INF) else 2.0)}


@scenario("12g", "value-functions")
def far_from_the_best(keys, up):
    """Relative to the largest value, 10: 0.3 against 0.2 and 0.1."""
    loss = {"first": 1.0, "second": 2.0, "third": 3.0 if up else 1.5}[keys["mdp"]]
    value = np.linspace(1.0, 10.0, 40)
    value[5] -= loss
    return {"value": value / (1.0 + 0.01 * keys["seed"])}


# ---- 8: a budget of classes ----


@scenario("8a", "budget lambda-ablation", lambda keys: keys.get("mixing", 0.0) == 0.0 and keys["reg"] == 1.0)
def like_a_cover(keys, up):
    curve = np.full(80, 10.0)
    curve[30:] = (1.2 if up else 6.0) if "mixing" in keys else 1.0
    return {"error": curve}


for _k, _mixing in enumerate((0.0, 0.05, 0.5)):

    def _mixed(keys, mixing=_mixing):
        return keys["mixing"] == mixing and keys["reg"] != 0.0

    @scenario("8" + "bcd"[_k], "budget", _mixed)
    def better_classes(keys, up):
        rank = REG_RANK[keys["reg"]]
        known = steps(80, 0.1, 1.0 - 0.1 * rank if up else 0.3 + 0.1 * rank)
        return {"metric_nmi": known, "nmi": known[::-1]}

    @scenario("8" + "efg"[_k], "budget", _mixed)
    def better_policies(keys, up):
        rank = REG_RANK[keys["reg"]]
        return {"error": steps(80, 10.0, 1.0 + rank if up else 8.0 - rank)}


@scenario("8h", "budget", lambda keys: keys["mixing"] == 0.5)
def widening(keys, up):
    """Rows of weight 0.5 have the larger advantage, or the others do."""
    return {"error": steps(80, 10.0, (5.0 if up else 2.0) if keys["reg"] == INF else 1.0)}


# ---- 9: run time ----


@scenario("9a", "runtime", lambda keys: keys["sweep"] == "alpha")
def time_by_alpha(keys, up):
    i = RANK.get(keys["alpha"], 0)
    return {"seconds": steps(80, 9.0 - i if up else 1.0 + i, 1.0 + i if up else 9.0 - i)}


def kept(keys):
    return keys["sweep"] == "lambda" and keys["potentials"] == "kept" and keys["stop"] == 1e-6


def loosely(keys):
    return keys["sweep"] == "lambda" and (keys["stop"] == 1e-2 or keys["reg"] == INF)


@scenario("9b", "runtime", kept)
def time_by_reg(keys, up):
    rank = REG_RANK[keys["reg"]]
    return {"seconds": 20.0 - rank if up else 1.0 + rank}


@scenario("9c", "runtime", kept)
def amortised(keys, up):
    return {"seconds": steps(80, 1.0 if keys["reg"] != 0.1 else 20.0, 1.0 if up or keys["reg"] != 0.1 else 3.0)}


@scenario("9f", "runtime", loosely)
def amortised_loosely(keys, up):
    return amortised(keys, up)


@scenario("9d", "runtime", lambda keys: keys["sweep"] == "lambda" and keys["reg"] in (0.1, 1.0))
def saved(keys, up):
    if keys["potentials"] == "kept":
        return {"metric_seconds": 1.0}
    late = 10.0 if up and keys["reg"] == 0.1 else 1.5  # for one λ only, and only in a part of the run
    return {"metric_seconds": steps(80, 1.0, late)}


@scenario("9e", "runtime", kept)
def fastest(keys, up):
    return {"seconds": 2.0 if (keys["reg"] == INF) != up else 1.0}


# ---- 10: sharpness ----


@scenario("10a", "sharpness", lambda keys: keys["entropy"] == 0.0)
def exact_at_zero(keys, up):
    errors = np.zeros((4, 6))
    errors[1, 2] = 1e-9 if up or keys["dimension"] == 8 else 0.1  # one pair of many, in two of three dimensions
    return {"relative_error": errors}


@scenario("10b", "sharpness")
def rising_with_entropy(keys, up):
    """Where it does not hold, one panel of nine falls."""
    falls = not up and keys["dimension"] == 32 and keys["reg"] == INF
    return {"relative_error": 5.0 - keys["entropy"] if falls else 1.0 + keys["entropy"]}


@scenario("5e", "naive-vs-warm", at(1, 0.99))
def naive_fails_there(keys, up):
    return {"error": steps(80, 5.0, 4.0 if up and keys["n"] == 1 else 1.0)}


@scenario("12h", "third-family", lambda keys: keys["sweep"] == "alpha")
def third_wobbling(keys, up):
    return wobbling({"alpha": keys["alpha"] if keys["alpha"] in RANK else 1.0}, up)


@scenario("12i", "third-family", lambda keys: keys["sweep"] == "alpha")
def third_gap(keys, up):
    return gap_level({"alpha": keys["alpha"] if keys["alpha"] in RANK else 1.0}, up)


def test_claims_about_limits_leave_out_what_has_not_settled():
    """α = 2⁻⁶ still falls, from far above: its limit is not known, so it does not count."""

    def fill(keys):
        i = RANK[keys["alpha"]]
        return {"error": np.linspace(9.0, 0.5, 80) if i == 0 else np.full(80, 1.0 + i)}

    table = made_up("alpha-ablation", fill)
    found = decide("1b", {"alpha-ablation": table})
    assert found.verdict is HOLDS
    assert "4 of 5 settled" in found.measure
    falling = made_up("alpha-ablation", lambda keys: {"error": np.linspace(9.0, 0.5, 80)})
    assert decide("1b", {"alpha-ablation": falling}).verdict is UNDECIDED
    assert decide("3a", {"alpha-ablation": falling}).verdict is UNDECIDED


# ---- 11: distances against differences of values ----


def share_from(first):
    """Boxes in which three quarters of the pairs and more are bounded from a probe on, and briefly before."""
    from bisimetric.paper.distance_vs_value import PROBES

    probes = np.array([k for k in PROBES if k < 80])
    boxes = np.zeros((len(probes), 8))
    boxes[:, 2] = np.where(probes + 1 >= first, -0.001, -0.05)  # the lower quartile
    return boxes


@scenario("11a", "distance-vs-value", lambda keys: keys["n"] == 1)
def bounds_in_thirty(keys, up):
    return {"boxes": share_from(31 if up else 51)}


@scenario("11b", "distance-vs-value", lambda keys: keys["n"] == 5)
def bounds_at_once(keys, up):
    return {"boxes": share_from(2 if up else 5)}


@scenario("11c", "distance-vs-value", lambda keys: keys["n"] == 5)
def weaker(keys, up):
    boxes = share_from(1)
    rank = REG_RANK[keys["reg"]]
    boxes[:, 3] = 5.0 - rank if up else rank  # before the end, the other way
    boxes[-1, 3] = rank if up else 5.0 - rank
    boxes[:, [0, 1, 2, 4, 5, 6]] = 1.0
    return {"boxes": boxes}


# ---- the tests ----

BY_NAME = {claim.name: claim for claim in CLAIMS}
EVERY = sorted(SCENARIOS, key=lambda name: (int(re.match(r"\d+", name)[0]), name))


def decide(name: str, tables: dict[str, Table], profile: Profile = LONG):
    """The finding for one claim, by way of `decide_all`."""
    (found,) = [d for d in decide_all(tables, profile) if d.claim.name == name] if not tables else [None]
    return found.finding if found is not None else BY_NAME[name].decide(tables, profile)


@cache
def both(name: str) -> tuple[dict[str, Table], dict[str, Table]]:
    return tables_of(SCENARIOS[name], holds=True), tables_of(SCENARIOS[name], holds=False)


def only(tables: dict[str, Table], keep: Callable[[Keys], bool]) -> dict[str, Table]:
    return {name: Table(tuple(row for row in table if keep(row.keys))) for name, table in tables.items()}


def test_every_claim_has_a_scenario():
    assert set(SCENARIOS) == set(BY_NAME)


def test_names_are_unique_and_cover_the_twelve_statements():
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"\d+[a-z]?", name) for name in names)
    assert {int(re.match(r"\d+", name)[0]) for name in names} == set(range(1, 13))
    texts = [claim.text for claim in CLAIMS]
    assert len(set(texts)) == len(texts)


def test_claims_name_their_figures():
    for claim in CLAIMS:
        assert claim.figures, claim.name
        assert set(claim.figures) <= set(FIGURES), claim.name
        assert SCENARIOS[claim.name].figures == claim.figures
    assert set(REASONS) <= set(BY_NAME)


def test_claims_are_in_the_order_of_the_statements():
    numbers = [int(re.match(r"\d+", claim.name)[0]) for claim in CLAIMS]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("name", EVERY)
def test_claim_holds_where_it_does(name):
    finding = decide(name, both(name)[0])
    assert finding.verdict is HOLDS, finding
    assert math.isfinite(finding.effect)
    assert finding.low - 1e-9 <= finding.effect <= finding.high + 1e-9
    assert finding.measure
    assert finding.rule


@pytest.mark.parametrize("name", EVERY)
def test_claim_fails_where_it_does(name):
    finding = decide(name, both(name)[1])
    assert finding.verdict is FAILS, finding
    assert math.isfinite(finding.effect)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("way", [0, 1], ids=["where it holds", "where it fails"])
def test_one_seed_decides_nothing(name, way):
    """With one seed there is no uncertainty over seeds to speak of, however many runs of it there are."""
    finding = decide(name, only(both(name)[way], lambda keys: keys["seed"] == 1))
    assert finding.verdict is UNDECIDED, finding


@pytest.mark.parametrize("name", EVERY)
def test_the_number_of_seeds_is_that_of_the_seeds(name):
    """What is written as `seeds` beside a claim is how many seeds it rests on, not how many runs."""
    tables = both(name)[0]
    assert decide(name, tables).seeds == len({row.keys["seed"] for table in tables.values() for row in table})


def test_no_results_decide_nothing():
    for tables in ({}, {name: Table(()) for name in FIGURES}):
        decisions = decide_all(tables, PROFILE)
        assert [d.claim.name for d in decisions] == [claim.name for claim in CLAIMS]
        for d in decisions:
            assert d.finding.verdict is UNDECIDED
            assert d.reason == ""
            for name in d.claim.figures:
                assert name in d.finding.measure
            assert d.facts()["verdict"] == "undecided"


@pytest.mark.parametrize("name", EVERY)
def test_a_missing_run_is_no_evidence(name):
    """Whichever setting lacks a seed, the other seeds do not decide otherwise; figures with such gaps are reported."""
    tables = both(name)[0]
    for figure_name in tables:
        settings = {tuple(kv for kv in row.keys.items() if kv[0] != "seed") for row in tables[figure_name]}
        settings = sorted(settings, key=repr)
        for gone in settings[:: max(len(settings) // 15, 1)]:
            lost = {**dict(gone), "seed": 1}
            part = {**tables, figure_name: Table(tuple(r for r in tables[figure_name] if r.keys != lost))}
            assert len(part[figure_name]) == len(tables[figure_name]) - 1
            assert decide(name, part).verdict is not FAILS, lost


@pytest.mark.parametrize("name", EVERY)
def test_results_that_are_not_numbers_hold_up_nothing(name):
    tables = {
        key: Table(tuple(Row(r.keys, {a: np.full_like(x, np.nan) for a, x in r.arrays.items()}) for r in table))
        for key, table in both(name)[0].items()
    }
    assert decide(name, tables).verdict is not HOLDS


def test_decide_all_with_all_results():
    """Every figure at once, with the rows of no scenario: each claim gets a verdict, and JSON-ready facts."""
    tables = {name: made_up(name, lambda keys: {}) for name in FIGURES}
    decisions = decide_all(tables, PROFILE)
    assert [d.claim.name for d in decisions] == [claim.name for claim in CLAIMS]
    for d in decisions:
        assert d.finding.verdict in Verdict
        facts = d.facts()
        assert facts["claim"] == d.claim.name
        assert facts["text"] == d.claim.text


def test_seeds_that_disagree_decide_nothing():
    """Half of the seeds show the effect, half the opposite."""
    for name in ("1b", "2a", "5c", "6a", "7a", "7d", "8e", "8h", "9b", "9e", "12f", "12g"):
        good, bad = both(name)
        mixed = {
            key: Table(tuple(g if g.keys["seed"] % 2 else b for g, b in zip(good[key], bad[key], strict=True)))
            for key in good
        }
        finding = decide(name, mixed)
        assert finding.verdict is UNDECIDED or (finding.high < 0.7 and "rank" in finding.measure), (name, finding)


# ---- single claims, closer ----


def first_mdp(**curves):
    def fill(keys):
        return {key: value(keys) for key, value in curves.items()}

    return {"alpha-ablation": made_up("alpha-ablation", fill)}


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        (20.0, FAILS),  # settled at the truth
        (30.0, FAILS),  # wrong, but steady: it does not keep oscillating
        (steps(80, 40.0, alternating(20, 25.0, 30.0)), HOLDS),
        (steps(80, 40.0, np.where(np.arange(20) == 5, 21.0, 20.0)), FAILS),  # the truth nearly always
    ],
)
def test_an_unsettled_run_is_wrong_and_changing(curve, verdict):
    assert decide("3b", first_mdp(n_classes=lambda keys: curve)).verdict is verdict


def test_every_small_step_size_must_end_with_the_true_classes():
    for wrong in sorted(ALPHAS)[:-1]:
        tables = first_mdp(n_classes=lambda keys, wrong=wrong: 19.0 if keys["alpha"] == wrong else 20.0)
        assert decide("3a", tables).verdict is FAILS
    assert decide("3a", first_mdp(n_classes=lambda keys: 19.0 if keys["alpha"] == 1.0 else 20.0)).verdict is HOLDS


def test_the_true_number_of_classes_is_the_profiles():
    tables = first_mdp(n_classes=lambda keys: 12.0, purity=lambda keys: 0.75)
    quick = decide("3a", tables, PROFILES["quick"])
    assert (quick.verdict, decide("3a", tables).verdict) == (HOLDS, FAILS)
    assert "purity 0.750" in quick.measure


@pytest.mark.parametrize(("level", "verdict"), [(1.0, HOLDS), (1.2, HOLDS), (1.0 / 3.0, FAILS), (3.0, FAILS)])
def test_alike_means_neither_better_nor_worse(level, verdict):
    table = made_up("naive-vs-warm", lambda keys: {"error": level if keys["algorithm"] == "naive" else 1.0})
    assert decide("5a", {"naive-vs-warm": table}).verdict is verdict


def test_equal_errors_of_zero_are_alike():
    table = made_up("naive-vs-warm", lambda keys: {"error": steps(80, 5.0, 0.0)})
    assert decide("5a", {"naive-vs-warm": table}).verdict is HOLDS


def test_a_factor_is_paired_by_seed():
    """n = 1 is four times worse for one seed only, whose run at n = 28 is missing for another algorithm."""

    def fill(keys):
        return {"error": 4.0 if keys["n"] == 1 and keys["seed"] == 3 else 1.0}

    table = made_up("naive-vs-warm", fill)
    whole = decide("5d", {"naive-vs-warm": table})
    part = Table(tuple(r for r in table if (r.keys["algorithm"], r.keys["n"], r.keys["seed"]) != ("API(1)", 28, 0)))
    assert whole.effect == pytest.approx((1.0 + 1.0 + 1.0 + 4.0) / 4)
    assert decide("5d", {"naive-vs-warm": part}).effect == pytest.approx((1.0 + 1.0 + 4.0) / 3)


def test_curves_with_nothing_to_compare_with_are_not_alike():
    table = made_up("lambda-ablation", lambda keys: {})
    alone = Table(tuple(row for row in table if row.keys["reg"] == 0.0))
    assert decide("7a", {"lambda-ablation": alone}).verdict is UNDECIDED


def test_a_metric_that_bounds_values_early_but_not_in_the_end():
    boxes = share_from(1)
    boxes[-1, 2] = -0.05
    table = made_up("distance-vs-value", lambda keys: {"boxes": boxes})
    assert decide("11a", {"distance-vs-value": table}).verdict is FAILS
    assert decide("11b", {"distance-vs-value": table}).verdict is FAILS


def test_one_panel_without_numbers_is_not_a_rise():
    """A box that is not a number says nothing; the claim must not hold on it."""
    table = made_up(
        "sharpness",
        lambda keys: {"relative_error": np.nan if keys["entropy"] == 0.0 else 1.0 + keys["entropy"]},
    )
    assert decide("10b", {"sharpness": table}).verdict is UNDECIDED


def test_reasons_are_given_for_failures_only(monkeypatch):
    monkeypatch.setitem(REASONS, "12g", lambda tables, profile: "because")
    good, bad = both("12g")
    for tables, reason in ((good, ""), (bad, "because")):
        (found,) = [d for d in decide_all(tables, PROFILE) if d.claim.name == "12g"]
        assert found.reason == reason
        assert found.facts()["reason"] == reason


def test_a_claim_that_fails_says_where_it_holds():
    """On the first MDP's chosen variant it fails; the made-up authors' variant is the other way round."""
    good, bad = both("1a")
    for tables, verdict in ((good, ""), (bad, "holds")):
        (found,) = [d for d in decide_all(tables, PROFILE) if d.claim.name == "1a"]
        assert (verdict in found.elsewhere) if verdict else found.elsewhere == ""
        assert found.facts()["elsewhere"] == found.elsewhere
    (found,) = [d for d in decide_all(both("12g")[1], PROFILE) if d.claim.name == "12g"]
    assert "No other" in found.elsewhere


def test_a_curve_that_swings_has_settled_and_one_that_falls_has_not():
    swinging = made_up("alpha-ablation", lambda keys: {"error": alternating(80, 1.0, 2.0)})
    falling = made_up("alpha-ablation", lambda keys: {"error": np.geomspace(10.0, 1.0, 80)})
    part = {"variant": "chosen", "mdp": "second", "alpha": 2.0**-6}
    assert not still_falls(swinging.where(**part))
    assert still_falls(falling.where(**part))
