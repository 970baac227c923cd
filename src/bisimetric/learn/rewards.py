"""Distances of rewards, ΔR: from samples, from means, or from samples less their variance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor


class RewardMoments(NamedTuple):
    """Sampled rewards [B], and the variance [B] that they were drawn with (of a model, say)."""

    sample: Tensor
    variance: Tensor


Reward: TypeAlias = "Tensor | RewardMoments"


@dataclass(frozen=True)
class RewardDistance(ABC):
    """ΔR of two states, from what is given of their rewards."""

    def check(self, reward: Reward) -> tuple[Tensor, ...]:
        """The tensors [B] that are in it; refuses what this distance cannot use."""
        if not isinstance(reward, Tensor):
            raise TypeError(
                f"reward: {type(self).__name__} takes one tensor [B]; got {type(reward).__name__}. "
                "VarianceCorrected() takes RewardMoments."
            )
        return (reward,)

    @abstractmethod
    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Tensor:
        """ΔR of tensors that broadcast."""


@dataclass(frozen=True)
class SampledRewards(RewardDistance):
    """|r_i − r_j| of sampled rewards: E|r − r'| in the mean, more than |R_i − R_j| where rewards are random."""

    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Tensor:
        return (left[0] - right[0]).abs()


@dataclass(frozen=True)
class MeanRewards(RewardDistance):
    """|R_i − R_j| of mean rewards, which the caller has from a model of them: the π-bisimulation metric's."""

    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Tensor:
        return (left[0] - right[0]).abs()


@dataclass(frozen=True)
class VarianceCorrected(RewardDistance):
    """√max((r_i − r_j)² − v_i − v_j, 0) of samples with variances, since E(r_i − r_j)² = (R_i − R_j)² + v_i + v_j.

    The square is unbiased; the root of what is left after cutting at 0 is not (for noise much larger than the
    difference of means it stays above it). Ref.: Chen and Pan, RAP (NeurIPS 2022).
    """

    def check(self, reward: Reward) -> tuple[Tensor, ...]:
        if not isinstance(reward, RewardMoments):
            raise TypeError("reward: VarianceCorrected() takes RewardMoments(sample, variance); got a plain tensor.")
        if not isinstance(reward.variance, Tensor):
            raise TypeError(f"reward: variances must be a tensor [B]; got {type(reward.variance).__name__}.")
        if not bool(((reward.variance >= 0.0) & (reward.variance < torch.inf)).all()):
            raise ValueError("reward: variances must be finite and not negative.")
        return tuple(reward)

    def between(self, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> Tensor:
        square = (left[0] - right[0]).square() - left[1] - right[1]
        return square.clamp_min(0.0).sqrt()  # which keeps what is no number
