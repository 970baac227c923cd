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

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..aggregation import Partition, classes_of
from ..backends.protocol import Distances, Pending, Swept
from ..certificates import Certificate
from ..kinds import Floats
from ..model import MDP, Chain
from ..reduction import Reduction
from ..values import abstract_values, certified_loss, policy_values, solved_on_host
from .greedy import Greedy, improve
from .record import recorded
from .run import Step
from .settings import PolicySettings
from .small_models import Measure, distances_like, measure_of


@dataclass
class LoopState:
    """Everything that the next step depends on. Belongs to one run."""

    k: int
    policy: Floats  # [N], π_k
    measured: Floats  # [N], the policy whose chain the sweeper is on
    distance: Distances  # d̂
    sweeper: Measure
    rng: np.random.Generator
    noise: float  # σ
    value: Floats  # [S], V^π_k or a start for it
    partition: Partition
    abstract_value: Floats  # [S], Ṽ_Φ of the last step
    settled: bool = False

    @classmethod
    def first(cls, mdp: MDP, settings: PolicySettings, policy: Floats) -> LoopState:
        """The state before the first step: d̂ = 0."""
        settings.alphas(mdp.gamma)(1)  # may refuse
        chain, n = mdp.under(policy), mdp.n_states
        sweeper = measure_of(chain, settings)
        with sweeper.guard():
            nothing = distances_like(sweeper, None, n)
        one_class = Partition.from_classes(np.zeros(n, np.int64))
        rng = np.random.default_rng(settings.seed)
        return cls(0, policy, policy, nothing, sweeper, rng, 0.1, np.zeros(n), one_class, np.zeros(n))


class Given(NamedTuple):
    """What stays the same from step to step.

    Where the model is reduced, its states count as often as they stand for states.
    """

    reduction: Reduction[MDP]
    settings: PolicySettings
    alphas: Callable[[int], float]  # α of each step, counted from 1
    best_value: Floats | None  # V*, where wanted


class Clock:
    """Seconds since it was made, and those that the metric took of them."""

    def __init__(self) -> None:
        self._began, self.metric_seconds = time.perf_counter(), 0.0

    @contextmanager
    def metric(self) -> Iterator[None]:
        """What is done in this context is the metric's."""
        began = time.perf_counter()
        yield
        self.metric_seconds += time.perf_counter() - began

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


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


def begin_step(given: Given, state: LoopState) -> Begun:
    """Start the sweeps of a step and evaluate π_k; of the state only the sweeper changes, which goes on with π_k."""
    mdp, settings, clock, sweeper = given.reduction.model, given.settings, Clock(), state.sweeper
    chain = mdp.under_checked(state.policy)

    def start_sweeps() -> Pending:
        with clock.metric():
            sweeper.follow(chain)
            assert settings.early_stop is not None  # filled in by `for_model`
            start = state.distance.zeros() if settings.restart_metric else state.distance
            return sweeper.start(start, settings.sweeps, settings.early_stop)

    # A device sweeps while the host solves for V; values that the device itself iterates would wait for its sweeps.
    sweeping = start_sweeps() if solved_on_host(chain) else None
    V, V_error = policy_values(chain, state.value, sweeper.backend)
    bound = certified_loss(mdp, V, V_error)
    return Begun(chain, V, bound, start_sweeps() if sweeping is None else sweeping, clock)


class Found(NamedTuple):
    """What the second half of a step found."""

    swept: Swept  # d̂
    partition: Partition  # Φ
    V_abstract: Floats  # Ṽ_Φ
    greedy: Greedy  # π_g
    alpha: float


def end_step(given: Given, state: LoopState, begun: Begun) -> Step:
    """The rest of a step; changes `state` (but for its generator) only once all of it is known."""
    reduction, settings, policy = given.reduction, given.settings, state.policy
    with begun.clock.metric():
        swept = begun.sweeping.result()
    partition = classes_of(settings.aggregation, swept.distance, reduction.sizes)
    V_abstract = abstract_values(begun.chain, partition, state.abstract_value, reduction.sizes, state.sweeper.backend)
    greedy = improve(reduction.model, V_abstract, settings, state.rng, noise=state.noise, k=state.k)
    alpha = _step_size(given, state.k, begun.bound)
    new_policy = mixed(policy, greedy.policy, alpha)

    found = Found(swept, partition, V_abstract, greedy, alpha)
    step, settled = recorded(given, state, begun, found), _settled(settings, state, found)
    after = replace(
        state,
        k=state.k + 1,
        policy=new_policy,
        measured=policy,
        distance=swept.distance,
        noise=greedy.noise,
        value=begun.V,
        partition=partition,
        abstract_value=V_abstract,
        settled=settled,
    )
    vars(state).update(vars(after))  # all at once: Ctrl-C finds the state before the step, or the one after it
    return step


def mixed(policy: Floats, greedy: Floats, alpha: float) -> Floats:
    """(1 − α) π + α π_g."""
    return (1.0 - alpha) * policy + alpha * greedy if alpha < 1.0 else greedy


def _step_size(given: Given, k: int, bound: Certificate) -> float:
    """α_k; 0 where the policy meets the target, as it is the answer then."""
    alpha, target = given.alphas(k + 1), given.settings.target
    return 0.0 if target is not None and bound.error <= target else alpha


def _settled(settings: PolicySettings, state: LoopState, found: Found) -> bool:
    """Whether policy, distances and classes have stopped changing."""
    ahead = float(np.abs(found.greedy.policy - state.policy).max())
    return ahead <= 1e-12 and found.swept.change <= (settings.early_stop or 0.0) and found.partition == state.partition
