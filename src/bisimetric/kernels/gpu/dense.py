"""Blocks of pairs by matrix products on the device, for rows that reach most states."""

from __future__ import annotations

from typing import Any

import numpy as np

from .device import cupy, lanes, launch, over, processors

_BATCH_BYTES = 1 << 28  # of one array of scalings


def dense_matrix(indptr: Any, indices: Any, probs: Any, n_states: int, dtype: Any) -> Any:
    """The rows of a family as a dense matrix [N, S]."""
    matrix = np.zeros((len(indptr) - 1, n_states), dtype)
    matrix[np.repeat(np.arange(len(matrix)), np.diff(indptr)), indices] = probs
    return cupy().asarray(matrix)


def dense_independent_block(matrix: Any, members: Any, a0: int, a1: int, cost: Any, inv_p: float, out: Any) -> None:
    """out[a − a0, b] = (r_aᵀ C r_b)^(1/p) for a0 ≤ a < a1 and all b."""
    xp = cupy()
    rows = matrix[members]
    values = xp.maximum(rows[a0:a1] @ cost @ rows.T, 0.0)
    out[:] = values if inv_p == 1.0 else values**inv_p


def _over_pairs(pairs: int) -> tuple[int, int]:
    return max(1, min(-(-pairs // 4), 16 * processors())), 4 * lanes()


def dense_pairs(members: Any, a0: int, a1: int, first: int) -> tuple[Any, ...]:
    """(row of a, row of b, place in the block) of the pairs of a block, in order, on the device."""
    n = len(members)
    a = np.repeat(np.arange(a0, a1), n)
    b = np.tile(np.arange(n), a1 - a0)
    inside = b >= a + first
    place = np.flatnonzero(inside)
    lists = members[a[inside]], members[b[inside]], place
    return tuple(cupy().asarray(x.astype(np.int32)) for x in lists)


def dense_sinkhorn_block(
    matrix: Any, pairs: tuple[Any, ...], kernel: Any, weighted: Any, reg: float, as_value: bool,
    inv_p: float, tol: float, limit: int, at: int, kept: Any, out: Any,
) -> tuple[int, float, Any]:  # fmt: skip
    """Fill out[place] = ⟨ω, C⟩ or the value, for the pairs of `dense_pairs`.

    `kept` holds y of each pair [pairs, S] from row `at` on, NaN where there is none; it may have no rows. Returns
    (iterations, largest error of a finished pair, places of the pairs that reached the limit).
    """
    xp = cupy()
    n_states, dtype = matrix.shape[1], matrix.dtype
    row_of, column_of, place_of = pairs
    size = max(1, _BATCH_BYTES // (n_states * dtype.itemsize))
    iterations, worst, left = 0, 0.0, []
    for start in range(0, len(row_of), size):
        part = slice(start, min(start + size, len(row_of)))
        y = kept[at + part.start : at + part.stop] if len(kept) else xp.full((1, n_states), np.nan, dtype)
        cold = xp.isnan(y[:, :1])
        y = xp.where(cold, matrix[column_of[part]], y)
        x, errors, more = _scale(matrix, row_of[part], column_of[part], kernel, y, tol, limit)
        iterations += more
        if len(kept):
            kept[at + part.start : at + part.stop] = y
        z = x if as_value else x @ weighted
        launch("dense.cu", "plan_costs", dtype, *_over_pairs(len(y)), (
            matrix, row_of[part], column_of[part], place_of[part], np.int64(len(y)), np.int64(n_states), z, y,
            np.float64(reg), np.int64(as_value), np.float64(inv_p), out,
        ))  # fmt: skip
        slow = ~(errors <= tol)
        worst = max(worst, float(xp.where(slow, 0.0, errors).max()))
        left.append(place_of[part][slow])
    return iterations, worst, xp.concatenate(left)


_PACE = 4  # a pair's progress, in numbers of 8 bytes


def _scale(
    matrix: Any, row_of: Any, column_of: Any, kernel: Any, y: Any, tol: float, limit: int, past: Any = None
) -> tuple[Any, Any, int]:
    """Scale y [pairs, S] in place until the columns are within tol; returns (x, errors, iterations).

    Where less than half of the pairs are still at work, they go on among themselves. `past` is what the recurrence of
    slow pairs needs: the y before the last, and each pair's progress.
    """
    xp = cupy()
    n_states, dtype = matrix.shape[1], matrix.dtype
    x, q = xp.empty_like(y), xp.empty_like(y)
    previous, paces = (y.copy(), xp.zeros((len(y), _PACE))) if past is None else past
    errors = xp.empty(len(y), dtype)
    active = xp.zeros(1, np.int32)
    iterations = done = 0
    while True:
        xp.matmul(y, kernel, out=x)
        launch("dense.cu", "rows_exact", dtype, *over(x.size),
               (matrix, row_of, np.int64(len(y)), np.int64(n_states), x))  # fmt: skip
        xp.matmul(x, kernel, out=q)
        active.fill(0)
        launch("dense.cu", "columns_corrected", dtype, *_over_pairs(len(y)), (
            matrix, column_of, np.int64(len(y)), np.int64(n_states), q, y, previous, paces, np.float64(tol), errors,
            active,
        ))  # fmt: skip
        done += 1
        iterations += len(y)
        if done >= limit:
            return x, errors, iterations
        if done < 3 and len(y) > 64:
            continue
        count = int(active[0])
        if count == 0:
            return x, errors, iterations
        if count <= 0.6 * len(y) and len(y) > 64:
            slow = xp.flatnonzero(~(errors <= tol))
            y_slow, left = y[slow], limit - done
            x_slow, errors_slow, more = _scale(
                matrix, row_of[slow], column_of[slow], kernel, y_slow, tol, left, (previous[slow], paces[slow])
            )
            x[slow], y[slow], errors[slow] = x_slow, y_slow, errors_slow
            return x, errors, iterations + more
