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
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..certificates import Certificate
from ..checks import check_number, check_type, check_whole
from ..lumping import Lumping
from ..lumping import lump as find_classes
from ..model import MDP, Chain
from ..operators import (
    MetricOperator,
    check_match,
    check_reward_weight,
    check_transition_weight,
    comparison_groups,
    metric_operator,
    respected_labels,
)
from ..status import Status
from ..transport import Exact, Transport
from .solution import MetricSolution, Progress, Question, Restart, fingerprint, model_of, rounding

Match = Literal["labels", "hausdorff"]
_LUMP_TOL = 1e-12  # masses that differ by less are taken as equal when states are merged


def solve_metric(
    model: Chain | MDP,
    transport: Transport | None = None,
    *,
    match: Match | None = None,
    reward_weight: float = 1.0,
    transition_weight: float | None = None,
    tol: float = 1e-6,
    max_sweeps: int = 100_000,
    start: MetricSolution | None = None,
    respect: Sequence[str] | None = None,
    lump: bool | None = None,
    remember: bool = True,
    device: str = "cpu",
    dtype: str = "float64",
    on_progress: Callable[[Progress], None] | None = None,
    on_checkpoint: Callable[[MetricSolution], None] | None = None,
    checkpoint_every: float = 60.0,
) -> MetricSolution:
    """Compute a bisimulation metric to a given error.

    Args:
        model: a `Chain` (π-bisimulation metric) or an `MDP` (needs `match`).
        transport: `Exact()` (default), `Sinkhorn`, `KLBall` or `Independent`.
        match: "labels" or "hausdorff", for an MDP (see the module `operators`).
        reward_weight, transition_weight: c_R ≥ 0 and c_T in [0, 1); defaults 1 and γ.
        tol: largest error of the answer (sup-norm), not of a step.
        max_sweeps: give up after this many sweeps; the status says so.
        start: an earlier solution to start from, also after the policy or the transport changed. It is
            not modified.
        respect: labels of states that keep states apart; by default all but "init" and "deadlock".
        lump: merge bisimilar states first and give the result for all states. Default: where that is exact (`Exact`
            transport) and its rounding is far below tol.
        remember: keep trees or potentials of each pair between sweeps. Faster; False saves their memory.
        device, dtype: "cpu" or "cuda" (one GPU, with the extra `gpu`); "float64" or "float32".
        on_progress: called after each sweep; reads only.
        on_checkpoint: called every so many seconds with the solution so far, to save it; reads only.
        checkpoint_every: these seconds.

    Returns:
        A `MetricSolution`. Ctrl-C ends the solve with status INTERRUPTED and a valid error.
    """
    check_type("model", model, Chain, MDP, words="a Chain or an MDP")
    if not 0.0 < check_number("tol", tol) < np.inf:
        raise ValueError(f"tol must be positive and finite; got {tol}.")
    if check_whole("max_sweeps", max_sweeps) < 1:
        raise ValueError(f"max_sweeps must be at least 1; got {max_sweeps}.")
    way = Exact() if transport is None else transport
    check_type("transport", way, Transport, words="a transport such as Exact() or Sinkhorn(1.0)")
    if start is not None:
        check_type("start", start, MetricSolution)
    match_name = check_match(model, match)
    c_R = check_reward_weight(reward_weight)
    c_T = check_transition_weight(model.gamma if transition_weight is None else transition_weight)
    label_sets, _ = comparison_groups(model, match_name)  # refuses labels that do not tell choices apart
    respected = respected_labels(model, respect)
    lumping, lump_error = _lumped(model, way, match_name, respected, c_R, c_T, tol, lump)
    operator = metric_operator(
        model_of(model, lumping), way, match=match, reward_weight=c_R, transition_weight=c_T,
        respect=[name for name in respected if lumping is None or name in lumping.quotient.state_labels],
        remember=remember, device=device, dtype=dtype,
    )  # fmt: skip
    question = Question(
        way, match_name, c_R, c_T, model.reward_name, model.gamma, respected, tol, device, dtype, remember
    )
    notes = _notes(model, match_name, label_sets, respected, operator)
    with operator.memory_errors():
        d = start_distance(operator, start, lumping)
        work = _Work(operator, d, question, notes, lumping, lump_error)
        return work.done(max_sweeps, on_progress, on_checkpoint, checkpoint_every)


def _lumped(
    model: Chain | MDP,
    transport: Transport,
    match: str,
    respected: tuple[str, ...],
    c_R: float,
    c_T: float,
    tol: float,
    wanted: bool | None,
) -> tuple[Lumping | None, float]:
    """(bisimulation classes to work on instead of states, error that their rounding may cause)."""
    if wanted and not isinstance(transport, Exact):
        raise ValueError(f"lump=True is exact for Exact only; {type(transport).__name__} sees how mass is split up.")
    if wanted is False or not isinstance(transport, Exact):
        return None, 0.0
    rewards = c_R * _LUMP_TOL * float(np.abs(model.rewards).max())
    masses = int(model.rows.sizes.max()) * _LUMP_TOL
    # Each of two states gives way to the one that stands for its class. Then W_p moves by the range of the distances
    # times the mass that differs, to the power 1/p.
    largest = c_R * (model.reward_span or 1.0) / (1.0 - c_T)
    error = 2.0 * (rewards + c_T * masses ** (1.0 / transport.p) * largest) / (1.0 - c_T)
    if wanted is None and error > 0.01 * tol:
        return None, 0.0
    matching: Match = "hausdorff" if match == "hausdorff" else "labels"
    lumping = find_classes(_as_mdp(model), matching, respect=respected, tol=_LUMP_TOL)
    return (None, 0.0) if lumping.n_classes == lumping.n_states else (lumping, error)


