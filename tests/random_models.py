"""Random small chains and MDPs, and their choices as the reference wants them."""

from __future__ import annotations

import numpy as np
from transport_blocks import distribution

import bisimetric as bm


def random_chain(seed: int, n: int, gamma: float = 0.8, kind: str = "integers", support: int = 3) -> bm.Chain:
    rng = np.random.default_rng(seed)
    P = np.array([distribution(rng, kind, n, support) for _ in range(n)])
    return bm.Chain.from_arrays(P, rng.integers(0, 3, size=n) / 2.0, gamma)


def random_mdp(seed: int, n: int, gamma: float = 0.8, *, ragged: bool = True, support: int = 3) -> bm.MDP:
    """A small MDP; where ragged, states have 1 to 3 choices with labels drawn from a, b, c."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, size=n) if ragged else np.full(n, 2)
    labels = [x for k in counts for x in sorted(rng.choice(list("abc"), k, replace=False))] if ragged else None
    P = np.array([distribution(rng, "integers", n, support) for _ in range(counts.sum())])
    R = rng.integers(0, 3, size=counts.sum()) / 2.0
    return bm.MDP.from_choices(P, R, np.concatenate([[0], np.cumsum(counts)]), gamma, labels)


def choices_of(model: bm.Chain | bm.MDP) -> list[list[tuple[str, float, np.ndarray]]]:
    """choices[s] = [(label, reward, distribution)], as the reference operator wants them."""
    P = model.rows.matrix().toarray()
    if isinstance(model, bm.Chain):
        return [[("", float(model.rewards[s]), P[s])] for s in range(model.n_states)]
    return [
        [
            (model.action_labels[model.action_of_choice[k]], float(model.rewards[k]), P[k])
            for k in range(model.choice_ptr[s], model.choice_ptr[s + 1])
        ]
        for s in range(model.n_states)
    ]
