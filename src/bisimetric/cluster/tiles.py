"""Which rows and columns of the distances go together, and what each such tile has to read.

A tile is the pairs of a range of states with another range: (i, j) for blocks i of rows and j of columns. Where both
sides are one model, only tiles with i ≤ j are computed, and the others are read as their mirror images. The distances
of a tile depend on those of its successors alone:

    F(d)[I, J]  needs  d[successors of I, successors of J],

so a worker reads just these, wherever they lie: all of them where successors are random (each tile then needs nearly
all rows, which is a broadcast), those of some neighbours where they are near (an exchange by partition). Which of both
it is follows from the model, and is counted before anything is started (`costs`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..backends.comparison import Comparison
from ..backends.select import distances_of, host
from ..kinds import Array, Ints
from ..model import Distributions
from .versions import Version


@dataclass(frozen=True)
class TileGrid:
    """The ranges of states that blocks hold.

    Attributes: rows, columns (where blocks begin, and the end of the last), square (whether both sides are one model).
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    square: bool

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """All tiles that are computed."""
        pairs = [(i, j) for i in range(len(self.rows) - 1) for j in range(len(self.columns) - 1)]
        return [(i, j) for i, j in pairs if i <= j or not self.square]

    def shape(self, tile: tuple[int, int]) -> tuple[int, int]:
        i, j = tile
        return self.rows[i + 1] - self.rows[i], self.columns[j + 1] - self.columns[j]


class Block(NamedTuple):
    """The rows of a range of states, with all that is compared of them."""

    indptr: Ints  # [n+1]
    indices: Array  # successors, as states of the whole model
    probs: Array
    rewards: Array  # [n]
    group: Ints  # of each row; −1 for those that are compared with none [n]
    pointers: Ints  # rows of each state [m+1]
    apart: Ints  # [m]

    @property
    def successors(self) -> Ints:
        """All states that rows lead to, in their order."""
        found: Ints = np.unique(self.indices).astype(np.int64)
        return found


class Ground(NamedTuple):
    """Where ground distances come from: the states whose distances are needed."""

    rows: Ints
    columns: Ints


def cut(comparison: Comparison, count: int) -> TileGrid:
    """Blocks of about equal work, `count` tiles at least; of rows alone where the model is compared with another."""
    n, m = comparison.shape
    if comparison.square:
        cuts = _equal(comparison.row_pointers, min(_side(count), n))
        return TileGrid(cuts, cuts, True)
    return TileGrid(_equal(comparison.row_pointers, min(count, n)), (0, m), False)


def _side(count: int) -> int:
    """Blocks a side, so that there are `count` tiles on and above the diagonal."""
    side = 1
    while side * (side + 1) // 2 < count:
        side += 1
    return side


def _equal(pointers: Ints, count: int) -> tuple[int, ...]:
    """Ranges of states with about equal numbers of rows."""
    first, last = int(pointers[0]), int(pointers[-1])
    cuts = [int(k) for k in np.searchsorted(pointers, first + np.arange(1, count) * (last - first) / count)]
    return tuple(sorted({0, len(pointers) - 1, *cuts}))


def block_of(comparison: Comparison, groups: Ints, side: str, s0: int, s1: int) -> Block:
    """States s0 … s1−1 of the rows' ("R") or columns' ("C") side."""
    rows = comparison.rows
    pointers, apart = comparison.row_pointers, comparison.apart
    if side == "C":
        pointers, apart = comparison.column_pointers, comparison.columns_apart
    k0, k1 = int(pointers[s0]), int(pointers[s1])
    e0, e1 = int(rows.indptr[k0]), int(rows.indptr[k1])
    return Block(
        rows.indptr[k0 : k1 + 1] - e0,
        rows.indices[e0:e1],
        rows.probs[e0:e1],
        comparison.rewards[k0:k1],
        groups[k0:k1],
        pointers[s0 : s1 + 1] - k0,
        apart[s0:s1],
    )


class Frame(NamedTuple):
    """What all tiles of a comparison share."""

    combine: str
    c_R: float
    c_T: float
    largest: float
    columns: int  # states on that side
    square: bool
    plain: bool = False

    @classmethod
    def of(cls, c: Comparison) -> Frame:
        return cls(c.combine, c.c_R, c.c_T, c.largest, c.shape[1], c.square, c.plain)


