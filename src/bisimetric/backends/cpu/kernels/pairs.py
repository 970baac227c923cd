"""What all blocks of pairs share: costs on two supports, closed forms, roots with their errors."""

import numpy as np

from ....transport.budget import pricing_share
from .jit import part

EPS = float(np.finfo(np.float64).eps)
PRICING = pricing_share(EPS)  # how far a reduced cost may be below 0, in units of the largest cost


@part
def widest_support(indptr, members, a0):
    widest = 1
    for b in range(a0, len(members)):
        widest = max(widest, indptr[members[b] + 1] - indptr[members[b]])
    return widest


@part
def largest_of(part, count):
    """The largest of the first numbers, none of which is negative; NumPy's own way takes a second to compile."""
    largest = 0.0
    for k in range(count):
        largest = max(largest, part[k])
    return largest


@part
def widest_range(pointers):
    """The most entries that one range has."""
    widest = 0
    for k in range(len(pointers) - 1):
        widest = max(widest, pointers[k + 1] - pointers[k])
    return widest


@part
def gather(matrix, indices, lo, n, to, m, part):
    for i in range(n):
        x = indices[lo + i]
        for j in range(m):
            part[i * m + j] = matrix[x, indices[to + j]]


@part
def corners(matrix, indices, lo, to):
    """What `gather` finds for two supports of two states."""
    x, y, z, t = indices[lo], indices[lo + 1], indices[to], indices[to + 1]
    return matrix[x, z], matrix[x, t], matrix[y, z], matrix[y, t]


@part
def product_cost(probs, indices, lo, n, to, m, cost):
    """⟨a⊗b, C⟩: the only coupling there is where one side has a single state."""
    value = 0.0
    for i in range(n):
        for j in range(m):
            value += probs[lo + i] * probs[to + j] * cost[indices[lo + i], indices[to + j]]
    return value


@part
def two_by_two(a, b, costs):
    """Optimal cost between (a0, a1) and (b0, b1): one of the two diagonals takes all that it can.

    What is left goes from the row to the column that have more. It is worked out on the side with less mass, where the
    difference is exact or nearly so, however small it is.
    """
    return two_by_two_along(a, b, costs, crosses(costs))


@part
def crosses(costs):
    """Whether the other diagonal than (0, 0), (1, 1) is the cheaper one."""
    c00, c01, c10, c11 = costs
    return c00 + c11 > c01 + c10


@part
def two_by_two_along(a, b, costs, crossed):
    """Cost of the plan in which one of the two diagonals takes all that it can."""
    a0, a1 = a
    b0, b1 = b
    c00, c01, c10, c11 = costs
    if crossed:
        b0, b1, c00, c01, c10, c11 = b1, b0, c01, c00, c11, c10
    rest = b0 - a0 if a0 + b0 < a1 + b1 else a1 - b1
    return min(a0, b0) * c00 + min(a1, b1) * c11 + max(rest, 0.0) * c10 + max(-rest, 0.0) * c01


@part
def root_and_error(value, above, below, inv_p):
    """value^(1/p), and how far it may be from that of a number in [value − below, value + above]."""
    if inv_p == 1.0:
        return value, max(above, below)
    root = value**inv_p
    return root, max((value + above) ** inv_p - root, root - max(value - below, 0.0) ** inv_p)
