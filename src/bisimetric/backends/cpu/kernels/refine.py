"""Partition refinement: the coarsest classes of states and of choices that explain each other.

A choice is described by its first class (label, rewards) and by the probability with which it reaches each class of
states; a state by its first class (labels) and by the set of classes of its choices. Both partitions are refined in
turn. When a block is split, its largest part keeps the number of the block, and only what points to the other parts is
looked at again: a state is in a smaller part at most log₂ S times, so the work is O(log S) times the sum of the squares
of the numbers of successors (and of choices a state).

Descriptions are compared by two independent 64-bit hashes. Probabilities into one class are added in increasing order
and rounded to multiples of `tol`, so that the result does not depend on the order of the states.
"""

import numpy as np

from .arguments import Refined
from .jit import kernel, part

_M1, _M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)
_K1, _K2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@part
def _mix(h, x):
    """One step of a splitmix-like hash."""
    h = (h ^ np.uint64(x)) * _M1
    h = (h ^ (h >> _S1)) * _K1
    h = (h ^ (h >> _S2)) * _K2
    return h ^ (h >> _S3)


@part
def _choice_hash(c, indptr, indices, probs, block_of, inv_tol, ids, mass):
    """Two hashes of the distribution of a choice over the blocks of states."""
    lo, n = indptr[c], indptr[c + 1] - indptr[c]
    for k in range(n):  # insertion sort by (block, probability): supports are short
        b, p = block_of[indices[lo + k]], probs[lo + k]
        j = k
        while j > 0 and (ids[j - 1] > b or (ids[j - 1] == b and mass[j - 1] > p)):
            ids[j], mass[j] = ids[j - 1], mass[j - 1]
            j -= 1
        ids[j], mass[j] = b, p
    h1, h2 = _M1, _M2
    k = 0
    while k < n:
        b, total = ids[k], 0.0
        while k < n and ids[k] == b:
            total += mass[k]
            k += 1
        q = np.int64(np.floor(total * inv_tol + 0.5))
        if q > 0:
            h1, h2 = _mix(_mix(h1, b), q), _mix(_mix(h2, q), b)
    return h1, h2


@part
def _state_hash(s, choice_ptr, block_of, ids):
    """Two hashes of the set of blocks of a state's choices."""
    n = 0
    for c in range(choice_ptr[s], choice_ptr[s + 1]):
        b = block_of[c]
        j = n
        while j > 0 and ids[j - 1] > b:
            ids[j] = ids[j - 1]
            j -= 1
        ids[j] = b
        n += 1
    h1, h2 = _M1, _M2
    for k in range(n):
        if k == 0 or ids[k] != ids[k - 1]:
            h1, h2 = _mix(h1, ids[k]), _mix(_mix(h2, ids[k]), 7)
    return h1, h2


@part
def _partition(first):
    """(the first partition, laid out; the number of its blocks)."""
    n, count = len(first), 0
    elements, place, block_of = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    bounds, hashes = np.empty((2, n), np.int64), np.empty((2, n), np.uint64)
    order = np.argsort(first, kind="mergesort")
    for k in range(n):
        e = order[k]
        if k == 0 or first[e] != first[order[k - 1]]:
            bounds[0, count] = k
            count += 1
        elements[k], place[e], block_of[e] = e, k, count - 1
        bounds[1, count - 1] = k + 1
    moved, seen = np.empty(n, np.int64), np.zeros(n, np.bool_)
    return Refined(elements, place, block_of, bounds, hashes, np.arange(n), moved, seen), count


@part
def _by_block_and_hash(keys, hashes, tally):
    """Order touched elements by (block, hash): one sort by hash, then a stable counting sort by block.

    Blocks come in the order of their appearance. `tally` is one zero per block, and is left so.
    """
    for key in keys:
        tally[key] += 1
    by_hash = np.argsort(hashes)
    filled = 0
    for key in keys:  # turn counts into first places, −1 − place, in order of appearance
        size = tally[key]
        if size > 0:
            tally[key] = -1 - filled
            filled += size
    order = np.empty(len(keys), np.int64)
    for k in by_hash:
        order[-1 - tally[keys[k]]] = k
        tally[keys[k]] -= 1
    for key in keys:
        tally[key] = 0
    return order


@part
def _put_first(elements, place, some, lo):
    """Put some elements of a block first in it, from place lo on, in their order."""
    for i in range(len(some)):
        e, at = some[i], lo + i
        other, was = elements[at], place[e]
        elements[was], place[other] = other, was
        elements[at], place[e] = e, at


@part
def _same_until(hashes, some, i):
    """Where the group of equal hashes ends that begins at i."""
    j = i
    while j < len(some) and hashes[0, some[j]] == hashes[0, some[i]] and hashes[1, some[j]] == hashes[1, some[i]]:
        j += 1
    return j


@part
def _make_block(elements, block_of, bounds, moved, lo, hi, count, n_moved):
    """Make the elements at lo … hi − 1 the block `count`, and list them as moved. Returns (blocks, moved) so far."""
    bounds[0, count], bounds[1, count] = lo, hi
    for at in range(lo, hi):
        block_of[elements[at]] = count
        moved[n_moved + at - lo] = elements[at]
    return count + 1, n_moved + hi - lo


