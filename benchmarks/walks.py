"""Large models for benchmarks: walks on a line, and random chains."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

import bisimetric as bm


def walk(n: int, gamma: float = 0.95) -> bm.Chain:
    """A lazy walk on a line whose drift and reward change slowly."""
    i = np.arange(n)
    up = 0.3 + 0.2 * np.sin(6.0 * np.pi * i / n)
    rows = np.concatenate([i, i, i])
    columns = np.concatenate([np.minimum(i + 1, n - 1), np.maximum(i - 1, 0), i])
    P = csr_array((np.concatenate([up, 0.6 - up, np.full(n, 0.4)]), (rows, columns)), shape=(n, n))
    return bm.Chain.from_arrays(P, 0.5 + 0.5 * np.sin(10.0 * np.pi * i / n), gamma)


def random_chain(n: int, branching: int, gamma: float, seed: int) -> bm.Chain:
    """A chain whose states have so many random successors, and random rewards."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, n, (n, branching))
    weights = rng.dirichlet(np.ones(branching), n)
    P = csr_array((weights.ravel(), (np.repeat(np.arange(n), branching), columns.ravel())), shape=(n, n))
    return bm.Chain.from_arrays(P, rng.random(n), gamma)
