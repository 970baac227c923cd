"""What policy iteration holds on to between full sweeps, beside the plans that solvers keep.

F is a game for each pair of states: one player chooses plans (and under Hausdorff matching the partner of each choice)
to make distances small, the other the label, or the choice to be matched, to make them large. In `kept_rows` who
maximises chooses anew, and what decides each distance is noted; in `frozen_rows` both are bound by what is noted.

Pairs of rows with one successor each lead to one other pair; their paths can be followed to their ends at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...kinds import Array, Floats
from ..comparison import Comparison, Unit
from . import kernels
from .kernels.arguments import Block, Weights

if TYPE_CHECKING:
    from .sweeper import CpuSweeper

NO_NOTES: Array = np.empty((0, 0), np.int16)


class KeptChoices:
    """The choices of the last sweep of a sweeper, and rows of F(d) for them.

    Attributes: noted (which pair of rows decided each distance [S, T]), partners (nearest choice of each state to each
    row, under Hausdorff matching [N, S]); empty where there is nothing to decide, or before there is room.
    """

    def __init__(self, sweeper: CpuSweeper) -> None:
        self._sweeper = sweeper
        self.noted, self.partners = NO_NOTES, NO_NOTES
        self._paths: tuple[Array, Array, Array] | None = None  # pairs that lead to one other: themselves, it, rewards
        self._paths_of: Comparison | None = None

    def make_room(self) -> None:
        """Make room for notes and partners; partners are noted by full sweeps where there is room for them."""
        c = self._sweeper.comparison
        if c.plain or self.noted.size:
            return
        widest = [int(np.diff(pointers).max()) for pointers in (c.row_pointers, c.column_pointers)]
        self.noted = np.empty(c.shape, _whole(max(len(c.groups), widest[0] * widest[1])))
        if c.combine == "hausdorff":
            self.partners = np.empty((len(c.rows), max(c.shape)), _whole(max(widest)))

    def kept_rows(self, unit: Unit) -> Floats:
        """Rows s0 … s1−1 of F(d) with the plans and partners of the last sweep; notes what decides each distance."""
        return self._rows(unit, free=True)

    def frozen_rows(self, unit: Unit) -> Floats:
        """Rows s0 … s1−1 of F(d) with these plans, for the pairs that were noted."""
        return self._rows(unit, free=False)

    def _rows(self, unit: Unit, *, free: bool) -> Floats:
        """Rows of F(d) with kept plans; `free`: who maximises chooses again, else what was noted decides."""
        c, solver = self._sweeper.comparison, self._sweeper.solver
        rows, weights = np.zeros((unit.s1 - unit.s0, c.shape[1])), Weights(c.c_R, c.c_T * solver.unit)
        if c.combine == "hausdorff":
            self._match_choices(unit, weights, free, rows)
            self._sweeper.set_apart(unit, rows)
        else:
            kernels.start_rows(c.apart, c.columns_apart, c.largest, unit.s0, self._sweeper.begin(solver.first), rows)
            self._raise_groups(unit, weights, free, rows)
        return rows

    def _match_choices(self, unit: Unit, weights: Weights, free: bool, rows: Floats) -> None:
        """Rows under Hausdorff matching."""
        sweeper, c, (s0, s1, ((_, a0, a1),)) = self._sweeper, self._sweeper.comparison, unit
        begin, sides, noted = sweeper.begin(sweeper.solver.first), sweeper.sides(), self.noted[s0:s1]
        transports = np.zeros((a1 - a0, sweeper.width(0)))
        wanted = np.zeros(transports.shape, np.bool_)
        if free:
            kernels.wanted_of_partners(sides, s0, begin, self.partners, wanted)
            self._fill(0, a0, a1, transports, wanted)
            kernels.respond(transports, sides, c.rewards, s0, begin, weights, rows, (self.partners, noted))
        else:
            kernels.wanted_of_choices(sides, s0, begin, noted, wanted)
            self._fill(0, a0, a1, transports, wanted)
            kernels.take_choices(transports, sides, c.rewards, s0, begin, weights, noted, rows)

    def _raise_groups(self, unit: Unit, weights: Weights, free: bool, rows: Floats) -> None:
        """Rows of chains and of matched labels: the largest over the groups."""
        sweeper, c, (s0, s1, blocks) = self._sweeper, self._sweeper.comparison, unit
        noted, plain = self.noted[s0:s1], c.plain
        if free and not plain:
            noted[:] = np.where(c.apart[s0:s1, None] != c.columns_apart[None, :], kernels.APART, kernels.UNKNOWN)
        for group, a0, a1 in blocks:
            transports, block = (
                np.zeros((a1 - a0, sweeper.width(group))),
                sweeper.block(group, a0, a1, sweeper.solver.first),
            )
            given = (transports, block, c.state_of_row, c.rewards, s0, weights)
            if plain:  # there is nothing to choose but plans
                self._fill(group, a0, a1, transports, None)
                kernels.raise_to(*given, rows)
            elif free:
                self._fill(group, a0, a1, transports, None)
                kernels.raise_and_note(*given, rows, (group, noted))
            else:
                wanted = self._wanted(block, group, s0, noted)
                self._fill(group, a0, a1, transports, wanted)
                kernels.take_wanted(*given, wanted, rows)

    def _fill(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        if self._sweeper.solver.top > 0.0:
            self._sweeper.solver.fill_kept(group, a0, a1, out, wanted)

    def _wanted(self, block: Block, group: int, s0: int, noted: Array) -> Array:
        """Which pairs of rows of a block decided the distance of their states."""
        wanted = np.zeros((block.a1 - block.a0, self._sweeper.width(group)), np.bool_)
        kernels.wanted_of_group(block, self._sweeper.comparison.state_of_row, s0, group, noted, wanted)
        return wanted

    def find_paths(self) -> None:
        """Find where pairs of rows with one successor each lead to, with what the last `kept_rows` noted."""
        sweeper, solver, c = self._sweeper, self._sweeper.solver, self._sweeper.comparison
        if self._paths_of is c and c.plain:
            return
        base = np.zeros(c.shape)
        following = np.full(c.shape, -1, np.int32 if base.size < 1 << 31 else np.int64)
        for group, members in enumerate(c.groups):
            block = sweeper.block(group, 0, solver.corners[group] or len(members), solver.first)
            wanted = np.empty((0, 0), np.bool_) if c.plain else self._decided(block, group)
            kernels.one_step(solver.csr, block, c.state_of_row, c.rewards, c.c_R, wanted, base, following)
        if not c.plain:
            following[c.apart[:, None] != c.columns_apart[None, :]] = -1
        order = np.empty(base.size, following.dtype)
        order = order[: kernels.order_paths(base.reshape(-1), following.reshape(-1), c.c_T, order)].copy()
        self._paths, self._paths_of = (order, following.reshape(-1)[order], base.reshape(-1)[order]), c

    def follow_paths(self, d: Array) -> None:
        """Put the fixed point of frozen sweeps into d for such pairs."""
        c = self._sweeper.comparison
        assert self._paths is not None
        kernels.walk(*self._paths, c.c_T, c.square, d)

    def _decided(self, block: Block, group: int) -> Array:
        """Which pairs of rows of a group decided the distance of their states."""
        sweeper = self._sweeper
        if sweeper.comparison.combine != "hausdorff":
            return self._wanted(block, group, 0, self.noted)
        wanted = np.zeros((block.a1, sweeper.width(group)), np.bool_)
        kernels.wanted_of_choices(sweeper.sides(), 0, sweeper.begin(sweeper.solver.first), self.noted, wanted)
        return wanted


def _whole(largest: int) -> type[np.int16] | type[np.int32]:
    """The type of whole numbers up to this."""
    return np.int16 if largest < 1 << 15 else np.int32
