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

from .jit import kernel

_M1, _M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)
_K1, _K2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@kernel
def _mix(h, x):
    """One step of a splitmix-like hash."""
    h = (h ^ np.uint64(x)) * _M1
    h = (h ^ (h >> _S1)) * _K1
    h = (h ^ (h >> _S2)) * _K2
    return h ^ (h >> _S3)


@kernel
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


@kernel
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


@kernel
def _blocks(first, elements, place, block_of, begin, end):
    """Lay out the first partition; returns the number of blocks."""
    n, count = len(first), 0
    order = np.argsort(first, kind="mergesort")
    for k in range(n):
        e = order[k]
        if k == 0 or first[e] != first[order[k - 1]]:
            begin[count] = k
            count += 1
        elements[k], place[e], block_of[e] = e, k, count - 1
        end[count - 1] = k + 1
    return count


@kernel
def _split(touched, n_touched, h1, h2, elements, place, block_of, begin, end, count, moved, tally):
    """Split blocks by the hashes of their touched elements; untouched ones stay together.

    `tally` is one zero per block, and is left so. Returns (number of blocks, number of elements that got a new
    block, listed in `moved`).
    """
    # Order the touched elements by (block, hash): one sort by hash, then a stable counting sort by block.
    key = np.empty(n_touched, np.int64)
    a, b = np.empty(n_touched, np.uint64), np.empty(n_touched, np.uint64)
    for k in range(n_touched):
        e = touched[k]
        key[k], a[k], b[k] = block_of[e], h1[e], h2[e]
        tally[key[k]] += 1
    by_hash = np.argsort(a)
    filled = 0
    for k in range(n_touched):  # turn counts into first places, −1 − place, in order of appearance
        size = tally[key[k]]
        if size > 0:
            tally[key[k]] = -1 - filled
            filled += size
    order = np.empty(n_touched, np.int64)
    for i in range(n_touched):
        k = by_hash[i]
        order[-1 - tally[key[k]]] = k
        tally[key[k]] -= 1
    for k in range(n_touched):
        tally[key[k]] = 0
    n_moved, k = 0, 0
    while k < n_touched:
        old = key[order[k]]
        stop = k
        while stop < n_touched and key[order[stop]] == old:
            stop += 1
        size, lo = end[old] - begin[old], begin[old]
        # Put the touched elements first in their block, in the order of their hashes.
        for i in range(k, stop):
            e, at = touched[order[i]], lo + i - k
            other, was = elements[at], place[e]
            elements[was], place[other] = other, was
            elements[at], place[e] = e, at
        rest = size - (stop - k)
        # Find the largest part: a group of equal hashes, or the untouched rest.
        largest, largest_at, i = rest, -1, k
        while i < stop:
            j = i
            while j < stop and a[order[j]] == a[order[i]] and b[order[j]] == b[order[i]]:
                j += 1
            if j - i > largest:
                largest, largest_at = j - i, i
            i = j
        i = k
        while i < stop:
            j = i
            while j < stop and a[order[j]] == a[order[i]] and b[order[j]] == b[order[i]]:
                j += 1
            if i != largest_at:
                begin[count], end[count] = lo + i - k, lo + j - k
                for x in range(i, j):
                    e = touched[order[x]]
                    block_of[e] = count
                    moved[n_moved] = e
                    n_moved += 1
                count += 1
            i = j
        if largest_at < 0:  # the untouched rest keeps the number
            begin[old] = lo + stop - k
        else:
            begin[old] = lo + largest_at - k
            end[old] = begin[old] + largest
            if rest > 0:
                begin[count], end[count] = lo + stop - k, lo + size
                for at in range(lo + stop - k, lo + size):
                    e = elements[at]
                    block_of[e] = count
                    moved[n_moved] = e
                    n_moved += 1
                count += 1
        k = stop
    return count, n_moved


@kernel
def refine(indptr, indices, probs, choice_ptr, state_of_choice, into_ptr, into, first_states, first_choices, tol):
    """The coarsest stable partition; returns (block of each state, block of each choice, rounds).

    `into[into_ptr[t]:into_ptr[t+1]]` are the choices that may lead to state t.
    """
    n_states, n_choices = len(first_states), len(first_choices)
    s_el, s_at, s_block = np.empty(n_states, np.int64), np.empty(n_states, np.int64), np.empty(n_states, np.int64)
    s_lo, s_hi = np.empty(n_states, np.int64), np.empty(n_states, np.int64)
    c_el, c_at, c_block = np.empty(n_choices, np.int64), np.empty(n_choices, np.int64), np.empty(n_choices, np.int64)
    c_lo, c_hi = np.empty(n_choices, np.int64), np.empty(n_choices, np.int64)
    s_count = _blocks(first_states, s_el, s_at, s_block, s_lo, s_hi)
    c_count = _blocks(first_choices, c_el, c_at, c_block, c_lo, c_hi)
    widest, most = 1, 1
    for c in range(n_choices):
        widest = max(widest, indptr[c + 1] - indptr[c])
    for s in range(n_states):
        most = max(most, choice_ptr[s + 1] - choice_ptr[s])
    ids, mass = np.empty(max(widest, most), np.int64), np.empty(widest)
    s1, s2 = np.empty(n_states, np.uint64), np.empty(n_states, np.uint64)
    c1, c2 = np.empty(n_choices, np.uint64), np.empty(n_choices, np.uint64)
    touched_s, moved_s = np.empty(n_states, np.int64), np.empty(n_states, np.int64)
    touched_c, moved_c = np.empty(n_choices, np.int64), np.empty(n_choices, np.int64)
    seen_s, seen_c = np.zeros(n_states, np.bool_), np.zeros(n_choices, np.bool_)
    tally = np.zeros(max(n_states, n_choices), np.int64)
    n_touched_c, n_touched_s, rounds = n_choices, n_states, 0
    for c in range(n_choices):
        touched_c[c] = c
    inv_tol = 1.0 / tol
    everything = True
    while n_touched_c > 0:
        rounds += 1
        changed = 0
        for k in range(n_touched_c):
            c = touched_c[k]
            seen_c[c] = False
            x, y = _choice_hash(c, indptr, indices, probs, s_block, inv_tol, ids, mass)
            if everything or x != c1[c] or y != c2[c]:  # masses that round to 0 change nothing
                c1[c], c2[c] = x, y
                touched_c[changed] = c
                changed += 1
        n_touched_c = changed
        c_count, n_moved = _split(
            touched_c, n_touched_c, c1, c2, c_el, c_at, c_block, c_lo, c_hi, c_count, moved_c, tally
        )
        if everything:
            n_touched_s = n_states
            for s in range(n_states):
                touched_s[s] = s
        else:
            n_touched_s = 0
            for k in range(n_moved):
                s = state_of_choice[moved_c[k]]
                if not seen_s[s]:
                    seen_s[s] = True
                    touched_s[n_touched_s] = s
                    n_touched_s += 1
        for k in range(n_touched_s):
            s = touched_s[k]
            seen_s[s] = False
            s1[s], s2[s] = _state_hash(s, choice_ptr, c_block, ids)
        s_count, n_moved = _split(
            touched_s, n_touched_s, s1, s2, s_el, s_at, s_block, s_lo, s_hi, s_count, moved_s, tally
        )
        n_touched_c = 0
        for k in range(n_moved):
            t = moved_s[k]
            for i in range(into_ptr[t], into_ptr[t + 1]):
                c = into[i]
                if not seen_c[c]:
                    seen_c[c] = True
                    touched_c[n_touched_c] = c
                    n_touched_c += 1
        everything = False
    return s_block, c_block, rounds
