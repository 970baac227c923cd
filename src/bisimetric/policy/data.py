"""Policy runs on data: the estimated model is solved, the policy certified for every model that the data allow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from numpy.typing import ArrayLike

from ..checks import InputError
from ..estimate.counts import Counts, check_delta
from ..estimate.intervals import Design
from ..estimate.policies import certify, policy_on_rows
from ..kinds import Keywords
from ..model import MDP
from ..status import Status
from .run import PolicyRun
from .settings import PolicySettings


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is assumed of data, beside the data themselves.

    Attributes:
        gamma: discount.
        delta: δ, the probability with which the certificate may fail.
        reward_range: (lowest, highest) possible reward.
        exact_rewards: rewards are a function of state and action.
        successors: most states that a row can lead to; None for all.
        design: "adaptive" or "fixed"; None for that of the counts.
        unseen: what the estimated model makes of actions that were never tried: "sink" (the worst) or "absent".
    """

    gamma: float | None = None
    delta: float = 0.05
    reward_range: tuple[float, float] | None = None
    exact_rewards: bool = False
    successors: ArrayLike | None = None
    design: Design | None = None
    unseen: str = "sink"

    def __post_init__(self) -> None:
        check_delta(self.delta)

    @property
    def discount(self) -> float:
        """γ, which must have been given."""
        if self.gamma is None:
            raise InputError("data have no discount.", python="Give gamma.", command="Give --gamma.")
        return self.gamma

    def model(self, counts: Counts) -> MDP:
        """The estimated model; refuses assumptions that the data contradict."""
        discount = self.discount
        counts.confidence(self.delta, **self._sets)
        worst = None if self.unseen == "absent" else counts.reward_range(self.reward_range)[0]
        return counts.model(discount, unseen=self.unseen, worst_reward=worst)

    def certified(self, counts: Counts, model: MDP, run: PolicyRun, target: float | None) -> PolicyRun:
        """A run on the estimated model with its certificate for the true one."""
        weights = policy_on_rows(counts, model, run.policy)
        data = certify(counts, weights, self.delta, gamma=self.discount, **self._sets)
        status = run.status
        if target is not None and status is not Status.INTERRUPTED:
            status = Status.TARGET if data.certificate.error <= target else Status.DATA
        return replace(run, certificate=data.certificate, data=data, status=status)

    @property
    def _sets(self) -> Keywords:
        names = ("reward_range", "exact_rewards", "successors", "design")
        return {name: getattr(self, name) for name in names}


def loop_settings(settings: PolicySettings) -> PolicySettings:
    """Settings of the run on the estimated model: a target is for the certificate, which comes after it."""
    return replace(settings, target=None)
