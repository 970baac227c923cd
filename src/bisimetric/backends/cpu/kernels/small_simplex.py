"""Pivots on supports of at most 8 states a side, for pairs whose kept tree does not hold, or which have none.

On so few nodes the lists that make pivots cheap in large trees (children, siblings, depths) cost more than they save,
and branches that nobody can foresee cost most of all. So sets of nodes are the bits of a number: each node has the set
of those below it, which is all that a pivot needs, and the entering arc, that of least reduced cost, is found without
branches. The last blocking arc of the cycle leaves (Cunningham's rule, as in `simplex`).
"""

from .jit import part
from .small_supports import WIDEST
from .spanning_tree import CHILD, FLOW, ORDER, PARENT, POT

_NODE = 2 * WIDEST - 1  # masks show the compiler that a node is not negative, so that it need not count from the end
_BELOW = CHILD  # row of `link`: the nodes of the subtree of each node, itself among them
_PIVOTS = 64  # after which pivots are left to `simplex`


@part
def _set_below(n, m, link):
    for v in range(n + m):
        link[_BELOW, v] = 1 << v
    for k in range(n + m - 1, 0, -1):
        v = link[ORDER, k] & _NODE
        link[_BELOW, link[PARENT, v] & _NODE] |= link[_BELOW, v]


@part
def _set_small_order(n, m, link):
    """Make ORDER from PARENT: nodes whose parents are known, until all are."""
    reached, known = 1, 1
    while reached < n + m:
        for v in range(1, n + m):
            if known >> v & 1 == 0 and known >> (link[PARENT, v] & _NODE) & 1 == 1:
                link[ORDER, reached & _NODE] = v
                known |= 1 << v
                reached += 1


@part
def _entering(n, m, cost, real):
    """(row, column, reduced cost) of the arc whose reduced cost is least."""
    row, column, low = 0, 0, 0.0
    for i in range(n):
        at, least = 0, cost[i * m] - real[POT, n]
        for j in range(1, m):
            value = cost[i * m + j] - real[POT, n + j]
            at = j if value < least else at
            least = value if value < least else least
        least -= real[POT, i]
        row = i if least < low else row
        column = at if least < low else column
        low = least if least < low else low
    return row, n + column, low


@part
def _pivot(n, m, real, link, i, j, reduced):
    """Let the arc (row i, column j) enter; flows stay feasible."""
    inside, outside, cut, theta = i, j, -1, 0.0
    # On the way up from i rows lose, on that from j columns do, until both ways meet.
    x = i
    while link[_BELOW, x] >> j & 1 == 0:
        if x < n and (cut < 0 or real[FLOW, x] < theta):
            theta, cut = real[FLOW, x], x
        x = link[PARENT, x] & _NODE
    top, y = x, j
    while y != top:
        if y >= n and (cut < 0 or real[FLOW, y] <= theta):
            theta, cut, inside, outside = real[FLOW, y], y, j, i
        y = link[PARENT, y] & _NODE
    theta = max(theta, 0.0)
    moved = link[_BELOW, cut & _NODE]
    x = i
    while x != top:
        real[FLOW, x] += -theta if x < n else theta
        x = link[PARENT, x] & _NODE
    y = j
    while y != top:
        real[FLOW, y] += theta if y < n else -theta
        y = link[PARENT, y] & _NODE
    x = link[PARENT, cut & _NODE] & _NODE
    while x != top:
        link[_BELOW, x] &= ~moved
        x = link[PARENT, x] & _NODE
    y = outside
    while y != top:
        link[_BELOW, y] |= moved
        y = link[PARENT, y] & _NODE
    v, above, carried, other = inside, outside, theta, 0
    while True:  # the way from the new arc up to the one that leaves is turned round
        old_above, old_carried, old_below = link[PARENT, v] & _NODE, real[FLOW, v], link[_BELOW, v]
        link[PARENT, v], real[FLOW, v], link[_BELOW, v] = above, carried, moved & ~other
        if v == cut:
            break
        above, v, carried, other = v, old_above, old_carried, old_below
    shift = reduced if inside < n else -reduced  # rows rise by it, columns fall, or the reverse
    for v in range(n):
        real[POT, v] += shift if moved >> v & 1 == 1 else 0.0
    for v in range(n, n + m):
        real[POT, v] -= shift if moved >> v & 1 == 1 else 0.0


@part
def pivot_small(n, m, cost, real, link, tol):
    """Pivot from feasible flows until no reduced cost is below −tol; (pivots, whether it got there)."""
    pivots = 0
    i, j, low = _entering(n, m, cost, real)
    if low >= -tol:
        return pivots, True
    _set_below(n, m, link)
    while low < -tol and pivots < _PIVOTS:
        _pivot(n, m, real, link, i, j, low)
        pivots += 1
        i, j, low = _entering(n, m, cost, real)
    _set_small_order(n, m, link)
    return pivots, low >= -tol
