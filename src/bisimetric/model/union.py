"""Two models side by side, as one: states, choices and rows of the first, then those of the second."""

from __future__ import annotations

import numpy as np

from ..kinds import Bools
from .chain import Chain
from .distributions import Distributions
from .mdp import MDP


def union(model: Chain | MDP, other: Chain | MDP) -> Chain | MDP:
    """Both models as one, with the discount of the first; a label that one of them lacks holds nowhere there."""
    rows = _stacked(model.rows, other.rows)
    rewards = np.concatenate([model.rewards, other.rewards])
    labels = _labels(model, other)
    if isinstance(model, MDP) and isinstance(other, MDP):
        names = tuple(dict.fromkeys((*model.action_labels, *other.action_labels)))
        number = {name: k for k, name in enumerate(names)}
        actions = [np.array([number[name] for name in side.action_labels]) for side in (model, other)]
        return MDP(
            rows,
            rewards,
            np.concatenate([model.choice_ptr, model.choice_ptr[-1] + other.choice_ptr[1:]]),
            model.gamma,
            np.concatenate([actions[0][model.action_of_choice], actions[1][other.action_of_choice]]),
            names,
            state_labels=labels,
        )
    if isinstance(model, Chain) and isinstance(other, Chain):
        low, high = zip(model.reward_range, other.reward_range, strict=True)
        return Chain(rows, rewards, model.gamma, reward_range=(min(low), max(high)), state_labels=labels)
    raise TypeError("a Chain is compared with a Chain, and an MDP with an MDP.")


def _stacked(rows: Distributions, others: Distributions) -> Distributions:
    """The rows of both, those of the second over states that come after those of the first."""
    n = rows.n_states
    return Distributions(
        np.concatenate([rows.indptr, rows.indptr[-1] + others.indptr[1:]]),
        np.concatenate([rows.indices, others.indices + np.int32(n)]),
        np.concatenate([rows.probs, others.probs]),
        n + others.n_states,
        max(rows.moved, others.moved),
    )


def _labels(model: Chain | MDP, other: Chain | MDP) -> dict[str, Bools]:
    found = {}
    for name in dict.fromkeys((*model.state_labels, *other.state_labels)):
        parts = [side.state_labels.get(name, np.zeros(side.n_states, np.bool_)) for side in (model, other)]
        found[name] = np.concatenate(parts)
    return found
