"""Entropic transport over blocks of pairs: Sinkhorn distances.

All pairs share one ground cost C = d^p [S, S] and one kernel K = exp(−C/λ), made once a sweep. A pair
gathers its n × m part. The column scalings y (or log y, where K would underflow) are kept per pair.

Limits. Where λ is a billionth of the pair's largest cost, exponents have lost their digits, and where it is ten million
times as large, so has λ times a sum of logarithms near 0. But

    W ≤ sharp cost ≤ value ≤ W + λ log min(n, m),        ⟨a⊗b, C⟩ − (max C)²/(8λ) ≤ value ≤ ⟨a⊗b, C⟩

(the entropy of a plan is at most that of a marginal; Hoeffding's lemma for the Gibbs form of the minimum without
constraints), so the exact cost and that of the product plan take over there, with these errors.
"""

import numpy as np

from . import simplex
from .arguments import Pair, Stop
from .jit import inlined, kernel, part
from .pairs import corners, gather, largest_of, product_cost, root_and_error, widest_support
from .scaling import (
    LARGEST_ERROR,
    LOG_X,
    LOG_Y,
    NEXT,
    PLAN,
    Q,
    X,
    Y,
    exact_start,
    scale,
    set_masses,
    solve_log,
    vectors,
    workspace,
)
from .spanning_tree import unread_tree

_EPS = float(np.finfo(np.float64).eps)
_FAR = np.inf  # a safe kernel bounds x and y but for the masses, which may be as small as they like
_WARM_LIMIT = 60
_SCALINGS = 2000  # before a pair is begun again in the log domain
_NEARLY_EXACT = 1e9  # times λ: largest cost above which exact transport takes over


@part
def excess(x):
    """(1 + x) log(1 + x) − x for x ≥ −1, to full relative precision also near 0 (x²/2 − x³/6 + …)."""
    if abs(x) > 0.03:
        return (1.0 + x) * np.log1p(x) - x if x > -1.0 else 1.0
    total, power = 0.0, x * x
    for k in range(2, 12):
        total += power / (k * (k - 1))
        power *= -x
    return total


@part
def entropy_term(mass, u, v):
    """mass log(mass/uv) − mass + uv ≥ 0: what an entry adds to KL(ω ‖ a⊗b) where both have the same total."""
    if not mass > 0.0:
        return u * v
    x = mass / u / v - 1.0
    if abs(x) <= 0.03:
        return u * v * excess(x)
    return mass * (np.log(mass / u) - np.log(v)) - mass + u * v


@part
def relative_entropy(a0, a1, b0, b1, shift):
    """KL(ω ‖ a⊗b) of the 2 × 2 plan that has `shift` less than a⊗b on the diagonal, and as much more beside it."""
    total = 0.0
    for mass, x in ((a0 * b0, -shift), (a1 * b1, -shift), (a0 * b1, shift), (a1 * b0, shift)):
        if mass > 0.0:
            total += mass * excess(max(x / mass, -1.0))
    return total


@part
def two_by_two_entropic(a, b, costs, reg):
    """(⟨ω, C⟩, KL) of the entropic plan between (a0, a1) and (b0, b1), all to full relative precision.

    The odds ratio of ω is κ = exp(−(c00 + c11 − c01 − c10)/λ). Rows and columns are ordered so that κ ≤ 1 and
    a0 + b0 ≤ 1. The mass t on (0, 0) then solves t (s + t) = κ (a0 − t)(b0 − t) with s = a1 − b0 ≥ 0, and what the plan
    has less there than a⊗b, δ = a0 b0 − t, solves δ = (1 − κ)(a0 b1 + δ)(a1 b0 + δ): sums of positive terms only.
    """
    a0, a1 = a
    b0, b1 = b
    c00, c01, c10, c11 = costs
    if c00 + c11 < c01 + c10:
        b0, b1, c00, c01, c10, c11 = b1, b0, c01, c00, c11, c10
    if a0 + b0 > a1 + b1:
        a0, a1, b0, b1, c00, c01, c10, c11 = a1, a0, b1, b0, c11, c10, c01, c00
    gain = (c00 + c11 - c01 - c10) / reg
    odds, less = np.exp(-gain), -np.expm1(-gain)
    rest = max(a1 - b0, 0.0)
    half = rest + odds * (a0 + b0)
    t = 0.0
    if half > 0.0:
        t = 2.0 * odds * a0 * b0 / (half + np.sqrt(half * half + 4.0 * less * odds * a0 * b0))
    one, other = a0 * b1, a1 * b0
    half = max(1.0 - less * (one + other), 0.0)
    shift = 2.0 * less * one * other / (half + np.sqrt(max(half * half - 4.0 * less * less * one * other, 0.0)))
    if not shift <= a0 * b0:  # all of the diagonal
        shift = a0 * b0
    cost = t * c00 + (one + shift) * c01 + (other + shift) * c10 + (rest + t) * c11
    return cost, relative_entropy(a0, a1, b0, b1, shift)


