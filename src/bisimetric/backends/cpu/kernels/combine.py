"""From transport distances between choices to distances between states, and other passes over d."""

import math

import numpy as np

from .jit import kernel, part
from .pairs import widest_range

_TILE = 32
APART, UNKNOWN = -1, -2  # notes of pairs of states: kept apart by their labels; not seen yet


@kernel
def start_rows(apart, columns_apart, largest, s0, begin, acc):
    """acc[s − s0, t] = the largest distance where s and t are apart, else 0, for t ≥ max(s + begin, 0)."""
    for s in range(s0, s0 + acc.shape[0]):
        for t in range(max(s + begin, 0), acc.shape[1]):
            acc[s - s0, t] = largest if apart[s] != columns_apart[t] else 0.0


@kernel
def raise_to(transports, block, states, rewards, s0, weights, acc):
    """acc = max(acc, c_R |Δr| + c_T W) for the pairs of one label."""
    members, a0, a1, first, corner = block
    c_R, c_T = weights
    for a in range(a0, a1):
        s, r = states[members[a]] - s0, rewards[members[a]]
        for b in range(max(a + first, corner), len(members)):
            t = states[members[b]]
            acc[s, t] = max(acc[s, t], c_R * abs(r - rewards[members[b]]) + c_T * transports[a - a0, b - corner])


@kernel
def raise_and_note(transports, block, states, rewards, s0, weights, acc, note):
    """The same as `raise_to`, and note = (group, noted): noted is the group that attains it, −1 where apart."""
    members, a0, a1, first, corner = block
    group, noted = note
    c_R, c_T = weights
    for a in range(a0, a1):
        s, r = states[members[a]] - s0, rewards[members[a]]
        for b in range(max(a + first, corner), len(members)):
            t = states[members[b]]
            value = c_R * abs(r - rewards[members[b]]) + c_T * transports[a - a0, b - corner]
            if noted[s, t] == UNKNOWN or value > acc[s, t]:
                acc[s, t] = max(acc[s, t], value)
                if noted[s, t] != APART:
                    noted[s, t] = group


@kernel
def hausdorff(transports, sides, rewards, s0, begin, weights, acc, partners):
    """acc[s − s0, t] = Hausdorff distance of the choices of s and t under c_R |Δr| + c_T W, for t ≥ s + begin.

    Where `partners` has room, partners[x, t] receives the choice of t that is nearest to choice x of s, and
    partners[y, s] that of s nearest to y.
    """
    pointers, columns, corner = sides
    c_R, c_T = weights
    top, widest = pointers[s0], widest_range(columns)
    best, at = np.empty(widest), np.empty(widest, np.int64)  # of each choice of t, over the choices of s
    for s in range(s0, s0 + acc.shape[0]):
        for t in range(max(s + begin, 0), acc.shape[1]):
            best[:] = np.inf
            worst = 0.0
            for x in range(pointers[s], pointers[s + 1]):
                low, low_at = np.inf, 0
                for y in range(columns[t], columns[t + 1]):
                    w = transports[x - top, y - corner] if x <= y else transports[y - top, x]
                    value = c_R * abs(rewards[x] - rewards[y]) + c_T * w
                    k = y - columns[t]
                    if value < low:
                        low, low_at = value, k
                    if value < best[k]:
                        best[k], at[k] = value, x - pointers[s]
                worst = max(worst, low)
                if len(partners):
                    partners[x, t] = low_at
            for k in range(columns[t + 1] - columns[t]):
                worst = max(worst, best[k])
                if len(partners):
                    partners[columns[t] + k, s] = at[k]
            acc[s - s0, t] = worst


@kernel
def wanted_of_partners(sides, s0, begin, partners, wanted):
    """wanted[x − top, y − corner] = whether x or y is the other's partner."""
    pointers, columns, corner = sides
    top = pointers[s0]
    rows = np.searchsorted(pointers, top + wanted.shape[0])
    for s in range(s0, rows):
        for t in range(max(s + begin, 0), len(columns) - 1):
            for x in range(pointers[s], pointers[s + 1]):
                _want(wanted, x, columns[t] + partners[x, t], top, corner)
            for y in range(columns[t], columns[t + 1]):
                _want(wanted, pointers[s] + partners[y, s], y, top, corner)


@part
def _want(wanted, x, y, top, corner):
    if x <= y:
        wanted[x - top, y - corner] = True
    else:
        wanted[y - top, x] = True


@kernel
def respond(transports, sides, rewards, s0, begin, weights, acc, note):
    """As `hausdorff` with given partners, note = (partners, noted): noted is the pair that decides, as x·widest + y."""
    pointers, columns, corner = sides
    partners, noted = note
    c_R, c_T = weights
    top, widest = pointers[s0], widest_range(columns)
    for s in range(s0, s0 + acc.shape[0]):
        for t in range(max(s + begin, 0), acc.shape[1]):
            n = pointers[s + 1] - pointers[s]
            worst, pair = -1.0, 0
            for k in range(n + columns[t + 1] - columns[t]):
                if k < n:
                    x = pointers[s] + k
                    y = columns[t] + partners[x, t]
                else:
                    y = columns[t] + k - n
                    x = pointers[s] + partners[y, s]
                w = transports[x - top, y - corner] if x <= y else transports[y - top, x]
                value = c_R * abs(rewards[x] - rewards[y]) + c_T * w
                if value > worst:
                    worst, pair = value, (x - pointers[s]) * widest + y - columns[t]
            acc[s - s0, t] = worst
            noted[s - s0, t] = pair


