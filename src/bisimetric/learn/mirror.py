"""Mirror steps: multiplicative updates whose total variation is bounded in every state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_number
from .updates import checked_probabilities, total_variation


class MirrorUpdate(NamedTuple):
    """What a mirror step gives: the new policy [..., A], and of each state η and the TV from the old policy."""

    policy: Tensor
    eta: Tensor
    tv: Tensor


@dataclass(frozen=True)
class MirrorStep:
    """π' ∝ π exp(η Q), with the largest η for which TV(π, π') ≤ max_tv is certain in every state.

        η = (4/s) artanh(max_tv),  s the largest max Q − min Q over the actions that π takes

    *Proof.* Let q = max Q − min Q in a state, over actions with π(a) > 0; q ≤ s. For a set A of actions let p = π(A),
    p' = π'(A). Since exp(ηQ) on A is at most exp(ηq) times what it is anywhere else, p'/(1 − p') ≤ e^{ηq} p/(1 − p), so
    that with the logistic function σ and x = logit(p): p' − p ≤ σ(x + ηq) − σ(x). The right side is largest at
    x = −ηq/2, where it is σ(ηq/2) − σ(−ηq/2) = tanh(ηq/4). Hence TV = max_A (p' − p) ≤ tanh(ηq/4) ≤ tanh(ηs/4) =
    max_tv. ∎

    Two actions with π = σ(∓ηs/2) attain it, so no larger η has this guarantee for all policies. Where all Q are equal,
    where there is one action, or where π takes one, nothing changes; actions that π does not take stay so.
    In floating point TV is within a few units of rounding of the bound.

    Args:
        max_tv: the bound on TV, in (0, 1).
        per_state: an η for each state by its own span; otherwise one for all, by the largest span.
    """

    max_tv: float
    per_state: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < check_number("max_tv", self.max_tv) < 1.0:
            raise ValueError(f"max_tv must be in (0, 1); got {self.max_tv}. At 1 the step is greedy.")

    def __call__(self, policy: Tensor | torch.distributions.Categorical, q: Tensor) -> MirrorUpdate:
        """One step from probabilities [..., A], or a distribution that has them, along values q of the same shape.

        q is not looked at where π = 0.
        """
        probs = checked_probabilities(policy, "policy")
        if not isinstance(q, Tensor):
            raise TypeError(f"q: must be a tensor of values; got {type(q).__name__}.")
        if not probs.numel():
            raise ValueError(f"policy: must have states and actions; got shape {list(probs.shape)}.")
        if q.shape != probs.shape:
            raise ValueError(f"q: must have the shape of the policy, {list(probs.shape)}; got {list(q.shape)}.")
        taken = probs > 0.0
        pi = probs.detach().double()
        pi = pi / pi.sum(-1, keepdim=True)  # of single precision, say
        values = torch.where(taken, q.detach().double(), torch.zeros_like(pi))
        if not bool(torch.isfinite(values).all()):
            raise ValueError("q: values of actions that the policy takes must be finite.")
        unit = values.abs().max()
        scaled = values / torch.where(unit > 0.0, unit, torch.ones_like(unit))  # spans of 1e±300 keep their digits
        top = scaled.masked_fill(~taken, -math.inf).amax(-1, keepdim=True)
        depth = (top - scaled).masked_fill(~taken, 0.0)
        span = depth.amax(-1, keepdim=True)
        if not self.per_state:
            span = span.max().expand_as(span)
        safe = torch.where(span > 0.0, span, torch.ones_like(span))
        strength = 4.0 * math.atanh(self.max_tv)
        weights = pi * torch.exp(-strength * (depth / safe))
        new = weights / weights.sum(-1, keepdim=True)
        new = torch.where(span > 0.0, new, pi)  # equal values, or one action: nothing moves
        eta = torch.where(span > 0.0, strength / safe / unit.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
        tv = total_variation(new, pi)
        return MirrorUpdate(torch.where(span > 0.0, new.to(probs.dtype), probs.detach()), eta[..., 0], tv)
