"""Types that everybody shares: arrays by what they hold, matrices as people have them, facts for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[Any]  # of any entries: from files and users, distances of either precision, CuPy's inside an engine
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Precision = np.dtype[np.floating]  # of distances
Keywords = dict[str, Any]  # arguments by name, to be handed on
Facts = dict[str, object]  # by name: what is printed, or written as JSON


@runtime_checkable
class Sparse(Protocol):
    """A sparse matrix, such as SciPy's."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def sum(self, axis: int) -> object: ...
    def toarray(self) -> Array: ...
    def tocsr(self) -> csr_array: ...


Matrix = ArrayLike | Sparse  # dense or sparse
Matrices = ArrayLike | Sequence[Sparse]  # with one more axis
