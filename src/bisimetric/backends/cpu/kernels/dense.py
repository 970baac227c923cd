"""Blocks of pairs by matrix products, for rows that reach most states.

Tiles have a fixed number of rows, padded where needed, so that a pair's result does not depend on how
pairs were divided into blocks. BLAS must be held to one thread by the caller (threads.single_thread): the
threads are above.
"""

import numpy as np

from .jit import kernel, part

_TILE = 192
_STRIP = 32  # rows of one product; a tile has a whole number of strips
_LEAST = 3  # plain scalings before a pair's rate is looked at
_FORESEEN = 5.0  # plain scalings to come above which a Newton step costs less
_SOLVED = 1e-2  # share of the squared residual at which a Newton system counts as solved
_MOST_SOLVING = 40  # rounds on one Newton system
_FIRST_REACH, _MOST_REACH = 4.0, 64.0  # most that a Newton step changes log y by: doubled or halved by its success
_TRIES = 4  # of one Newton step, each half as long as the one before
_REST = 8  # plain scalings after a Newton step that did not lower the error
# A pair's state: rows of `counts` and of `numbers`, a column for each slot of the tile.
SOLVING, ROUNDS, SOLVES, TRIED, REST, A, B, AT = 0, 1, 2, 3, 4, 5, 6, 7  # A < 0: the slot is free
ERROR, REACH, PRODUCT, FIRST_PRODUCT = 0, 1, 2, 3
# Its vectors: what the products start from; a Newton step and its direction, residual, weights and column sums; x, y,
# and q = K x.
START, STEP, WAY, RESIDUAL, WEIGHT, COLUMNS, X, Y, Q = 0, 1, 2, 3, 4, 5, 6, 7, 8


def dense_rows(rows, n_states, dtype):
    """Rows as a dense matrix [N, S]."""
    matrix = np.zeros((len(rows.indptr) - 1, n_states), dtype)
    owner = np.repeat(np.arange(len(matrix)), np.diff(rows.indptr))
    matrix[owner, rows.indices] = rows.probs
    return matrix


def dense_independent_block(matrix, block, ground, out):
    """out[a − a0, b] = (r_aᵀ C r_b)^(1/p) for a0 ≤ a < a1 and all b."""
    members, a0, a1, _, _ = block
    others = matrix[members].T
    tile = np.zeros((_TILE, matrix.shape[1]), matrix.dtype)
    for start in range(a0, a1, _TILE):
        count = min(_TILE, a1 - start)
        tile[:count] = matrix[members[start : start + count]]
        values = np.matmul(np.matmul(tile, ground.cost), others)[:count]
        out[start - a0 : start - a0 + count] = np.maximum(values, 0.0) ** ground.inv_p


@kernel
def _between_products(counts, matrix, members, vectors, x):
    """x = a / (K y) in place, where x holds K y; for pairs that solve a Newton system, x times its weights."""
    for t in range(x.shape[0]):
        if counts[A, t] < 0:
            continue
        if counts[SOLVING, t]:
            for i in range(x.shape[1]):
                x[t, i] *= vectors[WEIGHT, t, i]
        else:
            row = matrix[members[counts[A, t]]]
            for i in range(x.shape[1]):
                x[t, i] = row[i] / x[t, i]


@part
def _column_error(q, y, target):
    """L1 error of the column sums y∘q, q = K x; four sums side by side."""
    by_four = len(y) - len(y) % 4
    e0, e1, e2, e3 = 0.0, 0.0, 0.0, 0.0
    for j in range(0, by_four, 4):
        e0 += abs(q[j] * y[j] - target[j])
        e1 += abs(q[j + 1] * y[j + 1] - target[j + 1])
        e2 += abs(q[j + 2] * y[j + 2] - target[j + 2])
        e3 += abs(q[j + 3] * y[j + 3] - target[j + 3])
    for j in range(by_four, len(y)):
        e0 += abs(q[j] * y[j] - target[j])
    return (e0 + e1) + (e2 + e3)


