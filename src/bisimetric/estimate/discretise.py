"""Discretisers: from continuous observations to numbered cells.

They are heuristic. A discretised process is not Markov in general; what is certified of it is certified of an MDP whose
states are the cells, as if each visit of a cell drew its successor by the same odds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..checks import check_whole
from ..kinds import Array, Floats, Ints
from ..model import ModelError


def _observations(given: Array, dimensions: int) -> Floats:
    """Observations as [n, dimensions]."""
    array = np.asarray(given)
    if array.dtype.kind not in "fiub":
        raise ModelError(f"observations must be numbers; got an array of dtype {array.dtype}.")
    flat = array.reshape(len(array), -1).astype(np.float64)
    if flat.shape[1] != dimensions:
        raise ModelError(f"observations have {flat.shape[1]} numbers each; the discretiser has {dimensions}.")
    bad = np.flatnonzero(~np.isfinite(flat).all(axis=1))
    if bad.size:
        raise ModelError(f"observations must be finite; entry {int(bad[0])} is {flat[bad[0]]}.")
    return flat


@dataclass(frozen=True)
class Grid:
    """Cells of a regular grid; what lies outside belongs to the nearest cell.

    Args:
        low, high: corners of the box [dimensions], low < high.
        bins: cells along each dimension, one number or [dimensions].
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    bins: tuple[int, ...]

    def __init__(self, low: ArrayLike, high: ArrayLike, bins: ArrayLike) -> None:
        lows, highs = (np.atleast_1d(np.asarray(x, np.float64)) for x in (low, high))
        if lows.shape != highs.shape or lows.ndim != 1 or not np.isfinite([lows, highs]).all() or (lows >= highs).any():
            raise ValueError(f"Grid needs finite corners low < high of one length; got {low!r} and {high!r}.")
        counts = [check_whole("bins", x) for x in np.broadcast_to(np.asarray(bins), lows.shape).tolist()]
        if min(counts) < 1:
            raise ValueError(f"bins must be at least 1; got {bins!r}.")
        for name, value in (("low", lows.tolist()), ("high", highs.tolist()), ("bins", counts)):
            object.__setattr__(self, name, tuple(value))

    @property
    def n_states(self) -> int:
        """Number of cells."""
        cells = 1
        for count in self.bins:
            cells *= count
        return cells

    def __call__(self, observations: Array) -> Ints:
        """The cell of each observation [n]."""
        x = _observations(observations, len(self.low))
        low, high, bins = np.array(self.low), np.array(self.high), np.array(self.bins)
        along = np.clip(((x - low) / (high - low) * bins).astype(np.int64), 0, bins - 1)
        return np.asarray(np.ravel_multi_index(tuple(along.T), self.bins), np.int64)


@dataclass(frozen=True, eq=False)
class KMeans:
    """Cells around k centres, found by k-means. The centres should come from data that are not counted afterwards.

    Args:
        centres: [k, dimensions]; `KMeans.fit` finds them.
    """

    centres: Floats

    @classmethod
    def fit(cls, observations: ArrayLike, k: int, *, seed: int) -> KMeans:
        """Centres of observations [n, …] (k-means++ and Lloyd's iterations, SciPy's)."""
        from scipy.cluster.vq import kmeans2

        given = np.asarray(observations)
        flat = _observations(given, int(np.prod(given.shape[1:], dtype=np.int64)))
        if not 1 <= check_whole("k", k) <= len(flat):
            raise ValueError(f"k must be from 1 to the {len(flat)} observations; got {k}.")
        scale = np.where(flat.std(axis=0) > 0.0, flat.std(axis=0), 1.0)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a cluster that becomes empty keeps its centre
            centres, _ = kmeans2(flat / scale, k, minit="++", seed=np.random.default_rng(seed))
        return cls(np.asarray(centres * scale))

    @property
    def n_states(self) -> int:
        """Number of cells."""
        return len(self.centres)

    def __repr__(self) -> str:
        return f"KMeans({len(self.centres)} centres)"

    def __call__(self, observations: Array) -> Ints:
        """The nearest centre of each observation [n]."""
        from scipy.cluster.vq import vq

        x = _observations(observations, self.centres.shape[1])
        return np.asarray(vq(x, self.centres)[0], np.int64)
