"""What is asked of a model for which a small one is looked for, whether it is in memory or read in parts.

In memory, bisimilar states are merged first, and coordinates are distances from landmarks, as `Query` has them. In
parts, nothing is merged, and the same landmarks are the states of a small model of their own: their distances are a
cross metric, whose sweeps the workers do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..cluster.outline import Outline
from ..kinds import Array, Ints
from ..metric.operator import comparison_of, largest_distance
from ..metric.remote import outlined
from ..metric.settings import Match, MetricSettings
from ..model import MDP, Chain, Distributions
from ..model.parts import ModelParts, Part, joined, picked
from ..queries import Budget, Query
from ..queries.landmarks import MOST, Landmark
from .cross import Cross, cross
from .rooms import Rooms

_BRIEF = Budget(pairs=40)  # for a pair that is drawn to see how many states are needed
_COARSE = 1e-3  # of the largest distance: the error of coordinates, of which nothing rests on


class Subject(ABC):
    """A model for which a small one is looked for.

    Attributes: merging (what merging bisimilar states may add to a distance), of_state (the subject's state for each of
    the model's; None where they are the same), notes.
    """

    merging: float = 0.0
    of_state: Ints | None = None
    notes: tuple[str, ...] = ()

    @property
    @abstractmethod
    def model(self) -> Chain | MDP | Outline:
        """What is compared with proposals."""

    @property
    @abstractmethod
    def n_states(self) -> int: ...

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest possible distance."""

    @property
    @abstractmethod
    def coordinates(self) -> Array:
        """Distances of the states from some landmarks [S, L]."""

    @property
    @abstractmethod
    def apart(self) -> Array:
        """Numbers of the states; those with different ones are apart by definition [S]."""

    @abstractmethod
    def may_be_within(self, s: int, t: int, threshold: float) -> bool:
        """Whether the distance of two states is not known to be above a threshold."""

    @abstractmethod
    def take(self, states: Ints) -> Part:
        """Some states, with their rows."""

    @property
    @abstractmethod
    def like(self) -> Chain | MDP:
        """A model with the same discount, names of actions, and range of rewards."""


class InMemory(Subject):
    """A model in memory, with bisimilar states merged. Attributes: query."""

    def __init__(self, model: Chain | MDP, match: Match | None) -> None:
        self.query = Query(model, match=match)
        self.merging, self.of_state, self.notes = self.query.merging, self.query.of_state, self.query.notes

    @property
    def model(self) -> Chain | MDP:
        return self.query.reduced

    like = model

    @property
    def n_states(self) -> int:
        return self.query.reduced.n_states

    @property
    def largest(self) -> float:
        return self.query.largest

    @property
    def coordinates(self) -> Array:
        return self.query.coordinates

    @property
    def apart(self) -> Array:
        return self.query.apart

    def may_be_within(self, s: int, t: int, threshold: float) -> bool:
        return self.query.may_be_within(s, t, threshold, _BRIEF)

    def take(self, states: Ints) -> Part:
        return picked(self.query.reduced, states)


@dataclass(frozen=True, eq=False)
class InParts(Subject):
    """A model that workers read in parts."""

    outline: Outline
    match: Match | None
    rooms: Rooms
    dtype: str

    @property
    def model(self) -> Outline:
        return self.outline

    @property
    def like(self) -> Chain | MDP:
        return replace(self.outline.stand_in, state_names=None)

    @property
    def n_states(self) -> int:
        return self.outline.parts.n_states

    @cached_property
    def largest(self) -> float:
        stand_in = self.outline.stand_in
        return largest_distance(stand_in, 1.0, stand_in.gamma)

    @cached_property
    def _from_landmarks(self) -> Cross:
        return cross(
            self.outline,
            _absorbing(self.outline.stand_in, self._numbers, self._landmarks),
            match=self.match,
            tol=_COARSE * self.largest or 1.0,
            dtype=self.dtype,
            lump=False,
            cluster=self.rooms.cluster,
            store=self.rooms.next(),
        )

    @property
    def _landmarks(self) -> list[Landmark]:
        """The least and the largest reward for each of the most frequent sets of actions and labels."""
        often = np.bincount(self._numbers[:-1], self.outline.counts)
        low, high = self.outline.stand_in.reward_range
        rewards = dict.fromkeys((low, high, 0.5 * (low + high)) if len(often) == 1 else (low, high))
        homes = np.argsort(-often, kind="stable")
        return [Landmark(reward, int(home)) for home in homes for reward in rewards][:MOST]

    @cached_property
    def _numbers(self) -> Ints:
        """Of the stand-in's states; those with different ones are apart by definition."""
        stand_in = self.outline.stand_in
        return comparison_of(stand_in, MetricSettings(match=self.match).for_model(stand_in)).apart

    @property
    def coordinates(self) -> Array:
        return self._from_landmarks.distance

    @cached_property
    def apart(self) -> Array:
        kinds = self.outline.of_state
        found: Array = np.broadcast_to(self._numbers[0], self.n_states) if kinds is None else self._numbers[kinds]
        return found

    def may_be_within(self, s: int, t: int, threshold: float) -> bool:
        if self.apart[s] != self.apart[t]:
            return self.largest <= threshold
        lower, _ = self._from_landmarks.bracket(s, np.array([t]))
        return bool(lower[0] <= threshold)

    def take(self, states: Ints) -> Part:
        return joined([self.outline.parts.read(int(s), int(s) + 1) for s in states])


def _absorbing(model: Chain | MDP, apart: Ints, chosen: list[Landmark]) -> Chain | MDP:
    """The small model of some landmarks: states of a stand-in's kinds that are never left, with their rewards."""
    kinds = np.array([int(np.flatnonzero(apart == one.home)[0]) for one in chosen])
    n = len(chosen)
    labels = {name: holds[kinds].copy() for name, holds in model.state_labels.items()}
    if isinstance(model, Chain):
        rows = Distributions(np.arange(n + 1), np.arange(n, dtype=np.int32), np.ones(n), n)
        rewards = np.array([one.reward for one in chosen])
        return Chain(rows, rewards, model.gamma, reward_range=model.reward_range, state_labels=labels)
    home = picked(model, kinds)
    owner = home.states
    rows = Distributions(np.arange(len(owner) + 1), owner.astype(np.int32), np.ones(len(owner)), n)
    rewards = np.array([one.reward for one in chosen])[owner]
    return MDP(rows, rewards, home.choice_ptr, model.gamma, home.actions, model.action_labels, state_labels=labels)


def subject_of(model: Chain | MDP | ModelParts, match: Match | None, rooms: Rooms, dtype: str) -> Subject:
    """A model as what a small one is looked for; workers look through one that is read in parts."""
    if not isinstance(model, ModelParts):
        return InMemory(model, match)
    outline = outlined(model, rooms.cluster, match)
    assert isinstance(outline, Outline)
    return InParts(outline, match, rooms, dtype)
