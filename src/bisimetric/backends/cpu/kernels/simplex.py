"""Exact transport between small distributions: a network simplex that restarts.

The transportation problem  min ⟨ω, C⟩  over couplings ω of a [n] and b [m] is a network flow. A
spanning tree is optimal where none of its flows is negative and no reduced cost C_ij − u_i − v_j is.

Between two sweeps of a metric C changes little, so each pair's last optimal tree is kept, as
n + m − 1 (node, parent) entries that are read back in two linear passes. Where only C changed, the
flows are still feasible and primal pivots finish the job. Where the marginals changed too, flows
may be negative: costs are first raised so that the tree is dual feasible, dual pivots remove the
negative flows, and primal pivots go on with the true costs.

Pricing looks at one row of C at a time, round robin, and takes its best arc (a block search with
blocks of about the square root of the number of arcs). Leaving arcs follow Cunningham's rule, which
keeps trees strongly feasible and so prevents cycling from a cold start; a cap on pivots with
Bland's rule behind it covers restarts.

Errors. With p = 1 a value is off by at most `tol` for the pricing and a few units of round-off of the largest cost for
each node (flows and potentials are sums along the tree). For p > 1 a root follows, which magnifies what is off near 0
to its p-th root, so `certified_value` works flows and potentials of the final tree out again in twice the precision.
"""

import numpy as np

from .jit import kernel, minima_part, part
from .pairs import (
    EPS,
    PRICING,
    corners,
    crosses,
    largest_of,
    product_cost,
    root_and_error,
    two_by_two,
    widest_support,
)
from .small_simplex import pivot_small
from .small_supports import FAR, WIDEST, settle_row, small_scratch
from .spanning_tree import (
    DEPTH,
    FLOW,
    FLOW_REST,
    MARK,
    MASS,
    MASS_REST,
    ORDER,
    PARENT,
    POT,
    POT_REST,
    cold_tree,
    exchange,
    link_children,
    next_below,
    push,
    read_tree,
    scratch,
    set_flows,
    set_order,
    set_potentials,
    write_tree,
)

STRAIGHT, CROSSED = 1, 2  # what is kept of two states a side: which diagonal took all that it could


@minima_part
def _row_minimum(cost, start, real, n, m):
    low = np.inf
    for j in range(m):
        low = min(low, cost[start + j] - real[POT, n + j])
    return low


@part
def _primal_pivot(n, real, link, i, j, reduced, bland):
    """Let the arc (row i, column j) enter and keep the flows feasible."""
    x, y = i, j
    theta = np.inf
    cut = -1
    on_i = True
    # The cycle runs from the common ancestor down to i, across to j and up again. Rows on i's side
    # and columns on j's side lose flow. The last blocking arc of the cycle leaves.
    while x != y:
        if link[DEPTH, x] >= link[DEPTH, y]:
            flow = real[FLOW, x]
            if x < n and (flow < theta or (bland and flow == theta and x < cut)):
                theta, cut, on_i = flow, x, True
            x = link[PARENT, x]
        else:
            flow = real[FLOW, y]
            if y >= n and (flow < theta or (flow == theta and (not bland or y < cut))):
                theta, cut, on_i = flow, y, False
            y = link[PARENT, y]
    theta = max(theta, 0.0)
    push(n, real, link, i, j, theta)
    if on_i:
        exchange(n, real, link, cut, i, j, theta, reduced)
    else:
        exchange(n, real, link, cut, j, i, theta, reduced)


@part
def _primal(n, m, cost, real, link, tol):
    """Pivot until no reduced cost is below −tol; returns the number of pivots."""
    pivots = 0
    patience = 200 + 40 * (n + m)
    row = 0
    clean = 0  # rows seen since the last pivot
    while clean < n:
        low = real[POT, row] - tol
        if _row_minimum(cost, row * m, real, n, m) >= low:
            clean += 1
            row = row + 1 if row + 1 < n else 0
            continue
        if pivots == 0:
            link_children(n, m, link)
        bland = pivots > patience
        best = -1
        for j in range(m):
            value = cost[row * m + j] - real[POT, n + j]
            if value < low and not (bland and best >= 0):
                low, best = value, j
        _primal_pivot(n, real, link, row, n + best, low - real[POT, row], bland)
        pivots += 1
        clean = 0
        if bland:
            row = 0
        if pivots > 50 * patience:  # not seen; the answer is still feasible
            break
    if pivots > 0:
        set_order(n, m, link)
    return pivots


@part
def _dual_arc(n, m, raised, real, link, below):
    """The arc of least reduced cost from a row outside the side `below` to a column on it.

    `below` is the side (1: marked, 0: not) that holds the row of the arc to be removed: its flow
    is negative, so mass must cross the other way.
    """
    low = np.inf
    row, column = -1, -1
    for i in range(n):
        if link[MARK, i] == below:
            continue
        for j in range(m):
            reduced = raised[i * m + j] - real[POT, i] - real[POT, n + j]
            if link[MARK, n + j] == below and reduced < low:
                low, row, column = reduced, i, n + j
    return row, column, low


