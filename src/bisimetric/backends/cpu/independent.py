"""The independent coupling on the CPU: sums over supports, or matrix products."""

from __future__ import annotations

from ...kinds import Array, Ints, Precision
from ...model import Distributions
from ...transport import Transport, budget
from ..comparison import matrix_like
from . import kernels
from .solver import CpuSolver, PairTally, Scene


class IndependentSolver(CpuSolver):
    """Remembers nothing."""

    def __init__(
        self,
        dtype: Precision,
        rows: Distributions,
        groups: tuple[Ints, ...],
        transport: Transport,
        remember: bool,
    ) -> None:
        super().__init__(dtype, rows, groups, transport, remember)
        self.matrix = self._matrix()

    def _matrix(self) -> Array | None:
        """The rows as a matrix [N, S] where products beat gathered supports."""
        return kernels.dense_rows(self.csr, self.rows.n_states, self.dtype) if matrix_like(self.rows) else None

    @classmethod
    def can_halve(cls, rows: Distributions) -> bool:
        return rows.split == 0 and not matrix_like(rows)  # products need all costs at once

    def follow(self, rows: Distributions) -> None:
        super().follow(rows)
        self.matrix = self._matrix()

    def _fill(self, scene: Scene, group: int, out: Array) -> tuple[int, float]:
        del group
        if self.matrix is not None:
            kernels.dense_independent_block(self.matrix, scene.block, scene.ground, out)
            return 0, budget.product_rounding(2 * self.rows.n_states, self.eps, self.top, self.p)
        kernels.independent_block(scene.rows, scene.block, scene.ground, self.halt, out)
        return 0, budget.product_rounding(2 * int(self.rows.sizes.max()), budget.DOUBLE, self.top, self.p)

    @property
    def keeps_plans(self) -> bool:
        return True

    def fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        del wanted  # rows of all pairs come out of one pass
        self.fill(group, a0, a1, out, PairTally())

    def _bounds(self, scene: Scene, group: int, lower: Array, upper: Array) -> None:
        _, rounding = self._fill(scene, group, upper)
        upper += rounding
        lower[:] = 0.0
