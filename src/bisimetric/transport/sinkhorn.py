"""Entropically regularised transport: the dual form (fixed λ) and the primal form (a KL ball)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..checks import check_number
from .base import Axioms, Transport, check_diagonal, check_order


@dataclass(frozen=True)
class Sinkhorn(Transport):
    """Transport with λ times relative entropy added: ω* = argmin ⟨ω, d^p⟩ + λ KL(ω ‖ μ⊗ν).

    cost="sharp" (the paper's experiments, eq. 8) returns ⟨ω*, d^p⟩^(1/p). It is not monotone in d and its
    slope can exceed 1, so no theorem bounds the error of its fixed point.

    cost="value" returns (⟨ω*, d^p⟩ + λ KL)^(1/p). This is monotone and non-expansive in d, lies between W_p
    and the independent coupling, and so has one fixed point with a rigorous error.

    Args:
        reg: λ > 0, in units of d^p. (λ = 0 is `Exact`, λ = ∞ is `Independent`.)
        p: order, at least 1.
        cost: "sharp" or "value".
        diagonal: "kept" for the true d(s, s) > 0, "zero" to set it to 0 as the paper's runs did.
        marginal_tol: L1 error of a plan's marginal at which its iterations stop; tightened where the
            tolerance of the answer needs it.

    Memory: one number per successor of the second row is kept for each pair.
    """

    iterative: ClassVar[bool] = True
    squares: ClassVar[int] = 3  # and the kernel exp(−C/λ)

    reg: float = 1.0
    p: float = 1.0
    cost: str = "sharp"
    diagonal: str = "kept"
    marginal_tol: float = 1e-6

    def __post_init__(self) -> None:
        check_order(self.p)
        check_diagonal(self.diagonal)
        if not 0.0 < check_number("reg", self.reg) < np.inf:
            limits = "Exact transport is the limit 0, independent coupling that of infinity."
            raise ValueError(f"reg must be positive and finite; got {self.reg}. {limits}")
        if self.cost not in ("sharp", "value"):
            raise ValueError(f'cost must be "sharp" or "value"; got {self.cost!r}.')
        if not 0.0 < check_number("marginal_tol", self.marginal_tol) < 1.0:
            raise ValueError(f"marginal_tol must be in (0, 1); got {self.marginal_tol}.")

    @property
    def order(self) -> float:
        return self.p

    @property
    def axioms(self) -> Axioms:
        # The value keeps the triangle inequality: plans of (μ, ν) and (ν, ρ) are glued along ν, costs add up
        # (Minkowski), and by data processing the mutual information of the ends is at most that of either side.
        value = self.cost == "value"
        return Axioms(zero_diagonal=self.diagonal == "zero", triangle=value, monotone=value, nonexpansive=value)

    @property
    def guarantee(self) -> str:
        if self.cost == "value":
            return "contraction: the value ⟨ω, d^p⟩ + λ KL is a minimum over couplings, so non-expansive in d"
        return "none: the sharp Sinkhorn cost is neither monotone nor non-expansive in d"


@dataclass(frozen=True)
class KLBall(Transport):
    """The paper's primal Sinkhorn distance (eq. 7): least ‖d‖_{p,ω} over couplings with KL(ω ‖ μ⊗ν) ≤ radius.

    λ is searched per pair until KL = radius. radius = 0 is the independent coupling; a radius of at least
    min(H(μ), H(ν)) is exact transport.

    Args:
        radius: 1/ζ ≥ 0, in nats.
        p: order, at least 1.
        diagonal: "kept" or "zero", see `Sinkhorn`.
    """

    iterative: ClassVar[bool] = True

    radius: float
    p: float = 1.0
    diagonal: str = "kept"

    def __post_init__(self) -> None:
        check_order(self.p)
        check_diagonal(self.diagonal)
        if not 0.0 <= check_number("radius", self.radius) < np.inf:
            raise ValueError(f"radius must be finite and not negative; got {self.radius}. Use Exact for no limit.")

    @property
    def order(self) -> float:
        return self.p

    @property
    def axioms(self) -> Axioms:
        return Axioms(zero_diagonal=self.diagonal == "zero", triangle=True, monotone=True, nonexpansive=True)

    @property
    def guarantee(self) -> str:
        return "contraction: the theorem on (p, ζ)-Sinkhorn bisimulation metrics (eqs. 9 to 11)"
