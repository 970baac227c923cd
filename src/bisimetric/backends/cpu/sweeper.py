"""Sweeps on the CPU: units of rows on the threads. Results do not depend on how many there are.

A sweep takes the ground costs of all pairs from d first, so that d can then be replaced row by row, in place:

    for each unit of states s0 … s1−1:      on the threads
        transports of their rows            `solver.fill`, in blocks
        combined into rows of F(d)          `_combined_rows`
        written into d, above and below the diagonal
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...transport import Transport
from ..protocol import Array, Comparison, Floats, Pending, Sweep, Sweeper, Swept, Unit, unit_of_work
from ..threads import Result, run_all, single_thread, threads
from . import kernels
from .distances import HostDistances
from .halves import mirror
from .kernels.arguments import Block, Sides, Weights
from .solver import CpuSolver, PairTally

if TYPE_CHECKING:
    from . import CpuBackend

Fill = Callable[[int, int, int, Array], None]

_UNIT_BYTES = 4 << 20  # work space of one unit of work
_NO_NOTES: Array = np.empty((0, 0), np.int16)
_BRIEF = 4 << 20  # entries of all pairs' costs up to which a sweep takes but a moment
_FEWEST = 1024.0  # pairs of a unit: calling kernels costs as much as some 30 pairs


class _HaltedError(Exception):
    """Work that was given up; seen by nobody, as what stopped it is raised instead."""


class CpuSweeper(Sweeper):
    """F by kernels of the CPU."""

    solver: CpuSolver

    def __init__(self, backend: CpuBackend, comparison: Comparison, transport: Transport, remember: bool) -> None:
        super().__init__(backend, comparison, transport, remember)
        self._units_by_threads: dict[int, list[Unit]] = {}
        work = ((len(comparison.rows) + 1) * int(comparison.rows.sizes.max())) ** 2
        self._brief = work <= _BRIEF
        self._noted: Array = _NO_NOTES  # which pair of rows decided each distance [S, T]
        self._paths: tuple[Array, Array, Array] | None = None  # pairs that lead to one other: themselves, it, rewards
        self._partners: Array = _NO_NOTES  # nearest choice of each state to each row, under Hausdorff matching [N, S]

    def follow(self, comparison: Comparison) -> None:
        halved = self.solver.halved
        super().follow(comparison)
        self._paths = None
        if halved:
            self.solver.halve()

    def spare_memory(self) -> bool:
        return self.solver.halve()

    def sweep(self, d: HostDistances, accuracy: float = np.inf) -> Sweep:
        reports = self._replace(d, accuracy, lambda unit: self._sweep_unit(unit, d.array))
        changes, tallies = zip(*reports, strict=True)
        tally = PairTally.merged(tallies)
        rounding = self.solver.rounding(float(d.array.max()))
        return Sweep(max(changes), self.solver.true_error(tally), rounding, tally.iterations)

    def sweep_roughly(self, d: HostDistances) -> float:
        solver = self.solver

        def rows_of(unit: Unit) -> Floats:
            return self._combined_rows(unit, solver.first, solver.fill_roughly, solver.unit, self._partners)

        return self._sweep_again(d, rows_of)

    def sweep_kept(self, d: HostDistances) -> float:
        return self._sweep_again(d, self._frozen_rows if self.comparison.plain else self._kept_rows)

    def sweep_frozen(self, d: HostDistances) -> float:
        return self._sweep_again(d, self._frozen_rows)

    def _sweep_again(self, d: HostDistances, rows_of: Callable[[Unit], Floats]) -> float:
        """Replace d by what `rows_of` makes of it; returns the largest change."""

        def task(unit: Unit) -> float:
            rows = rows_of(unit)
            self._stop_if_halted()
            return self._write(unit, rows, self.solver.first, d.array)

        return max(self._replace(d, np.inf, task))

    def _replace(self, d: HostDistances, accuracy: float, task: Callable[[Unit], Result]) -> list[Result]:
        """Take ground costs from d, and do what replaces it unit by unit."""
        with single_thread():
            self.solver.prepare(d.array, accuracy)
            try:
                results = self._all_units(task)
            finally:
                if self.solver.halved:
                    mirror(d.array)
        self._clear_diagonal(d)
        return results

    def keep_choices(self) -> bool:
        c = self.comparison
        if self.solver.keeps_plans and not c.plain and not self._noted.size:
            widest = [int(np.diff(pointers).max()) for pointers in (c.row_pointers, c.column_pointers)]
            self._noted = np.empty(c.shape, _whole(max(len(c.groups), widest[0] * widest[1])))
            if c.combine == "hausdorff":
                self._partners = np.empty((len(c.rows), max(c.shape)), _whole(max(widest)))
        return self.solver.keeps_plans

    def mean_change(self, d: HostDistances) -> float:
        return self.solver.mean_change(d.array)

    @property
    def path_share(self) -> float:
        return float(np.mean(self.comparison.rows.sizes == 1)) ** 2

    def find_paths(self) -> None:
        if self._paths is not None and self.comparison.plain:
            return
        c, solver, base = self.comparison, self.solver, np.zeros(self.comparison.shape)
        following = np.full(c.shape, -1, np.int32 if base.size < 1 << 31 else np.int64)
        for group, members in enumerate(c.groups):
            block = Block(members, 0, solver.corners[group] or len(members), solver.first, solver.corners[group])
            wanted = np.empty((0, 0), np.bool_) if c.plain else self._noted_pairs(block, group)
            kernels.one_step(solver._csr, block, c.state_of_row, c.rewards, c.c_R, wanted, base, following)
        if not c.plain:
            following[c.apart[:, None] != c.columns_apart[None, :]] = -1
        order = np.empty(base.size, following.dtype)
        order = order[: kernels.order_paths(base.reshape(-1), following.reshape(-1), c.c_T, order)].copy()
        self._paths = (order, following.reshape(-1)[order], base.reshape(-1)[order])

    def follow_paths(self, d: HostDistances) -> None:
        assert self._paths is not None
        kernels.walk(*self._paths, self.comparison.c_T, self.comparison.square, d.array)

    def _noted_pairs(self, block: Block, group: int) -> Array:
        """Which pairs of rows of a group decided the distance of their states."""
        if self.comparison.combine != "hausdorff":
            return self._wanted_of_group(block, group, 0, self._noted)
        wanted = np.zeros((block.a1, self._width(group)), np.bool_)
        kernels.wanted_of_choices(self._sides(), 0, self._begin(self.solver.first), self._noted, wanted)
        return wanted

    def _clear_diagonal(self, d: HostDistances) -> None:
        if self.comparison.square and not self.solver.with_diagonal:
            np.fill_diagonal(d.array, 0.0)

    def start(self, d: HostDistances, count: int, stop: float) -> Pending:
        return _Later(self, d, count, stop)

    def bounds(self, d: HostDistances, accuracy: float) -> tuple[Floats, Floats]:
        lower, upper = np.zeros_like(d.array), np.zeros_like(d.array)
        remembered = {name: array.copy() for name, array in self.solver.remembered().items()}
        with single_thread():
            self.solver.prepare(d.array, accuracy)
            self._all_units(lambda unit: self._bound_unit(unit, lower, upper))
        self.solver.finish()
        self.solver.recall(remembered)  # bounds only read
        return lower.astype(np.float64), upper.astype(np.float64)

    def _all_units(self, task: Callable[[Unit], Result]) -> list[Result]:
        count = threads()
        if count not in self._units_by_threads:
            self._units_by_threads[count] = units_of_work(self.comparison, count)
        return run_all(task, self._units_by_threads[count], self.solver.halt, brief=self._brief)

    def _sweep_unit(self, unit: Unit, d: Array) -> tuple[float, PairTally]:
        solver, tally = self.solver, PairTally()

        def fill(group: int, a0: int, a1: int, out: Array) -> None:
            solver.fill(group, a0, a1, out, tally)
            self._stop_if_halted()

        rows = self._combined_rows(unit, solver.first, fill, solver.unit, self._partners)
        return self._write(unit, rows, solver.first, d), tally

    def _bound_unit(self, unit: Unit, lower: Array, upper: Array) -> None:
        for target, order in ((lower, 1), (upper, -1)):

            def fill(group: int, a0: int, a1: int, out: Array, order: int = order) -> None:
                self.solver.bounds(group, a0, a1, *(out, np.zeros_like(out))[::order])
                self._stop_if_halted()

            rows = self._combined_rows(unit, 1, fill, 1.0, _NO_NOTES)
            kernels.write_rows(rows, unit.s0, self._begin(1), self.comparison.square, target)

    def _stop_if_halted(self) -> None:
        if self.solver.halt[0]:  # a block that was left early must not be written
            raise _HaltedError

    def _write(self, unit: Unit, rows: Floats, first: int, d: Array) -> float:
        begin = self._begin(first)
        if self.solver.halved:
            rise, fall = kernels.write_above(rows, unit.s0, begin, d)
        else:
            rise, fall = kernels.write_rows(rows, unit.s0, begin, self.comparison.square, d)
        return float(max(rise, fall))

    def _begin(self, first: int) -> int:
        """Distances of s to states t ≥ s + this are computed: to all states where t is one of another model."""
        return first if self.comparison.square else -self.comparison.shape[0]

    def _sides(self) -> Sides:
        c = self.comparison
        return Sides(c.row_pointers, c.column_pointers, 0 if c.square else int(c.column_pointers[0]))

    def _combined_rows(self, unit: Unit, first: int, fill: Fill, scale: float, partners: Array) -> Floats:
        """Rows s0 … s1−1 of F(d) with transports from `fill`, in units of `scale`; notes partners if there is room."""
        c, (s0, s1, blocks) = self.comparison, unit
        rows, weights, begin = np.zeros((s1 - s0, c.shape[1])), Weights(c.c_R, c.c_T * scale), self._begin(first)
        if c.combine == "hausdorff":
            _, a0, a1 = blocks[0]
            transports = np.zeros((a1 - a0, self._width(0)))
            fill(0, a0, a1, transports)
            kernels.hausdorff(transports, self._sides(), c.rewards, s0, begin, weights, rows, partners)
            self._set_apart(unit, rows)
            return rows
        kernels.start_rows(c.apart, c.columns_apart, c.largest, s0, begin, rows)
        for group, a0, a1 in blocks:
            transports = np.zeros((a1 - a0, self._width(group)))
            fill(group, a0, a1, transports)
            block = self._block(group, a0, a1, first)
            kernels.raise_to(transports, block, c.state_of_row, c.rewards, s0, weights, rows)
        return rows

    def _kept_rows(self, unit: Unit) -> Floats:
        """Rows s0 … s1−1 of F(d) with the plans and partners of the last sweep; notes what decides each distance."""
        c, solver, (s0, s1, blocks) = self.comparison, self.solver, unit
        rows, noted, weights = np.zeros((s1 - s0, c.shape[1])), self._noted[s0:s1], Weights(c.c_R, c.c_T * solver.unit)
        begin = self._begin(solver.first)
        if c.combine == "hausdorff":
            _, a0, a1 = blocks[0]
            transports, sides = np.zeros((a1 - a0, self._width(0))), self._sides()
            wanted = np.zeros(transports.shape, np.bool_)
            kernels.wanted_of_partners(sides, s0, begin, self._partners, wanted)
            self._fill_kept(0, a0, a1, transports, wanted)
            kernels.respond(transports, sides, c.rewards, s0, begin, weights, rows, (self._partners, noted))
            self._set_apart(unit, rows)
            return rows
        kernels.start_rows(c.apart, c.columns_apart, c.largest, s0, begin, rows)
        noted[:] = np.where(c.apart[s0:s1, None] != c.columns_apart[None, :], kernels.APART, kernels.UNKNOWN)
        for group, a0, a1 in blocks:
            transports, block = np.zeros((a1 - a0, self._width(group))), self._block(group, a0, a1, solver.first)
            self._fill_kept(group, a0, a1, transports, None)
            kernels.raise_and_note(transports, block, c.state_of_row, c.rewards, s0, weights, rows, (group, noted))
        return rows

    def _frozen_rows(self, unit: Unit) -> Floats:
        """Rows s0 … s1−1 of G(d): the kept plans of the pairs that were noted."""
        c, solver, (s0, s1, blocks) = self.comparison, self.solver, unit
        rows, noted, weights = np.zeros((s1 - s0, c.shape[1])), self._noted[s0:s1], Weights(c.c_R, c.c_T * solver.unit)
        begin = self._begin(solver.first)
        if c.combine == "hausdorff":
            _, a0, a1 = blocks[0]
            transports, sides = np.zeros((a1 - a0, self._width(0))), self._sides()
            wanted = np.zeros(transports.shape, np.bool_)
            kernels.wanted_of_choices(sides, s0, begin, noted, wanted)
            self._fill_kept(0, a0, a1, transports, wanted)
            kernels.take_choices(transports, sides, c.rewards, s0, begin, weights, noted, rows)
            self._set_apart(unit, rows)
            return rows
        kernels.start_rows(c.apart, c.columns_apart, c.largest, s0, begin, rows)
        for group, a0, a1 in blocks:
            transports, block = np.zeros((a1 - a0, self._width(group))), self._block(group, a0, a1, solver.first)
            given = (transports, block, c.state_of_row, c.rewards, s0, weights)
            if c.plain:
                self._fill_kept(group, a0, a1, transports, None)
                kernels.raise_to(*given, rows)
            else:
                wanted = self._wanted_of_group(block, group, s0, noted)
                self._fill_kept(group, a0, a1, transports, wanted)
                kernels.take_wanted(*given, wanted, rows)
        return rows

    def _fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        if self.solver.top > 0.0:
            self.solver.fill_kept(group, a0, a1, out, wanted)

    def _wanted_of_group(self, block: Block, group: int, s0: int, noted: Array) -> Array:
        """Which pairs of rows of a block decided the distance of their states."""
        wanted = np.zeros((block.a1 - block.a0, self._width(group)), np.bool_)
        kernels.wanted_of_group(block, self.comparison.state_of_row, s0, group, noted, wanted)
        return wanted

    def _width(self, group: int) -> int:
        """Columns of a block of transports."""
        return len(self.comparison.groups[group]) - self.solver.corners[group]

    def _block(self, group: int, a0: int, a1: int, first: int) -> Block:
        return Block(self.comparison.groups[group], a0, a1, first, self.solver.corners[group])

    def _set_apart(self, unit: Unit, rows: Floats) -> None:
        c, (s0, s1, _) = self.comparison, unit
        rows[c.apart[s0:s1, None] != c.columns_apart[None, :]] = c.largest


def _whole(largest: int) -> type[np.signedinteger[Any]]:
    return np.int16 if largest < 1 << 15 else np.int32


def units_of_work(comparison: Comparison, threads: int) -> list[Unit]:
    """Ranges of states with about equal numbers of pairs and a bounded work space."""
    n, pointers, square = comparison.shape[0], comparison.row_pointers, comparison.square
    width = int(comparison.column_pointers[-1] - comparison.column_pointers[0])
    pairs_in_all = width * (width + 1) / 2 if square else float(pointers[-1]) * width
    per_unit = max(_FEWEST, pairs_in_all / (8 * threads))
    units, start = [], 0
    while start < n:
        stop, pairs = start, 0.0
        while stop < n and (stop == start or pairs < per_unit):
            rows = int(pointers[stop + 1] - pointers[start])
            if stop > start and rows * width * 16 > _UNIT_BYTES:
                break
            pairs += float((pointers[stop + 1] - pointers[stop]) * (width - (pointers[stop] if square else 0)))
            stop += 1
        units.append(unit_of_work(comparison, start, stop))
        start = stop
    return units


class _Later:
    """Sweeps that are done when their result is wanted."""

    def __init__(self, sweeper: CpuSweeper, d: HostDistances, count: int, stop: float) -> None:
        self._sweeper, self._start, self._count, self._stop = sweeper, d, count, stop

    def go_on(self) -> bool:
        return True

    def result(self) -> Swept:
        d = self._start.copy()
        change, iterations, done, error = np.inf, 0, 0, 0.0
        while done < self._count and change > self._stop:
            report = self._sweeper.sweep(d)
            change, iterations, done = report.change, iterations + report.iterations, done + 1
            error = max(error, report.transport_error)
        return Swept(d, done, change, iterations, error)
