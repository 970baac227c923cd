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

A step is done in two halves, `begin_step` and `end_step`, between which a device may sweep for it while the host works
for another run (see `batch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..aggregation import Partition, classes_of
from ..backends.protocol import Distances, Pending, Sweeper
from ..certificates import Certificate
from ..kinds import Bools, Floats, Ints
from ..metric.operator import sweeper_of
from ..model import MDP, Chain
from ..reduction import Reduction
from ..values import abstract_values, choice_values, first_choices, policy_values, solved_on_host
from .record import Clock, abstract_error, agreement, certify
from .run import Step
from .settings import PolicySettings

_NOISE_TRIES = 400
_NOISE_STEP = 1.25
_TIE = 1e-10  # values closer than this part of the largest one are tied


@dataclass
class LoopState:
    """Everything that the next step depends on. Belongs to one run."""

    k: int
    policy: Floats  # [N], π_k
    measured: Floats  # [N], the policy whose chain the sweeper is on
    distance: Distances  # d̂
    sweeper: Sweeper
    rng: np.random.Generator
    noise: float  # σ
    value: Floats  # [S], V^π_k or a start for it
    partition: Partition
    abstract_value: Floats  # [S], Ṽ_Φ of the last step
    settled: bool = False

    @classmethod
    def first(cls, mdp: MDP, settings: PolicySettings, policy: Floats) -> LoopState:
        """The state before the first step: d̂ = 0."""
        settings.alpha(1, mdp.gamma)  # may refuse
        chain, n = mdp.under(policy), mdp.n_states
        sweeper = sweeper_of(chain, settings.metric.for_model(chain))
        with sweeper.guard():
            nothing = sweeper.backend.zeros(n)
        one_class = Partition.from_classes(np.zeros(n, np.int64))
        rng = np.random.default_rng(settings.seed)
        return cls(0, policy, policy, nothing, sweeper, rng, 0.1, np.zeros(n), one_class, np.zeros(n))


class Begun(NamedTuple):
    """The first half of a step: π_k is evaluated, and its metric is under way."""

    chain: Chain
    V: Floats  # V^π_k
    bound: Certificate  # on ‖V* − V^π_k‖∞
    sweeping: Pending
    clock: Clock

    def swept(self) -> bool:
        """Wait for the sweeps that were started, and start more if that is needed; returns whether all are done."""
        with self.clock.metric():
            return self.sweeping.go_on()


def begin_step(mdp: MDP, settings: PolicySettings, state: LoopState) -> Begun:
    """Start the sweeps of a step and evaluate π_k; of the state only the sweeper changes, which goes on with π_k."""
    clock, sweeper = Clock(), state.sweeper
    chain = mdp.under(state.policy)

    def start_sweeps() -> Pending:
        with clock.metric():
            sweeper.follow(sweeper.comparison.of_chain(chain))
            assert settings.early_stop is not None  # filled in by `for_model`
            start = state.distance.zeros() if settings.restart_metric else state.distance
            return sweeper.start(start, settings.sweeps, settings.early_stop)

    # A device sweeps while the host solves for V; values that the device itself iterates would wait for its sweeps.
    sweeping = start_sweeps() if solved_on_host(chain) else None
    V, V_error = policy_values(chain, state.value, sweeper.backend)
    bound = certify(mdp, V, V_error)
    return Begun(chain, V, bound, start_sweeps() if sweeping is None else sweeping, clock)


def end_step(
    reduction: Reduction[MDP], settings: PolicySettings, state: LoopState, begun: Begun, best_value: Floats | None
) -> Step:
    """The rest of a step; changes `state` (but for its generator and noise) only once all of it is known.

    Where the model is reduced, its states count as often as they stand for states.
    """
    mdp, (chain, V, bound, sweeping, clock) = reduction.model, begun
    with clock.metric():
        swept = sweeping.result()
    d = swept.distance
    partition = classes_of(settings.aggregation, d, reduction.sizes)
    V_abstract = abstract_values(chain, partition, state.abstract_value, reduction.sizes, state.sweeper.backend)
    greedy, delta = improve(mdp, settings, state, V_abstract)
    alpha = settings.alpha(state.k + 1, mdp.gamma)
    if settings.target is not None and bound.error <= settings.target:
        alpha = 0.0  # the policy that meets the target is the answer
    new_policy = (1.0 - alpha) * state.policy + alpha * greedy if alpha < 1.0 else greedy

    nmi, purity = agreement(reduction, partition)
    step = Step(
        k=state.k,
        error=None if best_value is None else float(np.abs(best_value - V).max()),
        bound=bound.error,
        metric_gap=d.gap_to(V),
        n_classes=partition.n_classes,
        diameter=partition.diameter,
        delta=delta,
        alpha=alpha,
        sweeps=swept.sweeps,
        change=swept.change,
        transport_error=swept.transport_error,
        iterations=swept.iterations,
        abstract_error=abstract_error(chain, V_abstract),
        nmi=nmi,
        purity=purity,
        seconds=clock.seconds,
        metric_seconds=clock.metric_seconds,
    )
    ahead = float(np.abs(greedy - state.policy).max())
    still = ahead <= 1e-12 and swept.change <= (settings.early_stop or 0.0) and partition == state.partition
    vars(state).update(  # all at once: Ctrl-C finds the state before the step, or the one after it
        k=state.k + 1,
        policy=new_policy,
        measured=state.policy,
        distance=d,
        value=V,
        partition=partition,
        abstract_value=V_abstract,
        settled=still,
    )
    return step


def improve(mdp: MDP, settings: PolicySettings, state: LoopState, V: Floats) -> tuple[Floats, float]:
    """A greedy policy [N] for V, noisy where asked, and its δ = ‖T_{π_g} V − T V‖∞."""
    starts = mdp.choice_ptr[:-1]
    Q = choice_values(mdp, V)
    TV = np.maximum.reduceat(Q, starts)
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


def _chosen(mdp: MDP, good: Bools, rng: np.random.Generator | None) -> Ints:
    """One good choice of each state [S]: the first, or one at random."""
    if rng is None:
        return first_choices(mdp, good)
    lots = np.where(good, rng.random(mdp.n_choices), -1.0)
    return first_choices(mdp, np.maximum.reduceat(lots, mdp.choice_ptr[:-1])[mdp.state_of_choice] <= lots)