@part
def _begin_newton(row, target, x, y, q, vectors, t):
    """Set up the Newton system of a pair; returns ⟨r, r / column sums⟩."""
    product = 0.0
    for j in range(len(y)):
        a, columns = row[j], q[j] * y[j]
        vectors[WEIGHT, t, j] = x[j] * x[j] / a if a > 0.0 else 0.0
        vectors[COLUMNS, t, j] = columns
        residual = target[j] - columns
        scaled = residual / columns if target[j] > 0.0 else 0.0
        product += residual * scaled
        vectors[RESIDUAL, t, j] = residual
        vectors[WAY, t, j] = scaled
        vectors[START, t, j] = y[j] * scaled
        vectors[STEP, t, j] = 0.0
    return product


@part
def _solve(y, q, vectors, t, product):
    """One step of conjugate gradients; returns ⟨r, r / column sums⟩, negative where the matrix is not positive."""
    curvature = 0.0
    for j in range(len(y)):
        q[j] = vectors[COLUMNS, t, j] * vectors[WAY, t, j] - y[j] * q[j]  # the matrix times the direction
        curvature += vectors[WAY, t, j] * q[j]
    if not curvature > 0.0:
        return -1.0
    length = product / curvature
    after = 0.0
    for j in range(len(y)):
        vectors[STEP, t, j] += length * vectors[WAY, t, j]
        residual = vectors[RESIDUAL, t, j] - length * q[j]
        vectors[RESIDUAL, t, j] = residual
        columns = vectors[COLUMNS, t, j]
        after += residual * residual / columns if columns > 0.0 else 0.0
    turn = after / product
    for j in range(len(y)):
        columns = vectors[COLUMNS, t, j]
        scaled = vectors[RESIDUAL, t, j] / columns if columns > 0.0 else 0.0
        way = scaled + turn * vectors[WAY, t, j]
        vectors[WAY, t, j] = way
        vectors[START, t, j] = y[j] * way
    return after


@part
def _shorten(vectors, t, reach):
    """Cut the Newton step to change log y by no more than `reach`."""
    largest = 0.0
    for j in range(vectors.shape[2]):
        largest = max(largest, abs(vectors[STEP, t, j]))
    if largest > reach:
        for j in range(vectors.shape[2]):
            vectors[STEP, t, j] *= reach / largest


@part
def _move(y, vectors, t, share):
    """Move log y by a share of the Newton step."""
    for j in range(len(y)):
        y[j] *= np.exp(share * vectors[STEP, t, j])
        vectors[START, t, j] = y[j]


@part
def _solve_on(counts, numbers, vectors, y, q, t, limit):
    """Go on with a pair's Newton system; where it is solved, or the rounds are used up, take the step."""
    after = _solve(y, q, vectors, t, numbers[PRODUCT, t])
    counts[SOLVES, t] += 1
    solved = not after > _SOLVED * numbers[FIRST_PRODUCT, t] or counts[SOLVES, t] >= _MOST_SOLVING
    numbers[PRODUCT, t] = after
    if solved or counts[ROUNDS, t] >= limit - 1:
        _shorten(vectors, t, numbers[REACH, t])
        _move(y, vectors, t, 1.0)
        counts[SOLVING, t], counts[TRIED, t] = 0, 1


@part
def _step_back(counts, numbers, vectors, y, t):
    """After a Newton step that went too far: half of the way back, or all of it."""
    numbers[REACH, t] *= 0.5
    if counts[TRIED, t] < _TRIES:
        counts[TRIED, t] += 1
        vectors[STEP, t] *= 0.5
    else:
        counts[TRIED, t], counts[REST, t] = 0, _REST
    _move(y, vectors, t, -1.0)


@part
def _slow(counts, numbers, t, before, tol):
    """Whether a Newton step is due: after a good one, or where too many plain scalings are foreseen."""
    error, tried = numbers[ERROR, t], counts[TRIED, t]
    counts[REST, t] -= 1
    counts[TRIED, t] = 0
    if tried == 1:
        numbers[REACH, t] = min(2.0 * numbers[REACH, t], _MOST_REACH)
    if tried > 0:
        return True
    if counts[ROUNDS, t] < _LEAST or counts[REST, t] >= 0:
        return False
    return not np.log(error / tol) < _FORESEEN * np.log(before / error)