@part
def dual_value(a, b, vec, reg):
    """⟨f, a⟩ + ⟨g, b⟩ with f = λ log(x/a), g = λ log(y'/b)."""
    total = 0.0
    for i in range(len(a)):
        total += a[i] * (vec[LOG_X, i] - np.log(a[i]))
    for j in range(len(b)):
        total += b[j] * (vec[LOG_Y, j] - np.log(b[j]))
    return max(reg * total, 0.0)


@part
def value_rounding(n, m, reg, top, eps):
    """What rounding may do to `dual_value`: each logarithm is of a sum of n or m terms, λ times a number near 0."""
    return eps * (reg * (n + m + 8) + 8.0 * top)


@part
def log_pair(pair, reg, work, kept, start, tol, limit):
    """Solve one pair in the log domain from what is kept, or from the exact potentials.

    Where costs changed by many λ, what is kept is a poor start, which would need about one step for each λ:
    it is given up after a few.
    """
    vec, m = work.vec, len(pair.b)
    done, error = 0, np.inf
    if not np.isnan(kept[start]):
        for j in range(m):
            vec[LOG_Y, j] = kept[start + j]
        done, error = solve_log(pair, reg, work, tol, min(limit, _WARM_LIMIT))
    if not error <= tol:
        exact_start(pair, reg, work.real, work.link, vec)
        more, error = solve_log(pair, reg, work, tol, limit)
        done += more
    for j in range(m):
        kept[start + j] = vec[LOG_Y, j]
    return done, error


@part
def _pair_tolerance(biggest, inv_p, limits):
    """Marginal error at which W is about as exact as it is wanted, where costs reach `biggest`."""
    share = 0.9 if inv_p == 1.0 else 0.2
    return max(min(limits.loosest, share * limits.accuracy / biggest**inv_p), limits.tightest)


@part
def _plan_cost(n, m, plan, part):
    total = 0.0
    for k in range(n * m):
        total += plan[k] * part[k]
    return total


@part
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


@part
def _scaled_value(n, m, a, b, vec, reg):
    """`dual_value` from scalings: x and the column sums."""
    total = 0.0
    for i in range(n):
        total += a[i] * np.log(vec[X, i] / a[i])
    for j in range(m):
        total -= b[j] * np.log(vec[Q, j])
    return max(reg * total, 0.0)


@part
def _product(pair):
    """⟨a⊗b, C⟩."""
    cost, a, b = pair
    value = 0.0
    for i in range(len(a)):
        for j in range(len(b)):
            value += a[i] * b[j] * cost[i * len(b) + j]
    return value


@part
def exact_cost(pair, work, top):
    """(cost of an optimal plan, how far that may be from the optimum)."""
    n, m = len(pair.a), len(pair.b)
    set_masses(work.real, pair.a, pair.b)
    tol = simplex.PRICING * top
    value, _ = simplex.solve(n, m, pair.cost, work.real, work.link, unread_tree(n, m), 0, tol)
    return value, tol + 4.0 * _EPS * (n + m) * top


@part
def _nearly_product(value, biggest, reg, inv_p):
    """(entry, its error) where λ is so large that the product plan's cost is that of the entropic one."""
    return root_and_error(value, 8.0 * _EPS * value, biggest * biggest / (8.0 * reg) + 8.0 * _EPS * value, inv_p)


@inlined
def _pair_in_logs(pair, inv_p, scalings, limits, work, kept, start):
    """(entry, its error, iterations) of a pair whose kernel would underflow."""
    part, pa, pb = pair
    n, m, reg, as_value = len(pa), len(pb), scalings.reg, scalings.as_value
    biggest = largest_of(part, n * m)
    rounding = value_rounding(n, m, reg, biggest, limits.eps) if as_value else 0.0
    iterations = 0
    if as_value and biggest * biggest <= 8.0 * reg * rounding:
        root, missing = _nearly_product(_product(pair), biggest, reg, inv_p)
    elif biggest > _NEARLY_EXACT * reg:
        value, slack = exact_cost(pair, work, biggest)
        root, missing = root_and_error(value, reg * np.log(min(n, m)) + slack, slack, inv_p)
    else:
        tol = _pair_tolerance(biggest, inv_p, limits)
        while True:
            more, error = log_pair(pair, reg, work, kept, start, tol, limits.iterations)
            iterations += more
            value = dual_value(pa, pb, work.vec, reg) if as_value else _plan_cost(n, m, work.squares[PLAN], part)
            slack = min(error + (n + m) * limits.eps, LARGEST_ERROR) * biggest
            root, missing = root_and_error(value, slack + rounding, rounding if as_value else slack, inv_p)
            if missing <= limits.accuracy or tol <= limits.tightest or error > tol:
                break
            tol = max(0.01 * tol, limits.tightest)  # a root magnifies errors near 0
    return root, missing, iterations


@part
def _begun_again(pair, scalings, work, tol, limit, vec):
    """Solve a pair whose scalings are stuck from the exact potentials, in the log domain; y and y' go to `vec`.

    Returns (value or cost, error of the columns, iterations).
    """
    nothing = np.full(len(pair.b), np.nan)
    done, error = log_pair(pair, scalings.reg, work, nothing, 0, tol, limit)
    for j in range(len(pair.b)):
        vec[Y, j] = np.exp(work.vec[LOG_Y, j])
        vec[NEXT, j] = vec[Y, j]
    if scalings.as_value:
        return dual_value(pair.a, pair.b, work.vec, scalings.reg), error, done
    return _plan_cost(len(pair.a), len(pair.b), work.squares[PLAN], pair.cost), error, done


