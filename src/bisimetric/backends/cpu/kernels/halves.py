"""Old and new distances in one array: the old ones below the diagonal, the new ones above it."""

import numpy as np

from .jit import kernel

_TILE = 32


@kernel
def gather_rows(d, diagonal, states, p, unit, out):
    """out[k, t] = (d(x, t)/u)^p for x = states[k], which increase, from what is below the diagonal of d.

    Beyond the diagonal that is a column, which is read a row of d at a time for all x.
    """
    n, count = d.shape[0], len(states)
    for k in range(count):
        x = states[k]
        for t in range(x):
            out[k, t] = d[x, t]
        out[k, x] = diagonal[x]
    for t in range(n):
        for k in range(count):
            if states[k] >= t:
                break
            out[k, t] = d[t, states[k]]
    if p == 1.0:
        return
    for k in range(count):
        for t in range(n):  # as in `power`
            x = np.float64(out[k, t]) / unit
            out[k, t] = x * x if p == 2.0 else x**p


@kernel
def write_above(acc, s0, begin, d):
    """Put acc into d[s, t], t ≥ s + begin ≥ s; returns (largest rise, largest fall) from what is below the diagonal."""
    rise, fall = 0.0, 0.0
    rows, columns = acc.shape
    for t0 in range(s0 + begin, columns, _TILE):
        for s in range(s0, s0 + rows):
            for t in range(max(t0, s + begin), min(t0 + _TILE, columns)):
                change = acc[s - s0, t] - d[t, s]
                rise, fall = max(rise, change), max(fall, -change)
                d[s, t] = acc[s - s0, t]
    return rise, fall


@kernel
def mirror(s0, s1, d):
    """d[t, s] = d[s, t] for s0 ≤ s < s1 and t > s."""
    for top in range(s0, s1, _TILE):
        for t0 in range(top, d.shape[0], _TILE):
            for t in range(t0, min(t0 + _TILE, d.shape[0])):
                for s in range(top, min(top + _TILE, s1, t)):
                    d[t, s] = d[s, t]
