"""Pairs of states of a labelled chain whose distance without discount is neither 0 nor 1, and equations on them.

What is known of them is a vector, one number a pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...kinds import Array, Floats, Ints
from ...model import Distributions
from ..protocol import Sweeper
from ..threads import run_all
from . import kernels
from .exact import ExactSolver
from .kernels.arguments import Block, Rows

if TYPE_CHECKING:
    from scipy.sparse import csc_array

_STACK = 1 << 20  # pairs that wait to be looked at
_UNIT = 1 << 20  # pairs of a unit of work
_WAVES, _PARTS = 8, 4  # in which passes go over equations


class Equations(NamedTuple):
    """leaving·x = constants + Σ masses·x(columns), one equation a pair, its terms from begins[k] to ends[k] − 1.

    See `kernels.reach`.
    """

    begins: Ints  # [M]
    ends: Ints  # [M]
    columns: Array  # [K]
    masses: Floats  # [K]
    constants: Floats  # [M]
    leaving: Floats  # [M]

    def relax(self, x: Floats, share: float, shift: float, backwards: bool) -> float:
        """One pass of Gauss and Seidel for share·constants + shift on the right; returns the largest defect.

        Threads take the parts of a wave, which see of each other what was there before it; so what comes out does not
        depend on how many threads there are.
        """
        height = max(_UNIT // 8, -(-len(x) // (_WAVES * _PARTS)))
        worst = 0.0
        for wave in range(0, len(x), height * _PARTS)[:: -1 if backwards else 1]:
            before = x[wave : wave + height * _PARTS].copy()
            parts = [(k, min(k + height, wave + len(before)), wave) for k in range(wave, wave + len(before), height)]

            def work(part: tuple[int, int, int], before: Floats = before) -> float:
                return float(kernels.relax(self, (share, shift), part, backwards, before, x))

            worst = max(worst, *run_all(work, parts, brief=len(parts) == 1))
        return worst

    def matrix(self) -> csc_array:
        """leaving on the diagonal, less the masses: a sparse array of SciPy, by columns."""
        from scipy.sparse import coo_array, csc_array, diags_array

        count, sizes = len(self.begins), self.ends - self.begins
        row = np.repeat(np.arange(count), sizes)
        place = np.arange(len(row)) + np.repeat(self.begins - (np.cumsum(sizes) - sizes), sizes)
        plans = coo_array((self.masses[place], (row, self.columns[place])), shape=(count, count))
        return csc_array(diags_array(self.leaving) - plans)


class UndecidedPairs:
    """The pairs s < t that can meet on a path of pairs with equal numbers `apart`, but are no states twice.

    Attributes: count (M), number [S, S].
    """

    def __init__(self, rows: Distributions, apart: Ints) -> None:
        n = rows.n_states
        if n * (n - 1) // 2 >= 1 << 31:
            raise ValueError(f"a metric without discount is for up to 65,536 states that differ; got {n}.")
        order = np.argsort(rows.indices, kind="stable")
        into = np.repeat(np.arange(n), rows.sizes)[order]
        into_ptr = np.concatenate([[0], np.cumsum(np.bincount(rows.indices, minlength=n))])
        near = np.zeros((n, n), np.uint8)
        kernels.meeting_pairs(into_ptr, into, apart, np.empty(_STACK, np.int64), near)
        self.number = np.empty((n, n), np.int32)
        self.count = int(kernels.number_pairs(near, self.number))
        height = max(_UNIT // n, 1)
        self._units = [(s, min(s + height, n)) for s in range(0, n, height)]

    def spread(self, values: Floats, out: Array) -> None:
        """Fill distances [S, S] of all pairs: these, and 1 or 0 elsewhere."""
        run_all(lambda unit: kernels.spread_pairs(self.number, values, *unit, out), self._units)

    def rises(self, matrix: Array, values: Floats) -> tuple[float, float]:
        """(Least rise where values are above 0, largest where they are below 1) from the values to a matrix."""
        found = run_all(lambda unit: kernels.rises(self.number, matrix, values, *unit), self._units)
        least, largest = zip(*found, strict=True)
        return float(min(least)), float(max(largest))

    def equations(self, sweeper: Sweeper, room: Equations | None = None) -> Equations:
        """Those of the plans that the last sweep chose; where `room` is given, in its place."""
        solver = sweeper.solver
        if not (isinstance(solver, ExactSolver) and solver.keeps_plans):
            raise TypeError("equations are those of kept plans of exact transport on the host.")
        slots = np.zeros(len(self.number) + 1, np.int64)
        kernels.slots_of_rows(self.number, solver.rows.sizes, slots)
        np.cumsum(slots, out=slots)
        found = room or self._room(int(slots[-1]))
        rows = Rows(solver.rows.indptr, solver.rows.indices, solver.rows.probs)

        def read(unit: tuple[int, int, int]) -> bool:
            group, a0, a1 = unit
            block = Block(solver.groups[group], a0, a1, solver.first, 0)
            return bool(kernels.kept_equations(rows, block, solver.trees.of[group], self.number, slots, found))

        units = []
        for group, members in enumerate(solver.groups):
            height = max(_UNIT // len(members), 1)
            units += [(group, a, min(a + height, len(members))) for a in range(0, len(members), height)]
        if not all(run_all(read, units)):
            raise ValueError("equations need a sweep that chose plans.")
        return found

    def _room(self, slots: int) -> Equations:
        ends: tuple[Ints, Ints] = (np.empty(self.count, np.int64), np.empty(self.count, np.int64))
        return Equations(*ends, np.empty(slots, np.int32), np.empty(slots), np.empty(self.count), np.empty(self.count))
