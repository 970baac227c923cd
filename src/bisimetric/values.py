"""Values: of a policy, of a policy on aggregated states, and the best ones, each by a linear solve or by iteration."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .aggregation import Partition, class_shares
from .kernels.select import Engine, engine, single_thread
from .model import MDP, Chain

Floats = NDArray[np.float64]

_DENSE_SOLVE = 500  # unknowns up to which values are found by a dense solve


def solved_on_host(chain: Chain) -> bool:
    """Whether the values of the chain are found by a dense solve on the host."""
    return chain.n_states <= _DENSE_SOLVE


def policy_values(chain: Chain, start: Floats, on: Engine | None = None) -> tuple[Floats, float]:
    """(V^π, a bound on its error): a dense solve for few states, iteration from `start` on an engine for many."""
    n = chain.n_states
    if not solved_on_host(chain):
        return _iterated(chain, np.arange(n), np.ones(n), start, on)
    V = _solved(chain, np.arange(n), np.ones(n))
    backup = chain.rewards + chain.gamma * (chain.rows.matrix() @ V)
    return V, (float(np.abs(backup - V).max()) + _rounding(chain, V)) / (1.0 - chain.gamma)


def abstract_values(
    chain: Chain, partition: Partition, start: Floats, weights: ArrayLike | None = None, on: Engine | None = None
) -> Floats:
    """Ṽ^π lifted to all states [S]: rewards and transitions averaged over classes, and the values of that chain.

    A dense solve for few classes, iteration from `start` [S] on an engine for many.
    """
    labels, shares = partition.labels, class_shares(partition, weights)
    if partition.n_classes <= _DENSE_SOLVE:
        return _solved(chain, labels, shares)[labels]
    return _iterated(chain, labels, shares, start[partition.medoids], on)[0][labels]


def _iterated(
    chain: Chain, labels: NDArray[np.int64], shares: Floats, start: Floats, on: Engine | None
) -> tuple[Floats, float]:
    """(values of the chain averaged over classes [K], a bound on their error where classes are states), iterated."""
    rows, gamma = chain.rows, chain.gamma
    scale = max(float(np.abs(chain.rewards).max()), (1.0 - gamma) * float(np.abs(start).max()), 1e-300)
    limit = max(1e-11, 1e-15 / (1.0 - gamma)) * scale  # rounding may keep changes above much less than the second
    V, change = (on or engine("cpu", "float64")).kernels.averaged_values(
        rows.indptr, rows.indices, rows.probs, chain.rewards, labels, shares, gamma, start, limit
    )
    return V, (gamma * change + _rounding(chain, V)) / (1.0 - gamma)


def _rounding(chain: Chain, V: Floats) -> float:
    """What rounding can add to an entry of a backup of V."""
    size = max(float(np.abs(V).max()), float(np.abs(chain.rewards).max()))
    return (int(chain.rows.sizes.max()) + 4) * float(np.finfo(np.float64).eps) * size


def _solved(chain: Chain, labels: NDArray[np.int64], shares: Floats) -> Floats:
    """Values of the chain averaged over classes [K], by a dense solve."""
    rows, n = chain.rows, int(labels.max()) + 1
    A, R = np.empty((n, n)), np.empty(n)
    engine("cpu", "float64").kernels.averaged_system(
        rows.indptr, rows.indices, rows.probs, chain.rewards, labels, shares, chain.gamma, A, R
    )
    with single_thread():
        return np.asarray(np.linalg.solve(A, R), np.float64)


def choice_values(mdp: MDP, V: Floats) -> Floats:
    """Q [N]: the value of each choice where V is what follows."""
    return np.asarray(mdp.rewards + mdp.gamma * (mdp.rows.matrix() @ V))


def optimal_backup(mdp: MDP, V: Floats) -> Floats:
    """T V [S]."""
    return np.asarray(np.maximum.reduceat(choice_values(mdp, V), mdp.choice_ptr[:-1]))


def first_choices(mdp: MDP, good: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first good choice of each state [S]; each state must have one."""
    choices = np.flatnonzero(good)
    return np.asarray(choices[np.flatnonzero(np.diff(mdp.state_of_choice[choices], prepend=-1))])


def optimal_values(mdp: MDP) -> tuple[Floats, float]:
    """(V*, a bound on its error) by policy iteration: greedy policies until none is better."""
    V = np.zeros(mdp.n_states)
    policy = np.zeros(mdp.n_choices)
    scale = max(float(np.abs(mdp.rewards).max()) / (1.0 - mdp.gamma), 1e-300)
    while True:
        Q = choice_values(mdp, V)
        TV = np.maximum.reduceat(Q, mdp.choice_ptr[:-1])
        rise = float(np.max(TV - V))
        new = np.zeros(mdp.n_choices)
        new[first_choices(mdp, TV[mdp.state_of_choice] <= Q)] = 1.0
        if np.array_equal(new, policy) or (policy.any() and rise <= 1e-13 * scale):
            return V, max(rise, 0.0) / (1.0 - mdp.gamma)
        policy = new
        V, _ = policy_values(mdp.under(policy), TV)
