"""Bellman backups of a model that workers read in parts.

Values of all states are a file that workers see; each backs up the states that it reads, and sends back what came out.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..kinds import Floats, Ints
from ..model.parts import ModelParts, Part
from .crew import Crew
from .outline import ranges_of, read_range

_VALUES, _CLASSES = "values.npy", "classes.npy"


class BackedUp(NamedTuple):
    """What a backup of some states gives.

    Attributes: best (T V), played (T_π V), policy (of the choices), alone (states that have none of the actions that
    their class plays, and play all of theirs alike), reward_range.
    """

    best: Floats
    played: Floats
    policy: Floats
    alone: int
    reward_range: tuple[float, float]


def backed_up(crew: Crew, parts: ModelParts, folder: Path, play: Floats, class_of: Ints, V: Floats) -> BackedUp:
    """T V and T_π V of all states, by the workers.

    Args:
        folder: that workers see. play: probability of each class of states to take each action [K, A].
        class_of: of the states [S]. V: their values [S].
    """
    if not (folder / _CLASSES).exists():
        np.save(folder / _CLASSES, class_of)
    np.save(folder / _VALUES, V)
    ranges = ranges_of(parts.n_states, max(crew.threads, 1))
    work = partial(_backed_up, parts, folder, play)
    found = dict(crew.run("bisimetric Bellman backup", work, ranges, [str(first) for first, _ in ranges]))
    each = [found[number] for number in range(len(ranges))]
    lows, highs = zip(*(one.reward_range for one in each), strict=True)
    best, played, policy = (np.concatenate([one[k] for one in each]) for k in range(3))
    return BackedUp(best, played, policy, sum(one.alone for one in each), (min(lows), max(highs)))


def _backed_up(parts: ModelParts, folder: Path, play: Floats, ends: tuple[int, int]) -> BackedUp:
    V = np.load(folder / _VALUES, mmap_mode="r")
    class_of = np.load(folder / _CLASSES, mmap_mode="r")[slice(*ends)]
    return backup(read_range(parts, ends), parts.gamma, play[class_of], V)


def backup(part: Part, gamma: float, play: Floats, V: Floats) -> BackedUp:
    """The backup of a part; `play` [m, A] is what its states are to play."""
    rows, starts, states = part.rows, part.choice_ptr[:-1], part.states
    Q = part.rewards + gamma * np.add.reduceat(rows.probs * V[rows.indices], rows.indptr[:-1])
    weights = play[states, part.actions]
    total = np.add.reduceat(weights, starts)
    alone = total == 0.0
    counts = np.diff(part.choice_ptr)
    policy = np.where(alone[states], 1.0 / counts[states], weights / np.where(alone, 1.0, total)[states])
    best, played = np.maximum.reduceat(Q, starts), np.add.reduceat(policy * Q, starts)
    return BackedUp(best, played, policy, int(alone.sum()), part.reward_range)
