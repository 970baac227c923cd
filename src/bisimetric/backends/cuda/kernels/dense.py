"""Blocks of pairs by matrix products on the device, for rows that reach most states."""

from __future__ import annotations

import numpy as np

from ....kinds import Array, Ints
from .arguments import Ground, PairBlock, Products
from .device import cupy, lanes, launch, over, processors
from .pairs import Rows

_BATCH_BYTES = 1 << 27  # of one array of scalings


def dense_independent_block(matrix: Array, rows: Rows, block: PairBlock, ground: Ground, out: Array) -> None:
    """out[a − a0, b] = (r_aᵀ C r_b)^(1/p) for a0 ≤ a < a1 and all b."""
    members = matrix[rows.groups[block.group]]
    values = cupy().maximum(members[block.a0 : block.a1] @ ground.cost @ members.T, 0.0)
    out[:] = values if ground.inv_p == 1.0 else values**ground.inv_p


def _over_pairs(pairs: int) -> tuple[int, int]:
    return max(1, min(-(-pairs // 4), 16 * processors())), 4 * lanes()


def dense_pairs(members: Ints, block: PairBlock) -> tuple[Array, ...]:
    """(row of a, row of b, place in the block) of the pairs of a block, in order, on the device."""
    n, (_, a0, a1, first, _) = len(members), block
    a = np.repeat(np.arange(a0, a1), n)
    b = np.tile(np.arange(n), a1 - a0)
    inside = b >= a + first
    place = np.flatnonzero(inside)
    lists = members[a[inside]], members[b[inside]], place
    return tuple(cupy().asarray(x.astype(np.int32)) for x in lists)


def dense_sinkhorn_block(
    matrix: Array, pairs: tuple[Array, ...], products: Products, inv_p: float, at: int, kept: Array, out: Array
) -> tuple[int, float, float, Array]:
    """Fill out[place] = ⟨ω, C⟩ or the value, for the pairs of `dense_pairs`.

    `kept` holds y/b of each pair [pairs, S] from row `at` on, NaN where there is none; it may have no rows. Returns
    (iterations, largest error of a finished pair, smallest cost before the root, places of the pairs that reached the
    limit).
    """
    kernel, weighted, reg, as_value, tol, limit = products
    xp = cupy()
    n_states, dtype = matrix.shape[1], matrix.dtype
    row_of, column_of, place_of = pairs
    size = max(1, _BATCH_BYTES // (n_states * dtype.itemsize))
    iterations, worst, left = 0, 0.0, []
    least = xp.full(1, np.float64(np.inf).view(np.uint64), np.uint64)
    for start in range(0, len(row_of), size):
        part = slice(start, min(start + size, len(row_of)))
        y = matrix[column_of[part]]
        if len(kept):
            ratio = kept[at + part.start : at + part.stop]
            y *= xp.where(xp.isnan(ratio[:, :1]), 1.0, ratio)
        x, q, errors, more = scale(matrix, row_of[part], column_of[part], kernel, y, tol, limit)
        iterations += more
        if len(kept):
            kept[at + part.start : at + part.stop] = 1.0 / q
        z = x if as_value else x @ weighted
        ends = row_of[part], column_of[part], place_of[part]
        arguments = (matrix, *ends, len(y), n_states, z, y, q, reg, as_value, inv_p, least, out)
        launch("dense.cu", "plan_costs", dtype, *_over_pairs(len(y)), arguments)
        slow = ~(errors <= tol)
        worst = max(worst, float(xp.where(slow, 0.0, errors).max()))
        left.append(place_of[part][slow])
    smallest = float(xp.asnumpy(least).view(np.float64)[0])
    return iterations, worst, smallest, xp.concatenate(left)


_LEAST = 3  # plain scalings before a pair's rate is looked at
_STATE = 6  # a pair's progress, in numbers of 8 bytes
_FIRST_REACH = 4.0  # most that the first Newton step changes log y by


def scale(
    matrix: Array, row_of: Array, column_of: Array, kernel: Array, y: Array, tol: float, limit: int, plain: int = _LEAST
) -> tuple[Array, Array, Array, int]:
    """Scale y [pairs, S] in place until the columns are within tol; returns (x, K x, errors, iterations).

    After some plain scalings the pairs that are not done go on among themselves, with Newton steps where that is
    foreseen to be faster.
    """
    xp = cupy()
    n_states, dtype = matrix.shape[1], matrix.dtype
    x, q = xp.empty_like(y), xp.empty_like(y)
    errors = xp.empty(len(y), dtype)
    active = xp.zeros(1, np.int32)
    sizes = len(y), n_states
    rounds = min(plain, limit)
    for _ in range(rounds):
        xp.matmul(y, kernel, out=x)
        launch("dense.cu", "rows_exact", dtype, *over(x.size), (matrix, row_of, *sizes, x))
        xp.matmul(x, kernel, out=q)
        active.fill(0)
        arguments = (matrix, column_of, *sizes, q, y, tol, errors, active)
        launch("dense.cu", "columns_corrected", dtype, *_over_pairs(len(y)), arguments)
    iterations = rounds * len(y)
    if rounds < limit and int(active[0]):
        slow = xp.flatnonzero(~(errors <= tol))
        ends = row_of[slow], column_of[slow]
        iterations += _newton(matrix, ends, kernel, tol, limit - rounds, slow, (x, y, q, errors))
    return x, q, errors, iterations


def _newton(
    matrix: Array,
    ends: tuple[Array, Array],
    kernel: Array,
    tol: float,
    limit: int,
    places: Array,
    answers: tuple[Array, Array, Array, Array],
) -> int:
    """Go on with the pairs at `places` of (x, y, K x, errors), with Newton steps; returns the iterations."""
    xp, (row_of, column_of) = cupy(), ends
    n_states, dtype = matrix.shape[1], matrix.dtype
    y, errors = answers[1][places], answers[3][places]
    x, q, vectors = xp.empty_like(y), xp.empty_like(y), xp.empty((6, *y.shape), dtype)
    vectors[0] = y
    states = xp.zeros((len(y), _STATE))
    states[:, 0], states[:, 1] = errors, _FIRST_REACH
    active = xp.zeros(1, np.int32)
    iterations = 0

    def write() -> None:
        for array, part in zip(answers, (x, y, q, errors), strict=True):
            array[places] = part

    for done in range(1, limit + 1):
        sizes = len(y), n_states
        xp.matmul(vectors[0], kernel, out=x)
        launch("dense.cu", "between_products", dtype, *over(x.size), (matrix, row_of, *sizes, states, vectors, x))
        xp.matmul(x, kernel, out=q)
        active.fill(0)
        work = (*sizes, x, q, y, vectors, states)
        arguments = (matrix, row_of, column_of, *work, tol, done >= limit - 1, errors, active)
        launch("dense.cu", "after_products", dtype, *_over_pairs(len(y)), arguments)
        iterations += len(y)
        if done % 2:
            continue
        count = int(active[0])
        if count == 0:
            break
        if count <= 0.7 * len(y) and len(y) > 64:
            write()
            slow = xp.flatnonzero(~(errors <= tol))
            places, row_of, column_of = places[slow], row_of[slow], column_of[slow]
            y, errors, states, vectors = y[slow], errors[slow], states[slow], vectors.take(slow, axis=1)
            x, q = xp.empty_like(y), xp.empty_like(y)
    write()
    return iterations
