"""Bisimulation metrics: the one-step operators and their fixed points.

For a chain (a policy π), with a transport W:

    F(d)(s, t) = c_R |R(s) − R(t)| + c_T W(d)(P(s), P(t))                              (eqs. 5 and 11)

For an MDP, F(d)(s, t) compares choices by c_R |r − r'| + c_T W(d)(P, P') and combines them:

    match="labels"     the maximum over actions of the same label (eqs. 3 and 10). Where one state has
                       an action that the other has not, the distance is the largest possible one.
    match="hausdorff"  the Hausdorff distance of the two sets of choices (probabilistic automata).

States of an MDP with different kept labels (atomic propositions) are at the largest possible distance.

Where W is non-expansive in d, F is a c_T-contraction and has one fixed point d~. Let d' be one computed
sweep from d, ρ = ‖d' − d‖∞, and let e bound the error of a computed transport. Then

    ‖d' − d~‖∞ ≤ c_T (ρ + e) / (1 − c_T).

This is the stopping rule: `tol` is an error on the answer, and sweeps go on until the right side is at
most tol. All distances are at most c_R · span / (1 − c_T), where span is the range of the rewards (1 where
all rewards are equal, so that states with different actions are still apart).

Around the *exact* metric there is a bracket from any d (`MetricSolution.bracket`): if A ≤ F(d) ≤ B, then
A − c_T/(1−c_T)·max(d − A, 0) ≤ d~ ≤ B + c_T/(1−c_T)·max(B − d, 0), because F is monotone. A comes from dual
potentials, B from feasible plans. Also d~ ≥ c_R |V(s) − V(t)| for the values under discount c_T.

Memory: d, the ground cost d^p, and for Sinkhorn the kernel, each S² numbers, plus what the transport keeps
per pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .certificates import Certificate
from .kernels.select import Engine, engine, run_all, single_thread, threads
from .lumping import Lumping, expanded, kept_labels, label_classes
from .lumping import lump as find_classes
from .model import MDP, Chain
from .transport import Exact, Family, Transport
from .transport.base import Evaluator, same_supports

_UNIT_BYTES = 4 << 20  # work space of one unit of work
_ROUNDING = 16.0  # units of round-off granted to one sweep
_LUMP_TOL = 1e-12  # masses that differ by less are taken as equal when states are merged


class Status(Enum):
    """How a solve ended; the text says what to do."""

    CONVERGED = "converged: the error is within the tolerance"
    SWEEP_LIMIT = "sweep limit reached: raise max_sweeps, or restart with warm=solution"
    ROUNDING = 'rounding limit reached: the tolerance is finer than the arithmetic; use dtype="float64" or a larger tol'
    TRANSPORT_LIMIT = "transport iteration limit reached: use a larger reg, or Exact"
    INTERRUPTED = "interrupted: restart with warm=solution to go on"


class Sweep(NamedTuple):
    """What one sweep did."""

    rise: float  # largest increase of an entry
    fall: float  # largest decrease
    transport_error: float
    iterations: int

    @property
    def change(self) -> float:
        return max(self.rise, self.fall)


@dataclass(frozen=True)
class Progress:
    """What a progress callback sees after each sweep."""

    sweep: int
    error: float
    tol: float
    change: float
    seconds: float


class MetricOperator:
    """F for one model, transport and matching, with the state that its transport keeps.

    `sweep(d)` replaces d by F(d) in place. Results do not depend on the number of threads.
    """

    def __init__(
        self,
        model: Chain | MDP,
        transport: Transport,
        *,
        match: str | None = None,
        reward_weight: float = 1.0,
        transition_weight: float | None = None,
        keep: Sequence[str] | None = None,
        warm_state: bool = True,
        device: str = "cpu",
        dtype: str = "float64",
    ) -> None:
        self.model, self.transport, self.match = model, transport, _check_match(model, match)
        self.c_R = _check_reward_weight(reward_weight)
        self.c_T = _check_transition_weight(model.gamma if transition_weight is None else transition_weight)
        self.engine: Engine = engine(device, dtype)
        self.warm_state = warm_state
        self.n_states = model.n_states
        self._states, self._pointers = _choices(model)
        self._label_sets, groups = _groups(model, self.match)
        if isinstance(model, MDP) and kept_labels(model, keep):
            _, apart = np.unique(np.stack([self._label_sets, label_classes(model, keep)]), axis=1, return_inverse=True)
            self._label_sets = apart.reshape(-1)
        self.family = _family(model, groups)
        self.evaluator: Evaluator = transport.evaluator(self.engine, self.family, warm_state)

    def follow(self, model: Chain) -> None:
        """Go on with the chain of another policy; what the transport kept is kept where it fits."""
        if model.n_states != self.n_states or self.match != "chain":
            raise ValueError("follow needs a chain with the same states.")
        family = _family(model, self.family.groups)
        if same_supports(family, self.family).all():
            self.evaluator.follow(family)
        else:
            evaluator = self.transport.evaluator(self.engine, family, self.warm_state)
            if self.warm_state:
                evaluator.take_from(self.evaluator)
            self.evaluator = evaluator
        self.model, self.family = model, family

    @property
    def largest(self) -> float:
        """The largest possible distance, c_R · span / (1 − c_T)."""
        return self.c_R * (self.model.reward_span or 1.0) / (1.0 - self.c_T)

    def accuracy_for(self, tol: float) -> float:
        """How exact a transport must be for half of the tolerance."""
        return 0.5 * tol * (1.0 - self.c_T) / self.c_T if self.c_T > 0.0 else np.inf

    def sweep(self, d: NDArray[Any], accuracy: float = np.inf) -> Sweep:
        """Replace d [S, S] by F(d); transports are within `accuracy` where they can be."""
        self.evaluator.restart()
        with single_thread():
            self.evaluator.prepare(d, accuracy)
            reports = run_all(lambda unit: self._sweep_rows(unit[0], unit[1], d), self._units())
        if self.evaluator.first == 1:
            np.fill_diagonal(d, 0.0)
        rise, fall, error, iterations = zip(*reports, strict=True)
        return Sweep(max(rise), max(fall), max(error), sum(iterations))

    def bounds(self, d: NDArray[Any], tol: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bounds lower ≤ F_exact(d) ≤ upper [S, S] for a d with zero diagonal."""
        self.evaluator.restart()
        lower, upper = np.zeros_like(d), np.zeros_like(d)
        kept = {name: array.copy() for name, array in self.evaluator.state().items()}
        with single_thread():
            self.evaluator.prepare(d, self.accuracy_for(tol))
            run_all(lambda unit: self._bound_rows(unit[0], unit[1], lower, upper), self._units())
        self.evaluator.finish()
        self.evaluator.load(kept)  # bounds only read
        return lower, upper

    def _units(self) -> list[tuple[int, int]]:
        """Ranges of states with about equal numbers of pairs and a bounded work space."""
        n, pointers = self.n_states, self._pointers
        width = int(pointers[-1])
        per_unit = max(1.0, width * (width + 1) / 2 / (8 * threads()))
        units = []
        start = 0
        while start < n:
            stop, pairs = start, 0.0
            while stop < n and (stop == start or pairs < per_unit):
                rows = int(pointers[stop + 1] - pointers[start])
                if stop > start and rows * width * 16 > _UNIT_BYTES:
                    break
                pairs += float((pointers[stop + 1] - pointers[stop]) * (width - pointers[stop]))
                stop += 1
            units.append((start, stop))
            start = stop
        return units

    def _sweep_rows(self, s0: int, s1: int, d: NDArray[Any]) -> tuple[float, float, float, int]:
        evaluator = self.evaluator
        error, iterations = 0.0, 0

        def fill(group: int, a0: int, a1: int, out: NDArray[Any]) -> None:
            nonlocal error, iterations
            report = evaluator.block(group, a0, a1, out)
            error, iterations = max(error, report.error), iterations + report.iterations

        acc = self._combined(s0, s1, evaluator.first, fill)
        rise, fall = self.engine.kernels.write_rows(acc, s0, evaluator.first, d)
        return rise, fall, error, iterations

    def _bound_rows(self, s0: int, s1: int, lower: NDArray[Any], upper: NDArray[Any]) -> None:
        kernels = self.engine.kernels
        for target, index in ((lower, 0), (upper, 1)):

            def fill(group: int, a0: int, a1: int, out: NDArray[Any], which: int = index) -> None:
                pair = (out, np.zeros_like(out)) if which == 0 else (np.zeros_like(out), out)
                self.evaluator.bounds(group, a0, a1, *pair)

            kernels.write_rows(self._combined(s0, s1, 1, fill), s0, 1, target)

    def _combined(self, s0: int, s1: int, first: int, fill: Callable[..., None]) -> NDArray[Any]:
        """Rows s0 … s1−1 of F(d), for t ≥ s + first, with transports from `fill`."""
        kernels, rewards = self.engine.kernels, self.model.rewards
        acc = np.zeros((s1 - s0, self.n_states))
        if self.match == "hausdorff":
            a0, a1 = int(self._pointers[s0]), int(self._pointers[s1])
            block = np.zeros((a1 - a0, len(rewards)))
            fill(0, a0, a1, block)
            kernels.hausdorff(block, self._pointers, rewards, s0, first, self.c_R, self.c_T, acc)
            acc[self._label_sets[s0:s1, None] != self._label_sets[None, :]] = self.largest
            return acc
        kernels.start_rows(self._label_sets, self.largest, s0, acc)
        for group, members in enumerate(self.family.groups):
            a0, a1 = (int(k) for k in np.searchsorted(self._states[members], (s0, s1)))
            if a0 == a1:
                continue
            block = np.zeros((a1 - a0, len(members)))
            fill(group, a0, a1, block)
            kernels.raise_to(block, members, self._states, rewards, a0, a1, s0, first, self.c_R, self.c_T, acc)
        return acc


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

    distance: NDArray[Any]
    status: Status
    certificate: Certificate
    sweeps: int
    iterations: int
    seconds: float
    tol: float
    kept_bytes: int
    largest: float
    warm: Warm = field(repr=False)

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
        d = np.array(self.warm.distance)
        np.fill_diagonal(d, 0.0)
        lower, upper = operator.bounds(d, self.tol)
        c_T = operator.c_T
        slack = _ROUNDING * operator.engine.eps * max(float(d.max()), operator.c_R * operator.model.reward_span)
        rise = max(float((upper - d).max()), 0.0) + slack
        fall = max(float((d - lower).max()), 0.0) + slack
        upper += slack + c_T * rise / (1.0 - c_T)
        lower -= slack + c_T * fall / (1.0 - c_T)
        np.minimum(upper, operator.largest, out=upper)
        np.maximum(lower, value_gap(operator), out=lower)
        for bound in (lower, upper):
            np.fill_diagonal(bound, 0.0)
        return self.warm.expanded(lower), self.warm.expanded(np.maximum(upper, lower))


