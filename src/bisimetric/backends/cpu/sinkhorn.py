"""Sinkhorn's transport on the CPU: scalings of gathered supports, or matrix products where rows reach most states."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...kinds import Array, Ints, Precision
from ...model import Distributions
from ...transport import Sinkhorn, Transport, budget
from ..comparison import matrix_like
from ..protocol import PairSolver
from . import kernels
from .kernels.arguments import Block, Layout, Limits, Memory, Potentials, Products, Scalings
from .memory import PairMemory, entries_of
from .solver import CpuSolver, PairTally, Scene


class SinkhornSolver(CpuSolver):
    """Remembers the column scalings y of each pair, or log y where the kernel would underflow; y/b for products."""

    transport: Sinkhorn
    limits: budget.EntropicBudget  # of the sweep

    def __init__(
        self,
        dtype: Precision,
        rows: Distributions,
        groups: tuple[Ints, ...],
        transport: Sinkhorn,
        remember: bool,
    ) -> None:
        super().__init__(dtype, rows, groups, transport, remember)
        self.in_logs = False  # whether y is remembered as log y
        self.matrix = self._matrix()
        by_pair = remember and self.matrix is None
        self.scalings = PairMemory(
            rows, groups, Layout(self.first, 0, 0, 0), cold=np.nan, dtype=np.float64, remember=by_pair
        )
        self.ratios: list[Array] = [np.empty((0, rows.n_states), dtype) for _ in groups]  # y/b for products
        self.kernel: Array = np.empty((0, 0), dtype)  # exp(−C/λ)
        self.weighted: Array = np.empty((0, 0), dtype)  # and times C

    def _matrix(self) -> Array | None:
        return kernels.dense_rows(self.csr, self.rows.n_states, self.dtype) if matrix_like(self.rows) else None

    def follow(self, rows: Distributions) -> None:
        super().follow(rows)
        self.scalings.rows = rows
        self.matrix = self._matrix()

    def prepare(self, d: Array, accuracy: float) -> None:
        super().prepare(d, accuracy)
        self.limits = budget.entropic(
            self.transport, accuracy=accuracy, unit=self.unit, top=self.top, eps=self.eps, eps_in_logs=budget.DOUBLE
        )
        if self.limits.in_logs != self.in_logs:  # y and log y are one step apart
            self.in_logs = self.limits.in_logs
            for part in self.scalings.of:
                part.entries[:] = np.log(part.entries) if self.in_logs else np.nan
        if self.in_logs:
            self.kernel = np.empty((1, 1), self.dtype)
            return
        if self.kernel.shape != self.cost.shape:
            self.kernel = np.empty_like(self.cost)
        kernels.gibbs(self.cost, self.limits.reg, self.rows.split == 0, self.kernel)
        if self.matrix is not None:
            self._prepare_products()

    def _prepare_products(self) -> None:
        if self.transport.cost == "sharp":
            self.weighted = self.kernel * self.cost
        for group, members in enumerate(self.groups):
            if self.remember and not len(self.ratios[group]):
                pairs = len(members) * (len(members) + 1) // 2 - self.first * len(members)
                self.ratios[group] = np.full((pairs, self.rows.n_states), np.nan, self.dtype)

    def fill(self, group: int, a0: int, a1: int, out: Array, tally: PairTally) -> None:  # type: ignore[override]
        if self.matrix is not None and not self.in_logs and self.top > 0.0:
            self._fill_by_products(self._block(group, a0, a1), group, out, tally)
        else:
            super().fill(group, a0, a1, out, tally)

    def _fill(self, scene: Scene, group: int, out: Array) -> tuple[int, float]:
        return self._fill_pairs(scene.block, self.scalings.of[group], out)

    def _fill_pairs(self, block: Block, memory: Memory, out: Array) -> tuple[int, float]:
        given, as_value = self.limits, self.transport.cost == "value"
        iterations, error = kernels.sinkhorn_block(
            self.csr,
            block,
            self._ground,
            Scalings(self.kernel, given.reg, self.in_logs, as_value),
            Limits(given.accuracy, given.tightest, given.loosest, given.iterations, given.eps),
            memory,
            self.halt,
            out,
        )
        return int(iterations), float(error)

    def _fill_by_products(self, block: Block, group: int, out: Array, tally: PairTally) -> None:
        given, as_value = self.limits, self.transport.cost == "value"
        products = Products(self.kernel, self.weighted, given.reg, as_value, given.marginals, given.rounds)
        iterations, left, error = kernels.dense_sinkhorn_block(
            self.matrix, block, products, self.ratios[group], self.halt, out
        )
        tally.add(iterations, 0.0)
        slack = budget.products_slack(error, 2 * self.rows.n_states, given, self.top, as_value)
        least = 0.0
        if self.p != 1.0:  # a root magnifies errors most where costs are smallest
            inside = np.arange(out.shape[1]) >= np.arange(block.a0, block.a1)[:, None] + self.first
            least = float(np.min(out[inside], initial=self.top))
            np.power(out, 1.0 / self.p, out=out)
        tally.add_before_root(least, slack)
        for a, b, y in left:  # finished one by one, with Newton steps
            one = np.zeros((1, 2))
            pair = block.members[[a, b]]
            lo, hi = self.rows.indptr[pair[1]], self.rows.indptr[pair[1] + 1]
            start = Memory(y[self.rows.indices[lo:hi]].astype(np.float64), np.zeros(1, np.int64))
            tally.add(*self._fill_pairs(Block(pair, 0, 1, 1, 0), start, one))
            out[a - block.a0, b] = one[0, 1]

    def _bounds(self, scene: Scene, group: int, lower: Array, upper: Array) -> None:
        given = self.limits
        source = Potentials(given.reg, False, not self.in_logs, given.marginals, given.iterations)
        kernels.bounds_block(
            scene.rows, scene.block, scene.ground, source, self.scalings.of[group], self.halt, lower, upper
        )

    def finish(self) -> None:
        super().finish()
        self.kernel = self.weighted = np.empty((0, 0), self.dtype)

    def take_from(self, old: PairSolver) -> None:
        if not isinstance(old, SinkhornSolver) or (old.transport.reg, old.p) != (self.transport.reg, self.p):
            return
        self.in_logs = old.in_logs
        self.scalings.take_from(old.scalings)
        both_products = self.matrix is not None and old.matrix is not None
        same_pairs = self.first == old.first and len(self.groups) == len(old.groups)
        same_pairs = same_pairs and all(map(np.array_equal, self.groups, old.groups))
        if both_products and same_pairs and self.remember:
            self.ratios = [array.copy() for array in old.ratios]

    @property
    def remembered_bytes(self) -> int:
        return self.scalings.nbytes + sum(array.nbytes for array in self.ratios)

    def remembered(self) -> dict[str, Array]:
        by_products = {f"dense{g}": array for g, array in enumerate(self.ratios)}
        return {**self.scalings.arrays("scalings"), **by_products, "in_logs": np.array(self.in_logs)}

    def recall(self, arrays: Mapping[str, Array]) -> None:
        self.in_logs = bool(arrays["in_logs"])
        self.scalings.load(arrays, "scalings")
        self.ratios = [np.array(arrays[f"dense{g}"]) for g in range(len(self.ratios))]

    @classmethod
    def bytes_to_remember(cls, rows: Distributions, groups: tuple[Ints, ...], transport: Transport) -> int:
        return entries_of(rows, groups, Layout(0, 0, 0, 0)) * 8
