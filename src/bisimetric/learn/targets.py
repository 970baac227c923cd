"""Whose embeddings targets are made of: the encoder itself, or a slower copy of it; and bounds on norms.

Fixed-point steps are taken on what the target encoder says of next states. With the encoder itself (`Online`) that
moves with every gradient step; a moving average moves more slowly, which damps the iteration.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from ..checks import check_number
from .heads import Head
from .loss import checked_discount
from .norms import norm_of

_FAR = 1e15  # sizes of coordinates beyond which norms are worked out in a unit


class Online:
    """Targets by the encoder itself, without gradients."""

    def __init__(self, encoder: nn.Module) -> None:
        self.encoder = encoder

    def __call__(self, *observations: Any) -> Tensor:
        with torch.no_grad():
            return self.encoder(*observations)

    def update(self) -> None:
        """Nothing to do: there is one encoder."""


class MovingAverage:
    """Targets by an exponential moving average of an encoder: after each step θ̄ ← (1 − τ) θ̄ + τ θ.

    Buffers (of normalisation layers, say) are copied. τ = 1 is a copy as of the last `update`.
    """

    def __init__(self, encoder: nn.Module, tau: float = 0.005) -> None:
        """Begin with a copy of `encoder`; tau in (0, 1] is the share that one update takes over."""
        if not 0.0 < check_number("tau", tau) <= 1.0:
            raise ValueError(f"tau must be in (0, 1]; got {tau}.")
        self.online, self.tau = encoder, tau
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)

    def __call__(self, *observations: Any) -> Tensor:
        with torch.no_grad():
            return self.encoder(*observations)

    def update(self) -> None:
        """Move towards the encoder; to be called after each step of its optimiser."""
        with torch.no_grad():
            for slow, fast in zip(self.encoder.parameters(), self.online.parameters(), strict=True):
                slow.lerp_(fast.to(slow), self.tau)
            for kept, new in zip(self.encoder.buffers(), self.online.buffers(), strict=True):
                kept.copy_(new)


def norm_bound(head: Head, transition_weight: float, reward_span: float, reward_weight: float = 1.0) -> float:
    """The norm within which a head's values stay at most c_R·span/(1 − c_T), the largest of a fixed point.

    That is half of it for `Norm` (two points of a ball are at most two radii apart), its root for `Diffuse` (to which
    angles add up to βπ), the root of the level for `Kernel`, 1 for `Cosine`. For `Norm(p)` the bound is sufficient, not
    necessary: it may keep the embedding from some metrics, which need a ball of up to twice that radius: so do those in
    which a terminal state at the origin is as far from others as it can be. `reward_span` is that of all rewards, the 0
    after the end among them. Ref.: Kemertas and Aumentado-Armstrong, Towards robust bisimulation metric learning
    (NeurIPS 2021).
    """
    checked_discount(transition_weight)
    for name, value in (("reward_span", reward_span), ("reward_weight", reward_weight)):
        if not 0.0 <= check_number(name, value) < math.inf:
            raise ValueError(f"{name} must be finite and not negative; got {value}.")
    return head.norm_for(reward_weight * reward_span / (1.0 - transition_weight))


class Ball(nn.Module):
    """Pulls embeddings into a ball: z · min(1, radius/‖z‖_p). As the last layer of an encoder it bounds its norms."""

    def __init__(self, radius: float, p: float = 2.0) -> None:
        """A ball of a positive radius, in the norm of order p ≥ 1 (that of the head)."""
        super().__init__()
        if not 0.0 < check_number("radius", radius) < math.inf or not check_number("p", p) >= 1.0:
            raise ValueError(f"Ball: needs a positive, finite radius and p ≥ 1; got {radius} and {p}.")
        self.radius, self.p = radius, p

    def forward(self, z: Tensor) -> Tensor:
        """Embeddings [..., D], those outside moved to the sphere."""
        most = z.detach().abs().amax(-1, keepdim=True)
        unit = torch.where(most > _FAR, most, torch.ones_like(most))  # powers of what is far outside overflow
        size = norm_of(z / unit, self.p)[..., None]
        outside = size * unit > self.radius
        pulled = (z / unit) * (self.radius / torch.where(outside, size, torch.ones_like(size)))
        return torch.where(outside, pulled, z)

    def extra_repr(self) -> str:
        """The settings."""
        return f"radius={self.radius:g}, p={self.p:g}"
