"""Bounds on the distances of single pairs of states, in a table that grows where a question needs it.

Each pair of the table has numbers lower ≤ d ≤ upper, true at any time. A pair is *opened* by entering the pairs of its
successors. An update of an opened pair takes, for each pair of rows that is compared,

    lower:  c_R |Δr| + c_T W(lower),            less what rounding may have added,
    upper:  c_R |Δr| + c_T ⟨ω, upper⟩,          plus what rounding may have taken,

where ω is the plan that is optimal for lower + λ (upper − lower); as F is monotone and any plan is feasible, both are
true again. For λ = 0 and the rows that decide the upper bound, gap(s, t) ≤ c_T Σ ω gap(s', t'); a small λ > 0 adds at
most λ times the gap of the plan for λ = 0, and decides between the many plans that are alike for lower bounds (λ is
`model.ties`, which a search brings down to 0 where nothing else helps). So the *weight* of a pair, pushed
down from the pair that was asked for along these plans, says how much of its gap the answer sees (`push_weights`):
what has the largest weight times gap is opened next.

Entry 0 of the table stands for all pairs of a state with itself, entry 1 for all pairs that are apart by definition.
Kernels are serial, and stop where the table has no more room; the caller makes more and calls again.
"""

import numpy as np

from .jit import kernel, part
from .pairs import EPS, PRICING
from .simplex import solve
from .spanning_tree import FLOW, MASS, PARENT, POT, scratch

CHAIN, LABELS, HAUSDORFF = 0, 1, 2
SAME, APART_BY_DEFINITION = 0, 1
PAIRS, KIDS, TREES, PLANS, OPENED, UPDATES, MOVED = 0, 1, 2, 3, 4, 5, 6  # counters
OPEN, SWEEP, LEAP = 0, 1, 2  # what there is to do
_ROUNDS = 4  # of policy iteration in a leap
_DIRECT = 64  # pairs for whose plans equations are solved by elimination
_MOVES = 1e-6  # share of its gap by which an update moves a pair
_TINY = float(np.finfo(np.float64).tiny)


@part
def _slot(keys, key):
    """Where a key is in the table of hashes, or where it would go."""
    mask = len(keys) - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = np.int64(mixed >> np.uint64(20)) & mask
    while keys[at] != key and keys[at] != -1:
        at = (at + 1) & mask
    return at


@kernel
def rehash(old_keys, old_ids, keys, ids):
    """Enter all keys into a larger table of hashes."""
    for k in range(len(old_keys)):
        if old_keys[k] != -1:
            at = _slot(keys, old_keys[k])
            keys[at], ids[at] = old_keys[k], old_ids[k]


@part
def first_bounds(s, t, landmarks, errors, largest):
    """(lower, upper) from the triangle inequality over landmarks [S, L] that are known up to errors [L]."""
    lower, upper = 0.0, largest
    for k in range(landmarks.shape[1]):
        x, y = landmarks[s, k], landmarks[t, k]
        slack = 2.0 * errors[k] + 4.0 * EPS * largest
        lower = max(lower, abs(x - y) - slack)
        upper = min(upper, x + y + slack)
    return lower, upper


@kernel
def enter(s, t, model, table):
    """The number of a pair, which is entered where it is not known; the table must have room."""
    if s == t:
        return SAME
    counts = table.counts
    apart, landmarks, errors, largest = model.apart, model.landmarks, model.errors, model.largest
    if apart[s] != apart[t]:
        return APART_BY_DEFINITION
    a, b = min(s, t), max(s, t)
    key = np.int64(a) * len(apart) + b
    at = _slot(table.keys, key)
    if table.keys[at] == key:
        return np.int64(table.ids[at])
    new = counts[PAIRS]
    counts[PAIRS] += 1
    table.keys[at], table.ids[at] = key, new
    table.left[new], table.right[new] = a, b
    table.lower[new], table.upper[new] = first_bounds(a, b, landmarks, errors, largest)
    table.kids_at[new] = -1
    table.weight[new], table.listed[new], table.margin[new] = 0.0, 0, 0.0
    return new


