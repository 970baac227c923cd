"""Approximate policy iteration with bisimulation metrics: naive API, API(α) and API(α_k), in one loop.

Step k, from a policy π_k (the paper's eqs. 12 to 15 and 21 to 25):

    d̂  ← up to n sweeps of F_π from the last d̂, or from 0 (restart_metric); stops early where a sweep changes
         little (early_stop)
    Φ   ← aggregation of the states under d̂
    Ṽ   ← value of π_k in the aggregated chain, by a linear solve; Ṽ_Φ is its lift to all states
    π_g ← greedy for Ṽ_Φ; with noise, so that δ_k = ‖T_{π_g} Ṽ_Φ − T Ṽ_Φ‖∞ lies in a given band
    π_{k+1} ← (1 − α_k) π_k + α_k π_g

restart_metric with α = 1 is the naive API; without it a constant α is API(α), and a schedule API(α_k).

What is recorded of a step is about π_k and d̂. The bound of each step, ‖V* − V^π‖∞ ≤ max(TV^π − V^π)/(1−γ), holds
whatever the metric, so it is rigorous also for the sharp Sinkhorn cost, for which no theorem on the loop is known.
A run ends at a step count, at a target bound, when nothing changes any more, or at Ctrl-C.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import certificates
from .aggregation import EpsilonCover, Partition
from .certificates import Certificate
from .checks import check_type
from .kernels.select import where_it_lives
from .lumping import Lumping, expanded
from .lumping import lump as lump_states
from .model import MDP
from .operators import metric_operator
from .parts import Parts, finished
from .policy_run import LoopState, PolicyChanges, PolicyRun, PolicySettings, Step
from .status import Status
from .transport import Exact, Transport
from .values import (
    abstract_values,
    best_values,
    choice_values,
    first_choices,
    optimal_backup,
    policy_values,
    solved_on_host,
)

Floats = NDArray[np.float64]
Observers = tuple[Callable[[Step], None], ...]

_NOISE_TRIES = 400
_NOISE_STEP = 1.25
_TIE = 1e-10  # values closer than this part of the largest one are tied


def solve_policy(
    mdp: MDP,
    settings: PolicySettings | None = None,
    *,
    policy: ArrayLike | None = None,
    on_progress: Callable[[Step], None] | None = None,
    **changes: Unpack[PolicyChanges],
) -> PolicyRun:
    """Run approximate policy iteration on a bisimulation-based aggregation.

    Args:
        mdp: the model.
        settings: what to do; by default `PolicySettings()`.
        policy: the first one (probabilities per choice, or one action per state), uniform by default.
        on_progress: called with each `Step`; it only reads.
        changes: settings by name that differ from `settings`, such as steps=100.

    Returns:
        A `PolicyRun`. Ctrl-C ends the run with status INTERRUPTED and what was done.
    """
    check_type("mdp", mdp, MDP, words="an MDP")
    chosen = PolicySettings.merged(settings, changes)
    return finished(run_in_parts(mdp, chosen, policy, () if on_progress is None else (on_progress,)))


def run_in_parts(
    mdp: MDP, settings: PolicySettings, policy: ArrayLike | None, observers: Observers
) -> Parts[PolicyRun]:
    """`solve_policy`, stopping once it is set up and wherever it would wait for a device."""
    settings = settings.for_model(mdp)
    small, lumping, start = reduced(mdp, settings, policy)
    best_value = best_values(small)[0] if settings.optimum else None
    state = first_state(small, settings, start)
    history: list[Step] = []
    status = None
    try:
        yield
        while status is None:
            step = yield from step_in_parts(small, settings, state, best_value, lumping)
            history.append(step)
            for observe in observers:
                observe(step)
            status = end_of(settings, state, step)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED

    def result(status: Status) -> PolicyRun:
        return lifted(mdp, lumping, finish(small, settings, state, history, status, best_value))

    try:
        return result(status)
    except KeyboardInterrupt:  # one that comes just now loses nothing
        return result(Status.INTERRUPTED)


def reduced(mdp: MDP, settings: PolicySettings, policy: ArrayLike | None) -> tuple[MDP, Lumping | None, Floats]:
    """(model to work on, its classes where it was lumped, first policy on it)."""
    weights = mdp.uniform_policy() if policy is None else mdp.check_policy(policy)
    exact = isinstance(settings.transport, Exact)
    countable = type(settings.aggregation) is EpsilonCover  # can count a class as often as it has states
    if settings.lump and not (exact and countable):
        raise ValueError("lump=True is exact for Exact transport and EpsilonCover only.")
    if settings.lump is False or not exact or not countable:
        return mdp, None, weights
    # Labels of states do not matter for values, so they need not keep states apart.
    lumping = lump_states(mdp, "labels", respect=(), tol=1e-12)
    if lumping.n_classes == lumping.n_states:
        return mdp, None, weights
    small, choice_of = lumping.quotient, lumping.choice_of
    # A state may have several choices for one of the quotient's; together they have its probability.
    _, group = np.unique(mdp.state_of_choice * small.n_choices + choice_of, return_inverse=True)
    shares = np.bincount(group.reshape(-1), weights)[group.reshape(-1)]
    start = np.zeros(small.n_choices)
    at_medoid = np.isin(mdp.state_of_choice, lumping.medoids)
    start[choice_of[at_medoid]] = shares[at_medoid]
    if not np.array_equal(start[choice_of], shares):
        if settings.lump:
            raise ValueError("lump=True: the first policy tells bisimilar states apart; use lump=False.")
        return mdp, None, weights
    return small, lumping, start


def lifted(mdp: MDP, lumping: Lumping | None, run: PolicyRun) -> PolicyRun:
    """A run on the classes as a run on the states, its policy evaluated and certified there."""
    if lumping is None:
        return run
    policy = lumping.lift_policy(run.policy)
    V, V_error = policy_values(mdp.under(policy), lumping.lift(run.value))
    inner = run.partition
    medoids = lumping.medoids[inner.medoids]
    labels = inner.labels[lumping.labels]
    outer = Partition.from_labels(labels, medoids)
    choices, actions = likely_actions(mdp, policy)
    return replace(
        run, policy=policy, value=V, choices=choices, actions=actions, certificate=certify(mdp, V, V_error),
        distance=expanded(lumping, run.distance),
        partition=replace(outer, radius=inner.radius, diameter=inner.diameter),
        abstract_value=lumping.lift(run.abstract_value),
        optimal_value=None if run.optimal_value is None else lumping.lift(run.optimal_value),
    )  # fmt: skip


def first_state(mdp: MDP, settings: PolicySettings, policy: ArrayLike | None = None) -> LoopState:
    """The state before the first step: d̂ = 0 and the maximum-entropy policy, unless one is given."""
    weights = mdp.uniform_policy() if policy is None else mdp.check_policy(policy)
    settings.step_size(1, gamma=mdp.gamma, sweeps=settings.sweeps, p=_order(settings.transport))  # may refuse
    # Labels of states do not matter for values, so they need not keep states apart.
    operator = metric_operator(
        mdp.under(weights), settings.transport, respect=(), device=settings.device, dtype=settings.dtype
    )
    n = mdp.n_states
    with operator.memory_errors():
        nothing = operator.engine.xp.zeros((n, n), operator.engine.dtype)
    return LoopState(
        0, weights, weights, nothing, operator,
        np.random.default_rng(settings.seed), 0.1, np.zeros(n), Partition.from_labels(np.zeros(n, np.int64)),
        np.zeros(n),
    )  # fmt: skip


def advance(
    mdp: MDP, settings: PolicySettings, state: LoopState, best_value: Floats | None, lumping: Lumping | None = None
) -> Step:
    """One step of the loop; see `step_in_parts`."""
    return finished(step_in_parts(mdp, settings, state, best_value, lumping))


def step_in_parts(
    mdp: MDP, settings: PolicySettings, state: LoopState, best_value: Floats | None, lumping: Lumping | None = None
) -> Parts[Step]:
    """One step of the loop; changes `state` (but for its noise) only once all of it is known.

    Stops before it waits for the sweeps of a device.

    Where `mdp` is the quotient of a lumping, its states count as often as they stand for states.
    """
    with state.operator.memory_errors():
        return (yield from _step(mdp, settings, state, best_value, lumping))


def _step(
    mdp: MDP, settings: PolicySettings, state: LoopState, best_value: Floats | None, lumping: Lumping | None
) -> Parts[Step]:
    began = time.perf_counter()
    gamma = mdp.gamma
    chain = mdp.under(state.policy)
    operator, start = state.operator, state.distance
    measuring = time.perf_counter()
    operator.follow(chain)
    assert settings.early_stop is not None  # filled in by `for_model`
    first = operator.engine.xp.zeros_like(start) if settings.restart_metric else start
    sweeping = operator.sweeps(first, settings.sweeps, settings.early_stop)
    solved = solved_on_host(chain)
    if solved:
        next(sweeping)  # a device sweeps while the host solves
    launched = time.perf_counter()
    V, V_error = policy_values(chain, state.value, operator.engine)
    residual = certify(mdp, V, V_error)
    aside = time.perf_counter() - launched
    if not solved:
        next(sweeping)  # values that a device iterates would wait for its sweeps
    yield
    swept = yield from sweeping
    measured, change = swept.distance, swept.change
    metric_seconds = time.perf_counter() - measuring - aside
    d, kernels = where_it_lives(operator.for_classes(measured, getattr(settings.aggregation, "on_device", False)))
    sizes = None if lumping is None else lumping.sizes
    if sizes is None:
        partition = settings.aggregation(d)
    else:
        assert isinstance(settings.aggregation, EpsilonCover)
        partition = settings.aggregation(d, sizes)
    V_abstract = abstract_values(chain, partition, state.abstract_value, sizes, operator.engine)
    Q = choice_values(mdp, V_abstract)
    TV = np.maximum.reduceat(Q, mdp.choice_ptr[:-1])
    greedy, delta = _improve(mdp, settings, state, Q, TV)
    alpha = settings.step_size(state.k + 1, gamma=gamma, sweeps=settings.sweeps, p=_order(settings.transport))
    policy_backup = chain.rewards + gamma * (chain.rows.matrix() @ V_abstract)
    abstract_error = certificates.evaluation_residual(V_abstract, policy_backup, gamma=gamma)
    if settings.target is not None and residual.error <= settings.target:
        alpha = 0.0  # the policy that meets the target is the answer
    nmi, purity = _agreement(mdp, partition, lumping)
    new_policy = (1.0 - alpha) * state.policy + alpha * greedy if alpha < 1.0 else greedy
    ahead = float(np.abs(greedy - state.policy).max())
    step = Step(
        k=state.k,
        error=None if best_value is None else float(np.abs(best_value - V).max()),
        bound=residual.error,
        metric_gap=float(kernels.value_gap(d, V)),
        n_classes=partition.n_classes,
        diameter=partition.diameter,
        delta=delta,
        alpha=alpha,
        sweeps=swept.sweeps,
        change=change,
        transport_error=swept.transport_error,
        iterations=swept.iterations,
        abstract_error=abstract_error.error,
        nmi=nmi,
        purity=purity,
        seconds=time.perf_counter() - began,
        metric_seconds=metric_seconds,
    )
    state.measured = state.policy
    state.settled = ahead <= 1e-12 and change <= settings.early_stop and partition == state.partition
    state.policy, state.value, state.partition, state.abstract_value = new_policy, V, partition, V_abstract
    state.distance = measured
    state.k += 1
    return step


def _agreement(mdp: MDP, partition: Partition, lumping: Lumping | None) -> tuple[float | None, float | None]:
    """NMI and purity against the known classes of all states, where there are any."""
    truth = mdp.classes
    if lumping is not None:
        truth, partition = lumping.model.classes, Partition.from_labels(partition.labels[lumping.labels])
    return (None, None) if truth is None else partition.agreement(truth)


def end_of(settings: PolicySettings, state: LoopState, step: Step) -> Status | None:
    """How the run ends after this step, if it does."""
    if settings.target is not None and step.bound <= settings.target:
        return Status.TARGET
    if state.settled:
        return Status.SETTLED if settings.target is None else Status.STALLED
    return Status.STEPS if state.k >= settings.steps else None


def finish(
    mdp: MDP,
    settings: PolicySettings,
    state: LoopState,
    history: list[Step],
    status: Status,
    best_value: Floats | None,
) -> PolicyRun:
    """Evaluate the last policy and certify it; where a bound reached the target, the policy that it is about."""
    policy = state.measured if status is Status.TARGET else state.policy
    V, V_error = policy_values(mdp.under(policy), state.value, state.operator.engine)
    certificate = certify(mdp, V, V_error)
    state.operator.evaluator.finish()
    if settings.target is not None and certificate.error <= settings.target and status is not Status.INTERRUPTED:
        status = Status.TARGET  # the last improvement did it
    return PolicyRun(
        policy, V, *likely_actions(mdp, policy), state.partition,
        state.operator.engine.to_host(state.distance), state.abstract_value, tuple(history), certificate,
        theorem_bounds(mdp, settings, history), status, best_value,
    )  # fmt: skip


def likely_actions(mdp: MDP, policy: Floats) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The most probable choice of each state [S], the first of several, and its name."""
    most = np.maximum.reduceat(policy, mdp.choice_ptr[:-1])
    choices = first_choices(mdp, most[mdp.state_of_choice] <= policy)
    return choices, tuple(mdp.action_name(int(choice)) for choice in choices)


