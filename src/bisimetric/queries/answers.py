"""What a question costs at most, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..checks import check_number, check_whole
from ..kinds import Floats, Ints
from ..status import Status


class QuerySeen(NamedTuple):
    """What a progress callback sees of a question: the bounds so far, pairs opened for it, and its seconds."""

    lower: float
    upper: float
    opened: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Where a question ends without an answer that is close enough; its bounds are true all the same.

    Attributes:
        pairs: most pairs that it may open; None for no limit.
        memory: most bytes that the table of all questions so far may take; None for no limit.
        seconds: most seconds; None for no limit.
    """

    pairs: int | None = None
    memory: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("pairs", self.pairs), ("memory", self.memory)):
            if limit is not None and check_whole(name, limit) < 1:
                raise ValueError(f"{name} must be at least 1, or None for no limit; got {limit}.")
        if self.seconds is not None and not check_number("seconds", self.seconds) > 0.0:
            raise ValueError(f"seconds must be positive, or None for no limit; got {self.seconds}.")


@dataclass(frozen=True)
class Answer:
    """Rigorous bounds on a distance, and how they came about.

    Attributes:
        lower, upper: lower ≤ d ≤ upper; around the exact distance, with rounding counted.
        status: CONVERGED (as close as was asked for, or the threshold decided), BUDGET, INTERRUPTED or ROUNDING.
        opened, updates, seconds: pairs opened and updates of pairs for this question, and its time.
        known: pairs in the table.
        notes: what one should know, as where the full solver would be cheaper.
    """

    lower: float
    upper: float
    status: Status
    opened: int
    updates: int
    seconds: float
    known: int
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    @property
    def value(self) -> float:
        """The middle of the bounds; its error is at most half of the gap."""
        return 0.5 * (self.lower + self.upper)

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    def __repr__(self) -> str:
        return f"Answer({self.lower:.6g} to {self.upper:.6g}, {self.status.name}, {self.opened} pairs opened)"


@dataclass(frozen=True, eq=False, repr=False)
class Nearest:
    """States that are near a given one.

    Attributes:
        states: their numbers, by rising upper bound [k]. lower, upper: bounds on their distances [k].
        eta: each of them is at most this much farther than the true k-th nearest; 0 where they are the nearest.
        status, opened, seconds: how the search ended, and its cost.
        notes: what one should know.
    """

    states: Ints
    lower: Floats
    upper: Floats
    eta: float
    status: Status
    opened: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        listed = ", ".join(str(int(s)) for s in self.states[:6]) + (", …" if len(self) > 6 else "")
        far = float(np.max(self.upper)) if len(self) else 0.0
        return f"Nearest([{listed}] within {far:.4g}, eta {self.eta:.3g}, {self.status.name})"
