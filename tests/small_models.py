"""Random small MDPs as plain arrays, with values by exhaustion: what bounds are checked against."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

import bisimetric as bm


@dataclass
class Small:
    """P [S, A, S], R [S, A], γ, and the generator that made them, for more draws."""

    P: np.ndarray
    R: np.ndarray
    gamma: float
    rng: np.random.Generator

    @property
    def scale(self) -> float:
        return float(self.R.max() - self.R.min())

    def mdp(self) -> bm.MDP:
        return bm.MDP.from_arrays(self.P, self.R, self.gamma, axes="sas")

    def under(self, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(P_π, R_π)."""
        return np.einsum("sa,sat->st", policy, self.P), (policy * self.R).sum(axis=1)

    def value(self, policy: np.ndarray) -> np.ndarray:
        P, R = self.under(policy)
        return np.linalg.solve(np.eye(len(R)) - self.gamma * P, R)

    def Q(self, V: np.ndarray) -> np.ndarray:
        return self.R + self.gamma * self.P @ V

    def best_value(self) -> np.ndarray:
        """V*, the largest value over all deterministic policies."""
        S, A = self.R.shape
        choices = np.array(list(itertools.product(range(A), repeat=S)))
        P, R = self.P[np.arange(S), choices], self.R[np.arange(S), choices]
        return np.linalg.solve(np.eye(S) - self.gamma * P, R[..., None])[..., 0].max(axis=0)

    def policy(self) -> np.ndarray:
        """A random policy, sometimes a deterministic one."""
        S, A = self.R.shape
        if self.rng.random() < 0.3:
            return np.eye(A)[self.rng.integers(A, size=S)]
        return self.rng.dirichlet(np.full(A, 0.5), size=S)

    def noisy_greedy(self, V: np.ndarray) -> tuple[np.ndarray, float]:
        """(π_g, δ = ‖T_g V − T V‖∞)."""
        Q = self.Q(V)
        noise = self.rng.choice([0.0, 0.1, 1.0]) * self.rng.random(Q.shape)
        policy = np.eye(Q.shape[1])[Q.argmax(axis=1)] + noise
        policy /= policy.sum(axis=1, keepdims=True)
        return policy, float(np.max(Q.max(axis=1) - (policy * Q).sum(axis=1)))

    def labels(self) -> np.ndarray:
        """Random classes of the states."""
        S = len(self.R)
        return self.rng.integers(0, self.rng.integers(1, S + 1), size=S)


def small(seed: int, *, largest_gamma: float = 0.95, rewards: tuple[float, float] = (0.0, 1.0)) -> Small:
    """2 to 5 states, 1 to 3 actions; sparse or dense rows, some states alike; the rewards span their range."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    P = rng.dirichlet(np.full(S, rng.choice([0.2, 1.0, 5.0])), size=(S, A))
    P[rng.random((S, A)) < 0.3] = np.eye(S)[rng.integers(S)]
    P = np.where(P < 1e-6, 0.0, P)
    P /= P.sum(axis=2, keepdims=True)
    R = rng.random((S, A)) if rng.random() < 0.5 else rng.integers(0, 3, size=(S, A)) / 2.0
    if rng.random() < 0.3:  # two states that are nearly alike
        P[1], R[1] = P[0], np.clip(R[0] + rng.choice([0.0, 0.01]), 0.0, 1.0)
    R[rng.integers(S), rng.integers(A)] = 1.0
    R = rewards[0] + (rewards[1] - rewards[0]) * R
    return Small(P, R, float(rng.choice([0.0, 0.3, 0.6, 0.8, largest_gamma])), rng)


def aggregated(P: np.ndarray, R: np.ndarray, gamma: float, labels: np.ndarray, xi: np.ndarray) -> np.ndarray:
    """The value of a chain on classes, averaged with weights ξ and lifted to all states."""
    Phi = np.eye(labels.max() + 1)[labels]
    share = (xi[:, None] * Phi / (xi @ Phi)).T
    V = np.linalg.solve(np.eye(len(share)) - gamma * share @ P @ Phi, share @ R)
    return V[labels]


def aggregated_best(model: Small, labels: np.ndarray, xi: np.ndarray) -> np.ndarray:
    """V* of the aggregated MDP, lifted to all states."""
    Phi = np.eye(labels.max() + 1)[labels]
    share = (xi[:, None] * Phi / (xi @ Phi)).T
    P = np.einsum("ks,sat,tl->kal", share, model.P, Phi)
    return Small(P, share @ model.R, model.gamma, model.rng).best_value()[labels]
