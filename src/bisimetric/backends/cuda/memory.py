"""What is remembered of each pair on the device, and whether it fits.

One row per pair, in the order of the pairs, for the pairs of the first rows of a group, as many as memory allows; so
pairs whose rows did not change can be carried over in place.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

from ...kinds import Array, Ints, Precision
from ...model import Distributions
from ..comparison import corner_of
from ..errors import DeviceError
from . import kernels

KEPT_SHARE = 0.8  # of the memory beyond the arrays of all pairs of states, for what is remembered


def needs_in_words(squares: int, shape: tuple[int, int], dtype: Precision) -> str:
    """What must fit: so many arrays of all pairs of states."""
    square = shape[0] * shape[1] * dtype.itemsize
    states = f"{shape[0]}" if shape[0] == shape[1] else f"{shape[0]} × {shape[1]}"
    return (
        f"{states} states in {dtype} need {1e-9 * squares * square:.3g} GB: {squares} arrays of "
        f"{1e-9 * square:.3g} GB (distances, ground cost{', kernel' if squares > 2 else ''})."
    )


def spare_bytes(squares: int, shape: tuple[int, int], dtype: Precision) -> int:
    """Memory beyond the arrays of all pairs; raises where not even these fit."""
    wanted, free = squares * shape[0] * shape[1] * dtype.itemsize, kernels.free_bytes()
    if wanted > free:
        raise DeviceError(
            f"{needs_in_words(squares, shape, dtype)} {1e-9 * free:.3g} GB of device memory are free. Use float32, "
            "fewer states, or the CPU."
        )
    return free - wanted


class PairMemory:
    """Entries of the pairs of each group; `cold` is the byte that marks a pair of which nothing is known."""

    def __init__(
        self,
        rows: Distributions,
        groups: tuple[Ints, ...],
        first: int,
        widths: list[int],
        *,
        cold: int,
        dtype: DTypeLike,
        room: int,
    ) -> None:
        self.rows, self.groups, self.first, self.cold = rows, groups, first, cold
        self.of: list[Array] = []
        self._rows: list[int] = []  # of which pairs are remembered
        xp, kind = kernels.cupy(), np.dtype(dtype)
        for members, width in zip(groups, widths, strict=True):
            corner = corner_of(rows, members)
            n = corner or len(members)
            columns = np.full(n, len(members) - corner) if corner else n - first - np.arange(n)
            pairs = np.concatenate([[0], np.cumsum(columns)])  # of the first rows
            fitting = int(np.searchsorted(pairs, room // (width * kind.itemsize), side="right")) - 1 if width else 0
            if pairs[fitting] == 0:
                fitting = 0
            entries = xp.empty((int(pairs[fitting]), width if fitting else 1), kind)
            entries.view(np.uint8).fill(cold)
            self.of.append(entries)
            self._rows.append(fitting)
            room -= entries.nbytes

    def up_to(self, group: int, a1: int) -> Array:
        """Entries of the pairs of rows before a1; none where there was no room for all of them."""
        return self.of[group] if a1 <= self._rows[group] else self.of[group][:0]

    def whole(self, group: int) -> bool:
        """Whether there was room for all pairs of a group."""
        return self._rows[group] == (corner_of(self.rows, self.groups[group]) or len(self.groups[group]))

    def forget(self) -> None:
        """Make all pairs cold."""
        for entries in self.of:
            entries.view(np.uint8).fill(self.cold)

    @property
    def nbytes(self) -> int:
        return sum(entries.nbytes for entries in self.of)

    def arrays(self) -> dict[str, Array]:
        """All entries by name, on the host."""
        return {f"kept{g}": kernels.cupy().asnumpy(entries) for g, entries in enumerate(self.of)}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Take back what `arrays` gave, where it fits."""
        for g, entries in enumerate(self.of):
            there = arrays.get(f"kept{g}")
            if there is not None and entries.shape == there.shape and entries.dtype == there.dtype:
                entries[:] = kernels.cupy().asarray(there)

    def take_from(self, old: PairMemory) -> None:
        """Copy what was remembered of the pairs whose successors did not change."""
        if old.first != self.first or len(self.groups) != len(old.groups):
            return
        same = self.rows.same_supports(old.rows)
        for members, before, mine, theirs in zip(self.groups, old.groups, self.of, old.of, strict=True):
            both = min(len(mine), len(theirs))  # memory may have been shorter for one of them
            if not both or (mine.shape[1], mine.dtype) != (theirs.shape[1], theirs.dtype):
                continue
            if not np.array_equal(members, before):
                continue
            mine[:both] = theirs[:both]
            if not same[members].all():
                flags = kernels.cupy().asarray(same[members].astype(np.uint8))
                kernels.forget(mine, self.first, corner_of(self.rows, members), flags, self.cold)
