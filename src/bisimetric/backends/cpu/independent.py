"""The independent coupling on the CPU: sums over supports, or matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model import Distributions
from ...transport import Transport, budget
from ..protocol import Array, Ints, matrix_like
from . import kernels
from .kernels.arguments import Block
from .solver import CpuSolver, PairTally


class IndependentSolver(CpuSolver):
    """Remembers nothing."""

    def __init__(
        self,
        dtype: np.dtype[Any],
        rows: Distributions,
        groups: tuple[Ints, ...],
        transport: Transport,
        remember: bool,
    ) -> None:
        super().__init__(dtype, rows, groups, transport, remember)
        self.matrix = self._matrix()

    def _matrix(self) -> Array | None:
        """The rows as a matrix [N, S] where products beat gathered supports."""
        return kernels.dense_rows(self._csr, self.rows.n_states, self.dtype) if matrix_like(self.rows) else None

    def follow(self, rows: Distributions) -> None:
        super().follow(rows)
        self.matrix = self._matrix()

    def _fill(self, block: Block, group: int, out: Array) -> tuple[int, float]:
        del group
        if self.matrix is not None:
            kernels.dense_independent_block(self.matrix, block, self._ground, out)
            return 0, budget.product_rounding(2 * self.rows.n_states, self.eps, self.top, self.p)
        kernels.independent_block(self._csr, block, self._ground, self.halt, out)
        return 0, budget.product_rounding(2 * int(self.rows.sizes.max()), budget.DOUBLE, self.top, self.p)

    @property
    def keeps_plans(self) -> bool:
        return True

    def fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        del wanted  # rows of all pairs come out of one pass
        self.fill(group, a0, a1, out, PairTally())

    def _bounds(self, block: Block, group: int, lower: Array, upper: Array) -> None:
        _, rounding = self._fill(block, group, upper)
        upper += rounding
        lower[:] = 0.0
