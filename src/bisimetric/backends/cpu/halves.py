"""One array of all pairs in place of two: a sweep reads the old distances below the diagonal and writes the new above.

A sweep needs the ground costs of all pairs until its end, so they are usually copied first. As d is symmetric, one half
of it can be the old distances while the other becomes the new ones; then the new half is mirrored. Kernels are given
the ground costs from a block's successors to all states, gathered for each block: the block's rows are compared with
all rows as if they were those of another model, in the same order, so that results are the same bits.
"""

from __future__ import annotations

import numpy as np

from ...kinds import Array, Ints
from ..protocol import sampled
from ..threads import run_all
from . import kernels
from .kernels.arguments import Block, Ground, Rows, read_only

_STRIP = 1 << 8  # rows that are mirrored at a time


class Halves:
    """The old half of d, as ground costs.

    Attributes: top, unit (as those of solvers); sample (of the rows of d before the sweep).
    """

    def __init__(self, d: Array, p: float) -> None:
        self._d, self._p = d, p
        self._diagonal = d.diagonal().copy()  # the only entries that are in both halves
        largest = np.full((1, 1), d.max(), d.dtype)
        self.top, self.unit = kernels.power(largest, p, np.empty_like(largest))
        self.sample = sampled(d).copy()

    def block(self, rows: Rows, members: Ints, a0: int, a1: int, first: int) -> tuple[Rows, Block, Ground, Ints, slice]:
        """Rows a0 … a1−1 of a group against all its rows, as in a `Scene`; they come after those of the model."""
        chosen, many = members[a0:a1], len(rows.indptr) - 1
        sizes = np.diff(rows.indptr)[chosen]
        pointers = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.repeat(rows.indptr[chosen] - pointers[:-1], sizes) + np.arange(pointers[-1])
        states, places = np.unique(rows.indices[entries], return_inverse=True)
        cost = np.empty((len(states), len(self._d)), self._d.dtype)
        kernels.gather_rows(self._d, self._diagonal, states, self._p, self.unit, cost)
        both = Rows(
            read_only(np.concatenate([rows.indptr, rows.indptr[-1] + pointers[1:]])),
            read_only(np.concatenate([rows.indices, places.reshape(-1).astype(rows.indices.dtype)])),
            read_only(np.concatenate([rows.probs, rows.probs[entries]])),
        )
        count = a1 - a0
        lines = read_only(np.concatenate([many + np.arange(count), members]))
        block = Block(lines, 0, count, count + a0 + first, count)
        return both, block, Ground(cost, self.top, 1.0 / self._p), chosen, slice(a0, a1 + 1)


def mirror(d: Array) -> None:
    """Put what is above the diagonal below it. Ctrl-C is heard when that is done, as half of it would be no metric."""
    strips = [(s, min(s + _STRIP, len(d))) for s in range(0, len(d), _STRIP)]

    def one(strip: tuple[int, int]) -> None:
        kernels.mirror(*strip, d)

    stopped: KeyboardInterrupt | None = None
    while True:
        try:
            run_all(one, strips, brief=True)
            break
        except KeyboardInterrupt as stop:
            stopped = stop
    if stopped is not None:
        raise stopped
