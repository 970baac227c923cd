"""The two ends of a full sweep: ground costs from d, and rows of F(d) from transports between choices."""

import math

import numpy as np

from .jit import kernel
from .pairs import widest_range

_TILE = 32


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
