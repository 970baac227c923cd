"""Transport inside a relative-entropy ball (the paper's primal Sinkhorn distance), and bounds on exact transport.

Bounds are rigorous, from entropic potentials.
"""

import numpy as np

from .arguments import Pair
from .jit import kernel, part
from .pairs import corners, gather, largest_of, product_cost, root_and_error, two_by_two, widest_support
from .scaling import LOG_X, LOG_Y, PLAN, solve_log, workspace
from .sinkhorn import dual_value, entropy_term, exact_cost, log_pair, relative_entropy, value_rounding

_EPS = float(np.finfo(np.float64).eps)
_BISECTIONS = 80


@part
def _two_by_two_rounding(value, a, b, costs):
    """How far `two_by_two` may be off."""
    return 8.0 * _EPS * (value + (min(a) + min(b)) * max(costs))


@part
def two_by_two_ball(a, b, costs, radius):
    """(least cost over 2 × 2 couplings with KL ≤ radius, how far it may be off).

    Columns are ordered so that mass should leave the diagonal. KL is convex in what has left it since a⊗b, and 0 there.
    """
    a0, a1 = a
    b0, b1 = b
    c00, c01, c10, c11 = costs
    if c00 + c11 < c01 + c10:
        b0, b1, c00, c01, c10, c11 = b1, b0, c01, c00, c11, c10
    good, bad = 0.0, min(a0 * b0, a1 * b1)
    if relative_entropy(a0, a1, b0, b1, bad) <= radius:
        value = two_by_two(a, b, costs)
        return value, _two_by_two_rounding(value, a, b, costs)
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


@part
def _next_trial(log_reg, miss, last_reg, last_miss, low, high):
    """The next log λ: KL is nearly a power of λ, so a secant in logs, kept inside (low, high)."""
    if np.isnan(last_reg):
        guess = log_reg + 0.7 * miss
    elif miss != last_miss:
        guess = log_reg - miss * (log_reg - last_reg) / (miss - last_miss)
    else:
        guess = np.inf
    return guess if low < guess < high else 0.5 * (low + high)


@part
def _rounded(pair, plan):
    """(⟨ω̃, C⟩, KL(ω̃ ‖ a⊗b)) of the plan made feasible: excess columns are cut, what is missing is spread."""
    part, a, b = pair
    n, m = len(a), len(b)
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


@part
def _far_start(kept, start, m, reg, top):
    """What the logarithms of a start add to `value_rounding`, which counts those up to 4 max C/λ."""
    far = 0.0
    if not np.isnan(kept[start]):
        for j in range(m):
            far = max(far, abs(kept[start + j]))
    return 2.0 * _EPS * reg * far if reg * far > 4.0 * top else 0.0


@part
def _ball_pair(pair, inv_p, ball, work, kept, start):
    """Search λ until KL = radius; returns (value, by how much the answer may be above it, iterations).

    For each λ, value_λ − λ·radius is a lower bound on the answer (Lagrange) and is returned at its
    best. Above: the plan made feasible, and mixed with the product plan, whose KL is 0, until its KL, which is
    convex, is within the radius. Between them lies the answer. Another lower bound is the cost of the product plan less
    max C √(radius/2) (Pinsker's inequality). kept[start] is log λ, kept[start + 1:] is log y.
    """
    part, a, b = pair
    n, m = len(a), len(b)
    radius, _, tol, limit, accuracy = ball
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
        from_logs = _far_start(kept, start + 1, m, reg, top)
        more, _ = log_pair(pair, reg, work, kept, start + 1, tol, limit)
        iterations += more
        cost, kl = _rounded(pair, work.squares[PLAN])
        lower = dual_value(a, b, work.vec, reg) - value_rounding(n, m, reg, top, _EPS) - from_logs
        best = max(best, lower - reg * radius)
        part_kept = min(1.0, radius / kl) if kl > 0.0 else 1.0
        upper = min(upper, part_kept * cost + (1.0 - part_kept) * product + 4.0 * _EPS * (n + m) * top)
        if kl <= radius:
            high = log_reg
        else:
            low = log_reg
        if high <= floor:  # the ball holds even this nearly exact plan: it does not bind
            exact, slack = exact_cost(pair, work, top)
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
def ball_block(rows, block, ground, ball, memory, halt, out):
    """Fill out with the least ‖d‖_{p,ω} over couplings with KL(ω ‖ a⊗b) ≤ radius.

    Where radius ≥ min(H(a), H(b)) every coupling is allowed and the answer is exact transport (the
    paper's lemma on equality); the caller has put that answer into `out`, and it is left alone. Stops early where
    halt[0] is set. Returns (iterations, largest error of an entry).
    """
    indptr, indices, probs = rows
    members, a0, a1, first, corner = block
    cost, inv_p = ground.cost, ground.inv_p
    kept, base = memory
    radius, entropies = ball.radius, ball.entropies
    widest = widest_support(indptr, members, a0)
    part, work = workspace(widest)
    keep = len(base) > 0
    store = kept if keep else np.empty(widest + 1, kept.dtype)
    iterations = 0
    worst = 0.0
    for a in range(a0, a1):
        lo, n = indptr[members[a]], indptr[members[a] + 1] - indptr[members[a]]
        start = base[a] if keep else 0
        for b in range(max(a + first, corner), len(members)):
            if halt[0]:
                return iterations, worst
            to, m = indptr[members[b]], indptr[members[b] + 1] - indptr[members[b]]
            pa, pb = probs[lo : lo + n], probs[to : to + m]
            if n == 1 or m == 1 or radius == 0.0:
                value = product_cost(probs, indices, lo, n, to, m, cost)
                above = below = (n + m + 4) * _EPS * value
            elif n + m == 4:
                costs = corners(cost, indices, lo, to)
                value, above = two_by_two_ball((pa[0], pa[1]), (pb[0], pb[1]), costs, radius)
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
                value, above, more = _ball_pair(Pair(part, pa, pb), inv_p, ball, work, store, start)
                below = 0.0
                iterations += more
                if keep:
                    start += m + 1
            out[a - a0, b - corner], error = root_and_error(value, above, below, inv_p)
            worst = max(worst, error)
    return iterations, worst