@kernel
def _after_products(counts, numbers, vectors, matrix, members, tol, limit, done):
    """What each pair does next; lists the slots of those that are done.

    A plain scaling is y ← b / (K x). It converges linearly, and slowly where the plan falls into parts that are hardly
    joined. Then Newton's method on log y takes over: its matrix diag(y∘q) − ωᵀ diag(1/a) ω, with the inverse column
    sums as a preconditioner, has all but a few eigenvalues near 1, so a few steps of conjugate gradients solve it, and
    each of them is two products with K, as a scaling is.
    """
    x, y, q = vectors[X], vectors[Y], vectors[Q]
    found = 0
    for t in range(y.shape[0]):
        if counts[A, t] < 0:
            continue
        counts[ROUNDS, t] += 1
        if counts[SOLVING, t]:
            _solve_on(counts, numbers, vectors, y[t], q[t], t, limit)
            continue
        target = matrix[members[counts[B, t]]]
        before = numbers[ERROR, t]
        error = _column_error(q[t], y[t], target)
        numbers[ERROR, t] = error
        if error <= tol or counts[ROUNDS, t] >= limit:
            done[found] = t
            found += 1
        elif counts[TRIED, t] and not error < before:
            numbers[ERROR, t] = before
            _step_back(counts, numbers, vectors, y[t], t)
        elif not error < np.inf:  # out of range: start again
            counts[TRIED, t], counts[REST, t] = 0, _REST
            numbers[ERROR, t] = np.inf
            y[t] = target
            vectors[START, t] = target
        elif _slow(counts, numbers, t, before, tol):
            product = _begin_newton(matrix[members[counts[A, t]]], target, x[t], y[t], q[t], vectors, t)
            counts[SOLVING, t], counts[SOLVES, t] = 1, 0
            numbers[PRODUCT, t] = numbers[FIRST_PRODUCT, t] = product
        else:
            for j in range(y.shape[1]):
                y[t, j] = target[j] / q[t, j]
                vectors[START, t, j] = y[t, j]
    return found


@part
def _inner(x, y):
    """⟨x, y⟩; four sums side by side."""
    by_four = len(x) - len(x) % 4
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for i in range(0, by_four, 4):
        s0 += x[i] * y[i]
        s1 += x[i + 1] * y[i + 1]
        s2 += x[i + 2] * y[i + 2]
        s3 += x[i + 3] * y[i + 3]
    for i in range(by_four, len(x)):
        s0 += x[i] * y[i]
    return (s0 + s1) + (s2 + s3)


@part
def _dual_value(row, column, x, q, reg):
    """⟨f, a⟩ + ⟨g, b⟩ with f = λ log(x/a), g = −λ log q; see `scaling`."""
    total = 0.0
    for i in range(len(x)):
        if row[i] > 0.0:
            total += row[i] * np.log(x[i] / row[i])
    for j in range(len(q)):
        if column[j] > 0.0:
            total -= column[j] * np.log(q[j])
    return max(reg * total, 0.0)


@part
def _compact(counts, numbers, vectors):
    """Move the pairs at work to the first slots; returns how many there are."""
    last = counts.shape[1] - 1
    slot = 0
    while True:
        while slot <= last and counts[A, slot] >= 0:
            slot += 1
        while last >= slot and counts[A, last] < 0:
            last -= 1
        if slot >= last:
            return slot
        counts[:, slot], numbers[:, slot] = counts[:, last], numbers[:, last]
        vectors[:Q, slot] = vectors[:Q, last]
        counts[A, last] = -1


@kernel
def _refill(slots, queue, block, matrix, kept, counts, numbers, vectors):
    """Load the next pairs into slots; returns how many are at work, which are then in the first slots.

    queue = (a, b), the next pair; y starts from what is kept, times b's row.
    """
    members, _, a1, first, _ = block
    n_members = len(members)
    for slot in slots:
        a, b = queue[0], queue[1]
        while a < a1 and b >= n_members:
            a += 1
            b = a + first
        if a >= a1:
            counts[A, slot] = -1
            continue
        at = a * (n_members - first) - a * (a - 1) // 2 + b - a - first
        counts[:, slot] = 0
        counts[A, slot], counts[B, slot], counts[AT, slot] = a, b, at
        numbers[ERROR, slot], numbers[REACH, slot] = np.inf, _FIRST_REACH
        warm = kept.shape[0] > 0 and not np.isnan(kept[at, 0])
        for j in range(vectors.shape[2]):
            vectors[Y, slot, j] = matrix[members[b], j] * (kept[at, j] if warm else 1.0)
            vectors[START, slot, j] = vectors[Y, slot, j]
        queue[0], queue[1] = a, b + 1
    return _compact(counts, numbers, vectors)


