"""What solvers of pairs share on the CPU: ground costs in their unit, blocks of pairs, and reports.

    prepare(d)                  ground costs (d/unit)^p of the sweep
    fill(group, a0, a1, …)      the block as a `Scene`, given to the transport's `_fill`, and by that to a kernel
    true_error(tally)           what all pairs reported, in the unit of d

A transport has `_fill` and `_bounds` of its own, and a `PairMemory` where it remembers something of each pair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ...kinds import Array, Ints, Precision
from ...model import Distributions
from ...transport import Transport, budget
from ..comparison import corner_of
from ..protocol import PairSolver, Tally, mean_difference, sampled
from . import kernels
from .halves import Halves
from .kernels.arguments import Block, Ground, Memory, Rows, read_only


class Scene(NamedTuple):
    """What kernels see of a block of pairs: rows, the pairs of them that it has, and their ground costs.

    Attributes: rows, block, ground; chosen (the rows of the block, where copies of these come after those of the
    model; see `halves`), places (of its first rows, and the one after, among those of the group).
    """

    rows: Rows
    block: Block
    ground: Ground
    chosen: Ints | None = None
    places: slice = slice(None)

    def memory(self, kept: Memory) -> Memory:
        """What is kept of the block's pairs."""
        return kept if self.chosen is None else Memory(kept.entries, kept.base[self.places])

    def of_rows(self, numbers: Array) -> Array:
        """Numbers of the model's rows as those of these rows."""
        return numbers if self.chosen is None else np.concatenate([numbers, numbers[self.chosen]])


class PairTally:
    """What the pairs of one unit of work report; several are merged, in any order, into that of a sweep.

    Matrix products report how far costs may be off before the root is taken, and the least of them: where roots magnify
    errors, that of a sweep must not depend on how its pairs were divided.
    """

    def __init__(self) -> None:
        self.iterations, self.error = 0, 0.0
        self.least, self.slack = np.inf, 0.0  # of costs before the root

    def add(self, iterations: int, error: float) -> None:
        self.iterations += iterations
        self.error = max(self.error, error)

    def add_before_root(self, least: float, slack: float) -> None:
        self.least, self.slack = min(self.least, least), max(self.slack, slack)

    @classmethod
    def merged(cls, parts: Iterable[PairTally]) -> PairTally:
        whole = cls()
        for part in parts:
            whole.add(part.iterations, part.error)
            whole.add_before_root(part.least, part.slack)
        return whole


