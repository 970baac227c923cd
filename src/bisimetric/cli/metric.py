"""bisimetric metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..metric.settings import MetricSettings
from .bars import SweepBar
from .clusters import HERE, ClusterOptions
from .inputs import Json, check_output, load_policy
from .models import NO_OPTIONS, Loaded, Model, ModelOptions, given_options, load
from .options import MetricOptions, settings_from
from .words import BadInputError, print_json, print_rows, say

if TYPE_CHECKING:
    from ..kinds import Array, Facts
    from ..metric.settings import Question
    from ..metric.solution import MetricSolution
    from ..model import MDP, Chain
    from ..status import Status

_NOTHING = MetricOptions()


def metric(  # noqa: PLR0913 (options of a command)
    model: Model,
    *,
    options: ModelOptions = NO_OPTIONS,
    what: MetricOptions = _NOTHING,
    on: ClusterOptions = HERE,
    policy: str | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    checkpoint_every: float = 60.0,
    json: Json = False,
) -> int:
    """Compute a bisimulation metric.

    Give --policy for the metric of a policy, or --match for the metric of the MDP itself. Without either, the
    metric of the uniform policy is computed. With --output the work is kept now and then in a checkpoint beside it,
    and after Ctrl-C; the same command with --resume goes on from there: from such a checkpoint to the same result,
    after Ctrl-C to the same error. On a cluster the same command goes on from its --store.

    Args:
        policy: "uniform", or a file with one probability per choice or one action per state (.npy, .npz entry
            "policy", .csv, .txt).
        output: write distance, error and settings to this .npz file.
        resume: go on from the checkpoint of --output.
        checkpoint_every: seconds between checkpoints.
    """
    from ..metric.plan import check_fits
    from ..metric.solution import MetricSolution
    from ..metric.solve import solve_metric

    settings: MetricSettings = settings_from(MetricSettings, what)
    if policy is not None and settings.match is not None:
        raise BadInputError("give --policy (metric of a policy) or --match (metric of the MDP), not both.")
    where = on.where
    if resume and on.cluster is not None:
        raise BadInputError("on a cluster the same command goes on from its --store; leave out --resume.")
    if resume and output is None:
        raise BadInputError("--resume needs the --output that it goes on with.")
    if not checkpoint_every >= 0.0:
        raise BadInputError(f"--checkpoint-every must be a number of seconds, at least 0; got {checkpoint_every}.")
    if output is not None:
        check_output(output, model, policy, ending=".npz")
    loaded = load(model, options)
    subject: MDP | Chain = loaded.mdp
    if settings.match is None:
        subject = loaded.mdp.under(load_policy(policy or "uniform", loaded.mdp))
    if on.cluster is None:
        check_fits(subject, settings)
    saved = None if output is None or on.cluster is not None else _checkpoint_of(output)
    start = MetricSolution.load(saved) if resume and saved is not None and saved.exists() else None
    if resume and start is None:
        raise BadInputError(f"{saved}: no checkpoint to resume from.")
    if start is not None:
        _refuse_another_question(start, settings.for_model(subject, undiscounted=True), saved)

    def keep(solution: MetricSolution) -> None:
        assert saved is not None
        solution.save(saved, restart=True)

    with SweepBar(json) as bar:
        solution = solve_metric(
            subject,
            settings=settings,
            start=start,
            on_progress=bar,
            checkpoint_every=checkpoint_every,
            on_checkpoint=keep if saved is not None else None,
            **where,
        )
    before = start.sweeps if start is not None else 0
    asked_of = {"model": model, "policy": policy or "uniform", **given_options(options)}
    to_go_on = "" if saved is None else f"go on with the same command and --resume ({saved})"
    if on.store is not None:
        to_go_on = f"go on with the same command ({on.store})"
    elif saved is None and output is not None:
        to_go_on = f"what was done is in {output}"
    return _report(solution, loaded, asked_of, policy, output, (saved, to_go_on), before, json)


def _refuse_another_question(start: MetricSolution, asked: Question, saved: Path | None) -> None:
    """Refuse to go on from a checkpoint of another metric; a finer one, or another engine, is the same metric."""
    for name in ("transport", "match", "reward_weight", "transition_weight", "reward", "gamma", "respected"):
        then, now = getattr(start.question, name), getattr(asked, name)
        if then != now:
            raise BadInputError(
                f"{saved}: was begun with {name} {then}, and this is {now}; give the same options, or no --resume."
            )


def _checkpoint_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.checkpoint")


def _report(
    solution: MetricSolution,
    loaded: Loaded,
    asked_of: Facts,
    policy: str | None,
    output: Path | None,
    kept: tuple[Path | None, str],
    before: int,
    json: bool,
) -> int:
    from ..status import Status

    interrupted, (saved, to_go_on) = solution.status is Status.INTERRUPTED, kept
    if saved is not None and not solution.converged:  # what can be gone on from is kept beside the answer so far
        solution.save(saved, restart=True)
    if output is not None:
        solution.save(output, restart=False, **_extra(loaded, asked_of))
    if saved is not None and solution.converged:
        saved.unlink(missing_ok=True)
    asked = solution.question
    d = solution.distance
    facts = {
        "model": asked_of["model"],
        **asked.describe(),
        **loaded.facts(),
        "policy": policy if asked.match == "chain" else None,
        "states": len(d),
        "status": solution.status.name,
        "error": solution.error,
        "rigorous": solution.certificate.rigorous,
        "source": solution.certificate.source,
        "sweeps": before + solution.sweeps,
        "seconds": solution.seconds,
        "largest_distance": float(d.max()),
        "largest_possible": solution.largest,
        "notes": list(solution.notes),
        "output": None if output is None else str(output),
    }
    if json:
        print_json(facts)
    else:
        what = {"chain": f"policy {policy or 'uniform'}", "labels": "actions by label", "hausdorff": "choices as sets"}
        rows = {
            "states": len(d),
            "metric": f"{asked.transport}, {what[asked.match]}",
            "reward": loaded.reward or "none",
            "discount": f"{asked.gamma:g}, c_R = {asked.reward_weight:g}, c_T = {asked.transition_weight:g}",
            "labels": ", ".join(asked.respected) or "none respected",
            "distances": f"up to {d.max():.6g} (largest possible {solution.largest:.6g})",
            "error": str(solution.certificate),
            "work": f"{before + solution.sweeps} sweeps, {solution.seconds:.2f} s",
            "status": "; ".join(
                filter(None, (solution.status.value, _advice(solution.status, resumable=saved is not None)))
            ),
        }
        for k, note in enumerate(solution.notes):
            rows[f"note{k + 1 if len(solution.notes) > 1 else ''}"] = note
        if output is not None:
            rows["written"] = str(output)
        print_rows(rows)
    if interrupted:
        say(f"bisimetric: interrupted; {to_go_on or 'nothing was written'}")
    return 0 if solution.converged else 130 if interrupted else 1


def _advice(status: Status, *, resumable: bool) -> str:
    """What to do, without --resume where there is nothing to resume."""
    ways = status.command.split(", or ")
    return ", or ".join(way for way in ways if resumable or "--resume" not in way)


def _extra(loaded: Loaded, asked_of: Facts) -> dict[str, Array]:
    """What is known of the states, beside the distances, and which model they are of."""
    import json

    import numpy as np

    extra: dict[str, Array] = {"asked_of": np.array(json.dumps(asked_of), dtype=str)}
    if loaded.mdp.state_names is not None:
        extra["state_names"] = np.array(loaded.mdp.state_names, dtype=str)
    if loaded.mdp.classes is not None:
        extra["classes"] = loaded.mdp.classes
    return extra
