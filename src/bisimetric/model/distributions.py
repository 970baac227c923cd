"""Probability distributions over states as sparse rows, checked and normalised, and mixtures of them.

This is the one place where probabilities are made to sum to 1: everything that is computed from a model (metrics,
values, classes) sees the same rows, so that bounds on one hold for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from ..checks import InputError
from ..kinds import Bools, Floats, Ints, Matrix, Sparse

if TYPE_CHECKING:
    from scipy.sparse import csr_array

ROW_SUM_TOLERANCE = 1e-8
_EPS = float(np.finfo(np.float64).eps)


class ModelError(InputError):
    """A model, policy or setting that cannot be used; the message names the offender."""


def floats(values: object, what: str) -> Floats:
    """A float64 copy; integers and float32 are converted, all else is refused."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ModelError(f"{what} must be real numbers; got an array of dtype {array.dtype}.")
    return np.array(array, dtype=np.float64, order="C")


def freeze(array: NDArray[np.generic]) -> None:
    array.setflags(write=False)


@dataclass(frozen=True, eq=False)
class Distributions:
    """Probability distributions over the states, as compressed sparse rows without zeros.

    Attributes: indptr [N+1], indices [nnz] (increasing within a row), probs [nnz], n_states, moved (how far the sum of
    a row was from 1 before it was rescaled; 0 where none was), split (rows from this one on are over the states of a
    second model, see `beside`; 0 where there is one model), sides (numbers of states of the two models, if there are
    two; `n_states` is the larger one).
    """

    indptr: Ints
    indices: NDArray[np.int32]
    probs: Floats
    n_states: int
    moved: float = 0.0
    split: int = 0
    sides: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def beside(self, other: Distributions) -> Distributions:
        """These rows, then those of another model, each over its own states."""
        return Distributions(
            np.concatenate([self.indptr, self.indptr[-1] + other.indptr[1:]]),
            np.concatenate([self.indices, other.indices]),
            np.concatenate([self.probs, other.probs]),
            max(self.n_states, other.n_states),
            max(self.moved, other.moved),
            len(self),
            (self.n_states, other.n_states),
        )

    @property
    def pairs_shape(self) -> tuple[int, int]:
        """Of the distances between states that rows of the one side and of the other lead to."""
        return self.sides if self.split else (self.n_states, self.n_states)

    @property
    def sizes(self) -> Ints:
        """Number of successors of each row [N]."""
        return np.diff(self.indptr)

    def matrix(self) -> csr_array:
        """The rows as a SciPy sparse array [N, S]; made once, so not to be changed."""
        return self._matrix

    @cached_property
    def _matrix(self) -> csr_array:
        from scipy.sparse import csr_array

        return csr_array((self.probs, self.indices, self.indptr), shape=(len(self), self.n_states))

    @classmethod
    def from_matrix(cls, matrix: Matrix, n_states: int | None = None) -> Self:
        """Compress a dense or sparse matrix [N, S]: duplicates summed, zeros dropped."""
        if isinstance(matrix, Sparse):
            from scipy.sparse import csr_array

            csr = csr_array(matrix.tocsr(), copy=True)
            csr.data = floats(csr.data, "P: probabilities")
            if not csr.has_sorted_indices:  # in the order in which they are given: sums of several have the same bits
                order = np.lexsort((csr.indices, np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))))
                csr = csr_array((csr.data[order], csr.indices[order], csr.indptr), shape=csr.shape)
            csr.sum_duplicates()
            csr.eliminate_zeros()
            width = n_states or csr.shape[1]
            return cls(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data, width)
        dense = floats(matrix, "P: probabilities")
        if dense.ndim != 2:
            raise ModelError(f"P must be a matrix [choices, states]; got shape {dense.shape}.")
        nonzero = dense != 0.0
        indptr = np.concatenate([[0], np.cumsum(nonzero.sum(axis=1))]).astype(np.int64)
        return cls(indptr, np.nonzero(nonzero)[1].astype(np.int32), dense[nonzero], n_states or dense.shape[1])

    def check(self, name_of_row: Callable[[int], str]) -> None:
        """Raise unless every row is a probability distribution."""
        if self.indices.size and not 0 <= self.indices.min() <= self.indices.max() < self.n_states:
            raise ModelError(f"a successor index is outside 0 … {self.n_states - 1}.")
        bad = np.flatnonzero(~(self.probs >= 0.0) | ~np.isfinite(self.probs))
        if bad.size:
            k = int(bad[0])
            row = int(np.searchsorted(self.indptr, k, side="right") - 1)
            raise ModelError(
                f"probabilities must be finite and not negative; {name_of_row(row)}, next state "
                f"{self.indices[k]} has {self.probs[k]}."
            )
        sums = self.sums()
        bad = np.flatnonzero(np.abs(sums - 1.0) > ROW_SUM_TOLERANCE)
        if bad.size:
            row = int(bad[0])
            raise ModelError(
                f"every row of P must sum to 1; {name_of_row(row)} sums to {sums[row]:.10g} (tolerance "
                f"{ROW_SUM_TOLERANCE:g}).",
                python="Use P = MDP.normalised(P) if this is rounding.",
            )

    def normalised(self) -> Self:
        """The rows rescaled to sum to 1 up to rounding, where they nearly do; others are left to `check`."""
        factors, moved = rescaling(self.sums(), self.sizes)
        if factors is None:
            return self
        probs = self.probs / np.repeat(factors, self.sizes)
        return replace(self, probs=probs, moved=max(moved, self.moved))

    def sums(self) -> Floats:
        """Sum of each row [N]."""
        return np.asarray(np.bincount(self.row_of_entry, weights=self.probs, minlength=len(self)), np.float64)

    @property
    def row_of_entry(self) -> Ints:
        """The row of each entry [nnz]."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def entropies(self) -> Floats:
        """Shannon entropy of each row, in nats [N]."""
        return np.asarray(-np.add.reduceat(np.log(self.probs) * self.probs, self.indptr[:-1]))

    def same_supports(self, old: Distributions) -> Bools:
        """For each row, whether its successors are those it had before [N]."""
        n = len(self)
        if len(old) != n:
            return np.zeros(n, np.bool_)
        if np.array_equal(self.indptr, old.indptr) and np.array_equal(self.indices, old.indices):
            return np.ones(n, np.bool_)
        sizes = self.sizes
        same: Bools = sizes == old.sizes
        for row in np.flatnonzero(same):
            x, y = self.indptr[row], old.indptr[row]
            same[row] = np.array_equal(self.indices[x : x + sizes[row]], old.indices[y : y + sizes[row]])
        return same

    def take(self, rows: Ints | Bools) -> Self:
        """Some of the rows, by number or by a mask."""
        return type(self).from_matrix(self.matrix()[rows], self.n_states)

    def freeze(self) -> Self:
        for array in (self.indptr, self.indices, self.probs):
            freeze(array)
        return self


def rises(pointers: Ints) -> bool:
    """Whether pointers never fall. Their differences would not tell: those of large numbers wrap around."""
    return bool(np.all(pointers[:-1] <= pointers[1:]))


def rescaling(sums: Floats, counts: Ints) -> tuple[Floats | None, float]:
    """(what to divide distributions by, how far their sums are from 1), for sums of so many numbers.

    None where all sums are 1 up to the rounding of the sum itself. Sums outside the tolerance are not touched.
    """
    off = np.abs(sums - 1.0)
    wrong = (off > (counts + 1) * _EPS) & (off <= ROW_SUM_TOLERANCE)
    if not wrong.any():
        return None, 0.0
    return np.where(wrong, sums, 1.0), float(off[wrong].max())


class Mixing:
    """Weighted sums of the rows of each of S groups, again and again with other weights.

    Which successors a sum has, and where each entry goes, does not depend on the weights (but for those that are 0), so
    it is found once. Memory: 16 bytes for each entry of the rows, 12 for each entry of the sums.
    """

    def __init__(self, rows: Distributions, pointers: Ints) -> None:
        """`rows` pointers[s] … pointers[s+1] − 1 are those of group s."""
        self._rows, self._row_of_entry = rows, rows.row_of_entry
        group = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        keys, self._place = np.unique(group[self._row_of_entry] * rows.n_states + rows.indices, return_inverse=True)
        sizes = np.bincount(keys // rows.n_states, minlength=len(pointers) - 1)
        self._indptr = np.concatenate([[0], np.cumsum(sizes)])
        self._indices = (keys % rows.n_states).astype(np.int32)
        for array in (self._indptr, self._indices):
            freeze(array)

    def __call__(self, weights: Floats) -> Distributions:
        """The sums [S], weighted by one number per row [N]; zeros are dropped."""
        terms = weights[self._row_of_entry] * self._rows.probs
        probs = np.asarray(np.bincount(self._place, weights=terms, minlength=self._indices.size), np.float64)
        if probs.all():
            return Distributions(self._indptr, self._indices, probs, self._rows.n_states).normalised().freeze()
        there = probs != 0.0
        before = np.concatenate([[0], np.cumsum(there)])
        rows = Distributions(before[self._indptr], self._indices[there], probs[there], self._rows.n_states)
        return rows.normalised().freeze()
