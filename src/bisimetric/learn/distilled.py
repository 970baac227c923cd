"""Updates of a network that are near the last policy by measurement only: distillation, and a penalty on KL."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from ..checks import check_number, check_whole
from .updates import checked_alpha, checked_probabilities, total_variation


@dataclass(frozen=True)
class KLPenalty:
    """weight · mean over states of KL(π_new ‖ π_old): a term for an actor's loss.

    Heuristic. By Pinsker's inequality TV² ≤ KL/2 state by state, but the loss holds the mean down where the batch is,
    and only against what else is gained; no state's TV is bounded. `total_variation` measures what came out. Logarithms
    of probabilities are cut off at the smallest numbers there are, so where the old policy has a 0 that the new one has
    not, the penalty is large and not infinite.

    Args:
        weight: at least 0.
    """

    weight: float
    guarantee: ClassVar[str] = "heuristic: a penalty on a mean bounds no state's total variation"

    def __post_init__(self) -> None:
        if not 0.0 <= check_number("weight", self.weight) < math.inf:
            raise ValueError(f"weight must be finite and not negative; got {self.weight}.")

    def __call__(self, new: Tensor | Distribution, old: Tensor | Distribution) -> Tensor:
        """The penalty, from probabilities [..., A] or distributions of torch (continuous ones, too)."""
        if isinstance(new, Distribution) and isinstance(old, Distribution):
            return self.weight * torch.distributions.kl_divergence(new, old).mean()
        p, q = checked_probabilities(new, "new"), checked_probabilities(old, "old").detach()
        tiny = torch.finfo(p.dtype).tiny
        ratio = torch.log(p.clamp_min(tiny)) - torch.log(q.clamp_min(tiny))
        return self.weight * (p * ratio).sum(-1).mean()


class Distillation(NamedTuple):
    """How near a distilled policy came: TV from the mixture (largest and mean), and largest TV from the old policy.

    Measured on the observations that were held out; nothing is said of others.
    """

    tv_largest: float
    tv_mean: float
    tv_from_old: float
    steps: int


class Distilled:
    """A single network trained onto (1 − α) π + α π_g, and how far from it that measurably is.

    By cross entropy, with Adam, on given observations. With α = 1 it is trained onto whatever is given, such as a
    `SnapshotMixture` that has grown too large. Unlike `SnapshotMixture` it needs one network only, and has no
    guarantee: what it does away from the observations is measured on those held out, no more.
    """

    def __init__(self, alpha: float, policy: nn.Module) -> None:
        """Begin at a policy, an nn.Module from observations to probabilities [B, A], which is trained in place."""
        if not isinstance(policy, nn.Module):
            raise TypeError(f"policy: distillation trains an nn.Module; got {type(policy).__name__}.")
        self.alpha, self.policy = checked_alpha(alpha), policy

    def __call__(self, observations: Tensor) -> Tensor:
        """π(a|o) [B, A], without gradients."""
        with torch.no_grad():
            return checked_probabilities(self.policy(observations), "policy")

    def update(
        self,
        greedy: nn.Module | Callable[[Tensor], Tensor],
        observations: Tensor,
        held_out: Tensor,
        *,
        steps: int = 500,
        lr: float = 1e-3,
    ) -> Distillation:
        """Train onto the mixture with `greedy` (π_g) and measure the result.

        Args:
            greedy: from observations to probabilities.
            observations: to train on, all of them in each step [N, …]. held_out: to measure on [M, …].
            steps, lr: of Adam.

        Returns:
            A `Distillation`.
        """
        if check_whole("steps", steps) < 0:
            raise ValueError(f"steps must not be negative; got {steps}.")
        if not len(held_out) or not len(observations):
            raise ValueError(
                "observations, held_out: needs at least one observation to train on and one to measure on."
            )
        before = self(held_out)
        with torch.no_grad():
            goal = checked_probabilities(greedy(observations), "greedy")
            goal = (1.0 - self.alpha) * self(observations) + self.alpha * goal
            wanted = (1.0 - self.alpha) * before + self.alpha * checked_probabilities(greedy(held_out), "greedy")
        optimiser = torch.optim.Adam(self.policy.parameters(), lr=lr)
        for _ in range(steps):
            answer = checked_probabilities(self.policy(observations), "policy")
            loss = -(goal * torch.log(answer.clamp_min(torch.finfo(answer.dtype).tiny))).sum(-1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        after = self(held_out)
        off = total_variation(after, wanted)
        return Distillation(float(off.max()), float(off.mean()), float(total_variation(after, before).max()), steps)
