"""Values: of a policy, of a policy on aggregated states, and the best ones, each by a linear solve or by iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .aggregation import Partition, class_shares
from .kernels.select import engine, single_thread
from .model import MDP, Chain

Floats = NDArray[np.float64]

_DENSE_SOLVE = 500  # unknowns up to which values are found by a dense solve


def _fixed_point(backup: Callable[[Floats], Floats], start: Floats, gamma: float, scale: float) -> tuple[Floats, float]:
    """(V with V = backup(V), a bound on its error) for a γ-contraction; `scale` is the size of the rewards."""
    V, limit = start, 1e-11 * max(scale, 1e-300)
    while True:
        new = backup(V)
        change, V = float(np.abs(new - V).max()), new
        if change <= limit:
            return V, gamma * change / (1.0 - gamma)


def policy_values(chain: Chain, start: Floats) -> tuple[Floats, float]:
    """(V^π, a bound on its error): a dense solve for few states, iteration from `start` for many."""
    P, gamma, rewards = chain.rows.matrix(), chain.gamma, chain.rewards

    def backup(V: Floats) -> Floats:
        return np.asarray(rewards + gamma * (P @ V))

    if chain.n_states > _DENSE_SOLVE:
        return _fixed_point(backup, start, gamma, float(np.abs(rewards).max()))
    V = _solved(chain, np.arange(chain.n_states), np.ones(chain.n_states))
    return V, float(np.abs(backup(V) - V).max()) / (1.0 - gamma)


def abstract_values(chain: Chain, partition: Partition, start: Floats, weights: ArrayLike | None = None) -> Floats:
    """Ṽ^π lifted to all states [S]: rewards and transitions averaged over classes, and the values of that chain.

    A dense solve for few classes, iteration from `start` [S] for many.
    """
    labels, shares = partition.labels, class_shares(partition, weights)
    if partition.n_classes <= _DENSE_SOLVE:
        return _solved(chain, labels, shares)[labels]
    P, gamma, rewards = chain.rows.matrix(), chain.gamma, chain.rewards

    def backup(V: Floats) -> Floats:
        averages = np.bincount(labels, weights=shares * (rewards + gamma * (P @ V)))
        return np.asarray(averages[labels], np.float64)

    return _fixed_point(backup, start, gamma, float(np.abs(rewards).max()))[0]


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
