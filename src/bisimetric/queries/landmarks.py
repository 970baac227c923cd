"""Landmarks: states that nobody has, whose distances to all states are one value iteration.

Put a state g beside the model that is never left, has the actions and labels of some of the states, and has the same
reward r whatever it does. All couplings with its row are trivial, so

    D(s) = d(s, g) = max over choices of s of  c_R |R − r| + c_T P·D

for states of its actions and labels, and the largest distance for others. The metric of both side by side has the
triangle inequality, |D(s) − D(t)| ≤ d(s, t) ≤ D(s) + D(t), and its part on the model is that of the model alone. For r
the least (largest) reward of a model with one set of actions and labels, D is the value of the best (worst) policy up
to a constant, so that |V(s) − V(t)| ≤ d(s, t) is a special case.

With match="hausdorff" g has one choice, and the formula is the same for all sets of choices.

The value iteration goes through all states in place, forwards and backwards by turns. Now and then the last iterates
are combined (reduced rank extrapolation, as in `metric.acceleration`): a third of the sweeps on long walks. That is not
trusted: the error of what comes out is the residual of a last sweep, over 1 − c_T.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..backends.comparison import Comparison
from ..backends.threads import run_all, single_thread
from ..kinds import Array, Floats
from ..metric.evaluation import least_combination

if TYPE_CHECKING:
    from ..backends.select import PairTable

MOST = 8  # landmarks
_ACCURACY = 1e-9  # of their distances, in units of the largest one
_FLOOR = 4.0 * float(np.finfo(np.float64).eps)  # what sweeps change where nothing is left but rounding
_SWEEPS = 4000
_CYCLE = 5  # iterates that are combined, two sweeps apart
_SQUARES = 1e-100, 1e100  # sizes whose squares are numbers, with room for small ones beside them
_STRIP = 1 << 16


class Landmark(NamedTuple):
    """A fictitious state: its reward, and the number of the actions and labels that it has."""

    reward: float
    home: int


def landmarks_for(comparison: Comparison) -> list[Landmark]:
    """Some rewards for each of the most frequent sets of actions and labels."""
    homes, counts = np.unique(comparison.apart, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    if comparison.c_R > 0.0:
        shares = (0.0, 1.0, 0.5) if len(homes) == 1 else (0.0, 1.0)
        rewards = _different(np.quantile(comparison.rewards, shares, method="nearest"))
    else:
        rewards = [float(comparison.rewards[0])]
    found = [Landmark(r, int(homes[k])) for k in order for r in rewards]
    return found[:MOST]


def _different(values: Floats) -> list[float]:
    order = np.argsort(values, kind="stable")
    same = {int(b) for a, b in pairwise(order) if values[a] == values[b]}
    return [float(value) for k, value in enumerate(values) if k not in same]


def add_landmarks(table: PairTable, chosen: Sequence[Landmark], largest: float) -> None:
    """Give a table the distances of all states from landmarks, which threads work out side by side."""
    halt = np.zeros(1, np.uint8)
    with single_thread():
        found = run_all(lambda one: distances_from(table, one, _ACCURACY * largest, halt), chosen, halt)
    for values, error in found:
        table.add_landmark(values, error)


def distances_from(table: PairTable, landmark: Landmark, accuracy: float, halt: Array) -> tuple[Floats, float]:
    """(Distances of all states from a landmark [S], a bound on their error); halt[0] ends it early.

    Cost: a sweep of the model for each turn, and seven arrays of numbers of all states.
    """
    r, home = landmark
    values, extrapolation = table.landmark_start(home), _Extrapolation()
    wanted = max(accuracy * (1.0 - table.model.c_T), _FLOOR * table.model.largest)
    for turn in range(_SWEEPS):
        change = table.landmark_sweep(r, home, values, turn % 2 == 1)
        if change <= wanted or halt[0]:
            break
        if turn % 2 == 1:
            extrapolation.improve(values, change)
    return values, table.landmark_error(r, home, values)


class _Extrapolation:
    """Combines the last iterates; what makes changes larger is undone, and not done again for twice as long."""

    def __init__(self) -> None:
        self._iterates: list[Floats] = []
        self._fallback: tuple[Floats, float] | None = None  # the last iterate before one that was combined, its change
        self._wait = self._next_wait = 1

    def improve(self, values: Floats, change: float) -> None:
        """Take note of an iterate and of its last change, and replace it where there are enough of them."""
        if self._fallback is not None:
            (before, least), self._fallback = self._fallback, None
            if change > least:
                values[:] = before
                self._iterates, self._wait, self._next_wait = [], self._next_wait, 2 * self._next_wait
                return
        if self._wait > 0:
            self._wait -= 1
            return
        self._iterates.append(values.copy())
        if len(self._iterates) <= _CYCLE:
            return
        last = self._iterates[-1]
        _combine(self._iterates, values)
        self._iterates, self._fallback = [], (last, change)


def _combine(iterates: Sequence[Floats], out: Floats) -> None:
    """out = the combination of iterates, all but the first, whose changes are shortest when combined so."""
    gram = np.zeros((len(iterates) - 1, len(iterates) - 1))
    top = float(np.abs(iterates[-1]).max())
    shift = 0 if _SQUARES[0] < top < _SQUARES[1] or top == 0.0 else -int(np.frexp(top)[1])  # else squares overflow
    strips = [slice(at, at + _STRIP) for at in range(0, len(out), _STRIP)]
    for strip in strips:  # in strips, so that there is no array of all changes
        changes = np.diff(np.stack([one[strip] for one in iterates]), axis=0)
        changes = np.ldexp(changes, shift) if shift else changes
        gram += changes @ changes.T
    weights = np.array(least_combination(gram, len(gram) - 1))
    for strip in strips:
        out[strip] = weights @ np.stack([one[strip] for one in iterates[1:]])