@dataclass(frozen=True, eq=False)
class Warm:
    """What a restart needs: the distances and the operator with what its transport kept.

    Where the model was lumped first, both are of its classes.
    """

    distance: NDArray[Any]
    operator: MetricOperator
    lumping: Lumping | None = None

    def expanded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of pairs of classes as values of pairs of states."""
        return values if self.lumping is None else expanded(self.lumping, values)


def value_gap(operator: MetricOperator) -> NDArray[Any]:
    """c_R |V(s) − V(t)| − rounding, a lower bound on the exact metric [S, S].

    V is the value under discount c_T: of the chain, or of the best and of the worst policy of an MDP.
    """
    rewards, c_T = operator.model.rewards, operator.c_T
    P, starts = operator.model.rows.matrix(), operator._pointers[:-1]
    gap = np.zeros((operator.n_states, operator.n_states))
    for choose in (np.maximum, np.minimum):
        V = np.zeros(operator.n_states)
        scale = float(np.abs(rewards).max()) / (1.0 - c_T)
        while True:
            new = choose.reduceat(rewards + c_T * (P @ V), starts)
            change, V = float(np.abs(new - V).max()), new
            if change <= 1e-13 * max(scale, 1e-300):
                break
        margin = 2.0 * c_T * change / (1.0 - c_T) + 1e-14 * scale
        np.maximum(gap, operator.c_R * (np.abs(V[:, None] - V[None, :]) - 2.0 * margin), out=gap)
    return gap


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
        device, dtype: "cpu"; "float64" or "float32".
        progress: called after each sweep; reads only.

    Returns:
        A `MetricSolution`. Ctrl-C ends the solve with status INTERRUPTED and a valid error.
    """
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be positive and finite; got {tol}.")
    if max_sweeps < 1:
        raise ValueError(f"max_sweeps must be at least 1; got {max_sweeps}.")
    way = Exact() if transport is None else transport
    match_name = _check_match(model, match)
    c_R = _check_reward_weight(reward_weight)
    c_T = _check_transition_weight(model.gamma if transition_weight is None else transition_weight)
    _groups(model, match_name)  # refuses labels that do not tell choices apart
    lumping, lump_error = _lumped(model, way, match_name, keep, c_R, c_T, tol, lump)
    subject = model if lumping is None else _quotient(model, lumping)
    operator = MetricOperator(
        subject, way, match=match, reward_weight=c_R, transition_weight=c_T, keep=keep, warm_state=warm_state,
        device=device, dtype=dtype,
    )  # fmt: skip
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
    # W_p moves by the range of the distances times the mass that differs, to the power 1/p.
    largest = c_R * (model.reward_span or 1.0) / (1.0 - c_T)
    error = (2.0 * rewards + c_T * masses ** (1.0 / transport.p) * largest) / (1.0 - c_T)
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
    d = np.zeros((operator.n_states, operator.n_states), operator.engine.dtype)
    if warm is not None:
        source = warm.warm if isinstance(warm, MetricSolution) else warm
        n = operator.n_states if lumping is None else lumping.n_states
        before = source.expanded(source.distance)
        if len(before) != n:
            raise ValueError(f"warm: the earlier solution has {len(before)} states, the model has {n}.")
        d[:] = before if lumping is None else before[np.ix_(lumping.medoids, lumping.medoids)]
        if operator.evaluator.first == 1:
            np.fill_diagonal(d, 0.0)  # else the first sweep would see a diagonal that it does not report
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
            rounding = _ROUNDING * operator.engine.eps * float(d.max())
            error = (c_T * (report.change + report.transport_error) + rounding) / (1.0 - c_T) + lump_error
            if progress is not None:
                progress(Progress(sweeps, error, tol, report.change, time.perf_counter() - began))
            if error <= tol:
                status = Status.CONVERGED
                break
            # No progress over several sweeps: what is left is round-off or unfinished transports.
            stuck = stuck + 1 if report.change >= 0.999 * best_change else 0
            best_change = min(best_change, report.change)
            if stuck >= 3 and report.change <= report.transport_error + 4.0 * rounding:
                limited = operator.transport.iterative and report.transport_error > max(accuracy, rounding)
                status = Status.TRANSPORT_LIMIT if limited else Status.ROUNDING
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED  # d mixes two sweeps, and the error of the first covers both
    operator.evaluator.finish()
    d.setflags(write=False)
    warm = Warm(d, operator, lumping)
    full = warm.expanded(d)
    full.setflags(write=False)
    transport = operator.transport
    certificate = Certificate(error, transport.axioms.nonexpansive, transport.guarantee)
    return MetricSolution(
        full, status, certificate, sweeps, iterations, time.perf_counter() - began, tol,
        operator.evaluator.kept_bytes, operator.largest, warm,
    )  # fmt: skip


