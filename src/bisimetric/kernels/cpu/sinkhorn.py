"""Entropic transport over blocks of pairs: Sinkhorn distances.

All pairs share one ground cost C = d^p [S, S] and one kernel K = exp(−C/λ), made once a sweep. A pair
gathers its n × m part. The column scalings y (or log y, where K would underflow) are kept per pair.
"""

import numpy as np
from numba import njit

from .jit import OPTIONS, REASSOCIATE, kernel
from .scaling import X, Y, exact_start, scale, solve_log, vectors
from .spanning_tree import scratch

_FAR = np.inf  # a safe kernel bounds x and y but for the masses, which may be as small as they like
_WARM_LIMIT = 60
_SCALINGS = 2000  # before a pair is begun again in the log domain


@kernel
def widest_support(indptr, members, a0):
    widest = 1
    for b in range(a0, len(members)):
        widest = max(widest, indptr[members[b] + 1] - indptr[members[b]])
    return widest


@kernel
def gather(matrix, indices, lo, n, to, m, part):
    for i in range(n):
        x = indices[lo + i]
        for j in range(m):
            part[i * m + j] = matrix[x, indices[to + j]]


@kernel
def product_cost(probs, indices, lo, n, to, m, cost):
    """⟨a⊗b, C⟩: the only coupling there is where one side has a single state."""
    value = 0.0
    for i in range(n):
        for j in range(m):
            value += probs[lo + i] * probs[to + j] * cost[indices[lo + i], indices[to + j]]
    return value


@kernel
def relative_entropy(a, b, t):
    """KL(ω ‖ a⊗b) of the 2 × 2 plan with mass t on (0, 0)."""
    total = 0.0
    for x, u, v in ((t, a, b), (a - t, a, 1 - b), (b - t, 1 - a, b), (1 - a - b + t, 1 - a, 1 - b)):
        if x > 0.0 and u > 0.0 and v > 0.0:
            total += x * (np.log(x / u) - np.log(v))
    return max(total, 0.0)


@kernel
def two_by_two_entropic(a, b, c00, c01, c10, c11, reg):
    """(⟨ω, C⟩, KL) of the entropic plan between (a, 1−a) and (b, 1−b).

    The odds ratio of ω is κ = exp(−(c00 + c11 − c01 − c10)/λ), so the mass t on (0, 0) solves
    t (1−a−b+t) = κ (a−t)(b−t). Columns are swapped where κ > 1, so that nothing overflows.
    """
    if c00 + c11 < c01 + c10:
        return two_by_two_entropic(a, 1.0 - b, c01, c00, c11, c10, reg)
    odds = np.exp(-(c00 + c11 - c01 - c10) / reg)
    half = 1.0 - (1.0 - odds) * (a + b)
    root = np.sqrt(half * half + 4.0 * (1.0 - odds) * odds * a * b)
    if half < 0.0:
        t = (root - half) / (2.0 * (1.0 - odds))
    elif half + root > 0.0:
        t = 2.0 * odds * a * b / (half + root)
    else:  # the odds underflow where a + b = 1
        t = 0.0
    t = min(max(t, 0.0, a + b - 1.0), a, b)
    cost = t * c00 + (a - t) * c01 + (b - t) * c10 + max(1.0 - a - b + t, 0.0) * c11
    return cost, relative_entropy(a, b, t)


@kernel
def dual_value(n, m, a, b, log_x, log_y, reg):
    """⟨f, a⟩ + ⟨g, b⟩ with f = λ log(x/a), g = λ log(y/b): the value for exact rows."""
    total = 0.0
    for i in range(n):
        total += a[i] * (log_x[i] - np.log(a[i]))
    for j in range(m):
        total += b[j] * (log_y[j] - np.log(b[j]))
    return max(reg * total, 0.0)


@kernel
def log_pair(n, m, part, reg, a, b, logs, kernel, vec, matrix, real, link, kept, start, tol, limit):
    """Solve one pair in the log domain from what is kept, or from the exact potentials.

    Where costs changed by many λ, what is kept is a poor start, which would need about one step for each λ:
    it is given up after a few.
    """
    done, error = 0, np.inf
    if not np.isnan(kept[start]):
        for j in range(m):
            logs[1, j] = kept[start + j]
        done, error = solve_log(
            n, m, part, reg, a, b, logs[0], logs[1], kernel, vec, matrix, tol, min(limit, _WARM_LIMIT)
        )
    if not error <= tol:
        exact_start(n, m, part, reg, a, b, real, link, logs[1])
        more, error = solve_log(n, m, part, reg, a, b, logs[0], logs[1], kernel, vec, matrix, tol, limit)
        done += more
    for j in range(m):
        kept[start + j] = logs[1, j]
    return done, error


@kernel
def _pair_tolerance(biggest, inv_p, accuracy, tightest, loosest):
    """Marginal error at which W is about `accuracy` exact, where costs reach `biggest`."""
    share = 0.9 if inv_p == 1.0 else 0.2
    return max(min(loosest, share * accuracy / biggest**inv_p), tightest)


@kernel
def _root_error(value, slack, inv_p):
    return slack if inv_p == 1.0 else (value + slack) ** inv_p - value**inv_p


@kernel
def _plan_cost(n, m, plan, part):
    total = 0.0
    for k in range(n * m):
        total += plan[k] * part[k]
    return total


