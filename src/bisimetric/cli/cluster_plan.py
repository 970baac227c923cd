"""bisimetric cluster-plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from cyclopts import Parameter

from ..metric.settings import MetricSettings
from .inputs import Json
from .models import NO_OPTIONS, Model, ModelOptions, load
from .options import MetricOptions, settings_from
from .words import BadInputError, print_json, print_rows, readable_bytes, readable_seconds

if TYPE_CHECKING:
    from ..cluster.costs import ClusterPlan
    from ..model import MDP, Chain

_NOTHING = MetricOptions()


def cluster_plan(
    model: Model,
    *,
    options: ModelOptions = NO_OPTIONS,
    what: MetricOptions = _NOTHING,
    workers: int,
    threads: int = 1,
    memory: Annotated[float | None, Parameter(help="GB of each worker (default: enough).")] = None,
    size: int | None = None,
    json: Json = False,
) -> int:
    """Say what a metric will cost on a cluster, before anything is started: bytes moved and core-seconds of a sweep.

    Without --size it is the metric of all pairs of states; with it, the distances to a small model, as those that
    `abstract` computes. Core-seconds are those of this machine, from a sample of the pairs.

    Args:
        workers: how many processes work.
        threads: of each of them.
        size: states of the small model.
    """
    import dataclasses

    from ..metric.cluster_plan import cluster_plan as plan_of

    if size is not None and size < 1:
        raise BadInputError("--size must be at least 1.")
    if memory is not None and not 0.0 < memory < np.inf:
        raise BadInputError("--memory must be positive and finite, in GB.")
    settings: MetricSettings = settings_from(MetricSettings, what)
    mdp = load(model, options).mdp
    source = mdp if settings.match else mdp.under(mdp.uniform_policy())
    small = None if size is None else _any_small(source, min(size, source.n_states))
    given = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    limit = None if memory is None else int(1e9 * memory)
    plan = plan_of(source, small, workers=workers, threads=threads, memory=limit, **given)
    if json:
        print_json({"model": model, "workers": workers, **dataclasses.asdict(plan), "core_seconds": plan.core_seconds})
    else:
        print_rows(_rows(plan, source, small, workers))
    return 0


def _any_small(model: Chain | MDP, size: int) -> Chain | MDP:
    """A small model of this size, with the rows of some states: what it means does not matter here."""
    from ..abstraction.proposals import Medoids, small_model
    from ..model.parts import picked

    rng = np.random.default_rng(0)
    states = np.sort(rng.choice(model.n_states, size, replace=False))
    return small_model(model, picked(model, states), Medoids(states, rng.integers(0, size, model.n_states), 0.0))


def _rows(plan: ClusterPlan, model: Chain | MDP, small: Chain | MDP | None, workers: int) -> dict[str, object]:
    first, later, kept = plan.core_seconds
    more = readable_bytes(plan.remembered_bytes)
    moved = "a broadcast: each tile reads nearly all distances" if plan.share > 0.5 else "an exchange among tiles"
    across = model.n_states if small is None else small.n_states
    return {
        "distances": f"{model.n_states} × {across}, in {plan.tiles} tiles",
        "workers": f"{workers}, {plan.threads} threads in all",
        "model": f"{readable_bytes(plan.model_bytes)}, once",
        "read": f"{readable_bytes(plan.read_bytes)} a sweep ({plan.share:.0%} of all by a tile: {moved})",
        "written": f"{readable_bytes(plan.written_bytes)} a sweep, and {more} in a full one",
        "memory": f"{readable_bytes(plan.held_bytes)} for a tile, at most",
        "first sweep": f"{readable_seconds(first)} of a core, {readable_seconds(first / plan.threads)} on all",
        "later ones": f"{readable_seconds(later)} of a core, {readable_seconds(later / plan.threads)} on all",
        "kept plans": f"{readable_seconds(kept)} of a core, {readable_seconds(kept / plan.threads)} on all",
    }
