"""Pairs whose rows have one successor each: such a pair leads to one other, so paths can be followed.

    d(s, t) = base(s, t) + c_T d(next(s, t))

A path ends at a pair whose distance is given (next < 0), at one that is known, or in a cycle: a geometric series.
"""

import numpy as np

from .jit import kernel

_KNOWN, _NEW, _ON_PATH = 0, 1, 2


@kernel
def one_step(rows, block, states, rewards, c_R, wanted, base, following):
    """Of each pair of states whose deciding pair of rows is wanted: its rewards' part, and where it leads to.

    Pairs of rows with more successors are left as they are.
    """
    indptr, indices, _ = rows
    members, a0, a1, first, corner = block
    width = base.shape[1]
    for a in range(a0, a1):
        if indptr[members[a] + 1] - indptr[members[a]] > 1:
            continue
        s, x = states[members[a]], indices[indptr[members[a]]]
        for b in range(max(a + first, corner), len(members)):
            if indptr[members[b] + 1] - indptr[members[b]] > 1 or (len(wanted) and not wanted[a - a0, b - corner]):
                continue
            t, y = states[members[b]], indices[indptr[members[b]]]
            base[s, t] = c_R * abs(rewards[members[a]] - rewards[members[b]])
            if corner == 0 and x > y:
                following[s, t] = y * width + x
            else:
                following[s, t] = x * width + y


@kernel
def order_paths(base, following, c_T, order):
    """List the pairs that lead to another, each after the one that it leads to; returns how many there are.

    Pairs on a cycle get their distance as base, and lead nowhere any more.
    """
    n, listed = len(base), 0
    state = np.full(n, _NEW, np.uint8)
    path = np.empty(n, following.dtype)
    for start in range(n):
        length, at = 0, start
        while at >= 0 and state[at] == _NEW and following[at] >= 0:
            state[at] = _ON_PATH
            path[length] = at
            length += 1
            at = following[at]
        if length == 0:
            continue
        if state[at] == _ON_PATH:  # a cycle: d = Σ c^i base_i / (1 − c^length)
            total, weight, k = 0.0, 1.0, length
            while True:
                k -= 1
                total, weight = base[path[k]] + c_T * total, weight * c_T
                if path[k] == at:
                    break
            beyond = total / (1.0 - weight)
            for i in range(length - 1, k - 1, -1):  # path[k] is where the cycle was closed
                v = path[i]
                beyond = base[v] + c_T * beyond
                base[v], following[v], state[v] = beyond, -1, _KNOWN
                order[listed] = v
                listed += 1
            length = k
        for i in range(length - 1, -1, -1):
            state[path[i]] = _KNOWN
            order[listed] = path[i]
            listed += 1
    return listed


@kernel
def walk(order, following, base, c_T, symmetric, d):
    """d = base + c_T d(next) for the pairs of an order, in place."""
    flat, width = d.reshape(-1), d.shape[1]
    for k in range(len(order)):
        at = order[k]
        value = base[k] + c_T * flat[following[k]] if following[k] >= 0 else base[k]
        flat[at] = value
        if symmetric:
            flat[at % width * width + at // width] = value