@part
def _transformed_value(pair, f):
    """⟨f, a⟩ + ⟨g, b⟩ after two C-transforms, which make any f dual feasible and improve it."""
    part, a, b = pair
    n, m = len(a), len(b)
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


@part
def _potentials_between(pair, potentials, top, kept, own, log_y):
    """λ of a pair, and log y from what is kept at `own`; own < 0: nothing is, and the product plan is the start."""
    b, reg = pair.b, potentials.reg
    known = own >= 0 and not np.isnan(kept[own])
    if potentials.own_reg:
        reg = np.exp(kept[own]) if known else 0.01 * top
        own += 1
    for j in range(len(b)):
        log_y[j] = np.log(b[j])
        if known:
            y = float(kept[own + j])
            log_y[j] = np.log(y) if potentials.scalings else y
    return reg


@part
def _entropic_bounds(pair, reg, work, tol, limit):
    """(lower bound on the exact cost, upper one) from the entropic plan of λ, rounding aside."""
    log_x, a = work.vec[LOG_X], pair.a
    solve_log(pair, reg, work, tol, limit)
    for i in range(len(a)):
        log_x[i] = reg * (log_x[i] - np.log(a[i]))
    high, _ = _rounded(pair, work.squares[PLAN])
    return max(_transformed_value(pair, log_x), 0.0), high


@kernel
def bounds_block(rows, block, ground, potentials, memory, halt, lower, upper):
    """Fill lower ≤ W_p ≤ upper for the pairs a < b of the block, from entropic potentials.

    What is kept is only read. Pairs without anything kept start from the product plan.
    """
    indptr, indices, probs = rows
    members, a0, a1, first, corner = block
    cost, top, inv_p = ground
    kept, base = memory
    part, work = workspace(widest_support(indptr, members, a0))
    keep = len(base) > 0
    for a in range(a0, a1):
        lo, n = indptr[members[a]], indptr[members[a] + 1] - indptr[members[a]]
        start = base[a] if keep else 0
        for b in range(max(a + first, corner), len(members)):
            if halt[0]:
                return
            to, m = indptr[members[b]], indptr[members[b] + 1] - indptr[members[b]]
            pa, pb = probs[lo : lo + n], probs[to : to + m]
            if n == 1 or m == 1:
                low = high = product_cost(probs, indices, lo, n, to, m, cost)
                slack = (n + m + 4) * _EPS * low
            elif n + m == 4:
                one, other, costs = (pa[0], pa[1]), (pb[0], pb[1]), corners(cost, indices, lo, to)
                low = high = two_by_two(one, other, costs)
                slack = _two_by_two_rounding(low, one, other, costs)
            else:
                own = start if keep else -1
                start += m + 1 if potentials.own_reg else m
                if b == a:
                    continue
                gather(cost, indices, lo, n, to, m, part)
                biggest = largest_of(part, n * m)
                slack = 4.0 * _EPS * (n + m) * biggest
                low = high = 0.0
                if biggest > 0.0:
                    pair = Pair(part, pa, pb)
                    reg = _potentials_between(pair, potentials, top, kept, own, work.vec[LOG_Y])
                    reg = max(reg, 1e-8 * biggest)  # smaller ones lose their digits
                    low, high = _entropic_bounds(pair, reg, work, potentials.tol, potentials.iterations)
            if b > a:
                low, high = max(low - slack, 0.0), high + slack
                lower[a - a0, b - corner] = low if inv_p == 1.0 else low**inv_p
                upper[a - a0, b - corner] = high if inv_p == 1.0 else high**inv_p
