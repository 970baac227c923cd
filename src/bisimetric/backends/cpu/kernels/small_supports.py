"""Small supports, row by row: whether the kept trees of a state's pairs are still optimal, and what their plans cost.

Once trees are kept, most pairs of a sweep need no pivot: flows, potentials and reduced costs of the kept tree are
worked out, and its cost is the distance. For supports of at most 8 states this is done here, in the same operations as
those of `solve` and in the same order, so that results are the same bits; what does not pass is left to `solve`.

What makes it fast:

- The costs from a row's successors to all states are put side by side, `width` (4 or 8) to a state: its strip. A
  successor of the other row is then one read of neighbouring places, not one read in each of several rows of C.
- Loops have a constant number of turns, so they are written out. Smaller supports fill up the turns by repeating their
  last row, column or arc, which changes no minimum and no potential.
- Whether a tree holds is found without branches.

A row's pairs are listed first; kernels take those off the list that they settle. Each is one loop without calls: what a
call is given, Numba counts references to, in half the time of a pair. Nodes are numbered as in `spanning_tree`.
"""

import numpy as np

from .jit import part
from .memory import kept_entries
from .pairs import PRICING

WIDEST = 8  # successors of a support that is small
FAR = (1 << 60) - 1  # masks show the compiler that an index is not negative, so that it need not count from the end
_PER_STATE = 16  # a strip is worth its while where there is a pair for every so many states


@part
def width_of(n, pairs, states):
    """How many costs a strip has for each state; 0 where there is none."""
    if n == 1 or n > WIDEST or pairs * _PER_STATE < states:
        return 0
    return 4 if n <= 4 else WIDEST


@part
def small_scratch(cost, widest):
    """Allocate (strip, part, real) for a thread: part has costs by column nodes, real one row per quantity of nodes."""
    width = 4 if widest <= 4 else WIDEST
    return np.empty(width * cost.shape[1], cost.dtype), np.zeros(2 * WIDEST * WIDEST), np.zeros((4, 2 * WIDEST))


@part
def set_strip(cost, indices, lo, n, width, strip):
    """strip[width·t + i] = the cost from successor i to state t; the last successor fills up the width."""
    for i in range(0, width, 4):
        x, y = indices[lo + min(i, n - 1)], indices[lo + min(i + 1, n - 1)]
        z, w = indices[lo + min(i + 2, n - 1)], indices[lo + min(i + 3, n - 1)]
        for t in range(cost.shape[1]):
            at = t * width + i
            strip[at] = cost[x, t]
            strip[at + 1] = cost[y, t]
            strip[at + 2] = cost[z, t]
            strip[at + 3] = cost[w, t]


@part
def list_row(rows, block, a, memory, pending):
    """List the pairs of row a as (b, where its tree is kept); returns how many there are."""
    indptr, members, base = rows[0], block[0], memory[1]
    first, corner = block[3], block[4]
    n = indptr[members[a] + 1] - indptr[members[a]]
    keep = len(base) > 0
    start, count = base[a] if keep else 0, 0
    for b in range(max(a + first, corner), len(members)):
        pending[0, count], pending[1, count] = b, start
        count += 1
        if keep:
            row = members[b] & FAR
            start += kept_entries(n, indptr[row + 1] - indptr[row], 0, 2)
    return count


