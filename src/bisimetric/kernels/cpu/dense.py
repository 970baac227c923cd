"""Blocks of pairs by matrix products, for rows that reach most states.

Tiles have a fixed number of rows, padded where needed, so that a pair's result does not depend on how
pairs were divided into blocks. BLAS must be held to one thread by the caller (select.single_thread): the
threads are above.
"""

import numpy as np
from numba import njit

from .jit import OPTIONS, REASSOCIATE, kernel

_TILE = 192
_STRIP = 32  # rows of one product; a tile has a whole number of strips
_PLAIN, _CHECK = 4, 8  # plain scalings before the rate is measured; steps between looks at faster ones
_SLOW = (0.5, 0.9, 0.97)  # error ratios of plain scalings above which ever more momentum pays
_MOST_RETREATS = 2
_FARTHEST = 8.0  # most that momentum changes a scaling by in one step


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
def _advance(
    pairs, steps, errors, before, mode, since, mark, retreats, rows, members, q, y, previous, tol, limit, done
):
    """Correct y of the pairs that are not done; lists the slots of those that are.

    Near the end a plain scaling y ← T(y) = b / (K x) shrinks all parts of log y's error by real factors in [0, r].
    A second-order recurrence y ← T^b y^a y₋^c with a + b + c = 1 does better: with (a, b, c) = (−1, 9/4, −1/4) all
    parts with factors up to 0.889 shrink by 1/2 a step, with (−5/4, 11/4, −1/2) those up to 0.969 by 0.707, with
    (−3/2, 13/4, −3/4) those up to 0.994 by 0.866. `mode` says which one a pair uses; a pair whose error does not halve
    within some steps goes back to plain scalings.
    """
    found = 0
    for t in range(len(errors)):
        if pairs[t, 0] < 0:
            continue
        steps[t] += 1
        if errors[t] <= tol or steps[t] >= limit:
            done[found] = t
            found += 1
            continue
        since[t] += 1
        target = rows[members[pairs[t, 1]]]
        if not errors[t] < np.inf:  # out of range: start again, without momentum
            mode[t], since[t], retreats[t], before[t] = 0, 0, _MOST_RETREATS, np.inf
            y[t] = target
            continue
        if mode[t] == 0:
            if since[t] >= _PLAIN and errors[t] > _SLOW[0] * before[t] and retreats[t] < _MOST_RETREATS:
                mode[t] = 1 + (errors[t] > _SLOW[1] * before[t]) + (errors[t] > _SLOW[2] * before[t])
                since[t], mark[t] = 0, errors[t]
        elif since[t] % _CHECK == 0:
            if errors[t] > 0.5 * mark[t]:
                mode[t], since[t], retreats[t] = 0, 0, retreats[t] + 1
            mark[t] = errors[t]
        before[t] = errors[t]
        for j in range(y.shape[1]):
            old = y[t, j]
            new = target[j] / q[t, j]
            if mode[t] > 0 and new > 0.0:
                gain, root = new / old, np.sqrt(new / previous[t, j])
                if mode[t] == 1:
                    ahead = gain * np.sqrt(root)
                elif mode[t] == 2:
                    ahead = gain * np.sqrt(np.sqrt(gain)) * root
                else:
                    ahead = gain * np.sqrt(gain) * root * np.sqrt(root)
                new *= min(max(ahead, 1.0 / _FARTHEST), _FARTHEST)
            previous[t, j] = old
            y[t, j] = new
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
def _refill(slots, queue, first, rows, members, kept, pairs, y, steps, mode, since, retreats):
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
        steps[slot], mode[slot], since[slot], retreats[slot] = 0, 0, 0, 0
        warm = kept.shape[0] > 0 and not np.isnan(kept[at, 0])
        for j in range(y.shape[1]):
            y[slot, j] = kept[at, j] if warm else rows[members[b], j]
        queue[0], queue[1] = a, b + 1


@kernel
def _compact(pairs, y, previous, steps, mode, since, retreats, before, mark):
    """Move the pairs at work to the first slots; returns how many there are."""
    last = len(pairs) - 1
    slot = 0
    while True:
        while slot <= last and pairs[slot, 0] >= 0:
            slot += 1
        while last >= slot and pairs[last, 0] < 0:
            last -= 1
        if slot >= last:
            return slot
        pairs[slot] = pairs[last]
        y[slot], previous[slot] = y[last], previous[last]
        steps[slot], mode[slot], since[slot], retreats[slot] = steps[last], mode[last], since[last], retreats[last]
        before[slot], mark[slot] = before[last], mark[last]
        pairs[last, 0] = -1


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
    x, q, previous, ended_x, ended_y = (np.ones_like(y) for _ in range(5))
    pairs, ended = np.full((_TILE, 3), -1), np.zeros((_TILE, 2), np.int64)
    steps, done, mode, since, retreats = (np.zeros(_TILE, np.int64) for _ in range(5))
    errors, before, mark = (np.zeros(_TILE) for _ in range(3))
    queue = np.array([a0, a0 + first, a1])
    iterations, worst, left, waiting = 0, 0.0, [], 0

    def flush():
        _write_costs(ended, waiting, np.matmul(ended_x, weighted), ended_y, a0, out)

    _refill(np.arange(_TILE), queue, first, rows, members, kept, pairs, y, steps, mode, since, retreats)
    while True:
        active = _compact(pairs, y, previous, steps, mode, since, retreats, before, mark)
        if active == 0:
            break
        for start in range(0, active, _STRIP):  # always of one shape, so that a pair's numbers do not depend on others
            strip = slice(start, start + _STRIP)
            np.matmul(y[strip], kernel, out=x[strip])
            _rows_exact(pairs[strip], rows, members, x[strip])
            np.matmul(x[strip], kernel, out=q[strip])
        _column_errors(pairs, rows, members, q, y, errors)
        count = _advance(
            pairs, steps, errors, before, mode, since, mark, retreats, rows, members, q, y, previous, tol, limit, done
        )
        ready = done[:count]
        iterations += active
        for t in ready[~(errors[ready] <= tol)]:
            left.append((int(pairs[t, 0]), int(pairs[t, 1]), y[t].copy()))
        worst = max(worst, float(np.max(errors[ready][errors[ready] <= tol], initial=0.0)))
        if waiting + len(ready) > _TILE:
            flush()
            waiting = 0
        waiting = _retire(
            ready, pairs, rows, members, x, y, reg, as_value, kept, a0, out, ended, ended_x, ended_y, waiting
        )
        _refill(ready, queue, first, rows, members, kept, pairs, y, steps, mode, since, retreats)
    if waiting:
        flush()
    return iterations, left, worst
