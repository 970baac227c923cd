"""Questions to a table of pairs, and many of them at once.

Each group of questions begins with an empty table, so that answers depend neither on what was asked before, nor on who
works: threads of this process, or workers of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..backends.threads import run_all
from ..checks import check_type
from ..kinds import Array, Floats
from ..status import Status
from .answers import Answer, Budget, QuerySeen
from .search import Goal, Search

if TYPE_CHECKING:
    from ..backends.select import PairTable

_FULL_SOLVER = 0.05  # share of all pairs above which the full solver is the better way
_ROUNDING = 1e-15  # of the largest distance, as a share of it
_TOGETHER = 16  # questions that share a table
_TRIES = 5  # times that a model is given to workers, should all that had it be lost

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Asking:
    """A table of pairs, and how its bounds become answers.

    Attributes: table; largest (possible distance), merging (what merging states may add), pairs_in_all; on_progress
    (told of questions that are asked one by one).
    """

    table: PairTable
    largest: float
    merging: float
    pairs_in_all: int
    on_progress: Callable[[QuerySeen], None] | None = None

    def anew(self) -> Asking:
        """The same with an empty table, for questions side by side, of which nobody is told."""
        return replace(self, table=self.table.emptied(), on_progress=None)

    def ask(self, s: int, t: int, goal: Goal, budget: Budget, halt: Array | None = None) -> Answer:
        """Bounds on the distance of two states of the table's model; halt[0] ends the search."""
        check_type("budget", budget, Budget)
        table = self.table
        pair, opened, updates = table.enter(s, t), table.opened, table.updates

        def watch() -> None:
            if self.on_progress is not None:
                low, high = map(float, self.outward(*table.bounds(pair)))
                self.on_progress(QuerySeen(low, high, table.opened - opened, search.seconds))

        search = Search(table, pair, lambda low, high: goal(*map(float, self.outward(low, high))), budget, halt, watch)
        status = search.run()
        lower, upper = self.outward(*table.bounds(pair))
        return Answer(
            float(lower),
            float(upper),
            status,
            table.opened - opened,
            table.updates - updates,
            search.seconds,
            table.pairs,
            self._advice(table.opened - opened),
        )

    def at_once(self, s: int, t: int) -> Answer:
        """What is known of a pair without any work, where there was no time for more."""
        lower, upper = self.outward(*self.table.bounds(self.table.enter(s, t)))
        return Answer(float(lower), float(upper), Status.INTERRUPTED, 0, 0, 0.0, self.table.pairs)

    def outward(self, lower: float | Floats, upper: float | Floats) -> tuple[Floats, Floats]:
        """Bounds with what merging may add, and the rounding of the largest distance, which some of the table's are."""
        largest, high = self.largest, np.asarray(upper) + self.merging
        low = np.clip(np.asarray(lower) - self.merging, 0.0, largest * (1.0 - _ROUNDING))
        return low, np.where(high >= largest, largest * (1.0 + _ROUNDING), high)

    def _advice(self, opened: int) -> tuple[str, ...]:
        if opened <= _FULL_SOLVER * self.pairs_in_all or opened < 1000:
            return ()
        share = opened / self.pairs_in_all
        return (
            f"{opened} pairs were opened for this, {share:.0%} of all: solve_metric gives all distances of such a "
            "model sooner, where they fit into memory",
        )


def within(tol: float) -> Goal:
    """That bounds are at most `tol` apart."""
    return lambda low, high: high - low <= tol


def answers(asking: Asking, pairs: Sequence[Pair], tol: float, budget: Budget, cluster: object) -> list[Answer]:
    """Bounds on the distances of all pairs. Ctrl-C leaves those that were not reached with what is known at once."""
    groups = [pairs[at : at + _TOGETHER] for at in range(0, len(pairs), _TOGETHER)]
    found: dict[int, list[Answer]] = {}
    try:
        if cluster is None:
            halt = np.zeros(1, np.uint8)

            def answer(k: int) -> None:
                found[k] = _answered(asking, groups[k], tol, budget, halt)

            run_all(answer, range(len(groups)), halt)
        else:
            _on_cluster(cluster, asking.anew(), groups, tol, budget, found)
    except KeyboardInterrupt:
        pass
    rest, listed = asking.anew(), []
    for k, group in enumerate(groups):
        listed += found[k] if k in found else [rest.at_once(s, t) for s, t in group]
    return listed


def _answered(
    asking: Asking, group: Sequence[Pair], tol: float, budget: Budget, halt: Array | None = None
) -> list[Answer]:
    own = asking.anew()
    return [own.ask(s, t, within(tol), budget, halt) for s, t in group]


def _on_cluster(
    cluster: object,
    asking: Asking,
    groups: Sequence[Sequence[Pair]],
    tol: float,
    budget: Budget,
    found: dict[int, list[Answer]],
) -> None:
    from ..cluster.crew import crew_of
    from ..cluster.errors import LostShareError
    from ..cluster.pieces import Broken, pieces

    with crew_of(cluster) as crew:
        for tries_left in reversed(range(_TRIES)):
            crew.check()
            left = [k for k in range(len(groups)) if k not in found]
            shared = crew.share(asking)  # the model goes to each worker once
            given = [(shared, tuple(groups[k])) for k in left]
            try:
                for number, part in pieces(crew, "bisimetric queries", partial(_piece, tol, budget), given):
                    if isinstance(part, Broken):
                        raise part.error
                    found[left[number]] = part
            except LostShareError:  # with the last worker that had it
                if not tries_left:
                    raise
                crew.wait()
            else:
                return


def _piece(tol: float, budget: Budget, piece: tuple[Asking, Sequence[Pair]]) -> list[Answer]:
    return _answered(piece[0], piece[1], tol, budget)
