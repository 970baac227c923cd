"""What is remembered of each pair on the CPU: one flat array a group.

A pair (a, b) without a closed form has shared·(n_a − 1) + per_pair + max(shared, 1)·n_b entries, where n are the
numbers of successors; pairs come in the order of a, then b. Where trees are kept, two successors a side have one entry.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

from ...kinds import Array, Ints
from ...model import Distributions
from ..comparison import corner_of
from . import kernels
from .kernels.arguments import Layout, Memory, Stored


class PairMemory:
    """Entries of all pairs by group; none where nothing is to be remembered."""

    def __init__(
        self,
        rows: Distributions,
        groups: tuple[Ints, ...],
        layout: Layout,
        *,
        cold: float,
        dtype: DTypeLike,
        remember: bool,
    ) -> None:
        self.rows, self.groups, self.layout, self.cold = rows, groups, layout, cold
        self.remember = remember
        self.of: list[Memory] = []
        for members in groups:
            if not remember:
                self.of.append(Memory(np.empty(0, dtype), np.empty(0, np.int64)))
                continue
            corner = corner_of(rows, members)
            base = np.empty((corner or len(members)) + 1, np.int64)
            kernels.kept_layout(rows.sizes[members], layout._replace(corner=corner), base)
            self.of.append(Memory(np.full(base[-1], cold, dtype), base))

    @property
    def nbytes(self) -> int:
        return sum(part.entries.nbytes for part in self.of)

    def arrays(self, prefix: str) -> dict[str, Array]:
        """All entries, by name."""
        return {f"{prefix}{g}": part.entries for g, part in enumerate(self.of)}

    def load(self, arrays: Mapping[str, Array], prefix: str) -> None:
        """Take back what `arrays` gave."""
        for g, part in enumerate(self.of):
            part.entries[:] = arrays[f"{prefix}{g}"]

    def take_from(self, old: PairMemory) -> None:
        """Copy what was remembered of the pairs whose successors did not change."""
        if self.layout != old.layout or len(self.of) != len(old.of) or not (self.remember and old.remember):
            return
        same = self.rows.same_supports(old.rows)
        for members, before, mine, theirs in zip(self.groups, old.groups, self.of, old.of, strict=True):
            if mine.entries.dtype != theirs.entries.dtype or not np.array_equal(members, before):
                continue
            if same.all():
                mine.entries[:] = theirs.entries
                continue
            kernels.carry_over(
                Stored(*theirs, old.rows.sizes[members]),
                Stored(*mine, self.rows.sizes[members]),
                same[members],
                self.layout._replace(corner=corner_of(self.rows, members)),
                self.cold,
            )


def entries_of(rows: Distributions, groups: tuple[Ints, ...], layout: Layout) -> int:
    """About how many entries a memory would have."""
    total = 0
    for members in groups:
        corner = corner_of(rows, members)
        one, times = np.unique(rows.sizes[members[: corner or None]], return_counts=True)
        two, others = np.unique(rows.sizes[members[corner:]], return_counts=True)
        n, m = one[:, None], two[None, :]
        entries = layout.shared * (n - 1) + layout.per_pair + max(layout.shared, 1) * m
        entries = np.where(n + m == 4, min(layout.shared, 1), entries)
        entries = np.where((n == 1) | (m == 1), 0.0, entries)
        pairs = times[:, None] * others[None, :] / (1.0 if corner else 2.0)
        total += int(np.sum(entries * pairs))
    return total
