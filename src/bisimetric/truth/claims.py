"""What the truth table and its experiments are asked, and the rules that decide. Written before results were looked at.

Those of the table itself are in `table_claims`. Errors are parts of the diameter of the certified metric d_π, unless
said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..kinds import Floats
from ..paper.claims import Decision
from ..paper.evidence import Finding, above, below, trend
from ..paper.table import Row, Setting, Table
from . import table_claims
from .registry import CLAIMS, DECIDE, SAFE, Decide, Tables, claim, number, seeds_of
from .settings import COUPLINGS, DRIFT_MODELS, LIGHT, METRIC_METHODS, WEIGHT

CEILING = table_claims.CEILING  # which also registers the claims of the table, first
SETTLING = 0.25  # part of the policies of a run that is left out, while learning begins from nothing


def decide_all(tables: Tables) -> list[Decision]:
    """Decide every claim; those whose figure has no results are undecided."""
    decisions = []
    for one in CLAIMS:
        there = all(name in tables and len(tables[name]) for name in one.figures)
        finding = DECIDE[one.name](tables) if there else Finding.absent(f"no results of {', '.join(one.figures)}")
        decisions.append(Decision(one, finding, {}))
    return decisions


# ---- D: drift ----


def settled(row: Row, name: str = "error") -> Floats:
    """A curve of a run over its policies, without the beginning."""
    curve = row.arrays[name]
    return np.asarray(curve[int(SETTLING * len(curve)) :], np.float64)


def _drift(tables: Tables, model: str, alpha: Setting, name: str = "error") -> dict[int, float]:
    return tables["drift"].where(model=model, alpha=alpha).by_seed(lambda row: float(settled(row, name).mean()))


def _ratio(top: Mapping[int, float], bottom: Mapping[int, float]) -> list[float]:
    return [top[seed] / max(bottom[seed], SAFE) for seed in sorted(set(top) & set(bottom))]


def _drift_claims(model: str, letter: str) -> None:
    @claim(f"D1{letter}", f"{model}: the learned metric is closer to that of its policy, the smaller α is", "drift")
    def _(tables: Tables) -> Finding:
        measured: dict[Setting, Mapping[int, float]] = {a: _drift(tables, model, a) for a in (1.0, 0.25, 0.05)}
        return trend(measured, "mean of ‖d̂_k − d_π_k‖ over policies with α", rising=True)

    @claim(f"D2{letter}", f"{model}: with α = 1/4 it is closer than with α = 1", "drift")
    def _(tables: Tables) -> Finding:
        ratio = _ratio(_drift(tables, model, 0.25), _drift(tables, model, 1.0))
        return below(ratio, 1.0, "error at α = 1/4, over that at 1")

    @claim(f"D3{letter}", f"{model}: with α = 0.05 the error is less than half of that with α = 1", "drift")
    def _(tables: Tables) -> Finding:
        ratio = _ratio(_drift(tables, model, 0.05), _drift(tables, model, 1.0))
        return below(ratio, 0.5, "error at α = 0.05, over that at 1")

    @claim(f"D4{letter}", f"{model}: with α = 0.05 it is within 1.5 times the error for a policy that stays", "drift")
    def _(tables: Tables) -> Finding:
        ratio = _ratio(_drift(tables, model, 0.05), _drift(tables, model, 0.0))
        return below(ratio, 1.5, "error at α = 0.05, over that of a policy that stays")

    @claim(f"D5{letter}", f"{model}: the true metric moves less from policy to policy, the smaller α is", "drift")
    def _(tables: Tables) -> Finding:
        measured: dict[Setting, Mapping[int, float]] = {a: _drift(tables, model, a, "moved") for a in (1.0, 0.25, 0.05)}
        return trend(measured, "mean of ‖d_π_k+1 − d_π_k‖ with α", rising=True)

    @claim(f"D6{letter}", f"{model}: D1 with errors in diameters of the metric of the policy itself", "drift")
    def _(tables: Tables) -> Finding:
        measured: dict[Setting, Mapping[int, float]] = {
            a: _drift(tables, model, a, "relative") for a in (1.0, 0.25, 0.05)
        }
        return trend(measured, "mean of ‖d̂_k − d_π_k‖/diam d_π_k with α", rising=True)


for _letter, _model in zip("ab", DRIFT_MODELS, strict=True):
    _drift_claims(_model, _letter)


# ---- X: distractors ----


def _of(tables: Tables, method: str, name: str, weight: float = WEIGHT) -> dict[int, float]:
    return tables["distractors"].where(method=method, weight=weight).by_seed(lambda row: number(row, name))


def _better(method: str, than: str, name: str, measure: str, weight: float = WEIGHT) -> Decide:
    def decide(tables: Tables) -> Finding:
        ours, theirs = _of(tables, method, name, weight), _of(tables, than, name)
        return above([ours[s] - theirs[s] for s in sorted(set(ours) & set(theirs))], 0.0, measure)

    return decide


_RETURN = "difference of returns (0: uniform policy, 1: best)"
for _number, _method in enumerate(METRIC_METHODS):
    _letter = "abcde"[_number]
    claim(f"X1{_letter}", f"{_method}: higher return on unseen distractors than without a loss", "distractors")(
        _better(_method, "none", "return", _RETURN)
    )
    claim(f"X2{_letter}", f"{_method}: higher return on unseen distractors than LayerNorm alone", "distractors")(
        _better(_method, "layernorm", "return", _RETURN)
    )
    claim(f"X3{_letter}", f"{_method}: higher return on unseen distractors than self-prediction", "distractors")(
        _better(_method, "self-prediction", "return", _RETURN)
    )
    claim(
        f"X4{_letter}",
        f"{_method}: distances of unseen observations follow d_π better than without a loss",
        "distractors",
    )(_better(_method, "none", "correlation", "difference of correlations with d_π"))


for _number, _method in enumerate(METRIC_METHODS):
    _letter = "abcde"[_number]
    claim(f"X5{_letter}", f"{_method}, a tenth of the weight: higher return than without a loss", "distractors")(
        _better(_method, "none", "return", _RETURN, LIGHT)
    )
    claim(f"X6{_letter}", f"{_method}, a tenth of the weight: distances follow d_π better than without", "distractors")(
        _better(_method, "none", "correlation", "difference of correlations with d_π", LIGHT)
    )


# ---- C: couplings at equal cost ----


def at_equal_cost(table: Table, model: str, seed: int) -> dict[str, float]:
    """The error of each coupling when the one that ended first has ended, in CPU seconds."""
    rows = {str(row.keys["coupling"]): row for row in table.where(model=model, seed=seed)}
    if set(rows) != set(COUPLINGS):
        return {}
    end = min(float(row.arrays["seconds"][-1]) for row in rows.values())
    return {name: float(np.interp(end, row.arrays["seconds"], row.arrays["error"])) for name, row in rows.items()}


def _couplings(tables: Tables, compare: Callable[[dict[str, float]], float]) -> Sequence[float]:
    """For each seed, the geometric mean over models of a ratio."""
    table = tables["couplings"]
    found = []
    for seed in seeds_of(table):
        each = [at_equal_cost(table, str(model), seed) for model in table.values("model")]
        if each and all(each):
            found.append(float(np.exp(np.mean([np.log(max(compare(one), SAFE)) for one in each]))))
    return found


@claim("C1", "At equal cost the exact coupling is closer to d_π than each other", "couplings")
def _categorical(tables: Tables) -> Finding:
    ratio = _couplings(tables, lambda e: e["categorical"] / min(e[name] for name in COUPLINGS[:-1]))
    return below(ratio, 1.0, "its error over the smallest of the others")


@claim("C2", "At equal cost debiased particles are closer than plain ones", "couplings")
def _debiased(tables: Tables) -> Finding:
    return below(_couplings(tables, lambda e: e["debiased"] / e["particles"]), 1.0, "ratio of errors")


@claim("C3", "At equal cost debiased particles are closer than a Gaussian", "couplings")
def _gaussian(tables: Tables) -> Finding:
    return below(_couplings(tables, lambda e: e["debiased"] / e["gaussian"]), 1.0, "ratio of errors")


@claim("C4", "At equal cost the independent coupling is the farthest from d_π", "couplings")
def _independent(tables: Tables) -> Finding:
    ratio = _couplings(tables, lambda e: e["independent"] / max(e[name] for name in COUPLINGS[1:]))
    return above(ratio, 1.0, "its error over the largest of the others")