@part
def _dual(n, m, cost, real, link, slack):
    """Remove negative flows under costs raised so that the tree is dual feasible.

    Returns False where it gives up (the caller then starts cold).
    """
    raised = np.empty(n * m)
    for i in range(n):
        for j in range(m):
            raised[i * m + j] = max(cost[i * m + j], real[POT, i] + real[POT, n + j])
    link_children(n, m, link)
    for _ in range(4 * (n + m)):
        cut = 1
        for v in range(1, n + m):
            link[MARK, v] = 0
            if real[FLOW, v] < real[FLOW, cut]:
                cut = v
        if real[FLOW, cut] >= -slack:
            set_order(n, m, link)
            return True
        link[MARK, 0] = 0
        v = cut
        while v >= 0:
            link[MARK, v] = 1
            v = next_below(link, v, cut)
        row, column, reduced = _dual_arc(n, m, raised, real, link, 1 if cut < n else 0)
        if row < 0:
            return False
        amount = -real[FLOW, cut]
        push(n, real, link, row, column, amount)
        if link[MARK, row] == 1:
            exchange(n, real, link, cut, row, column, amount, reduced)
        else:
            exchange(n, real, link, cut, column, row, amount, reduced)
    return False


@part
def solve(n, m, cost, real, link, kept, start, tol):
    """Solve the problem in `cost` and real[MASS]; returns (optimum, pivots).

    `kept[start:]` holds the last tree of this pair, or 0 at its first place, and receives the new
    one. The potentials left in real[POT] are feasible up to `tol`, so the value returned is at
    most `tol` above the true optimum, and never below it, rounding aside.
    """
    changed = not read_tree(n, m, link, kept, start)
    if changed:
        cold_tree(n, m, cost, real, link)
        set_potentials(n, m, cost, real, link)
    else:
        slack = 1e-15 * (n + m)
        set_potentials(n, m, cost, real, link)
        if set_flows(n, m, real, link) < -slack:
            changed = True
            if not _dual(n, m, cost, real, link, slack):
                cold_tree(n, m, cost, real, link)
            set_potentials(n, m, cost, real, link)
            set_flows(n, m, real, link)
    pivots, done = 0, False
    if n <= WIDEST and m <= WIDEST:
        pivots, done = pivot_small(n, m, cost, real, link, tol)
    if not done:
        pivots += _primal(n, m, cost, real, link, tol)
    if changed or pivots > 0:
        write_tree(n, m, link, kept, start)
    value = 0.0  # a sum of non-negative terms, so that equal rows come out at exactly 0
    for v in range(1, n + m):
        above = link[PARENT, v]
        k = v * m + above - n if v < n else above * m + v - n
        value += max(real[FLOW, v], 0.0) * cost[k]
    return value, pivots


@part
def _two_sum(a, b):
    """a + b and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@part
def _add(high, low, other_high, other_low):
    """The sum of two numbers of twice the precision."""
    total, error = _two_sum(high, other_high)
    error += low + other_low
    result = total + error
    return result, error - (result - total)


@kernel
def row_defects(indptr, probs, out):
    """out = 1 − the sum of each row, exactly: what normalised rows lack or have too much."""
    for row in range(len(out)):
        high, low = 1.0, 0.0
        for k in range(indptr[row], indptr[row + 1]):
            high, low = _add(high, low, -probs[k], 0.0)
        out[row] = high + low


@part
def certified_value(n, m, cost, real, link):
    """(value, by how much the optimum may be above it, or below) of the tree that `solve` left.

    Masses are real[MASS] + real[MASS_REST]. In exact arithmetic the flows' cost is the dual value of the potentials,
    so the optimum is at most the cost of the positive flows plus the largest cost times the mass of the negative ones
    (which is re-routed), and at least the cost of all flows less the largest violation of a reduced cost.
    """
    nodes, biggest = n + m, 0.0
    for k in range(n * m):
        biggest = max(biggest, cost[k])
    for v in range(nodes):
        real[FLOW, v], real[FLOW_REST, v] = real[MASS, v], real[MASS_REST, v]
    for k in range(nodes - 1, 0, -1):
        v = link[ORDER, k]
        above = link[PARENT, v]
        real[FLOW, above], real[FLOW_REST, above] = _add(
            real[FLOW, above], real[FLOW_REST, above], -real[FLOW, v], -real[FLOW_REST, v]
        )
    real[POT, 0], real[POT_REST, 0] = 0.0, 0.0
    value, negative = 0.0, abs(real[FLOW, 0])  # the root should have nothing left
    for k in range(1, nodes):
        v = link[ORDER, k]
        above = link[PARENT, v]
        at = v * m + above - n if v < n else above * m + v - n
        value += max(real[FLOW, v], 0.0) * cost[at]
        negative += max(-real[FLOW, v], 0.0)
        real[POT, v], real[POT_REST, v] = _add(cost[at], 0.0, -real[POT, above], -real[POT_REST, above])
    doubtful, violation = 4.0 * EPS * nodes * biggest, 0.0
    for i in range(n):
        for j in range(m):
            reduced = cost[i * m + j] - real[POT, i] - real[POT, n + j]
            if reduced < doubtful:
                high, low = _add(cost[i * m + j], 0.0, -real[POT, i], -real[POT_REST, i])
                high, low = _add(high, low, -real[POT, n + j], -real[POT_REST, n + j])
                violation = max(violation, -(high + low))
    rounding = (nodes + 4) * EPS * value + 1e-30 * nodes * biggest
    return value, negative * biggest + rounding, negative * biggest + violation + rounding


@part
def _alike(probs, lo, n, to, m, cost):
    """Whether two rows have the same masses, bit by bit, at distance 0 of each other: their transport is 0 exactly.

    So it is for two equal rows of one model, however its successors are numbered on either side.
    """
    if n != m:
        return False
    differ = 0
    for k in range(n):
        differ += probs[lo + k] != probs[to + k] or cost[k * m + k] != 0.0
    return differ == 0


@part
def _doubt(probs, lo, to, costs):
    """What rounding may add to the cost of two supports of two states, beside its share of that cost."""
    straight, crossed = min(probs[lo], probs[lo + 1]), min(probs[to], probs[to + 1])
    return 4.0 * EPS * (straight + crossed) * max(costs)


@part
def _set_rests(real, at, probs, lo, n, defect):
    """What masses lack in precision: each its share of the row's defect."""
    for i in range(n):
        real[MASS_REST, at + i] = probs[lo + i] * defect


