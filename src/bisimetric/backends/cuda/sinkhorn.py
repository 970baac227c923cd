"""Sinkhorn's transport on a device: scalings of gathered supports, or matrix products where rows reach most states."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from ...kinds import Array, Ints, Precision
from ...model import Distributions
from ...transport import Sinkhorn, budget
from ..comparison import matrix_like
from . import kernels
from .kernels import Limits, PairBlock, Potentials, Products, Scalings
from .solver import CudaSolver, dense_matrix


class SinkhornSolver(CudaSolver):
    """Remembers log y of each pair (y/b for matrix products)."""

    cold: ClassVar[int] = 255  # bytes of a NaN
    transport: Sinkhorn
    limits: budget.EntropicBudget  # of the sweep

    def __init__(
        self, dtype: Precision, rows: Distributions, groups: tuple[Ints, ...], transport: Sinkhorn, remember: bool
    ) -> None:
        self.matrix = dense_matrix(dtype, rows) if matrix_like(rows) else None
        super().__init__(dtype, rows, groups, transport, remember)
        self.by_products = False  # whether y/b is remembered rather than log y
        self.synchronous = self.synchronous or self.matrix is not None
        self.gibbs: Array | None = None  # exp(−C/λ), for kernels with a warp a pair in double precision
        self.pairs: dict[PairBlock, tuple[Array, ...]] = {}  # lists of the pairs of blocks
        self.kernel: Array | None = None  # exp(−C/λ), for products
        self.weighted: Array | None = None  # and times C

    @property
    def by_matrices(self) -> bool:
        return self.matrix is not None

    @property
    def rows_at_once(self) -> int:
        return self.on_device.rows_at_once(self.on_device.sinkhorn_width(group) for group in range(len(self.groups)))

    def _entries(self, group: int) -> int:
        return self.rows.n_states if self.matrix is not None else self.on_device.kept_numbers(group)

    def _fits(self, old: Self) -> bool:
        fits = (old.transport.reg, old.p) == (self.transport.reg, self.p)
        if fits and (old.matrix is None) == (self.matrix is None):
            self.by_products = old.by_products
            return True
        return False

    def follow(self, rows: Distributions) -> None:
        super().follow(rows)
        self.matrix = dense_matrix(self.dtype, rows) if matrix_like(rows) else None

    def _take_costs(self, d: Array) -> None:
        xp = kernels.cupy()
        if self.matrix is None:  # the largest cost is known to the device alone, where pairs look at it
            self.limits = self._budget(np.inf)
            if self.on_device.wants_gibbs():
                if self.gibbs is None or self.gibbs.shape != d.shape:
                    self.gibbs = xp.empty_like(d)
                kernels.power(self.tally, d, self.p, self.unit, self.cost, self.limits.reg, self.gibbs)
            else:
                super()._take_costs(d)
            return
        super()._take_costs(d)
        self.top = self.tally.read().top
        self.limits = self._budget(self.top)
        by_products = not self.limits.in_logs
        if by_products != self.by_products:
            self.memory.forget()
            self.by_products = by_products
        if by_products:
            self.kernel = xp.exp(self.cost * (-1.0 / self.limits.reg))
            self.weighted = self.kernel * self.cost

    def _budget(self, top: float) -> budget.EntropicBudget:
        return budget.entropic(self.transport, accuracy=self.accuracy, unit=self.unit, top=top, eps=self.eps)

    def _fill(self, block: PairBlock, out: Array) -> None:
        if self.matrix is None or not self.by_products:
            kernels.sinkhorn_block(
                self.tally,
                self.on_device,
                block,
                self._ground,
                self._scalings,
                self._limits,
                self.memory.up_to(block.group, block.a1),
                out,
            )
        elif self.top == 0.0:
            out.fill(0.0)
        else:
            self._fill_by_products(block, out)

    @property
    def _scalings(self) -> Scalings:
        return Scalings(self.limits.reg, self.transport.cost == "value", self.gibbs, self.limits.safe)

    @property
    def _limits(self) -> Limits:
        given = self.limits
        return Limits(given.accuracy, given.tightest, given.loosest, given.iterations)

    def _fill_by_products(self, block: PairBlock, out: Array) -> None:
        given, as_value, members = self.limits, self.transport.cost == "value", self.groups[block.group]
        assert self.matrix is not None and self.kernel is not None and self.weighted is not None  # noqa: PT018 (all or none)
        if block not in self.pairs:
            self.pairs[block] = kernels.dense_pairs(members, block)
        at = block.a0 * (len(members) - self.first) - block.a0 * (block.a0 - 1) // 2
        products = Products(self.kernel, self.weighted, given.reg, as_value, given.marginals, given.rounds)
        remembered = self.memory.up_to(block.group, block.a1)
        iterations, error, least, left = kernels.dense_sinkhorn_block(
            self.matrix, self.pairs[block], products, 1.0 / self.p, at, remembered, out
        )
        slack = budget.products_slack(error, 2 * self.rows.n_states, given, self.top, as_value)
        self.tally.add(iterations, budget.root_error(min(least, self.top), slack, self.p))
        if len(left):
            self.on_device.list_pairs(left)
            self.tally.set_left(len(left))
            nothing = kernels.cupy().empty((0, 1), self.dtype)
            kernels.sinkhorn_listed(
                self.tally, self.on_device, block, self._ground, self._scalings, self._limits, nothing, out
            )

    def _bounds(self, block: PairBlock, lower: Array, upper: Array) -> None:
        given, tightest = self.limits, budget.tightest_marginals(budget.DOUBLE)
        loosest = self.transport.marginal_tol
        tol = budget.marginal_tolerance(given.accuracy, self.p, self.top, loosest, tightest)
        logs = self.matrix is None or not self.by_products
        remembered = self.memory.up_to(block.group, block.a1) if logs else self.memory.of[block.group][:0]
        source = Potentials(given.reg, False, tol, given.iterations)
        kernels.bounds_block(self.tally, self.on_device, block, self._ground, source, remembered, lower, upper)

    def in_use(self) -> tuple[object, ...]:
        return (self.gibbs, *super().in_use())

    def finish(self) -> None:
        super().finish()
        self.kernel = self.weighted = self.gibbs = None
        self.pairs.clear()
