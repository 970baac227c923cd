"""Exact p-Wasserstein transport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.select import Engine
from .base import Array, Axioms, Evaluator, Family, Kept, Report, Transport, check_order, pair_entries

_NOWHERE: Array = np.empty((0, 0))


@dataclass(frozen=True)
class Exact(Transport):
    """W_p(d)(μ, ν) = min over couplings ω of (Σ ω d^p)^(1/p), by a network simplex.

    Args:
        p: order, at least 1. p = 1 is the Kantorovich metric of the original bisimulation metric.

    Cost: about one pricing of n·m arcs per pair and sweep once trees are kept. Memory: 2(n+m−1) bytes a
    pair are kept (4(n+m−1) where supports exceed 127 states).
    """

    p: float = 1.0

    def __post_init__(self) -> None:
        check_order(self.p)

    @property
    def axioms(self) -> Axioms:
        return Axioms(zero_diagonal=True, triangle=True, monotone=True, nonexpansive=True)

    @property
    def guarantee(self) -> str:
        return "contraction: the theorem on (p, ζ)-Sinkhorn bisimulation metrics (eqs. 9 to 11) at λ = 0"

    def evaluator(self, engine: Engine, family: Family, keep: bool) -> Evaluator:
        if engine.on_device:
            from .device import ExactOnDevice

            return ExactOnDevice(engine, family, self.p, keep)
        return ExactEvaluator(engine, family, self.p, keep)

    def kept_size(self, family: Family) -> int:
        return pair_entries(family, first=1, per_pair=0, shared=2) * _tree_dtype(family)().itemsize


def _tree_dtype(family: Family) -> type[np.unsignedinteger[Any]]:
    widest = int(family.sizes.max())
    return np.uint8 if 2 * widest <= 256 else np.uint16 if 2 * widest <= 65536 else np.uint32


class ExactEvaluator(Evaluator):
    """Keeps the optimal tree of each pair."""

    def __init__(self, engine: Engine, family: Family, p: float, keep: bool, first: int = 1) -> None:
        super().__init__(engine, family, p)
        self.first = first
        self.defects = self._defects()
        self.kept = Kept(
            engine, family, first=first, per_pair=0, shared=2, cold=0, dtype=_tree_dtype(family), keep=keep
        )

    @property
    def kept_bytes(self) -> int:
        return self.kept.nbytes

    def take_from(self, old: Evaluator) -> None:
        if isinstance(old, ExactEvaluator):
            self.kept.take_from(old.kept)

    def _defects(self) -> Array:
        """What rows lack of 1 beyond the precision of their entries, for p > 1, where roots magnify it [N]."""
        defects = np.zeros(len(self.family.indptr) - 1 if self.p != 1.0 else 1)
        if self.p != 1.0:
            self.engine.kernels.row_defects(self.family.indptr, self.family.probs, defects)
        return defects

    def follow(self, family: Family) -> None:
        super().follow(family)
        self.kept.follow(family)
        self.defects = self._defects()

    def state(self) -> dict[str, Array]:
        return self.kept.state("trees")

    def load(self, state: Mapping[str, Array]) -> None:
        self.kept.load(state, "trees")

    def _block(self, group: int, a0: int, a1: int, out: Array, errors: Array = _NOWHERE) -> Report:
        f = self.family
        pivots, error = self.engine.kernels.exact_block(
            f.indptr, f.indices, f.probs, self.defects, f.groups[group], a0, a1, self.cost, 1.0 / self.p, self.top,
            self.first, self.kept.arrays[group], self.kept.bases[group], self.halt, out, errors,
        )  # fmt: skip
        return Report(pivots, error)

    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        errors = np.zeros_like(upper)
        self._block(group, a0, a1, upper, errors)
        np.maximum(upper - errors, 0.0, out=lower)
        upper += errors
