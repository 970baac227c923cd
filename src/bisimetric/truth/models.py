"""The finite models of the truth table, by name, with the certified metric of their uniform policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from .. import problems
from ..formats import from_gymnasium
from ..kinds import Floats
from ..metric.solve import solve_metric
from ..model import MDP, Chain
from ..transport import Exact

GAMMA = 0.9
TOL = 1e-6  # of the certified metric, as a part of the largest distance


@dataclass(frozen=True)
class Known:
    """A model, the uniform policy, and the metric of that policy within a rigorous error."""

    mdp: MDP
    policy: Floats

    @cached_property
    def chain(self) -> Chain:
        return self.mdp.under(self.policy)

    @cached_property
    def distance(self) -> Floats:
        """d_π [S, S]."""
        return true_metric(self.chain)

    @property
    def diameter(self) -> float:
        return float(self.distance.max())


def true_metric(chain: Chain) -> Floats:
    """d_π of a chain [S, S], c_R = 1 and c_T = γ, within TOL of the largest distance that there can be."""
    largest = max(chain.reward_span, 1e-300) / (1.0 - chain.gamma)
    solved = solve_metric(chain, Exact(), tol=TOL * largest)
    return np.asarray(solved.distance, np.float64)


def known(name: str, seed: int) -> Known:
    """A model of the table with its uniform policy; the seed makes the model where it is a random one."""
    return _known(name, seed if name in RANDOM else 0)


@lru_cache(16)  # the seeds of a model: runs that follow one another share them
def _known(name: str, seed: int) -> Known:
    """A model with its uniform policy.

    Rewards are scaled so that the policy's mean rewards span 1: errors of different models can then be compared, and so
    can ceilings of heads.
    """
    mdp = _MAKERS[name](seed)
    policy = mdp.uniform_policy()
    span = float(np.ptp(mdp.under(policy).rewards))
    return Known(mdp.with_rewards(mdp.rewards / span), policy)


def product_with_noise(mdp: MDP, values: int, seed: int) -> MDP:
    """A model beside a random chain that it does not notice: states (s, j), numbered s·values + j.

    Rewards and moves are those of s, so (s, j) and (s, j') are bisimilar for all j and j'.
    """
    rng = np.random.default_rng([seed, values])
    noise = rng.dirichlet(np.ones(values), size=values)
    n, n_actions = mdp.n_states, mdp.n_choices // mdp.n_states
    P = mdp.rows.matrix().toarray().reshape(n, n_actions, n)
    joint = np.einsum("sat,ij->siatj", P, noise).reshape(n * values, n_actions, n * values)
    joint /= joint.sum(axis=2, keepdims=True)
    R = np.repeat(mdp.rewards.reshape(n, n_actions), values, axis=0)
    classes = np.repeat(np.arange(n), values)
    return MDP.from_arrays(joint, R, mdp.gamma, axes="sas", classes=classes)


def _taxi(seed: int) -> MDP:
    """Gymnasium's Taxi, all four destinations: 500 states, and one where the ride has ended."""
    del seed
    import gymnasium

    return from_gymnasium("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3", gamma=GAMMA)


def _lake(seed: int) -> MDP:
    del seed
    return from_gymnasium("FrozenLake-v1", gamma=GAMMA)


def _room(seed: int, copies: int = 1) -> MDP:
    return problems.gridworld(width=3, height=3, gamma=GAMMA, seed=seed, copies=copies)


RANDOM = ("chain", "staircase", "detours", "garnet", "copies", "distractors")
_MAKERS: dict[str, Callable[[int], MDP]] = {
    "chain": lambda seed: problems.chain(n_states=30, n_classes=6, seed=seed),
    "staircase": lambda seed: problems.staircase(n_states=30, n_classes=6, seed=seed),
    "detours": lambda seed: problems.detours(n_states=30, n_classes=6, seed=seed),
    "garnet": lambda seed: problems.garnet(n_states=30, branching=4, gamma=GAMMA, seed=seed),
    "copies": lambda seed: _room(seed, copies=3),
    "distractors": lambda seed: product_with_noise(_room(seed), 3, seed),
    "lake": _lake,
    "taxi": _taxi,
}
