"""The independent coupling: the limit of strong regularisation (MICo)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..kernels.select import Engine
from .base import Array, Axioms, Evaluator, Family, Report, Transport, check_order


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
    def axioms(self) -> Axioms:
        return Axioms(zero_diagonal=self.diagonal == "zero", triangle=True, monotone=True, nonexpansive=True)

    @property
    def guarantee(self) -> str:
        return "contraction: a fixed coupling, the limit ζ → ∞ of (p, ζ)-Sinkhorn bisimulation metrics"

    def evaluator(self, engine: Engine, family: Family, keep: bool) -> Evaluator:
        if engine.on_device:
            from .device import IndependentOnDevice

            return IndependentOnDevice(engine, family, self)
        return IndependentEvaluator(engine, family, self.p, 0 if self.diagonal == "kept" else 1)

    def kept_size(self, family: Family) -> int:
        return 0


def check_diagonal(diagonal: str) -> None:
    if diagonal not in ("kept", "zero"):
        raise ValueError(f'diagonal must be "kept" or "zero"; got {diagonal!r}.')


class IndependentEvaluator(Evaluator):
    def __init__(self, engine: Engine, family: Family, p: float, first: int) -> None:
        super().__init__(engine, family, p)
        self.first = first
        self.dense_rows = engine.kernels.dense_rows(family, engine.dtype) if family.dense() else None

    def follow(self, family: Family) -> None:
        super().follow(family)
        if self.dense_rows is not None:
            self.dense_rows = self.engine.kernels.dense_rows(family, self.engine.dtype)

    def _block(self, group: int, a0: int, a1: int, out: Array) -> Report:
        f, kernels = self.family, self.engine.kernels
        if self.dense_rows is not None:
            kernels.dense_independent_block(self.dense_rows, f.groups[group], a0, a1, self.cost, 1.0 / self.p, out)
        else:
            kernels.independent_block(
                f.indptr, f.indices, f.probs, f.groups[group], a0, a1, self.cost, 1.0 / self.p, self.first, self.halt,
                out,
            )  # fmt: skip
        return Report(0, self._rounding())

    def _rounding(self) -> float:
        """All terms are positive, so sums of n and m of them are off by (n + m) units of round-off of themselves."""
        terms = 2 * (self.family.n_states if self.dense_rows is not None else int(self.family.sizes.max())) + 8
        eps = self.engine.eps if self.dense_rows is not None else float(np.finfo(np.float64).eps)
        return float(terms * eps * self.top ** (1.0 / self.p))

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        upper += self._block(group, a0, a1, upper).error
        lower[:] = 0.0
