"""bisimetric compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..metric.settings import MetricSettings
from .bars import SweepBar
from .clusters import HERE, ClusterOptions
from .inputs import Json, check_output
from .models import NO_OPTIONS, Loaded, Model, ModelOptions, load
from .options import MetricOptions, settings_from
from .words import print_json, print_rows, say

if TYPE_CHECKING:
    from ..kinds import Facts
    from ..metric.compare import CrossMetric

_NOTHING = MetricOptions()


def compare(
    model: Model,
    other: Model,
    *,
    options: ModelOptions = NO_OPTIONS,
    what: MetricOptions = _NOTHING,
    on: ClusterOptions = HERE,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Compare the states of two models.

    Give --match for the distances of the MDPs themselves; without it, those of the chains of their uniform policies are
    computed. Where both models have states labelled "init", their initial states are compared too.

    Args:
        output: write distances, their error and each state's nearest counterpart to this .npz file.
    """
    from ..metric.compare import compare as compared

    settings: MetricSettings = settings_from(MetricSettings, what)
    where = on.where
    if output is not None:
        check_output(output, model, other, ending=".npz")
    both = [load(spec, options) for spec in (model, other)]
    sides = [one.mdp if settings.match else one.mdp.under(one.mdp.uniform_policy()) for one in both]
    with SweepBar(json) as bar:
        found = compared(sides[0], sides[1], settings=settings, on_progress=bar, **where)
    initial = found.between() if all(side.state_labels.get("init") is not None for side in sides) else None
    if output is not None:
        _write(found, output)
    facts = _facts(found, model, other, initial, output)
    if json:
        print_json(facts)
    else:
        print_rows(_rows(found, both, initial, output))
    if found.status.name == "INTERRUPTED":
        say("bisimetric: interrupted; the distances so far are within the error above")
        return 130
    return 0 if found.converged else 1


def _write(found: CrossMetric, output: Path) -> None:
    from ..archives import save_arrays

    lower, upper = found.bracket()
    arrays = {
        "distance": found.distance,
        "error": found.error,
        "nearest": found.nearest(),
        "lower": lower,
        "upper": upper,
    }
    save_arrays(output, {"format": "bisimetric-comparison", "version": 1, **arrays})


def _facts(
    found: CrossMetric, model: str, other: str, initial: tuple[float, float] | None, output: Path | None
) -> Facts:
    d = found.distance
    return {
        "model": model,
        "other": other,
        **found.question.describe(),
        "states": list(d.shape),
        "status": found.status.name,
        "error": found.error,
        "rigorous": found.certificate.rigorous,
        "source": found.certificate.source,
        "sweeps": found.sweeps,
        "seconds": found.seconds,
        "initial": None if initial is None else initial[0],
        "initial_error": None if initial is None else initial[1],
        "smallest_distance": float(d.min()),
        "largest_distance": float(d.max()),
        "farthest_from_nearest": float(d.min(axis=1).max()),
        "largest_possible": found.largest,
        "notes": list(found.notes),
        "output": None if output is None else str(output),
    }


def _rows(
    found: CrossMetric, both: list[Loaded], initial: tuple[float, float] | None, output: Path | None
) -> dict[str, object]:
    d, asked = found.distance, found.question
    nearest = d.min(axis=1)
    what = {"chain": "uniform policies", "labels": "actions by label", "hausdorff": "choices as sets"}[asked.match]
    farthest = int(nearest.argmax())
    rows: dict[str, object] = {
        "states": f"{d.shape[0]} and {d.shape[1]}",
        "metric": f"{asked.transport}, {what}",
        "reward": f"{both[0].reward or 'none'}, {both[1].reward or 'none'}",
        "discount": f"{asked.gamma:g}, c_R = {asked.reward_weight:g}, c_T = {asked.transition_weight:g}",
        "labels": ", ".join(asked.respected) or "none respected",
        "distances": f"{d.min():.6g} to {d.max():.6g} (largest possible {found.largest:.6g})",
        "nearest": f"every state has one within {nearest.max():.6g} (farthest: {both[0].mdp.name_of(farthest)})",
        "error": str(found.certificate),
        "work": f"{found.sweeps} sweeps, {found.seconds:.2f} s",
        "status": found.status.value + (f"; {found.status.command}" if found.status.command else ""),
    }
    if initial is not None:
        rows["initial states"] = f"{initial[0]:.6g} apart, within {initial[1]:.2g}"
    for k, note in enumerate(found.notes):
        rows[f"note{k + 1 if len(found.notes) > 1 else ''}"] = note
    if output is not None:
        rows["written"] = str(output)
    return rows
