"""Sweeps on the CPU: units of rows on the threads. Results do not depend on how many there are."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kernels.select import run_all, single_thread, threads
from .base import MetricOperator, Sweep, Swept, Units

_UNIT_BYTES = 4 << 20  # work space of one unit of work
_BRIEF = 4 << 20  # entries of all pairs' costs up to which a sweep takes but a moment


class _HaltedError(Exception):
    """Work that was given up; seen by nobody, as what stopped it is raised instead."""


class HostOperator(MetricOperator):
    """F by kernels of the CPU; `sweep(d)` replaces d by F(d) in place."""

    def __init__(self, *model: Any, **settings: Any) -> None:
        super().__init__(*model, **settings)
        self._units_by_threads: dict[int, Units] = {}

    def sweep(self, d: NDArray[Any], accuracy: float = np.inf) -> Sweep:
        self.evaluator.restart()
        with single_thread():
            self.evaluator.prepare(d, accuracy)
            reports = self._all_units(lambda unit: self._sweep_rows(unit[0], unit[1], d))
        if self.evaluator.first == 1:
            np.fill_diagonal(d, 0.0)
        rise, fall, error, iterations = zip(*reports, strict=True)
        return Sweep(max(rise), max(fall), max(error), sum(iterations))

    def sweeps(self, start: Any, count: int, stop: float) -> Generator[None, None, Swept]:
        yield
        d = start.copy()
        change, iterations, done, error = np.inf, 0, 0, 0.0
        while done < count and change > stop:
            report = self.sweep(d)
            change, iterations, done = report.change, iterations + report.iterations, done + 1
            error = max(error, report.transport_error)
        return Swept(d, done, change, iterations, error)

    def bounds(self, d: NDArray[Any], tol: float) -> tuple[NDArray[Any], NDArray[Any]]:
        self.evaluator.restart()
        lower, upper = np.zeros_like(d), np.zeros_like(d)
        kept = {name: array.copy() for name, array in self.evaluator.state().items()}
        with single_thread():
            self.evaluator.prepare(d, self.accuracy_for(tol))
            self._all_units(lambda unit: self._bound_rows(unit[0], unit[1], lower, upper))
        self.evaluator.finish()
        self.evaluator.load(kept)  # bounds only read
        return lower, upper

    def _all_units(self, task: Callable[[tuple[int, int]], Any]) -> list[Any]:
        work = (len(self.family.indptr) * int(self.family.sizes.max())) ** 2
        return run_all(task, self._units(), self.evaluator.halt, brief=work <= _BRIEF)

    def for_classes(self, d: Any, stays: bool) -> Any:
        del stays
        return d

    def _units(self) -> Units:
        """Ranges of states with about equal numbers of pairs and a bounded work space."""
        count = threads()
        if count not in self._units_by_threads:
            self._units_by_threads[count] = self._units_for(count)
        return self._units_by_threads[count]

    def _units_for(self, count: int) -> Units:
        n, pointers = self.n_states, self._pointers
        width = int(pointers[-1])
        per_unit = max(1.0, width * (width + 1) / 2 / (8 * count))
        units = []
        start = 0
        while start < n:
            stop, pairs = start, 0.0
            while stop < n and (stop == start or pairs < per_unit):
                rows = int(pointers[stop + 1] - pointers[start])
                if stop > start and rows * width * 16 > _UNIT_BYTES:
                    break
                pairs += float((pointers[stop + 1] - pointers[stop]) * (width - pointers[stop]))
                stop += 1
            units.append((start, stop))
            start = stop
        return units

    def _sweep_rows(self, s0: int, s1: int, d: NDArray[Any]) -> tuple[float, float, float, int]:
        evaluator = self.evaluator
        error, iterations = 0.0, 0

        def fill(group: int, a0: int, a1: int, out: NDArray[Any]) -> None:
            nonlocal error, iterations
            report = evaluator.block(group, a0, a1, out)
            if evaluator.halt[0]:  # a block that was left early must not be written
                raise _HaltedError
            error, iterations = max(error, report.error), iterations + report.iterations

        acc = self._combined(s0, s1, evaluator.first, fill)
        rise, fall = self.engine.kernels.write_rows(acc, s0, evaluator.first, d)
        return rise, fall, error, iterations

    def _bound_rows(self, s0: int, s1: int, lower: NDArray[Any], upper: NDArray[Any]) -> None:
        for target, order in ((lower, 1), (upper, -1)):

            def fill(group: int, a0: int, a1: int, out: NDArray[Any], order: int = order) -> None:
                self.evaluator.bounds(group, a0, a1, *(out, np.zeros_like(out))[::order])
                if self.evaluator.halt[0]:
                    raise _HaltedError

            self.engine.kernels.write_rows(self._combined(s0, s1, 1, fill), s0, 1, target)

    def _combined(self, s0: int, s1: int, first: int, fill: Callable[..., None]) -> NDArray[Any]:
        """Rows s0 … s1−1 of F(d), for t ≥ s + first, with transports from `fill`."""
        kernels, rewards, label_sets = self.engine.kernels, self.model.rewards, self._label_sets
        acc = np.zeros((s1 - s0, self.n_states))
        weights = self.c_R, self.c_T
        if self.match == "hausdorff":
            block = self._block_of_choices(s0, s1, fill, np.float64)
            kernels.hausdorff(block, self._pointers, rewards, s0, first, *weights, acc)
            acc[label_sets[s0:s1, None] != label_sets[None, :]] = self.largest
            return acc
        kernels.start_rows(label_sets, self.largest, s0, acc)
        for group, a0, a1, block in self._blocks_of_labels(s0, s1, fill, np.float64):
            kernels.raise_to(
                block, self.family.groups[group], self._states, rewards, a0, a1, s0, first, *weights, acc
            )  # fmt: skip
        return acc