def _check_match(model: Chain | MDP, match: str | None) -> str:
    if isinstance(model, Chain):
        if match is not None:
            raise ValueError("match is for an MDP; a chain has no choices to match.")
        return "chain"
    if match not in ("labels", "hausdorff"):
        raise ValueError(
            f'match must be "labels" (same action names) or "hausdorff" (choices as sets) for an MDP; got {match!r}. '
            "For the metric of a policy pass mdp.under(policy)."
        )
    return match


def _check_reward_weight(c_R: float) -> float:
    if not 0.0 <= c_R < np.inf:
        raise ValueError(f"reward_weight (c_R) must be finite and not negative; got {c_R}.")
    return float(c_R)


def _check_transition_weight(c_T: float) -> float:
    if not 0.0 <= c_T < 1.0:
        raise ValueError(f"transition_weight (c_T) must be in [0, 1); got {c_T}.")
    return float(c_T)


def _choices(model: Chain | MDP) -> tuple[NDArray[Any], NDArray[Any]]:
    """The state of each row and the row pointers of the states."""
    if isinstance(model, MDP):
        return model.state_of_choice, model.choice_ptr
    return np.arange(model.n_states), np.arange(model.n_states + 1)


def _groups(model: Chain | MDP, match: str) -> tuple[NDArray[Any], tuple[NDArray[Any], ...]]:
    """(set of labels of each state, groups of rows whose pairs are compared)."""
    if isinstance(model, Chain):
        return np.zeros(model.n_states, np.int64), (np.arange(model.n_states),)
    if match == "hausdorff":
        return np.zeros(model.n_states, np.int64), (np.arange(model.n_choices),)
    known: dict[tuple[int, ...], int] = {}
    label_sets = np.empty(model.n_states, np.int64)
    for s in range(model.n_states):
        labels = np.sort(model.label_of_choice[model.choice_ptr[s] : model.choice_ptr[s + 1]])
        if np.any(labels[1:] == labels[:-1]):
            twice = model.label_names[labels[:-1][labels[1:] == labels[:-1]][0]]
            raise ValueError(
                f'match="labels" needs different labels within a state; state {model.name_of(s)} has action {twice} '
                'more than once. Use match="hausdorff".'
            )
        label_sets[s] = known.setdefault(tuple(labels.tolist()), len(known))
    # Only states with the same labels are compared, one group for each label of each set.
    key = label_sets[model.state_of_choice] * len(model.label_names) + model.label_of_choice
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    return label_sets, tuple(np.split(order, cuts))


def _family(model: Chain | MDP, groups: tuple[NDArray[Any], ...]) -> Family:
    """Rows ready for the kernels: rescaled so that they sum to 1 to the last bit that matters."""
    rows = model.rows
    probs = rows.probs / np.repeat(rows.sums(), rows.sizes)
    return Family(rows.indptr, rows.indices.astype(np.uint32), probs, groups, rows.n_states)
