"""Exact transport on the CPU: a network simplex that restarts from the last tree of each pair."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...kinds import Array, Ints, Precision
from ...model import Distributions
from ...transport import Transport
from ..protocol import PairSolver
from . import kernels
from .kernels.arguments import Layout
from .memory import PairMemory, entries_of
from .solver import CpuSolver, Scene

_NOWHERE: Array = np.empty((0, 0))
_EVERY: Array = np.empty((0, 0), np.bool_)


def _tree_dtype(rows: Distributions) -> type[np.unsignedinteger]:
    widest = int(rows.sizes.max())
    return np.uint8 if 2 * widest <= 256 else np.uint16 if 2 * widest <= 65536 else np.uint32


class ExactSolver(CpuSolver):
    """Remembers the optimal tree of each pair."""

    def __init__(
        self,
        dtype: Precision,
        rows: Distributions,
        groups: tuple[Ints, ...],
        transport: Transport,
        remember: bool,
        with_diagonal: bool = False,
    ) -> None:
        super().__init__(dtype, rows, groups, transport, remember)
        self.with_diagonal = with_diagonal
        self.defects = self._defects()
        layout = Layout(self.first, 0, 0, 2)
        self.trees = PairMemory(rows, groups, layout, cold=0, dtype=_tree_dtype(rows), remember=remember)

    def _defects(self) -> Array:
        """What rows lack of 1 beyond the precision of their entries, for p > 1, where roots magnify it [N]."""
        defects = np.zeros(len(self.rows) if self.p != 1.0 else 1)
        if self.p != 1.0:
            kernels.row_defects(self.rows.indptr, self.rows.probs, defects)
        return defects

    def follow(self, rows: Distributions) -> None:
        super().follow(rows)
        self.trees.rows = rows
        self.defects = self._defects()

    @classmethod
    def can_halve(cls, rows: Distributions) -> bool:
        return rows.split == 0

    def take_costs(self, other: CpuSolver) -> None:
        """Work on the ground costs that another solver has prepared."""
        self.cost, self.top, self._ground, self.halt = other.cost, other.top, other._ground, other.halt

    def _fill(self, scene: Scene, group: int, out: Array, errors: Array = _NOWHERE) -> tuple[int, float]:
        defects = self.defects if self.p == 1.0 else scene.of_rows(self.defects)
        memory = scene.memory(self.trees.of[group])
        pivots, error = kernels.exact_block(
            scene.rows, defects, scene.block, scene.ground, memory, self.halt, out, errors
        )
        return int(pivots), float(error)

    @property
    def keeps_plans(self) -> bool:
        return self.remember

    def fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        mask = _EVERY if wanted is None else wanted
        scene = self._scene(group, a0, a1)
        memory = scene.memory(self.trees.of[group])
        kernels.kept_block(scene.rows, scene.block, scene.ground, memory, mask, self.halt, out)

    def _bounds(self, scene: Scene, group: int, lower: Array, upper: Array) -> None:
        errors = np.zeros_like(upper)
        self._fill(scene, group, upper, errors)
        np.maximum(upper - errors, 0.0, out=lower)
        upper += errors

    def take_from(self, old: PairSolver) -> None:
        if isinstance(old, ExactSolver):
            self.trees.take_from(old.trees)

    @property
    def remembered_bytes(self) -> int:
        return self.trees.nbytes

    def remembered(self) -> dict[str, Array]:
        return self.trees.arrays("trees")

    def recall(self, arrays: Mapping[str, Array]) -> None:
        self.trees.load(arrays, "trees")

    @classmethod
    def bytes_to_remember(cls, rows: Distributions, groups: tuple[Ints, ...], transport: Transport) -> int:
        return entries_of(rows, groups, Layout(1, 0, 0, 2)) * _tree_dtype(rows)().itemsize
