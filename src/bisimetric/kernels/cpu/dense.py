"""Blocks of pairs by matrix products, for rows that reach most states.

Tiles have a fixed number of rows, padded where needed, so that a pair's result does not depend on how
pairs were divided into blocks. BLAS must be held to one thread by the caller (select.single_thread): the
threads are above.
"""

import numpy as np
from numba import njit

from .jit import OPTIONS, REASSOCIATE, kernel

_TILE = 192


def dense_rows(family, dtype):
    """The rows of a family as a dense matrix [N, S]."""
    rows = np.zeros((len(family.indptr) - 1, family.n_states), dtype)
    owner = np.repeat(np.arange(len(rows)), family.sizes)
    rows[owner, family.indices] = family.probs
    return rows


def dense_independent_block(rows, members, a0, a1, cost, inv_p, out):
    """out[a − a0, b] = (r_aᵀ C r_b)^(1/p) for a0 ≤ a < a1 and all b."""
    others = rows[members].T
    tile = np.zeros((_TILE, rows.shape[1]), rows.dtype)
    for start in range(a0, a1, _TILE):
        count = min(_TILE, a1 - start)
        tile[:count] = rows[members[start : start + count]]
        values = np.matmul(np.matmul(tile, cost), others)[:count]
        out[start - a0 : start - a0 + count] = np.maximum(values, 0.0) ** inv_p


@kernel
def _rows_exact(pairs, rows, members, x):
    """x = a / (K y) in place, where x holds K y."""
    for t in range(x.shape[0]):
        if pairs[t, 0] >= 0:
            row = rows[members[pairs[t, 0]]]
            for i in range(x.shape[1]):
                x[t, i] = row[i] / x[t, i]


@njit(**OPTIONS, fastmath=REASSOCIATE)
def _column_errors(pairs, rows, members, q, y, errors):
    """L1 errors of the column sums y∘q, q = K x."""
    for t in range(len(errors)):
        error = 0.0
        if pairs[t, 0] >= 0:
            target = rows[members[pairs[t, 1]]]
            for j in range(y.shape[1]):
                error += abs(q[t, j] * y[t, j] - target[j])
        errors[t] = error


@kernel
def _advance(pairs, steps, errors, rows, members, q, y, tol, limit, done):
    """Correct y of the pairs that are not done; lists the slots of those that are."""
    found = 0
    for t in range(len(errors)):
        if pairs[t, 0] < 0:
            continue
        steps[t] += 1
        if errors[t] <= tol or steps[t] >= limit:
            done[found] = t
            found += 1
        else:
            target = rows[members[pairs[t, 1]]]
            for j in range(y.shape[1]):
                y[t, j] = target[j] / q[t, j]
    return found


@njit(**OPTIONS, fastmath=REASSOCIATE)
def _inner(x, y):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@kernel
def _dual_value(row, column, x, y, reg):
    total = 0.0
    for i in range(len(x)):
        if row[i] > 0.0:
            total += row[i] * np.log(x[i] / row[i])
    for j in range(len(y)):
        if column[j] > 0.0:
            total += column[j] * np.log(y[j] / column[j])
    return max(reg * total, 0.0)


@kernel
def _refill(slots, queue, first, rows, members, kept, pairs, y, steps):
    """Load the next pairs into slots. queue = (a, b, last a + 1); y starts from what is kept, or from b's row."""
    n_members = len(members)
    for slot in slots:
        a, b = queue[0], queue[1]
        while a < queue[2] and b >= n_members:
            a += 1
            b = a + first
        if a >= queue[2]:
            pairs[slot, 0] = -1
            continue
        at = a * (n_members - first) - a * (a - 1) // 2 + b - a - first
        pairs[slot, 0], pairs[slot, 1], pairs[slot, 2] = a, b, at
        steps[slot] = 0
        warm = kept.shape[0] > 0 and not np.isnan(kept[at, 0])
        for j in range(y.shape[1]):
            y[slot, j] = kept[at, j] if warm else rows[members[b], j]
        queue[0], queue[1] = a, b + 1


@kernel
def _retire(slots, pairs, rows, members, x, y, reg, as_value, kept, a0, out, ended, ended_x, ended_y, count):
    """Take solved pairs out: their value, or x and y for the product with K∘C. Returns how many wait."""
    for t in slots:
        a, b, at = pairs[t, 0], pairs[t, 1], pairs[t, 2]
        if kept.shape[0] > 0:
            kept[at] = y[t]
        if as_value:
            out[a - a0, b] = _dual_value(rows[members[a]], rows[members[b]], x[t], y[t], reg)
        else:
            ended[count, 0], ended[count, 1] = a, b
            ended_x[count] = x[t]
            ended_y[count] = y[t]
            count += 1
    return count


@kernel
def _write_costs(ended, count, weighted_x, ended_y, a0, out):
    for k in range(count):
        out[ended[k, 0] - a0, ended[k, 1]] = _inner(weighted_x[k], ended_y[k])


def dense_sinkhorn_block(rows, members, a0, a1, kernel, weighted, reg, as_value, tol, limit, first, kept, out):
    """Fill out[a − a0, b] = ⟨ω, C⟩, or the value, for a0 ≤ a < a1 and b ≥ a + first.

    `kernel` is K = exp(−C/λ), `weighted` is K∘C, both symmetric [S, S]. `kept` holds y for each pair in the
    order of the pairs, as rows [pairs, S] with NaN where there is none; it may have no rows. Pairs stream through
    the slots of a tile, so that a slow one does not hold up the others. Returns (iterations, the pairs that
    reached the limit with their y, the largest error of the others).
    """
    y = np.ones((_TILE, rows.shape[1]), rows.dtype)
    x, q, ended_x, ended_y = (np.ones_like(y) for _ in range(4))
    pairs, ended = np.full((_TILE, 3), -1), np.zeros((_TILE, 2), np.int64)
    steps, done, errors = np.zeros(_TILE, np.int64), np.zeros(_TILE, np.int64), np.zeros(_TILE)
    queue = np.array([a0, a0 + first, a1])
    iterations, worst, left, waiting = 0, 0.0, [], 0

    def flush():
        _write_costs(ended, waiting, np.matmul(ended_x, weighted), ended_y, a0, out)

    _refill(np.arange(_TILE), queue, first, rows, members, kept, pairs, y, steps)
    while True:
        active = int(np.count_nonzero(pairs[:, 0] >= 0))
        if active == 0:
            break
        np.matmul(y, kernel, out=x)
        _rows_exact(pairs, rows, members, x)
        np.matmul(x, kernel, out=q)
        _column_errors(pairs, rows, members, q, y, errors)
        ready = done[: _advance(pairs, steps, errors, rows, members, q, y, tol, limit, done)]
        iterations += active
        for t in ready[errors[ready] > tol]:
            left.append((int(pairs[t, 0]), int(pairs[t, 1]), y[t].copy()))
        worst = max(worst, float(np.max(errors[ready][errors[ready] <= tol], initial=0.0)))
        if waiting + len(ready) > _TILE:
            flush()
            waiting = 0
        waiting = _retire(
            ready, pairs, rows, members, x, y, reg, as_value, kept, a0, out, ended, ended_x, ended_y, waiting
        )
        _refill(ready, queue, first, rows, members, kept, pairs, y, steps)
    if waiting:
        flush()
    return iterations, left, worst
