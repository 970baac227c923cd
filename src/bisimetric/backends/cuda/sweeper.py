"""Sweeps on a device: d stays there, and what a sweep did is read from a tally of a hundred bytes.

Sweeps are started several at a time before the host looks at what they did; those that are not needed any more do
nothing. Once the same sweep of a small model was started before, all its launches are one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...kinds import Array, Floats
from ...model import Chain
from ...transport import Transport
from ..comparison import Comparison, Unit, unit_of_work
from ..protocol import Sweep, Sweeper, Swept, mean_difference
from . import kernels
from .distances import DeviceDistances
from .kernels import Choices, Members, PairBlock, Reading, Weights
from .solver import CudaSolver

if TYPE_CHECKING:
    from . import CudaBackend

Fill = Callable[[int, int, int, Array], None]

_UNIT_BYTES = 1 << 28  # work space of one unit of work
_UNIT_ROWS = 1 << 14  # rows of one: grids of a device have fewer than 2^16, and some kernels need two a row
_GRAPHED_UNITS = 8  # units of work up to which the launches of a sweep are kept as a graph
_SWEEPS_AT_ONCE = 4  # sweeps that are started before the host looks at what they did


class CudaSweeper(Sweeper):
    """F by kernels of a device."""

    portable: ClassVar[bool] = False
    solver: CudaSolver

    def __init__(self, backend: CudaBackend, comparison: Comparison, transport: Transport, remember: bool) -> None:
        super().__init__(backend, comparison, transport, remember)
        xp = kernels.cupy()
        self._dtype = backend.dtype
        self._states = xp.asarray(comparison.state_of_row)
        pointers, apart = xp.asarray(comparison.row_pointers), xp.asarray(comparison.apart)
        column_pointers, columns_apart = pointers, apart
        if not comparison.square:
            column_pointers, columns_apart = (
                xp.asarray(comparison.column_pointers),
                xp.asarray(comparison.columns_apart),
            )
        self._rewards = xp.array(comparison.rewards)
        self._choices = Choices(
            pointers, column_pointers, self._rewards, apart, columns_apart, float(comparison.largest)
        )
        self._units_by_rows: dict[int, list[Unit]] = {}
        self._room: Array | None = None  # for blocks of transports
        self._host_room = kernels.HostRoom()
        self._home: Any = None  # the distances that `start` works on
        self._graph: Any = None
        self._graphs_work = True
        self._started: Any = None
        self.expected = 2 * _SWEEPS_AT_ONCE  # sweeps that were needed the last time

    def follow(self, chain: Chain) -> None:
        super().follow(chain)
        kernels.put(self._rewards, chain.rewards)

    def sweep(self, d: DeviceDistances, accuracy: float = np.inf) -> Sweep:
        d.changed()
        with self.guard():
            self.solver.tally.clear()
            self._enqueue_sweep(d.array, -1.0, accuracy)
            seen = self.solver.tally.read()
        rounding = self.solver.rounding(float(d.array.max()))
        return Sweep(max(seen.last_rise, seen.last_fall), self.error_of(seen), rounding, seen.iterations)

    def sweep_roughly(self, d: DeviceDistances) -> float:
        return self._sweep_again(d, self.solver.fill_roughly)

    def keep_choices(self) -> bool:
        return self.solver.keeps_plans

    def sweep_kept(self, d: DeviceDistances) -> float:
        return self._sweep_again(d, lambda group, a0, a1, out: self.solver.fill_kept(group, a0, a1, out, None))

    def sweep_frozen(self, d: DeviceDistances) -> float:
        return self.sweep_kept(d)  # what decides a distance is not noted: it stays free, and is found in passing

    def _sweep_again(self, d: DeviceDistances, fill: Fill) -> float:
        """Replace d by F(d) with what `fill` gives in place of transports; returns the largest change."""
        d.changed()
        with self.guard():
            self.solver.tally.clear()
            self._enqueue_sweep(d.array, -1.0, np.inf, fill)
            seen = self.solver.tally.read()
        return max(seen.last_rise, seen.last_fall)

    def mean_change(self, d: DeviceDistances) -> float:
        return mean_difference(d.array, self.solver.cost)

    @property
    def path_share(self) -> float:
        return 0.0

    def find_paths(self) -> None:
        raise NotImplementedError("paths are followed on the host only.")

    def follow_paths(self, d: DeviceDistances) -> None:
        raise NotImplementedError("paths are followed on the host only.")

    def start(self, d: DeviceDistances, count: int, stop: float) -> _Ahead:
        return _Ahead(self, d, count, stop)

    def error_of(self, seen: Reading) -> float:
        return self.solver.true_error(seen.last_error, seen.last_top)

    def bounds(self, d: DeviceDistances, accuracy: float) -> tuple[Floats, Floats]:
        xp, tally = kernels.cupy(), self.solver.tally
        lower, upper = xp.zeros_like(d.array), xp.zeros_like(d.array)
        tally.clear()
        self.solver.prepare(d.array, accuracy)
        for unit in self._units():
            self._bound_unit(unit, lower, upper)
        for bound in (lower, upper):
            self._mirror(bound)
        tally.clear()
        self.solver.finish()
        return xp.asnumpy(lower).astype(np.float64), xp.asnumpy(upper).astype(np.float64)

    def take_home(self, d: DeviceDistances) -> None:
        """Copy distances to where several sweeps work, always the same place, so that a graph can be used again."""
        if self._home is None:
            self._home = kernels.cupy().empty_like(d.array)
        self._home[...] = d.array
        self.solver.tally.clear()

    def from_home(self) -> DeviceDistances:
        return DeviceDistances(self._home.copy(), self._host_room)

    def launch(self, count: int, stop: float) -> None:
        """Start sweeps of the distances at home: from a graph, once the same sweep was started before."""
        for k in range(count):
            if self._graph is not None and self._graph[0] == stop and _same(self._graph[1], self._arrays_in_use()):
                for _ in range(k, count):
                    self._graph[2].launch()
                return
            self._enqueue_sweep(self._home, stop, np.inf)
            if self._can_be_graphed():
                self._capture(stop)

    def _can_be_graphed(self) -> bool:
        return (
            self._graphs_work
            and self.comparison.plain
            and not self.solver.synchronous
            and not self.solver.by_matrices
            and len(self._units()) <= _GRAPHED_UNITS
        )

    def _capture(self, stop: float) -> None:
        """Keep the launches of a sweep as a graph, where the last one used the same arrays."""
        arrays = self._arrays_in_use()
        if self._started is not None and _same(self._started, arrays):
            graph = kernels.captured(lambda: self._enqueue_sweep(self._home, stop, np.inf))
            self._graphs_work = graph is not None
            self._graph = None if graph is None else (stop, arrays, graph)
        self._started = arrays

    def _arrays_in_use(self) -> tuple[object, ...]:
        """What a graph of a sweep is bound to."""
        return (self._home, self._room, self._rewards, *self.solver.in_use())

    def _enqueue_sweep(self, d: Array, stop: float, accuracy: float, fill: Fill | None = None) -> None:
        """Start all that a sweep does; `fill` gives other plans than the best."""
        solver, c = self.solver, self.comparison
        tally, first = solver.tally, solver.first
        solver.prepare(d, accuracy)
        weights = Weights(float(c.c_R), c.c_T * solver.unit)
        fill = fill or (lambda group, a0, a1, out: solver.fill(group, a0, a1, out, tally))
        try:
            for unit in self._units():
                if c.plain:
                    transports = self._block_of_chain(unit.s1 - unit.s0)
                    fill(0, unit.s0, unit.s1, transports)
                    block = PairBlock(0, unit.s0, unit.s1, first, solver.corners[0])
                    kernels.write_chain(tally, transports, block, self._rewards, weights, d)
                else:
                    rows = self._combined_rows(unit, first, fill, weights)
                    kernels.write_rows(tally, rows, unit.s0, first, c.square, d)
        finally:
            self._mirror(d)  # also after Ctrl-C between two units: d stays symmetric
        kernels.end_sweep(tally, stop, self._dtype)

    def _mirror(self, d: Array) -> None:
        if self.comparison.square:
            kernels.mirror(self.solver.tally, d)

    def _block_of_chain(self, rows: int) -> Array:
        """Room for a block of transports, used again and again."""
        n = self.comparison.shape[1]
        if self._room is None or self._room.size < rows * n:
            self._room = kernels.cupy().empty(rows * n, self._dtype)
        block: Array = self._room[: rows * n].reshape(rows, n)
        return block

    def _units(self) -> list[Unit]:
        """Ranges of states whose work space fits; a device is filled by one."""
        at_once = self.solver.rows_at_once
        if at_once not in self._units_by_rows:
            self._units_by_rows[at_once] = self._units_of(at_once)
        return self._units_by_rows[at_once]

    def _units_of(self, at_once: int) -> list[Unit]:
        (n, columns), pointers = self.comparison.shape, self.comparison.row_pointers
        ends = self.comparison.column_pointers
        width = max(int(ends[-1] - ends[0]), columns)
        rows = max(1, min(_UNIT_BYTES // (width * self._dtype.itemsize), at_once, _UNIT_ROWS))
        units, start = [], 0
        while start < n:
            stop = int(np.searchsorted(pointers, pointers[start] + rows, side="right")) - 1
            stop = min(max(stop, start + 1), n)
            units.append(unit_of_work(self.comparison, start, stop))
            start = stop
        return units

    def _bound_unit(self, unit: Unit, lower: Array, upper: Array) -> None:
        c, above = self.comparison, list[Array]()  # of the unit's blocks, in their order

        def fill_lower(group: int, a0: int, a1: int, out: Array) -> None:
            above.append(kernels.cupy().zeros_like(out))
            self.solver.bounds(group, a0, a1, out, above[-1])

        def fill_upper(group: int, a0: int, a1: int, out: Array) -> None:
            del group, a0, a1
            out[:] = above.pop(0)

        for target, fill in ((lower, fill_lower), (upper, fill_upper)):
            rows = self._combined_rows(unit, 1, fill, Weights(float(c.c_R), float(c.c_T)))
            kernels.write_rows(self.solver.tally, rows, unit.s0, 1, c.square, target)

    def _combined_rows(self, unit: Unit, first: int, fill: Fill, weights: Weights) -> Array:
        """Rows s0 … s1−1 of F(d), for t ≥ s + first, with transports from `fill`."""
        xp, tally, c, (s0, s1, blocks) = kernels.cupy(), self.solver.tally, self.comparison, unit
        rows: Array = xp.zeros((s1 - s0, c.shape[1]), self._dtype)
        if c.combine != "hausdorff":
            kernels.start_rows(self._choices, s0, rows)
        for group, a0, a1 in blocks:
            block, members = PairBlock(group, a0, a1, first, self.solver.corners[group]), self._members(group)
            transports = xp.zeros((a1 - a0, len(members.members) - block.corner), self._dtype)
            fill(group, a0, a1, transports)
            if c.combine == "hausdorff":  # one group of all rows
                kernels.hausdorff(tally, transports, self._choices, block, s0, weights, rows)
            else:
                kernels.raise_to(tally, transports, members, block, s0, weights, rows)
        return rows

    def _members(self, group: int) -> Members:
        return Members(self.solver.on_device.groups[group], self._states, self._rewards)


class _Ahead:
    """Sweeps that were started; some more than are needed, which then do nothing."""

    def __init__(self, sweeper: CudaSweeper, d: DeviceDistances, count: int, stop: float) -> None:
        self._sweeper, self._count, self._stop = sweeper, count, stop
        self._swept: Swept | None = None
        self._error = 0.0  # largest of all sweeps so far
        with sweeper.guard():
            sweeper.take_home(d)
            self._launch(sweeper.expected + 1, 0)  # as many as were needed last time, and one that may change nothing

    def _launch(self, ahead: int, done: int) -> None:
        self._sweeper.launch(1 if self._sweeper.solver.synchronous else min(ahead, self._count - done), self._stop)

    def go_on(self) -> bool:
        if self._swept is not None:
            return True
        sweeper = self._sweeper
        with sweeper.guard():
            seen = sweeper.solver.tally.read()
            self._error = max(self._error, sweeper.error_of(seen))  # the unit may be another in the next one
            if not seen.done and seen.sweeps < self._count:
                self._launch(_SWEEPS_AT_ONCE, seen.sweeps)
                return False
            sweeper.expected = seen.sweeps
            self._swept = Swept(sweeper.from_home(), seen.sweeps, seen.change, seen.iterations, self._error)
        return True

    def result(self) -> Swept:
        while not self.go_on():
            pass
        assert self._swept is not None
        return self._swept


def _same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return len(some) == len(others) and all(x is y for x, y in zip(some, others, strict=True))
