"""Proposals for a small model: medoids far apart, and their rows pushed onto classes.

Nothing here is certified: whatever is proposed is measured by its cross metric.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kinds import Array, Floats, Ints
from ..model import MDP, Chain, Distributions
from ..model.parts import Part

_STRIP = 1 << 16


class Medoids(NamedTuple):
    """States that stand for others.

    Attributes: states [K]; class_of (the nearest of them [S]); spread (how far any two of them are apart, at least,
    by the coordinates; infinity for one of each kind).
    """

    states: Ints
    class_of: Ints
    spread: float


def farthest_points(coordinates: Array, apart: Ints, size: int) -> Medoids:
    """Gonzalez's rule: each medoid is the state that is farthest from those before it.

    Distances are the largest difference of coordinates [S, L], and infinite between states with different numbers
    `apart`; so each of these has a medoid, where `size` allows it. Cost: O(S·L·K).
    """
    n = len(apart)
    nearest, class_of = np.full(n, np.inf), np.zeros(n, np.int64)
    first = int(np.argmin(np.abs(coordinates - np.median(coordinates, axis=0)).max(axis=1)))
    chosen, spread = [first], np.inf
    while True:
        _take_in(coordinates, apart, chosen[-1], len(chosen) - 1, nearest, class_of)
        farthest = int(np.argmax(nearest))
        if len(chosen) == size or nearest[farthest] == 0.0:
            return Medoids(np.array(chosen), class_of, spread)
        spread = min(spread, float(nearest[farthest]))
        chosen.append(farthest)


def _take_in(coordinates: Array, apart: Ints, medoid: int, number: int, nearest: Floats, class_of: Ints) -> None:
    """Give a new medoid the states that are nearer to it than to those before."""
    for at in range(0, len(apart), _STRIP):
        strip = slice(at, at + _STRIP)
        away = np.abs(coordinates[strip] - coordinates[medoid]).max(axis=1, initial=0.0).astype(np.float64)
        away[apart[strip] != apart[medoid]] = np.inf
        closer = away < nearest[strip]
        nearest[strip][closer] = away[closer]
        class_of[strip][closer] = number


def small_model(like: Chain | MDP, part: Part, medoids: Medoids) -> Chain | MDP:
    """The medoids' rewards, labels and choices, with the classes of their successors in place of these.

    `part` has the states of the medoids, `like` the discount and the names of the model that they are of.
    """
    rows = _pushed(part.rows, medoids.class_of, len(medoids.states))
    if isinstance(like, Chain):
        return Chain(rows, part.rewards, like.gamma, reward_range=like.reward_range, state_labels=part.labels)
    names = None if like.state_names is None else tuple(like.state_names[s] for s in medoids.states)
    return MDP(
        rows,
        part.rewards,
        part.choice_ptr,
        like.gamma,
        part.actions,
        like.action_labels,
        names,
        state_labels=part.labels,
        reward_name=like.reward_name,
    )


def _pushed(rows: Distributions, class_of: Ints, size: int) -> Distributions:
    """Rows with their masses added up over classes."""
    from scipy.sparse import csr_array

    pushed = csr_array((rows.probs, class_of[rows.indices], rows.indptr), shape=(len(rows), size))
    return Distributions.from_matrix(pushed).normalised().freeze()
