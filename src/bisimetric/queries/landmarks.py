"""Landmarks: states that nobody has, whose distances to all states are one value iteration.

Put a state g beside the model that is never left, has the actions and labels of some of the states, and has the same
reward r whatever it does. All couplings with its row are trivial, so

    D(s) = d(s, g) = max over choices of s of  c_R |R − r| + c_T P·D

for states of its actions and labels, and the largest distance for others. The metric of both side by side has the
triangle inequality, |D(s) − D(t)| ≤ d(s, t) ≤ D(s) + D(t), and its part on the model is that of the model alone. For r
the least (largest) reward of a model with one set of actions and labels, D is the value of the best (worst) policy up
to a constant, so that |V(s) − V(t)| ≤ d(s, t) is a special case.

With match="hausdorff" g has one choice, and the formula is the same for all sets of choices.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..backends.protocol import Comparison
from ..kinds import Floats

MOST = 8  # landmarks
_ACCURACY = 1e-9  # of their distances, in units of the largest one
_SWEEPS = 4000


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


def accuracy_of(largest: float) -> tuple[float, int]:
    """(How exact distances of landmarks shall be, most sweeps for that)."""
    return _ACCURACY * largest, _SWEEPS
