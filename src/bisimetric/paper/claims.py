"""What the paper says its experiments show, statement by statement, as functions from results to verdicts.

The numbers are those of the twelve statements that this project takes from the paper's figures and text; where a
statement says several things, or says them of several MDPs, it is split (1a, 1b, …).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import ascii_lowercase

import numpy as np

from ..kinds import Array, Facts
from . import budget, runtime, sharpness
from .evidence import Finding, Verdict, above, below, rank_correlation, share, trend
from .measures import (
    as_drawn,
    by_setting,
    distance_of_curves,
    early,
    flags_by_seed,
    level,
    limsup,
    overall,
    ratios,
    settled,
    spread,
    tail,
    trend_in_the_limit,
    wobble,
    worst_of,
)
from .settings import Profile
from .table import Row, Setting, Table

Tables = Mapping[str, Table]
Decide = Callable[[Tables, Profile], Finding]


@dataclass(frozen=True)
class Claim:
    """A statement, the figures that it is about, and how it is decided.

    `otherwise` decides it under other choices that the paper leaves open, by their names (None: it leaves none open).
    """

    name: str
    text: str
    figures: tuple[str, ...]
    decide: Decide
    otherwise: Mapping[str, Decide] | None = None


@dataclass(frozen=True)
class Decision:
    """A claim with what the results say of it, and of it under other choices; `reason` is computed from the results."""

    claim: Claim
    finding: Finding
    otherwise: Mapping[str, Finding]
    reason: str = ""

    @property
    def elsewhere(self) -> str:
        """For a claim that fails: under which of the open choices that were run it holds."""
        if self.finding.verdict is not Verdict.FAILS or self.claim.otherwise is None:
            return ""
        if not self.otherwise:
            return "No other of the open choices was run for it."
        said = (f"{name}: {f.verdict.value} ({f.effect:.3g})" for name, f in self.otherwise.items())
        return "Under other choices: " + "; ".join(said) + "."

    def facts(self) -> Facts:
        f = self.finding
        return {
            "claim": self.claim.name,
            "text": self.claim.text,
            "verdict": f.verdict.value,
            "effect": finite(f.effect),
            "low": finite(f.low),
            "high": finite(f.high),
            "measure": f.measure,
            "rule": f.rule,
            "seeds": f.seeds,
            "figures": " ".join(self.claim.figures),
            "elsewhere": self.elsewhere,
            "reason": self.reason,
        }


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


CLAIMS: list[Claim] = []


def claim(
    name: str, text: str, *figures: str, otherwise: Mapping[str, Decide] | None = None
) -> Callable[[Decide], Decide]:
    def register(decide: Decide) -> Decide:
        CLAIMS.append(Claim(name, text, figures, decide, otherwise or {}))
        return decide

    return register


def decide_all(tables: Tables, profile: Profile) -> list[Decision]:
    """Decide every claim; those whose figures have no results are undecided."""
    decisions = []
    for one in CLAIMS:
        if all(name in tables and len(tables[name]) for name in one.figures):
            finding = one.decide(tables, profile)
            otherwise = {name: decide(tables, profile) for name, decide in (one.otherwise or {}).items()}
            otherwise = {name: found for name, found in otherwise.items() if found.seeds}
        else:
            finding, otherwise = Finding.absent(f"no results of {', '.join(one.figures)}"), {}
        fails = finding.verdict is Verdict.FAILS and one.name in REASONS
        decisions.append(Decision(one, finding, otherwise, REASONS[one.name](tables, profile) if fails else ""))
    return decisions


# ---- 1 to 4: the step size ----

_LETTERS = {"first": ("a", "b", "c"), "second": ("d", "e", "f")}
_AUTHORS = "the authors' variant"


def _alphas(tables: Tables, mdp: str, variant: str) -> Table:
    return tables["alpha-ablation"].where(variant=variant, mdp=mdp)


def _of_alpha(name: str, text: str, decide: Callable[[Table, Profile], Finding], mdp: str) -> None:
    """A claim about the step size on one MDP, in the chosen variant and in the authors'."""

    def for_variant(variant: str) -> Decide:
        return lambda tables, profile: decide(_alphas(tables, mdp, variant), profile)

    claim(name, f"{text} ({mdp} MDP)", "alpha-ablation", otherwise={_AUTHORS: for_variant("authors")})(
        for_variant("chosen")
    )