def certify(mdp: MDP, V: Floats, value_error: float) -> Certificate:
    """The best rigorous bound on ‖V* − V^π‖∞ for V = V^π, known up to value_error."""
    residual = certificates.bellman_residual(V, optimal_backup(mdp, V), gamma=mdp.gamma, value_error=value_error)
    anything = certificates.trivial(gamma=mdp.gamma, scale=mdp.reward_span, value_error=2.0 * value_error)
    return certificates.best(residual, anything)


def theorem_bounds(mdp: MDP, settings: PolicySettings, history: list[Step]) -> tuple[Certificate, ...]:
    """The paper's bounds for a run, with its largest δ and the largest distance inside a class."""
    if not history:
        return ()
    gamma, p = mdp.gamma, _order(settings.transport)
    eps = max(step.diameter for step in history) / 2.0
    delta = max(step.delta for step in history)
    scale = mdp.reward_span
    certified = settings.transport.axioms.monotone and settings.transport.axioms.nonexpansive
    alpha = settings.step_size(len(history), gamma=gamma, sweeps=settings.sweeps, p=p)
    common: dict[str, Any] = {
        "gamma": gamma, "sweeps": settings.sweeps, "scale": scale, "early_stop": settings.early_stop,
        "transport_error": max(step.transport_error for step in history),
    }  # fmt: skip
    naive: dict[str, Any] = {"certified_metric": certified, "from_zero": settings.restart_metric, "alpha": alpha}
    exact = isinstance(settings.transport, Exact)
    return (
        certificates.api_converged(eps, delta, **naive, **common),
        certificates.api_limit(eps, delta, **naive, **common),
        certificates.api_alpha_limit(eps, delta, alpha, p=p, exact=exact, warm=not settings.restart_metric, **common),
    )


