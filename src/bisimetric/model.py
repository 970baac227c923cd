"""Finite Markov decision processes and Markov chains with rewards: the only place that validates data.

An `MDP` stores one sparse row of next-state probabilities and one expected reward per *choice*; the
choices of state s are rows choice_ptr[s] … choice_ptr[s+1]−1. States may have different numbers of
choices. Each choice has a label; where none are given, a choice is labelled by its position.

A `Chain` is what is left when a policy has made the choices: one row and one reward per state.

Both are immutable: arrays are copied on the way in and marked read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .rows import ROW_SUM_TOLERANCE, Floats, Ints, Mixing, ModelError, Rows, floats, freeze, rescaling

__all__ = ["MDP", "Chain", "Floats", "Ints", "ModelError", "Rows"]


def _check_discount(gamma: float) -> float:
    gamma = float(gamma)
    if not 0.0 <= gamma < 1.0:
        raise ModelError(f"gamma must be in [0, 1); got {gamma}.")
    return gamma


@dataclass(frozen=True, eq=False)
class Chain:
    """A Markov chain with rewards. Build one with `Chain.from_arrays` or `MDP.under`.

    Attributes: rows (P, [S] rows), rewards [S], gamma, state_names, classes (known equivalence
    classes of the states, if any, [S]), reward_range (of the model it comes from).
    """

    rows: Rows
    rewards: Floats
    gamma: float
    state_names: tuple[str, ...] | None = None
    classes: Ints | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def from_arrays(cls, P: Any, R: ArrayLike, gamma: float) -> Self:
        """A chain from a dense or sparse matrix P [S, S] and rewards R [S]."""
        rows = Rows.from_matrix(P).normalised()
        rewards = floats(R, "R: rewards")
        if len(rows) != rows.n_states or rewards.shape != (len(rows),):
            raise ModelError(
                f"a chain needs P [S, S] and R [S]; got P [{len(rows)}, {rows.n_states}] and R {list(rewards.shape)}."
            )
        if len(rows) == 0:
            raise ModelError("a chain needs at least one state.")
        rows.check(lambda row: f"state {row}")
        _check_rewards(rewards, lambda row: f"state {row}")
        freeze(rewards)
        return cls(rows.freeze(), rewards, _check_discount(gamma),
                   reward_range=(float(rewards.min()), float(rewards.max())))  # fmt: skip

    @property
    def n_states(self) -> int:
        return self.rows.n_states

    @property
    def reward_span(self) -> float:
        """Largest minus smallest reward of the model."""
        return self.reward_range[1] - self.reward_range[0]

    def __repr__(self) -> str:
        return f"Chain({self.n_states} states, {self.rows.probs.size} transitions, gamma={self.gamma:g})"


def _check_rewards(rewards: Floats, name_of_row: Any) -> None:
    bad = np.flatnonzero(~np.isfinite(rewards))
    if bad.size:
        raise ModelError(f"rewards must be finite; {name_of_row(int(bad[0]))} has {rewards[bad[0]]}.")


@dataclass(frozen=True, eq=False)
class MDP:
    """A finite MDP with ragged choices. Build one with `MDP.from_arrays` or `MDP.from_choices`.

    Attributes: rows (one per choice), rewards [N], choice_ptr [S+1], gamma, label_of_choice [N]
    (indices into label_names), state_names, classes (known equivalence classes, if any, [S]),
    state_labels (atomic propositions by name, [S] booleans), reward_models (other rewards by name, [N]),
    action_names (names of the choices for people, [N]; what is matched is label_of_choice).
    """

    rows: Rows
    rewards: Floats
    choice_ptr: Ints
    gamma: float
    label_of_choice: Ints
    label_names: tuple[str, ...]
    state_names: tuple[str, ...] | None = None
    classes: Ints | None = None
    state_labels: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    reward_models: Mapping[str, Floats] = field(default_factory=dict)
    action_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        pointers, n = self.choice_ptr, len(self.rows)
        if pointers.ndim != 1 or len(pointers) < 2 or pointers[0] != 0 or pointers[-1] != n:
            raise ModelError(f"choice_of_state must rise from 0 to the {n} choices, one more entry than states.")
        if self.rows.n_states != self.n_states:
            raise ModelError(f"P has {self.rows.n_states} columns for {self.n_states} states.")
        empty = np.flatnonzero(np.diff(pointers) < 1)
        if empty.size:
            raise ModelError(
                f"every state needs at least one choice; state {self.name_of(int(empty[0]))} has none. "
                "Give it a self-loop with reward 0 if the process ends there."
            )
        if self.rewards.shape != (n,) or self.label_of_choice.shape != (n,):
            raise ModelError(
                f"rewards and labels need one entry per choice ({n}); got {self.rewards.shape} and "
                f"{self.label_of_choice.shape}."
            )
        if self.state_names is not None and len(self.state_names) != self.n_states:
            raise ModelError(f"{len(self.state_names)} state names for {self.n_states} states.")
        if self.classes is not None and self.classes.shape != (self.n_states,):
            raise ModelError(f"classes need one entry per state ({self.n_states}); got {self.classes.shape}.")
        for name, holds in self.state_labels.items():
            if holds.shape != (self.n_states,) or holds.dtype != np.bool_:
                raise ModelError(f"label {name!r} needs one boolean per state ({self.n_states}).")
            freeze(holds)
        for name, other in self.reward_models.items():
            if other.shape != (n,) or not np.all(np.isfinite(other)):
                raise ModelError(f"reward model {name!r} needs one finite number per choice ({n}).")
            freeze(other)
        if self.action_names is not None and len(self.action_names) != n:
            raise ModelError(f"{len(self.action_names)} action names for {n} choices.")
        object.__setattr__(self, "rows", self.rows.normalised())
        self.rows.check(self._name_of_choice)
        _check_rewards(self.rewards, self._name_of_choice)
        _check_discount(self.gamma)
        self.rows.freeze()
        for array in (self.rewards, self.choice_ptr, self.label_of_choice, self.classes):
            if array is not None:
                freeze(array)

    @classmethod
    def from_arrays(
        cls,
        P: Any,
        R: ArrayLike,
        gamma: float,
        *,
        axes: str,
        labels: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        classes: ArrayLike | None = None,
    ) -> Self:
        """An MDP in which every state has the same actions.

        Args:
            P: probabilities, dense [S, A, S] (axes="sas") or [A, S, S] (axes="ass"); for "ass" also a
                sequence of A sparse matrices [S, S].
            R: rewards [S], [S, A], or per transition in the axis order of P.
            gamma: discount in [0, 1).
            axes: order of the axes of P, "sas" or "ass"; never guessed.
            labels: names of the actions [A]. state_names: [S]. classes: known classes [S].
        """
        if axes not in ("sas", "ass"):
            raise ModelError(f'axes must be "sas" (P[s, a, t]) or "ass" (P[a, s, t]); got {axes!r}.')
        if isinstance(P, (list, tuple)) and len(P) and hasattr(P[0], "tocsr"):
            rows, n_actions = _stack_sparse(P, axes)
        else:
            dense = floats(P, "P: probabilities")
            if dense.ndim == 3 and axes == "ass":
                dense = np.swapaxes(dense, 0, 1)
            if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
                raise ModelError(f"P with axes={axes!r} must be three-dimensional, S by S by A; got {np.shape(P)}.")
            n_actions = dense.shape[1]
            rows = Rows.from_matrix(dense.reshape(-1, dense.shape[2]))
        rows = rows.normalised()
        n_states = rows.n_states
        rewards = _choice_rewards(R, rows, n_states, n_actions, axes)
        names = tuple(labels) if labels is not None else tuple(str(a) for a in range(n_actions))
        if len(names) != n_actions:
            raise ModelError(f"{len(names)} action labels for {n_actions} actions.")
        return cls(
            rows, rewards, np.arange(n_states + 1, dtype=np.int64) * n_actions, float(gamma),
            np.tile(np.arange(n_actions, dtype=np.int64), n_states), names, _names(state_names), _classes(classes),
        )  # fmt: skip

    @classmethod
    def from_choices(
        cls,
        P: Any,
        R: ArrayLike,
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
        rows = Rows.from_matrix(P).normalised()
        given = np.asarray(choice_of_state)
        if given.dtype.kind not in "iu" or given.ndim != 1:
            raise ModelError(f"choice_of_state must be a vector of integers; got {given.dtype} {given.shape}.")
        pointers = given.astype(np.int64)
        if (
            len(pointers) != rows.n_states + 1
            or pointers[0] != 0
            or pointers[-1] != len(rows)
            or np.any(np.diff(pointers) < 0)
        ):
            raise ModelError(
                f"choice_of_state must hold {rows.n_states + 1} row pointers that rise from 0 to {len(rows)}; got "
                f"{len(pointers)} ending at {pointers[-1] if len(pointers) else None}."
            )
        counts = np.diff(pointers)
        rewards = _ragged_rewards(R, rows, counts)
        if labels is None:
            ids = np.arange(len(rows), dtype=np.int64) - np.repeat(pointers[:-1], counts)
            names = tuple(str(a) for a in range(int(counts.max(initial=0))))
        else:
            unique, inverse = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
            ids, names = inverse.astype(np.int64).reshape(-1), tuple(str(name) for name in unique)
        return cls(rows, rewards, pointers, float(gamma), ids, names, _names(state_names), _classes(classes))

    @staticmethod
    def normalised(P: Any, tol: float = 1e-3) -> Any:
        """P with rows rescaled to sum to 1 (dense: last axis); refuses sums further off than tol."""
        if isinstance(P, (list, tuple)) and len(P) and hasattr(P[0], "tocsr"):
            return [MDP.normalised(matrix, tol) for matrix in P]
        sparse = hasattr(P, "tocsr")
        sums = np.asarray(P.sum(axis=1)).reshape(-1) if sparse else floats(P, "P: probabilities").sum(axis=-1)
        if not np.all(np.abs(sums - 1.0) <= tol):
            worst = np.unravel_index(np.argmax(np.abs(sums - 1.0)), sums.shape)
            raise ModelError(
                f"row {tuple(int(k) for k in worst)} of P sums to {sums[worst]:.6g}, which is more than rounding "
                f"(tolerance {tol:g})."
            )
        if sparse:
            from scipy.sparse import diags_array

            return diags_array(1.0 / sums) @ P.tocsr()
        return floats(P, "P: probabilities") / sums[..., None]

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

    def _name_of_choice(self, choice: int) -> str:
        state = int(np.searchsorted(self.choice_ptr, choice, side="right") - 1)
        return f"state {self.name_of(state)}, action {self.label_names[self.label_of_choice[choice]]}"

    def action_name(self, choice: int) -> str:
        """The name of a choice for people: its action name, or its label."""
        if self.action_names is not None and self.action_names[choice]:
            return self.action_names[choice]
        return self.label_names[int(self.label_of_choice[choice])]

    def with_reward(self, name: str | None) -> Self:
        """The same model with the rewards of one of its reward models (None: all 0)."""
        if name is not None and name not in self.reward_models:
            known = ", ".join(self.reward_models) or "none"
            raise ModelError(f"the model has no reward model {name!r}; it has: {known}.")
        return self.with_rewards(np.zeros(self.n_choices) if name is None else self.reward_models[name])

    def with_rewards(self, rewards: ArrayLike) -> Self:
        """The same model with other rewards, per choice [N]."""
        return replace(self, rewards=floats(rewards, "R: rewards"))

    def labelled_by_action(self) -> Self:
        """The same model with choices labelled by their action names instead of by their positions."""
        if self.action_names is None:
            return self
        unique, inverse = np.unique(np.asarray(self.action_names, dtype=str), return_inverse=True)
        return replace(
            self, label_of_choice=inverse.reshape(-1).astype(np.int64), label_names=tuple(str(x) for x in unique)
        )

    def with_gamma(self, gamma: float) -> Self:
        """The same model under another discount."""
        return replace(self, gamma=float(gamma))

    def uniform_policy(self) -> Floats:
        """The maximum-entropy policy, per choice [N]."""
        counts = np.diff(self.choice_ptr)
        return np.repeat(1.0 / counts, counts)

    def check_policy(self, policy: ArrayLike) -> Floats:
        """A policy per choice [N] from one per choice or [S, A]; raises unless it is one."""
        weights = floats(policy, "policy: probabilities")
        counts = np.diff(self.choice_ptr)
        if weights.ndim == 2 and np.all(counts == weights.shape[1]) and len(weights) == self.n_states:
            weights = weights.reshape(-1)
        if weights.shape != (self.n_choices,):
            even = f" or [{self.n_states}, {counts[0]}]" if np.all(counts == counts[0]) else ""
            raise ModelError(
                f"a policy needs one probability per choice: [{self.n_choices}]{even}; got shape {np.shape(policy)}."
            )
        bad = np.flatnonzero(~(weights >= 0.0) | ~np.isfinite(weights))
        if bad.size:
            raise ModelError(
                f"policy: probabilities must be finite and not negative; {self._name_of_choice(int(bad[0]))} has "
                f"{weights[bad[0]]}."
            )
        sums = np.add.reduceat(weights, self.choice_ptr[:-1])
        off = np.flatnonzero(np.abs(sums - 1.0) > ROW_SUM_TOLERANCE)
        if off.size:
            raise ModelError(
                f"policy: the probabilities of each state must sum to 1; state {self.name_of(int(off[0]))} "
                f"sums to {sums[off[0]]:.10g}."
            )
        factors, _ = rescaling(sums, counts)
        return weights if factors is None else weights / np.repeat(factors, counts)

    def under(self, policy: ArrayLike) -> Chain:
        """The Markov chain of a policy: P_π = Σ_a π(a|s) P(·|s, a) and R_π.

        Args:
            policy: per choice [N], or [S, A] where every state has A choices.
        """
        weights = self.check_policy(policy)
        rewards = np.add.reduceat(weights * self.rewards, self.choice_ptr[:-1])
        freeze(rewards)
        rows = self._mixing(weights)
        return Chain(rows, rewards, self.gamma, self.state_names, self.classes, self.reward_range)

    def __repr__(self) -> str:
        return (
            f"MDP({self.n_states} states, {self.n_choices} choices, {self.rows.probs.size} transitions, "
            f"gamma={self.gamma:g})"
        )


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(str(name) for name in names)


def _classes(classes: ArrayLike | None) -> Ints | None:
    return None if classes is None else np.array(classes, dtype=np.int64)


def _stack_sparse(matrices: Sequence[Any], axes: str) -> tuple[Rows, int]:
    """Interleave A matrices [S, S] so that the choices of a state are consecutive."""
    from scipy.sparse import vstack

    if axes != "ass":
        raise ModelError('a sequence of sparse matrices is one matrix per action: use axes="ass".')
    n_actions, shape = len(matrices), matrices[0].shape
    if any(matrix.shape != shape for matrix in matrices) or shape[0] != shape[1] or shape[0] == 0:
        raise ModelError(f"P: all matrices must be square and alike; got {[m.shape for m in matrices]}.")
    order = (np.arange(n_actions)[None, :] * shape[0] + np.arange(shape[0])[:, None]).reshape(-1)
    return Rows.from_matrix(vstack([matrix.tocsr() for matrix in matrices]).tocsr()[order]), n_actions


def _choice_rewards(R: Any, rows: Rows, n_states: int, n_actions: int, axes: str) -> Floats:
    """Expected reward per choice [S·A] from [S], [S, A] or per transition in the axes of P."""
    if isinstance(R, (list, tuple)) and len(R) and hasattr(R[0], "tocsr"):
        R = np.stack([matrix.toarray() for matrix in R])
    rewards = floats(R, "R: rewards")
    if rewards.shape == (n_states,):
        return np.repeat(rewards, n_actions)
    if rewards.shape == (n_states, n_actions):
        return rewards.reshape(-1)
    full = (n_states, n_actions, n_states) if axes == "sas" else (n_actions, n_states, n_states)
    if rewards.shape == full:
        by_choice = rewards if axes == "sas" else np.swapaxes(rewards, 0, 1)
        return _expected(by_choice.reshape(-1, n_states), rows)
    raise ModelError(
        f"R must be [S] = [{n_states}], [S, A] = [{n_states}, {n_actions}] or {list(full)}; got {list(rewards.shape)}."
    )


def _ragged_rewards(R: Any, rows: Rows, counts: Ints) -> Floats:
    rewards = floats(R.toarray() if hasattr(R, "toarray") else R, "R: rewards")
    if rewards.shape == (len(rows),):
        return rewards
    if rewards.shape == (rows.n_states,):
        return np.repeat(rewards, counts)
    if rewards.shape == (len(rows), rows.n_states):
        return _expected(rewards, rows)
    raise ModelError(
        f"R must be per choice [{len(rows)}], per state [{rows.n_states}] or per transition "
        f"[{len(rows)}, {rows.n_states}]; got {list(rewards.shape)}."
    )


def _expected(per_transition: Floats, rows: Rows) -> Floats:
    """Σ_t P(t) R(t) for each row, with R read only where P is positive."""
    owner = np.repeat(np.arange(len(rows)), rows.sizes)
    total = np.zeros(len(rows))
    np.add.at(total, owner, rows.probs * per_transition[owner, rows.indices])
    return total