@kernel
def exact_block(rows, defects, block, ground, memory, halt, out, errors):
    """Fill out[a − a0, b − corner] = W_p between members a and b of the block.

    Trees are kept in the order of the pairs and without room for those with a closed form. `defects` are those of
    `row_defects`, for p > 1. Stops early where halt[0] is set. Errors of the entries go into `errors`, where it has
    room. Returns (pivots, largest error of an entry).
    """
    indptr, indices, probs = rows
    members, a0, a1, first, corner = block
    cost, top, inv_p = ground
    kept, base = memory
    widest = widest_support(indptr, members, a0)
    part, real, link = scratch(widest)
    small, pending = small_scratch(cost, widest), np.empty((2, len(members)), np.int64)
    keep = len(base) > 0
    store = kept if keep else np.zeros(4 * widest, kept.dtype)
    pivots, worst, tol = 0, 0.0, PRICING * top
    for a in range(a0, a1):
        lo = indptr[members[a]]
        n = indptr[members[a] + 1] - lo
        count, most = settle_row(rows, block, a, ground, memory, small, pending, out)
        if most > 0:
            worst = max(worst, tol + 4.0 * EPS * (n + most) * top)
        if len(errors):  # those of pairs that are settled; the others' are replaced
            for b in range(max(a + first, corner), len(members)):
                m = indptr[members[b] + 1] - indptr[members[b]]
                errors[a - a0, b - corner] = tol + 4.0 * EPS * (n + m) * top
        for i in range(n):
            real[MASS, i] = probs[lo + i]
        for k in range(count):
            if halt[0]:
                return pivots, worst
            b, start = pending[0, k] & FAR, pending[1, k] & FAR
            row = members[b] & FAR
            to = indptr[row] & FAR
            m = (indptr[row + 1] & FAR) - to
            above = below = 0.0
            if n == 1 or m == 1:
                value = product_cost(probs, indices, lo, n, to, m, cost)
                above = below = (n + m + 4) * EPS * value
            elif n + m == 4:
                costs = corners(cost, indices, lo, to)
                value = two_by_two((probs[lo], probs[lo + 1]), (probs[to], probs[to + 1]), costs)
                if keep:
                    store[start] = CROSSED if crosses(costs) else STRAIGHT
                straight = costs[0] == 0.0 and costs[3] == 0.0
                if not straight or probs[lo] != probs[to] or probs[lo + 1] != probs[to + 1]:
                    above = below = 8.0 * EPS * value + _doubt(probs, lo, to, costs)
            else:
                for i in range(n):  # `gather`, written out: a call costs 3 % of the time of a small pair
                    x = indices[lo + i]
                    for j in range(m):
                        part[i * m + j] = cost[x, indices[to + j]]
                for j in range(m):
                    real[MASS, n + j] = probs[to + j]
                if not keep:
                    store[0] = 0
                # A root magnifies errors near 0, so they must scale with the pair's costs.
                pricing = tol
                if inv_p != 1.0:
                    pricing = PRICING * largest_of(part, n * m)
                value, more = solve(n, m, part, real, link, store, start, pricing)
                pivots += more
                if inv_p == 1.0:
                    above = below = tol + 4.0 * EPS * (n + m) * top
                if inv_p != 1.0 and not _alike(probs, lo, n, to, m, part):
                    _set_rests(real, 0, probs, lo, n, defects[members[a]])
                    _set_rests(real, n, probs, to, m, defects[members[b]])
                    value, above, below = certified_value(n, m, part, real, link)
            root, error = root_and_error(value, above, below, inv_p)
            out[a - a0, b - corner] = root
            worst = max(worst, error)
            if len(errors):
                errors[a - a0, b - corner] = error
    return pivots, worst
