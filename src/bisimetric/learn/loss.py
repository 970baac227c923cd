"""The loss of a learned metric, one family with its axes as parts.

    L = mean over pairs of ρ( D(φ_i, φ_j) − stop_gradient[ c_R ΔR_ij + c_T T(D)(P_i, P_j) ] )

With a head that can represent it and exact targets, its minimum is the fixed point of U = c_R ΔR + c_T T(U), and
gradient steps are a damped fixed-point iteration. With sampled targets ρ = `Square` keeps the same minimum, because the
mean of a square is least at the mean; other penalties move it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_number, check_type
from . import batches
from .batches import Batch
from .couplings import Coupling
from .diagnostics import Diagnostics, span_of
from .heads import Head
from .nexts import Next, NotFiniteError
from .pairs import AllPairs, Pairs, Shuffled
from .penalties import Penalty, Square
from .rewards import Reward, RewardDistance, SampledRewards


def checked_discount(weight: float) -> float:
    """c_T in [0, 1)."""
    if not 0.0 <= check_number("transition_weight", weight) < 1.0:
        raise ValueError(f"transition_weight (the discount) must be in [0, 1); got {weight}.")
    return float(weight)


class HeadCeilingWarning(UserWarning):
    """The head of a loss cannot represent distances as large as its fixed point may have."""


@dataclass(frozen=True)
class MetricLoss:
    """A loss that trains an encoder so that its distances obey a bisimulation metric's equation.

    Call it: `loss, diagnostics = metric_loss(z, z_target, reward, next, done)`.

    Attributes:
        head: D, how two embeddings become a number (`Norm`, `Diffuse`, `Kernel`, `Cosine`).
        coupling: T, how next states are compared (`Independent`, `GaussianW2`, `Particles`, `Categorical`).
        transition_weight: c_T in [0, 1), the weight of the next states: the discount, γⁿ for n-step returns.
        reward_weight: c_R > 0, the weight of reward differences.
        rewards: ΔR (`SampledRewards`, `MeanRewards`, `VarianceCorrected`).
        penalty: ρ (`Square`, `Huber`).
        pairs: `AllPairs()` or `Shuffled()`.
        reward_span: largest minus smallest reward of the problem; where episodes end in terminal states, with the
            reward 0 after the end among them (CartPole's is 1). Given, the head's ceiling is checked against the
            largest possible distance, c_R·span/(1 − c_T), with a `HeadCeilingWarning`; diagnostics are shares of that.
        against: whose embeddings D compares those of z with, "online" (z itself) or "target" (z_target, as MICo's
            code).
        terminals: "absorbing" (a state of its own with reward 0) or "ignored" (as published codes do).
    """

    head: Head
    coupling: Coupling
    transition_weight: float
    reward_weight: float = 1.0
    rewards: RewardDistance = field(default_factory=SampledRewards)
    penalty: Penalty = field(default_factory=Square)
    pairs: Pairs = field(default_factory=AllPairs)
    reward_span: float | None = None
    against: str = "online"
    terminals: str = "absorbing"

    def __post_init__(self) -> None:
        kinds = {"head": Head, "coupling": Coupling, "rewards": RewardDistance, "penalty": Penalty, "pairs": Pairs}
        for name, kind in kinds.items():
            check_type(name, getattr(self, name), kind)
        checked_discount(self.transition_weight)
        if not 0.0 < check_number("reward_weight", self.reward_weight) < math.inf:
            raise ValueError(f"reward_weight must be positive and finite; got {self.reward_weight}.")
        if self.against not in ("online", "target"):
            raise ValueError(f'against must be "online" or "target"; got {self.against!r}.')
        if self.terminals not in ("absorbing", "ignored"):
            raise ValueError(f'terminals must be "absorbing" or "ignored"; got {self.terminals!r}.')
        if self.reward_span is not None:
            if not 0.0 <= check_number("reward_span", self.reward_span) < math.inf:
                raise ValueError(f"reward_span must be finite and not negative; got {self.reward_span}.")
            self._warn_of_ceiling(self.largest(self.reward_span))

    def _warn_of_ceiling(self, largest: float) -> None:
        if self.head.ceiling < largest * (1.0 - 1e-9):
            warnings.warn(
                f"head: {self.head} represents distances up to {self.head.ceiling:.4g}, and the fixed point may reach "
                f"{largest:.4g} = c_R·span/(1 − c_T). Scale rewards (reward_weight), or take a head without a ceiling.",
                HeadCeilingWarning,
                stacklevel=4,
            )

    def largest(self, span: float) -> float:
        """c_R · span / (1 − c_T): no fixed point has a larger value."""
        return self.reward_weight * span / (1.0 - self.transition_weight)

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
        """The loss of a batch, and what it says about the embeddings.

        Args:
            z: embeddings of the states, with gradients [B, D].
            z_target: embeddings of the same states by the target encoder [B, D]; None for z itself. Only
                against="target" compares with them.
            reward: rewards [B], or `RewardMoments`.
            next: next states in the space of embeddings (of the target encoder, or of a model): samples [B, D] or
                [B, n, D], `GaussianNext`, or `CategoricalNext`. No gradient goes there.
            done: whether a transition ended in a terminal state, booleans [B]; with n samples of each state also of
                each sample [B, n]. Beside a distribution, which is that of transitions that go on, the chance of an
                end [B] where that is a matter of chance: booleans say that it is certain.
            absorbing: embedding of the state after the end [D]; by default the origin, where the head allows it.
            generator: of `Shuffled` pairs.

        Returns:
            (loss, diagnostics). Cost with `AllPairs`: memory O(B² + B·D) beside the coupling's.
        """
        batch = batches.checked(z, z_target, reward, next, done, self.rewards)
        if self.terminals == "absorbing":
            batch = batches.with_terminals(batch, done, absorbing, at_origin=self.head.translates)
        try:
            values, target, unknown = self._pairs(batch, len(z), generator)
        except NotFiniteError:
            batches.blame(batch)
        # Residuals of 0 where the value of a state with itself is not known, and with them no gradients.
        own = values.detach()[*unknown]
        unseen = 0.0 * (own.sum() + target[*unknown].sum())  # no number where something is not finite
        target[*unknown] = own
        totals = _Totals.of(values.detach(), target, own)
        loss = self.penalty(values, target) / totals.number
        if not bool(torch.isfinite(loss.detach() + unseen)):
            batches.blame(batch)
        return loss, self._diagnostics(loss, totals, values.detach(), batch)

    def _pairs(
        self, batch: Batch, states: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """(values, targets, places of those that do not count) of the chosen pairs.

        These are of states with themselves, where nothing is known of that; of the first `states` at most: where the
        absorbing state goes is certain.
        """
        other = batch.z if self.against == "online" else batch.z_target
        c_R, c_T = self.reward_weight, self.transition_weight
        counted = self.pairs.diagonal if isinstance(self.pairs, AllPairs) else None
        if counted is None:
            counted = self.coupling.knows_diagonal(self.head, batch.following)
        unknown = 0 if counted else len(batch) if self.head.zero_diagonal else states
        places = torch.arange(unknown, device=batch.z.device)
        if isinstance(self.pairs, Shuffled):
            partner = self.pairs.partners(len(batch), batch.z.device, generator)
            values = self.head.paired_values(batch.z, other[partner])
            with torch.no_grad():
                delta = self.rewards.between(batch.reward, tuple(value[partner] for value in batch.reward))
                target = c_R * delta + c_T * self.coupling.paired(self.head, batch.following, partner)
            return values, target, (places[partner[:unknown] == places],)
        values = self.head.values(batch.z, other)
        with torch.no_grad():
            left = tuple(value[:, None] for value in batch.reward)
            delta = self.rewards.between(left, tuple(value[None, :] for value in batch.reward))
            target = (c_R * delta).add_(self.coupling.square(self.head, batch.following), alpha=c_T)
        return values, target, (places, places)

    def _diagnostics(self, loss: Tensor, totals: _Totals, values: Tensor, batch: Batch) -> Diagnostics:
        with torch.no_grad():
            apart = self._apart(totals, batch, matrix=values.ndim == 2)
            return Diagnostics(
                loss=loss.detach(),
                mean=totals.values / totals.number,
                target=totals.target / totals.number,
                apart=apart,
                top=values.max(),
                largest=self.largest(1.0) * span_of(batch.reward[0], self.reward_span),
                ceiling=self.head.ceiling,
                span_known=self.reward_span is not None,
            )

    def _apart(self, totals: _Totals, batch: Batch, *, matrix: bool) -> Tensor:
        """The mean distance of two different states of the batch."""
        B = len(batch)
        if not matrix:
            return self.head.paired_distances(batch.z, batch.z.roll(1, 0)).mean()
        if self.against == "target":
            return self.head.distances(batch.z, batch.z).sum() / (B * (B - 1))
        if self.head.zero_diagonal:
            return totals.between / (B * (B - 1))
        return (totals.between / (B - 1) - totals.own) / B  # of values less half of both states' own


class _Totals(NamedTuple):
    """Sums over pairs that count, their number, and sums of values of two different states and of states by themselves.

    The last two are 0 where there are no matrices of pairs.
    """

    values: Tensor
    target: Tensor
    number: int
    between: Tensor
    own: Tensor

    @classmethod
    def of(cls, values: Tensor, target: Tensor, left_out: Tensor) -> _Totals:
        """`left_out`: values, and targets, of pairs that do not count."""
        total, wanted, without = values.sum(), target.sum(), left_out.sum()
        number = max(values.numel() - left_out.numel(), 1)
        if values.ndim == 1:
            return cls(total - without, wanted - without, number, torch.zeros_like(total), torch.zeros_like(total))
        own = values.diagonal().sum()
        return cls(total - without, wanted - without, number, total - own, own)
