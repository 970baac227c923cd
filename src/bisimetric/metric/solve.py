"""The fixed point of a bisimulation metric, to an error that is asked for.

Where the transport is non-expansive in d, F is a c_T-contraction and has one fixed point d~. Let d' be one computed
sweep from d, ρ = ‖d' − d‖∞, and let e bound the error of a computed transport. Then

    ‖d' − d~‖∞ ≤ c_T (ρ + e) / (1 − c_T).

This is the stopping rule: `tol` is an error on the answer, and sweeps go on until the right side (with what rounding
and lumping may add) is at most tol.

Memory: d, the ground cost d^p, and for Sinkhorn the kernel, each S² numbers, plus what the transport keeps per pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from ..backends.protocol import Distances, Sweep, Sweeper
from ..certificates import Certificate
from ..checks import check_type, merged
from ..model import MDP, Chain
from ..reduction import LUMP_TOL, Reduction, lumped
from ..status import Status
from ..transport import Exact, Transport
from .acceleration import acceleration_of
from .operator import comparison_groups, largest_distance, sweeper_of
from .settings import MetricChanges, MetricSettings, Question
from .solution import MetricSolution, Progress, Restart, fingerprint


def solve_metric(
    model: Chain | MDP,
    transport: Transport | None = None,
    *,
    settings: MetricSettings | None = None,
    start: MetricSolution | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_checkpoint: Callable[[MetricSolution], None] | None = None,
    checkpoint_every: float = 60.0,
    **changes: Unpack[MetricChanges],
) -> MetricSolution:
    """Compute a bisimulation metric to a given error.

    Args:
        model: a `Chain` (π-bisimulation metric) or an `MDP` (needs match="labels" or match="hausdorff").
        transport: `Exact()` (default), `Sinkhorn`, `KLBall` or `Independent`.
        settings: what else to do; by default `MetricSettings()`, which lists all settings.
        start: an earlier solution to start from, also after the policy or the transport changed. It is
            not modified.
        on_progress: called after each sweep; reads only.
        on_checkpoint: called every so many seconds with the solution so far, to save it; reads only.
        checkpoint_every: these seconds.
        changes: settings by name that differ from `settings`, such as match="labels" or tol=1e-3.

    Returns:
        A `MetricSolution`. Ctrl-C ends the solve with status INTERRUPTED and a valid error.
    """
    check_type("model", model, Chain, MDP, words="a Chain or an MDP")
    if start is not None:
        check_type("start", start, MetricSolution)
    given = dict(changes) if transport is None else {**changes, "transport": transport}
    chosen = merged(MetricSettings, settings, given)
    question = chosen.for_model(model)
    notes = _notes(model, question)  # refuses labels that do not tell choices apart
    reduction = _reduced(model, question, chosen.lump)
    sweeper = sweeper_of(reduction.model, question.of_reduced(reduction.model))
    with sweeper.guard():
        work = _Work(sweeper, question, reduction, start, notes, chosen.accelerate)
        return work.run(chosen.max_sweeps, on_progress, on_checkpoint, checkpoint_every)


def _reduced(model: Chain | MDP, question: Question, wanted: bool | None) -> Reduction[Chain | MDP]:
    """The model to work on: its bisimulation classes where that is wanted, or exact and far below the tolerance."""
    transport, c_R, c_T = question.transport, question.reward_weight, question.transition_weight
    if wanted and not isinstance(transport, Exact):
        raise ValueError(f"lump=True is exact for Exact only; {type(transport).__name__} sees how mass is split up.")
    if wanted is False or not isinstance(transport, Exact):
        return Reduction(model)
    rewards = c_R * LUMP_TOL * float(np.abs(model.rewards).max())
    masses = int(model.rows.sizes.max()) * LUMP_TOL
    # Each of two states gives way to the one that stands for its class. Then W_p moves by the range of the distances
    # times the mass that differs, to the power 1/p.
    largest = largest_distance(model, c_R, c_T)
    error = 2.0 * (rewards + c_T * masses ** (1.0 / transport.p) * largest) / (1.0 - c_T)
    if wanted is None and error > 0.01 * question.tol:
        return Reduction(model)
    return lumped(model, "hausdorff" if question.match == "hausdorff" else "labels", question.respected, error)


def _notes(model: Chain | MDP, question: Question) -> tuple[str, ...]:
    """What one should know about the answer."""
    notes = []
    action_sets, _ = comparison_groups(model, question.match)
    sets, counts = np.unique(action_sets, return_counts=True)
    if question.match == "labels" and len(sets) > 1:
        largest = largest_distance(model, question.reward_weight, question.transition_weight)
        pairs = (model.n_states**2 - int((counts**2).sum())) // 2
        notes.append(
            f"states have {len(sets)} different sets of actions; {pairs} pairs of states whose sets differ are put at "
            f"the largest possible distance, {largest:.6g}"
        )
    if model.reward_span == 0.0 and question.reward_weight > 0.0 and not question.respected and len(sets) == 1:
        notes.append("all rewards are equal and no labels are respected, so nothing tells states apart")
    if model.rows.moved > 0.0:
        notes.append(f"rows of P were rescaled to sum to 1; their sums were off by up to {model.rows.moved:.3g}")
    return tuple(notes)


def _first_distance(sweeper: Sweeper, reduction: Reduction[Any], start: MetricSolution | None) -> Distances:
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


class _Work:
    """A solve under way: the distances, and what is known of their error."""

    def __init__(
        self,
        sweeper: Sweeper,
        question: Question,
        reduction: Reduction[Any],
        start: MetricSolution | None,
        notes: tuple[str, ...],
        accelerate: bool,
    ) -> None:
        self.sweeper, self.question, self.reduction, self.notes = sweeper, question, reduction, notes
        self.d = _first_distance(sweeper, reduction, start)
        self.largest = sweeper.comparison.largest
        self.error = max(self.largest, self.d.largest())  # ‖d − d~‖∞ before the first sweep
        self.sweeps, self.iterations, self.began = 0, 0, time.perf_counter()
        self.acceleration, self.d_was_zero = acceleration_of(sweeper, accelerate), start is None

    def run(
        self,
        max_sweeps: int,
        on_progress: Callable[[Progress], None] | None,
        on_checkpoint: Callable[[MetricSolution], None] | None,
        checkpoint_every: float,
    ) -> MetricSolution:
        """Sweep until the error is small enough, or something else ends it."""
        sweeper, tol, c_T = self.sweeper, self.question.tol, self.question.transition_weight
        accuracy = self.question.accuracy
        status, best_change, stuck, saved = Status.SWEEP_LIMIT, np.inf, 0, time.perf_counter()
        try:
            while self.sweeps < max_sweeps:
                report = sweeper.sweep(self.d, accuracy)
                self.sweeps, self.iterations = self.sweeps + 1, self.iterations + report.iterations
                step_error = c_T * (report.change + report.transport_error) + report.rounding
                self.error = step_error / (1.0 - c_T) + self.reduction.error
                now = time.perf_counter()
                if on_progress is not None:
                    on_progress(Progress(self.sweeps, self.error, tol, report.change, now - self.began))
                if self.error <= tol:
                    status = Status.CONVERGED
                    break
                # No progress over several sweeps: what is left is round-off or unfinished transports.
                stuck = stuck + 1 if report.change >= 0.999 * best_change else 0
                best_change = min(best_change, report.change)
                if stuck >= 3 and report.change <= report.transport_error + 4.0 * report.rounding:
                    limited = sweeper.transport.iterative and report.transport_error > max(accuracy, report.rounding)
                    status = Status.TRANSPORT_LIMIT if limited else Status.ROUNDING
                    break
                if self.sweeps < max_sweeps:  # the last one is that of the certificate
                    self._accelerate(report)
                due = time.perf_counter() - saved >= checkpoint_every
                if on_checkpoint is not None and due and self.acceleration.at_rest:
                    on_checkpoint(self.solution(Status.INTERRUPTED))
                    saved = time.perf_counter()
        except KeyboardInterrupt:
            status = Status.INTERRUPTED  # d mixes two sweeps, and the error of the first covers both
        sweeper.solver.finish()
        self.d.freeze()
        return self.solution(status)

    def _accelerate(self, report: Sweep) -> None:
        """Bring d nearer to the fixed point; its error is then that of the sweep, and how far d moved since."""
        if self.d_was_zero:  # a sweep of nothing chose no plans
            self.d_was_zero = False
            return
        c_T = self.question.transition_weight
        goal = (self.question.tol - self.reduction.error) * (1.0 - c_T) - report.rounding
        goal = max(goal / c_T - report.transport_error, 0.0) if c_T > 0.0 else 0.0
        swept = self.error
        try:
            self.acceleration.improve(self.d, report, goal)
        finally:
            self.error = swept + self.acceleration.moved

    def solution(self, status: Status) -> MetricSolution:
        """The answer as it is now."""
        transport = self.question.transport
        return MetricSolution(
            status,
            Certificate(self.error, transport.axioms.nonexpansive, transport.guarantee),
            self.sweeps,
            self.iterations,
            time.perf_counter() - self.began,
            self.sweeper.solver.remembered_bytes,
            self.largest,
            self.notes,
            self.question,
            Restart(self.d, self.question, self.reduction, self.sweeper),
        )
