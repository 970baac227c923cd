"""What kernels see of a block of pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..protocol import Array, Ints
from .kernels.arguments import Block, Ground, Memory, Rows


class Scene(NamedTuple):
    """Rows, the pairs of them that a block has, and their ground costs.

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