def _settling(width, fewest, columns):
    """The kernel that settles pairs of at most `width` by fewest … columns states.

    Where columns are as many as fewest, all numbers are constants, which is half again as fast; kernels for at most as
    many leave these pairs alone.
    It returns (how many pairs are left on the list, the most successors of a row b that was settled, or 0).
    """
    arcs, full = width + columns - 1, fewest == columns

    @part
    def settle(rows, members, a, tol, kept, small, pending, count):
        indptr, indices, probs = rows
        strip, part, real, out, corner = small
        potential, flow, arc, mass = real[0], real[1], real[2], real[3]
        lo = indptr[members[a]]
        n = width if full else indptr[members[a] + 1] - lo
        for i in range(width):
            mass[i] = probs[lo + min(i, n - 1)]
        left, most = 0, 0
        for entry in range(count):
            b, start = pending[0, entry] & FAR, pending[1, entry] & FAR
            pending[0, left], pending[1, left] = b, start
            to = indptr[members[b]] & FAR
            m = (indptr[members[b] + 1] & FAR) - to
            tried = not full and width == columns and n == width and m == columns
            if tried or m < fewest or m > columns or n + m == 4 or kept[start] == 0:
                left += 1
                continue
            if full:
                m = columns
            for i in range(width):
                flow[i] = mass[i]
            for turn in range(columns):
                j = min(turn, m - 1)
                t, at = np.int64(indices[to + j]) * width, (n + j) * width
                for i in range(width):
                    part[at + i] = strip[t + i]
                flow[n + j] = probs[to + j]
            potential[0] = 0.0
            for turn in range(arcs):  # from the root down
                k = start + 2 * min(turn, n + m - 2)
                v, above = np.int64(kept[k]), np.int64(kept[k + 1])
                cost = part[max(v, above) * width + min(v, above)]  # rows have lower numbers than columns
                arc[v] = cost
                potential[v] = cost - potential[above]
            least = 0.0
            for turn in range(arcs - 1, -1, -1):  # from the leaves up
                k = start + 2 * min(turn, n + m - 2)
                v, above = np.int64(kept[k]), np.int64(kept[k + 1])
                through = flow[v] if turn < n + m - 1 else 0.0
                flow[above] -= through
                least = through if through < least else least
            fine = least >= -1e-15 * (n + m)  # the slack of `solve`
            for i in range(0, width, 4):
                low0 = low1 = low2 = low3 = np.inf
                for turn in range(columns):
                    j = n + min(turn, m - 1)
                    at, high = j * width + i, potential[j]
                    x, y, z, w = part[at] - high, part[at + 1] - high, part[at + 2] - high, part[at + 3] - high
                    low0 = x if x < low0 else low0
                    low1 = y if y < low1 else low1
                    low2 = z if z < low2 else low2
                    low3 = w if w < low3 else low3
                fine &= low0 >= potential[min(i, n - 1)] - tol
                fine &= low1 >= potential[min(i + 1, n - 1)] - tol
                fine &= low2 >= potential[min(i + 2, n - 1)] - tol
                fine &= low3 >= potential[min(i + 3, n - 1)] - tol
            value = 0.0  # a sum of non-negative terms, as in `solve`
            for v in range(1, arcs + 1):
                term = (flow[v] if flow[v] > 0.0 else 0.0) * arc[v]
                value += term if v < n + m else 0.0
            out[(b - corner) & FAR] = value
            if fine:
                most = max(most, m)
            else:
                left += 1
        return left, most

    return settle


_four_by_four, _up_to_four, _four_by_more = _settling(4, 4, 4), _settling(4, 2, 4), _settling(4, 5, WIDEST)
_eight_by_eight, _up_to_eight = _settling(WIDEST, WIDEST, WIDEST), _settling(WIDEST, 2, WIDEST)


@part
def settle_row(rows, block, a, ground, memory, small, pending, out):
    """Fill in the costs of the pairs of row a whose kept tree is still optimal; the others are `pending`.

    Returns (how many are, the most successors of a row b that was settled, or 0).
    """
    indptr, indices, _ = rows
    members, a0, _, _, corner = block
    cost, top, inv_p = ground
    kept, base = memory
    strip, part, real = small
    count, most = list_row(rows, block, a, memory, pending), 0
    lo = indptr[members[a]]
    n = indptr[members[a] + 1] - lo
    width = width_of(n, count, cost.shape[1])
    if width == 0 or inv_p != 1.0 or len(base) == 0 or base[a + 1] - base[a] <= count:  # no pair has a tree
        return count, most
    set_strip(cost, indices, lo, n, width, strip)
    given, tol, fit, more = (strip, part, real, out[a - a0], corner), PRICING * top, 0, 0
    if n == 4:
        count, most = _four_by_four(rows, members, a, tol, kept, given, pending, count)
    elif n == WIDEST:
        count, most = _eight_by_eight(rows, members, a, tol, kept, given, pending, count)
    if width == 4:
        count, fit = _up_to_four(rows, members, a, tol, kept, given, pending, count)
        if len(strip) > 4 * cost.shape[1]:  # some row has more
            count, more = _four_by_more(rows, members, a, tol, kept, given, pending, count)
    else:
        count, fit = _up_to_eight(rows, members, a, tol, kept, given, pending, count)
    return count, max(most, fit, more)


