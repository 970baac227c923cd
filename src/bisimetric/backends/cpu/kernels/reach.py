"""Pairs of states of a labelled chain without discount: which can meet, and the equations of kept plans on them.

Pairs that are neither at distance 0 nor at distance 1 are numbered, s < t, row by row; `number` is symmetric and has
FAR at pairs at distance 1, SAME on the diagonal. With the plan ω of each such pair, distances solve

    leaving(k) x(k) = constants(k) + Σ masses · x(columns)

where mass that stays at the pair itself was taken to the left, mass that meets (the diagonal) counts 0, and that at
distance 1 is in the constants. What leaves a pair is a sum of masses, not 1 less what stays, so that rare events keep
all their digits.
"""

import numpy as np

from .jit import kernel, part
from .memory import kept_entries
from .simplex import CROSSED

FAR, SAME = -1, -2
_TILE = 32


@kernel
def meeting_pairs(into_ptr, into, apart, stack, near):
    """near[s, t] = 1 where a path through pairs with equal numbers `apart` leads from (s, t), s < t, to the diagonal.

    Backwards from the diagonal, each pair once: as many steps as there are pairs of transitions. What the stack has no
    room for is found again by a look at all pairs.
    """
    n = len(apart)
    for u in range(n):
        near[u, u] = 2
        _follow(into_ptr, into, apart, u, u, stack, near)
    left = True
    while left:
        left = False
        for s in range(n):
            for t in range(s + 1, n):
                if near[s, t] == 1:
                    left = True
                    near[s, t] = 2
                    _follow(into_ptr, into, apart, s, t, stack, near)


@part
def _follow(into_ptr, into, apart, u, v, stack, near):
    """Mark all pairs from which paths lead to (u, v), as far as the stack has room; 2: its own were marked too."""
    n, top = len(apart), _mark(into_ptr, into, apart, u, v, stack, 0, near)
    while top > 0:
        top -= 1
        x, y = stack[top] // n, stack[top] % n
        if near[x, y] == 1:
            near[x, y] = 2
            top = _mark(into_ptr, into, apart, x, y, stack, top, near)


@part
def _mark(into_ptr, into, apart, u, v, stack, top, near):
    """Mark the pairs that may go to (u, v), and put them on the stack where there is room; returns its height."""
    n = len(apart)
    for e in range(into_ptr[u], into_ptr[u + 1]):
        s = into[e]
        for g in range(into_ptr[v], into_ptr[v + 1]):
            t = into[g]
            if apart[s] == apart[t] and s != t:
                low, high = min(s, t), max(s, t)
                if near[low, high] == 0:
                    near[low, high] = 1
                    if top < len(stack):
                        stack[top] = low * n + high
                        top += 1
    return top


@kernel
def number_pairs(near, number):
    """Number the pairs that can meet; returns how many there are."""
    n, count = len(near), 0
    for s in range(n):
        number[s, s] = SAME
        for t in range(s + 1, n):
            if near[s, t]:
                number[s, t] = count
                count += 1
            else:
                number[s, t] = FAR
    for s0 in range(0, n, _TILE):
        for t0 in range(s0, n, _TILE):
            for s in range(s0, min(s0 + _TILE, n)):
                for t in range(max(t0, s + 1), min(t0 + _TILE, n)):
                    number[t, s] = number[s, t]
    return count


@kernel
def slots_of_rows(number, sizes, slots):
    """slots[s + 1] = places that equations of pairs (s, t), s < t, may take: a plan has at most n + m − 1 cells."""
    for s in range(len(number)):
        total = 0
        for t in range(s + 1, len(number)):
            if number[s, t] >= 0:
                total += sizes[s] + sizes[t] - 1
        slots[s + 1] = total


@kernel
def spread_pairs(number, values, s0, s1, out):
    """Rows s0 … s1−1 of out, above and below the diagonal: numbered pairs have their value, others 1 or 0."""
    n = len(number)
    for t0 in range(s0 - s0 % _TILE, n, _TILE):
        for s in range(s0, s1):
            for t in range(max(t0, s), min(t0 + _TILE, n)):
                k = number[s, t]
                value = values[k] if k >= 0 else 1.0 if k == FAR else 0.0
                out[s, t] = value
                out[t, s] = value


@kernel
def rises(number, matrix, values, s0, s1):
    """(least rise where values are above 0, largest where they are below 1) from the values to those of a matrix."""
    least, largest = np.inf, -np.inf
    for s in range(s0, s1):
        for t in range(s + 1, len(number)):
            k = number[s, t]
            if k >= 0:
                rise = matrix[s, t] - values[k]
                if values[k] > 0.0:
                    least = min(least, rise)
                if values[k] < 1.0:
                    largest = max(largest, rise)
    return least, largest


