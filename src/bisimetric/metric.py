"""Bisimulation metrics: fixed points of the operators F in `operators`, with their errors.

Where the transport is non-expansive in d, F is a c_T-contraction and has one fixed point d~. Let d' be one computed
sweep from d, ρ = ‖d' − d‖∞, and let e bound the error of a computed transport. Then

    ‖d' − d~‖∞ ≤ c_T (ρ + e) / (1 − c_T).

This is the stopping rule: `tol` is an error on the answer, and sweeps go on until the right side (with what rounding
and lumping may add) is at most tol.

Around the *exact* metric there is a bracket from any d (`MetricSolution.bracket`): if A ≤ F(d) ≤ B, then
A − c_T/(1−c_T)·max(d − A, 0) ≤ d~ ≤ B + c_T/(1−c_T)·max(B − d, 0), because F is monotone. A comes from dual potentials,
B from feasible plans. Also d~ ≥ c_R |V(s) − V(t)| for the values under discount c_T.

Memory: d, the ground cost d^p, and for Sinkhorn the kernel, each S² numbers, plus what the transport keeps per pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .certificates import Certificate, CertificateError
from .lumping import Lumping, expanded
from .lumping import lump as find_classes
from .model import MDP, Chain
from .operators import (
    MetricOperator,
    check_match,
    check_reward_weight,
    check_transition_weight,
    comparison_groups,
    metric_operator,
)
from .transport import Exact, Transport
from .values import value_ranges

_ROUNDING = 16.0  # units of round-off granted to one sweep
_LUMP_TOL = 1e-12  # masses that differ by less are taken as equal when states are merged


class Status(Enum):
    """How a solve ended; the text says what to do."""

    CONVERGED = "converged: the error is within the tolerance"
    SWEEP_LIMIT = "sweep limit reached: raise max_sweeps, or restart with warm=solution"
    ROUNDING = 'rounding limit reached: the tolerance is finer than the arithmetic; use dtype="float64" or a larger tol'
    TRANSPORT_LIMIT = "transport iteration limit reached: use a larger reg, or Exact"
    INTERRUPTED = "interrupted: restart with warm=solution to go on"


@dataclass(frozen=True)
class Progress:
    """What a progress callback sees after each sweep."""

    sweep: int
    error: float
    tol: float
    change: float
    seconds: float


@dataclass(frozen=True, eq=False)
class MetricSolution:
    """A bisimulation metric with its error.

    Attributes:
        distance: d [S, S], symmetric, read-only.
        status: how the solve ended; status.value says what to do.
        certificate: the error of `distance` as a fixed point, and the theorem that gives it.
        sweeps, iterations, seconds: work done (iterations: pivots or scalings, over all pairs).
        kept_bytes: memory of the state kept for a restart.
        warm: pass this (or the solution) as `warm=` to restart from here.
    """

    status: Status
    certificate: Certificate
    sweeps: int
    iterations: int
    seconds: float
    tol: float
    kept_bytes: int
    largest: float
    warm: Warm = field(repr=False)

    @cached_property
    def distance(self) -> NDArray[Any]:
        """d [S, S] as an array of NumPy; what a device computed is copied when it is first asked for."""
        full = self.warm.expanded(self.warm.operator.engine.to_host(self.warm.distance))
        full.setflags(write=False)
        return full

    @property
    def error(self) -> float:
        """The error of the certificate."""
        return self.certificate.error

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    def bracket(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rigorous bounds (lower, upper) around the exact metric (λ = 0, same p), up to rounding.

        Above: feasible plans. Below: dual potentials, and differences of values. Works for every transport,
        also for those without a certificate of their own. Cost: about one sweep, and value iteration.
        """
        operator = self.warm.operator
        with operator.memory_errors():
            ground = self.warm.distance.copy()
            operator.engine.xp.fill_diagonal(ground, 0.0)
            lower, upper = (bound.astype(np.float64) for bound in operator.bounds(ground, self.tol))
        d = operator.engine.to_host(ground)
        c_T = operator.c_T
        slack = rounding(operator, max(float(d.max()), operator.c_R * operator.model.reward_span))
        rise = max(float((upper - d).max()), 0.0) + slack
        fall = max(float((d - lower).max()), 0.0) + slack
        upper += slack + c_T * rise / (1.0 - c_T)
        lower -= slack + c_T * fall / (1.0 - c_T)
        np.minimum(upper, operator.largest * (1.0 + 1e-15), out=upper)
        np.maximum(lower, value_lower_bound(operator), out=lower)
        for bound in (lower, upper):
            np.fill_diagonal(bound, 0.0)
        crossed = float((lower - upper).max())
        if crossed > 0.0:
            raise CertificateError(f"bounds around the exact metric cross by {crossed:.3g}.")
        return self._of_states(lower, upper)

    def _of_states(self, lower: NDArray[Any], upper: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bounds of pairs of classes as bounds of pairs of states, which the rounding of the classes widens."""
        if self.warm.lumping is None:
            return lower, upper
        lower, upper = (self.warm.expanded(bound) for bound in (lower, upper))
        np.maximum(lower - self.warm.lump_error, 0.0, out=lower)
        upper += self.warm.lump_error
        np.fill_diagonal(upper, 0.0)
        return lower, upper


def value_lower_bound(operator: MetricOperator) -> NDArray[Any]:
    """c_R |V(s) − V(t)| less what V may be off, a lower bound on the exact metric [S, S].

    V is the value under discount c_T: of the chain, or of the best and of the worst policy of an MDP.
    """
    gap = np.zeros((operator.n_states, operator.n_states))
    for V, error in value_ranges(operator.model, operator.c_T):
        np.maximum(gap, operator.c_R * (np.abs(V[:, None] - V[None, :]) - 2.0 * error), out=gap)
    return gap


def rounding(operator: MetricOperator, largest: float) -> float:
    """What rounding may add to an entry of a sweep, for distances up to `largest`."""
    return _ROUNDING * (operator.engine.eps * largest + float(np.finfo(operator.engine.dtype).tiny))


@dataclass(frozen=True, eq=False)
class Warm:
    """What a restart needs: the distances and the operator with what its transport kept.

    Where the model was lumped first, both are of its classes, and lump_error is what their rounding may cause.
    """

    distance: NDArray[Any]
    operator: MetricOperator
    lumping: Lumping | None = None
    lump_error: float = 0.0

    @property
    def n_states(self) -> int:
        """States of the model that was solved."""
        return len(self.distance) if self.lumping is None else self.lumping.n_states

    def expanded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of pairs of classes as values of pairs of states."""
        return values if self.lumping is None else expanded(self.lumping, values)


def solve_metric(
    model: Chain | MDP,
    transport: Transport | None = None,
    *,
    match: str | None = None,
    reward_weight: float = 1.0,
    transition_weight: float | None = None,
    tol: float = 1e-6,
    max_sweeps: int = 100_000,
    warm: MetricSolution | Warm | None = None,
    keep: Sequence[str] | None = None,
    lump: bool | None = None,
    warm_state: bool = True,
    device: str = "cpu",
    dtype: str = "float64",
    progress: Callable[[Progress], None] | None = None,
) -> MetricSolution:
    """Compute a bisimulation metric to a given error.

    Args:
        model: a `Chain` (π-bisimulation metric) or an `MDP` (needs `match`).
        transport: `Exact()` (default), `Sinkhorn`, `KLBall` or `Independent`.
        match: "labels" or "hausdorff", for an MDP (see the module's text).
        reward_weight, transition_weight: c_R ≥ 0 and c_T in [0, 1); defaults 1 and γ.
        tol: largest error of the answer (sup-norm), not of a step.
        max_sweeps: give up after this many sweeps; the status says so.
        warm: an earlier solution to restart from, also after the policy or the transport changed. It is
            not modified.
        keep: labels of an MDP's states that keep states apart; by default all but "init" and "deadlock".
        lump: merge bisimilar states first and give the result for all states. Default: where that is exact (`Exact`
            transport) and its rounding is far below tol.
        warm_state: keep trees or potentials of each pair between sweeps. Faster; False saves their memory.
        device, dtype: "cpu" or "cuda" (one GPU, with the extra `gpu`); "float64" or "float32".
        progress: called after each sweep; reads only.

    Returns:
        A `MetricSolution`. Ctrl-C ends the solve with status INTERRUPTED and a valid error.
    """
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be positive and finite; got {tol}.")
    if max_sweeps < 1:
        raise ValueError(f"max_sweeps must be at least 1; got {max_sweeps}.")
    way = Exact() if transport is None else transport
    match_name = check_match(model, match)
    c_R = check_reward_weight(reward_weight)
    c_T = check_transition_weight(model.gamma if transition_weight is None else transition_weight)
    comparison_groups(model, match_name)  # refuses labels that do not tell choices apart
    lumping, lump_error = _lumped(model, way, match_name, keep, c_R, c_T, tol, lump)
    subject = model if lumping is None else _quotient(model, lumping)
    operator = metric_operator(
        subject, way, match=match, reward_weight=c_R, transition_weight=c_T, keep=keep, warm_state=warm_state,
        device=device, dtype=dtype,
    )  # fmt: skip
    with operator.memory_errors():
        d = start_distance(operator, warm, lumping)
        return _iterate(operator, d, tol, max_sweeps, progress, lumping, lump_error)


def _lumped(
    model: Chain | MDP,
    transport: Transport,
    match: str,
    keep: Sequence[str] | None,
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
    lumping = find_classes(_as_mdp(model), "hausdorff" if match == "hausdorff" else "labels", keep=keep, tol=_LUMP_TOL)
    return (None, 0.0) if lumping.n_classes == lumping.n_states else (lumping, error)


def _as_mdp(model: Chain | MDP) -> MDP:
    """A chain as an MDP with one choice per state."""
    if isinstance(model, MDP):
        return model
    n = model.n_states
    return MDP(model.rows, model.rewards, np.arange(n + 1), model.gamma, np.zeros(n, np.int64), ("0",))


def _quotient(model: Chain | MDP, lumping: Lumping) -> Chain | MDP:
    small = lumping.quotient
    assert small is not None
    return small if isinstance(model, MDP) else Chain(small.rows, small.rewards, model.gamma,
                                                      reward_range=model.reward_range)  # fmt: skip


def start_distance(
    operator: MetricOperator, warm: MetricSolution | Warm | None, lumping: Lumping | None = None
) -> NDArray[Any]:
    """0, or a copy of an earlier distance, with what was kept of it handed to the operator."""
    engine = operator.engine
    d: NDArray[Any] = engine.xp.zeros((operator.n_states, operator.n_states), engine.dtype)
    if warm is not None:
        source = warm.warm if isinstance(warm, MetricSolution) else warm
        n = operator.n_states if lumping is None else lumping.n_states
        if source.n_states != n:
            raise ValueError(f"warm: the earlier solution has {source.n_states} states, the model has {n}.")
        if lumping is None and source.lumping is None and source.operator.engine.on_device == engine.on_device:
            d[:] = source.distance
        else:
            before = source.expanded(source.operator.engine.to_host(source.distance))
            d[:] = engine.to_device(before if lumping is None else before[np.ix_(lumping.medoids, lumping.medoids)])
        if operator.evaluator.first == 1:
            engine.xp.fill_diagonal(d, 0.0)  # else the first sweep would see a diagonal that it does not report
        if operator.warm_state and source.lumping == lumping:
            operator.evaluator.take_from(source.operator.evaluator)
    return d


def _iterate(
    operator: MetricOperator,
    d: NDArray[Any],
    tol: float,
    max_sweeps: int,
    progress: Callable[[Progress], None] | None,
    lumping: Lumping | None,
    lump_error: float,
) -> MetricSolution:
    began = time.perf_counter()
    c_T = operator.c_T
    accuracy = operator.accuracy_for(tol)
    status, sweeps, iterations = Status.SWEEP_LIMIT, 0, 0
    error = max(operator.largest, float(d.max()))  # ‖d − d~‖∞ before the first sweep
    best_change, stuck = np.inf, 0
    try:
        while sweeps < max_sweeps:
            report = operator.sweep(d, accuracy)
            sweeps, iterations = sweeps + 1, iterations + report.iterations
            slack = rounding(operator, float(d.max()))
            error = (c_T * (report.change + report.transport_error) + slack) / (1.0 - c_T) + lump_error
            if progress is not None:
                progress(Progress(sweeps, error, tol, report.change, time.perf_counter() - began))
            if error <= tol:
                status = Status.CONVERGED
                break
            # No progress over several sweeps: what is left is round-off or unfinished transports.
            stuck = stuck + 1 if report.change >= 0.999 * best_change else 0
            best_change = min(best_change, report.change)
            if stuck >= 3 and report.change <= report.transport_error + 4.0 * slack:
                limited = operator.transport.iterative and report.transport_error > max(accuracy, slack)
                status = Status.TRANSPORT_LIMIT if limited else Status.ROUNDING
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED  # d mixes two sweeps, and the error of the first covers both
    operator.evaluator.finish()
    if isinstance(d, np.ndarray):
        d.setflags(write=False)
    warm = Warm(d, operator, lumping, lump_error)
    transport = operator.transport
    certificate = Certificate(error, transport.axioms.nonexpansive, transport.guarantee)
    return MetricSolution(
        status, certificate, sweeps, iterations, time.perf_counter() - began, tol,
        operator.evaluator.kept_bytes, operator.largest, warm,
    )  # fmt: skip
