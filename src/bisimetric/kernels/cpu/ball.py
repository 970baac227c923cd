"""Transport inside a relative-entropy ball (the paper's primal Sinkhorn distance), and rigorous
bounds on exact transport from entropic potentials."""

import numpy as np

from . import simplex
from .jit import kernel
from .scaling import solve_log, vectors
from .simplex import root_and_error
from .sinkhorn import (
    dual_value,
    entropy_term,
    exact_cost,
    gather,
    log_pair,
    product_cost,
    relative_entropy,
    value_rounding,
    widest_support,
)
from .spanning_tree import scratch

_EPS = float(np.finfo(np.float64).eps)
_BISECTIONS = 80


@kernel
def two_by_two_ball(a0, a1, b0, b1, c00, c01, c10, c11, radius):
    """(least cost over 2 × 2 couplings with KL ≤ radius, how far it may be off).

    Columns are ordered so that mass should leave the diagonal. KL is convex in what has left it since a⊗b, and 0 there.
    """
    if c00 + c11 < c01 + c10:
        b0, b1, c00, c01, c10, c11 = b1, b0, c01, c00, c11, c10
    good, bad = 0.0, min(a0 * b0, a1 * b1)
    if relative_entropy(a0, a1, b0, b1, bad) <= radius:
        value = simplex.two_by_two(a0, a1, b0, b1, c00, c01, c10, c11)
        return value, 8.0 * _EPS * (value + (min(a0, a1) + min(b0, b1)) * max(c00, c01, c10, c11))
    for _ in range(_BISECTIONS):
        shift = 0.5 * (good + bad)
        if relative_entropy(a0, a1, b0, b1, shift) <= radius:
            good = shift
        else:
            bad = shift
    diagonal = max(a0 * b0 - good, 0.0) * c00 + max(a1 * b1 - good, 0.0) * c11
    value = diagonal + (a0 * b1 + good) * c01 + (a1 * b0 + good) * c10
    off = bad - good + 8.0 * _EPS * good
    return value, off * (c00 + c11 - c01 - c10) + 8.0 * _EPS * value


@kernel
def _next_trial(log_reg, miss, last_reg, last_miss, low, high):
    """The next log λ: KL is nearly a power of λ, so a secant in logs, kept inside (low, high)."""
    if np.isnan(last_reg):
        guess = log_reg + 0.7 * miss
    elif miss != last_miss:
        guess = log_reg - miss * (log_reg - last_reg) / (miss - last_miss)
    else:
        guess = np.inf
    return guess if low < guess < high else 0.5 * (low + high)


@kernel
def _rounded(n, m, part, a, b, plan):
    """(⟨ω̃, C⟩, KL(ω̃ ‖ a⊗b)) of the plan made feasible: excess columns are cut, what is missing is spread."""
    columns = np.zeros(m)
    for i in range(n):
        for j in range(m):
            columns[j] += plan[i * m + j]
    for j in range(m):
        columns[j] = min(1.0, b[j] / columns[j]) if columns[j] > 0.0 else 0.0
    short_a, short_b = a.copy(), b.copy()
    for i in range(n):
        for j in range(m):
            mass = plan[i * m + j] * columns[j]
            short_a[i] -= mass
            short_b[j] -= mass
    missing = 0.0
    for i in range(n):
        short_a[i] = max(short_a[i], 0.0)
        missing += short_a[i]
    cost, kl = 0.0, 0.0
    for i in range(n):
        for j in range(m):
            mass = plan[i * m + j] * columns[j]
            if missing > 0.0:
                mass += short_a[i] * max(short_b[j], 0.0) / missing
            cost += mass * part[i * m + j]
            kl += entropy_term(mass, a[i], b[j])
    return cost, kl


