"""From arrays as people have them to one row and one reward per choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import ArrayLike

from ..kinds import Bools, Floats, Ints, Matrices, Matrix, Sparse
from .distributions import Distributions, ModelError, floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def _sparse_ones(given: Matrices | Matrix) -> Sequence[Sparse] | None:
    """A list of sparse matrices; None where something else was given."""
    return given if isinstance(given, (list, tuple)) and len(given) and isinstance(given[0], Sparse) else None


def stacked(P: Matrices, axes: str) -> tuple[Distributions, int]:
    """(rows of all actions of all states, the actions of a state together; number of actions)."""
    if axes not in ("sas", "ass"):
        raise ModelError(f'axes must be "sas" (P[s, a, t]) or "ass" (P[a, s, t]); got {axes!r}.')
    matrices = _sparse_ones(P)
    if matrices is not None:
        return _stack_sparse(matrices, axes)
    if isinstance(P, Sparse):
        raise ModelError(
            f"P: one sparse matrix {P.shape} does not say which rows are of one state; give a list of one matrix per "
            'action with axes="ass", or MDP.from_choices with how many rows each state has.'
        )
    dense = floats(P, "P: probabilities")
    shape = dense.shape
    if dense.ndim == 3 and axes == "ass":
        dense = np.swapaxes(dense, 0, 1)
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
        wanted = "S by A by S" if axes == "sas" else "A by S by S"
        raise ModelError(f"P with axes={axes!r} must be three-dimensional, {wanted}; got {shape}.")
    return Distributions.from_matrix(dense.reshape(-1, dense.shape[2])).normalised(), dense.shape[1]


def _stack_sparse(matrices: Sequence[Sparse], axes: str) -> tuple[Distributions, int]:
    """Interleave A matrices [S, S] so that the choices of a state are consecutive."""
    from scipy.sparse import vstack

    if axes != "ass":
        raise ModelError('a sequence of sparse matrices is one matrix per action: use axes="ass".')
    n_actions, shape = len(matrices), matrices[0].shape
    if any(matrix.shape != shape for matrix in matrices) or shape[0] != shape[1] or shape[0] == 0:
        raise ModelError(f"P: all matrices must be square and alike; got {[m.shape for m in matrices]}.")
    order = (np.arange(n_actions)[None, :] * shape[0] + np.arange(shape[0])[:, None]).reshape(-1)
    rows = Distributions.from_matrix(vstack([matrix.tocsr() for matrix in matrices]).tocsr()[order])
    return rows.normalised(), n_actions


def choice_rewards(R: Matrices, rows: Distributions, n_actions: int, axes: str) -> Floats:
    """Expected reward per choice [S·A] from [S], [S, A] or per transition in the axes of P."""
    n_states = rows.n_states
    matrices = _sparse_ones(R)
    rewards = floats(R if matrices is None else np.stack([matrix.toarray() for matrix in matrices]), "R: rewards")
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


def ragged_rewards(R: Matrix, rows: Distributions, counts: Ints) -> Floats:
    """Rewards per choice [N] from [N], per state [S], or per transition [N, S]."""
    rewards = floats(R.toarray() if isinstance(R, Sparse) else R, "R: rewards")
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


def _expected(per_transition: Floats, rows: Distributions) -> Floats:
    """Σ_t P(t) R(t) for each row, with R read only where P is positive."""
    owner = np.repeat(np.arange(len(rows)), rows.sizes)
    total = np.zeros(len(rows))
    np.add.at(total, owner, rows.probs * per_transition[owner, rows.indices])
    return total


def feasible_choices(
    rows: Distributions, rewards: Floats, mask: ArrayLike | None, n_actions: int, state_names: Sequence[str] | None
) -> Bools:
    """Which of all actions of all states there are [S·A].

    Those are left out whose mask is false, whose reward is −inf, or whose row is 0 everywhere. Raises where a state has
    none left.
    """
    there: Bools = (rewards != -np.inf) & (rows.sizes > 0)
    if mask is not None:
        given = np.asarray(mask)
        if given.dtype != np.bool_ or given.shape != (rows.n_states, n_actions):
            raise ModelError(
                f"mask must be booleans [S, A] = [{rows.n_states}, {n_actions}], true for actions that there are; got "
                f"{given.dtype} {list(given.shape)}."
            )
        there &= given.reshape(-1)
    none = np.flatnonzero(~there.reshape(-1, n_actions).any(axis=1))
    if none.size:
        name = state_names[none[0]] if state_names is not None and len(state_names) > none[0] else none[0]
        raise ModelError(
            f"every state needs at least one action; state {name} has none (an action is left out by the mask, by a "
            "reward of −inf, or by a row of zeros). Give it a self-loop with reward 0 if the process ends there."
        )
    return there


@overload
def normalised(P: Sparse, tol: float = 1e-3) -> csr_array: ...
@overload
def normalised(P: Sequence[Sparse], tol: float = 1e-3) -> list[csr_array]: ...
@overload
def normalised(P: ArrayLike, tol: float = 1e-3) -> Floats: ...
def normalised(P: Matrix | Matrices, tol: float = 1e-3) -> csr_array | list[csr_array] | Floats:
    """P with rows rescaled to sum to 1 (dense: last axis); refuses sums further off than tol."""
    matrices = _sparse_ones(P)
    if matrices is not None:
        return [normalised(matrix, tol) for matrix in matrices]
    if isinstance(P, Sparse):
        from scipy.sparse import diags_array

        sums = np.asarray(P.sum(axis=1)).reshape(-1)
        _check_sums(sums, tol)
        scaled: csr_array = diags_array(1.0 / sums) @ P.tocsr()
        return scaled
    dense = floats(P, "P: probabilities")
    sums = np.asarray(dense.sum(axis=-1))
    _check_sums(sums, tol)
    return np.asarray(dense / sums[..., None])


def _check_sums(sums: Floats, tol: float) -> None:
    if not np.all(np.abs(sums - 1.0) <= tol):
        worst = np.unravel_index(np.argmax(np.abs(sums - 1.0)), sums.shape)
        raise ModelError(
            f"row {tuple(int(k) for k in worst)} of P sums to {sums[worst]:.6g}, which is more than rounding "
            f"(tolerance {tol:g})."
        )
