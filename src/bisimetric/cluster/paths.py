"""Paths of pairs with one successor each lead through all tiles, so they are followed in one place: here.

Only distances that are few enough to be mixed in the memory of this process (`acceleration`) are treated so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..backends.comparison import Comparison, corner_of
from ..backends.select import distances_of, tile_sweeper
from ..kinds import Array, Ints
from ..transport import Transport
from .store import Store
from .tiles import TileGrid

if TYPE_CHECKING:
    from ..backends.select import TileSweeper


class Paths:
    """Where pairs lead to, for the whole of a comparison."""

    def __init__(self, comparison: Comparison, transport: Transport, dtype: str) -> None:
        self._whole: TileSweeper = tile_sweeper(dtype, comparison, transport, False)

    def find(self, store: Store, grid: TileGrid, notes: int) -> None:
        """Find them, with what a sweep noted in a version."""
        comparison = self._whole.comparison
        if not comparison.plain:
            self._whole.noted = _noted(comparison, store, grid, notes)
        self._whole.find_paths()

    def follow(self, d: Array) -> None:
        """Put the fixed point of frozen sweeps into d for such pairs."""
        self._whole.follow_paths(distances_of(d))  # type: ignore[arg-type]


def _noted(comparison: Comparison, store: Store, grid: TileGrid, notes: int) -> Array:
    """What decides each distance, from what was noted in each tile [S, T]."""
    out = np.full(comparison.shape, -1, np.int32)
    for i, j in grid.tiles:
        ends = (grid.rows[i], grid.rows[i + 1]), (grid.columns[j], grid.columns[j + 1])
        (part,) = store.read(store.place("n", notes, (i, j)))
        wide = part.astype(np.int32)
        if comparison.combine == "hausdorff":
            own, all_of_them = (int(np.diff(c).max()) for c in _columns(comparison, ends[1]))
            wide = wide // own * all_of_them + wide % own
        else:
            numbers = _groups(comparison, *ends)
            known = wide >= 0
            wide[known] = numbers[wide[known]]
        out[slice(*ends[0]), slice(*ends[1])] = wide
    return out


def _columns(comparison: Comparison, ends: tuple[int, int]) -> tuple[Ints, Ints]:
    return comparison.column_pointers[ends[0] : ends[1] + 1], comparison.column_pointers


def _groups(comparison: Comparison, rows: tuple[int, int], columns: tuple[int, int]) -> Ints:
    """The numbers of the groups that are compared in a tile, in the order in which it has them."""
    first, last = (int(comparison.row_pointers[s]) for s in rows)
    begin, end = (int(comparison.column_pointers[t]) for t in columns)
    found = []
    for number, members in enumerate(comparison.groups):
        corner = corner_of(comparison.rows, members)
        own, others = members[: corner or None], members[corner:]
        here = np.searchsorted(own, (first, last)), np.searchsorted(others, (begin, end))
        if all(a < b for a, b in here):
            found.append(number)
    return np.array(found, np.int64)
