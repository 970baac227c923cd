"""Bellman backups of a model that workers read in parts.

Values of all states are a file that workers see; each backs up the states that it reads, and sends back what came out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from ..kinds import Floats, Ints
from ..model.parts import ModelParts, Part
from .crew import Crew
from .scanning import ranges_for, read_range

T = TypeVar("T")
_CLASSES = "classes.npy"
_EPS = float(np.finfo(np.float64).eps)


class Played(NamedTuple):
    """What some states play.

    Attributes: policy (of the choices), alone (states that have none of the actions that their class plays, and play
    all of theirs alike), reward_range, most (successors of a row, or choices of a state).
    """

    policy: Floats
    alone: int
    reward_range: tuple[float, float]
    most: int


class Passes:
    """Passes over a model, with what classes of its states play.

    Attributes: policy (of all choices [N]), alone (states that have none of the actions that their class plays, and
    play all of theirs alike), reward_range.
    """

    def __init__(self, crew: Crew, parts: ModelParts, folder: Path, play: Floats, class_of: Ints) -> None:
        """Let the workers say what all choices are played.

        Args:
            folder: that workers see. play: probability of each class to take each action [K, A].
            class_of: of the states [S].
        """
        self._crew, self._parts, self._folder, self._play = crew, parts, folder, play
        self._ranges = ranges_for(crew, parts)
        self._turns = 0
        np.save(folder / _CLASSES, class_of)
        found = self._all(partial(_played, parts, folder, play), "bisimetric policy of a small model")
        lows, highs = zip(*(one.reward_range for one in found), strict=True)
        self.reward_range = min(lows), max(highs)
        self.policy, self.alone = np.concatenate([one.policy for one in found]), sum(one.alone for one in found)
        self._most = max(one.most for one in found)

    def backed_up(self, V: Floats) -> tuple[Floats, Floats]:
        """(T V, T_π V) of all states."""
        self._turns += 1
        values = f"values-{self._turns}.npy"  # a name of its own, as somebody late may still read the last one
        np.save(self._folder / values, V)
        found = self._all(partial(_backed_up, self._parts, self._folder, self._play, values), "bisimetric backup")
        (self._folder / values).unlink(missing_ok=True)
        best, played = (np.concatenate(one) for one in zip(*found, strict=True))
        return best, played

    def rounding(self, V: Floats) -> float:
        """How far a backup of V is off at most."""
        size = max(abs(one) for one in self.reward_range) + float(np.abs(V).max())
        return float((2 * self._most + 8) * _EPS * size)

    def _all(self, work: Callable[[tuple[int, int]], T], words: str) -> list[T]:
        """What is found in all ranges, in their order."""
        names = [str(first) for first, _ in self._ranges]
        found: dict[int, T] = dict(self._crew.run(words, work, self._ranges, names))
        return [found[number] for number in range(len(self._ranges))]


def _played(parts: ModelParts, folder: Path, play: Floats, ends: tuple[int, int]) -> Played:
    part = read_range(parts, ends)
    policy, alone = policy_of(part, play, _classes(folder, ends))
    most = max(int(part.rows.sizes.max()), int(np.diff(part.choice_ptr).max()))
    return Played(policy, alone, part.reward_range, most)


def _backed_up(
    parts: ModelParts, folder: Path, play: Floats, values: str, ends: tuple[int, int]
) -> tuple[Floats, Floats]:
    V, part = np.load(folder / values, mmap_mode="r"), read_range(parts, ends)
    return backup(part, parts.gamma, policy_of(part, play, _classes(folder, ends))[0], V)


def _classes(folder: Path, ends: tuple[int, int]) -> Ints:
    found: Ints = np.load(folder / _CLASSES, mmap_mode="r")[slice(*ends)]
    return found


def policy_of(part: Part, play: Floats, class_of: Ints) -> tuple[Floats, int]:
    """(what the states of a part play, per choice; how many of them have nothing of what their class plays)."""
    states = part.states
    weights = play[class_of[states], part.actions]
    total = np.add.reduceat(weights, part.choice_ptr[:-1])
    alone = total == 0.0
    counts = np.diff(part.choice_ptr)
    policy = np.where(alone[states], 1.0 / counts[states], weights / np.where(alone, 1.0, total)[states])
    return policy, int(alone.sum())


def backup(part: Part, gamma: float, policy: Floats, V: Floats) -> tuple[Floats, Floats]:
    """(T V, T_π V) of the states of a part."""
    rows, starts = part.rows, part.choice_ptr[:-1]
    Q = part.rewards + gamma * np.add.reduceat(rows.probs * V[rows.indices], rows.indptr[:-1])
    return np.maximum.reduceat(Q, starts), np.add.reduceat(policy * Q, starts)
