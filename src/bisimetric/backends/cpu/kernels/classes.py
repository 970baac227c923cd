"""Classes of states: the greedy cover of the states by ε-neighbourhoods, extents of classes, the averaged chain."""

import numpy as np

from .jit import kernel


@kernel
def all_finite(d):
    """Whether all entries are finite."""
    bad = 0
    for x in d.ravel():
        bad += not np.isfinite(x)
    return bad == 0


@kernel
def neighbour_weights(d, reach, weights, total):
    """total[s] = the weights of all t with d(s, t) ≤ reach."""
    for s in range(len(d)):
        total[s] = 0.0
        for t in range(len(d)):
            if d[s, t] <= reach:
                total[s] += weights[t]


def epsilon_classes(d, reach, weights, by_diameter):
    """(label of each state, medoids, whether all distances are finite): the greedy cover; labels tell classes apart."""
    n = len(d)
    neighbours, labels = np.empty(n), np.empty(n, np.int64)
    neighbour_weights(d, reach, np.ones(n) if weights is None else weights, neighbours)
    # Counts never change, so the order of the medoids is known: most neighbours first, then by index.
    order = np.argsort(-neighbours, kind="stable")
    return labels, cover(d, order, reach, by_diameter, labels), all_finite(d)


@kernel
def cover(d, order, reach, by_diameter, labels):
    """Make states medoids in the given order; each takes its neighbours that are free. Returns the medoids.

    By diameter, free neighbours are taken nearest first (ties by index), as long as all pairs of the class stay within
    reach. Classes are numbered in the order in which they are made.
    """
    n = len(d)
    labels[:] = -1
    medoids = np.empty(n, np.int64)
    farthest = np.empty(n)  # of each free state, to the class so far
    count = 0
    for medoid in order:
        if labels[medoid] >= 0:
            continue
        labels[medoid] = count
        if by_diameter:
            farthest[:] = 0.0
            last = medoid
            while last >= 0:
                nearest = -1
                for t in range(n):
                    if labels[t] >= 0:
                        continue
                    farthest[t] = max(farthest[t], d[last, t])
                    if farthest[t] <= reach and (nearest < 0 or d[medoid, t] < d[medoid, nearest]):
                        nearest = t
                if nearest >= 0:
                    labels[nearest] = count
                last = nearest
        else:
            for t in range(n):
                if d[medoid, t] <= reach and labels[t] < 0:
                    labels[t] = count
        medoids[count] = medoid
        count += 1
    return medoids[:count]


@kernel
def extents(d, labels, medoids):
    """(largest distance of a state from its medoid, largest one inside a class); states themselves are left out."""
    n, n_classes = len(labels), len(medoids)
    starts = np.zeros(n_classes + 1, np.int64)
    for s in range(n):
        starts[labels[s] + 1] += 1
    starts = np.cumsum(starts)
    filled = starts[:-1].copy()
    members = np.empty(n, np.int64)  # class by class
    radius, diameter = 0.0, 0.0
    for s in range(n):
        members[filled[labels[s]]] = s
        filled[labels[s]] += 1
        if s != medoids[labels[s]]:
            radius = max(radius, float(d[s, medoids[labels[s]]]))
    for c in range(n_classes):
        for x in range(starts[c], starts[c + 1]):
            for y in range(starts[c], starts[c + 1]):
                if x != y:
                    diameter = max(diameter, float(d[members[x], members[y]]))
    return radius, diameter


@kernel
def averaged_system(chain, classes, A, R):
    """A = I − γ P, and R, of the chain averaged over classes."""
    indptr, indices, probs = chain.rows
    rewards, gamma = chain.rewards, chain.gamma
    labels, shares = classes
    A[:] = 0.0
    R[:] = 0.0
    for c in range(len(R)):
        A[c, c] = 1.0
    for s in range(len(labels)):
        R[labels[s]] += shares[s] * rewards[s]
        for k in range(indptr[s], indptr[s + 1]):
            A[labels[s], labels[indices[k]]] -= gamma * shares[s] * probs[k]


def averaged_values(chain, classes, start, limit):
    """(values of the chain averaged over classes [K], last change), by iteration from `start` to a change ≤ limit."""
    V, change = np.array(start), np.inf
    classes = classes._replace(class_of=classes.class_of.astype(np.uint32))
    between = chain._replace(rows=chain.rows._replace(indices=classes.class_of[chain.rows.indices]))
    while change > limit:  # some backups at a time, so that Ctrl-C is heard
        change = _averaged_backups(between, classes, V, limit, 64)
    return V, change


@kernel
def _averaged_backups(chain, classes, V, limit, count):
    """Backups of V in place, at most `count`; the chain's successors are classes. Returns the last change."""
    indptr, successors, probs = chain.rows
    rewards, gamma = chain.rewards, chain.gamma
    labels, shares = classes
    new, change = np.empty_like(V), np.inf
    for _ in range(count):
        new[:] = 0.0
        for s in range(len(labels)):
            ahead = 0.0
            for k in range(indptr[s], indptr[s + 1]):
                ahead += probs[k] * V[successors[k]]
            new[labels[s]] += shares[s] * (rewards[s] + gamma * ahead)
        change = np.abs(new - V).max()
        V[:] = new
        if change <= limit:
            break
    return change


@kernel
def value_gap(d, V):
    """max |d(s, t) − |V(s) − V(t)|| for a symmetric d."""
    gap = 0.0
    for s in range(len(V)):
        for t in range(s, len(V)):
            gap = max(gap, abs(d[s, t] - abs(V[s] - V[t])))
    return gap