@part
def _row_pairs(model, s, t):
    """How many pairs of rows are compared for two states."""
    n, m = model.pointers[s + 1] - model.pointers[s], model.pointers[t + 1] - model.pointers[t]
    return n * m if model.combine == HAUSDORFF else n


@part
def _row_pair(model, s, t, k):
    """Rows of the k-th pair of rows."""
    if model.combine == HAUSDORFF:
        m = model.pointers[t + 1] - model.pointers[t]
        return model.order[model.pointers[s] + k // m], model.order[model.pointers[t] + k % m]
    return model.order[model.pointers[s] + k], model.order[model.pointers[t] + k]


@kernel
def needs(pair, model, table):
    """Room to open a pair: (pairs that may be new, entries of kids, of trees, of a plan)."""
    indptr, n_states = model.indptr, len(model.apart)
    s, t = table.left[pair], table.right[pair]
    kids, trees, plan = 0, 0, 0
    for k in range(_row_pairs(model, s, t)):
        x, y = _row_pair(model, s, t, k)
        n, m = indptr[x + 1] - indptr[x], indptr[y + 1] - indptr[y]
        kids += n * m
        trees += 2 * (n + m - 1) if n > 1 and m > 1 else 0
        # A tree has n + m - 1 arcs; so has the product of a single state with any number of them.
        plan = max(plan, n + m - 1)
    unknown = n_states * (n_states - 1) // 2 + 2 - table.counts[PAIRS]
    return min(kids, unknown), kids, trees, plan


@part
def open_pair(pair, model, table):
    """Enter the pairs of successors; False where there is no room for them."""
    indptr, indices, counts = model.indptr, model.indices, table.counts
    s, t = table.left[pair], table.right[pair]
    new, kids, trees, plan = needs(pair, model, table)
    if (
        counts[PAIRS] + new > len(table.left)
        or 2 * (counts[PAIRS] + new) > len(table.keys)
        or counts[KIDS] + kids > len(table.kids)
        or counts[TREES] + trees > len(table.trees)
        or counts[PLANS] + plan > len(table.plan_kids)
    ):
        return False
    table.kids_at[pair], table.trees_at[pair], table.plan_at[pair] = counts[KIDS], counts[TREES], counts[PLANS]
    table.plan_size[pair], table.kids_size[pair] = 0, kids
    at, tree = counts[KIDS], counts[TREES]
    for k in range(_row_pairs(model, s, t)):
        x, y = _row_pair(model, s, t, k)
        n, m = indptr[x + 1] - indptr[x], indptr[y + 1] - indptr[y]
        for i in range(indptr[x], indptr[x + 1]):
            for j in range(indptr[y], indptr[y + 1]):
                table.kids[at] = enter(indices[i], indices[j], model, table)
                at += 1
        if n > 1 and m > 1:
            table.trees[tree] = 0  # none is kept yet
            tree += 2 * (n + m - 1)
    counts[KIDS], counts[TREES] = at, tree
    counts[PLANS] += plan
    counts[OPENED] += 1
    return True


@part
def _product(x, y, at, model, costs, kids):
    """(⟨a⊗b, C⟩, the largest cost): the only plan there is where one side has a single state."""
    indptr, probs = model.indptr, model.probs
    m = indptr[y + 1] - indptr[y]
    value, top = 0.0, 0.0
    for i in range(indptr[x + 1] - indptr[x]):
        for j in range(m):
            cost = costs[kids[at + i * m + j]]
            value += probs[indptr[x] + i] * probs[indptr[y] + j] * cost
            top = max(top, cost)
    return value, top


@part
def _violation(n, m, cost, real):
    """By how much the potentials that were left exceed a cost, at most: more than `PRICING` where pivots gave out."""
    most = 0.0
    for i in range(n):
        for j in range(m):
            most = max(most, real[POT, i] + real[POT, n + j] - cost[i * m + j])
    return most


@part
def _tree_value(x, y, at, tree, model, share, table, work):
    """(Cost of a plan, by how much the least one may be below it, the largest cost) for costs lower + share · gap.

    Nodes are the successors from the last to the first, as the simplex serves the last row first: where states are
    ordered and x comes before y, as in all pairs, plans that cost the same then do not cross, and open fewer pairs.

    The cost of a tree is the dual value of its potentials, so the least cost is above that less their largest
    violation. The tree is left in `work`, and kept.
    """
    indptr, probs, kids, lower, upper = model.indptr, model.probs, table.kids, table.lower, table.upper
    part, real = work.part, work.real
    lo, to = indptr[x], indptr[y]
    n, m = indptr[x + 1] - lo, indptr[y + 1] - to
    top = 0.0
    for k in range(n * m):
        kid = kids[at + n * m - 1 - k]
        part[k] = lower[kid] if share == 0.0 else (1.0 - share) * lower[kid] + share * upper[kid]
        top = max(top, part[k])
    for i in range(n):
        real[MASS, i] = probs[lo + n - 1 - i]
    for j in range(m):
        real[MASS, n + j] = probs[to + m - 1 - j]
    value, _ = solve(n, m, part, real, work.link, table.trees, tree, PRICING * top)
    return value, max(_violation(n, m, part, real), PRICING * top), top


@part
def _kid_of_arc(n, m, at, v, above):
    """Where the pair of successors of an arc from a node to its parent stands (see `_tree_value` for their order)."""
    return at + n * m - 1 - (v * m + above - n if v < n else above * m + v - n)


@part
def _transport(x, y, at, tree, model, table, work, twice):
    """(A lower bound on W(lower), an upper bound on W(upper)) for two rows; a plan is left in work.

    The upper bound is the cost of that plan; where `twice`, also that of the optimal plan for the upper bounds. The
    plan is in real[FLOW] and link[PARENT] of a tree, or a product where one side has a single state. Rounding: flows
    are sums of at most n + m masses, of which n + m are let go where they are below 0.
    """
    indptr, lower, upper, kids = model.indptr, table.lower, table.upper, table.kids
    real, link = work.real, work.link
    n, m = indptr[x + 1] - indptr[x], indptr[y + 1] - indptr[y]
    if n == 1 or m == 1:
        low, top = _product(x, y, at, model, lower, kids)
        high, top_upper = _product(x, y, at, model, upper, kids)
        share = (n + m + 8) * EPS
        return max(low - share * top, 0.0), high + share * top_upper
    best = np.inf
    if twice:
        best, _, _ = _tree_value(x, y, at, tree, model, 1.0, table, work)
    low, off, top = _tree_value(x, y, at, tree, model, 0.0, table, work)
    if model.ties > 0.0:
        _tree_value(x, y, at, tree, model, model.ties, table, work)
    high, top_upper = 0.0, 0.0
    for v in range(1, n + m):
        above = link[PARENT, v]
        cost = upper[kids[_kid_of_arc(n, m, at, v, above)]]
        high += max(real[FLOW, v], 0.0) * cost
    for k in range(n * m):
        top_upper = max(top_upper, upper[kids[at + k]])
    share = 8.0 * EPS * (n + m) * (n + m)
    return max(low - off - share * top, 0.0), min(high, best) + share * top_upper


@part
def _keep_plan(pair, x, y, at, model, table, work):
    """Keep the plan of the transport that was solved last: what `push_weights` follows."""
    indptr, probs = model.indptr, model.probs
    n, m = indptr[x + 1] - indptr[x], indptr[y + 1] - indptr[y]
    to, size = table.plan_at[pair], 0
    if n == 1 or m == 1:
        for i in range(n):
            for j in range(m):
                table.plan_kids[to + size] = table.kids[at + i * m + j]
                table.plan_flows[to + size] = probs[indptr[x] + i] * probs[indptr[y] + j]
                size += 1
    else:
        for v in range(1, n + m):
            above, flow = work.link[PARENT, v], work.real[FLOW, v]
            if flow > 0.0:
                table.plan_kids[to + size] = table.kids[_kid_of_arc(n, m, at, v, above)]
                table.plan_flows[to + size] = flow
                size += 1
    table.plan_size[pair] = size
    table.plan_base[pair] = model.c_R * abs(model.rewards[x] - model.rewards[y])


@part
def _bounds_matched(pair, model, table, work, twice):
    """Bounds of an opened pair whose rows are matched one by one: the maximum over them."""
    indptr, rewards = model.indptr, model.rewards
    s, t, c_R, c_T = table.left[pair], table.right[pair], model.c_R, model.c_T
    at, tree = table.kids_at[pair], table.trees_at[pair]
    lower, upper = -1.0, -1.0
    for k in range(model.pointers[s + 1] - model.pointers[s]):
        x, y = model.order[model.pointers[s] + k], model.order[model.pointers[t] + k]
        n, m = indptr[x + 1] - indptr[x], indptr[y + 1] - indptr[y]
        low, high = _transport(x, y, at, tree, model, table, work, twice)
        base = c_R * abs(rewards[x] - rewards[y])
        lower = max(lower, base + c_T * low)
        if base + c_T * high > upper:
            upper = base + c_T * high
            _keep_plan(pair, x, y, at, model, table, work)
        at += n * m
        tree += 2 * (n + m - 1) if n > 1 and m > 1 else 0
    return lower, upper


@part
def _sets_apart(low, high, work):
    """Hausdorff distances of two sets from bounds of their pairs: (lower, upper, the pair that decides).

    The upper bound is decided by an element x of one side, and its partner by lower bounds is the other one: so
    upper − lower ≤ high(x, partner) − low(x, partner).
    """
    n, m = low.shape
    lower, upper, decides = 0.0, -1.0, 0
    for side in range(2):
        for i in range(n if side == 0 else m):
            least, partner, least_high = np.inf, 0, np.inf
            for j in range(m if side == 0 else n):
                k, h = (low[i, j], high[i, j]) if side == 0 else (low[j, i], high[j, i])
                if k < least:
                    least, partner = k, j
                least_high = min(least_high, h)
            lower = max(lower, least)
            if least_high > upper:
                upper = least_high
                decides = i * m + partner if side == 0 else partner * m + i
    return lower, upper, decides


@part
def _bounds_of_sets(pair, model, table, work, twice):
    """Bounds of an opened pair whose choices are compared as sets."""
    indptr, rewards = model.indptr, model.rewards
    s, t, c_R, c_T = table.left[pair], table.right[pair], model.c_R, model.c_T
    rows, columns = model.pointers[s + 1] - model.pointers[s], model.pointers[t + 1] - model.pointers[t]
    low, high = work.low[: rows * columns].reshape(rows, columns), work.high[: rows * columns].reshape(rows, columns)
    at, tree = table.kids_at[pair], table.trees_at[pair]
    for k in range(rows * columns):
        x, y = _row_pair(model, s, t, k)
        n, m = indptr[x + 1] - indptr[x], indptr[y + 1] - indptr[y]
        less, more = _transport(x, y, at, tree, model, table, work, twice)
        base = c_R * abs(rewards[x] - rewards[y])
        low[k // columns, k % columns], high[k // columns, k % columns] = base + c_T * less, base + c_T * more
        at += n * m
        tree += 2 * (n + m - 1) if n > 1 and m > 1 else 0
    lower, upper, decides = _sets_apart(low, high, work)
    at, tree = table.kids_at[pair], table.trees_at[pair]
    for k in range(decides):
        x, y = _row_pair(model, s, t, k)
        n, m = indptr[x + 1] - indptr[x], indptr[y + 1] - indptr[y]
        at += n * m
        tree += 2 * (n + m - 1) if n > 1 and m > 1 else 0
    x, y = _row_pair(model, s, t, decides)
    _transport(x, y, at, tree, model, table, work, False)  # its tree is kept, so this is brief
    _keep_plan(pair, x, y, at, model, table, work)
    return lower, upper


@part
def _bounds(pair, model, table, work, twice):
    """Bounds of an opened pair from those of its successors, with rounding counted; its plan is kept."""
    slack = 16.0 * (EPS * model.largest + _TINY)
    if model.combine == HAUSDORFF:
        lower, upper = _bounds_of_sets(pair, model, table, work, twice)
    else:
        lower, upper = _bounds_matched(pair, model, table, work, twice)
    return lower - slack, upper + slack


@part
def update(pair, model, table, work):
    """Bring the bounds of an opened pair up to date; lower bounds only rise, and upper ones only fall."""
    counts = table.counts
    lower, upper = _bounds(pair, model, table, work, False)
    before = table.upper[pair] - table.lower[pair]
    table.lower[pair] = max(table.lower[pair], lower)
    table.upper[pair] = min(table.upper[pair], upper)
    counts[UPDATES] += 1
    counts[MOVED] += table.upper[pair] - table.lower[pair] < (1.0 - _MOVES) * before


@part
def _settle(inside, least, turns, model, table, found):
    """Solve l = r + c_T ⟨ω, l⟩ and u = r + c_T ⟨ω, u⟩ on the pairs of found[0] for their kept plans, in place."""
    lower, upper = table.lower, table.upper
    for turn in range(turns):
        change = 0.0
        for place in range(inside):
            pair = found[0, inside - 1 - place if turn % 2 == 0 else place]
            low, high = 0.0, 0.0
            for k in range(table.plan_at[pair], table.plan_at[pair] + table.plan_size[pair]):
                kid = table.plan_kids[k]
                low += table.plan_flows[k] * lower[kid]
                high += table.plan_flows[k] * upper[kid]
            low, high = table.plan_base[pair] + model.c_T * low, table.plan_base[pair] + model.c_T * high
            change = max(change, abs(low - lower[pair]), abs(high - upper[pair]))
            lower[pair], upper[pair] = low, high
        if change <= least:
            break


@part
def _solve_plans(inside, model, table, found):
    """The same for few pairs, by elimination: near a discount of 1 turns bring them nowhere.

    The system I − c_T Ω is diagonally dominant, so no pivots are looked for.
    """
    lower, upper, pairs = table.lower, table.upper, found[0, :inside]
    system = np.zeros((inside, inside + 2))
    for i in range(inside):
        pair = pairs[i]
        system[i, i] = 1.0
        low = high = table.plan_base[pair]
        for k in range(table.plan_at[pair], table.plan_at[pair] + table.plan_size[pair]):
            kid, share = table.plan_kids[k], model.c_T * table.plan_flows[k]
            place = 0
            while place < inside and pairs[place] != kid:
                place += 1
            if place < inside:
                system[i, place] -= share
            else:
                low += share * lower[kid]
                high += share * upper[kid]
        system[i, inside], system[i, inside + 1] = low, high
    for i in range(inside):
        for j in range(i + 1, inside):
            factor = system[j, i] / system[i, i]
            if factor != 0.0:
                for k in range(i, inside + 2):
                    system[j, k] -= factor * system[i, k]
    for i in range(inside - 1, -1, -1):
        low, high = system[i, inside], system[i, inside + 1]
        for j in range(i + 1, inside):
            low -= system[i, j] * lower[pairs[j]]
            high -= system[i, j] * upper[pairs[j]]
        lower[pairs[i]], upper[pairs[i]] = low / system[i, i], high / system[i, i]


@part
def _margins(inside, off, turns, model, table, found):
    """margin(pair) ≥ off(pair) + c_T · the largest margin of its successors, on the pairs of found[0]; 0 elsewhere.

    Begins where that surely holds and goes down: as the right side is monotone, it holds after each step.
    """
    margin, worst = table.margin, 0.0
    for k in range(inside):
        worst = max(worst, off[k])
    for k in range(inside):
        margin[found[0, k]] = worst / (1.0 - model.c_T) * (1.0 + 1e-12)
    for turn in range(turns if worst > 0.0 else 0):
        for place in range(inside):
            k = inside - 1 - place if turn % 2 == 0 else place
            pair = found[0, k]
            most = 0.0
            for kid in table.kids[table.kids_at[pair] : table.kids_at[pair] + table.kids_size[pair]]:
                most = max(most, margin[kid])
            margin[pair] = min(margin[pair], (off[k] + model.c_T * most) * (1.0 + 1e-12))


@part
def _leap(inside, least, model, table, work, found, saved):
    """Policy iteration on the pairs of found[0]: bounds for fixed plans, checked, until plans no longer change.

    Let l and u be any numbers of these pairs, beside true bounds of all others, with l − F(l) ≤ f and F(u) − u ≤ r,
    pair by pair. Where margins e(pair) are at least f(pair) plus c_T times the largest margin of its successors, l − e
    is at most its own image under F, and so at most the distance, as F is monotone and a contraction; likewise u + e
    for r. What was known before stays where it is better.
    """
    lower, upper, counts = table.lower, table.upper, table.counts
    for k in range(inside):
        saved[0, k], saved[1, k] = lower[found[0, k]], upper[found[0, k]]
    last = np.inf
    for _ in range(_ROUNDS):
        if inside <= _DIRECT:
            _solve_plans(inside, model, table, found)
        else:
            _settle(inside, least, 400, model, table, found)
        worst = 0.0
        for k in range(inside):  # nothing is written but plans
            pair = found[0, k]
            low, high = _bounds(pair, model, table, work, True)
            saved[2, k], saved[3, k] = max(lower[pair] - low, 0.0), max(high - upper[pair], 0.0)
            worst = max(worst, saved[2, k], saved[3, k])
        counts[UPDATES] += inside
        if worst <= 2.0 * least or worst > 0.7 * last:
            break
        last = worst
    slack = 4.0 * EPS * model.largest
    _margins(inside, saved[2], 30, model, table, found)
    for k in range(inside):
        pair = found[0, k]
        lower[pair] = max(saved[0, k], lower[pair] - table.margin[pair] - slack)
    _margins(inside, saved[3], 30, model, table, found)
    for k in range(inside):
        pair = found[0, k]
        upper[pair] = min(saved[1, k], upper[pair] + table.margin[pair] + slack)
        table.margin[pair] = 0.0
        counts[MOVED] += upper[pair] - lower[pair] < (1.0 - _MOVES) * (saved[1, k] - saved[0, k])


@kernel
def push_weights(root, least, model, table, found, patience):
    """Push weight 1 from the root along the kept plans of opened pairs; (opened pairs, others) that it reached.

    found[0] lists the opened pairs that have weight, in the order in which it came to them, and found[1] the others.
    Weight that sees a gap of less than `least` stays where it is. At most `patience` pairs are pushed.
    """
    weight, listed, lower, upper = table.weight, table.listed, table.lower, table.upper
    queue, room = found[2], found.shape[1]
    inside, outside, head, waiting = 0, 0, 0, 0
    weight[root] = 1.0
    if table.kids_at[root] < 0:
        found[1, 0] = root
        listed[root] = 1
        return 0, 1
    queue[0], waiting = root, 1
    listed[root] = 3
    found[0, 0], inside = root, 1
    pushed = 0
    while waiting > 0 and pushed < patience:
        pair = queue[head]
        head = head + 1 if head + 1 < room else 0
        waiting -= 1
        listed[pair] = 1
        here = weight[pair]
        weight[pair] = 0.0
        pushed += 1
        for k in range(table.plan_at[pair], table.plan_at[pair] + table.plan_size[pair]):
            kid = table.plan_kids[k]
            gap = upper[kid] - lower[kid]
            if gap <= 0.0:
                continue
            weight[kid] += here * model.c_T * table.plan_flows[k]
            if table.kids_at[kid] < 0:
                if listed[kid] == 0:
                    listed[kid] = 1
                    found[1, outside] = kid
                    outside += 1
                continue
            if listed[kid] == 0:
                listed[kid] = 1
                found[0, inside] = kid
                inside += 1
            if listed[kid] == 1 and weight[kid] * gap >= least:
                listed[kid] = 3
                tail = head + waiting
                queue[tail - room if tail >= room else tail] = kid
                waiting += 1
    return inside, outside


@kernel
def choose(outside, least, table, found):
    """Keep those pairs of found[1] that are seen at least so much; returns how many there are."""
    count = 0
    for k in range(outside):
        pair = found[1, k]
        seen = table.weight[pair] * (table.upper[pair] - table.lower[pair])
        table.weight[pair], table.listed[pair] = 0.0, 0
        if seen >= least and seen > 0.0:
            found[1, count] = pair
            count += 1
    return count


@kernel
def clear(inside, table, found):
    """Take weights and marks off the pairs of found[0]."""
    for k in range(inside):
        pair = found[0, k]
        table.weight[pair], table.listed[pair] = 0.0, 0


@kernel
def advance(task, first, last, least, model, table, work, lists):
    """Do one of three tasks, in one kernel, so that the network simplex is compiled into one place.

    OPEN: open and update the pairs found[1, first:last]; returns where it stopped for want of room, or last.
    SWEEP: update found[0, first:last], the last one first, as weight came to it last: the youngest.
    LEAP: policy iteration on found[0, :last], to about `least`.
    """
    found, saved = lists
    if task == LEAP:
        _leap(last, least, model, table, work, found, saved)
        return last
    for k in range(first, last):
        pair = found[1, k] if task == OPEN else found[0, last - 1 - (k - first)]
        if task == OPEN and not open_pair(pair, model, table):
            return k
        if table.upper[pair] > table.lower[pair]:
            update(pair, model, table, work)
    return last


@kernel
def work_space(widest, most_choices):
    """Room for one transport of supports of at most `widest` states, and for the choices of two states."""
    part, real, link = scratch(widest)
    square = most_choices * most_choices
    return part, real, link, np.empty(square), np.empty(square)


@kernel
def landmark_sweep(model, r, home, values, backward):
    """One sweep, in place, of D(s) = max over rows c_R |R − r| + c_T P·D; returns the largest change.

    D is the distance from a state that is never left and has the constant reward r: all of its couplings are trivial.
    States that are apart from it by definition are at the largest distance.
    """
    states = len(model.apart)
    change = 0.0
    for turn in range(states):
        s = states - 1 - turn if backward else turn
        if model.apart[s] != home:
            continue
        value = _landmark_value(model, r, s, values)
        change = max(change, abs(value - values[s]))
        values[s] = value
    return change


@part
def _landmark_value(model, r, s, values):
    most = 0.0
    for c in range(model.pointers[s], model.pointers[s + 1]):
        x = model.order[c]
        mean = 0.0
        for i in range(model.indptr[x], model.indptr[x + 1]):
            mean += model.probs[i] * values[model.indices[i]]
        most = max(most, model.c_R * abs(model.rewards[x] - r) + model.c_T * mean)
    return min(most, model.largest)


@kernel
def landmark_residual(model, r, home, values):
    """The largest change that one sweep of all states at once would make."""
    change = 0.0
    for s in range(len(model.apart)):
        if model.apart[s] == home:
            change = max(change, abs(_landmark_value(model, r, s, values) - values[s]))
    return change
