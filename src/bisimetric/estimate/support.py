"""What is known beforehand of the successors of rows: how many there are at most, or which they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..kinds import Ints, Sparse
from ..model import ModelError
from .frame import Frame

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from .counts import Counts


class Support(NamedTuple):
    """How many successors each row has at most [N], and which states can follow it [N, S], or None for any."""

    most: Ints
    possible: csr_array | None = None


def support_of(counts: Counts, given: ArrayLike | Sparse | None, frame: Frame) -> Support:
    """The argument `successors` of `Counts.confidence`, checked against the data; rows of the end may lead anywhere."""
    most = np.full(len(frame.rows), frame.n_states, np.int64)
    if given is None:
        return Support(most)
    possible = None
    if isinstance(given, Sparse) or np.ndim(given) == 2:
        possible = _possible(counts, given, frame)
        numbers = np.diff(possible.indptr)[: counts.n_rows].astype(np.int64)
    else:
        numbers = np.asarray(given)
    if numbers.dtype.kind not in "iu" or numbers.shape not in ((), (counts.n_rows,)) or (numbers < 1).any():
        raise ValueError(
            f"successors must be a whole number, at least 1, or one for each row [{counts.n_rows}], or which states "
            f"can follow each row [{counts.n_rows}, {frame.n_states}]; got {given!r}."
        )
    most[: counts.n_rows] = np.minimum(numbers, frame.n_states)
    beyond = np.flatnonzero(frame.observed & (frame.rows.sizes > most))
    if beyond.size:
        k = int(beyond[0])
        raise ModelError(
            f"{counts.row_name(k)} was seen to lead to {frame.rows.sizes[k]} states, more than its successors = "
            f"{most[k]}."
        )
    return Support(most, possible)


def _possible(counts: Counts, given: ArrayLike | Sparse, frame: Frame) -> csr_array:
    """Which states can follow which rows, of the frame."""
    from scipy.sparse import csr_array, vstack

    N, n = counts.n_rows, frame.n_states
    mask = csr_array(given.tocsr() if isinstance(given, Sparse) else np.asarray(given))
    if mask.dtype != np.bool_ or mask.shape != (N, n):
        raise ValueError(f"successors as a matrix must be of True and False [{N}, {n}], rows by states.")
    mask.eliminate_zeros()
    empty = np.flatnonzero(np.diff(mask.indptr) == 0)
    if empty.size:
        raise ValueError(f"successors: {counts.row_name(int(empty[0]))} has none.")
    whole = csr_array(vstack([mask, csr_array(np.ones((len(frame.rows) - N, n), np.bool_))]))
    seen = frame.rows.matrix()
    outside = csr_array(seen - seen.multiply(whole))
    outside.eliminate_zeros()
    wrong = np.flatnonzero((np.diff(outside.indptr) > 0) & frame.observed)
    if wrong.size:
        k = int(wrong[0])
        state = int(outside.indices[outside.indptr[k]])
        name = counts.state_name(state) if state < counts.n_states else "end"
        raise ModelError(f"{counts.row_name(k)} was seen to lead to state {name}, which is not among its successors.")
    return whole