@njit(**OPTIONS, fastmath=REASSOCIATE)
def _sharp_cost(n, m, plan, vec, cost, indices, lo, to):
    """⟨ω, C⟩ for ω = diag(x) K diag(y)."""
    value = 0.0
    for i in range(n):
        x = indices[lo + i]
        total = 0.0
        for j in range(m):
            total += plan[i * m + j] * vec[Y, j] * cost[x, indices[to + j]]
        value += vec[X, i] * total
    return value


@kernel
def _log_scalings(n, m, vec, logs):
    for i in range(n):
        logs[0, i] = np.log(vec[X, i])
    for j in range(m):
        logs[1, j] = np.log(vec[Y, j])


@kernel
def sinkhorn_block(
    indptr, indices, probs, members, a0, a1, cost, kernel, in_logs, reg, as_value, inv_p, top, accuracy,
    tightest, loosest, limit, first, kept, base, out,
):  # fmt: skip
    """Fill out[a − a0, b] with the Sinkhorn distance, a0 ≤ a < a1, b ≥ a + first.

    A plan has exact rows and columns within L1 error e of b. The value of its potentials is then at most
    e·max C below the true value: the gap is ⟨b − q, g* − g⟩, and both
    potentials vary by at most max C. Returns (iterations, largest error of an entry by this bound).
    """
    widest = widest_support(indptr, members, a0)
    vec, matrix = vectors(widest, kernel)
    vec64, _ = vectors(widest, matrix)
    part, real, link = scratch(widest)
    plan = np.empty(widest * widest, kernel.dtype)
    plan64 = np.empty(widest * widest)
    logs = np.empty((2, widest))
    fresh = np.empty(widest)
    keep = len(base) > 0
    store = kept if keep else np.empty(widest, kept.dtype)
    iterations = 0
    worst = 0.0
    for a in range(a0, a1):
        lo, n = indptr[members[a]], indptr[members[a] + 1] - indptr[members[a]]
        start = base[a] if keep else 0
        pa = probs[lo : lo + n]
        for b in range(a + first, len(members)):
            to, m = indptr[members[b]], indptr[members[b] + 1] - indptr[members[b]]
            pb = probs[to : to + m]
            if n == 1 or m == 1:
                value = product_cost(probs, indices, lo, n, to, m, cost)
                out[a - a0, b] = value if inv_p == 1.0 else value**inv_p
                continue
            if n + m == 4:
                x, y, z, t = indices[lo], indices[lo + 1], indices[to], indices[to + 1]
                value, kl = two_by_two_entropic(pa[0], pb[0], cost[x, z], cost[x, t], cost[y, z], cost[y, t], reg)
                value += reg * kl if as_value else 0.0
                out[a - a0, b] = value if inv_p == 1.0 else value**inv_p
                continue
            if not keep:
                store[0] = np.nan
            if in_logs:
                gather(cost, indices, lo, n, to, m, part)
                biggest = np.max(part[: n * m])
            else:
                gather(kernel, indices, lo, n, to, m, plan)
                biggest = top
                if inv_p != 1.0:  # a root magnifies errors near 0, so they must scale with the block
                    biggest = max(-reg * np.log(np.min(plan[: n * m])), 0.0)
                cold = np.isnan(store[start])
                for j in range(m):
                    vec[Y, j] = pb[j] if cold else store[start + j]
            tol = _pair_tolerance(biggest, inv_p, accuracy, tightest, loosest)
            while True:
                if in_logs:
                    more, error = log_pair(
                        n, m, part, reg, pa, pb, logs, plan64, vec64, matrix, real, link, store, start, tol, limit
                    )
                    if as_value:
                        value = dual_value(n, m, pa, pb, logs[0], logs[1], reg)
                    else:
                        value = _plan_cost(n, m, plan64, part)
                else:
                    more, error = scale(n, m, plan, pa, pb, vec, matrix, tol, min(limit, _SCALINGS), _FAR)
                    if not error <= tol:  # stuck: begin again from the exact potentials, in the log domain
                        gather(cost, indices, lo, n, to, m, part)
                        fresh[0] = np.nan
                        again, error = log_pair(
                            n, m, part, reg, pa, pb, logs, plan64, vec64, matrix, real, link, fresh, 0, tol, limit
                        )
                        more += again
                        for j in range(m):
                            vec[Y, j] = np.exp(logs[1, j])
                        if as_value:
                            value = dual_value(n, m, pa, pb, logs[0], logs[1], reg)
                        else:
                            value = _plan_cost(n, m, plan64, part)
                    elif as_value:
                        _log_scalings(n, m, vec, logs)
                        value = dual_value(n, m, pa, pb, logs[0], logs[1], reg)
                    else:
                        value = _sharp_cost(n, m, plan, vec, cost, indices, lo, to)
                iterations += more
                missing = _root_error(value, error * biggest, inv_p)
                if missing <= accuracy or tol <= tightest or error > tol:
                    break
                tol = max(0.01 * tol, tightest)  # a root magnifies errors near 0
            if not in_logs:
                for j in range(m):
                    store[start + j] = vec[Y, j]
            if keep:
                start += m
            worst = max(worst, missing)
            out[a - a0, b] = value if inv_p == 1.0 else value**inv_p
    return iterations, worst