def _settles(table: Table, profile: Profile) -> Finding:
    part = settled(table.where(alpha=lambda alpha: float(alpha) < 1.0), "alpha")
    if not len(part):
        return Finding.absent("no α < 1 has settled")
    pure = np.mean([tail(row, "purity")[-1] for row in part])
    ends = flags_by_seed(part, lambda row: float(np.median(row.arrays["n_classes"][-10:])) == profile.n_classes)
    what = f"runs of settled α with {profile.n_classes} classes in the end"
    return share(ends, f"{what} (α: {', '.join(f'{a:g}' for a in part.values('alpha'))}; mean purity {pure:.3f})")


def _unsettled(table: Table, profile: Profile) -> Finding:
    def unsteady(row: Row) -> bool:
        classes = tail(row, "n_classes")
        return bool(np.mean(classes == profile.n_classes) < 0.5 and len(np.unique(classes)) > 1)

    flags = flags_by_seed(table.where(alpha=1.0), unsteady)
    return share(flags, "runs of API(1) off the true number most of the time, and changing it")


def _step_size_claims(mdp: str) -> None:
    a, b, c = _LETTERS[mdp]

    def limit(measure: Callable[[Row], float], what: str) -> Callable[[Table, Profile], Finding]:
        return lambda table, profile: trend_in_the_limit(table, "alpha", measure, what)

    def slower(table: Table, profile: Profile) -> Finding:
        return trend(by_setting(table, "alpha", early), "early error with α", rising=False)

    _of_alpha(f"1{a}", "A smaller α is slower at first", slower, mdp)
    _of_alpha(
        f"1{b}", "A smaller α has a smaller limsup of the error", limit(limsup, "limsup of the error with α"), mdp
    )
    _of_alpha(f"1{c}", "A smaller α oscillates less", limit(wobble, "wobble of the error with α"), mdp)
    a, b = ("a", "b") if mdp == "first" else ("c", "d")
    gap = limit(level("metric_gap"), "metric gap with α")
    _of_alpha(f"2{a}", "The final level of the metric gap falls with α", gap, mdp)
    deviation = limit(spread("metric_gap"), "deviation of the metric gap with α")
    _of_alpha(f"2{b}", "The variance of the metric gap falls with α", deviation, mdp)
    _of_alpha(f"3{a}", "Every α < 1 ends with the true number of classes", _settles, mdp)
    text = "α = 1 does not find the true number of classes and keeps oscillating"
    _of_alpha(f"3{b}", text, _unsettled, mdp)


_step_size_claims("first")
_step_size_claims("second")


@claim("3e", "Every α < 1 ends with the true number of classes (second MDP, the authors' variant)", "alpha-ablation")
def settles_for_the_authors(tables: Tables, profile: Profile) -> Finding:
    return _settles(_alphas(tables, "second", "authors"), profile)


