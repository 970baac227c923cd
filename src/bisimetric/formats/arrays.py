"""Arrays of other libraries: mdptoolbox (P [A, S, S], R) and QuantEcon's DiscreteDP, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..kinds import Floats, Matrices
from ..model import MDP, ModelError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def from_mdptoolbox(P: Matrices, R: Matrices, gamma: float) -> MDP:
    """An MDP from mdptoolbox's P [A, S, S] (or A sparse matrices) and R [S], [S, A] or [A, S, S]."""
    return MDP.from_arrays(P, R, gamma, axes="ass")


def to_mdptoolbox(mdp: MDP) -> tuple[list[csr_array], Floats]:
    """(P, R) for mdptoolbox: a list of A sparse matrices [S, S] and rewards [S, A]."""
    counts = np.diff(mdp.choice_ptr)
    if not np.all(counts == counts[0]):
        raise ModelError("mdptoolbox needs the same number of actions in every state.")
    matrix = mdp.rows.matrix()
    return [matrix[a :: int(counts[0])] for a in range(int(counts[0]))], mdp.rewards.reshape(mdp.n_states, -1)


def from_quantecon(ddp: Any) -> MDP:
    """An MDP from a QuantEcon DiscreteDP; actions with reward −inf are left out."""
    if getattr(ddp, "_sa_pair", False):
        states, actions = np.asarray(ddp.s_indices), np.asarray(ddp.a_indices)
        rewards, P = np.asarray(ddp.R), ddp.Q
    else:
        n_states, n_actions = ddp.R.shape
        states, actions = np.divmod(np.arange(n_states * n_actions), n_actions)
        rewards, P = np.asarray(ddp.R).reshape(-1), np.asarray(ddp.Q).reshape(n_states * n_actions, -1)
    allowed = np.flatnonzero(np.isfinite(rewards))
    order = allowed[np.lexsort((actions[allowed], states[allowed]))]
    rows = P.tocsr()[order] if hasattr(P, "tocsr") else P[order]
    pointers = np.concatenate([[0], np.cumsum(np.bincount(states[order], minlength=rows.shape[1]))])
    return MDP.from_choices(rows, rewards[order], pointers, float(ddp.beta), [str(a) for a in actions[order]])


def to_quantecon(mdp: MDP) -> Any:
    """A QuantEcon DiscreteDP with one state-action pair per choice; actions are the label numbers."""
    try:
        import quantecon
    except ImportError:
        raise ModelError("quantecon is not installed; pip install quantecon.") from None
    order = np.lexsort((mdp.action_of_choice, mdp.state_of_choice))
    make = getattr(quantecon.markov, "DiscreteDP")  # noqa: B009 (not exported for type checkers)
    return make(
        np.array(mdp.rewards)[order],
        mdp.rows.matrix()[order].tocsr(),
        mdp.gamma,
        mdp.state_of_choice[order],
        np.array(mdp.action_of_choice)[order],
    )
