"""How far an estimated row is from the true one, in the transport distance of the true metric.

The true metric d does not depend on the data, so Z = W_d(p̂, p) = sup of (p̂ − p)f over functions f that are 1-Lipschitz
for d (Kantorovich) is the supremum of an empirical process over a fixed class. With n independent samples, Bousquet's
form of Talagrand's inequality gives, with probability 1 − α and L = log(1/α),

    Z ≤ E Z + √(2 (v + 2bE Z) L/n) + bL/(3n),      v ≥ sup Var_p f,   b ≥ max |f − pf|.

All three numbers are bounded by an upper bound U ≥ d and the confidence set of p, so this needs no union over
functions: L does not grow with the number of states, unlike a ball of rows that must hold for every function at once.

    E Z ≤ Σ_e U(e) √(p_e (1 − p_e)/n)      for any tree over the states, p_e the mass beyond edge e: along a tree whose
                                           edges are as long as U the transport costs at least W_d (d is a metric), and
                                           it is Σ_e U(e) |p̂_e − p_e|. The tree is the shortest one for U.
    v ≤ ½ Σ p(x) p(y) U(x, y)²             as Var f = ½ E (f(X) − f(Y))².

For data gathered adaptively: nZ_n is a submartingale (a supremum of martingales), so by Doob's inequality the bound for
m samples holds for all n ≤ m at once, in the form nZ_n ≤ m·bound(m). Epochs m = 2, 4, 8, … share α as 1/((k+1)(k+2)).
"""

from __future__ import annotations

import numpy as np

from ..kinds import Floats, Ints
from .confidence import Confidence

_MOST_STATES = 3000  # beyond, S² numbers for the tree cost more than they bring


def usable(sets: Confidence) -> bool:
    """Whether the bound is worth its cost for so many states."""
    return sets.n_states <= _MOST_STATES


def steady_reach(sets: Confidence, U: Floats, alpha: float) -> Floats:
    """A bound on W_d(p̂, p) of each row [N] for the true metric d ≤ U, with probability 1 − α for all rows together."""
    counted = sets.observed & np.isfinite(sets.visits)
    open_rows = max(int(np.isfinite(sets.visits).sum()), 1)
    n, L = np.where(counted, sets.visits, 1.0), np.full(len(sets.rows), np.log(open_rows / alpha))
    stretch = np.ones(len(n))
    if sets.design == "adaptive":
        k = np.maximum(np.ceil(np.log2(n)), 1.0)
        stretch, L = 2.0**k / n, L + np.log(k * (k + 1.0))
        n = 2.0**k
    mean = _expected(sets, U) / np.sqrt(n)
    v, b = _variance(sets, U), np.full(len(n), U.max())
    inside = np.flatnonzero(sets.unseen == 0.0)
    b[inside] = np.minimum(b[inside], _diameters(sets, U, inside))
    bound = stretch * (mean + np.sqrt(2.0 * (v + 2.0 * b * mean) * L / n) + b * L / (3.0 * n))
    return np.where(counted, bound, np.where(sets.observed, 0.0, np.inf))


def _expected(sets: Confidence, U: Floats) -> Floats:
    """√n · a bound on E W_d(p̂, p) of each row [N], by the shortest tree of U."""
    if len(U) < 2:
        return np.zeros(len(sets.rows))
    lengths, below = _shortest_tree(U)
    q = np.asarray(sets.rows.matrix() @ below)  # [N, edges]: mass beyond each edge
    empty = (q <= 0.0) | (q >= 1.0 - 1e-12)
    off = np.where(empty, np.minimum(sets.unseen, sets.spread)[:, None], sets.spread[:, None])
    low, high = np.clip(q - off, 0.0, 1.0), np.clip(q + off, 0.0, 1.0)
    nearest = np.clip(0.5, low, high)
    return np.asarray(np.sqrt(nearest * (1.0 - nearest)) @ lengths)


def _shortest_tree(U: Floats) -> tuple[Floats, Floats]:
    """(length of each edge, which states lie beyond it [S, edges]) of a minimum spanning tree."""
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    n = len(U)
    shifted = U + (1.0 + U.max())  # entries of 0 would be no edges
    np.fill_diagonal(shifted, 0.0)
    tree = minimum_spanning_tree(shifted)
    order, parent = breadth_first_order(tree, 0, directed=False)
    below = np.eye(n)
    for state in order[:0:-1]:  # leaves first: what is beyond a state is beyond its parent
        below[:, parent[state]] += below[:, state]
    states = np.asarray(order[1:], np.int64)
    return np.asarray(U[states, parent[states]]), np.asarray(below[:, states])


def _variance(sets: Confidence, U: Floats) -> Floats:
    """A bound on ½ Σ p(x) p(y) U(x, y)² over the set of each row [N].

    With H = U², ½ pᵀHp − ½ p̂ᵀHp̂ = (p − p̂)ᵀH(p + p̂)/2 ≤ spread · max (H p̂) + spread² max H.
    """
    H = U * U
    towards = np.asarray(sets.rows.matrix() @ H)  # [N, S]
    own = 0.5 * np.asarray(sets.rows.matrix().multiply(towards).sum(axis=1)).reshape(-1)
    far = float(H.max())
    moved = own + sets.spread * (towards.max(axis=1) + sets.spread * far)
    return np.asarray(np.minimum(moved, 0.25 * far))  # f has range at most max U


def _diameters(sets: Confidence, U: Floats, chosen: Ints) -> Floats:
    """max U over the observed successors of some rows."""
    rows = sets.rows
    return np.array(
        [U[np.ix_(s, s)].max() for s in (rows.indices[rows.indptr[k] : rows.indptr[k + 1]] for k in chosen)]
    )
