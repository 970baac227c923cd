"""Sweeps on the CPU: units of rows on the threads. Results do not depend on how many there are.

A sweep takes the ground costs of all pairs from d first, so that d can then be replaced row by row, in place:

    for each unit of states s0 … s1−1:      on the threads
        transports of their rows            `solver.fill`, in blocks
        combined into rows of F(d)          `_combined_rows`
        written into d, above and below the diagonal
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...transport import Transport
from ..protocol import Array, Comparison, Floats, Pending, Sweep, Sweeper, Swept, Unit, unit_of_work
from ..threads import Result, run_all, single_thread, threads
from . import kernels
from .distances import HostDistances
from .kernels.arguments import Block, Weights
from .solver import CpuSolver, PairTally

if TYPE_CHECKING:
    from . import CpuBackend

Fill = Callable[[int, int, int, Array], None]

_UNIT_BYTES = 4 << 20  # work space of one unit of work
_BRIEF = 4 << 20  # entries of all pairs' costs up to which a sweep takes but a moment
_FEWEST = 1024  # pairs of a unit of one thread: calling kernels costs as much as some 30 pairs


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

    def sweep(self, d: HostDistances, accuracy: float = np.inf) -> Sweep:
        with single_thread():
            self.solver.prepare(d.array, accuracy)
            reports = self._all_units(lambda unit: self._sweep_unit(unit, d.array))
        if not self.solver.with_diagonal:
            np.fill_diagonal(d.array, 0.0)
        changes, tallies = zip(*reports, strict=True)
        tally = PairTally.merged(tallies)
        rounding = self.solver.rounding(float(d.array.max()))
        return Sweep(max(changes), self.solver.true_error(tally), rounding, tally.iterations)

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
            if solver.halt[0]:  # a block that was left early must not be written
                raise _HaltedError

        rows = self._combined_rows(unit, solver.first, fill, solver.unit)
        rise, fall = kernels.write_rows(rows, unit.s0, solver.first, d)
        return max(rise, fall), tally

    def _bound_unit(self, unit: Unit, lower: Array, upper: Array) -> None:
        for target, order in ((lower, 1), (upper, -1)):

            def fill(group: int, a0: int, a1: int, out: Array, order: int = order) -> None:
                self.solver.bounds(group, a0, a1, *(out, np.zeros_like(out))[::order])
                if self.solver.halt[0]:
                    raise _HaltedError

            kernels.write_rows(self._combined_rows(unit, 1, fill, 1.0), unit.s0, 1, target)

    def _combined_rows(self, unit: Unit, first: int, fill: Fill, scale: float) -> Floats:
        """Rows s0 … s1−1 of F(d), for t ≥ s + first, with transports from `fill`, which are in units of `scale`."""
        c, (s0, s1, blocks) = self.comparison, unit
        rows, weights = np.zeros((s1 - s0, len(c.apart))), Weights(c.c_R, c.c_T * scale)
        if c.combine == "hausdorff":
            _, a0, a1 = blocks[0]
            transports = np.zeros((a1 - a0, len(c.state_of_row)))
            fill(0, a0, a1, transports)
            kernels.hausdorff(transports, c.row_pointers, c.rewards, s0, first, weights, rows)
            rows[c.apart[s0:s1, None] != c.apart[None, :]] = c.largest
            return rows
        kernels.start_rows(c.apart, c.largest, s0, rows)
        for group, a0, a1 in blocks:
            members = c.groups[group]
            transports = np.zeros((a1 - a0, len(members)))
            fill(group, a0, a1, transports)
            kernels.raise_to(transports, Block(members, a0, a1, first), c.state_of_row, c.rewards, s0, weights, rows)
        return rows


def units_of_work(comparison: Comparison, threads: int) -> list[Unit]:
    """Ranges of states with about equal numbers of pairs and a bounded work space."""
    n, pointers = comparison.n_states, comparison.row_pointers
    width = int(pointers[-1])
    per_unit = max(_FEWEST if threads == 1 else 1.0, width * (width + 1) / 2 / (8 * threads))
    units, start = [], 0
    while start < n:
        stop, pairs = start, 0.0
        while stop < n and (stop == start or pairs < per_unit):
            rows = int(pointers[stop + 1] - pointers[start])
            if stop > start and rows * width * 16 > _UNIT_BYTES:
                break
            pairs += float((pointers[stop + 1] - pointers[stop]) * (width - pointers[stop]))
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
