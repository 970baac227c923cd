"""Models that are read in parts, as they need not fit into memory.

A part is a range of states with all that leads from them. Of the whole no more is held than its size, the names of
actions and labels, and the discount. Rows are checked and rescaled one by one, so those of a part are those of the
whole model, bit by bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from ..kinds import Array, Bools, Floats, Ints
from .chain import Chain, check_discount, check_rewards
from .distributions import Distributions, Mixing, ModelError, rises
from .mdp import MDP
from .policies import averaged_rewards


@dataclass(frozen=True, eq=False)
class Part:
    """Some states of a model that follow each other, with their choices.

    Attributes: rows (of the choices, over all states of the model), rewards [n], choice_ptr (rows of each state [m+1]),
    actions (number of each choice's label [n]), labels (those of the states, by name [m]), reward_range (of the
    choices' rewards; of those that a policy chose from, where the part is of a chain).
    """

    rows: Distributions
    rewards: Floats
    choice_ptr: Ints
    actions: Ints
    labels: Mapping[str, Bools] = field(default_factory=dict)
    reward_range: tuple[float, float] = (0.0, 0.0)

    @property
    def n_states(self) -> int:
        """States of the part."""
        return len(self.choice_ptr) - 1

    @property
    def states(self) -> Ints:
        """The state of each choice, as one of the part [n]."""
        return np.repeat(np.arange(self.n_states), np.diff(self.choice_ptr))

    def averaged(self) -> Part:
        """The part of the chain of the uniform policy."""
        counts = np.diff(self.choice_ptr)
        weights = np.repeat(1.0 / counts, counts)
        return replace(
            self,
            rows=Mixing(self.rows, self.choice_ptr)(weights),
            rewards=averaged_rewards(weights, self.rewards, self.choice_ptr[:-1]),
            choice_ptr=np.arange(self.n_states + 1),
            actions=np.zeros(self.n_states, np.int64),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelParts(ABC):
    """A model that is read in parts.

    Attributes: n_states, gamma; nbytes (of the arrays of the whole, about); action_labels (names of actions),
    label_names (of the states' labels); reward_name (of the rewards in use, if they have a name); uniform (whether it
    is the chain of the uniform policy).
    """

    n_states: int
    gamma: float
    nbytes: int
    action_labels: tuple[str, ...] = ("0",)
    label_names: tuple[str, ...] = ()
    reward_name: str | None = None
    uniform: bool = False

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        if not 1 <= self.n_states < 1 << 31:
            raise ModelError(f"a model needs between 1 and 2^31 − 1 states; got {self.n_states}.")

    @abstractmethod
    def load(self, first: int, last: int) -> Part:
        """States first … last − 1 with their choices, as they are."""

    @property
    @abstractmethod
    def source(self) -> str:
        """What the model is of, as it is now: other contents have another one."""

    @property
    def checkable(self) -> tuple[str, ...]:
        """Pieces of the file that have check sums of their own, which reading in parts does not look at."""
        return ()

    def check(self, member: str) -> None:
        """Compare the check sum of such a piece with what is there; raises ModelError where they differ."""
        raise ModelError(f"{member!r} has no check sum.")

    def under_uniform(self) -> Self:
        """The chain of the uniform policy."""
        return replace(self, uniform=True)

    def read(self, first: int, last: int) -> Part:
        """States first … last − 1 with their choices, or with the uniform policy's."""
        if not 0 <= first < last <= self.n_states:
            raise ModelError(
                f"states {first} to {last - 1} are not all among those of the model, 0 to {self.n_states - 1}."
            )
        part = self.load(first, last)
        return part.averaged() if self.uniform else part

    # What results ask of a model: states of one that is read in parts have numbers, and no names.
    state_names: ClassVar[None] = None
    classes: ClassVar[None] = None
    state_labels: ClassVar[Mapping[str, Bools]] = {}

    def name_of(self, state: int) -> str:
        return str(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_states} states, gamma={self.gamma:g})"


def checked_part(
    first: int,
    n_states: int,
    entries: tuple[Ints, Array, Array],
    choice_ptr: Ints,
    rewards: Floats,
    actions: Ints,
    labels: Mapping[str, Bools],
) -> Part:
    """A part from arrays as a file has them: checked, rows made like those of whole models.

    Args:
        first: number of its first state. entries: pointers of rows from 0 on, successors, probabilities.
    """
    from scipy.sparse import csr_array

    indptr, indices, probs = entries
    counts = np.diff(choice_ptr)
    if not rises(choice_ptr) or not rises(indptr) or len(indptr) != choice_ptr[-1] + 1 or indptr[-1] != len(indices):
        raise ModelError(f"the pointers of state {first} and those after it do not fit the entries.")
    if counts.size and counts.min() < 1:
        raise ModelError(
            f"every state needs at least one choice; state {first + int(np.argmin(counts))} has none. Give it a "
            "self-loop with reward 0 if the process ends there."
        )
    if indices.size and not 0 <= indices.min() <= indices.max() < n_states:
        raise ModelError(f"a successor index is outside 0 … {n_states - 1}.")
    states = first + np.repeat(np.arange(len(counts)), counts)

    def name_of_row(row: int) -> str:
        return f"state {states[row]}, choice {row - choice_ptr[states[row] - first]}"

    matrix = csr_array((probs, indices.astype(np.int64), indptr), shape=(len(indptr) - 1, n_states))
    rows = Distributions.from_matrix(matrix).normalised()
    rows.check(name_of_row)
    check_rewards(rewards, name_of_row)
    return Part(rows, rewards, choice_ptr, actions, dict(labels), (float(rewards.min()), float(rewards.max())))


def picked(model: Chain | MDP, states: Ints) -> Part:
    """Some states of a model in memory, in any order."""
    labels = {name: holds[states].copy() for name, holds in model.state_labels.items()}
    if isinstance(model, Chain):
        pointers, choices, actions = np.arange(len(states) + 1), states, np.zeros(len(states), np.int64)
    else:
        counts = np.diff(model.choice_ptr)[states]
        pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        choices = np.repeat(model.choice_ptr[states] - pointers[:-1], counts) + np.arange(pointers[-1])
        actions = model.action_of_choice[choices].copy()
    rows = model.rows
    sizes = rows.sizes[choices]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    entries = np.repeat(rows.indptr[choices] - indptr[:-1], sizes) + np.arange(indptr[-1])
    chosen = replace(rows, indptr=indptr, indices=rows.indices[entries], probs=rows.probs[entries])
    return Part(chosen, model.rewards[choices].copy(), pointers, actions, labels, model.reward_range)


def joined(parts: Sequence[Part]) -> Part:
    """Parts of a model one after the other, as one."""
    rows = [part.rows for part in parts]
    choices = np.cumsum([0, *(len(part.rewards) for part in parts)])
    entries = np.cumsum([0, *(len(one.probs) for one in rows)])
    every = zip(*(part.reward_range for part in parts), strict=True)
    low, high = (pick(each) for pick, each in zip((min, max), every, strict=True))
    return Part(
        replace(
            rows[0],
            indptr=np.concatenate([[0], *(one.indptr[1:] + at for one, at in zip(rows, entries, strict=False))]),
            indices=np.concatenate([one.indices for one in rows]),
            probs=np.concatenate([one.probs for one in rows]),
        ),
        np.concatenate([part.rewards for part in parts]),
        np.concatenate([[0], *(part.choice_ptr[1:] + at for part, at in zip(parts, choices, strict=False))]),
        np.concatenate([part.actions for part in parts]),
        {name: np.concatenate([part.labels[name] for part in parts]) for name in parts[0].labels},
        (low, high),
    )
