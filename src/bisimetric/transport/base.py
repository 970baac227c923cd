"""What a transport is: a way to compare two next-state distributions under a ground distance.

A transport is a frozen dataclass of settings that states which properties it keeps. It computes nothing: engines do
(`backends`), within the limits that `budget` works out from the accuracy that is wanted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..checks import check_number


@dataclass(frozen=True)
class Axioms:
    """Which properties a transport W(d)(μ, ν) has, for every ground distance d ≥ 0.

    zero_diagonal: the metric has d(s, s) = 0. triangle: W(d) obeys the triangle
    inequality where d does. monotone: d ≤ d' implies W(d) ≤ W(d'). nonexpansive: |W(d) − W(d')| ≤
    ‖d − d'‖∞; with c_T < 1 this gives one fixed point and an error bound. upper_bound: W_p ≤ W.
    All transports are symmetric.
    """

    zero_diagonal: bool
    triangle: bool
    monotone: bool
    nonexpansive: bool
    upper_bound: bool = True


@dataclass(frozen=True)
class Transport(ABC):
    """Settings of a transport."""

    iterative: ClassVar[bool] = False  # whether an iteration limit can end it before its accuracy is reached
    squares: ClassVar[int] = 2  # arrays of all pairs of states that a sweep needs: distances, ground costs, …

    @property
    @abstractmethod
    def order(self) -> float:
        """The p of d^p."""

    @property
    @abstractmethod
    def axioms(self) -> Axioms: ...

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """The theorem behind an error bound for the fixed point, or why there is none."""

    @property
    def with_diagonal(self) -> bool:
        """Whether d(s, s) is evaluated; else it is 0."""
        return not self.axioms.zero_diagonal


def check_order(p: float) -> None:
    if not (1.0 <= check_number("p", p) < np.inf):
        raise ValueError(f"p must be at least 1 and finite; got {p}.")


def check_diagonal(diagonal: str) -> None:
    if diagonal not in ("kept", "zero"):
        raise ValueError(f'diagonal must be "kept" or "zero"; got {diagonal!r}.')
