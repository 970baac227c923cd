"""Transitions of the past, from which minibatches are drawn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor


class Experience(NamedTuple):
    """Transitions: observation [B, n], action [B], reward [B], next observation [B, n], whether it ended [B]."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    done: Tensor


class Replay:
    """The last so many transitions; the oldest make room."""

    def __init__(self, capacity: int, n_inputs: int) -> None:
        if capacity < 2:
            raise ValueError(f"capacity must be at least 2; got {capacity}.")
        self._capacity, self._count = capacity, 0
        self._observation = torch.zeros(capacity, n_inputs)
        self._next = torch.zeros(capacity, n_inputs)
        self._action = torch.zeros(capacity, dtype=torch.int64)
        self._reward = torch.zeros(capacity)
        self._done = torch.zeros(capacity, dtype=torch.bool)

    def __len__(self) -> int:
        return min(self._count, self._capacity)

    def add(self, observation: ArrayLike, action: int, reward: float, following: ArrayLike, done: bool) -> None:
        """Keep one transition; `done` says that it ended in a terminal state (a time limit is none)."""
        k = self._count % self._capacity
        self._observation[k] = torch.from_numpy(np.asarray(observation, np.float32).reshape(-1))
        self._next[k] = torch.from_numpy(np.asarray(following, np.float32).reshape(-1))
        self._action[k], self._reward[k], self._done[k] = int(action), float(reward), bool(done)
        self._count += 1

    def sample(self, size: int, generator: torch.Generator) -> Experience:
        """Transitions drawn uniformly, with replacement."""
        if not len(self):
            raise ValueError("the replay is empty; add transitions before sampling.")
        drawn = torch.randint(len(self), (size,), generator=generator)
        return Experience(*(part[drawn] for part in self.all()))

    def all(self) -> Experience:
        """All transitions that are there."""
        parts = (self._observation, self._action, self._reward, self._next, self._done)
        return Experience(*(part[: len(self)] for part in parts))
