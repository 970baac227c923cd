"""Sweeps of a part of the distances: some rows and some columns, from ground distances that somebody else brings.

What F makes of the pairs of some states depends on the distances of their successors alone. So a part has a comparison
of its own, whose rows are those of its states, with successors numbered as the ground distances it is given are; and
what is made is left in `target` instead of being written back. Entries are those of a sweep of all pairs, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...kinds import Array, Floats
from ...transport import Transport
from ..comparison import Comparison, Unit
from ..protocol import Sweep
from ..threads import Result
from . import kernels
from .distances import HostDistances
from .sweeper import CpuSweeper, units_of_work

if TYPE_CHECKING:
    from . import CpuBackend

Kind = Literal["full", "rough", "kept", "frozen"]


class TileSweeper(CpuSweeper):
    """F on some rows and columns of the distances, on the thread that calls.

    Attributes: target (the part's distances before a sweep, and after it [comparison.shape]).
    """

    def __init__(self, backend: CpuBackend, comparison: Comparison, transport: Transport, remember: bool) -> None:
        super().__init__(backend, comparison, transport, remember)
        self.target: Array = np.empty(comparison.shape, backend.dtype)
        self._units = units_of_work(comparison, 1)
        self.solver.borrows = True

    def apply(self, kind: Kind, ground: Array, accuracy: float) -> Sweep:
        """Replace `target` by F of the ground distances, which hold their largest in their last entry.

        "full" is `Sweeper.sweep`, "rough", "kept" and "frozen" are the sweeps of these names.
        """
        d = HostDistances(ground)
        if kind == "full":
            report = self.sweep(d, accuracy)
        else:
            again = {"rough": self.sweep_roughly, "kept": self.sweep_kept, "frozen": self.sweep_frozen}[kind]
            report = Sweep(again(d), 0.0, 0.0, 0)
        return report

    @property
    def largest(self) -> float:
        """Of the distances in `target`."""
        return float(self.target.max())

    def memory(self) -> dict[str, Array]:
        """What a full sweep leaves behind for those to come: what the solver remembers, and partners of choices."""
        return {**self.solver.remembered(), **{name: part.copy() for name, part in self._partners_by_side().items()}}

    def recall(self, arrays: Mapping[str, Array]) -> None:
        """Take back what `memory` gave."""
        self.solver.recall(arrays)
        for name, part in self._partners_by_side().items():
            part[:] = arrays[name]

    def _partners_by_side(self) -> dict[str, Array]:
        """The nearest choices of each side's states to the other side's rows: what is used of the room for them."""
        c = self.comparison
        if not self.choices.partners.size or c.square:
            return {"partners": self.choices.partners}
        partners = self.choices.partners
        left, right = partners[: c.rows.split], partners[c.rows.split :]
        return {"partners": left[:, : c.shape[1]], "partners_of_columns": right[:, : c.shape[0]]}

    @property
    def noted(self) -> Array:
        """Which pair of rows decided each distance in the last "kept" sweep; empty where there is nothing to decide."""
        return self.choices.noted

    @noted.setter
    def noted(self, array: Array) -> None:
        self.choices.noted = np.array(array)

    def _all_units(self, task: Callable[[Unit], Result]) -> list[Result]:
        return [task(unit) for unit in self._units]

    def _write(self, unit: Unit, rows: Floats, first: int, d: Array) -> float:
        del d  # the ground distances
        rise, fall = kernels.write_rows(rows, unit.s0, self.begin(first), self.square, self.target)
        return float(max(rise, fall))
