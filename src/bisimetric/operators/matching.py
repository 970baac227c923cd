"""Which rows of a model are compared for two states, and checks of what a user may choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import InputError, check_number
from ..lumping import label_classes, respected_labels
from ..model import MDP, Chain
from ..transport import Family

__all__ = ["apart", "check_match", "check_reward_weight", "check_transition_weight", "choices_of", "comparison_groups",
           "family_of", "respected_labels"]  # fmt: skip


def check_match(model: Chain | MDP, match: str | None) -> str:
    if isinstance(model, Chain):
        if match is not None:
            raise ValueError("match is for an MDP; a chain has no choices to match.")
        return "chain"
    if match not in ("labels", "hausdorff"):
        raise InputError(
            f'match must be "labels" (same action names) or "hausdorff" (choices as sets) for an MDP; got {match!r}.',
            python="For the metric of a policy pass mdp.under(policy).",
            command="For the metric of a policy give --policy.",
        )
    return match


def check_reward_weight(c_R: float) -> float:
    if not 0.0 <= check_number("reward_weight", c_R) < np.inf:
        raise ValueError(f"reward_weight (c_R) must be finite and not negative; got {c_R}.")
    return float(c_R)


def check_transition_weight(c_T: float) -> float:
    if not 0.0 <= check_number("transition_weight", c_T) < 1.0:
        raise ValueError(f"transition_weight (c_T) must be in [0, 1); got {c_T}.")
    return float(c_T)


def choices_of(model: Chain | MDP) -> tuple[NDArray[Any], NDArray[Any]]:
    """The state of each row and the row pointers of the states."""
    if isinstance(model, MDP):
        return model.state_of_choice, model.choice_ptr
    return np.arange(model.n_states), np.arange(model.n_states + 1)


def comparison_groups(model: Chain | MDP, match: str) -> tuple[NDArray[Any], tuple[NDArray[Any], ...]]:
    """(set of labels of each state, groups of rows whose pairs are compared)."""
    if isinstance(model, Chain):
        return np.zeros(model.n_states, np.int64), (np.arange(model.n_states),)
    if match == "hausdorff":
        return np.zeros(model.n_states, np.int64), (np.arange(model.n_choices),)
    known: dict[tuple[int, ...], int] = {}
    label_sets = np.empty(model.n_states, np.int64)
    for s in range(model.n_states):
        labels = np.sort(model.label_of_choice[model.choice_ptr[s] : model.choice_ptr[s + 1]])
        if np.any(labels[1:] == labels[:-1]):
            twice = model.label_names[labels[:-1][labels[1:] == labels[:-1]][0]]
            raise ValueError(
                f'match="labels" needs different labels within a state; state {model.name_of(s)} has action {twice} '
                'more than once. Use match="hausdorff".'
            )
        label_sets[s] = known.setdefault(tuple(labels.tolist()), len(known))
    # Only states with the same labels are compared, one group for each label of each set.
    key = label_sets[model.state_of_choice] * len(model.label_names) + model.label_of_choice
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    return label_sets, tuple(np.split(order, cuts))


def apart(model: Chain | MDP, label_sets: NDArray[Any], respect: Sequence[str]) -> NDArray[Any]:
    """Label sets of the states [S], told apart further by the labels of states that are respected."""
    if not respect:
        return label_sets
    _, both = np.unique(np.stack([label_sets, label_classes(model, respect)]), axis=1, return_inverse=True)
    return np.asarray(both.reshape(-1))


def family_of(model: Chain | MDP, groups: tuple[NDArray[Any], ...]) -> Family:
    """Rows ready for the kernels."""
    rows = model.rows
    return Family(rows.indptr, rows.indices.view(np.uint32), rows.probs, groups, rows.n_states)
