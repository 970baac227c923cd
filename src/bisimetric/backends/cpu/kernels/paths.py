"""Fixed points where each row has one successor: each pair of states leads to one other, so paths can be followed.

    d(s, t) = base(s, t) + c_T d(next(s, t))

A path ends at a pair that leads nowhere (next < 0), at one that is known, or in a cycle: a geometric series.
"""

import numpy as np

from .jit import kernel

_KNOWN, _NEW, _ON_PATH = 0, 1, 2


@kernel
def one_step(rows, block, states, rewards, c_R, wanted, base, following):
    """Of each pair of states whose deciding pair of rows is wanted: its rewards' part, and where it leads to."""
    indptr, indices, _ = rows
    members, a0, a1, first, corner = block
    width = base.shape[1]
    for a in range(a0, a1):
        s, x = states[members[a]], indices[indptr[members[a]]]
        for b in range(max(a + first, corner), len(members)):
            if len(wanted) and not wanted[a - a0, b - corner]:
                continue
            t, y = states[members[b]], indices[indptr[members[b]]]
            base[s, t] = c_R * abs(rewards[members[a]] - rewards[members[b]])
            if corner == 0 and x > y:
                following[s, t] = y * width + x
            else:
                following[s, t] = x * width + y


@kernel
def follow_paths(base, following, c_T, value):
    """value = the fixed point, for all entries; those that lead nowhere (following < 0) keep their base."""
    n = len(base)
    state = np.full(n, _NEW, np.uint8)
    path = np.empty(n, following.dtype)
    for start in range(n):
        if state[start] != _NEW:
            continue
        length, at = 0, start
        while at >= 0 and state[at] == _NEW:
            state[at] = _ON_PATH
            path[length] = at
            length += 1
            at = following[at]
        if at >= 0 and state[at] == _ON_PATH:  # a cycle: d = Σ c^i base_i / (1 − c^length)
            total, weight, k = 0.0, 1.0, length
            while True:
                k -= 1
                total, weight = base[path[k]] + c_T * total, weight * c_T
                if path[k] == at:
                    break
            value[at] = total / (1.0 - weight)
            state[at] = _KNOWN
        beyond = value[at] if at >= 0 else 0.0
        for k in range(length - 1, -1, -1):
            v = path[k]
            if state[v] == _KNOWN:  # where the cycle was closed
                beyond = value[v]
                continue
            value[v] = base[v] if following[v] < 0 else base[v] + c_T * beyond
            state[v] = _KNOWN
            beyond = value[v]
