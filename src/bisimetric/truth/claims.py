"""What the truth table and its experiments are asked, and the rules that decide. Written before results were looked at.

Numbers are measured for each seed; `paper.evidence` has the rules. Errors are parts of the diameter of the certified
metric d_π, unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..kinds import Floats
from ..paper.claims import Claim, Decision
from ..paper.evidence import Finding, Verdict, above, below, interval, share, trend
from ..paper.table import Row, Setting, Table
from .settings import COUPLINGS, DRIFT_MODELS, LIGHT, LOSSES, METRIC_METHODS, WEIGHT

Tables = Mapping[str, Table]
Decide = Callable[[Tables], Finding]

SETTLING = 0.25  # part of the policies of a run that is left out, while learning begins from nothing
CEILING = 0.1 * np.pi  # of MICo's head at its published β
PUBLISHED_DBC = (0.35, 0.43)  # correlations with d_π that were seen before
REACHED = 0.05  # a loss has reached its own fixed point
SAFE = 1e-12

CLAIMS: list[Claim] = []
_DECIDE: dict[str, Decide] = {}


def _claim(name: str, text: str, figure: str) -> Callable[[Decide], Decide]:
    def register(decide: Decide) -> Decide:
        CLAIMS.append(Claim(name, text, (figure,), lambda tables, _: decide(tables), {}))
        _DECIDE[name] = decide
        return decide

    return register


def decide_all(tables: Tables) -> list[Decision]:
    """Decide every claim; those whose figure has no results are undecided."""
    decisions = []
    for one in CLAIMS:
        there = all(name in tables and len(tables[name]) for name in one.figures)
        finding = _DECIDE[one.name](tables) if there else Finding.absent(f"no results of {', '.join(one.figures)}")
        decisions.append(Decision(one, finding, {}))
    return decisions


def per_seed(table: Table, measure: Callable[[Table], float]) -> dict[int, float]:
    """A number for the rows of each seed together."""
    seeds = sorted({row.seed for row in table})
    return {seed: measure(table.where(seed=float(seed))) for seed in seeds}


def number(row: Row, name: str) -> float:
    return float(row.arrays[name].reshape(-1)[0])


def _median(table: Table, name: str) -> float:
    return float(np.median([number(row, name) for row in table])) if len(table) else float("nan")


def _exact(tables: Tables, loss: str, encoder: str = "table") -> Table:
    return tables["table"].where(loss=loss, encoder=encoder, data="exact")


# ---- T: the truth table ----


def _reaches(loss: str) -> Decide:
    def decide(tables: Tables) -> Finding:
        rows = _exact(tables, loss)
        flags = {seed: [number(r, "own_error") <= REACHED for r in rows.where(seed=seed)] for seed in _seeds(rows)}
        return share(flags, f"models on which the error to the loss's own fixed point is at most {REACHED:g}")

    return decide


def _seeds(table: Table) -> list[int]:
    return sorted({row.seed for row in table})


for _number, _loss in enumerate(LOSSES):
    _claim(
        f"T1{'abcdef'[_number]}",
        f"{_loss}, an embedding for each state, exact model: learning reaches the loss's own fixed point",
        "table",
    )(_reaches(_loss))


def _blame(loss: str) -> Decide:
    def decide(tables: Tables) -> Finding:
        rows = _exact(tables, loss)
        ratio = per_seed(rows, lambda t: _median(t, "bias") / max(_median(t, "own_error"), SAFE))
        return above(ratio.values(), 1.0, "error of the fixed point, over error of learning (medians over models)")

    return decide


for _number, _loss in enumerate(LOSSES[1:]):
    _claim(
        f"T2{'abcde'[_number]}",
        f"{_loss}: what the loss converges to is farther from d_π than learning is from that",
        "table",
    )(_blame(_loss))


@_claim("T3", "Norm(1) with exact transport is within 5 % of the diameter of d_π (median over models)", "table")
def _norm(tables: Tables) -> Finding:
    errors = per_seed(_exact(tables, "norm"), lambda t: _median(t, "true_error"))
    return below(errors.values(), 0.05, "error to d_π")


@_claim("T4", "No published loss is within 10 % of d_π (best of them, median over models, exact model)", "table")
def _published(tables: Tables) -> Finding:
    rows = tables["table"].where(encoder="table", data="exact", loss=lambda name: name != "norm")

    def best(part: Table) -> float:
        return min(_median(part.where(loss=loss), "true_error") for loss in part.values("loss"))

    return above(per_seed(rows, best).values(), 0.1, "smallest error to d_π of a published loss")


@_claim("T5", "MICo's distance at β = 0.1 never exceeds 0.314", "table")
def _ceiling(tables: Tables) -> Finding:
    rows = tables["table"].where(loss="mico")
    flags = {seed: [number(r, "largest") <= CEILING + 1e-6 for r in rows.where(seed=seed)] for seed in _seeds(rows)}
    return share(flags, "cells whose largest distance is at most 0.1 π")


@_claim("T6", "DBC as published correlates 0.35 to 0.43 with d_π on Garnet models", "table")
def _dbc(tables: Tables) -> Finding:
    rows = _exact(tables, "dbc-published").where(model="garnet")
    values = per_seed(rows, lambda t: _median(t, "correlation"))
    mean, low, high = interval(list(values.values()))
    least, most = PUBLISHED_DBC
    outside = high < least or low > most
    verdict = Verdict.HOLDS if least <= mean <= most else Verdict.FAILS if outside else Verdict.UNDECIDED
    rule = "mean between 0.35 and 0.43; fails where the whole interval is outside"
    return Finding(verdict, mean, low, high, "correlation with d_π", rule, len(values))


@_claim("T7", "No cosine embedding comes nearer to its equation's solution than half of the largest value", "table")
def _cosine(tables: Tables) -> Finding:
    rows = _exact(tables, "simsr").where(model="garnet")
    part = per_seed(rows, lambda t: _median(t, "gap") / _median(t, "solution"))
    return above(
        part.values(), 0.5, "least error of any embedding, over the largest value (1.73/2.34 = 0.74 seen before)"
    )


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
    @_claim(f"D1{letter}", f"{model}: the learned metric is closer to that of its policy, the smaller α is", "drift")
    def _(tables: Tables) -> Finding:
        measured: dict[Setting, Mapping[int, float]] = {a: _drift(tables, model, a) for a in (1.0, 0.25, 0.05)}
        return trend(measured, "mean of ‖d̂_k − d_π_k‖ over policies with α", rising=True)

    @_claim(f"D2{letter}", f"{model}: with α = 1/4 it is closer than with α = 1", "drift")
    def _(tables: Tables) -> Finding:
        ratio = _ratio(_drift(tables, model, 0.25), _drift(tables, model, 1.0))
        return below(ratio, 1.0, "error at α = 1/4, over that at 1")

    @_claim(f"D3{letter}", f"{model}: with α = 0.05 the error is less than half of that with α = 1", "drift")
    def _(tables: Tables) -> Finding:
        ratio = _ratio(_drift(tables, model, 0.05), _drift(tables, model, 1.0))
        return below(ratio, 0.5, "error at α = 0.05, over that at 1")

    @_claim(f"D4{letter}", f"{model}: with α = 0.05 it is within 1.5 times the error for a policy that stays", "drift")
    def _(tables: Tables) -> Finding:
        ratio = _ratio(_drift(tables, model, 0.05), _drift(tables, model, 0.0))
        return below(ratio, 1.5, "error at α = 0.05, over that of a policy that stays")

    @_claim(f"D5{letter}", f"{model}: the true metric moves less from policy to policy, the smaller α is", "drift")
    def _(tables: Tables) -> Finding:
        measured: dict[Setting, Mapping[int, float]] = {a: _drift(tables, model, a, "moved") for a in (1.0, 0.25, 0.05)}
        return trend(measured, "mean of ‖d_π_k+1 − d_π_k‖ with α", rising=True)

    @_claim(f"D6{letter}", f"{model}: D1 with errors in diameters of the metric of the policy itself", "drift")
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
    _claim(f"X1{_letter}", f"{_method}: higher return on unseen distractors than without a loss", "distractors")(
        _better(_method, "none", "return", _RETURN)
    )
    _claim(f"X2{_letter}", f"{_method}: higher return on unseen distractors than LayerNorm alone", "distractors")(
        _better(_method, "layernorm", "return", _RETURN)
    )
    _claim(f"X3{_letter}", f"{_method}: higher return on unseen distractors than self-prediction", "distractors")(
        _better(_method, "self-prediction", "return", _RETURN)
    )
    _claim(
        f"X4{_letter}",
        f"{_method}: distances of unseen observations follow d_π better than without a loss",
        "distractors",
    )(_better(_method, "none", "correlation", "difference of correlations with d_π"))


for _number, _method in enumerate(METRIC_METHODS):
    _letter = "abcde"[_number]
    _claim(f"X5{_letter}", f"{_method}, a tenth of the weight: higher return than without a loss", "distractors")(
        _better(_method, "none", "return", _RETURN, LIGHT)
    )
    _claim(
        f"X6{_letter}", f"{_method}, a tenth of the weight: distances follow d_π better than without", "distractors"
    )(_better(_method, "none", "correlation", "difference of correlations with d_π", LIGHT))


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
    for seed in _seeds(table):
        each = [at_equal_cost(table, str(model), seed) for model in table.values("model")]
        if each and all(each):
            found.append(float(np.exp(np.mean([np.log(max(compare(one), SAFE)) for one in each]))))
    return found


@_claim("C1", "At equal cost the exact coupling is closer to d_π than each other", "couplings")
def _categorical(tables: Tables) -> Finding:
    ratio = _couplings(tables, lambda e: e["categorical"] / min(e[name] for name in COUPLINGS[:-1]))
    return below(ratio, 1.0, "its error over the smallest of the others")


@_claim("C2", "At equal cost debiased particles are closer than plain ones", "couplings")
def _debiased(tables: Tables) -> Finding:
    return below(_couplings(tables, lambda e: e["debiased"] / e["particles"]), 1.0, "ratio of errors")


@_claim("C3", "At equal cost debiased particles are closer than a Gaussian", "couplings")
def _gaussian(tables: Tables) -> Finding:
    return below(_couplings(tables, lambda e: e["debiased"] / e["gaussian"]), 1.0, "ratio of errors")


@_claim("C4", "At equal cost the independent coupling is the farthest from d_π", "couplings")
def _independent(tables: Tables) -> Finding:
    ratio = _couplings(tables, lambda e: e["independent"] / max(e[name] for name in COUPLINGS[1:]))
    return above(ratio, 1.0, "its error over the largest of the others")
