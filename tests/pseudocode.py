"""The paper's pseudocode as it stands, to compare with."""

from __future__ import annotations

import numpy as np


def algorithm_1(D: np.ndarray, epsilon: float) -> list[list[int]]:
    """The paper's pseudocode, line by line; argmax takes the first of equals."""
    num_neighbours = np.less_equal(D, epsilon).sum(axis=1).astype(float)
    partitions: list[list[int]] = []
    assigned = np.zeros(len(D))
    while assigned.sum() < len(D):
        m = int(np.argmax(num_neighbours))
        assigned[m] = 1
        members = np.argwhere((D[m] <= epsilon) & (assigned == 0)).reshape(-1).tolist()
        partition = [m, *members]
        assigned[members] = 1
        num_neighbours[partition] = -np.inf
        partitions = [*partitions, partition]
    return partitions
