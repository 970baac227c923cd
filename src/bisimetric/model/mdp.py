"""Finite Markov decision processes.

An `MDP` stores one sparse row of next-state probabilities and one expected reward per *choice*; the
choices of state s are rows choice_ptr[s] … choice_ptr[s+1]−1. States may have different numbers of
choices. Each choice has a label; where none are given, a choice is labelled by its position.

Models are immutable: arrays are copied on the way in and marked read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from ..frames import frame
from ..kinds import Bools, Floats, Ints, Matrices, Matrix
from ..showing import table_html
from . import arrays, expressions, policies
from .chain import Chain, check_discount, check_rewards, checked_label
from .distributions import Distributions, Mixing, ModelError, floats, freeze, rescaling, rises

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class MDP:
    """A finite MDP with ragged choices. Build one with `MDP.from_arrays` or `MDP.from_choices`.

    Attributes: rows (one per choice), rewards [N], choice_ptr [S+1], gamma, action_of_choice [N]
    (indices into action_labels), state_names, classes (known equivalence classes, if any, [S]),
    state_labels (atomic propositions by name, [S] booleans), reward_models (other rewards by name, [N]),
    action_names (names of the choices for people, [N]; what is matched is action_of_choice), reward_name (of the reward
    model in use, if it has a name).
    """

    rows: Distributions
    rewards: Floats
    choice_ptr: Ints
    gamma: float
    action_of_choice: Ints
    action_labels: tuple[str, ...]
    state_names: tuple[str, ...] | None = None
    classes: Ints | None = None
    state_labels: Mapping[str, Bools] = field(default_factory=dict)
    reward_models: Mapping[str, Floats] = field(default_factory=dict)
    action_names: tuple[str, ...] | None = None
    reward_name: str | None = None

    def __post_init__(self) -> None:
        pointers, n = self.choice_ptr, len(self.rows)
        if pointers.ndim != 1 or len(pointers) < 2 or pointers[0] != 0 or pointers[-1] != n:
            raise ModelError(f"choice_of_state must rise from 0 to the {n} choices, one more entry than states.")
        if self.rows.n_states != self.n_states:
            raise ModelError(f"P has {self.rows.n_states} columns for {self.n_states} states.")
        empty = np.flatnonzero(pointers[1:] <= pointers[:-1])
        if empty.size:
            raise ModelError(
                f"every state needs at least one choice; state {self.name_of(int(empty[0]))} has none. "
                "Give it a self-loop with reward 0 if the process ends there."
            )
        if self.rewards.shape != (n,) or self.action_of_choice.shape != (n,):
            raise ModelError(
                f"rewards and labels need one entry per choice ({n}); got {self.rewards.shape} and "
                f"{self.action_of_choice.shape}."
            )
        if self.state_names is not None and len(self.state_names) != self.n_states:
            raise ModelError(f"{len(self.state_names)} state names for {self.n_states} states.")
        if self.classes is not None and self.classes.shape != (self.n_states,):
            raise ModelError(f"classes need one entry per state ({self.n_states}); got {self.classes.shape}.")
        for name, holds in self.state_labels.items():
            if holds.shape != (self.n_states,) or holds.dtype != np.bool_:
                checked_label(name, holds, self.n_states)
            freeze(holds)
        for name, other in self.reward_models.items():
            if other.shape != (n,) or not np.all(np.isfinite(other)):
                raise ModelError(f"reward model {name!r} needs one finite number per choice ({n}).")
            freeze(other)
        if self.action_names is not None and len(self.action_names) != n:
            raise ModelError(f"{len(self.action_names)} action names for {n} choices.")
        object.__setattr__(self, "rows", self.rows.normalised())
        self.rows.check(self.name_of_choice)
        check_rewards(self.rewards, self.name_of_choice)
        check_discount(self.gamma)
        self.rows.freeze()
        for array in (self.rewards, self.choice_ptr, self.action_of_choice, self.classes):
            if array is not None:
                freeze(array)

    @classmethod
    def from_arrays(
        cls,
        P: Matrices,
        R: Matrices,
        gamma: float,
        *,
        axes: str,
        labels: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        classes: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ) -> Self:
        """An MDP from arrays over states and actions.

        Actions that a state does not have are left out: those whose mask is false, whose reward is −inf, or whose row
        of P is 0 everywhere.

        Args:
            P: probabilities, dense [S, A, S] (axes="sas") or [A, S, S] (axes="ass"); for "ass" also a
                sequence of A sparse matrices [S, S].
            R: rewards [S], [S, A], or per transition in the axis order of P.
            gamma: discount in [0, 1).
            axes: order of the axes of P, "sas" or "ass"; never guessed.
            labels: names of the actions [A]. state_names: [S]. classes: known classes [S].
            mask: which actions there are [S, A], booleans.
        """
        rows, n_actions = arrays.stacked(P, axes)
        rewards = arrays.choice_rewards(R, rows, n_actions, axes)
        names = tuple(labels) if labels is not None else tuple(str(a) for a in range(n_actions))
        if len(names) != n_actions:
            raise ModelError(f"{len(names)} action labels for {n_actions} actions.")
        there = arrays.feasible_choices(rows, rewards, mask, n_actions, state_names)
        counts = there.reshape(-1, n_actions).sum(axis=1)
        action_of_choice = np.tile(np.arange(n_actions, dtype=np.int64), rows.n_states)
        if not there.all():
            rows, rewards, action_of_choice = rows.take(there), rewards[there], action_of_choice[there]
        return cls(
            rows,
            rewards,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            check_discount(gamma),
            action_of_choice,
            names,
            _names(state_names),
            _classes(classes),
        )

    @classmethod
    def from_choices(
        cls,
        P: Matrix,
        R: Matrix,
        choice_of_state: ArrayLike,
        gamma: float,
        labels: Sequence[str] | None = None,
        *,
        state_names: Sequence[str] | None = None,
        classes: ArrayLike | None = None,
    ) -> Self:
        """An MDP from one row of P per choice.

        Args:
            P: dense or sparse [N, S], the choices of a state in consecutive rows.
            R: rewards per choice [N], per state [S], or per transition [N, S].
            choice_of_state: row pointers [S+1]; state s has rows choice_of_state[s] … [s+1] − 1.
            labels: one label per choice [N]; None labels a choice by its position in its state.
        """
        rows = Distributions.from_matrix(P).normalised()
        given = np.asarray(choice_of_state)
        if given.dtype.kind not in "iu" or given.ndim != 1:
            raise ModelError(f"choice_of_state must be a vector of integers; got {given.dtype} {given.shape}.")
        pointers = given.astype(np.int64)
        if len(pointers) != rows.n_states + 1 or pointers[0] != 0 or pointers[-1] != len(rows) or not rises(pointers):
            raise ModelError(
                f"choice_of_state must hold {rows.n_states + 1} row pointers that rise from 0 to {len(rows)}; got "
                f"{len(pointers)} ending at {pointers[-1] if len(pointers) else None}."
            )
        counts = np.diff(pointers)
        rewards = arrays.ragged_rewards(R, rows, counts)
        if labels is None:
            ids = np.arange(len(rows), dtype=np.int64) - np.repeat(pointers[:-1], counts)
            names = tuple(str(a) for a in range(int(counts.max(initial=0))))
        else:
            unique, inverse = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
            ids, names = inverse.astype(np.int64).reshape(-1), tuple(str(name) for name in unique)
        return cls(rows, rewards, pointers, check_discount(gamma), ids, names, _names(state_names), _classes(classes))

    normalised = staticmethod(arrays.normalised)

    @property
    def n_states(self) -> int:
        return len(self.choice_ptr) - 1

    @property
    def n_choices(self) -> int:
        return len(self.rows)

    @cached_property
    def state_of_choice(self) -> Ints:
        """The state of each choice [N], read-only."""
        states = np.repeat(np.arange(self.n_states), np.diff(self.choice_ptr))
        freeze(states)
        return states

    @cached_property
    def _mixing(self) -> Mixing:
        return Mixing(self.rows, self.choice_ptr)

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        return float(self.rewards.min()), float(self.rewards.max())

    @property
    def reward_span(self) -> float:
        """Largest minus smallest reward; the paper's bounds, made for [0, 1], scale with it."""
        return self.reward_range[1] - self.reward_range[0]

    def name_of(self, state: int) -> str:
        return self.state_names[state] if self.state_names is not None else str(state)

    def name_of_choice(self, choice: int) -> str:
        state = int(np.searchsorted(self.choice_ptr, choice, side="right") - 1)
        return f"state {self.name_of(state)}, action {self.action_labels[self.action_of_choice[choice]]}"

    def action_name(self, choice: int) -> str:
        """The name of a choice for people: its action name, or its label."""
        if self.action_names is not None and self.action_names[choice]:
            return self.action_names[choice]
        return self.action_labels[int(self.action_of_choice[choice])]

    def with_reward(self, name: str | None) -> Self:
        """The same model with the rewards of one of its reward models (None: all 0)."""
        if name is None:
            return replace(self, rewards=np.zeros(self.n_choices), reward_name=None)
        if name not in self.reward_models:
            known = ", ".join(self.reward_models) or "none"
            raise ModelError(f"the model has no reward model {name!r}; it has: {known}.")
        return replace(self, rewards=self.reward_models[name].copy(), reward_name=name)

    def with_rewards(self, rewards: ArrayLike, name: str | None = None) -> Self:
        """The same model with other rewards, per choice [N], by a name of their own if they have one."""
        return replace(self, rewards=floats(rewards, "R: rewards"), reward_name=name)

    def with_labels(self, labels: Mapping[str, ArrayLike | str]) -> Self:
        """The same model with more labels of states.

        Args:
            labels: by name, one boolean per state [S], or an expression over the variables that the states' names give,
                such as "x=4 & !busy".
        """
        known = (
            expressions.variables(self.state_names or ()) if any(isinstance(x, str) for x in labels.values()) else {}
        )
        more = {
            name: expressions.holds(given, known, self.state_labels, self.n_states)
            if isinstance(given, str)
            else checked_label(name, given, self.n_states)
            for name, given in labels.items()
        }
        return replace(self, state_labels={**self.state_labels, **more})

    def absorb(self, label: str) -> Self:
        """The same model, stopped where a label holds: all choices of such states stay there, without rewards."""
        if label not in self.state_labels:
            raise ModelError(f"the model has no label {label!r}; it has: {', '.join(self.state_labels) or 'none'}.")
        from scipy.sparse import csr_array, diags_array

        stays = self.state_labels[label][self.state_of_choice]
        loops = csr_array(
            (stays.astype(np.float64), (np.arange(self.n_choices), self.state_of_choice)),
            shape=(self.n_choices, self.n_states),
        )
        rows = Distributions.from_matrix(diags_array((~stays).astype(np.float64)) @ self.rows.matrix() + loops)
        return replace(
            self,
            rows=rows,
            rewards=np.where(stays, 0.0, self.rewards),
            reward_models={name: np.where(stays, 0.0, other) for name, other in self.reward_models.items()},
        )

    def labelled_by_action(self) -> Self:
        """The same model with choices labelled by their action names instead of by their positions."""
        if self.action_names is None:
            return self
        unique, inverse = np.unique(np.asarray(self.action_names, dtype=str), return_inverse=True)
        return replace(
            self, action_of_choice=inverse.reshape(-1).astype(np.int64), action_labels=tuple(str(x) for x in unique)
        )

    def with_gamma(self, gamma: float) -> Self:
        """The same model under another discount."""
        return replace(self, gamma=check_discount(gamma))

    def uniform_policy(self) -> Floats:
        """The maximum-entropy policy, per choice [N]."""
        counts = np.diff(self.choice_ptr)
        return np.repeat(1.0 / counts, counts)

    def check_policy(self, policy: ArrayLike) -> Floats:
        """A policy per choice [N]; raises unless it is one.

        Args:
            policy: one probability per choice [N], or [S, A] where every state has A choices; or one action per state
                [S], as integers (numbers of action labels) or as names; or the word "uniform".
        """
        return policies.as_weights(self, policy)

    def under(self, policy: ArrayLike) -> Chain:
        """The Markov chain of a policy: P_π = Σ_a π(a|s) P(·|s, a) and R_π.

        Args:
            policy: as for `check_policy`: probabilities, or one action per state.
        """
        return self.under_checked(self.check_policy(policy))

    def under_checked(self, policy: Floats) -> Chain:
        """`under` for probabilities per choice [N] that are known to be a policy, up to the rounding of mixtures."""
        counts = np.diff(self.choice_ptr)
        factors, _ = rescaling(np.add.reduceat(policy, self.choice_ptr[:-1]), counts)
        weights = policy if factors is None else policy / np.repeat(factors, counts)
        rewards = policies.averaged_rewards(weights, self.rewards, self.choice_ptr[:-1])
        freeze(rewards)
        rows = self._mixing(weights)
        return Chain(
            rows,
            rewards,
            self.gamma,
            self.state_names,
            self.classes,
            self.reward_range,
            self.state_labels,
            self.reward_name,
        )

    def to_frame(self) -> pd.DataFrame:
        """All transitions as a data frame of pandas: state, action, reward (of the choice), next state, probability."""
        rows = self.rows
        choice = rows.row_of_entry
        names = np.array([self.name_of(s) for s in range(self.n_states)], dtype=object)
        actions = np.array([self.action_name(c) for c in range(self.n_choices)], dtype=object)
        return frame(
            {
                "state": names[self.state_of_choice[choice]],
                "action": actions[choice],
                "reward": self.rewards[choice],
                "next_state": names[rows.indices],
                "probability": rows.probs,
            }
        )

    def _repr_html_(self) -> str:
        low, high = self.reward_range
        facts = {
            "states": self.n_states,
            "choices": f"{self.n_choices}, {len(self.action_labels)} labels of actions",
            "transitions": self.rows.probs.size,
            "discount": f"{self.gamma:g}",
            "rewards": f"{low:.4g} to {high:.4g}" + (f" ({self.reward_name})" if self.reward_name else ""),
            "labels of states": ", ".join(self.state_labels) or "none",
        }
        return table_html("MDP", facts)

    def __repr__(self) -> str:
        return (
            f"MDP({self.n_states} states, {self.n_choices} choices, {self.rows.probs.size} transitions, "
            f"gamma={self.gamma:g})"
        )


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(str(name) for name in names)


def _classes(classes: ArrayLike | None) -> Ints | None:
    return None if classes is None else np.array(classes, dtype=np.int64)
