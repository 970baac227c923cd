"""The independent coupling of sparse rows (for dense ones see `dense`)."""

import numpy as np

from .jit import kernel


@kernel
def independent_block(rows, block, ground, halt, out):
    """out[a − a0, b − corner] = (Σ_ij a_i b_j C_ij)^(1/p): the expected distance under independence."""
    indptr, indices, probs = rows
    members, a0, a1, first, corner = block
    cost, inv_p = ground.cost, ground.inv_p
    mean = np.empty(cost.shape[1])
    for a in range(a0, a1):
        if halt[0]:
            return
        mean[:] = 0.0
        for i in range(indptr[members[a]], indptr[members[a] + 1]):
            row, weight = indices[i], probs[i]
            for t in range(cost.shape[1]):
                mean[t] += weight * cost[row, t]
        for b in range(max(a + first, corner), len(members)):
            value = 0.0
            for j in range(indptr[members[b]], indptr[members[b] + 1]):
                value += probs[j] * mean[indices[j]]
            out[a - a0, b - corner] = value if inv_p == 1.0 else value**inv_p