@kernel
def _ball_pair(
    n, m, part, radius, a, b, logs, plan, vec, turned, matrix, real, link, kept, start, inv_p, tol, limit, accuracy
):  # fmt: skip
    """Search λ until KL = radius; returns (value, by how much the answer may be above it, iterations).

    For each λ, value_λ − λ·radius is a lower bound on the answer (Lagrange) and is returned at its
    best. Above: the plan made feasible, and mixed with the product plan, whose KL is 0, until its KL, which is
    convex, is within the radius. Between them lies the answer. Another lower bound is the cost of the product plan less
    max C √(radius/2) (Pinsker's inequality). kept[start] is log λ, kept[start + 1:] is log y.
    """
    product, top = 0.0, 0.0
    for i in range(n):
        for j in range(m):
            product += a[i] * b[j] * part[i * m + j]
            top = max(top, part[i * m + j])
    if top == 0.0:
        return 0.0, 0.0, 0
    # Below the floor a plan costs at most λ (log n + log m) more than the exact one.
    least = 0.3 * accuracy / (np.log(n) + np.log(m))
    floor, ceiling = np.log(min(max(least, 1e-8 * top), 1e-3 * top)), np.log(1e7 * top)
    low, high = floor, ceiling
    log_reg = min(max(kept[start], floor), ceiling) if not np.isnan(kept[start]) else np.log(0.1 * top)
    upper = product * (1.0 + (n + m) * _EPS)
    best = max(product - top * np.sqrt(0.5 * radius) - (upper - product), 0.0)
    iterations = 0
    last_reg, last_miss = np.nan, np.nan
    for _ in range(80):
        if root_and_error(best, upper - best, 0.0, inv_p)[1] <= accuracy or high - low < 1e-14:
            break
        reg = np.exp(log_reg)
        more, _ = log_pair(
            n, m, part, reg, a, b, logs, plan, vec, turned, matrix, real, link, kept, start + 1, tol, limit
        )
        iterations += more
        cost, kl = _rounded(n, m, part, a, b, plan)
        lower = dual_value(n, m, a, b, logs[0], logs[1], reg) - value_rounding(n, m, reg, top, _EPS)
        best = max(best, lower - reg * radius)
        part_kept = min(1.0, radius / kl) if kl > 0.0 else 1.0
        upper = min(upper, part_kept * cost + (1.0 - part_kept) * product + 4.0 * _EPS * (n + m) * top)
        if kl <= radius:
            high = log_reg
        else:
            low = log_reg
        if high <= floor:  # the ball holds even this nearly exact plan: it does not bind
            exact, slack = exact_cost(n, m, part, a, b, real, link, top)
            best = max(best, exact - slack)
            break
        miss = np.log(max(kl, 1e-300) / radius)
        guess = _next_trial(log_reg, miss, last_reg, last_miss, low, high)
        if low == floor and guess < floor + 1.0:
            guess = floor
        last_reg, last_miss = log_reg, miss
        for j in range(m):  # potentials, not scalings, carry over to another λ
            kept[start + 1 + j] = np.log(b[j]) + (kept[start + 1 + j] - np.log(b[j])) * np.exp(log_reg - guess)
        log_reg = guess
    kept[start] = log_reg
    best = min(best, upper)
    return best, upper - best, iterations


@kernel
def ball_block(
    indptr, indices, probs, members, a0, a1, cost, radius, entropies, inv_p, tol, limit, accuracy,
    first, kept, base, halt, out,
):  # fmt: skip
    """Fill out with the least ‖d‖_{p,ω} over couplings with KL(ω ‖ a⊗b) ≤ radius.

    Where radius ≥ min(H(a), H(b)) every coupling is allowed and the answer is exact transport (the
    paper's lemma on equality); the caller has put that answer into `out`, and it is left alone. `accuracy` is that of
    an entry. Stops early where halt[0] is set. Returns (iterations, largest error of an entry).
    """
    widest = widest_support(indptr, members, a0)
    part, real, link = scratch(widest)
    vec, turned, matrix = vectors(widest, part)
    plan = np.empty(widest * widest)
    logs = np.empty((2, widest))
    keep = len(base) > 0
    store = kept if keep else np.empty(widest + 1, kept.dtype)
    iterations = 0
    worst = 0.0
    for a in range(a0, a1):
        lo, n = indptr[members[a]], indptr[members[a] + 1] - indptr[members[a]]
        start = base[a] if keep else 0
        for b in range(a + first, len(members)):
            if halt[0]:
                return iterations, worst
            to, m = indptr[members[b]], indptr[members[b] + 1] - indptr[members[b]]
            pa, pb = probs[lo : lo + n], probs[to : to + m]
            if n == 1 or m == 1 or radius == 0.0:
                value = product_cost(probs, indices, lo, n, to, m, cost)
                above = below = (n + m + 4) * _EPS * value
            elif n + m == 4:
                x, y, z, t = indices[lo], indices[lo + 1], indices[to], indices[to + 1]
                value, above = two_by_two_ball(
                    pa[0], pa[1], pb[0], pb[1], cost[x, z], cost[x, t], cost[y, z], cost[y, t], radius
                )
                below = above
            elif radius >= min(entropies[members[a]], entropies[members[b]]):
                if keep:
                    start += m + 1
                continue
            else:
                if not keep:
                    store[0] = np.nan
                    store[1] = np.nan
                gather(cost, indices, lo, n, to, m, part)
                value, above, more = _ball_pair(
                    n, m, part, radius, pa, pb, logs, plan, vec, turned, matrix, real, link, store, start, inv_p,
                    tol, limit, accuracy,
                )  # fmt: skip
                below = 0.0
                iterations += more
                if keep:
                    start += m + 1
            out[a - a0, b], error = root_and_error(value, above, below, inv_p)
            worst = max(worst, error)
    return iterations, worst


