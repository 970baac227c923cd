"""What the kept plans of exact transport cost now, optimal or not any more."""

import numpy as np

from .jit import kernel, part
from .pairs import corners, product_cost, two_by_two_along, widest_support
from .simplex import CROSSED
from .small_supports import kept_row, list_row, small_scratch


@part
def _kept_cost(rows, lo, n, to, m, cost, tree, flow):
    """Cost of the plan of a kept tree: flows from the leaves up, as in `set_flows`."""
    _, indices, probs = rows
    for i in range(n):
        flow[i] = probs[lo + i]
    for j in range(m):
        flow[n + j] = probs[to + j]
    value = 0.0
    for k in range(n + m - 2, -1, -1):
        v, above = np.int32(tree[2 * k]), np.int32(tree[2 * k + 1])
        through = flow[v]
        flow[above] -= through
        i, j = (v, above - n) if v < n else (above, v - n)
        value += max(through, 0.0) * cost[indices[lo + i], indices[to + j]]
    return value


@part
def _only_wanted(pending, count, wanted, corner):
    """Take the pairs off a row's list that are not wanted."""
    left = 0
    for k in range(count):
        b = pending[0, k]
        pending[0, left], pending[1, left] = b, pending[1, k]
        left += wanted[b - corner]
    return left


@kernel
def kept_block(rows, block, ground, memory, wanted, halt, out):
    """out[a − a0, b − corner] = ⟨ω, C⟩^(1/p) for the plan ω that is kept of each pair, whatever it costs now.

    Only for pairs that are `wanted`, where that has room. A pair of which nothing is kept has the product plan.
    """
    indptr, indices, probs = rows
    members, a0, a1, _, corner = block
    cost, inv_p = ground.cost, ground.inv_p
    kept = memory.entries
    widest = widest_support(indptr, members, 0)
    flow, small, pending = np.empty(2 * widest), small_scratch(cost, widest), np.empty((2, len(members)), np.int64)
    for a in range(a0, a1):
        if halt[0]:
            return
        lo = indptr[members[a]]
        n = indptr[members[a] + 1] - lo
        count = list_row(rows, block, a, memory, pending)
        if len(wanted):
            count = _only_wanted(pending, count, wanted[a - a0], corner)
        count = kept_row(rows, block, a, ground, memory, small, (pending, count), out)
        for k in range(count):
            b, own = pending[0, k], pending[1, k]
            to = indptr[members[b]]
            m = indptr[members[b] + 1] - to
            if n == 1 or m == 1 or kept[own] == 0:
                value = product_cost(probs, indices, lo, n, to, m, cost)
            elif n + m == 4:
                costs = corners(cost, indices, lo, to)
                mass = (probs[lo], probs[lo + 1])
                value = two_by_two_along(mass, (probs[to], probs[to + 1]), costs, kept[own] == CROSSED)
            else:
                value = _kept_cost(rows, lo, n, to, m, cost, kept[own : own + 2 * (n + m - 1)], flow)
            out[a - a0, b - corner] = value if inv_p == 1.0 else value**inv_p