@part
def _split_block(side, old, some, count, n_moved):
    """Split a block by the hashes of some of its elements, in their order; the others stay together.

    The largest part, a group of equal hashes or the rest, keeps the number. Returns (blocks, moved) so far.
    """
    elements, block_of, bounds, hashes, moved = side.elements, side.block_of, side.bounds, side.hashes, side.moved
    lo, hi = bounds[0, old], bounds[1, old]
    middle = lo + len(some)
    _put_first(elements, side.place, some, lo)
    largest, largest_at, i = hi - middle, -1, 0
    while i < len(some):
        j = _same_until(hashes, some, i)
        if j - i > largest:
            largest, largest_at = j - i, i
        i = j
    i = 0
    while i < len(some):
        j = _same_until(hashes, some, i)
        if i != largest_at:
            count, n_moved = _make_block(elements, block_of, bounds, moved, lo + i, lo + j, count, n_moved)
        i = j
    if largest_at < 0:  # the rest keeps the number
        bounds[0, old] = middle
        return count, n_moved
    bounds[0, old], bounds[1, old] = lo + largest_at, lo + largest_at + largest
    if hi > middle:
        count, n_moved = _make_block(elements, block_of, bounds, moved, middle, hi, count, n_moved)
    return count, n_moved


@part
def _split(side, n_touched, count, tally):
    """Split blocks by the hashes of their touched elements; untouched ones stay together.

    `tally` is one zero per block, and is left so. Returns (number of blocks, number of elements that got a new
    block, listed in `moved`).
    """
    touched, block_of, bounds = side.touched[:n_touched], side.block_of, side.bounds
    touched = touched[_by_block_and_hash(block_of[touched], side.hashes[0][touched], tally)]
    n_moved, k = 0, 0
    while k < n_touched:
        old, stop = block_of[touched[k]], k
        while stop < n_touched and block_of[touched[stop]] == old:
            stop += 1
        if bounds[1, old] - bounds[0, old] > 1:
            count, n_moved = _split_block(side, old, touched[k:stop], count, n_moved)
        k = stop
    return count, n_moved


@part
def _hash_choices(side, n_touched, rows, block_of, inv_tol, ids, mass, everything):
    """Hash the touched choices anew; returns how many changed, which are then the touched ones."""
    indptr, indices, probs = rows
    hashes, touched, seen = side.hashes, side.touched, side.seen
    changed = 0
    for k in range(n_touched):
        c = touched[k]
        seen[c] = False
        x, y = _choice_hash(c, indptr, indices, probs, block_of, inv_tol, ids, mass)
        if everything or x != hashes[0, c] or y != hashes[1, c]:  # masses that round to 0 change nothing
            hashes[0, c], hashes[1, c] = x, y
            touched[changed] = c
            changed += 1
    return changed


@part
def _hash_states(side, n_touched, ptr, block_of, ids):
    """Hash the touched states anew."""
    hashes, touched, seen = side.hashes, side.touched, side.seen
    for k in range(n_touched):
        s = touched[k]
        seen[s] = False
        hashes[0, s], hashes[1, s] = _state_hash(s, ptr, block_of, ids)


@part
def _touch_states(side, state_of, moved):
    """List the states of the choices that moved; returns how many there are."""
    touched, seen, count = side.touched, side.seen, 0
    for c in moved:
        s = state_of[c]
        if not seen[s]:
            seen[s] = True
            touched[count] = s
            count += 1
    return count


@part
def _touch_choices(side, into, moved):
    """List the choices that may lead to the states that moved; returns how many there are."""
    ptr, choices = into
    touched, seen, count = side.touched, side.seen, 0
    for t in moved:
        for i in range(ptr[t], ptr[t + 1]):
            c = choices[i]
            if not seen[c]:
                seen[c] = True
                touched[count] = c
                count += 1
    return count


@kernel
def refine(rows, choices, into, first_states, first_choices, tol):
    """The coarsest stable partition; returns (block of each state, block of each choice, rounds)."""
    states_side, n_state_blocks = _partition(first_states)
    choices_side, n_choice_blocks = _partition(first_choices)
    widest, most = max(1, np.max(np.diff(rows.indptr))), max(1, np.max(np.diff(choices.ptr)))
    ids, mass = np.empty(max(widest, most), np.int64), np.empty(widest)
    tally = np.zeros(max(len(first_states), len(first_choices)), np.int64)
    n_touched, rounds = len(first_choices), 0
    while n_touched > 0:
        everything = rounds == 0
        rounds += 1
        n_touched = _hash_choices(choices_side, n_touched, rows, states_side.block_of, 1.0 / tol, ids, mass, everything)
        n_choice_blocks, n_moved = _split(choices_side, n_touched, n_choice_blocks, tally)
        n_touched = len(first_states)
        if not everything:
            n_touched = _touch_states(states_side, choices.state_of, choices_side.moved[:n_moved])
        _hash_states(states_side, n_touched, choices.ptr, choices_side.block_of, ids)
        n_state_blocks, n_moved = _split(states_side, n_touched, n_state_blocks, tally)
        n_touched = _touch_choices(choices_side, into, states_side.moved[:n_moved])
    return states_side.block_of, choices_side.block_of, rounds