@kernel
def wanted_of_group(block, states, s0, group, noted, wanted):
    """wanted[a − a0, b − corner] = whether the pair decided its states' distance in the last sweep."""
    members, a0, a1, first, corner = block
    for a in range(a0, a1):
        s = states[members[a]] - s0
        for b in range(max(a + first, corner), len(members)):
            wanted[a - a0, b - corner] = noted[s, states[members[b]]] == group


@kernel
def wanted_of_choices(sides, s0, begin, noted, wanted):
    """The same for pairs of choices under Hausdorff matching."""
    pointers, columns, corner = sides
    top, widest = pointers[s0], widest_range(columns)
    for s in range(s0, s0 + noted.shape[0]):
        for t in range(max(s + begin, 0), noted.shape[1]):
            x, y = pointers[s] + noted[s - s0, t] // widest, columns[t] + noted[s - s0, t] % widest
            if x <= y:
                wanted[x - top, y - corner] = 1
            else:
                wanted[y - top, x] = 1


@kernel
def take_wanted(transports, block, states, rewards, s0, weights, wanted, acc):
    """acc = c_R |Δr| + c_T W for the pairs of one label that are wanted."""
    members, a0, a1, first, corner = block
    c_R, c_T = weights
    for a in range(a0, a1):
        s, r = states[members[a]] - s0, rewards[members[a]]
        for b in range(max(a + first, corner), len(members)):
            if wanted[a - a0, b - corner]:
                acc[s, states[members[b]]] = c_R * abs(r - rewards[members[b]]) + c_T * transports[a - a0, b - corner]


@kernel
def take_choices(transports, sides, rewards, s0, begin, weights, noted, acc):
    """acc = c_R |Δr| + c_T W for the pair of choices that is noted for each pair of states."""
    pointers, columns, corner = sides
    c_R, c_T = weights
    top, widest = pointers[s0], widest_range(columns)
    for s in range(s0, s0 + acc.shape[0]):
        for t in range(max(s + begin, 0), acc.shape[1]):
            x, y = pointers[s] + noted[s - s0, t] // widest, columns[t] + noted[s - s0, t] % widest
            w = transports[x - top, y - corner] if x <= y else transports[y - top, x]
            acc[s - s0, t] = c_R * abs(rewards[x] - rewards[y]) + c_T * w


@kernel
def write_rows(acc, s0, begin, mirrored, d):
    """Put acc into d[s, t], t ≥ s + begin, and d[t, s] where mirrored; returns (largest rise, largest fall)."""
    rise, fall = 0.0, 0.0
    rows, columns = acc.shape
    for t0 in range(max(s0 + begin, 0), columns, _TILE):  # tiles keep the column writes in the cache
        for s in range(s0, s0 + rows):
            for t in range(max(t0, s + begin), min(t0 + _TILE, columns)):
                change = acc[s - s0, t] - d[s, t]
                rise, fall = max(rise, change), max(fall, -change)
                d[s, t] = acc[s - s0, t]
                if mirrored:
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
def gibbs(cost, reg, mirrored, out):
    """out = exp(−cost/λ), for a symmetric cost where mirrored."""
    for s in range(cost.shape[0]):
        for t in range(s if mirrored else 0, cost.shape[1]):
            out[s, t] = np.exp(-cost[s, t] / reg)
            if mirrored:
                out[t, s] = out[s, t]


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


@kernel
def carry_over(old, new, same, layout, cold):
    """Copy what was kept of the pairs whose two supports did not change; the others are `cold`."""
    first, corner, per_pair, shared = layout
    for a in range(corner if corner > 0 else len(new.sizes)):
        source, target = old.base[a], new.base[a]
        for b in range(max(a + first, corner), len(new.sizes)):
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


@part
def kept_entries(n, m, per_pair, shared):
    """Entries kept for a pair of supports n and m; closed forms keep none, but trees of two states a side one."""
    if n == 1 or m == 1:
        return 0
    if n + m == 4:
        return 1 if shared > 0 else 0
    return shared * (n - 1) + per_pair + (shared if shared > 0 else 1) * m


@kernel
def kept_layout(sizes, layout, base):
    """base[a] = where the entries of row a begin; base[-1] = how many there are."""
    first, corner, per_pair, shared = layout
    total = 0
    for a in range(corner if corner > 0 else len(sizes)):
        base[a] = total
        for b in range(max(a + first, corner), len(sizes)):
            total += kept_entries(sizes[a], sizes[b], per_pair, shared)
    base[-1] = total


@kernel
def inner_product(x, y):
    """Σ x·y in double precision (Numba's float() would leave float32 as it is); four sums side by side."""
    by_four = len(x) - len(x) % 4
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for i in range(0, by_four, 4):
        s0 += np.float64(x[i]) * np.float64(y[i])
        s1 += np.float64(x[i + 1]) * np.float64(y[i + 1])
        s2 += np.float64(x[i + 2]) * np.float64(y[i + 2])
        s3 += np.float64(x[i + 3]) * np.float64(y[i + 3])
    for i in range(by_four, len(x)):
        s0 += np.float64(x[i]) * np.float64(y[i])
    return (s0 + s1) + (s2 + s3)


@kernel
def add_scaled(x, weight, y):
    """x += weight·y."""
    for i in range(len(x)):
        x[i] += weight * y[i]


@kernel
def largest_gap(x, y):
    """max |x − y|."""
    most = 0.0
    for i in range(len(x)):
        most = max(most, abs(np.float64(x[i]) - np.float64(y[i])))
    return most


@kernel
def shift_positive(x, by):
    """x += by where it is positive, and 0 where that is negative."""
    for i in range(len(x)):
        if x[i] > 0.0:
            x[i] = max(x[i] + by, 0.0)