def _costing(width, fewest, columns):
    """The kernel that works out what the kept plans of such pairs cost; returns how many pairs are left on the list.

    Flows go from the leaves up, and costs are added in that order.
    """
    arcs, full = width + columns - 1, fewest == columns

    @part
    def cost_kept(rows, members, a, inv_p, kept, small, pending, count):
        indptr, indices, probs = rows
        strip, _, real, out, corner = small
        flow, mass = real[1], real[3]
        lo = indptr[members[a]]
        n = width if full else indptr[members[a] + 1] - lo
        for i in range(width):
            mass[i] = probs[lo + min(i, n - 1)]
        left = 0
        for entry in range(count):
            b, start = pending[0, entry] & FAR, pending[1, entry] & FAR
            to = indptr[members[b]] & FAR
            m = (indptr[members[b] + 1] & FAR) - to
            if m < fewest or m > columns or n + m == 4 or kept[start] == 0:
                pending[0, left], pending[1, left] = b, start
                left += 1
                continue
            if full:
                m = columns
            for i in range(width):
                flow[i] = mass[i]
            for turn in range(columns):
                j = min(turn, m - 1)
                flow[n + j] = probs[to + j]
            value = 0.0
            for turn in range(arcs - 1, -1, -1):
                k = start + 2 * min(turn, n + m - 2)
                v, above = np.int64(kept[k]), np.int64(kept[k + 1])
                through = flow[v] if turn < n + m - 1 else 0.0
                flow[above] -= through
                i, j = min(v, above), (max(v, above) - n) & FAR
                cost = strip[np.int64(indices[to + j]) * width + i]
                value += (through if through > 0.0 else 0.0) * cost
            out[(b - corner) & FAR] = value if inv_p == 1.0 else value**inv_p
        return left

    return cost_kept


_cost_four_by_four, _cost_up_to_four = _costing(4, 4, 4), _costing(4, 2, WIDEST)
_cost_eight_by_eight, _cost_up_to_eight = _costing(WIDEST, WIDEST, WIDEST), _costing(WIDEST, 2, WIDEST)


@part
def kept_row(rows, block, a, ground, memory, small, listed, out):
    """Fill in what the kept plans of pairs of row a cost, listed = (pending, how many).

    Returns how many have no small tree, and are still listed.
    """
    indptr, indices, _ = rows
    members, a0, _, _, corner = block
    cost, _, inv_p = ground
    strip, part, real = small
    pending, count = listed
    lo = indptr[members[a]]
    n = indptr[members[a] + 1] - lo
    width = width_of(n, count, cost.shape[1])
    if width == 0:
        return count
    set_strip(cost, indices, lo, n, width, strip)
    given, kept = (strip, part, real, out[a - a0], corner), memory[0]
    if n == 4:
        count = _cost_four_by_four(rows, members, a, inv_p, kept, given, pending, count)
    elif n == WIDEST:
        count = _cost_eight_by_eight(rows, members, a, inv_p, kept, given, pending, count)
    if width == 4:
        return _cost_up_to_four(rows, members, a, inv_p, kept, given, pending, count)
    return _cost_up_to_eight(rows, members, a, inv_p, kept, given, pending, count)
