"""The search for one distance: which pairs are opened, and in which order they are brought up to date.

    while the bounds of the root are too far apart:
        push weight from the root along kept plans          what does it see of which pair?
        open the pairs that it sees most of                  the frontier, by weight · gap
        update opened pairs, youngest first                  so that what was learnt comes back to the root

Nothing of this touches the truth of the bounds, only how soon they meet (see `backends/cpu/kernels/local_pairs.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..status import Status
from .answers import Budget

if TYPE_CHECKING:
    from ..backends.select import PairTable
    from ..kinds import Array, Floats

Goal = Callable[[float, float], bool]

_SHARE_TO_OPEN = 0.2  # pairs are opened that are seen at least so much of the one that is seen most
_FRONTIER_COUNTS = 0.3  # share of the root's gap above which pairs are opened
_LEAST_SEEN = 1e-3  # share of the root's gap below which weight is not pushed on
_LEAST_OF_ALL = 1e-12
_HELPS = 0.9  # a round helps where it brings the root's gap below this share of what it was
_TIES = 0.1  # share of gaps in the costs of plans, in the beginning
_FEWEST_TO_OPEN, _GROWTH = 8, 0.15  # pairs that are opened in a round, at least, and as a share of those that were
_FEW = 4  # opened pairs for which a sweep is enough, where it helps
_LEAP_ACCURACY = 1e-3  # of a leap, as a share of the root's gap
_LEAP_SWEEPS = 4.0  # sweeps that take as long as a leap
_CHUNK, _ARCS = 20_000, 1 << 21  # updates between two looks at the clock, and pairs of successors in them, at most


class Search:
    """One question about a pair of the table."""

    def __init__(
        self,
        table: PairTable,
        root: int,
        goal: Goal,
        budget: Budget,
        halt: Array | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """halt[0] ends it, as Ctrl-C does in the thread that hears it; `watch` is called before each round."""
        self.table, self.root, self.goal, self.budget, self._halt = table, root, goal, budget, halt
        self._watch = watch
        self._began = time.perf_counter()
        self._opened = table.opened
        self._found: Array = np.empty((3, 0), np.int32)
        self._inside, self._leaps = 0, True

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    @property
    def gap(self) -> float:
        lower, upper = self.table.bounds(self.root)
        return upper - lower

    def run(self) -> Status:
        """Work until the goal is met, or the budget is spent; Ctrl-C ends it too. The table stays whole."""
        try:
            return self._run()
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        finally:
            self._forget_marks()

    def _run(self) -> Status:
        least, ties = _LEAST_SEEN, _TIES
        while True:
            if self._done():
                return Status.CONVERGED
            if self._spent():
                return Status.INTERRUPTED if self._halted else Status.BUDGET
            if self._watch is not None:
                self._watch()
            self.table.break_ties(ties)
            opened, moved, gap = self.table.opened, self.table.moved, self.gap
            if not self._round(least):
                return Status.BUDGET
            if self.gap < _HELPS * gap or self.table.opened > opened:
                continue
            if ties == 0.0 and least < _LEAST_OF_ALL and self.table.moved == moved:
                if self._done():
                    return Status.CONVERGED
                return Status.ROUNDING if self._leaps else Status.BUDGET
            least, ties = max(0.01 * least, 0.1 * _LEAST_OF_ALL), 0.01 * ties if ties > 1e-6 else 0.0

    def _round(self, least: float) -> bool:
        """Push, open, and bring back what is learnt; False where the budget has no room for more pairs."""
        table, gap = self.table, self.gap
        self._make_lists()
        self._inside, outside = inside, _ = table.push(self.root, least * gap, self._found)
        seen = table.seen(outside, self._found)
        everything = least < _LEAST_SEEN  # nothing moved in the last round
        wanted = everything or inside == 0 or float(seen.sum()) >= _FRONTIER_COUNTS * gap
        count = table.choose(outside, self._least_to_open(seen, inside) if wanted else np.inf, self._found)
        if not self._open(count):
            return False
        self._bring_back(inside)
        table.clear(inside, self._found)
        self._inside = 0
        return True

    def _least_to_open(self, seen: Floats, inside: int) -> float:
        """What must be seen of a pair for it to be opened: a share of the most, or less where few would be opened."""
        if not len(seen):
            return np.inf
        least = _SHARE_TO_OPEN * float(seen.max())
        some = min(max(_FEWEST_TO_OPEN, int(_GROWTH * inside)), len(seen))
        return min(least, float(np.partition(seen, -some)[-some]))

    def _done(self) -> bool:
        return self.goal(*self.table.bounds(self.root))

    @property
    def _halted(self) -> bool:
        return self._halt is not None and bool(self._halt[0])

    def _spent(self) -> bool:
        b, table = self.budget, self.table
        return (
            self._halted
            or (b.pairs is not None and table.opened - self._opened >= b.pairs)
            or (b.seconds is not None and self.seconds >= b.seconds)
            or (b.memory is not None and table.nbytes > b.memory)
        )

    @property
    def _chunk(self) -> int:
        """Pairs that are updated between two looks at the clock: fewer where they have many successors."""
        return min(max(_ARCS // max(self.table.successors, 1), 1), _CHUNK)

    def _make_lists(self) -> None:
        if self._found.shape[1] < self.table.room:
            self._found = np.empty((3, self.table.room), np.int32)

    def _open(self, count: int) -> bool:
        """Open the pairs that were chosen, as far as the budget goes; False where that is spent."""
        at, end = 0, count
        if self.budget.pairs is not None:
            end = min(count, max(self.budget.pairs - (self.table.opened - self._opened), 0))
        while at < end:
            until = min(at + self._chunk, end)
            stop = self.table.open(at, until, self._found)
            if stop < until and not self.table.make_room(int(self._found[1, stop]), self.budget.memory):
                return False
            at = stop
            if self._spent():
                break
        return True

    def _bring_back(self, inside: int) -> None:
        """Bring opened pairs up to date, those that weight came to last first; then solve for the plans they have.

        A leap leaves plans that belong to numbers on its way, so another sweep follows, which finds the bounds' own.
        There is none where it would end after the budget's seconds.
        """
        began, gap = self.seconds, self.gap
        if not self._sweep(inside):
            return
        end = self.seconds + _LEAP_SWEEPS * (self.seconds - began)
        self._leaps = self.budget.seconds is None or end < self.budget.seconds
        if (inside > _FEW or self.gap > _HELPS * gap) and self._leaps:
            self.table.leap(inside, _LEAP_ACCURACY * self.gap, self._found)
            self._sweep(inside)

    def _sweep(self, inside: int) -> bool:
        """Update opened pairs; False where that is enough, or all that the budget allows."""
        chunk = self._chunk
        for last in range(inside, 0, -chunk):
            self.table.sweep(max(last - chunk, 0), last, self._found)
            if self._spent() or self._done():
                return False
        return True

    def _forget_marks(self) -> None:
        """Weights and marks are 0 between questions, also where Ctrl-C came between."""
        used = self.table.pairs + 2
        if self._inside or self.table.table.listed[:used].any():
            self.table.table.listed[:used] = 0
            self.table.table.weight[:used] = 0.0
