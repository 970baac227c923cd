"""Policies as people write them: probabilities, or one action for each state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..kinds import Array, Floats, Ints
from .distributions import ROW_SUM_TOLERANCE, ModelError, floats, rescaling

if TYPE_CHECKING:
    from .mdp import MDP


def averaged_rewards(weights: Floats, rewards: Floats, starts: Ints) -> Floats:
    """R_π of each state [S], of choices [N] that begin at `starts`.

    It is between the rewards of the state's choices, and equal to them where they are equal: rounding would put it out
    of the range by which distances are bounded, and states with equal rewards apart.
    """
    sums = np.add.reduceat(weights * rewards, starts)
    return np.clip(sums, np.minimum.reduceat(rewards, starts), np.maximum.reduceat(rewards, starts))


def as_weights(mdp: MDP, policy: ArrayLike) -> Floats:
    """A policy per choice [N]; raises unless it is one. See `MDP.check_policy` for what is taken."""
    if isinstance(policy, str) and policy == "uniform":
        return mdp.uniform_policy()
    given = np.asarray(policy)
    if given.dtype.kind in "US" or (given.dtype == object and all(isinstance(x, str) for x in given.ravel())):
        return _deterministic(mdp, _by_name(mdp, given))
    if given.dtype.kind in "iu" and given.shape == (mdp.n_states,) and not _all_ones(mdp, given):
        return _deterministic(mdp, given.astype(np.int64))
    weights = floats(policy, "policy: probabilities")
    counts = np.diff(mdp.choice_ptr)
    if weights.ndim == 2 and np.all(counts == weights.shape[1]) and len(weights) == mdp.n_states:
        weights = weights.reshape(-1)
    if weights.shape != (mdp.n_choices,):
        even = f" or [{mdp.n_states}, {counts[0]}]" if np.all(counts == counts[0]) else ""
        raise ModelError(
            f"a policy needs one probability per choice: [{mdp.n_choices}]{even}, or one action per state "
            f"[{mdp.n_states}], as integers or names; got shape {np.shape(policy)}."
        )
    bad = np.flatnonzero(~(weights >= 0.0) | ~np.isfinite(weights))
    if bad.size:
        raise ModelError(
            f"policy: probabilities must be finite and not negative; {mdp.name_of_choice(int(bad[0]))} has "
            f"{weights[bad[0]]}."
        )
    sums = np.add.reduceat(weights, mdp.choice_ptr[:-1])
    off = np.flatnonzero(np.abs(sums - 1.0) > ROW_SUM_TOLERANCE)
    if off.size:
        raise ModelError(
            f"policy: the probabilities of each state must sum to 1; state {mdp.name_of(int(off[0]))} "
            f"sums to {sums[off[0]]:.10g}."
        )
    factors, _ = rescaling(sums, counts)
    return weights if factors is None else weights / np.repeat(factors, counts)


def _all_ones(mdp: MDP, given: Array) -> bool:
    """Whether whole numbers are probabilities: each state has one choice, which is taken."""
    return mdp.n_choices == mdp.n_states and bool(np.all(given == 1))


def _by_name(mdp: MDP, names: Array) -> Ints:
    if names.shape != (mdp.n_states,):
        raise ModelError(f"a policy by names needs one action per state [{mdp.n_states}]; got shape {names.shape}.")
    place = {name: k for k, name in enumerate(mdp.action_labels)}
    actions = np.empty(mdp.n_states, np.int64)
    for state, name in enumerate(names):
        if str(name) not in place:
            listed = ", ".join(mdp.action_labels[:12])
            raise ModelError(f"policy: state {mdp.name_of(state)} has no action {str(name)!r}; actions are {listed}.")
        actions[state] = place[str(name)]
    return actions


def _deterministic(mdp: MDP, actions: Ints) -> Floats:
    """The policy that takes one action (by the number of its label) in each state."""
    weights = np.zeros(mdp.n_choices)
    wanted = actions[mdp.state_of_choice] == mdp.action_of_choice
    _, first = np.unique(mdp.state_of_choice[wanted], return_index=True)
    if len(first) < mdp.n_states:
        there = np.zeros(mdp.n_states, np.bool_)
        there[mdp.state_of_choice[wanted]] = True
        state = int(np.flatnonzero(~there)[0])
        offered = mdp.action_of_choice[mdp.choice_ptr[state] : mdp.choice_ptr[state + 1]]
        listed = ", ".join(f"{k} ({mdp.action_labels[k]})" for k in offered[:12])
        raise ModelError(f"policy: state {mdp.name_of(state)} has no action {actions[state]}; it has {listed}.")
    weights[np.flatnonzero(wanted)[first]] = 1.0
    return weights
