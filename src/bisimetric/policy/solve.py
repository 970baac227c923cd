"""Policy runs: from settings to a result.

A run ends at a step count, at a target bound, when nothing changes any more, or at Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Protocol, Unpack

from numpy.typing import ArrayLike

from ..aggregation import EpsilonCover
from ..checks import check_type, merged
from ..estimate import Counts
from ..kinds import Floats, Keywords
from ..model import MDP
from ..reduction import Lumped, Reduction, lumped
from ..status import Status
from ..transport import Exact
from ..values import best_values, certified_loss, policy_values
from .data import Evidence, loop_settings
from .loop import Begun, Given, LoopState, begin_step, end_step
from .record import likely_actions, theorem_bounds
from .run import PolicyRun, Step
from .settings import DataChanges, PolicySettings

Observer = Callable[[Step, LoopState], None]


def solve_policy(
    mdp: MDP | Counts,
    settings: PolicySettings | None = None,
    *,
    policy: ArrayLike | None = None,
    on_progress: Callable[[Step], None] | None = None,
    **changes: Unpack[DataChanges],
) -> PolicyRun:
    """Run approximate policy iteration on a bisimulation-based aggregation.

    From counts of transitions, the estimated model is solved; the certificate of the result is for the true one, with
    probability 1 − δ (`run.data` has all of it), and values, errors and steps are those of the estimated one.

    Args:
        mdp: the model, or counts of transitions.
        settings: what to do; by default `PolicySettings()`.
        policy: the first one (probabilities per choice, or one action per state), uniform by default.
        on_progress: called with each `Step`; it only reads.
        changes: settings by name that differ from `settings`, such as steps=100; for counts also gamma, delta,
            reward_range and what else `Evidence` has.

    Returns:
        A `PolicyRun`. Ctrl-C ends the run with status INTERRUPTED and what was done.
    """
    check_type("mdp", mdp, MDP, Counts, words="an MDP")
    given: Keywords = dict(changes)
    assumed = {field.name: given.pop(field.name) for field in fields(Evidence) if field.name in given}
    chosen = merged(PolicySettings, settings, given)
    if isinstance(mdp, MDP):
        if assumed:
            raise TypeError(f"{next(iter(assumed))} is for counts of transitions; the model has its own.")
        return PolicyWork(mdp, chosen, policy, observers=progress(on_progress)).result()
    evidence = Evidence(**assumed)
    model = evidence.model(mdp)
    run = PolicyWork(model, loop_settings(chosen), policy, observers=progress(on_progress)).result()
    return evidence.certified(mdp, model, run, chosen.target)


def progress(on_progress: Callable[[Step], None] | None) -> tuple[Observer, ...]:
    """A callback for steps as an observer."""
    return () if on_progress is None else (lambda step, _: on_progress(step),)


class Journal(Protocol):
    """Where a run is written down as it goes on; see `folder`."""

    def restore(self, mdp: MDP, settings: PolicySettings) -> tuple[LoopState | None, list[Step]]:
        """The state to go on from, if there is one, and the steps that led to it."""
        ...

    def before(self, state: LoopState) -> None:
        """A step is about to begin."""
        ...

    def after(self, state: LoopState, step: Step, status: Status | None) -> None:
        """A step is done; the run ends with a status, if there is one."""
        ...

    def interrupted(self, state: LoopState, history: list[Step]) -> list[Step]:
        """Ctrl-C came, perhaps inside a step; returns the steps that count."""
        ...


class PolicyWork:
    """A run under way, in parts: each part ends where the run would wait for a device.

    It is set up when it is made. `go_on` does one part, `interrupt` ends the run as Ctrl-C does, `result` does what is
    left.
    """

    def __init__(
        self,
        mdp: MDP,
        settings: PolicySettings,
        policy: ArrayLike | None = None,
        *,
        observers: tuple[Observer, ...] = (),
        journal: Journal | None = None,
    ) -> None:
        self.settings = settings.for_model(mdp)
        self.reduction, first = first_on_reduced(mdp, self.settings, policy)
        self._observers, self._journal = observers, journal
        small = self.reduction.model
        state, self.history = (None, []) if journal is None else journal.restore(small, self.settings)
        self.state = LoopState.first(small, self.settings, first) if state is None else state
        self.best_value = best_values(small)[0] if self.settings.optimum else None
        self._given = Given(self.reduction, self.settings, self.settings.alphas(small.gamma), self.best_value)
        self.status = self._end_after(self.history[-1]) if self.history else None
        self._begun: Begun | None = None

    def go_on(self) -> bool:
        """Do the next part; returns whether the run has ended."""
        try:
            with self.state.sweeper.guard():
                if self._begun is not None and self._begun.swept():
                    self._end_step(self._begun)
                if self._begun is None and self.status is None:
                    self._begin_step()
        except KeyboardInterrupt:
            self.interrupt()
        return self.status is not None

    def _begin_step(self) -> None:
        if self._journal is not None:
            self._journal.before(self.state)
        self._begun = begin_step(self._given, self.state)

    def _end_step(self, begun: Begun) -> None:
        step = end_step(self._given, self.state, begun)
        self._begun = None
        self.history.append(step)
        status = self._end_after(step)
        if self._journal is not None:
            self._journal.after(self.state, step, status)
        for observe in self._observers:
            observe(step, self.state)
        self.status = status

    def _end_after(self, step: Step) -> Status | None:
        """How the run ends after this step, if it does."""
        settings, state = self.settings, self.state
        if settings.target is not None and step.bound <= settings.target:
            return Status.TARGET
        if state.settled and settings.settle:
            return Status.SETTLED if settings.target is None else Status.STALLED
        return Status.STEPS if state.k >= settings.steps else None

    def interrupt(self) -> None:
        """End the run with what was done."""
        self.status, self._begun = Status.INTERRUPTED, None
        if self._journal is not None:
            self.history = self._journal.interrupted(self.state, self.history)

    def result(self) -> PolicyRun:
        """Do what is left, and give the result."""
        while not self.go_on():
            pass
        with self.state.sweeper.guard():
            try:
                return self._result()
            except KeyboardInterrupt:  # one that comes just now loses nothing
                self.status = Status.INTERRUPTED
                return self._result()

    def _result(self) -> PolicyRun:
        """The last policy, evaluated and certified; where a bound reached the target, the policy that it is about."""
        settings, state, status, small = self.settings, self.state, self.status, self.reduction.model
        assert status is not None
        policy = state.measured if status is Status.TARGET else state.policy
        V, V_error = policy_values(small.under(policy), state.value, state.sweeper.backend)
        certificate = certified_loss(small, V, V_error)
        state.sweeper.solver.finish()
        if settings.target is not None and certificate.error <= settings.target and status is not Status.INTERRUPTED:
            status = Status.TARGET  # the last improvement did it
        run = PolicyRun(
            policy,
            V,
            *likely_actions(small, policy),
            state.partition,
            state.distance.to_host(),
            state.abstract_value,
            tuple(self.history),
            certificate,
            theorem_bounds(small, settings, self.history),
            status,
            self.best_value,
        )
        return run if self.reduction.model is self.reduction.full else _lifted(self.reduction, run)


def first_on_reduced(mdp: MDP, settings: PolicySettings, policy: ArrayLike | None) -> tuple[Reduction[MDP], Floats]:
    """(the model to work on in place of another, the first policy on it)."""
    weights = mdp.uniform_policy() if policy is None else mdp.check_policy(policy)
    exact = isinstance(settings.transport, Exact)
    countable = type(settings.aggregation) is EpsilonCover  # can count a class as often as it has states
    if settings.lump and not (exact and countable):
        raise ValueError("lump=True is exact for Exact transport and EpsilonCover only.")
    if settings.lump is False or not exact or not countable:
        return Reduction(mdp), weights
    reduction = lumped(mdp, "labels", ())  # labels of states do not matter for values
    if not isinstance(reduction, Lumped):
        return reduction, weights
    start = reduction.restrict_policy(weights)
    if start is None:
        if settings.lump:
            raise ValueError("lump=True: the first policy tells bisimilar states apart; use lump=False.")
        return Reduction(mdp), weights
    return reduction, start


def _lifted(reduction: Reduction[MDP], run: PolicyRun) -> PolicyRun:
    """A run on a reduced model as a run on the full one, its policy evaluated and certified there."""
    mdp = reduction.full
    policy = reduction.lift_policy(run.policy)
    V, V_error = policy_values(mdp.under(policy), reduction.lift(run.value))
    choices, actions = likely_actions(mdp, policy)
    return replace(
        run,
        policy=policy,
        value=V,
        choices=choices,
        actions=actions,
        certificate=certified_loss(mdp, V, V_error),
        distance=reduction.expand(run.distance),
        partition=reduction.lift_partition(run.partition),
        abstract_value=reduction.lift(run.abstract_value),
        optimal_value=None if run.optimal_value is None else reduction.lift(run.optimal_value),
    )
