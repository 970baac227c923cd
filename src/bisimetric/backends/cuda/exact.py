"""Exact transport on a device: network simplexes on integer masses, many pairs at once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ...kinds import Array
from ...transport import budget
from . import kernels
from .kernels import PairBlock
from .solver import CudaSolver


class ExactSolver(CudaSolver):
    """Remembers the optimal tree of each pair."""

    memory_dtype: ClassVar[DTypeLike] = np.uint8

    def _entries(self, group: int) -> int:
        return self.on_device.tree_bytes(group)

    @property
    def rows_at_once(self) -> int:
        return self.on_device.rows_at_once(self.on_device.exact_width(group) for group in range(len(self.groups)))

    def _fill(self, block: PairBlock, out: Array) -> None:
        self._solve(block, self.memory.up_to(block.group, block.a1), out)

    @property
    def keeps_plans(self) -> bool:
        return self.remember and all(self.memory.whole(group) for group in range(len(self.groups)))

    def fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        del wanted  # a warp takes its pairs together
        block = self._block(group, a0, a1)
        self._solve(block, self.memory.up_to(group, a1), out, frozen=True)

    def _solve(self, block: PairBlock, remembered: Array, out: Array, *, frozen: bool = False) -> None:
        share = budget.pricing_share(self.eps)
        kernels.exact_block(self.tally, self.on_device, block, self._ground, share, remembered, out, frozen)

    def _bounds(self, block: PairBlock, lower: Array, upper: Array) -> None:
        self._solve(block, self.memory.of[block.group][:0], upper)
        error = self.tally.read().error
        lower[:] = kernels.cupy().maximum(upper - error, 0.0)
        upper += error
