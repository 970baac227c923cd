"""Sweeps on a device: d stays there, and what a sweep did is read from a tally of a hundred bytes.

Sweeps are started several at a time before the host looks at what they did; those that are not needed any more do
nothing. Once the same sweep of a small model was started before, all its launches are one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import Chain
from .base import MetricOperator, Sweep, Swept, Units

_UNIT_BYTES = 1 << 28  # work space of one unit of work
_GRAPHED_UNITS = 8  # units of work up to which the launches of a sweep are kept as a graph
_SWEEPS_AT_ONCE = 4  # sweeps that are started before the host looks at what they did
_FEW_STATES = 400  # up to which a copy of the distances and their classes take the host less time than launches


class DeviceOperator(MetricOperator):
    """F by kernels of a device; `sweep(d)` replaces d by F(d) in place."""

    def __init__(self, *model: Any, **settings: Any) -> None:
        super().__init__(*model, **settings)
        to_device = self.engine.to_device
        self._tables = [to_device(x) for x in (self._states, self._pointers, self._label_sets)]
        self._rewards = self.engine.xp.array(self.model.rewards)
        self._plain = self.match == "chain" and not self.respect  # one transport a pair, and nothing else to look at
        self._block: Any = None
        self._home: Any = None  # the distances that `sweeps` works on
        self._graph: Any = None
        self._graphs_work = True
        self._started: Any = None
        self._expected = 2 * _SWEEPS_AT_ONCE  # sweeps that were needed the last time
        self._room: Any = self.engine.kernels.HostRoom()

    def follow(self, model: Chain) -> None:
        super().follow(model)
        self.engine.kernels.put(self._rewards, model.rewards)

    def sweep(self, d: NDArray[Any], accuracy: float = np.inf) -> Sweep:
        self.evaluator.restart()
        on_device = self.engine.to_device(d)
        with self.memory_errors():
            self.evaluator.tally.clear()
            self._enqueue_sweep(on_device, -1.0, accuracy)
            seen = self.evaluator.tally.read()
        if isinstance(d, np.ndarray) and on_device is not d:  # distances of the host go there and back
            d[:] = self.engine.to_host(on_device)
        error = self.evaluator.true_error(seen.last_error, seen.last_top)
        return Sweep(seen.last_rise, seen.last_fall, error, seen.iterations)

    def sweeps(self, start: Any, count: int, stop: float) -> Generator[None, None, Swept]:
        self.evaluator.restart()
        with self.memory_errors():
            return (yield from self._sweeps_until(start, count, stop))

    def _sweeps_until(self, start: Any, count: int, stop: float) -> Generator[None, None, Swept]:
        evaluator, tally = self.evaluator, self.evaluator.tally
        if self._home is None:
            self._home = self.engine.xp.empty_like(start)
        self._home[...] = start  # sweeps work in one place, so that a graph of their launches can be used again
        tally.clear()
        ahead, done = self._expected + 1, 0  # as many as were needed the last time, and one that may change nothing
        while True:
            self._launch_sweeps(1 if evaluator.synchronous else min(ahead, count - done), stop)
            yield
            seen = tally.read()
            done, ahead = seen.sweeps, _SWEEPS_AT_ONCE
            if seen.done or done >= count:
                break
        self._expected = done
        error = self.evaluator.true_error(seen.last_error, seen.last_top)
        return Swept(self._home.copy(), done, seen.change, seen.iterations, error)

    def memory_errors(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.engine.kernels.memory_errors(self.evaluator.needs)
        return context

    def for_classes(self, d: Any, stays: bool) -> Any:
        return d if stays and self.n_states > _FEW_STATES else self._room.read(d)

    def bounds(self, d: NDArray[Any], tol: float) -> tuple[NDArray[Any], NDArray[Any]]:
        self.evaluator.restart()
        ground = self.engine.to_device(d)
        lower, upper = self.engine.xp.zeros_like(ground), self.engine.xp.zeros_like(ground)
        tally = self.evaluator.tally
        tally.clear()
        self.evaluator.prepare(ground, self.accuracy_for(tol))
        for s0, s1 in self._units():
            self._bound_rows(s0, s1, lower, upper)
        for bound in (lower, upper):
            self.engine.kernels.mirror(tally, bound)
        tally.clear()
        self.evaluator.finish()
        return self.engine.to_host(lower), self.engine.to_host(upper)

    def _launch_sweeps(self, count: int, stop: float) -> None:
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
        evaluator = self.evaluator
        return (
            self._graphs_work
            and self._plain
            and not evaluator.synchronous
            and getattr(evaluator, "dense_rows", None) is None
            and len(self._units()) <= _GRAPHED_UNITS
        )

    def _capture(self, stop: float) -> None:
        """Keep the launches of a sweep as a graph, where the last one used the same arrays."""
        arrays = self._arrays_in_use()
        if self._started is not None and _same(self._started, arrays):
            graph = self.engine.kernels.captured(lambda: self._enqueue_sweep(self._home, stop, np.inf))
            self._graphs_work = graph is not None
            self._graph = None if graph is None else (stop, arrays, graph)
        self._started = arrays

    def _arrays_in_use(self) -> tuple[Any, ...]:
        """What a graph of a sweep is bound to."""
        evaluator = self.evaluator
        return (evaluator, evaluator.cost, getattr(evaluator, "gibbs", None), self._home, self._block, self._rewards,
                *evaluator.rows.in_use())  # fmt: skip

    def _enqueue_sweep(self, d: Any, stop: float, accuracy: float) -> None:
        """Start all that a sweep does."""
        evaluator, kernels = self.evaluator, self.engine.kernels
        evaluator.prepare(d, accuracy)
        weights = self.c_R, self.c_T * evaluator.unit
        for s0, s1 in self._units():
            if self._plain:
                block = self._block_of_chain(s1 - s0)
                evaluator.enqueue(0, s0, s1, block)
                kernels.write_chain(evaluator.tally, block, s0, evaluator.first, self._rewards, *weights, d)
            else:
                acc = self._combined(s0, s1, evaluator.first, evaluator.enqueue, evaluator.unit)
                kernels.write_rows(evaluator.tally, acc, s0, evaluator.first, d)
        kernels.mirror(evaluator.tally, d)
        kernels.end_sweep(evaluator.tally, stop, self.engine.dtype)

    def _block_of_chain(self, rows: int) -> Any:
        """Room for a block of transports, used again and again."""
        size = rows * self.n_states
        if self._block is None or self._block.size < size:
            self._block = self.engine.xp.empty(size, self.engine.dtype)
        return self._block[:size].reshape(rows, self.n_states)

    def _units(self) -> Units:
        """Ranges of states whose work space fits; a device is filled by one."""
        pointers = self._pointers
        width = max(int(pointers[-1]), self.n_states)
        rows = max(1, min(_UNIT_BYTES // (width * self.engine.dtype.itemsize), self.evaluator.rows_at_once))
        units, start = [], 0
        while start < self.n_states:
            stop = int(np.searchsorted(pointers, pointers[start] + rows, side="right")) - 1
            stop = min(max(stop, start + 1), self.n_states)
            units.append((start, stop))
            start = stop
        return units

    def _bound_rows(self, s0: int, s1: int, lower: Any, upper: Any) -> None:
        for target, order in ((lower, 1), (upper, -1)):

            def fill(group: int, a0: int, a1: int, out: Any, order: int = order) -> None:
                self.evaluator.bounds(group, a0, a1, *(out, self.engine.xp.zeros_like(out))[::order])

            acc = self._combined(s0, s1, 1, fill)
            self.engine.kernels.write_rows(self.evaluator.tally, acc, s0, 1, target)

    def _combined(self, s0: int, s1: int, first: int, fill: Callable[..., None], unit: float = 1.0) -> Any:
        """Rows s0 … s1−1 of F(d), for t ≥ s + first, with transports from `fill`, which are in such units."""
        kernels, tally, dtype = self.engine.kernels, self.evaluator.tally, self.engine.dtype
        states, pointers, label_sets = self._tables
        acc = self.engine.xp.zeros((s1 - s0, self.n_states), dtype)
        weights = self.c_R, self.c_T * unit
        if self.match == "hausdorff":
            block = self._block_of_choices(s0, s1, fill, dtype)
            kernels.hausdorff(
                tally, block, pointers, self._rewards, label_sets, self.largest, s0, first, *weights, acc
            )  # fmt: skip
            return acc
        kernels.start_rows(label_sets, self.largest, s0, acc)
        for group, a0, _, block in self._blocks_of_labels(s0, s1, fill, dtype):
            members = self.evaluator.rows.groups[group]
            kernels.raise_to(tally, block, members, states, self._rewards, a0, s0, first, *weights, acc)
        return acc


def _same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return len(some) == len(others) and all(x is y for x, y in zip(some, others, strict=True))