@claim("4", "The number of classes is large early and falls later (α < 1, both MDPs)", "alpha-ablation")
def fine_grained_early(tables: Tables, profile: Profile) -> Finding:
    ratio: dict[int, list[float]] = {}
    for row in tables["alpha-ablation"].where(variant="chosen", alpha=lambda alpha: float(alpha) < 1.0):
        classes = row.arrays["n_classes"]
        largest, last = classes[: len(classes) // 2].max(), classes[-max(len(classes) // 10, 1) :].mean()
        ratio.setdefault(row.seed, []).append(float(largest / last))
    return above(
        [float(np.mean(r)) for r in ratio.values()], 1.5, "largest number of classes in the first half over the last"
    )


# ---- 5 and 6: naive, warm-started, decaying ----


def _algorithm(tables: Tables, n: int, algorithm: str, gamma: float = 0.9, ties: str = "random") -> Table:
    return tables["naive-vs-warm"].where(gamma=gamma, n=n, algorithm=algorithm, ties=ties)


@claim("5a", "Naive API behaves like API(1) for n = 28", "naive-vs-warm")
def naive_like_warm(tables: Tables, profile: Profile) -> Finding:
    found = ratios(_algorithm(tables, 28, "naive"), _algorithm(tables, 28, "API(1)"), level())
    apart = [max(r, 1.0 / r) for r in found.values()]
    return below(apart, 1.25, "factor between the final error levels of naive API and API(1)")


def _naive_fails(n: int, gamma: float = 0.9, ties: str = "random") -> Decide:
    def decide(tables: Tables, profile: Profile) -> Finding:
        few, many = (_algorithm(tables, sweeps, "naive", gamma, ties) for sweeps in (n, 28))
        return above(ratios(few, many, level()).values(), 2.0, f"final error level of naive API, n = {n} over n = 28")

    return decide


_LUCK = "ties to the first action"
claim("5b", "Naive API fails for n = 7", "naive-vs-warm", otherwise={_LUCK: _naive_fails(7, ties="first")})(
    _naive_fails(7)
)
claim("5c", "Naive API fails for n = 1", "naive-vs-warm", otherwise={_LUCK: _naive_fails(1, ties="first")})(
    _naive_fails(1)
)


@claim("5d", "Warm-started API works at n = 1 as at n = 28", "naive-vs-warm")
def warm_works(tables: Tables, profile: Profile) -> Finding:
    algorithms = ("API(1)", "API(2^-6)", "API(a_k)")
    found = [ratios(_algorithm(tables, 1, name), _algorithm(tables, 28, name), level()) for name in algorithms]
    return below(worst_of(found), 2.0, "final error level at n = 1 over that at n = 28, worst of three")


claim("5e", "Naive API fails for n = 1 at γ = 0.99 too", "naive-vs-warm")(_naive_fails(1, gamma=0.99))


def _decay_claims(gamma: float, letters: str) -> None:
    where = f"γ = {gamma:g}"

    @claim(f"6{letters[0]}", f"α_k = max(2⁻⁶, k^−0.8) ends better than α = 1 ({where})", "naive-vs-warm")
    def stabler(tables: Tables, profile: Profile) -> Finding:
        found = ratios(_algorithm(tables, 28, "API(1)", gamma), _algorithm(tables, 28, "API(a_k)", gamma), limsup)
        return above(found.values(), 1.0, "limsup of the error, API(1) over API(α_k)")

    @claim(f"6{letters[1]}", f"α_k = max(2⁻⁶, k^−0.8) is faster than α = 2⁻⁶ ({where})", "naive-vs-warm")
    def faster(tables: Tables, profile: Profile) -> Finding:
        found = ratios(_algorithm(tables, 28, "API(2^-6)", gamma), _algorithm(tables, 28, "API(a_k)", gamma), overall)
        return above(found.values(), 1.0, "mean error of the whole run, API(2⁻⁶) over API(α_k)")


_decay_claims(0.9, "ab")
_decay_claims(0.99, "cd")


# ---- 7: regularisation and order ----


@claim("7a", "Optimality curves are nearly the same for all λ", "lambda-ablation")
def same_for_regs(tables: Tables, profile: Profile) -> Finding:
    found = distance_of_curves(tables["lambda-ablation"], "reg", 0.0)
    return below(found, 0.05, "mean difference of error curves from λ = 0, over the first error; worst λ")


@claim("7b", "Optimality curves are nearly the same for all p", "p-ablation")
def same_for_orders(tables: Tables, profile: Profile) -> Finding:
    found = distance_of_curves(tables["p-ablation"], "p", 1.0)
    return below(found, 0.05, "mean difference of error curves from p = 1, over the first error; worst p")


def _rises(name: str, text: str, figure: str, key: str, quantity: str, **part: Setting) -> None:
    @claim(name, text, figure)
    def decide(tables: Tables, profile: Profile) -> Finding:
        table = tables[figure].where(**part) if part else tables[figure]
        what = {"metric_gap": "metric gap", "n_classes": "number of classes"}[quantity]
        return trend(
            by_setting(table, key, level(quantity)), f"{what} with {'λ' if key == 'reg' else 'p'}", rising=True
        )


_rises("7c", "The metric gap rises with λ", "lambda-ablation", "reg", "metric_gap")
_rises("7d", "The number of classes rises with λ", "lambda-ablation", "reg", "n_classes")
_rises("7e", "The metric gap rises with p", "p-ablation", "p", "metric_gap")
_rises("7f", "The number of classes rises with p", "p-ablation", "p", "n_classes")


# ---- 8: a budget of classes ----


@claim("8a", "With a budget of classes the run makes similar progress as with ε", "budget", "lambda-ablation")
def budget_like_cover(tables: Tables, profile: Profile) -> Finding:
    medoids = {row.seed: row.arrays["error"] for row in tables["budget"].where(mixing=0.0, reg=1.0)}
    cover = {row.seed: row.arrays["error"] for row in tables["lambda-ablation"].where(reg=1.0)}
    apart = []
    for seed in sorted(medoids.keys() & cover.keys()):
        steps = min(len(medoids[seed]), len(cover[seed]))
        apart.append(float(np.abs(medoids[seed][:steps] - cover[seed][:steps]).mean() / cover[seed][0]))
    return below(apart, 0.1, "mean difference of error curves (λ = 1), over the first error")


_BUDGET_REGS = (0.1, 1.0, math.inf)


def _budget_part(tables: Tables, mixing: float) -> Table:
    return tables["budget"].where(mixing=mixing, reg=lambda reg: reg in _BUDGET_REGS)


def _budget_claims() -> None:
    for letter, mixing in zip("bcd", budget.MIXINGS, strict=True):

        def better_classes(name: str, mixing: float = mixing) -> Decide:
            def decide(tables: Tables, profile: Profile) -> Finding:
                measured = by_setting(_budget_part(tables, mixing), "reg", as_drawn(name))
                return trend(measured, "NMI over the drawn steps with λ", rising=False)

            return decide

        text = f"The metric knows the true classes better as λ falls (random part {mixing:g})"
        claim(f"8{letter}", text, "budget", otherwise={"the run's own classes": better_classes("nmi")})(
            better_classes("metric_nmi")
        )

    for letter, mixing in zip("efg", budget.MIXINGS, strict=True):

        def better_policies(measure: Callable[[Row], float], what: str, mixing: float = mixing) -> Decide:
            def decide(tables: Tables, profile: Profile) -> Finding:
                return trend(by_setting(_budget_part(tables, mixing), "reg", measure), what, rising=True)

            return decide

        drawn = better_policies(as_drawn("error"), "error over the drawn steps with λ")
        text = f"Policies are better as λ falls (random part {mixing:g})"
        claim(f"8{letter}", text, "budget", otherwise={"the error over the drawn steps": drawn})(
            better_policies(level(), "error with λ")
        )


_budget_claims()


@claim("8h", "The advantage of a small λ widens as transitions become more random", "budget")
def gap_widens(tables: Tables, profile: Profile) -> Finding:
    def advantage(mixing: float) -> dict[int, float]:
        part = by_setting(_budget_part(tables, mixing), "reg", level())
        return {seed: part[math.inf][seed] - part[0.1][seed] for seed in part[0.1].keys() & part[math.inf].keys()}

    still, mixed = advantage(budget.MIXINGS[0]), advantage(budget.MIXINGS[-1])
    found = [mixed[seed] - still[seed] for seed in sorted(still.keys() & mixed.keys())]
    return above(found, 0.0, "error of λ = ∞ less that of λ = 0.1, at random part 0.5 less the same at 0")


# ---- 9: run time ----


def _seconds(row: Row) -> float:
    """Median time of a step in the second half of a run."""
    seconds = row.arrays["seconds"]
    return float(np.median(seconds[len(seconds) // 2 :]))


def _total_seconds(row: Row) -> float:
    """Of the curve as it is drawn: kernels that are loaded in the first step of a process are not a run's own time."""
    return float(runtime.smooth(row.arrays["seconds"]).sum())


def _metric_seconds(row: Row) -> float:
    return float(runtime.smooth(row.arrays["metric_seconds"]).sum())


def _timed_on(tables: Tables) -> str:
    """The device whose times decide: the CPU, or a GPU where nothing was timed on a CPU."""
    return "cpu" if len(tables["runtime"].where(device="cpu")) else "cuda"


def _with_device(what: str, tables: Tables) -> str:
    return f"{what}, {runtime.DEVICES[_timed_on(tables)]}"


def _timed(
    tables: Tables, reg: float, potentials: str = "kept", stop: float = runtime.STOPS[0], device: str | None = None
) -> Table:
    device = device or _timed_on(tables)
    return tables["runtime"].where(device=device, sweep="lambda", reg=reg, potentials=potentials, stop=stop)


@claim("9a", "A step takes less time with a smaller α", "runtime")
def faster_with_alpha(tables: Tables, profile: Profile) -> Finding:
    part = tables["runtime"].where(device=_timed_on(tables), sweep="alpha")
    return trend(by_setting(part, "alpha", _seconds), _with_device("time of a step with α", tables), rising=True)


def _faster_with_reg(measure: Callable[[Row], float], what: str) -> Decide:
    def decide(tables: Tables, profile: Profile) -> Finding:
        measured: dict[Setting, dict[int, float]] = {reg: _timed(tables, reg).by_seed(measure) for reg in runtime.REGS}
        return trend(measured, _with_device(what, tables), rising=False)

    return decide


claim(
    "9b",
    "A step takes less time with a larger λ",
    "runtime",
    otherwise={"the metric's own time": _faster_with_reg(_metric_seconds, "time of the metric with λ")},
)(_faster_with_reg(_total_seconds, "time of the whole run with λ"))


_AMORTISED = 300  # steps


def _amortised(stop: float, device: str | None = None) -> Decide:
    def decide(tables: Tables, profile: Profile) -> Finding:
        if device == _timed_on(tables):
            return Finding.absent("this is where it was decided")
        if profile.timed_steps < _AMORTISED:
            return Finding.absent(f"needs runs of {_AMORTISED} steps or more")
        small, large = (_timed(tables, reg, stop=stop, device=device) for reg in (0.1, 1.0))
        found = ratios(small, large, lambda row: float(np.median(tail(row, "seconds"))))
        what = "final time of a step, λ = 0.1 over λ = 1"
        return below(found.values(), 1.5, what if device else _with_device(what, tables))

    return decide


_TIGHT, _LOOSE = runtime.STOPS
claim(
    "9c",
    "The cost of a small λ is amortised in the end (marginal error 1e-6)",
    "runtime",
    otherwise={"on a GPU": _amortised(_TIGHT, "cuda")},
)(_amortised(_TIGHT))
claim(
    "9f",
    "The cost of a small λ is amortised in the end (marginal error 1e-2, as in the authors' runs)",
    "runtime",
    otherwise={"on a GPU": _amortised(_LOOSE, "cuda")},
)(_amortised(_LOOSE))


@claim("9d", "Keeping potentials saves up to about a factor of 10", "runtime")
def potentials_save(tables: Tables, profile: Profile) -> Finding:
    gains = []
    for reg in runtime.COLD_REGS:
        kept = {row.seed: row.arrays["metric_seconds"] for row in _timed(tables, reg, "kept")}
        anew = _timed(tables, reg, "anew").where(seed=set(kept).__contains__)

        def gain(row: Row, known: dict[int, Array] = kept) -> float:
            return float((runtime.smooth(row.arrays["metric_seconds"]) / runtime.smooth(known[row.seed])).max())

        gains.append(anew.by_seed(gain))
    what = _with_device("largest factor over the steps of a run, better of λ = 0.1 and 1", tables)
    return above(worst_of(gains), 5.0, what)


@claim("9e", "λ = ∞ is the fastest", "runtime")
def independent_fastest(tables: Tables, profile: Profile) -> Finding:
    fastest = _timed(tables, math.inf).by_seed(_total_seconds)
    others = [_timed(tables, reg).by_seed(_total_seconds) for reg in runtime.REGS if math.isfinite(reg)]
    found = worst_of([{s: other[s] / fastest[s] for s in other.keys() & fastest.keys()} for other in others], np.min)
    return above(found, 1.0, _with_device("time of the fastest other λ over that of λ = ∞", tables))


# ---- 10: sharpness ----


@claim("10a", "Sinkhorn distances are exact where one distribution has no entropy", "sharpness")
def exact_without_entropy(tables: Tables, profile: Profile) -> Finding:
    part = tables["sharpness"].where(entropy=0.0)
    flags = flags_by_seed(part, lambda row: bool(np.abs(row.arrays["relative_error"]).max() <= 1e-5))
    return share(flags, "boxes at zero entropy with all relative errors under 1e-5")


@claim("10b", "The relative error rises with the smaller entropy, for all λ and dimensions", "sharpness")
def error_rises_with_entropy(tables: Tables, profile: Profile) -> Finding:
    found = []
    for dimension in sharpness.DIMENSIONS:
        for reg in sharpness.REGS:
            part = tables["sharpness"].where(dimension=dimension, reg=reg)
            medians = by_setting(part, "entropy", lambda row: float(np.median(row.arrays["relative_error"])))
            seeds = set.intersection(*(set(measured) for measured in medians.values()))
            entropies = sorted(medians, key=float)
            ranked = [float(e) for e in entropies]
            found.append({s: rank_correlation(ranked, [medians[e][s] for e in entropies]) for s in sorted(seeds)})
    return above(worst_of(found, np.min), 0.9, "rank correlation of the median error with entropy, worst of the panels")


# ---- 11: distances against differences of values ----


_INVISIBLE = 0.01  # a thousandth of the largest value: not to be seen on the box plot


def first_bound(row: Row, probes: tuple[int, ...]) -> int:
    """The step (from 1) from which on the box of d̂ − ΔV is not below 0; a large number if never."""
    good = row.arrays["boxes"][:, 2] >= -_INVISIBLE  # the lower quartile
    if not good[-1]:
        return 10**6
    first = len(good) - int(np.argmin(good[::-1])) if not good.all() else 0
    return probes[first] + 1


def _bounds_within(n: int, steps: int) -> Decide:
    def decide(tables: Tables, profile: Profile) -> Finding:
        from .distance_vs_value import PROBES

        flags = flags_by_seed(tables["distance-vs-value"].where(n=n), lambda row: first_bound(row, PROBES) <= steps)
        return share(flags, f"runs where the box of d̂ − ΔV is above −0.01 from step {steps} on or sooner")

    return decide


claim("11a", "With n = 1, d̂ bounds differences of values after about 30 steps", "distance-vs-value")(
    _bounds_within(1, 41)
)
claim("11b", "With n = 5, d̂ bounds differences of values after one step", "distance-vs-value")(_bounds_within(5, 2))


@claim("11c", "The bound is weaker for a larger λ", "distance-vs-value")
def weaker_with_reg(tables: Tables, profile: Profile) -> Finding:
    part = tables["distance-vs-value"].where(n=5)
    measured = by_setting(part, "reg", lambda row: float(row.arrays["boxes"][-1, 3]))
    return trend(measured, "final median of d̂ − ΔV with λ", rising=True)


# ---- 12: the third family ----


def _third(tables: Tables, sweep: str) -> Table:
    return tables["third-family"].where(sweep=sweep)


@claim("12a", "Third family: a smaller α is slower at first", "third-family")
def third_slower(tables: Tables, profile: Profile) -> Finding:
    return trend(by_setting(_third(tables, "alpha"), "alpha", early), "early error with α", rising=False)


@claim("12b", "Third family: a smaller α has a smaller limsup of the error", "third-family")
def third_limsup(tables: Tables, profile: Profile) -> Finding:
    return trend_in_the_limit(_third(tables, "alpha"), "alpha", limsup, "limsup of the error with α")


_rises("12c", "Third family: the metric gap rises with λ", "third-family", "reg", "metric_gap", sweep="lambda")
_rises("12d", "Third family: the number of classes rises with λ", "third-family", "reg", "n_classes", sweep="lambda")


@claim("12e", "Third family: optimality curves are nearly the same for all λ", "third-family")
def third_same(tables: Tables, profile: Profile) -> Finding:
    found = distance_of_curves(_third(tables, "lambda"), "reg", 0.0)
    return below(found, 0.05, "mean difference of error curves from λ = 0, over the first error; worst λ")


@claim("12f", "Third family: with a budget of classes λ = ∞ is clearly worse than λ = 0.1", "third-family")
def third_budget(tables: Tables, profile: Profile) -> Finding:
    part = _third(tables, "budget")
    found = ratios(part.where(reg=math.inf), part.where(reg=0.1), level())
    return above(found.values(), 1.2, "error, λ = ∞ over λ = 0.1")


@claim(
    "12g",
    "With λ = ∞ and a budget, the policy is farther from the optimum on the third MDP than on the others",
    "value-functions",
)
def third_values(tables: Tables, profile: Profile) -> Finding:
    def relative(row: Row) -> float:
        best = row.arrays["optimal_value"]
        return float(np.abs(best - row.arrays["value"]).max() / best.max())

    by_mdp = by_setting(tables["value-functions"], "mdp", relative)
    third = by_mdp["third"]
    rest = (by_mdp["first"], by_mdp["second"])
    found = worst_of([{s: third[s] - other[s] for s in third.keys() & other.keys()} for other in rest], np.min)
    return above(found, 0.0, "error over the largest value, third MDP less the worse of the others")


@claim("12h", "Third family: a smaller α oscillates less", "third-family")
def third_steadier(tables: Tables, profile: Profile) -> Finding:
    return trend_in_the_limit(_third(tables, "alpha"), "alpha", wobble, "wobble of the error with α")


@claim("12i", "Third family: the final level of the metric gap falls with α", "third-family")
def third_gap(tables: Tables, profile: Profile) -> Finding:
    return trend_in_the_limit(_third(tables, "alpha"), "alpha", level("metric_gap"), "metric gap with α")


CLAIMS.sort(key=lambda one: (int(one.name.rstrip(ascii_lowercase)), one.name))


def _scalings(tables: Tables, profile: Profile) -> str:
    """How many scalings a pair takes in the end."""
    pairs = profile.n_states * (profile.n_states - 1) / 2

    def each(row: Row) -> float:
        return float(np.median(tail(row, "iterations") / (tail(row, "sweeps") * pairs)))

    small, large = (np.mean(list(_timed(tables, reg).by_seed(each).values())) for reg in (0.1, 1.0))
    return f"In the end a pair takes {small:.3g} scalings a sweep at λ = 0.1 and {large:.3g} at λ = 1."


def _share_of_sweeps(tables: Tables, profile: Profile) -> str:
    """How much of a step the metric is, by λ."""

    def part(row: Row) -> float:
        return float(np.median(row.arrays["metric_seconds"] / row.arrays["seconds"]))

    shares = {reg: np.mean(list(_timed(tables, reg).by_seed(part).values())) for reg in runtime.REGS}
    said = ", ".join(f"{100 * share:.0f} % at λ = {reg:g}" for reg, share in shares.items())
    return f"The metric's part of a step ({runtime.DEVICES[_timed_on(tables)]}): {said}.".replace("inf", "∞")


def _quartiles(tables: Tables, profile: Profile) -> str:
    """Where the boxes are after the first steps."""
    from .distance_vs_value import PROBES

    part = tables["distance-vs-value"].where(n=5)
    lower = np.mean([row.arrays["boxes"][:, 2] for row in part], axis=0)
    said = ", ".join(f"{lower[k]:.3g} at step {PROBES[k] + 1}" for k in range(min(4, len(PROBES))))
    return f"The lower quartile of d̂ − ΔV, over all λ and seeds: {said}."


# What the results say of why a claim fails, shown beside it where it does.
REASONS: dict[str, Callable[[Tables, Profile], str]] = {"9b": _share_of_sweeps, "9c": _scalings, "11b": _quartiles}
