"""What a step of a loss says about the embeddings: scalars for any logger, and what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Diagnostics:
    """How embeddings stand to their targets in one batch; read only, and without gradients.

    Attributes (tensors without axes, so that nothing waits for a device; `scalars` makes numbers of them):
        loss: the loss.
        mean: mean value of a pair, what the head says.
        target: mean target of a pair.
        apart: mean distance of two different states.
        top: largest value.
        largest: the largest value of a fixed point (c_R · span / (1 − c_T) for a `MetricLoss`); see `span_of`.
        ceiling: the largest distance that the head can represent.
        span_known: whether the span was given.
    """

    loss: Tensor
    mean: Tensor
    target: Tensor
    apart: Tensor
    top: Tensor
    largest: Tensor
    ceiling: float
    span_known: bool

    @property
    def spread(self) -> Tensor:
        """Mean distance of two different states, as a share of `largest`."""
        return self.apart / self._unit

    @property
    def collapse(self) -> Tensor:
        """How far mean values stay below their targets, 0 (not at all) to 1 (all embeddings at one point)."""
        lack = (1.0 - self.mean / torch.where(self.target > 0.0, self.target, 1.0)).clamp(0.0, 1.0)
        return torch.where(self.target > 0.0, lack, 0.0)

    @property
    def explosion(self) -> Tensor:
        """Largest value, as a share of `largest`; no fixed point has more than 1."""
        return self.top / self._unit

    @property
    def bias(self) -> Tensor:
        """Mean of value − target, as a share of `largest`."""
        return (self.mean - self.target) / self._unit

    @property
    def _unit(self) -> Tensor:
        """What shares are of: no number where the largest value is not known, and 1 where it is 0."""
        return torch.where(self.largest == 0.0, 1.0, self.largest)

    def scalars(self) -> dict[str, float]:
        """All numbers by name, for a logger."""
        names = ("loss", "mean", "target", "spread", "collapse", "explosion", "bias", "largest")
        return {name: float(getattr(self, name)) for name in names}

    @property
    def advice(self) -> tuple[str, ...]:
        """What to change, where something should be."""
        return tuple(self._advice())

    def _advice(self) -> Iterator[str]:
        now = self.scalars()
        if math.isnan(now["largest"]):
            yield "the rewards of this batch are equal, so shares of the largest value are not known: give reward_span="
        if now["explosion"] > 1.05:
            source = "" if self.span_known else " by the rewards of this batch; give reward_span="
            yield (
                f"values reach {now['explosion']:.3g} times the largest of any fixed point{source}: "
                "bound the norms (Ball), or lower the learning rate"
            )
        if now["collapse"] > 0.5 and now["target"] > 0.0:
            yield (
                f"values are {100 * now['collapse']:.0f} % below their targets: embeddings are collapsing; raise the "
                "weight or the learning rate of this loss, or check the encoder's last layer"
            )
        elif now["bias"] > 0.25:
            yield (
                f"values are above their targets by {now['bias']:.2g} of the largest: embeddings start too far apart; "
                "begin nearer together, or raise the weight of this loss"
            )
        if now["target"] == 0.0:
            yield "all targets are 0: the rewards of the batch are equal, and next states lie at one point"
        if self.ceiling < now["largest"]:
            yield (
                f"the head represents distances up to {self.ceiling:.3g} and the fixed point may reach "
                f"{now['largest']:.3g}: scale the rewards, or take Norm, or Kernel with a higher level"
            )


def span_of(reward: Tensor, given: float | None) -> Tensor:
    """The span of rewards: the one given, or that of the batch; no number where these are all equal."""
    if given is not None:
        return reward.new_tensor(given)
    seen = reward.max() - reward.min()
    return torch.where(seen > 0.0, seen, math.nan)
