"""Distances in the memory of the host."""

from __future__ import annotations

import numpy as np

from ..protocol import Array, Floats, Ints
from . import kernels


class HostDistances:
    """An array of NumPy as distances; no copy is made."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def n_states(self) -> int:
        return len(self.array)

    def copy(self) -> HostDistances:
        return HostDistances(self.array.copy())

    def zeros(self) -> HostDistances:
        return HostDistances(np.zeros_like(self.array))

    def to_host(self) -> Array:
        return self.array

    near = to_host

    def freeze(self) -> None:
        self.array.setflags(write=False)

    def clear_diagonal(self) -> None:
        np.fill_diagonal(self.array, 0.0)

    def largest(self) -> float:
        return float(self.array.max())

    def gap_to(self, V: Floats) -> float:
        return float(kernels.value_gap(self.array, V))

    def epsilon_classes(self, reach: float, weights: Floats | None, by_diameter: bool) -> tuple[Ints, Ints, bool]:
        labels, medoids, finite = kernels.epsilon_classes(self.array, reach, weights, by_diameter)
        return labels, medoids, bool(finite)

    def extents(self, labels: Ints, medoids: Ints) -> tuple[float, float]:
        radius, diameter = kernels.extents(self.array, labels, medoids)
        return float(radius), float(diameter)
