"""Spanning trees of the bipartite transport graph: the bases of the network simplex.

Rows are nodes 0 … n−1, columns n … n+m−1, and the root is node 0. A tree fixes the flows (from the
leaves up) and the potentials u_i + v_j = C_ij (from the root down).

The work space of one thread is three arrays, so that calls stay cheap: `cost` [n·m] holds the ground
costs on the supports; `real` and `link` hold one row per quantity and one column per node.
"""

import numpy as np

from .jit import part

MASS, POT, FLOW = 0, 1, 2  # rows of `real`: a then b; u then v; flow on the arc to the parent
MASS_REST, POT_REST, FLOW_REST = 3, 4, 5  # what these lack in precision, where it is wanted
PARENT, ORDER, DEPTH, CHILD, NEXT, PREVIOUS, MARK = 0, 1, 2, 3, 4, 5, 6  # rows of `link`; −1: none
# ORDER lists the nodes with parents before children; CHILD is the first child; NEXT and PREVIOUS
# are siblings. DEPTH and the children are made only where a pivot needs them.

_FEW = 8  # nodes of a side


@part
def scratch(widest):
    """Allocate (cost, real, link) for supports of at most `widest` states."""
    return np.empty(widest * widest), np.empty((6, 2 * widest)), np.empty((7, 2 * widest), np.int32)


@part
def cold_tree(n, m, cost, real, link):
    """Build a feasible tree by the row-minimum rule from the masses and costs.

    At each step a row or a column is done: what is left of it goes to the other end of the arc, its parent, which is
    done later. So nodes are done in the reverse of ORDER. Few rows are served from the last to the first, which is the
    root then; more of them from the first on, since plans of ordered states do not cross then (the paper's models need
    no pivots that way), and the tree is turned round afterwards.
    """
    left, closed = real[FLOW], real[POT]  # mass not yet placed; what keeps a column from being chosen again
    for v in range(n + m):
        left[v] = real[MASS, v]
        closed[v] = 0.0
    few = n <= _FEW and m <= _FEW
    i, last, step = (n - 1, 0, -1) if few else (0, n - 1, 1)
    open_columns = m
    for k in range(n + m - 1, 0, -1):
        best, low = -1, np.inf
        for j in range(m):
            value = cost[i * m + j] + closed[n + j]
            best = j if value < low else best
            low = value if value < low else low
        column = n + best
        row_done = i != last and (left[i] <= left[column] or open_columns == 1)
        done, above = (i, column) if row_done else (column, i)
        left[above] -= left[done]
        link[ORDER, k], link[PARENT, done] = done, above
        if row_done:
            i += step
        else:
            closed[column] = np.inf
            open_columns -= 1
    link[ORDER, 0], link[PARENT, last] = last, -1
    if not few:
        _root_at_first(n, m, real, link)


@part
def _root_at_first(n, m, real, link):
    """Turn round the path from row 0 to the root, row n − 1, and put it first in ORDER; other nodes keep theirs."""
    for v in range(n + m):
        link[MARK, v] = 0
    v, below, carried = 0, -1, 0.0
    while v >= 0:
        above, flow = link[PARENT, v], real[FLOW, v]
        link[PARENT, v], link[MARK, v], real[FLOW, v] = below, 1, carried
        v, below, carried = above, v, flow
    free = n + m - 1
    for k in range(n + m - 1, -1, -1):
        v = link[ORDER, k]
        if link[MARK, v] == 0:
            link[ORDER, free] = v
            free -= 1
    v = n - 1
    for k in range(free, -1, -1):
        link[ORDER, k] = v
        v = link[PARENT, v]


@part
def read_tree(n, m, link, kept, start):
    """Read a kept tree: (node, parent) entries, parents first. False where none was kept."""
    if kept[start] == 0:  # the root is never listed
        return False
    link[PARENT, 0] = -1
    link[ORDER, 0] = 0
    for k in range(n + m - 1):
        v = np.int32(kept[start + 2 * k])
        link[ORDER, k + 1] = v
        link[PARENT, v] = np.int32(kept[start + 2 * k + 1])
    return True


@part
def write_tree(n, m, link, kept, start):
    """Keep a tree for the next time."""
    for k in range(1, n + m):
        kept[start + 2 * k - 2] = link[ORDER, k]
        kept[start + 2 * k - 1] = link[PARENT, link[ORDER, k]]