@part
def _plan_of_tree(probs, lo, n, to, m, tree, flow, plan):
    """Cells i·m + j and masses of the plan of a kept tree; returns how many there are."""
    cells, masses = plan
    for i in range(n):
        flow[i] = probs[lo + i]
    for j in range(m):
        flow[n + j] = probs[to + j]
    count = 0
    for k in range(n + m - 2, -1, -1):
        v, above = np.int32(tree[2 * k]), np.int32(tree[2 * k + 1])
        through = flow[v]
        flow[above] -= through
        if through > 0.0:
            i, j = (v, above - n) if v < n else (above, v - n)
            cells[count], masses[count] = i * m + j, through
            count += 1
    return count


@part
def _plan_of_four(a0, a1, b0, b1, crossed, cells, masses):
    """The same for two states a side: one diagonal takes all that it can (see `two_by_two_along`)."""
    first, second, one, other = 0, 3, 1, 2
    if crossed:
        b0, b1 = b1, b0
        first, second, one, other = 1, 2, 0, 3
    rest = b0 - a0 if a0 + b0 < a1 + b1 else a1 - b1
    cells[0], masses[0] = first, min(a0, b0)
    cells[1], masses[1] = second, min(a1, b1)
    if rest == 0.0:
        return 2
    cells[2], masses[2] = (other, rest) if rest > 0.0 else (one, -rest)
    return 3


@part
def _plan_of_product(probs, lo, n, to, m, cells, masses):
    """The same for the product of two rows, one of which has one state."""
    for i in range(n):
        for j in range(m):
            cells[i * m + j], masses[i * m + j] = i * m + j, probs[lo + i] * probs[to + j]
    return n * m


@kernel
def kept_equations(rows, block, memory, number, slots, equations):
    """The equations of the kept plans of the numbered pairs of a block; returns whether a plan is kept of each."""
    indptr, indices, probs = rows
    members, a0, a1, first, _ = block
    kept, base = memory
    begins, ends, columns, weights, constants, leaving = equations
    room = 2
    for b in range(len(members)):
        room = max(room, indptr[members[b] + 1] - indptr[members[b]])
    flow, cells, masses = np.empty(2 * room), np.empty(2 * room, np.int64), np.empty(2 * room)
    for a in range(a0, a1):
        s, lo = members[a], indptr[members[a]]
        n, start, slot = indptr[s + 1] - lo, base[a], slots[s]
        for b in range(a + first, len(members)):
            t, to = members[b], indptr[members[b]]
            m, own = indptr[t + 1] - to, start
            start += kept_entries(n, m, 0, 2)
            k = number[s, t]
            if k < 0:
                continue
            if n == 1 or m == 1:
                size = _plan_of_product(probs, lo, n, to, m, cells, masses)
            elif kept[own] == 0:
                return False
            elif n + m == 4:
                size = _plan_of_four(
                    probs[lo], probs[lo + 1], probs[to], probs[to + 1], kept[own] == CROSSED, cells, masses
                )
            else:
                tree = kept[own : own + 2 * (n + m - 1)]
                size = _plan_of_tree(probs, lo, n, to, m, tree, flow, (cells, masses))
            at, far, away = slot, 0.0, 0.0
            for e in range(size):
                i = cells[e] // m
                to_pair = number[indices[lo + i], indices[to + cells[e] - i * m]]
                if to_pair == k:
                    continue
                away += masses[e]
                if to_pair == FAR:
                    far += masses[e]
                elif to_pair >= 0:
                    columns[at], weights[at] = to_pair, masses[e]
                    at += 1
            begins[k], ends[k], constants[k], leaving[k] = slot, at, far, away
            slot += n + m - 1
    return True


@kernel
def relax(equations, right, part, backwards, before, x):
    """Gauss and Seidel for leaving·x = share·constants + shift + Σ masses·x, right = (share, shift), on part of x.

    part = (first, last + 1, where the wave begins): other parts of the wave are at work meanwhile, so of these what
    was there `before` is taken. A pair that nothing leaves keeps its value. Returns the largest defect.
    """
    begins, ends, columns, weights, constants, leaving = equations
    share, shift = right
    first, last, wave = part
    worst, beyond = 0.0, wave + len(before)
    for step in range(last - first):
        k = last - 1 - step if backwards else first + step
        total = share * constants[k] + shift
        for e in range(begins[k], ends[k]):
            c = columns[e]
            total += weights[e] * (x[c] if first <= c < last or c < wave or c >= beyond else before[c - wave])
        worst = max(worst, abs(total - leaving[k] * x[k]))
        if leaving[k] > 0.0:
            x[k] = total / leaving[k]
    return worst
