"""Sweeps on the CPU: units of rows on the threads. Results do not depend on how many there are.

A sweep takes the ground costs of all pairs from d first, so that d can then be replaced row by row, in place:

    ground costs (d/u)^p                    `solver.prepare`
    for each unit of states s0 … s1−1:      `_sweep_unit`, on the threads
        transports of their rows            `solver.fill`, in blocks (group, a0, a1) of rows
        combined into rows of F(d)          `_combined_rows`
        written into d                      `_write`, above and below the diagonal

Other sweeps replace d the same way, by rows that are made otherwise (`_sweep_again`, `choices`). Where two models are
compared, the columns of a block begin at its `corner`: the first row of the second model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...kinds import Array, Floats
from ...model import Chain
from ...transport import Transport
from ..comparison import Comparison, Unit, unit_of_work
from ..protocol import Pending, Sweep, Sweeper, Swept
from ..threads import Result, run_all, single_thread, threads
from . import kernels
from .choices import NO_NOTES, KeptChoices
from .distances import HostDistances
from .halves import mirror
from .kernels.arguments import Block, Sides, Weights
from .solver import CpuSolver, PairTally

if TYPE_CHECKING:
    from . import CpuBackend

Fill = Callable[[int, int, int, Array], None]

_UNIT_BYTES = 4 << 20  # work space of one unit of work
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
        self.square = comparison.square
        self.choices = KeptChoices(self)

    def sweep(self, d: HostDistances, accuracy: float = np.inf) -> Sweep:
        reports = self._replace(d, accuracy, lambda unit: self._sweep_unit(unit, d.array))
        changes, tallies = zip(*reports, strict=True)
        tally = PairTally.merged(tallies)
        rounding = self.solver.rounding(float(d.array.max()))
        return Sweep(max(changes), self.solver.true_error(tally), rounding, tally.iterations)

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

        rows = self._combined_rows(unit, solver.first, fill, solver.unit, self.choices.partners)
        return self._write(unit, rows, solver.first, d), tally

    def _combined_rows(self, unit: Unit, first: int, fill: Fill, scale: float, partners: Array) -> Floats:
        """Rows s0 … s1−1 of F(d) with transports from `fill`, in units of `scale`; notes partners if there is room."""
        c, (s0, s1, blocks) = self.comparison, unit
        rows, weights, begin = np.zeros((s1 - s0, self.shape[1])), Weights(c.c_R, c.c_T * scale), self.begin(first)
        if c.combine == "hausdorff":
            _, a0, a1 = blocks[0]
            transports = np.zeros((a1 - a0, self.width(0)))
            fill(0, a0, a1, transports)
            kernels.hausdorff(transports, self.sides(), c.rewards, s0, begin, weights, rows, partners)
            self.set_apart(unit, rows)
            return rows
        kernels.start_rows(c.apart, c.columns_apart, c.largest, s0, begin, rows)
        for group, a0, a1 in blocks:
            transports = np.zeros((a1 - a0, self.width(group)))
            fill(group, a0, a1, transports)
            block = self.block(group, a0, a1, first)
            kernels.raise_to(transports, block, c.state_of_row, c.rewards, s0, weights, rows)
        return rows

    def _write(self, unit: Unit, rows: Floats, first: int, d: Array) -> float:
        begin = self.begin(first)
        if self.solver.halved:
            rise, fall = kernels.write_above(rows, unit.s0, begin, d)
        else:
            rise, fall = kernels.write_rows(rows, unit.s0, begin, self.square, d)
        return float(max(rise, fall))

    def _clear_diagonal(self, d: HostDistances) -> None:
        if self.square and not self.solver.with_diagonal:
            np.fill_diagonal(d.array, 0.0)

    def _stop_if_halted(self) -> None:
        if self.solver.halt[0]:  # a block that was left early must not be written
            raise _HaltedError

    def begin(self, first: int) -> int:
        """Distances of s to states t ≥ s + this are computed: to all states where t is one of another model."""
        return first if self.square else -self.shape[0]

    def width(self, group: int) -> int:
        """Columns of a block of transports."""
        return len(self.comparison.groups[group]) - self.solver.corners[group]

    def block(self, group: int, a0: int, a1: int, first: int) -> Block:
        """Some rows of a group with those that they are compared with."""
        return Block(self.comparison.groups[group], a0, a1, first, self.solver.corners[group])

    def sides(self) -> Sides:
        """The choices of both sides, for kernels."""
        c = self.comparison
        return Sides(c.row_pointers, c.column_pointers, 0 if self.square else int(c.column_pointers[0]))

    def set_apart(self, unit: Unit, rows: Floats) -> None:
        """Put pairs of states that are kept apart at the largest distance."""
        c, (s0, s1, _) = self.comparison, unit
        rows[c.apart[s0:s1, None] != c.columns_apart[None, :]] = c.largest

    def sweep_roughly(self, d: HostDistances) -> float:
        solver = self.solver

        def rows_of(unit: Unit) -> Floats:
            return self._combined_rows(unit, solver.first, solver.fill_roughly, solver.unit, self.choices.partners)

        return self._sweep_again(d, rows_of)

    def sweep_kept(self, d: HostDistances) -> float:
        return self._sweep_again(d, self.choices.kept_rows)

    def sweep_frozen(self, d: HostDistances) -> float:
        return self._sweep_again(d, self.choices.frozen_rows)

    def _sweep_again(self, d: HostDistances, rows_of: Callable[[Unit], Floats]) -> float:
        """Replace d by what `rows_of` makes of it; returns the largest change."""

        def task(unit: Unit) -> float:
            rows = rows_of(unit)
            self._stop_if_halted()
            return self._write(unit, rows, self.solver.first, d.array)

        return max(self._replace(d, np.inf, task))

    def keep_choices(self) -> bool:
        if self.solver.keeps_plans:
            self.choices.make_room()
        return self.solver.keeps_plans

    def mean_change(self, d: HostDistances) -> float:
        return self.solver.mean_change(d.array)

    @property
    def path_share(self) -> float:
        return float(np.mean(self.comparison.rows.sizes == 1)) ** 2

    def find_paths(self) -> None:
        self.choices.find_paths()

    def follow_paths(self, d: HostDistances) -> None:
        self.choices.follow_paths(d.array)

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

    def _bound_unit(self, unit: Unit, lower: Array, upper: Array) -> None:
        above: list[Array] = []  # of the unit's blocks, in their order

        def fill_lower(group: int, a0: int, a1: int, out: Array) -> None:
            above.append(np.zeros_like(out))
            self.solver.bounds(group, a0, a1, out, above[-1])
            self._stop_if_halted()

        def fill_upper(group: int, a0: int, a1: int, out: Array) -> None:
            del group, a0, a1
            out[:] = above.pop(0)

        for target, fill in ((lower, fill_lower), (upper, fill_upper)):
            rows = self._combined_rows(unit, 1, fill, 1.0, NO_NOTES)
            kernels.write_rows(rows, unit.s0, self.begin(1), self.square, target)

    def follow(self, chain: Chain) -> None:
        halved = self.solver.halved
        super().follow(chain)
        if halved:
            self.solver.halve()

    def spare_memory(self) -> bool:
        return self.solver.halve()


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
