"""Step sizes of conservative policy iteration: how far a policy moves towards the greedy one.

A step size is called with the step number k = 1, 2, … and what the theorem's choice depends on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from . import certificates
from .checks import check_number


class StepSize(Protocol):
    """α_k in (0, 1] for step k ≥ 1 of a run with discount γ, n metric sweeps a step, and order p."""

    def __call__(self, k: int, *, gamma: float, sweeps: int, p: float) -> float: ...


def _check_alpha(name: str, alpha: float) -> None:
    if not 0.0 < check_number(name, alpha) <= 1.0:
        raise ValueError(f"{name} must be in (0, 1]; got {alpha}.")


@dataclass(frozen=True)
class Constant:
    """α_k = α: API(α). α = 1 replaces the policy at each step."""

    alpha: float = 1.0

    def __post_init__(self) -> None:
        _check_alpha("alpha", self.alpha)

    def __call__(self, k: int, *, gamma: float, sweeps: int, p: float) -> float:
        return self.alpha


@dataclass(frozen=True)
class PowerDecay:
    """α_k = max(floor, k^−power): large steps first, small ones in the limit."""

    power: float = 0.8
    floor: float = 2.0**-6

    def __post_init__(self) -> None:
        _check_alpha("floor", self.floor)
        if not check_number("power", self.power) > 0.0:
            raise ValueError(f"power must be positive; got {self.power}.")

    def __call__(self, k: int, *, gamma: float, sweeps: int, p: float) -> float:
        return max(self.floor, math.pow(k, -self.power))


@dataclass(frozen=True)
class Theoretical:
    """The α of the theorem on API(α): (ᾱ (1 − c̄_n)(1 − γ)/2)^p with c̄_n = (1+γ) γ^n/(1−γ).

    Needs n > log((1−γ)/(1+γ))/log γ, so that c̄_n < 1.
    """

    alpha_bar: float = 1.0

    def __post_init__(self) -> None:
        _check_alpha("alpha_bar", self.alpha_bar)

    def __call__(self, k: int, *, gamma: float, sweeps: int, p: float) -> float:
        c_bar = certificates.c_bar_n(gamma, sweeps)
        if c_bar >= 1.0:
            need = math.floor(math.log((1.0 - gamma) / (1.0 + gamma)) / math.log(gamma)) + 1
            raise ValueError(
                f"Theoretical: {sweeps} sweeps a step are too few for the theorem at gamma = {gamma:g}; "
                f"use sweeps = {need} or more."
            )
        alpha = math.pow(self.alpha_bar * (1.0 - c_bar) * (1.0 - gamma) / 2.0, p)
        # Rounded down, so that the theorem's own condition holds for what is returned.
        while certificates.alpha_bar(alpha, gamma=gamma, sweeps=sweeps, p=p) > self.alpha_bar:
            alpha = math.nextafter(alpha, 0.0)
        return alpha
