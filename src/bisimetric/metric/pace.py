"""When to accelerate.

Where changes do not fall as those of plain sweeps would, or accelerations leave nearly all of them, there are plain
sweeps for a while, twice as many each time, so that the contraction wins in the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

_TINY = float(np.finfo(np.float64).tiny)
_SLACK = 10.0  # changes may exceed those of a contraction by this factor at first
_HELPS = 0.9  # an acceleration leaves less than this share of the change
WEAK = 2  # so many in a row may leave more
_PROGRESS = 0.999  # a sweep that changes less than this share of the least change so far makes progress
STUCK = 3  # so many sweeps in a row without any


@dataclass
class Pace:
    """When accelerations are put off: changes must stay below those of a contraction, or plain sweeps follow.

    Near c_T = 1 a contraction hardly falls, so an acceleration is also judged by the change that it left: where several
    in a row have left nearly all of it, as where numbers are not exact enough for them, plain sweeps are as good.

    Attributes: wait (plain sweeps to come), next_wait (and after the next failure), most (the largest change that the
    next sweep may make), last (the change of the last sweep; 0 where distances were moved since, infinite before any),
    before (the change before the acceleration that the next sweep judges; infinite where there was none), weak
    (accelerations in a row that left nearly all of it), least (the smallest change of all sweeps), stuck (sweeps in a
    row that changed hardly less than that).
    """

    wait: int = 0
    next_wait: int = 1
    most: float = np.inf
    last: float = np.inf
    before: float = np.inf
    weak: int = 0
    least: float = np.inf
    stuck: int = 0

    def progress(self, change: float) -> None:
        """Take note of whether a sweep changed less than all before it."""
        self.stuck = self.stuck + 1 if change >= _PROGRESS * self.least else 0
        self.least = min(self.least, change)

    def judge(self, change: float, contraction: float) -> bool:
        """Take note of the change of a sweep; returns whether it is as small as it should be."""
        if self.before < np.inf:
            self.weak = 0 if change <= _HELPS * self.before else self.weak + 1
        good = change <= self.most and (self.before == np.inf or self.weak < WEAK)
        self.before = np.inf
        if not good:
            self.wait, self.next_wait = self.next_wait, 2 * self.next_wait
        self.most = contraction * (self.most if good and self.most < np.inf else _SLACK * change)
        self.last = change
        return good

    def to_come(self, change: float, goal: float) -> float:
        """How many plain sweeps it would take to changes of `goal`, if they go on to fall as this one did."""
        if self.last == np.inf:  # another sweep will tell
            return 1.0
        if not 0.0 < change < self.last:
            return np.inf
        return (log(max(goal, _TINY)) - log(change)) / (log(change) - log(self.last))

    def due(self) -> bool:
        """Whether to accelerate now."""
        self.wait -= 1
        return self.wait < 0