class CpuSolver(ABC):
    """A `PairSolver` on arrays of the host; see there.

    A sweep's costs are (d/unit)^p, and `top` is the largest of them. Setting halt[0] stops kernels at their next pair.

    Attributes: halved (whether the costs are read from one half of d, see `halves`).
    """

    def __init__(
        self,
        dtype: Precision,
        rows: Distributions,
        groups: tuple[Ints, ...],
        transport: Transport,
        remember: bool,
    ) -> None:
        self.dtype, self.rows, self.groups = dtype, rows, tuple(map(read_only, groups))
        self.transport, self.remember, self.p = transport, remember, transport.order
        self.corners = [corner_of(rows, members) for members in groups]
        self.with_diagonal = transport.with_diagonal
        self.top, self.unit, self.accuracy = 0.0, 1.0, np.inf
        self.eps, self.smallest = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
        self.cost: Array = np.empty((0, 0), dtype)
        self.csr, self._ground = _for_kernels(rows), Ground(self.cost, 0.0, 1.0 / self.p)
        self.halt = np.zeros(1, np.uint8)
        self.borrows = False  # d is not written to during a sweep (a tile's), so that for p = 1 it can be the costs
        self.halved = False
        self._halves: Halves | None = None

    def halve(self) -> bool:
        """From now on read ground costs from what is below the diagonal of d, if that can be; returns whether."""
        self.halved = self.can_halve(self.rows)
        return self.halved

    @classmethod
    def can_halve(cls, rows: Distributions) -> bool:
        """Whether no more is read of the ground costs than those from the successors of a block's rows."""
        del rows
        return False

    @property
    def first(self) -> int:
        """Pairs (a, b) with b ≥ a + first are evaluated."""
        return 0 if self.with_diagonal else 1

    def prepare(self, d: Array, accuracy: float) -> None:
        self.accuracy = accuracy
        if self.halved:
            self._halves = Halves(d, self.p)
            self.top, self.unit = self._halves.top, self._halves.unit
            return
        if self.borrows and self.p == 1.0:
            self.cost, self.top, self.unit = d, float(d.max()), 1.0
        else:
            if self.cost.shape != d.shape:
                self.cost = np.empty(d.shape, self.dtype)
            self.top, self.unit = kernels.power(d, self.p, self.cost)
        self._ground = Ground(self.cost, self.top, 1.0 / self.p)

    def fill(self, group: int, a0: int, a1: int, out: Array, tally: Tally) -> None:
        if self.top == 0.0:
            out[:] = 0.0
        else:
            tally.add(*self._fill(self._scene(group, a0, a1), group, out))

    @property
    def keeps_plans(self) -> bool:
        return False

    def fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        raise NotImplementedError(f"{type(self).__name__} keeps no plans.")

    def fill_roughly(self, group: int, a0: int, a1: int, out: Array) -> None:
        if self.top == 0.0:
            out[:] = 0.0
        else:
            scene = self._scene(group, a0, a1)
            kernels.independent_block(scene.rows, scene.block, scene.ground, self.halt, out)

    def mean_change(self, d: Array) -> float:
        """By how much d is above the ground costs in the mean of a sample of rows, for p = 1."""
        if self._halves is None:
            return mean_difference(d, self.cost)
        return float((sampled(d) - self._halves.sample).mean(dtype=np.float64))

    def true_error(self, tally: PairTally) -> float:
        """The error of an entry, from what was reported in the unit of the sweep."""
        if self.top == 0.0:
            return 0.0
        reported = tally.error
        if tally.slack > 0.0:
            reported = max(reported, budget.root_error(min(tally.least, self.top), tally.slack, self.p))
        return self.unit * reported + self._lost()

    def rounding(self, largest: float) -> float:
        """What rounding may add to an entry of a sweep beside the errors of transports."""
        return budget.sweep_rounding(self.eps, self.smallest, largest)

    def bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        if self.top == 0.0:
            lower[:] = 0.0
            upper[:] = 0.0
            return
        self._bounds(self._scene(group, a0, a1), group, lower, upper)
        if self.unit != 1.0:
            lower *= self.unit
            upper *= self.unit
            np.maximum(lower - self._lost(), 0.0, out=lower)
            upper += self._lost()

    def _lost(self) -> float:
        return budget.underflow(self.p, self.unit, self.smallest)

    def _block(self, group: int, a0: int, a1: int) -> Block:
        return Block(self.groups[group], a0, a1, self.first, self.corners[group])

    def _scene(self, group: int, a0: int, a1: int) -> Scene:
        if self._halves is not None:
            return Scene(*self._halves.block(self.csr, self.groups[group], a0, a1, self.first))
        return Scene(self.csr, self._block(group, a0, a1), self._ground)

    @abstractmethod
    def _fill(self, scene: Scene, group: int, out: Array) -> tuple[int, float]:
        """Fill `out` with transports; (iterations, largest error of an entry), both in the unit of the sweep."""

    @abstractmethod
    def _bounds(self, scene: Scene, group: int, lower: Array, upper: Array) -> None:
        """Fill bounds in the unit of the sweep."""

    def follow(self, rows: Distributions) -> None:
        self.rows, self.csr = rows, _for_kernels(rows)

    def take_from(self, old: PairSolver) -> None:
        del old

    def finish(self) -> None:
        self.cost, self._halves = np.empty((0, 0), self.dtype), None
        self._ground = Ground(self.cost, 0.0, 1.0 / self.p)

    @property
    def remembered_bytes(self) -> int:
        return 0

    def remembered(self) -> dict[str, Array]:
        return {}

    def recall(self, arrays: Mapping[str, Array]) -> None:
        del arrays

    @classmethod
    def bytes_to_remember(cls, rows: Distributions, groups: tuple[Ints, ...], transport: Transport) -> int:
        """Bytes that would be remembered between sweeps, before anything is allocated."""
        del rows, groups, transport
        return 0


def _for_kernels(rows: Distributions) -> Rows:
    return Rows(read_only(rows.indptr), read_only(rows.indices.view(np.uint32)), read_only(rows.probs))
