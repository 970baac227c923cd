"""The independent coupling on a device: sums over supports, or matrix products."""

from __future__ import annotations

from typing import Any

from ...kinds import Array
from ...model import Distributions
from ...transport import budget
from ..comparison import matrix_like
from . import kernels
from .kernels import PairBlock
from .solver import CudaSolver, dense_matrix


class IndependentSolver(CudaSolver):
    """Remembers nothing."""

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self.matrix = dense_matrix(self.dtype, self.rows) if matrix_like(self.rows) else None

    @property
    def by_matrices(self) -> bool:
        return self.matrix is not None

    def follow(self, rows: Distributions) -> None:
        super().follow(rows)
        self.matrix = dense_matrix(self.dtype, rows) if matrix_like(rows) else None

    def _fill(self, block: PairBlock, out: Array) -> None:
        if self.matrix is None:
            kernels.independent_block(self.tally, self.on_device, block, self._ground, out)
        else:
            kernels.dense_independent_block(self.matrix, self.on_device, block, self._ground, out)

    @property
    def keeps_plans(self) -> bool:
        return True

    def fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        del wanted  # rows of all pairs come out of one pass
        self.fill(group, a0, a1, out, self.tally)

    def _rounding(self, top: float) -> float:
        terms = 2 * (self.rows.n_states if self.matrix is not None else int(self.rows.sizes.max()))
        return budget.product_rounding(terms, self.eps, top, self.p)

    def _bounds(self, block: PairBlock, lower: Array, upper: Array) -> None:
        self._fill(block, upper)
        upper += self._rounding(self.top)
        lower[:] = 0.0
