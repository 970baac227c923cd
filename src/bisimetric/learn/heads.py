"""Heads: how two embeddings become a number D(φ_x, φ_y).

A head has two numbers for a pair. `values` is what a loss compares with its target: it obeys the fixed-point equation
U = c_R ΔR + c_T T(U). `distances` is how far apart the states are, 0 for equal embeddings. For `Norm` and `Cosine` they
are the same; for `Diffuse` and `Kernel`, whose values of a state with itself are not 0, the distance is the reduced
value U(x, y) − (U(x, x) + U(y, y))/2.

Distances have kinks where embeddings coincide; the gradient there is 0, one of the subgradients.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..checks import check_number
from .angles import angles, cosine_gaps, paired_angles, paired_cosine_gaps
from .norms import norm_of, norms_between


@dataclass(frozen=True)
class Head(ABC):
    """A way to measure embeddings; see the module.

    Attributes of the class: zero_diagonal (whether the value of a state with itself is 0 whatever the embedding is),
    translates (whether adding a vector to all embeddings changes nothing, so that a terminal state may lie at 0).
    """

    zero_diagonal: ClassVar[bool] = True
    translates: ClassVar[bool] = False

    @property
    @abstractmethod
    def ceiling(self) -> float:
        """The largest distance that any embedding can represent; infinity where there is no limit."""

    @abstractmethod
    def ceiling_within(self, norm: float) -> float:
        """The largest distance of embeddings whose norm is at most `norm`."""

    @abstractmethod
    def norm_for(self, largest: float) -> float:
        """The norm within which values stay at most `largest`, the largest value that a fixed point can have."""

    @abstractmethod
    def values(self, x: Tensor, y: Tensor) -> Tensor:
        """D of all pairs [N, M] of embeddings x [N, D] and y [M, D]. Memory: N·M numbers and the inputs."""

    @abstractmethod
    def paired_values(self, x: Tensor, y: Tensor) -> Tensor:
        """D of embeddings [..., D] with embeddings [..., D], one by one."""

    def next_values(self, x: Tensor, y: Tensor) -> Tensor:
        """`values` as the target measures next states; the same unless a published code does otherwise."""
        return self.values(x, y)

    def next_paired_values(self, x: Tensor, y: Tensor) -> Tensor:
        """`paired_values` as the target measures next states."""
        return self.paired_values(x, y)

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        """How far apart states are [N, M], 0 for equal embeddings."""
        return self.values(x, y)

    def paired_distances(self, x: Tensor, y: Tensor) -> Tensor:
        """How far apart states are, one by one."""
        return self.paired_values(x, y)


@dataclass(frozen=True)
class Norm(Head):
    """‖φ_x − φ_y‖_p, a pseudo-metric whatever the encoder is.

    Args:
        p: at least 1; infinity is the maximum norm. In enough dimensions p = ∞ represents any metric, p = 1 those that
            are cuts put together, p = 2 the Euclidean ones only. Powers are taken as they are: in single precision
            differences below 10^(−38/p) count as 0, and p = 20 is none for small ones.
    """

    translates: ClassVar[bool] = True

    p: float = 1.0

    def __post_init__(self) -> None:
        if not check_number("p", self.p) >= 1.0:
            raise ValueError(f"Norm: p must be at least 1; got {self.p}.")

    @property
    def ceiling(self) -> float:
        return math.inf

    def ceiling_within(self, norm: float) -> float:
        return 2.0 * norm

    def norm_for(self, largest: float) -> float:
        return 0.5 * largest

    def values(self, x: Tensor, y: Tensor) -> Tensor:
        return norms_between(x, y, self.p)

    def paired_values(self, x: Tensor, y: Tensor) -> Tensor:
        return norm_of(x - y, self.p)


@dataclass(frozen=True)
class Diffuse(Head):
    """MICo's U = (‖φ_x‖² + ‖φ_y‖²)/2 + β θ(φ_x, φ_y), θ the angle; a state's value with itself is ‖φ_x‖².

    The distance U(x, y) − (U(x, x) + U(y, y))/2 is β θ, so it is at most β π whatever is learned: 0.314 for the
    published β = 0.1. Ref.: Castro, Kastner, Panangaden and Rowland, MICo (NeurIPS 2021).

    Args:
        beta: weight of the angle, positive.
    """

    zero_diagonal: ClassVar[bool] = False

    beta: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 < check_number("beta", self.beta) < math.inf:
            raise ValueError(f"Diffuse: beta must be positive and finite; got {self.beta}.")

    @property
    def ceiling(self) -> float:
        return self.beta * math.pi

    def ceiling_within(self, norm: float) -> float:
        return self.ceiling if norm > 0.0 else 0.0

    def norm_for(self, largest: float) -> float:
        return math.sqrt(largest)

    def values(self, x: Tensor, y: Tensor) -> Tensor:
        left = 0.5 * x.square().sum(-1)
        right = left if x is y else 0.5 * y.square().sum(-1)
        return self.distances(x, y) + left[:, None] + right

    def paired_values(self, x: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (x.square().sum(-1) + y.square().sum(-1)) + self.paired_distances(x, y)

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        return self.beta * angles(x, y)

    def paired_distances(self, x: Tensor, y: Tensor) -> Tensor:
        return self.beta * paired_angles(x, y)


@dataclass(frozen=True)
class Kernel(Head):
    """KSMe's kernel k = ⟨φ_x, φ_y⟩, as a value U = 2 (level − k) that obeys U = c_R ΔR + c_T T(U).

    The distance k(x, x) + k(y, y) − 2 k(x, y) = ‖φ_x − φ_y‖² is then the reduced MICo distance. In k the equation reads
    k = (1 − c_T)·level − c_R ΔR/2 + c_T E[k']: with rewards over a range of length L the right side is a positive
    definite kernel where (1 − c_T)·level ≥ c_R L/4, and then some embedding represents the fixed point.
    A fixed point is not negative, so U(x, x) ≥ 0 and ‖φ_x‖² ≤ level there: distances of one that an embedding
    represents are at most 4·level. Ref.: Castro, Kastner, Panangaden and Rowland, A kernel perspective on behavioural
    metrics (TMLR 2023).

    Args:
        level: k of states whose distance U is 0; the published code's is 1/(1 − c_T).
    """

    zero_diagonal: ClassVar[bool] = False

    level: float

    def __post_init__(self) -> None:
        if not 0.0 < check_number("level", self.level) < math.inf:
            raise ValueError(f"Kernel: level must be positive and finite; got {self.level}. Try 1/(1 − c_T).")

    @property
    def ceiling(self) -> float:
        return 4.0 * self.level

    def ceiling_within(self, norm: float) -> float:
        return 4.0 * norm * norm

    def norm_for(self, largest: float) -> float:
        del largest  # k(x, x) = level − U(x, x)/2, so the level alone bounds the norm
        return math.sqrt(self.level)

    def values(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (self.level - x @ y.T)

    def paired_values(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (self.level - (x * y).sum(-1))

    def distances(self, x: Tensor, y: Tensor) -> Tensor:
        return norms_between(x, y, 2.0).square()

    def paired_distances(self, x: Tensor, y: Tensor) -> Tensor:
        return (x - y).square().sum(-1)


@dataclass(frozen=True)
class Cosine(Head):
    """SimSR's 1 − cos of the angle between embeddings: at most 2, and 0 for a state with itself.

    It is not a metric (no triangle inequality), and with an independent coupling its fixed point is that of a zero
    diagonal. Ref.: Zang, Li and Wang, SimSR (AAAI 2022).

    Args:
        scale: factor, so that distances reach 2·scale.
        unit_next: whether next embeddings are put on the sphere, too; the published code takes its predictions as they
            are.
    """

    scale: float = 1.0
    unit_next: bool = True

    def __post_init__(self) -> None:
        if not 0.0 < check_number("scale", self.scale) < math.inf:
            raise ValueError(f"Cosine: scale must be positive and finite; got {self.scale}.")

    @property
    def ceiling(self) -> float:
        return 2.0 * self.scale

    def ceiling_within(self, norm: float) -> float:
        return self.ceiling if norm > 0.0 else 0.0

    def norm_for(self, largest: float) -> float:
        del largest
        return 1.0

    def values(self, x: Tensor, y: Tensor) -> Tensor:
        return self.scale * cosine_gaps(x, y)

    def paired_values(self, x: Tensor, y: Tensor) -> Tensor:
        return self.scale * paired_cosine_gaps(x, y)

    def next_values(self, x: Tensor, y: Tensor) -> Tensor:
        return self.values(x, y) if self.unit_next else self.scale * (1.0 - x @ y.T)

    def next_paired_values(self, x: Tensor, y: Tensor) -> Tensor:
        return self.paired_values(x, y) if self.unit_next else self.scale * (1.0 - (x * y).sum(-1))