def _order(transport: Transport) -> float:
    return float(getattr(transport, "p", 1.0))


def _improve(mdp: MDP, settings: PolicySettings, state: LoopState, Q: Floats, TV: Floats) -> tuple[Floats, float]:
    """A greedy policy [N] for Q, noisy where asked, and its δ = ‖T_{π_g} V − T V‖∞."""
    starts = mdp.choice_ptr[:-1]
    greedy = np.zeros(mdp.n_choices)
    # Where actions lead into one class their values differ by rounding only: such ties are broken as is asked for.
    tied = TV - _TIE * float(np.abs(TV).max())
    best = _chosen(mdp, tied[mdp.state_of_choice] <= Q, state.rng if settings.ties == "random" else None)
    greedy[best] = 1.0
    if settings.greedy_noise is None:
        return greedy, float(np.max(TV - Q[best]))
    low, high = settings.greedy_noise
    seen = []
    for _ in range(_NOISE_TRIES):
        noisy = greedy + np.abs(state.rng.normal(0.0, state.noise, mdp.n_choices))
        noisy /= np.add.reduceat(noisy, starts)[mdp.state_of_choice]
        delta = float(np.max(TV - np.add.reduceat(noisy * Q, starts)))
        if low <= delta <= high:
            return noisy, delta
        seen.append(delta)
        state.noise *= _NOISE_STEP if delta < low else 1.0 / _NOISE_STEP
    raise ValueError(
        f"greedy_noise: no noise of {_NOISE_TRIES} tries at step {state.k} gave δ in [{low:g}, {high:g}]; δ between "
        f"{min(seen):.3g} and {max(seen):.3g} were seen. Choose a band inside what the values allow."
    )


def _chosen(mdp: MDP, good: NDArray[np.bool_], rng: np.random.Generator | None) -> NDArray[np.int64]:
    """One good choice of each state [S]: the first, or one at random."""
    if rng is None:
        return first_choices(mdp, good)
    lots = np.where(good, rng.random(mdp.n_choices), -1.0)
    return first_choices(mdp, np.maximum.reduceat(lots, mdp.choice_ptr[:-1])[mdp.state_of_choice] <= lots)
