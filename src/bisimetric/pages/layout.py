"""Where states are drawn: landmarks, a map that keeps distances as well as a plane can, and an order of clusters.

Up to `MOST_LANDMARKS` states all of them are landmarks. Beyond, landmarks are found by farthest-first traversal
(Gonzalez 1985): every state is within `reach` of one, and where distances obey the triangle inequality no set of as
many landmarks does better than half of that. The map of the landmarks is classical scaling, improved by majorisation
(SMACOF, de Leeuw 1977); other states are placed by their distances to the landmarks (as in landmark MDS, de Silva and
Tenenbaum 2004). `stress` says how much the plane distorts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends.threads import single_thread
from ..kinds import Array, Floats, Ints

MOST_LANDMARKS = 1200
_PASSES = 80  # of majorisation
_FURTHEST = 1e-12  # distances below this share of the largest one are 0


@dataclass(frozen=True)
class Layout:
    """Landmarks [K], and for each of n points its landmark (as a number of 0 … K−1) and how far it is from it.

    place [n, 2]; stress: √(Σ (d − e)² / Σ d²) over pairs of landmarks, e the distances in the plane; merges [K−1, 3]:
    which two clusters are joined, and the largest distance inside (complete linkage, clusters numbered as SciPy does);
    order [K]: landmarks so that clusters stand together.
    """

    landmarks: Ints
    nearest: Ints
    reach: Floats
    between: Floats
    place: Floats
    stress: float
    merges: Floats
    order: Ints


def laid_out(d: Array, most: int = MOST_LANDMARKS) -> Layout:
    """Lay out points by their distances [n, n], symmetric; the diagonal is not looked at.

    Cost: O(n K + K³) for K landmarks.
    """
    landmarks = _landmarks(d, most)
    to_landmarks = np.asarray(d[:, landmarks], np.float64)
    to_landmarks[landmarks, np.arange(len(landmarks))] = 0.0
    nearest = to_landmarks.argmin(axis=1)
    nearest[landmarks] = np.arange(len(landmarks))
    between = to_landmarks[landmarks]
    between = 0.5 * between + 0.5 * between.T
    place, stress = _map(between, to_landmarks, landmarks)
    merges, order = _clusters(between)
    reach = to_landmarks[np.arange(len(d)), nearest]
    return Layout(landmarks, nearest, reach, between, place, stress, merges, order)


def _landmarks(d: Array, most: int) -> Ints:
    if len(d) <= most:
        return np.arange(len(d))
    found = [0]
    apart = np.array(d[0], np.float64)
    apart[0] = 0.0
    while len(found) < most:
        far = int(apart.argmax())
        if apart[far] == 0.0:  # all others are at distance 0 of a landmark
            break
        found.append(far)
        np.minimum(apart, d[far], out=apart)
        apart[far] = 0.0
    return np.array(sorted(found))


def _map(between: Floats, to_landmarks: Floats, landmarks: Ints) -> tuple[Floats, float]:
    """Places of all points [n, 2], and the stress of the landmarks."""
    unit = float(between.max(initial=0.0))
    n, K = to_landmarks.shape
    if K == 1 or unit == 0.0:
        return np.zeros((n, 2)), 0.0
    D, to = between / unit, to_landmarks / unit
    squared = D**2
    means = squared.mean(axis=0)
    values, vectors = _largest_two(-0.5 * (squared - means - means[:, None] + means.mean()))
    plain = vectors * np.sqrt(values)
    at = _majorised(D, plain)
    place = np.empty((n, 2))
    if n > K:  # as in landmark MDS, then moved as the landmarks were
        scaled = np.divide(vectors, np.sqrt(values), out=np.zeros_like(vectors), where=values > 0.0)
        where = -0.5 * (to**2 - means) @ scaled
        moved = np.linalg.lstsq(np.column_stack([plain, np.ones(K)]), at, rcond=None)[0]
        place[:] = np.column_stack([where, np.ones(n)]) @ moved
    place[landmarks] = at
    apart = np.sqrt(((at[:, None, :] - at[None, :, :]) ** 2).sum(axis=2))
    return place, float(np.sqrt(((D - apart) ** 2).sum() / (D**2).sum()))


def _largest_two(matrix: Floats) -> tuple[Floats, Floats]:
    """The two largest eigenvalues [2] (at least 0) of a symmetric matrix, and their eigenvectors [K, 2]."""
    K = len(matrix)
    with single_thread():
        if K < 20:
            values, vectors = np.linalg.eigh(matrix)
        else:
            from scipy.sparse.linalg import eigsh

            values, vectors = eigsh(matrix, k=2, which="LA", v0=np.linspace(1.0, 2.0, K), tol=1e-6)
    top = np.argsort(values)[::-1][:2]
    vectors = vectors[:, top]
    vectors *= np.where(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(top))] < 0.0, -1.0, 1.0)
    return np.maximum(values[top], 0.0), vectors


def _majorised(D: Floats, at: Floats) -> Floats:
    """Passes of SMACOF with equal weights: each lowers the stress."""
    K = len(D)
    for _ in range(_PASSES if K <= 600 else _PASSES // 4):
        sums = (at**2).sum(axis=1)
        apart = np.sqrt(np.maximum(sums[:, None] + sums[None, :] - 2.0 * at @ at.T, 0.0))
        ratio = np.divide(D, apart, out=np.zeros_like(D), where=apart > _FURTHEST)
        at = (ratio.sum(axis=1)[:, None] * at - ratio @ at) / K
    return at


def _clusters(between: Floats) -> tuple[Floats, Ints]:
    """Complete linkage: (which clusters are joined at which largest distance, an order of the landmarks)."""
    K = len(between)
    if K == 1:
        return np.empty((0, 3)), np.zeros(1, np.int64)
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    apart = between.copy()
    np.fill_diagonal(apart, 0.0)
    unit = float(apart.max()) or 1.0  # squares of large distances would overflow
    tree = linkage(squareform(apart / unit, checks=False), "complete")
    merges = tree[:, :3].copy()
    merges[:, 2] *= unit
    return merges, leaves_list(tree).astype(np.int64)