@kernel
def _transformed_value(n, m, part, a, b, f):
    """⟨f, a⟩ + ⟨g, b⟩ after two C-transforms, which make any f dual feasible and improve it."""
    total = 0.0
    g = np.full(m, np.inf)
    for i in range(n):
        for j in range(m):
            g[j] = min(g[j], part[i * m + j] - f[i])
    for j in range(m):
        total += b[j] * g[j]
    for i in range(n):
        low = np.inf
        for j in range(m):
            low = min(low, part[i * m + j] - g[j])
        total += a[i] * low
    return total


@kernel
def bounds_block(
    indptr, indices, probs, members, a0, a1, cost, reg, own_reg, scalings, inv_p, top, tol, limit,
    first, kept, base, halt, lower, upper,
):  # fmt: skip
    """Fill lower ≤ W_p ≤ upper for a0 ≤ a < a1, b > a, from entropic potentials.

    `kept` holds y (where `scalings`) or log y; where `own_reg`, each pair's log λ comes before it.
    It is only read. Pairs without anything kept start from the product plan.
    """
    widest = widest_support(indptr, members, a0)
    part, _, _ = scratch(widest)
    vec, turned, matrix = vectors(widest, part)
    plan = np.empty(widest * widest)
    logs = np.empty((2, widest))
    keep = len(base) > 0
    for a in range(a0, a1):
        lo, n = indptr[members[a]], indptr[members[a] + 1] - indptr[members[a]]
        start = base[a] if keep else 0
        for b in range(a + first, len(members)):
            if halt[0]:
                return
            to, m = indptr[members[b]], indptr[members[b] + 1] - indptr[members[b]]
            pa, pb = probs[lo : lo + n], probs[to : to + m]
            if n == 1 or m == 1:
                low = product_cost(probs, indices, lo, n, to, m, cost)
                high = low
                slack = (n + m + 4) * _EPS * low
            elif n + m == 4:
                x, y, z, t = indices[lo], indices[lo + 1], indices[to], indices[to + 1]
                c00, c01, c10, c11 = cost[x, z], cost[x, t], cost[y, z], cost[y, t]
                low = simplex.two_by_two(pa[0], pa[1], pb[0], pb[1], c00, c01, c10, c11)
                high = low
                slack = 8.0 * _EPS * (low + (min(pa[0], pa[1]) + min(pb[0], pb[1])) * max(c00, c01, c10, c11))
            else:
                gather(cost, indices, lo, n, to, m, part)
                biggest = np.max(part[: n * m])
                slack = 4.0 * _EPS * (n + m) * biggest
                own = start
                start += m + 1 if own_reg else m
                if b == a:
                    continue
                known = keep and not np.isnan(kept[own])
                strength = reg
                if own_reg:
                    strength = np.exp(kept[own]) if known else 0.01 * top
                    own += 1
                strength = max(strength, 1e-8 * biggest)  # smaller ones lose their digits
                for j in range(m):
                    logs[1, j] = np.log(pb[j])
                    if known:
                        y = float(kept[own + j])
                        logs[1, j] = np.log(y) if scalings else y
                if biggest > 0.0:
                    solve_log(n, m, part, strength, pa, pb, logs[0], logs[1], plan, vec, turned, matrix, tol, limit)
                    for i in range(n):
                        logs[0, i] = strength * (logs[0, i] - np.log(pa[i]))
                    low = max(_transformed_value(n, m, part, pa, pb, logs[0]), 0.0)
                    high, _ = _rounded(n, m, part, pa, pb, plan)
                else:
                    low, high = 0.0, 0.0
            if b > a:
                low, high = max(low - slack, 0.0), high + slack
                lower[a - a0, b] = low if inv_p == 1.0 else low**inv_p
                upper[a - a0, b] = high if inv_p == 1.0 else high**inv_p