def _as_mdp(model: Chain | MDP) -> MDP:
    """A chain as an MDP with one choice per state."""
    if isinstance(model, MDP):
        return model
    n = model.n_states
    return MDP(model.rows, model.rewards, np.arange(n + 1), model.gamma, np.zeros(n, np.int64), ("0",),
               state_labels=model.state_labels)  # fmt: skip


def _notes(
    model: Chain | MDP, match: str, label_sets: NDArray[Any], respected: tuple[str, ...], operator: MetricOperator
) -> tuple[str, ...]:
    """What one should know about the answer."""
    notes = []
    sets, counts = np.unique(label_sets, return_counts=True)
    if match == "labels" and len(sets) > 1:
        pairs = (model.n_states**2 - int((counts**2).sum())) // 2
        notes.append(
            f"states have {len(sets)} different sets of actions; {pairs} pairs of states whose sets differ are put at "
            f"the largest possible distance, {operator.largest:.6g}"
        )
    if model.reward_span == 0.0 and operator.c_R > 0.0 and not respected and len(sets) == 1:
        notes.append("all rewards are equal and no labels are respected, so nothing tells states apart")
    if model.rows.moved > 0.0:
        notes.append(f"rows of P were rescaled to sum to 1; their sums were off by up to {model.rows.moved:.3g}")
    return tuple(notes)


def start_distance(
    operator: MetricOperator, start: MetricSolution | None, lumping: Lumping | None = None
) -> NDArray[Any]:
    """0, or a copy of an earlier distance, with what was kept of it handed to the operator."""
    engine = operator.engine
    d: NDArray[Any] = engine.xp.zeros((operator.n_states, operator.n_states), engine.dtype)
    if start is None:
        return d
    source = start.restart
    n = operator.n_states if lumping is None else lumping.n_states
    if source.n_states != n:
        raise ValueError(f"start: the earlier solution has {source.n_states} states, the model has {n}.")
    same_place = source.has_operator and source.operator.engine.on_device == engine.on_device
    if lumping is None and source.lumping is None and same_place:
        d[:] = source.distance
    else:
        before = source.of_states()
        d[:] = engine.to_device(before if lumping is None else before[np.ix_(lumping.medoids, lumping.medoids)])
    if operator.evaluator.first == 1:
        engine.xp.fill_diagonal(d, 0.0)  # else the first sweep would see a diagonal that it does not report
    if not operator.remember:
        return d
    if source.has_operator:
        if source.lumping == lumping:
            operator.evaluator.take_from(source.operator.evaluator)
    elif source.kept_arrays() and source.fingerprint == fingerprint(operator):
        operator.evaluator.load(source.kept_arrays())
    return d


class _Work:
    """A solve under way: the distances, and what is known of their error."""

    def __init__(
        self,
        operator: MetricOperator,
        d: NDArray[Any],
        question: Question,
        notes: tuple[str, ...],
        lumping: Lumping | None,
        lump_error: float,
    ) -> None:
        self.operator, self.d, self.question, self.notes = operator, d, question, notes
        self.lumping, self.lump_error = lumping, lump_error
        self.error = max(operator.largest, float(d.max()))  # ‖d − d~‖∞ before the first sweep
        self.sweeps, self.iterations, self.began = 0, 0, time.perf_counter()

    def done(
        self,
        max_sweeps: int,
        on_progress: Callable[[Progress], None] | None,
        on_checkpoint: Callable[[MetricSolution], None] | None,
        checkpoint_every: float,
    ) -> MetricSolution:
        """Sweep until the error is small enough, or something else ends it."""
        operator, tol, c_T = self.operator, self.question.tol, self.operator.c_T
        accuracy = operator.accuracy_for(tol)
        status, best_change, stuck, saved = Status.SWEEP_LIMIT, np.inf, 0, time.perf_counter()
        try:
            while self.sweeps < max_sweeps:
                report = operator.sweep(self.d, accuracy)
                self.sweeps, self.iterations = self.sweeps + 1, self.iterations + report.iterations
                slack = rounding(operator, float(self.d.max()))
                self.error = (c_T * (report.change + report.transport_error) + slack) / (1.0 - c_T) + self.lump_error
                now = time.perf_counter()
                if on_progress is not None:
                    on_progress(Progress(self.sweeps, self.error, tol, report.change, now - self.began))
                if self.error <= tol:
                    status = Status.CONVERGED
                    break
                # No progress over several sweeps: what is left is round-off or unfinished transports.
                stuck = stuck + 1 if report.change >= 0.999 * best_change else 0
                best_change = min(best_change, report.change)
                if stuck >= 3 and report.change <= report.transport_error + 4.0 * slack:
                    limited = operator.transport.iterative and report.transport_error > max(accuracy, slack)
                    status = Status.TRANSPORT_LIMIT if limited else Status.ROUNDING
                    break
                if on_checkpoint is not None and now - saved >= checkpoint_every:
                    on_checkpoint(self.solution(Status.INTERRUPTED))
                    saved = time.perf_counter()
        except KeyboardInterrupt:
            status = Status.INTERRUPTED  # d mixes two sweeps, and the error of the first covers both
        operator.evaluator.finish()
        if isinstance(self.d, np.ndarray):
            self.d.setflags(write=False)
        return self.solution(status)

    def solution(self, status: Status) -> MetricSolution:
        """The answer as it is now."""
        operator, transport = self.operator, self.operator.transport
        certificate = Certificate(self.error, transport.axioms.nonexpansive, transport.guarantee)
        return MetricSolution(
            status, certificate, self.sweeps, self.iterations, time.perf_counter() - self.began,
            operator.evaluator.kept_bytes, operator.largest, self.notes, self.question,
            Restart(self.d, operator, self.lumping, self.lump_error),
        )  # fmt: skip
