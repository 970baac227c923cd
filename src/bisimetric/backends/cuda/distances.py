"""Distances in the memory of a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kinds import Array, Floats, Ints
from ..cpu.distances import HostDistances
from . import kernels

_FEW_STATES = 400  # up to which a copy of the distances and their classes take the host less time than launches


class DeviceDistances:
    """An array of the device as distances. Classes of few states, and gaps, are found on a copy near the host."""

    def __init__(self, array: Array, room: kernels.HostRoom | None = None) -> None:
        """`room` is where copies are made; other distances that had one there make theirs anew."""
        self.array = array
        self._room = kernels.HostRoom() if room is None else room
        self._copy: Array | None = None  # on the host

    @classmethod
    def of(cls, given: object) -> DeviceDistances:
        """An array of a GPU, in a precision that kernels have."""
        there = kernels.cupy().ascontiguousarray(given)
        return cls(there if there.dtype in (np.float64, np.float32) else there.astype(np.float64))

    @property
    def n_states(self) -> int:
        return len(self.array)

    def copy(self) -> DeviceDistances:
        return DeviceDistances(self.array.copy())

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

    def take(self, other: DeviceDistances) -> None:
        self.array[...] = other.array
        self.changed()

    def gap(self, other: DeviceDistances) -> float:
        return kernels.largest_gap(self.array, other.array)

    def inner(self, others: Sequence[DeviceDistances]) -> Floats:
        return kernels.inner_products(self.array, [other.array for other in others])

    def blend(self, weights: Sequence[float], others: Sequence[DeviceDistances]) -> None:
        kernels.blend(weights, [other.array for other in others], self.array)
        self.changed()

    def shift(self, by: float) -> None:
        kernels.shift_positive(self.array, by)
        self.changed()

    def clip(self) -> None:
        kernels.cupy().maximum(self.array, 0.0, out=self.array)
        self.changed()

    def subtract_from(self, other: DeviceDistances) -> None:
        kernels.cupy().subtract(other.array, self.array, out=self.array)
        self.changed()

    def zeros(self) -> DeviceDistances:
        return DeviceDistances(kernels.cupy().zeros_like(self.array))

    def to_host(self) -> Array:
        return np.asarray(kernels.cupy().asnumpy(self.array))

    def near(self) -> Array:
        if self._copy is None or self._room.guest is not self:
            self._copy = self._room.read(self.array)
            self._room.guest = self
        return self._copy

    def changed(self) -> None:
        """The array was written to."""
        self._copy = None

    def freeze(self) -> None:
        """Arrays of a device cannot be held fast."""

    def clear_diagonal(self) -> None:
        kernels.cupy().fill_diagonal(self.array, 0.0)
        self.changed()

    def largest(self) -> float:
        return float(self.array.max())

    def gap_to(self, V: Floats) -> float:
        few = self._on_host()
        return kernels.value_gap(self.array, V) if few is None else few.gap_to(V)

    def epsilon_classes(self, reach: float, weights: Floats | None, by_diameter: bool) -> tuple[Ints, Ints, bool]:
        few = self._on_host()
        if few is not None:
            return few.epsilon_classes(reach, weights, by_diameter)
        return kernels.epsilon_classes(self.array, reach, weights, by_diameter)

    def extents(self, labels: Ints, medoids: Ints) -> tuple[float, float]:
        few = self._on_host()
        return kernels.extents(self.array, labels, medoids) if few is None else few.extents(labels, medoids)

    def _on_host(self) -> HostDistances | None:
        return HostDistances(self.near()) if self.n_states <= _FEW_STATES or self._copy is not None else None
