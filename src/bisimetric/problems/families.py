"""The three families of MDPs of Kemertas and Jepson (2022), with their true classes.

States come in m classes B_0 … B_{m−1} of equal size. A transition goes to a class; which state of the class
is drawn from a Dirichlet distribution of its own for each state and action. All states of a class are
bisimilar, so each family reduces to an MDP with m states.
"""

from __future__ import annotations

import numpy as np

from ..kinds import Floats
from ..model import MDP


def _check(n_states: int, n_classes: int, concentration: float, mixing: float) -> int:
    if n_classes < 1 or n_states < n_classes or n_states % n_classes:
        raise ValueError(f"n_states must be a positive multiple of n_classes; got {n_states} and {n_classes}.")
    if not concentration > 0.0:
        raise ValueError(f"concentration must be positive; got {concentration}.")
    if not 0.0 <= mixing <= 1.0:
        raise ValueError(f"mixing must be in [0, 1]; got {mixing}.")
    return n_states // n_classes


def _dirichlet(rng: np.random.Generator, concentration: float, size: int) -> Floats:
    """A point of the simplex; tiny concentrations may underflow to 0/0, then a corner is drawn."""
    point = rng.dirichlet(np.full(size, concentration))
    if not np.isfinite(point).all() or not point.sum() > 0.0:
        point = np.zeros(size)
        point[rng.integers(size)] = 1.0
    return point


def _build(
    class_P: Floats,  # [m, A, m]
    class_R: Floats,  # [m, A]
    per_class: int,
    gamma: float,
    seed: int,
    concentration: float,
    mixing: float,
) -> MDP:
    """Spread class-to-class probabilities over the states of the classes."""
    rng = np.random.default_rng(seed)
    m, n_actions, _ = class_P.shape
    n_states = m * per_class
    P = np.zeros((n_states, n_actions, n_states))
    for s in range(n_states):
        for a in range(n_actions):
            for k in np.flatnonzero(class_P[s // per_class, a]):
                spread = _dirichlet(rng, concentration, per_class)
                P[s, a, k * per_class : (k + 1) * per_class] = class_P[s // per_class, a, k] * spread
    if mixing > 0.0:
        P = (1.0 - mixing) * P + mixing * rng.dirichlet(np.ones(n_states), size=(n_states, n_actions))
    P /= P.sum(axis=2, keepdims=True)
    classes = np.arange(n_states) // per_class
    return MDP.from_arrays(P, class_R[classes], gamma, axes="sas", classes=classes)


def chain(
    n_states: int = 200,
    n_classes: int = 20,
    gamma: float = 0.9,
    seed: int = 0,
    concentration: float = 1.0,
    mixing: float = 0.0,
) -> MDP:
    """The paper's first MDP: action 0 advances a class, action 1 goes back to the first.

    Only the advancing action in the last class is rewarded (by 1), and it stays there.

    Args:
        n_states, n_classes: sizes; each class has n_states / n_classes states.
        gamma, seed: discount; seed of the transition probabilities.
        concentration: of the Dirichlet distribution inside a class; 1 is uniform on the simplex.
        mixing: weight of random rows (uniform on the simplex of all states) mixed into P.
    """
    per_class = _check(n_states, n_classes, concentration, mixing)
    P, R = np.zeros((n_classes, 2, n_classes)), np.zeros((n_classes, 2))
    for i in range(n_classes):
        P[i, 0, min(i + 1, n_classes - 1)] = 1.0
        P[i, 1, 0] = 1.0
    R[-1, 0] = 1.0
    return _build(P, R, per_class, gamma, seed, concentration, mixing)


def staircase(
    n_states: int = 200,
    n_classes: int = 20,
    gamma: float = 0.9,
    seed: int = 0,
    concentration: float = 1.0,
    mixing: float = 0.0,
    advance: str = "first",
) -> MDP:
    """The paper's second MDP: dense rewards, and the other action stays in the class.

    The advancing action is rewarded by r_i in class i: r_0 = e, r_{i+1} = γ r_i + e, with e such that the last
    is 1. The last class is never left.

    Args: as for `chain`, and
        advance: "first" for action 0 everywhere, "alternating" for action i mod 2 in class i (as in the
            authors' runs).
    """
    if advance not in ("first", "alternating"):
        raise ValueError(f'advance must be "first" or "alternating"; got {advance!r}.')
    per_class = _check(n_states, n_classes, concentration, mixing)
    P, R = np.zeros((n_classes, 2, n_classes)), np.zeros((n_classes, 2))
    e = (1.0 - gamma) / (1.0 - gamma**n_classes)
    reward = e
    for i in range(n_classes):
        forward = 0 if advance == "first" else i % 2
        P[i, forward, min(i + 1, n_classes - 1)] = 1.0
        P[i, 1 - forward, i] = 1.0
        R[i, forward] = reward
        reward = gamma * reward + e
    return _build(P, R, per_class, gamma, seed, concentration, mixing)


def detours(
    n_states: int = 200,
    n_classes: int = 20,
    gamma: float = 0.9,
    seed: int = 0,
    concentration: float = 1.0,
    mixing: float = 0.0,
    n_actions: int = 10,
) -> MDP:
    """The paper's third family: one good action per class, which sometimes leads elsewhere.

    In class i action i mod A advances with probability 1 − p_i, p_i ~ U(0, 1/4), and else goes to one other
    class, drawn once per class. All other actions lead back to the first class. The good action in the last
    class is rewarded by 1.

    Args: as for `chain`, and n_actions.
    """
    per_class = _check(n_states, n_classes, concentration, mixing)
    if n_classes < 3 or n_actions < 1:
        raise ValueError(f"needs at least 3 classes and 1 action; got {n_classes} and {n_actions}.")
    rng = np.random.default_rng([seed, 3])  # apart from the stream that spreads the probabilities
    P, R = np.zeros((n_classes, n_actions, n_classes)), np.zeros((n_classes, n_actions))
    for i in range(n_classes):
        good, forward = i % n_actions, min(i + 1, n_classes - 1)
        P[i, :, 0] = 1.0
        P[i, good] = 0.0
        slip = rng.uniform(0.0, 0.25)
        P[i, good, forward] = 1.0 - slip
        P[i, good, rng.choice([k for k in range(n_classes) if k not in (i, forward)])] += slip
    R[-1, (n_classes - 1) % n_actions] = 1.0
    return _build(P, R, per_class, gamma, seed, concentration, mixing)