def local_comparison(frame: Frame, left: Block, right: Block, *, diagonal: bool) -> tuple[Comparison, Ground]:
    """F on a tile: successors are numbered as the ground distances that the tile needs are.

    Where the tile lies on the diagonal of a square, both blocks are one, and half of its pairs are compared.
    """
    columns = right.successors if frame.square else np.arange(frame.columns)
    needed = Ground(left.successors, left.successors if diagonal else columns)
    rows = _rows_among(left, needed.rows)
    apart, other_apart = left.apart, right.apart
    if not frame.plain:
        apart, other_apart = apart + 1, other_apart + 1
    if diagonal:
        pointers, groups, rewards = left.pointers, _members(left.group, None), left.rewards
        states, column_pointers, columns_apart = _states(left), pointers, apart
    else:
        rows = rows.beside(_rows_among(right, needed.columns))
        pointers, groups = left.pointers, _members(left.group, right.group)
        rewards = np.concatenate([left.rewards, right.rewards])
        states = np.concatenate([_states(left), _states(right)])
        column_pointers, columns_apart = pointers[-1] + right.pointers, other_apart
    # Rows among the successors of a few states alone look dense; whether matrix products suit them is not asked here.
    wide = max(rows.n_states, 2 * int(rows.sizes.max()) + 1)
    rows = Distributions(rows.indptr, rows.indices, rows.probs, wide, 0.0, rows.split, rows.sides)
    comparison = Comparison(
        rows=rows,
        groups=groups,
        state_of_row=states,
        row_pointers=pointers,
        column_pointers=column_pointers,
        rewards=rewards,
        apart=apart,
        columns_apart=columns_apart,
        combine=frame.combine,  # type: ignore[arg-type]
        c_R=frame.c_R,
        c_T=frame.c_T,
        largest=frame.largest,
    )
    return comparison, needed


def _rows_among(block: Block, states: Ints) -> Distributions:
    indices = np.searchsorted(states, block.indices).astype(np.int32)
    return Distributions(block.indptr, indices, block.probs, len(states))


def _states(block: Block) -> Ints:
    return np.repeat(np.arange(len(block.apart)), np.diff(block.pointers))


def _members(left: Ints, right: Ints | None) -> tuple[Ints, ...]:
    """Rows that are compared, group by group; those of the right side are numbered after those of the left."""
    both = left if right is None else np.concatenate([left, right])
    order = np.argsort(both, kind="stable")
    found = np.split(order, np.flatnonzero(np.diff(both[order])) + 1)
    return tuple(
        group for group in found if both[group[0]] >= 0 and (right is None or group[0] < len(left) <= group[-1])
    )


def ground_like(grid: TileGrid, needed: Ground, dtype: str) -> Array:
    """Room for the ground distances of a tile, and for one more row (and column, where both sides are one model)."""
    return np.zeros((len(needed.rows) + 1, len(needed.columns) + int(grid.square)), dtype)


def fill_ground(
    out: Array, read: Callable[[tuple[int, int]], Array], grid: TileGrid, needed: Ground, source: Version
) -> None:
    """Put the distances between some states into `out`, and the largest of all distances into its last entry.

    `read` gives the distances of a tile of the version. Solvers look at the largest of all distances, which need not be
    among those that the tile needs.
    """
    out[-1] = 0.0
    out[:, len(needed.columns) :] = 0.0
    if source.number < 0:
        out[:] = 0.0
        return
    for i in range(len(grid.rows) - 1):
        own = _within(needed.rows, grid.rows[i : i + 2])
        for j in range(len(grid.columns) - 1):
            others = _within(needed.columns, grid.columns[j : j + 2])
            if own.start == own.stop or others.start == others.stop:
                continue
            rows, columns = needed.rows[own] - grid.rows[i], needed.columns[others] - grid.columns[j]
            if i <= j or not grid.square:
                host().gather(read((i, j)), rows, columns, out[own, others])
            else:
                host().gather(read((j, i)), columns, rows, out[own, others], turned=True)
    shift(out, source.shifts)
    out[-1, -1] = source.largest


def _within(states: Ints, ends: tuple[int, ...]) -> slice:
    """Which of some states, in their order, are in a range."""
    first, last = np.searchsorted(states, ends)
    return slice(int(first), int(last))


def shift(array: Array, shifts: tuple[float, ...]) -> None:
    """Add numbers, one after the other, where entries are positive."""
    for by in shifts:
        distances_of(array).shift(by)
