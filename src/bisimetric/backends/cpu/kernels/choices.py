"""Rows of F(d) for choices that are kept: notes of what decides each distance, and answers to them.

A note is the group of rows that decides, or under Hausdorff matching the pair of choices, as x·widest + y.
"""

import numpy as np

from .jit import kernel, part
from .pairs import widest_range

APART, UNKNOWN = -1, -2  # notes of pairs of states: kept apart by their labels; not seen yet


@kernel
def raise_and_note(transports, block, states, rewards, s0, weights, acc, note):
    """The same as `raise_to`, and note = (group, noted): noted is the group that attains it, −1 where apart."""
    members, a0, a1, first, corner = block
    group, noted = note
    c_R, c_T = weights
    for a in range(a0, a1):
        s, r = states[members[a]] - s0, rewards[members[a]]
        for b in range(max(a + first, corner), len(members)):
            t = states[members[b]]
            value = c_R * abs(r - rewards[members[b]]) + c_T * transports[a - a0, b - corner]
            if noted[s, t] == UNKNOWN or value > acc[s, t]:
                acc[s, t] = max(acc[s, t], value)
                if noted[s, t] != APART:
                    noted[s, t] = group


@kernel
def wanted_of_partners(sides, s0, begin, partners, wanted):
    """wanted[x − top, y − corner] = whether x or y is the other's partner."""
    pointers, columns, corner = sides
    top = pointers[s0]
    rows = np.searchsorted(pointers, top + wanted.shape[0])
    for s in range(s0, rows):
        for t in range(max(s + begin, 0), len(columns) - 1):
            for x in range(pointers[s], pointers[s + 1]):
                _want(wanted, x, columns[t] + partners[x, t], top, corner)
            for y in range(columns[t], columns[t + 1]):
                _want(wanted, pointers[s] + partners[y, s], y, top, corner)


@part
def _want(wanted, x, y, top, corner):
    if x <= y:
        wanted[x - top, y - corner] = True
    else:
        wanted[y - top, x] = True


@kernel
def respond(transports, sides, rewards, s0, begin, weights, acc, note):
    """As `hausdorff` with given partners, note = (partners, noted): noted is the pair that decides, as x·widest + y."""
    pointers, columns, corner = sides
    partners, noted = note
    c_R, c_T = weights
    top, widest = pointers[s0], widest_range(columns)
    for s in range(s0, s0 + acc.shape[0]):
        for t in range(max(s + begin, 0), acc.shape[1]):
            n = pointers[s + 1] - pointers[s]
            worst, pair = -1.0, 0
            for k in range(n + columns[t + 1] - columns[t]):
                if k < n:
                    x = pointers[s] + k
                    y = columns[t] + partners[x, t]
                else:
                    y = columns[t] + k - n
                    x = pointers[s] + partners[y, s]
                w = transports[x - top, y - corner] if x <= y else transports[y - top, x]
                value = c_R * abs(rewards[x] - rewards[y]) + c_T * w
                if value > worst:
                    worst, pair = value, (x - pointers[s]) * widest + y - columns[t]
            acc[s - s0, t] = worst
            noted[s - s0, t] = pair


@kernel
def wanted_of_group(block, states, s0, group, noted, wanted):
    """wanted[a − a0, b − corner] = whether the pair decided its states' distance in the last sweep."""
    members, a0, a1, first, corner = block
    for a in range(a0, a1):
        s = states[members[a]] - s0
        for b in range(max(a + first, corner), len(members)):
            wanted[a - a0, b - corner] = noted[s, states[members[b]]] == group


@kernel
def wanted_of_choices(sides, s0, begin, noted, wanted):
    """The same for pairs of choices under Hausdorff matching."""
    pointers, columns, corner = sides
    top, widest = pointers[s0], widest_range(columns)
    for s in range(s0, s0 + noted.shape[0]):
        for t in range(max(s + begin, 0), noted.shape[1]):
            x, y = pointers[s] + noted[s - s0, t] // widest, columns[t] + noted[s - s0, t] % widest
            if x <= y:
                wanted[x - top, y - corner] = 1
            else:
                wanted[y - top, x] = 1


@kernel
def take_wanted(transports, block, states, rewards, s0, weights, wanted, acc):
    """acc = c_R |Δr| + c_T W for the pairs of one label that are wanted."""
    members, a0, a1, first, corner = block
    c_R, c_T = weights
    for a in range(a0, a1):
        s, r = states[members[a]] - s0, rewards[members[a]]
        for b in range(max(a + first, corner), len(members)):
            if wanted[a - a0, b - corner]:
                acc[s, states[members[b]]] = c_R * abs(r - rewards[members[b]]) + c_T * transports[a - a0, b - corner]


@kernel
def take_choices(transports, sides, rewards, s0, begin, weights, noted, acc):
    """acc = c_R |Δr| + c_T W for the pair of choices that is noted for each pair of states."""
    pointers, columns, corner = sides
    c_R, c_T = weights
    top, widest = pointers[s0], widest_range(columns)
    for s in range(s0, s0 + acc.shape[0]):
        for t in range(max(s + begin, 0), acc.shape[1]):
            x, y = pointers[s] + noted[s - s0, t] // widest, columns[t] + noted[s - s0, t] % widest
            w = transports[x - top, y - corner] if x <= y else transports[y - top, x]
            acc[s - s0, t] = c_R * abs(rewards[x] - rewards[y]) + c_T * w
