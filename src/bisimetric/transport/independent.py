"""The independent coupling: the limit of strong regularisation (MICo)."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Axioms, Transport, check_diagonal, check_order


@dataclass(frozen=True)
class Independent(Transport):
    """(Σ_ij μ_i ν_j d_ij^p)^(1/p), the Łukaszyk–Karmowski distance; p = 1 is P d Pᵀ (MICo).

    The distance of a distribution from itself is not 0.

    Args:
        p: order, at least 1.
        diagonal: "kept" for the true d(s, s), "zero" to set it to 0 as the paper's runs did.

    Cost: S·nnz(P) a sweep, or two matrix products where P is dense. Keeps nothing.
    """

    p: float = 1.0
    diagonal: str = "kept"

    def __post_init__(self) -> None:
        check_order(self.p)
        check_diagonal(self.diagonal)

    @property
    def order(self) -> float:
        return self.p

    @property
    def axioms(self) -> Axioms:
        return Axioms(zero_diagonal=self.diagonal == "zero", triangle=True, monotone=True, nonexpansive=True)

    @property
    def guarantee(self) -> str:
        return "contraction: a fixed coupling, the limit ζ → ∞ of (p, ζ)-Sinkhorn bisimulation metrics"
