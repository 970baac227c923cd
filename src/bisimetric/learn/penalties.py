"""Penalties ρ: what a loss makes of the difference between a value and its target."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import huber_loss, mse_loss

from ..checks import check_number


@dataclass(frozen=True)
class Penalty(ABC):
    """ρ of residuals, with ρ(0) = 0."""

    @abstractmethod
    def __call__(self, values: Tensor, target: Tensor) -> Tensor:
        """The sum of ρ(value − target)."""


@dataclass(frozen=True)
class Square(Penalty):
    """ρ(x) = x²: its minimiser is the mean of noisy targets, so that samples do not bias it."""

    def __call__(self, values: Tensor, target: Tensor) -> Tensor:
        return mse_loss(values, target, reduction="sum")


@dataclass(frozen=True)
class Huber(Penalty):
    """ρ(x) = x²/2 up to |x| = delta, and linear beyond.

    Its minimiser lies between mean and median of noisy targets: with samples it is biased where they are skewed.

    Args:
        delta: where it becomes linear, positive.
        scale: residuals are multiplied by it first.
    """

    delta: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("delta", "scale"):
            if not 0.0 < check_number(name, getattr(self, name)) < math.inf:
                raise ValueError(f"Huber: {name} must be positive and finite; got {getattr(self, name)}.")

    def __call__(self, values: Tensor, target: Tensor) -> Tensor:
        return huber_loss(self.scale * values, self.scale * target, reduction="sum", delta=self.delta)
