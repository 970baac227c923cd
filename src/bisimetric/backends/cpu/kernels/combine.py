"""From transport distances between choices to distances between states, and other passes over d."""

import math

import numpy as np

from .jit import kernel

_TILE = 32


@kernel
def start_rows(label_set, largest, s0, acc):
    """acc[s − s0, t] = the largest distance where s and t offer different actions, else 0."""
    for s in range(s0, s0 + acc.shape[0]):
        for t in range(s, acc.shape[1]):
            acc[s - s0, t] = largest if label_set[s] != label_set[t] else 0.0


@kernel
def raise_to(transports, block, states, rewards, s0, weights, acc):
    """acc = max(acc, c_R |Δr| + c_T W) for the pairs of one label."""
    members, a0, a1, first = block
    c_R, c_T = weights
    for a in range(a0, a1):
        s, r = states[members[a]] - s0, rewards[members[a]]
        for b in range(a + first, len(members)):
            t = states[members[b]]
            acc[s, t] = max(acc[s, t], c_R * abs(r - rewards[members[b]]) + c_T * transports[a - a0, b])


@kernel
def hausdorff(transports, choice_ptr, rewards, s0, first, weights, acc):
    """acc[s − s0, t] = Hausdorff distance of the choices of s and t under c_R |Δr| + c_T W."""
    c_R, c_T = weights
    top = choice_ptr[s0]
    best = np.empty(np.max(np.diff(choice_ptr)))  # of each choice of t, over the choices of s
    for s in range(s0, s0 + acc.shape[0]):
        for t in range(s + first, acc.shape[1]):
            best[:] = np.inf
            worst = 0.0
            for x in range(choice_ptr[s], choice_ptr[s + 1]):
                low = np.inf
                for y in range(choice_ptr[t], choice_ptr[t + 1]):
                    w = transports[x - top, y] if x <= y else transports[y - top, x]
                    value = c_R * abs(rewards[x] - rewards[y]) + c_T * w
                    low = min(low, value)
                    best[y - choice_ptr[t]] = min(best[y - choice_ptr[t]], value)
                worst = max(worst, low)
            for y in range(choice_ptr[t + 1] - choice_ptr[t]):
                worst = max(worst, best[y])
            acc[s - s0, t] = worst


@kernel
def write_rows(acc, s0, first, d):
    """Put acc into d[s, t] and d[t, s], t ≥ s + first; returns (largest rise, largest fall)."""
    rise, fall = 0.0, 0.0
    rows, n_states = acc.shape
    for t0 in range(s0, n_states, _TILE):  # tiles keep the column writes in the cache
        for s in range(s0, s0 + rows):
            for t in range(max(t0, s + first), min(t0 + _TILE, n_states)):
                change = acc[s - s0, t] - d[s, t]
                rise, fall = max(rise, change), max(fall, -change)
                d[s, t] = acc[s - s0, t]
                d[t, s] = acc[s - s0, t]
    return rise, fall


@kernel
def power(d, p, out):
    """out = (d/u)^p; returns (its largest entry, u).

    The unit u is 1 for p = 1. Else it is the power of 2 just above the largest distance, so that nothing overflows and
    only what is far below the largest one underflows; dividing by it is exact.
    """
    source, target = d.ravel(), out.ravel()
    top, unit = 0.0, 1.0
    if p == 1.0:
        for k in range(source.size):
            target[k] = source[k]
            top = max(top, float(source[k]))
        return top, unit
    for k in range(source.size):
        top = max(top, float(source[k]))
    if top > 0.0:
        unit = math.ldexp(1.0, math.frexp(top)[1])
    for k in range(source.size):
        x = float(source[k]) / unit
        target[k] = x * x if p == 2.0 else x**p
    top /= unit
    return (top * top if p == 2.0 else top**p), unit


@kernel
def gibbs(cost, reg, out):
    """out = exp(−cost/λ) for a symmetric cost."""
    for s in range(cost.shape[0]):
        for t in range(s, cost.shape[1]):
            out[s, t] = np.exp(-cost[s, t] / reg)
            out[t, s] = out[s, t]


@kernel
def independent_block(rows, block, ground, halt, out):
    """out[a − a0, b] = (Σ_ij a_i b_j C_ij)^(1/p): the expected distance under independence."""
    indptr, indices, probs = rows
    members, a0, a1, first = block
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
        for b in range(a + first, len(members)):
            value = 0.0
            for j in range(indptr[members[b]], indptr[members[b] + 1]):
                value += probs[j] * mean[indices[j]]
            out[a - a0, b] = value if inv_p == 1.0 else value**inv_p


@kernel
def carry_over(old, new, same, layout, cold):
    """Copy what was kept of the pairs whose two supports did not change; the others are `cold`."""
    first, per_pair, shared = layout
    for a in range(len(new.sizes)):
        source, target = old.base[a], new.base[a]
        for b in range(a + first, len(new.sizes)):
            old_size = kept_entries(old.sizes[a], old.sizes[b], per_pair, shared)
            new_size = kept_entries(new.sizes[a], new.sizes[b], per_pair, shared)
            if same[a] and same[b]:
                for k in range(new_size):
                    new.entries[target + k] = old.entries[source + k]
            else:
                for k in range(new_size):
                    new.entries[target + k] = cold
            source += old_size
            target += new_size


@kernel
def kept_entries(n, m, per_pair, shared):
    """Entries kept for a pair of supports n and m; closed forms keep none."""
    if n == 1 or m == 1 or n + m == 4:
        return 0
    return shared * (n - 1) + per_pair + (shared if shared > 0 else 1) * m


@kernel
def kept_layout(sizes, layout, base):
    """base[a] = where the entries of row a begin; base[-1] = how many there are."""
    first, per_pair, shared = layout
    total = 0
    for a in range(len(sizes)):
        base[a] = total
        for b in range(a + first, len(sizes)):
            total += kept_entries(sizes[a], sizes[b], per_pair, shared)
    base[len(sizes)] = total
