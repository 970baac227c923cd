"""bisimetric info and bench."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .inputs import Json
from .models import NO_OPTIONS, Loaded, Model, ModelOptions, load
from .words import print_json, print_rows, readable_bytes, readable_seconds

if TYPE_CHECKING:
    from ..kinds import Facts
    from ..metric.plan import Plan
    from ..model import MDP

_SHOWN = 12


def info(model: Model, *, options: ModelOptions = NO_OPTIONS, json: Json = False) -> int:
    """Describe a model: sizes, rewards, labels, actions, and what a metric would cost in time and memory."""
    from ..metric.plan import plan
    from ..transport import Exact

    loaded = load(model, options, whole=True, discount=False)
    mdp = loaded.mdp
    sizes, counts = mdp.rows.sizes, mdp.choice_ptr[1:] - mdp.choice_ptr[:-1]
    cost = plan(mdp, Exact(), loaded.gamma)
    facts: Facts = {
        "model": model,
        "states": mdp.n_states,
        "choices": mdp.n_choices,
        "choices_per_state": [int(counts.min()), int(counts.max())],
        "transitions": int(mdp.rows.probs.size),
        "successors_per_choice": [int(sizes.min()), round(float(sizes.mean()), 3), int(sizes.max())],
        "single_successor_choices": int((sizes == 1).sum()),
        **loaded.facts(),
        "reward_models": list(mdp.reward_models),
        "reward_range": list(mdp.reward_range),
        "reward_span": mdp.reward_span,
        "labels": {name: int(holds.sum()) for name, holds in mdp.state_labels.items()},
        "actions": list(mdp.action_labels[:_SHOWN]),
        "action_count": len(mdp.action_labels),
        "known_classes": None if mdp.classes is None else len(set(mdp.classes.tolist())),
        "rows_rescaled_by": mdp.rows.moved,
        "pairs": cost.pairs,
        "metric_bytes": cost.fixed_bytes,
        "metric_bytes_low_memory": cost.least_bytes,
        "kept_bytes_uniform_policy": cost.kept_bytes,
        "memory_bytes": cost.available_bytes,
        "seconds_a_cold_sweep_uniform_policy": cost.seconds_a_sweep,
        "sweeps": cost.sweeps,
        "seconds": cost.seconds,
    }
    if json:
        print_json(facts)
        return 0
    print_rows(_rows(loaded, mdp, cost))
    return 0


def _listed(names: list[str]) -> str:
    return (", ".join(names[:_SHOWN]) + (f", … ({len(names)} in all)" if len(names) > _SHOWN else "")) or "none"


def _rows(loaded: Loaded, mdp: MDP, cost: Plan) -> Facts:
    sizes, counts = mdp.rows.sizes, mdp.choice_ptr[1:] - mdp.choice_ptr[:-1]
    chosen = loaded.reward or ("none chosen" if len(mdp.reward_models) > 1 else "none")
    rows: Facts = {
        "states": mdp.n_states,
        "choices": f"{mdp.n_choices} ({counts.min()} to {counts.max()} a state)",
        "actions": _listed(list(mdp.action_labels)),
        "transitions": mdp.rows.probs.size,
        "successors": f"{sizes.min()} to {sizes.max()} a choice, {sizes.mean():.3g} on average",
        "reward models": _listed(list(mdp.reward_models)),
        "reward": f"{chosen}, from {mdp.reward_range[0]:g} to {mdp.reward_range[1]:g} (span {mdp.reward_span:g})",
        "labels": _listed([f"{name} ({int(holds.sum())})" for name, holds in mdp.state_labels.items()]),
        "discount": "none in the file; give --gamma" if loaded.gamma is None else f"{loaded.gamma:g}",
    }
    if mdp.classes is not None:
        rows["known classes"] = len(set(mdp.classes.tolist()))
    fits = "" if cost.fits else f", which does not fit into {readable_bytes(cost.available_bytes)}: {cost.remedy}"
    least = f"{readable_bytes(cost.least_bytes)} with --low-memory, float32 takes half"
    rows["a metric"] = (
        f"{cost.pairs} pairs of states (uniform policy, exact); {readable_bytes(cost.fixed_bytes)} for distances and "
        f"costs ({least}), up to {readable_bytes(cost.kept_bytes)} kept (none with --no-remember){fits}"
    )
    if cost.seconds_a_sweep is not None:
        whole = (
            ""
            if cost.seconds is None
            else (
                f"; at most {readable_seconds(cost.seconds)} for {cost.sweeps} sweeps, to 1e-6 of the largest distance"
            )
        )
        rows["its time"] = f"about {readable_seconds(cost.seconds_a_sweep)} for a first sweep on this machine{whole}"
    return rows


def bench(*, quick: Annotated[bool, Parameter(negative="")] = False, json: Json = False) -> int:
    """Measure the kernels on this machine, after checking their results against the reference.

    Args:
        quick: smaller problems.
    """
    from ..bench import run_benchmarks

    rows, correct = run_benchmarks(quick=quick)
    if json:
        print_json({"correct": correct, "rows": rows})
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(
            "work", "states", "sweeps", "seconds", "µs a pair and sweep", "kept MiB", title="bisimetric bench"
        )
        for row in rows:
            table.add_row(
                row["work"],
                str(row["states"]),
                str(row["sweeps"]),
                f"{row['seconds']:.3f}",
                f"{row['us_per_pair']:.3f}",
                f"{row['kept_mib']:.1f}",
            )
        Console().print(table)
        print("results agree with the reference" if correct else "results DO NOT agree with the reference")
    return 0 if correct else 1
