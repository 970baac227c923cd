"""The fixed point of a bisimulation metric, to an error that is asked for.

Memory: d, the ground cost d^p, and for Sinkhorn the kernel, each S² numbers, plus what the transport keeps per pair,
and iterates that are mixed between sweeps (`evaluation.room_for_iterates`). With `low_memory` d alone and iterates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, Unpack

import numpy as np

from ..backends.protocol import Distances, Sweeper
from ..certificates import Certificate
from ..checks import check_type, merged
from ..kinds import Ints
from ..model import MDP, Chain
from ..reduction import LUMP_TOL, Reduction, lumped
from ..status import Status
from ..transport import Exact, Transport
from .driver import Aim, FixedPoint, Progress, Watch
from .operator import comparison_groups, largest_distance, sweeper_of
from .pace import Pace
from .plan import two_fit
from .settings import MetricChanges, MetricSettings, Question
from .solution import MetricSolution, Restart, fingerprint
from .undiscounted import SOURCE, Undiscounted, certainty_notes, without_rewards


def solve_metric(  # noqa: PLR0913 (settings of a solve, by their names)
    model: Chain | MDP,
    transport: Transport | None = None,
    *,
    settings: MetricSettings | None = None,
    start: MetricSolution | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_checkpoint: Callable[[MetricSolution], None] | None = None,
    checkpoint_every: float = 60.0,
    cluster: object = None,
    store: Path | str | None = None,
    **changes: Unpack[MetricChanges],
) -> MetricSolution:
    """Compute a bisimulation metric to a given error.

    Args:
        model: a `Chain` (π-bisimulation metric) or an `MDP` (needs match="labels" or match="hausdorff").
        transport: `Exact()` (default), `Sinkhorn`, `KLBall` or `Independent`.
        settings: what else to do; by default `MetricSettings()`, which lists all settings.
        start: an earlier solution to start from, also after the policy or the transport changed. It is
            not modified. Without discount (transition_weight=1) it is not used: the way there begins at 1.
        on_progress: called after each sweep; reads only.
        on_checkpoint: called every so many seconds with the solution so far, to save it; reads only.
        checkpoint_every: these seconds.
        cluster: a Client of Dask, or the address of a scheduler, whose workers do the sweeps, tile by tile.
        store: a folder that workers and this process share, with which work that was broken off is gone on with; see
            `compare`.
        changes: settings by name that differ from `settings`, such as match="labels" or tol=1e-3.

    Returns:
        A `MetricSolution`. Ctrl-C ends the solve with status INTERRUPTED and a valid error; before the first sweep,
        when there is nothing to keep, it is raised.
    """
    check_type("model", model, Chain, MDP, words="a Chain or an MDP")
    if start is not None:
        check_type("start", start, MetricSolution)
    given = dict(changes) if transport is None else {**changes, "transport": transport}
    chosen = merged(MetricSettings, settings, given)
    question = chosen.for_model(model, undiscounted=True)
    if isinstance(model, Chain) and question.transition_weight == 1.0:
        if cluster is not None or store is not None:
            raise ValueError("a metric without discount (transition_weight=1) is not for a cluster.")
        watch = Watch(on_progress, None, checkpoint_every)
        return _undiscounted(model, question, chosen.max_sweeps, watch, on_checkpoint)
    notes = metric_notes(model, question)  # refuses labels that do not tell choices apart
    reduction = reduced(model, question, chosen.lump, largest_distance(model, *question.weights))
    if cluster is not None or store is not None:
        if start is not None or on_checkpoint is not None:
            raise ValueError("on a cluster work is gone on with by store=, not by start= or on_checkpoint=.")
        if chosen.low_memory:
            raise ValueError("low_memory is for one machine; on a cluster distances lie in the store. Leave it out.")
        return _on_cluster(chosen, question, reduction, notes, Cluster(cluster, store, on_progress))
    sweeper = sweeper_of(reduction.model, question.of_reduced(reduction.model))
    notes += _spare_memory(sweeper, chosen)
    with sweeper.guard():
        d = _first_distance(sweeper, reduction, start)
        again = start is not None and start.question == question
        pace = start.restart.pace if start is not None and again else Pace()
        aim = Aim(question.tol, reduction.error, question.accuracy)
        work = FixedPoint(sweeper, d, aim, fresh=start is None, accelerate=chosen.accelerate, pace=replace(pace))

        def solution(work: FixedPoint, status: Status) -> MetricSolution:
            restart = Restart(work.d, question, reduction, sweeper, pace=replace(work.pace))
            return _solution(work, status, notes, question, restart)

        def keep(work: FixedPoint) -> None:
            if on_checkpoint is not None:
                on_checkpoint(solution(work, Status.INTERRUPTED))

        watch = Watch(on_progress, None if on_checkpoint is None else keep, checkpoint_every)
        return solution(work, work.run(chosen.max_sweeps, watch))


def _spare_memory(sweeper: Sweeper, chosen: MetricSettings) -> tuple[str, ...]:
    """Let a sweeper hold one array of all pairs where that is wanted, or needed; returns what to say of it."""
    rows, columns = sweeper.comparison.shape
    square_bytes = rows * columns * sweeper.backend.dtype.itemsize
    fits = not sweeper.backend.on_host or two_fit(square_bytes)
    if chosen.low_memory is False or (chosen.low_memory is None and fits):
        return ()
    if sweeper.spare_memory():
        why = "as low_memory asks for" if chosen.low_memory else "as two do not fit"
        return (f"one array of all pairs is held, of {1e-9 * square_bytes:.3g} GB, {why}",)
    if chosen.low_memory:
        raise ValueError(
            f"low_memory is for Exact, and for Independent on sparse rows, on the CPU; {chosen.transport} on "
            f'device="{chosen.device}" needs the costs of all pairs beside the distances. Leave it out.'
        )
    return ()


class Cluster(NamedTuple):
    """Where work is done that is not done here, and who is told of it."""

    cluster: object
    store: Path | str | None
    on_progress: Callable[[Progress], None] | None


def _on_cluster(
    chosen: MetricSettings,
    question: Question,
    reduction: Reduction[Chain | MDP],
    notes: tuple[str, ...],
    where: Cluster,
) -> MetricSolution:
    """The same with sweeps by the workers of a cluster."""
    from . import remote

    aim = Aim(question.tol, reduction.error, question.accuracy)
    with remote.engine_of(question, where.cluster, where.store) as engine:
        sweeper = sweeper_of(reduction.model, question.of_reduced(reduction.model), engine)
        work = remote.fixed_point(sweeper, aim, accelerate=chosen.accelerate, engine=engine)
        status = work.run(chosen.max_sweeps, remote.watch(engine, where.on_progress))
        remote.bring_home(work, question)
    restart = Restart(work.d, question, reduction, work.sweeper, pace=replace(work.pace))
    return _solution(work, status, notes, question, restart)


def _undiscounted(
    model: Chain,
    question: Question,
    max_sweeps: int,
    watch: Watch,
    on_checkpoint: Callable[[MetricSolution], None] | None,
) -> MetricSolution:
    """The metric of a labelled chain without discount (see `undiscounted`)."""
    plain = without_rewards(model)
    reduction = lumped(plain, "labels", question.respected)
    notes = (*_rescaled(model), *certainty_notes(plain, reduction))
    sweeper = sweeper_of(reduction.model, question.of_reduced(reduction.model))
    work = Undiscounted(sweeper, question.tol, int(model.rows.sizes.max()))

    def solution(work: Undiscounted, status: Status) -> MetricSolution:
        return MetricSolution(
            status,
            Certificate(work.error, True, SOURCE),
            work.sweeps,
            work.iterations,
            work.seconds,
            sweeper.solver.remembered_bytes,
            1.0,
            notes,
            question,
            Restart(work.distances(), question, reduction, sweeper),
            work.enclosure(),
        )

    def keep(work: Undiscounted) -> None:
        if on_checkpoint is not None:
            on_checkpoint(solution(work, Status.INTERRUPTED))

    with sweeper.guard():
        status = work.run(max_sweeps, watch, None if on_checkpoint is None else keep)
    return solution(work, status)


def reduced(model: Chain | MDP, question: Question, wanted: bool | None, largest: float) -> Reduction[Chain | MDP]:
    """The model to work on: its bisimulation classes where that is wanted, or exact and far below the tolerance.

    Distances are at most `largest`. The error of the reduction is that of a pair of states, half of it for each.
    """
    transport, c_R, c_T = question.transport, question.reward_weight, question.transition_weight
    if wanted and not isinstance(transport, Exact):
        raise ValueError(f"lump=True is exact for Exact only; {type(transport).__name__} sees how mass is split up.")
    if wanted is False or not isinstance(transport, Exact):
        return Reduction(model)
    rewards = c_R * LUMP_TOL * float(np.abs(model.rewards).max())
    masses = int(model.rows.sizes.max()) * LUMP_TOL
    # Each of two states gives way to the one that stands for its class. Then W_p moves by the range of the distances
    # times the mass that differs, to the power 1/p.
    error = 2.0 * (rewards + c_T * masses ** (1.0 / transport.p) * largest) / (1.0 - c_T)
    if wanted is None and error > 0.01 * question.tol:
        return Reduction(model)
    match: Literal["labels", "hausdorff"] = "hausdorff" if question.match == "hausdorff" else "labels"
    return lumped(model, match, question.of_reduced(model).respected, error)


def metric_notes(model: Chain | MDP, question: Question, times: Ints | None = None) -> tuple[str, ...]:
    """What one should know about the answer; `times` says how many states each one stands for, if not for itself."""
    notes = []
    action_sets, _ = comparison_groups(model, question.match)
    sets = np.unique(action_sets)
    counts = np.bincount(action_sets) if times is None else np.bincount(action_sets, times).astype(np.int64)
    if question.match == "labels" and len(sets) > 1:
        largest = largest_distance(model, question.reward_weight, question.transition_weight)
        pairs = (int(counts.sum()) ** 2 - int((counts**2).sum())) // 2
        notes.append(
            f"states have {len(sets)} different sets of actions; {pairs} pairs of states whose sets differ are put at "
            f"the largest possible distance, {largest:.6g}"
        )
    if model.reward_span == 0.0 and question.reward_weight > 0.0 and not question.respected and len(sets) == 1:
        notes.append("all rewards are equal and no labels are respected, so nothing tells states apart")
    return (*notes, *_rescaled(model))


def _rescaled(model: Chain | MDP) -> tuple[str, ...]:
    if model.rows.moved > 0.0:
        return (f"rows of P were rescaled to sum to 1; their sums were off by up to {model.rows.moved:.3g}",)
    return ()


def _first_distance(sweeper: Sweeper, reduction: Reduction[Chain | MDP], start: MetricSolution | None) -> Distances:
    """0, or a copy of an earlier distance, with what was remembered of its pairs handed to the sweeper."""
    engine = sweeper.backend
    if start is None:
        return engine.zeros(sweeper.comparison.shape)
    source = start.restart
    if source.n_states != reduction.n_states:
        raise ValueError(
            f"start: the earlier solution has {source.n_states} states, the model has {reduction.n_states}."
        )
    same = source.has_model and source.reduction == reduction
    d = engine.distances(source.distance if same else reduction.restrict(source.of_states()))
    if not sweeper.solver.with_diagonal:
        d.clear_diagonal()  # else the first sweep would see a diagonal that it does not report
    if sweeper.remember:
        if source.has_model:
            if same:
                sweeper.solver.take_from(source.sweeper.solver)
        elif source.kept_arrays() and source.fingerprint == fingerprint(sweeper):
            sweeper.solver.recall(source.kept_arrays())
    return d


def _solution(
    work: FixedPoint, status: Status, notes: tuple[str, ...], question: Question, restart: Restart
) -> MetricSolution:
    """What a solve gives, as it is now."""
    transport = question.transport
    return MetricSolution(
        status,
        Certificate(work.error, transport.axioms.nonexpansive, transport.guarantee),
        work.sweeps,
        work.iterations,
        work.seconds,
        work.sweeper.solver.remembered_bytes,
        work.sweeper.comparison.largest,
        notes,
        question,
        restart,
    )
