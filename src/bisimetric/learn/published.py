"""DBC as its public code has it, which is another loss than its paper's.

The code works coordinate by coordinate. With h(x) = x²/2 for |x| < 1 and |x| − 1/2 beyond ("smooth L1"):

    L = mean over pairs and coordinates k of ( h(z_ik − z_jk) − h(r_i − r_j) − γ √((μ_ik − μ_jk)² + (σ_ik − σ_jk)²) )²

Each coordinate is to solve the same equation of one number a state, so further coordinates add nothing, and what no
line can represent is a compromise. Where rewards are equal, near distances solve x²/2 = γ x', not x = γ x': small ones
are blown up to the root of 2γx' at each step, so that states that should coincide may end far apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from ..checks import check_number
from . import batches
from .diagnostics import Diagnostics, span_of
from .gaussian import GaussianW2, coordinate_w2, moments
from .heads import Head, Norm
from .loss import MetricLoss, checked_discount
from .nexts import Next
from .pairs import Shuffled
from .rewards import Reward, SampledRewards


@dataclass(frozen=True)
class PublishedDBC:
    """The loss of DBC's public code (see the module); called like a `MetricLoss`.

    Its pairs are `Shuffled`, its rewards sampled, and the next states of terminal transitions are taken as they come.
    Distances to be scored are those of `head`, the L1 norm.

    Args:
        transition_weight: γ. reward_weight: c_R, 1 in the code; it multiplies rewards.
        reward_span: largest minus smallest reward, for diagnostics.
    """

    transition_weight: float
    reward_weight: float = 1.0
    reward_span: float | None = None

    def __post_init__(self) -> None:
        checked_discount(self.transition_weight)
        if self.reward_span is not None and not 0.0 <= check_number("reward_span", self.reward_span) < math.inf:
            raise ValueError(f"reward_span must be finite and not negative; got {self.reward_span}.")
        if not 0.0 < check_number("reward_weight", self.reward_weight) < math.inf:
            raise ValueError(f"reward_weight must be positive and finite; got {self.reward_weight}.")

    @property
    def _span(self) -> float | None:
        return None if self.reward_span is None else self.reward_weight * self.reward_span

    def _largest(self, span: Tensor) -> Tensor:
        """The largest value h(x) of a fixed point, x solving h(x) = h(span) + γx: W₂ of one coordinate is at most x."""
        first, gamma = _smooth(span), self.transition_weight
        far, near = (first + 0.5) / (1.0 - gamma), gamma + (gamma * gamma + 2.0 * first).sqrt()
        return first + gamma * torch.where(far >= 1.0, far, near)

    @property
    def head(self) -> Head:
        """How its embeddings are compared."""
        return Norm(1.0)

    def __call__(
        self,
        z: Tensor,
        z_target: Tensor | None,
        reward: Reward,
        next: Next,
        done: Tensor,
        *,
        absorbing: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Diagnostics]:
        """The loss of a batch; arguments as for `MetricLoss`, of which `z_target`, `done` and `absorbing` have no say.

        next: `GaussianNext` or `CategoricalNext`; or predictions [B, D], of which the code takes h in place of W₂ where
        its transition_model_type is ''. For 'deterministic' it takes |Δμ|: a `GaussianNext` with deviations of 0.
        """
        del absorbing
        rewards = SampledRewards()
        batch = batches.checked(z, z_target, reward, next, done, rewards)
        partner = Shuffled().partners(len(z), z.device, generator)
        values = _smooth(z - z[partner])
        with torch.no_grad():
            following = batch.following
            if isinstance(following, Tensor):
                ahead = _smooth(following[:, 0] - following[partner, 0])
            else:
                ahead = coordinate_w2(moments(GaussianW2(), following), partner)
            delta = _smooth(self.reward_weight * (batch.reward[0] - batch.reward[0][partner]))
            target = delta[:, None] + self.transition_weight * ahead
        loss = (values - target).square().mean()
        if not bool(torch.isfinite(loss)):
            batches.blame(batch)
        with torch.no_grad():
            mean = values.mean()
            return loss, Diagnostics(
                loss=loss.detach(),
                mean=mean,
                target=target.mean(),
                apart=mean,
                top=values.max(),
                largest=self._largest(span_of(self.reward_weight * batch.reward[0], self._span)),
                ceiling=self.head.ceiling,
                span_known=self.reward_span is not None,
            )


Loss: TypeAlias = "MetricLoss | PublishedDBC"  # what is called like a loss of learned metrics


def _smooth(x: Tensor) -> Tensor:
    """h(x), PyTorch's smooth L1."""
    return smooth_l1_loss(x, torch.zeros_like(x), reduction="none")
