"""What solvers of pairs share on a device: ground costs in their unit, what is remembered, the tally of reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike

from ...kinds import Array, Ints, Precision
from ...model import Distributions
from ...transport import Transport, budget
from .. import protocol
from ..comparison import corner_of
from ..protocol import PairSolver
from . import kernels
from .kernels import Ground, PairBlock, Tally
from .memory import KEPT_SHARE, PairMemory, needs_in_words, spare_bytes


class CudaSolver(ABC):
    """A `PairSolver` on arrays of a device; see there. `fill` starts the work and does not wait for it."""

    cold: ClassVar[int] = 0  # byte that marks a pair of which nothing is known
    memory_dtype: ClassVar[DTypeLike | None] = None  # that of the distances

    def __init__(
        self,
        dtype: Precision,
        rows: Distributions,
        groups: tuple[Ints, ...],
        transport: Transport,
        remember: bool,
        with_diagonal: bool | None = None,
    ) -> None:
        self.dtype, self.rows, self.groups = dtype, rows, groups
        self.transport, self.remember, self.p = transport, remember, transport.order
        self.with_diagonal = transport.with_diagonal if with_diagonal is None else with_diagonal
        self.unit, self.top, self.accuracy = 1.0, 0.0, np.inf
        self.eps, self.smallest = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
        self.synchronous = self.p != 1.0  # whether `prepare` or `fill` waits: the unit of a sweep is known to the host
        shape, squares = rows.pairs_shape, transport.squares
        self.corners = [corner_of(rows, members) for members in groups]
        spare = spare_bytes(squares, shape, dtype)
        with kernels.memory_errors(needs_in_words(squares, shape, dtype)):
            self.cost: Array = kernels.cupy().empty(shape, dtype)
        self.tally = Tally()
        self.on_device = kernels.Rows(rows, groups, dtype)
        room = int(KEPT_SHARE * spare) if remember else 0
        widths = [self._entries(group) for group in range(len(groups))]
        self.memory = PairMemory(
            rows, groups, self.first, widths, cold=self.cold, dtype=self.memory_dtype or dtype, room=room
        )

    @property
    def first(self) -> int:
        """Pairs (a, b) with b ≥ a + first are evaluated."""
        return 0 if self.with_diagonal else 1

    @property
    def by_matrices(self) -> bool:
        """Whether blocks are made by matrix products."""
        return False

    @property
    def rows_at_once(self) -> int:
        """Rows that a block should have at most."""
        return 1 << 20

    def _entries(self, group: int) -> int:
        """Entries remembered for a pair of the group."""
        del group
        return 0

    def prepare(self, d: Array, accuracy: float) -> None:
        if self.cost.shape != d.shape:
            self.cost = kernels.cupy().empty(d.shape, self.dtype)
        self.unit, self.accuracy = kernels.unit_of(d, self.p), accuracy
        self._take_costs(d)

    def _take_costs(self, d: Array) -> None:
        kernels.power(self.tally, d, self.p, self.unit, self.cost)

    def fill(self, group: int, a0: int, a1: int, out: Array, tally: protocol.Tally) -> None:
        """As in `PairSolver`; the tally must be the solver's own, into which kernels report."""
        assert tally is self.tally
        self._fill(self._block(group, a0, a1), out)

    @property
    def keeps_plans(self) -> bool:
        return False

    def fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        raise NotImplementedError(f"{type(self).__name__} keeps no plans.")

    def fill_roughly(self, group: int, a0: int, a1: int, out: Array) -> None:
        block = self._block(group, a0, a1)
        kernels.independent_block(self.tally, self.on_device, block, self._ground, out)

    def true_error(self, reported: float, top: float) -> float:
        """The error of an entry, from what kernels report in the unit of a sweep with costs up to `top`."""
        lost = budget.underflow(self.p, self.unit, self.smallest) if top > 0.0 else 0.0
        return self.unit * (reported + self._rounding(top)) + lost

    def rounding(self, largest: float) -> float:
        """What rounding may add to an entry of a sweep beside the errors of transports."""
        return budget.sweep_rounding(self.eps, self.smallest, largest)

    def _rounding(self, top: float) -> float:
        """What rounding may add to an entry beyond what the kernels report, for costs up to `top`."""
        del top
        return 0.0

    def bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        xp = kernels.cupy()
        self.top = self.tally.read().top
        if self.top == 0.0:
            lower[:] = 0.0
            upper[:] = 0.0
            return
        self._bounds(self._block(group, a0, a1), lower, upper)
        if self.unit != 1.0:
            lost = budget.underflow(self.p, self.unit, self.smallest)
            lower *= self.unit
            upper *= self.unit
            xp.maximum(lower - lost, 0.0, out=lower)
            upper += lost

    def _block(self, group: int, a0: int, a1: int) -> PairBlock:
        return PairBlock(group, a0, a1, self.first, self.corners[group])

    @property
    def _ground(self) -> Ground:
        return Ground(self.cost, 1.0 / self.p)

    @abstractmethod
    def _fill(self, block: PairBlock, out: Array) -> None:
        """Start the work of a block."""

    @abstractmethod
    def _bounds(self, block: PairBlock, lower: Array, upper: Array) -> None:
        """Fill bounds in the unit of the sweep."""

    def follow(self, rows: Distributions) -> None:
        self.rows = self.memory.rows = rows
        self.on_device.set_probs(rows.probs)

    def take_from(self, old: PairSolver) -> None:
        if type(old) is type(self) and self._fits(old):
            self.memory.take_from(old.memory)

    def _fits(self, old: Self) -> bool:
        """Whether what a solver of the same kind remembers can be used."""
        return bool(old.p == self.p)

    def in_use(self) -> tuple[object, ...]:
        """Arrays that launches refer to and that may be replaced by others."""
        return (self, self.cost, *self.on_device.in_use())

    def finish(self) -> None:
        self.cost = kernels.cupy().empty((0, 0), self.dtype)
        self.on_device.release()

    @property
    def remembered_bytes(self) -> int:
        return self.memory.nbytes

    def remembered(self) -> dict[str, Array]:
        return self.memory.arrays()

    def recall(self, arrays: Mapping[str, Array]) -> None:
        self.memory.load(arrays)


def dense_matrix(dtype: Precision, rows: Distributions) -> Array:
    """The rows as a matrix of the device [N, S]."""
    matrix = np.zeros((len(rows), rows.n_states), dtype)
    matrix[rows.row_of_entry, rows.indices] = rows.probs
    there: Array = kernels.cupy().asarray(matrix)
    return there