@part
def _keep(counts, vectors, t, kept):
    """Keep y'/b = 1/q of a solved pair, where there is room."""
    if kept.shape[0] > 0:
        at = counts[AT, t]
        for j in range(kept.shape[1]):
            kept[at, j] = 1.0 / vectors[Q, t, j]


@kernel
def _write_values(slots, counts, vectors, matrix, block, reg, kept, out):
    """Take solved pairs out and write their values."""
    members, a0, _, _, _ = block
    for t in slots:
        a, b = counts[A, t], counts[B, t]
        _keep(counts, vectors, t, kept)
        out[a - a0, b] = _dual_value(matrix[members[a]], matrix[members[b]], vectors[X, t], vectors[Q, t], reg)


@kernel
def _set_aside(slots, counts, vectors, kept, pairs, waiting, count):
    """Take solved pairs out; beside `count` others they wait for the product with K∘C. Returns how many wait."""
    for t in slots:
        _keep(counts, vectors, t, kept)
        pairs[count, 0], pairs[count, 1] = counts[A, t], counts[B, t]
        waiting[0, count] = vectors[X, t]
        waiting[1, count] = vectors[Y, t]
        count += 1
    return count


@kernel
def _write_costs(pairs, count, weighted_x, y, a0, out):
    """Write the costs of the pairs that waited."""
    for k in range(count):
        out[pairs[k, 0] - a0, pairs[k, 1]] = _inner(weighted_x[k], y[k])


def _multiply(counts, vectors, active, matrix, members, kernel):
    """The two products of a round with K, and what is between them, for the first slots."""
    for start in range(0, active, _STRIP):  # always of one shape, so that a pair's numbers do not depend on others
        strip = slice(start, start + _STRIP)
        x = vectors[X, strip]
        np.matmul(vectors[START, strip], kernel, out=x)
        _between_products(counts[:, strip], matrix, members, vectors[:, strip], x)
        np.matmul(x, kernel, out=vectors[Q, strip])


def dense_sinkhorn_block(matrix, block, products, kept, halt, out):
    """Fill out[a − a0, b] = ⟨ω, C⟩, or the value, for the pairs of the block; `matrix` has the rows [N, S].

    `kept` holds y/b for each pair in the order of the pairs, as rows [pairs, S] with NaN where there is none; it may
    have no rows. (y/b depends less on the rows than y, so it remains a good start when probabilities change.) Pairs
    stream through the slots of a tile, so that a slow one does not hold up the others. Stops early where halt[0] is
    set. Returns (iterations, the pairs that reached the limit with their y, the largest error of the others).
    """
    tol, members, shape = products.tol, block.members, (_TILE, matrix.shape[1])
    counts, numbers, done = np.full((8, _TILE), -1), np.zeros((4, _TILE)), np.zeros(_TILE, np.int64)
    vectors = np.ones((9, *shape), matrix.dtype)
    pairs, waiting, count = np.zeros((_TILE, 2), np.int64), np.ones((2, *shape), matrix.dtype), 0
    queue = np.array([block.a0, block.a0 + block.first])
    iterations, worst, left = 0, 0.0, []

    def flush():
        _write_costs(pairs, count, np.matmul(waiting[0], products.weighted), waiting[1], block.a0, out)

    active = _refill(np.arange(_TILE), queue, block, matrix, kept, counts, numbers, vectors)
    while active > 0 and not halt[0]:
        _multiply(counts, vectors, active, matrix, members, products.kernel)
        found = _after_products(counts, numbers, vectors, matrix, members, tol, products.iterations, done)
        ready = done[:found]
        iterations += active
        errors = numbers[ERROR, ready]
        for t in ready[~(errors <= tol)]:
            left.append((int(counts[A, t]), int(counts[B, t]), vectors[Y, t].copy()))
        worst = max(worst, float(np.max(errors[errors <= tol], initial=0.0)))
        if products.as_value:
            _write_values(ready, counts, vectors, matrix, block, products.reg, kept, out)
        else:
            if count + found > _TILE:
                flush()
                count = 0
            count = _set_aside(ready, counts, vectors, kept, pairs, waiting, count)
        active = _refill(ready, queue, block, matrix, kept, counts, numbers, vectors)
    if count:
        flush()
    return iterations, left, worst