@part
def unread_tree(n, m):
    """Room for a tree that nobody reads again: of the type that is kept of most pairs, whatever fits in it."""
    return np.zeros(2 * (n + m), np.uint8)


@part
def set_potentials(n, m, cost, real, link):
    """Potentials of the tree, from the root down."""
    real[POT, 0] = 0.0
    for k in range(1, n + m):
        v = link[ORDER, k]
        above = link[PARENT, v]
        i, j = (v, above - n) if v < n else (above, v - n)
        real[POT, v] = cost[i * m + j] - real[POT, above]


@part
def set_flows(n, m, real, link):
    """Flows of the tree, from the leaves up; returns the smallest one (at most 0).

    Rows send and columns receive: what a subtree exchanges with its parent comes off the
    parent's own mass. The root takes up what rounding leaves over.
    """
    for v in range(n + m):
        real[FLOW, v] = real[MASS, v]
    low = 0.0
    for k in range(n + m - 1, 0, -1):
        v = link[ORDER, k]
        flow = real[FLOW, v]
        real[FLOW, link[PARENT, v]] -= flow
        low = min(low, flow)
    return low


@part
def link_children(n, m, link):
    """Make child lists and depths from PARENT and ORDER."""
    for v in range(n + m):
        link[CHILD, v] = -1
    link[DEPTH, 0] = 0
    for k in range(1, n + m):
        v = link[ORDER, k]
        _attach(link, v, link[PARENT, v])
        link[DEPTH, v] = link[DEPTH, link[PARENT, v]] + 1


@part
def set_order(n, m, link):
    """Make ORDER from the child lists."""
    link[ORDER, 0] = 0
    filled = 1
    for k in range(n + m):
        child = link[CHILD, link[ORDER, k]]
        while child >= 0:
            link[ORDER, filled] = child
            filled += 1
            child = link[NEXT, child]


@part
def _attach(link, v, above):
    head = link[CHILD, above]
    link[PARENT, v] = above
    link[PREVIOUS, v] = -1
    link[NEXT, v] = head
    if head >= 0:
        link[PREVIOUS, head] = v
    link[CHILD, above] = v


@part
def _detach(link, v):
    left, right = link[PREVIOUS, v], link[NEXT, v]
    if left >= 0:
        link[NEXT, left] = right
    else:
        link[CHILD, link[PARENT, v]] = right
    if right >= 0:
        link[PREVIOUS, right] = left


@part
def next_below(link, v, top):
    """The node after v in a depth-first walk of top's subtree, or −1 at its end."""
    if link[CHILD, v] >= 0:
        return link[CHILD, v]
    while v != top:
        if link[NEXT, v] >= 0:
            return link[NEXT, v]
        v = link[PARENT, v]
    return -1


@part
def exchange(n, real, link, cut, inside, outside, amount, reduced):
    """Replace the arc (cut, its parent) by (inside, outside), where `inside` is below `cut`.

    The subtree of `cut` is hung up again by `inside`. Its potentials move by the reduced cost of
    the new arc, which becomes 0.
    """
    v, above, carried = inside, outside, amount
    while True:
        old_above, old_carried = link[PARENT, v], real[FLOW, v]
        _detach(link, v)
        _attach(link, v, above)
        real[FLOW, v] = carried
        if v == cut:
            break
        above, v, carried = v, old_above, old_carried
    shift = reduced if inside < n else -reduced  # rows rise by it, columns fall, or the reverse
    v = inside
    while v >= 0:
        link[DEPTH, v] = link[DEPTH, link[PARENT, v]] + 1
        real[POT, v] += shift if v < n else -shift
        v = next_below(link, v, inside)


@part
def push(n, real, link, i, j, amount):
    """Send `amount` round the cycle that the arc (i, j) closes.

    On i's side rows lose and columns gain; on j's side the reverse.
    """
    while i != j:
        if link[DEPTH, i] >= link[DEPTH, j]:
            real[FLOW, i] += -amount if i < n else amount
            i = link[PARENT, i]
        else:
            real[FLOW, j] += amount if j < n else -amount
            j = link[PARENT, j]
