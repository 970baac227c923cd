"""Classes of states from distances on the device, and values; only vectors over the states come to the host.

The same functions as those of the CPU. Distances must be symmetric, as those of the metrics are.
"""

from __future__ import annotations

import numpy as np

from ....kinds import Array, Floats, Ints
from ....model import Chain
from .device import cupy, lanes, launch, processors

_ROUNDS = 8  # of the cover
_BACKUPS = 16  # of the values that are started before the host looks whether more are needed


def epsilon_classes(d: Array, reach: float, weights: Floats | None, by_diameter: bool) -> tuple[Ints, Ints, bool]:
    """(label of each state, medoids, whether all distances are finite): the greedy cover; see `cover` of the CPU.

    The order of the medoids is known from the start, so a state is one where none before it within reach is. Some
    rounds decide many states at once, then one block decides what is left, one by one. Labels are medoids.
    """
    xp, n = cupy(), len(d)
    total, rank, order = xp.empty(n), xp.empty(n, np.uint32), xp.empty(n, np.uint32)
    marks = xp.zeros(2 + n, np.uint32)  # entries that are not finite, and the medoid of each state
    bad, medoid_of = marks[:2].view(np.uint64), marks[2:]
    given = total if weights is None else xp.asarray(weights)
    _over_rows("neighbour_weights", d, np.float64(reach), np.int64(weights is not None), given, total, bad)
    launch("classes.cu", "rank_states", d.dtype, *_rows(n), (total, np.int64(n), rank))
    if by_diameter:
        _one_block("cover_by_diameter", d, np.float64(reach), rank, order, xp.empty(n, d.dtype), medoid_of)
    else:
        fate, left = xp.zeros(n, np.uint32), xp.zeros(_ROUNDS, np.uint32)
        for k in range(_ROUNDS):
            _over_rows("cover_round", d, np.float64(reach), rank, np.int64(k), fate, left)
        _one_block("cover_the_rest", d, np.float64(reach), rank, left[-1:], order, fate)
        _over_rows("first_medoids", d, np.float64(reach), rank, fate, medoid_of)
    seen = xp.asnumpy(marks)
    labels = seen[2:].astype(np.int64)
    return labels, np.unique(labels), not seen[:2].any()


def extents(d: Array, labels: Array, medoids: Array) -> tuple[float, float]:
    """(largest distance of a state from its medoid, largest one inside a class); states themselves are left out."""
    xp = cupy()
    found = xp.zeros(2, np.uint64)
    _over_rows("class_extents", d, xp.asarray(medoids[labels].astype(np.uint32)), found)
    radius, diameter = xp.asnumpy(found).view(np.float64)
    return float(radius), float(diameter)


def averaged_values(chain: Chain, labels: Ints, shares: Floats, start: Floats, limit: float) -> tuple[Floats, float]:
    """(values of the chain averaged over classes [K], last change), by iteration from `start` to a change ≤ limit."""
    rows, gamma = chain.rows, chain.gamma
    xp = cupy()
    members = np.argsort(labels, kind="stable")  # class by class, so that sums have one order
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=len(start)))])
    successors = labels.astype(np.uint32)[rows.indices]
    parts = members, starts, rows.indptr, successors, rows.probs, chain.rewards, shares
    averaged = [xp.asarray(x) for x in parts]
    V, new, changes = xp.array(start), xp.empty(len(start)), xp.empty(_BACKUPS, np.uint64)
    while True:
        changes.fill(0)
        for k in range(_BACKUPS):
            arguments = (*averaged, len(start), gamma, V, new, changes[k:])
            launch("classes.cu", "averaged_backup", V.dtype, *_rows(len(start)), arguments)
            V, new = new, V
        change = float(xp.asnumpy(changes).view(np.float64)[-1])
        if change <= limit:
            return xp.asnumpy(V), change


def value_gap(d: Array, V: Array) -> float:
    """max |d(s, t) − |V(s) − V(t)||."""
    xp = cupy()
    found = xp.zeros(1, np.uint64)
    _over_rows("value_gap", d, xp.asarray(V), found)
    return float(xp.asnumpy(found).view(np.float64)[0])


def _over_rows(name: str, d: Array, *arguments: object) -> None:
    """Start a kernel with a warp for each row of d."""
    launch("classes.cu", name, d.dtype, *_rows(len(d)), (d, np.int64(len(d)), *arguments))


def _one_block(name: str, d: Array, *arguments: object) -> None:
    """Start a kernel that goes through the states one by one; small blocks meet sooner."""
    threads = 1 if lanes() == 1 else 256 if len(d) <= 2048 else 1024
    launch("classes.cu", name, d.dtype, 1, threads, (d, np.int64(len(d)), *arguments))


def _rows(n: int) -> tuple[int, int]:
    """(blocks, threads) with a warp for each of n rows, as far as the device is filled by them."""
    return max(1, min(-(-n // 4), 16 * processors())), 4 * lanes()