@part
def _two_by_two(probs, indices, lo, to, cost, reg, as_value):
    """The cost, or the value, between two supports of two states."""
    costs = corners(cost, indices, lo, to)
    value, kl = two_by_two_entropic((probs[lo], probs[lo + 1]), (probs[to], probs[to + 1]), costs, reg)
    return value + reg * kl if as_value else value


@part
def _largest_cost(plan, reg, eps):
    """The largest cost of a pair, or a little more, from its part of the kernel."""
    return reg * (4.0 * eps - (1.0 + 4.0 * eps) * np.log(np.min(plan)))


@kernel
def sinkhorn_block(rows, block, ground, scalings, limits, memory, halt, out):
    """Fill out[a − a0, b − corner] with the Sinkhorn distance of the pairs of the block.

    A plan has exact rows and columns within L1 error e of b; the module `scaling` shows that its value is then at most
    e·max C below the true one. Stops early where halt[0] is set.
    Returns (iterations, largest error of an entry by this bound; for the sharp cost an estimate).
    """
    # Scalings stand here, not in a function of their own: counting references to its arguments would take as long.
    indptr, indices, probs = rows
    members, a0, a1, first, corner = block
    cost, top, inv_p = ground
    kernel, reg, in_logs, as_value = scalings
    accuracy, tightest, _, limit, eps = limits
    kept, base = memory
    widest = widest_support(indptr, members, a0)
    plan = np.empty(widest * widest, kernel.dtype)
    vec, turned, matrix = vectors(widest, kernel)
    part, work = workspace(widest)
    keep = len(base) > 0
    store = kept if keep else np.empty(widest, kept.dtype)
    iterations, worst = 0, 0.0
    for a in range(a0, a1):
        lo, n = indptr[members[a]], indptr[members[a] + 1] - indptr[members[a]]
        pa = probs[lo : lo + n]
        start = base[a] if keep else 0
        for b in range(max(a + first, corner), len(members)):
            if halt[0]:
                return iterations, worst
            to, m = indptr[members[b]], indptr[members[b] + 1] - indptr[members[b]]
            pb = probs[to : to + m]
            if n == 1 or m == 1 or n + m == 4:
                if n == 1 or m == 1:
                    value = product_cost(probs, indices, lo, n, to, m, cost)
                else:
                    value = _two_by_two(probs, indices, lo, to, cost, reg, as_value)
                out[a - a0, b - corner], missing = root_and_error(
                    value, 32.0 * _EPS * value, 32.0 * _EPS * value, inv_p
                )
                worst = max(worst, missing)
                continue
            own = start  # where this pair's state is
            if keep:
                start += m
            else:
                store[0] = np.nan
            if in_logs:
                gather(cost, indices, lo, n, to, m, part)
                pair = Pair(part, pa, pb)
                out[a - a0, b - corner], missing, more = _pair_in_logs(pair, inv_p, scalings, limits, work, store, own)
                iterations += more
                worst = max(worst, missing)
                continue
            gather(kernel, indices, lo, n, to, m, plan)
            # A root magnifies errors near 0, so they must scale with the pair's costs.
            biggest = top if inv_p == 1.0 else min(top, _largest_cost(plan[: n * m], reg, eps))
            rounding = value_rounding(n, m, reg, biggest, eps) if as_value else 0.0
            if as_value and biggest * biggest <= 8.0 * reg * rounding:
                value = product_cost(probs, indices, lo, n, to, m, cost)
                out[a - a0, b - corner], missing = _nearly_product(value, biggest, reg, inv_p)
                worst = max(worst, missing)
                continue
            cold = np.isnan(store[own])
            for j in range(m):
                vec[Y, j] = pb[j] if cold else store[own + j]
            tol = _pair_tolerance(biggest, inv_p, limits)
            while True:
                more, error = scale(plan, pa, pb, vec, turned, matrix, Stop(tol, min(limit, _SCALINGS), _FAR))
                iterations += more
                if not error <= tol:
                    gather(cost, indices, lo, n, to, m, part)
                    value, error, more = _begun_again(Pair(part, pa, pb), scalings, work, tol, limit, vec)
                    iterations += more
                elif as_value:
                    value = _scaled_value(n, m, pa, pb, vec, reg)
                else:
                    value = _sharp_cost(n, m, plan, vec, cost, indices, lo, to)
                slack = min(error + (n + m) * eps, LARGEST_ERROR) * biggest
                root, missing = root_and_error(value, slack + rounding, rounding if as_value else slack, inv_p)
                if missing <= accuracy or tol <= tightest or error > tol:
                    break
                tol = max(0.01 * tol, tightest)  # a root magnifies errors near 0
            for j in range(m):
                store[own + j] = vec[NEXT, j]
            worst = max(worst, missing)
            out[a - a0, b - corner] = root
    return iterations, worst
