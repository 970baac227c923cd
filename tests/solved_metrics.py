"""A chain whose metrics are solved for, and how far a solution is from the truth."""

from __future__ import annotations

import numpy as np

import bisimetric as bm


def garnet_chain(n=14, branching=4, seed=0, gamma=0.8):
    mdp = bm.problems.garnet(n_states=n, branching=branching, seed=seed, gamma=gamma)
    return mdp.under(mdp.uniform_policy())


def miss(solution, truth):
    return float(np.abs(solution.distance.astype(np.float64) - truth.distance).max())
