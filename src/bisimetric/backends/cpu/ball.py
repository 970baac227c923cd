"""Transport inside a KL ball on the CPU: λ is searched for each pair."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...kinds import Array, Floats, Ints, Precision
from ...model import Distributions
from ...transport import Exact, KLBall, Transport, budget
from ..protocol import PairSolver
from . import kernels
from .exact import ExactSolver
from .kernels.arguments import Ball, Layout, Potentials
from .memory import PairMemory, entries_of
from .solver import CpuSolver, Scene


class BallSolver(CpuSolver):
    """Remembers log λ and log y of each pair, and the trees of the pairs whose ball holds all couplings."""

    transport: KLBall
    limits: budget.BallBudget  # of the sweep

    def __init__(
        self, dtype: Precision, rows: Distributions, groups: tuple[Ints, ...], transport: KLBall, remember: bool
    ) -> None:
        super().__init__(dtype, rows, groups, transport, remember)
        self.entropies = rows.entropies()
        self.logs = PairMemory(
            rows, groups, Layout(self.first, 0, 1, 0), cold=np.nan, dtype=np.float64, remember=remember
        )
        self.exact = self._exact() if _needs_exact(self.transport, self.rows, self.entropies) else None

    def _exact(self) -> ExactSolver:
        return ExactSolver(self.dtype, self.rows, self.groups, Exact(self.p), self.remember, self.with_diagonal)

    def follow(self, rows: Distributions) -> None:
        super().follow(rows)
        self.logs.rows = rows
        self.entropies = rows.entropies()
        if self.exact is not None:
            self.exact.follow(rows)
        elif _needs_exact(self.transport, self.rows, self.entropies):
            self.exact = self._exact()

    def prepare(self, d: Array, accuracy: float) -> None:
        super().prepare(d, accuracy)
        if self.exact is not None:
            self.exact.take_costs(self)
        self.limits = budget.ball(self.transport, accuracy=accuracy, unit=self.unit, top=self.top)

    def _fill(self, scene: Scene, group: int, out: Array) -> tuple[int, float]:
        pivots, worst = (0, 0.0) if self.exact is None else self.exact._fill(scene, group, out)
        given = self.limits
        ball = Ball(self.transport.radius, self.entropies, given.marginals, given.iterations, given.target)
        iterations, error = kernels.ball_block(
            scene.rows, scene.block, scene.ground, ball, self.logs.of[group], self.halt, out
        )
        return int(iterations) + pivots, max(float(error), worst)

    def _bounds(self, scene: Scene, group: int, lower: Array, upper: Array) -> None:
        source = Potentials(1.0, True, False, self.limits.marginals, self.limits.iterations)
        kernels.bounds_block(
            scene.rows, scene.block, scene.ground, source, self.logs.of[group], self.halt, lower, upper
        )

    def finish(self) -> None:
        super().finish()
        if self.exact is not None:
            self.exact.finish()

    def take_from(self, old: PairSolver) -> None:
        if not isinstance(old, BallSolver):
            return
        if (old.transport.radius, old.p) == (self.transport.radius, self.p):
            self.logs.take_from(old.logs)
        if self.exact is not None and old.exact is not None:
            self.exact.take_from(old.exact)

    @property
    def remembered_bytes(self) -> int:
        return self.logs.nbytes + (0 if self.exact is None else self.exact.remembered_bytes)

    def remembered(self) -> dict[str, Array]:
        trees = {} if self.exact is None else self.exact.remembered()
        return {**self.logs.arrays("logs"), **{f"exact_{name}": array for name, array in trees.items()}}

    def recall(self, arrays: Mapping[str, Array]) -> None:
        self.logs.load(arrays, "logs")
        if self.exact is None and any(name.startswith("exact_") for name in arrays):
            self.exact = self._exact()
        if self.exact is not None:
            self.exact.recall({name.removeprefix("exact_"): array for name, array in arrays.items()})

    @classmethod
    def bytes_to_remember(cls, rows: Distributions, groups: tuple[Ints, ...], transport: Transport) -> int:
        assert isinstance(transport, KLBall)
        logs = entries_of(rows, groups, Layout(0, 0, 1, 0)) * 8
        if not _needs_exact(transport, rows, rows.entropies()):
            return logs
        return logs + ExactSolver.bytes_to_remember(rows, groups, Exact(transport.p))


def _needs_exact(transport: KLBall, rows: Distributions, entropies: Floats) -> bool:
    """Whether some pair's ball holds all couplings."""
    return bool(transport.radius >= np.min(entropies[rows.sizes > 1], initial=np.inf))
