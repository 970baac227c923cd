"""Transport inside a KL ball on a device: λ is searched for each pair, in double precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike

from ...kinds import Array, Ints, Precision
from ...model import Distributions
from ...transport import Exact, KLBall, budget
from ..protocol import PairSolver
from . import kernels
from .exact import ExactSolver
from .kernels import Ball, PairBlock, Potentials
from .solver import CudaSolver


class BallSolver(CudaSolver):
    """Remembers log λ and log y of each pair, and the trees of the pairs whose ball holds all couplings."""

    cold: ClassVar[int] = 255
    memory_dtype: ClassVar[DTypeLike] = np.float64
    transport: KLBall
    limits: budget.BallBudget  # of the sweep

    def __init__(
        self, dtype: Precision, rows: Distributions, groups: tuple[Ints, ...], transport: KLBall, remember: bool
    ) -> None:
        super().__init__(dtype, rows, groups, transport, remember)
        self.synchronous = True  # its accuracy follows the largest cost
        self.exact: ExactSolver | None = None
        self._take_entropies()

    def _take_entropies(self) -> None:
        entropies = self.rows.entropies()
        self.entropies = kernels.cupy().asarray(entropies)
        if self.exact is None and self.transport.radius >= np.min(entropies[self.rows.sizes > 1], initial=np.inf):
            self.exact = ExactSolver(
                self.dtype, self.rows, self.groups, Exact(self.p), self.remember, self.with_diagonal
            )
            self.exact.tally, self.exact.on_device = self.tally, self.on_device

    def _entries(self, group: int) -> int:
        return self.on_device.widest[group] + 1

    def _fits(self, old: Self) -> bool:
        return (old.transport.radius, old.p) == (self.transport.radius, self.p)

    def follow(self, rows: Distributions) -> None:
        super().follow(rows)
        if self.exact is not None:
            self.exact.rows = self.exact.memory.rows = rows
        self._take_entropies()

    def prepare(self, d: Array, accuracy: float) -> None:
        super().prepare(d, accuracy)
        self.top = self.tally.read().top
        if self.exact is not None:
            self.exact.cost = self.cost
        self.limits = budget.ball(self.transport, accuracy=accuracy, unit=self.unit, top=self.top)

    def _fill(self, block: PairBlock, out: Array) -> None:
        if self.top == 0.0:
            out.fill(0.0)
            return
        if self.exact is not None:
            self.exact._fill(block, out)
        given = self.limits
        ball = Ball(float(self.transport.radius), self.entropies, given.marginals, given.iterations, given.target)
        remembered = self.memory.up_to(block.group, block.a1)
        kernels.ball_block(self.tally, self.on_device, block, self._ground, ball, remembered, out)

    def _bounds(self, block: PairBlock, lower: Array, upper: Array) -> None:
        source = Potentials(1.0, True, self.limits.marginals, self.limits.iterations)
        remembered = self.memory.up_to(block.group, block.a1)
        kernels.bounds_block(self.tally, self.on_device, block, self._ground, source, remembered, lower, upper)

    def finish(self) -> None:
        super().finish()
        if self.exact is not None:
            self.exact.finish()

    def take_from(self, old: PairSolver) -> None:
        super().take_from(old)
        if isinstance(old, BallSolver) and self.exact is not None and old.exact is not None:
            self.exact.take_from(old.exact)

    @property
    def remembered_bytes(self) -> int:
        return super().remembered_bytes + (0 if self.exact is None else self.exact.remembered_bytes)

    def remembered(self) -> dict[str, Array]:
        trees = {} if self.exact is None else self.exact.remembered()
        return {**super().remembered(), **{f"exact_{name}": array for name, array in trees.items()}}

    def recall(self, arrays: Mapping[str, Array]) -> None:
        super().recall(arrays)
        if self.exact is not None and "exact_kept0" in arrays:
            self.exact.recall({name.removeprefix("exact_"): array for name, array in arrays.items()})
