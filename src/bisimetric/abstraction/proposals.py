"""Proposals for a small model: medoids far apart, and their rows pushed onto classes.

Nothing here is certified: whatever is proposed is measured by its cross metric.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kinds import Array, Floats, Ints
from ..model import MDP, Chain, Distributions

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


def small_model(model: Chain | MDP, medoids: Medoids) -> Chain | MDP:
    """The medoids' rewards, labels and choices, with the classes of their successors in place of these."""
    states = medoids.states
    if isinstance(model, MDP):
        counts = np.diff(model.choice_ptr)[states]
        pointers = np.concatenate([[0], np.cumsum(counts)])
        picked = np.repeat(model.choice_ptr[states] - pointers[:-1], counts) + np.arange(pointers[-1])
    else:
        pointers, picked = np.arange(len(states) + 1), states
    rows = _pushed(model.rows, picked, medoids.class_of, len(states))
    labels = {name: holds[states].copy() for name, holds in model.state_labels.items()}
    rewards = model.rewards[picked].copy()
    if isinstance(model, Chain):
        return Chain(rows, rewards, model.gamma, reward_range=model.reward_range, state_labels=labels)
    return MDP(
        rows,
        rewards,
        pointers.astype(np.int64),
        model.gamma,
        model.action_of_choice[picked].copy(),
        model.action_labels,
        None if model.state_names is None else tuple(model.state_names[s] for s in states),
        state_labels=labels,
        reward_name=model.reward_name,
    )


def _pushed(rows: Distributions, picked: Ints, class_of: Ints, size: int) -> Distributions:
    """Some rows with their masses added up over classes."""
    from scipy.sparse import csr_array

    part = rows.matrix()[picked]
    pushed = csr_array((part.data, class_of[part.indices], part.indptr), shape=(len(picked), size))
    return Distributions.from_matrix(pushed).normalised().freeze()
