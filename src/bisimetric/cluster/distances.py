"""Distances of which a store has all, or this process, or both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..backends.protocol import Distances
from ..backends.select import distances_of
from ..kinds import Array, Floats, Ints
from .tiles import shift
from .versions import Version

if TYPE_CHECKING:
    from .engine import ClusterBackend


class ClusterDistances:
    """A matrix that is a version of the store, or an array here, or both where neither was changed since.

    Sweeps make versions of versions, and never bring them here. What mixes iterates (where they are small) works on the
    array, which is written to the store before the next sweep.
    """

    def __init__(self, engine: ClusterBackend, shape: tuple[int, int]) -> None:
        self.engine, self.shape = engine, shape
        self._version: Version | None = Version()  # zeros
        self._array: Array | None = None
        self._seen = False  # whether somebody else may hold the array
        engine.alive.add(self)

    @property
    def versions(self) -> set[int]:
        """Those of the store that it needs."""
        return set() if self._version is None else {self._version.number}

    def version(self) -> Version:
        """The version that it is, written now if it was none."""
        if self._version is None:
            assert self._array is not None
            self._version = self.engine.publish(self._array)
        return self._version

    def become(self, version: Version) -> None:
        """Be another version."""
        self._version = version
        self._give_up()

    def _give_up(self) -> None:
        """Have no array any more; its memory is used again, if nobody else has seen it."""
        array, self._array = self._array, None
        if array is not None and not self._seen:
            self.engine.spare.append(array)
        self._seen = False

    def __del__(self) -> None:
        self._give_up()

    @property
    def n_states(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.engine.dtype.itemsize

    def _read(self) -> Array:
        """As an array, not to be changed."""
        if self._array is None:
            assert self._version is not None
            self._array = self.engine.fetch(self._version, self.shape)
        return self._array

    def _changed(self) -> Distances:
        """As an array that will be changed."""
        array = self._read()
        self._version = None
        return distances_of(array)

    def change(self, by: Callable[[Array], None]) -> None:
        """Let somebody change the array."""
        by(self._read())
        self._version = None

    def copy(self) -> ClusterDistances:
        other = ClusterDistances(self.engine, self.shape)
        other.take(self)
        return other

    def take(self, other: ClusterDistances) -> None:
        array = None
        if other._array is not None:
            array = self.engine.room(self.shape)
            np.copyto(array, other._array)
        self._give_up()
        self._version, self._array = other._version, array

    def zeros(self) -> ClusterDistances:
        return ClusterDistances(self.engine, self.shape)

    def gap(self, other: ClusterDistances) -> float:
        return distances_of(self._read()).gap(distances_of(other._read()))

    def inner(self, others: Sequence[ClusterDistances]) -> Floats:
        return distances_of(self._read()).inner([distances_of(other._read()) for other in others])

    def blend(self, weights: Sequence[float], others: Sequence[ClusterDistances]) -> None:
        self._changed().blend(weights, [distances_of(other._read()) for other in others])

    def subtract_from(self, other: ClusterDistances) -> None:
        self._changed().subtract_from(distances_of(other._read()))

    def clip(self) -> None:
        self._changed().clip()

    def shift(self, by: float) -> None:
        if self._array is not None:
            self._changed().shift(by)
            return
        assert self._version is not None
        number, shifts, largest = self._version
        top = np.full(1, largest, self.engine.dtype)
        shift(top, (by,))
        self._version = Version(number, (*shifts, by), float(top[0]))

    def clear_diagonal(self) -> None:
        self._changed().clear_diagonal()

    def home(self) -> Array:
        """As an array that outlives the cluster: of this process, or a file of the store where it does not fit."""
        self._seen = True
        return self._array if self._array is not None else self.engine.home(self.version(), self.shape)

    def to_host(self) -> Array:
        array, self._seen = self._read(), True
        return array

    near = to_host

    def freeze(self) -> None:
        """Nothing is to be done: versions never change."""

    def largest(self) -> float:
        return float(self._read().max()) if self._version is None else self._version.largest

    def gap_to(self, V: Floats) -> float:
        return distances_of(self._read()).gap_to(V)

    def epsilon_classes(self, reach: float, weights: Floats | None, by_diameter: bool) -> tuple[Ints, Ints, bool]:
        return distances_of(self._read()).epsilon_classes(reach, weights, by_diameter)

    def extents(self, labels: Ints, medoids: Ints) -> tuple[float, float]:
        return distances_of(self._read()).extents(labels, medoids)
