"""Distances in the memory of the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kinds import Array, Floats, Ints
from ..threads import run_all
from . import kernels

_STRETCH = 1 << 16  # entries


class HostDistances:
    """An array of NumPy as distances; no copy is made."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def n_states(self) -> int:
        return len(self.array)

    def copy(self) -> HostDistances:
        return HostDistances(self.array.copy())

    def take(self, other: HostDistances) -> None:
        np.copyto(self.array, other.array)

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def gap(self, other: HostDistances) -> float:
        def largest(part: slice) -> float:
            return float(kernels.largest_gap(self._flat[part], other._flat[part]))

        return max(run_all(largest, self._parts(), brief=True))

    def inner(self, others: Sequence[HostDistances]) -> Floats:
        parts = [(k, part) for k in range(len(others)) for part in self._parts()]

        def product(work: tuple[int, slice]) -> float:
            k, part = work
            return float(kernels.inner_product(self._flat[part], others[k]._flat[part]))

        sums: Floats = np.array(run_all(product, parts, brief=True)).reshape(len(others), -1).sum(axis=1)
        return sums

    def blend(self, weights: Sequence[float], others: Sequence[HostDistances]) -> None:
        def add(part: slice) -> None:
            self._flat[part] = 0.0
            for weight, other in zip(weights, others, strict=True):
                kernels.add_scaled(self._flat[part], weight, other._flat[part])

        run_all(add, self._parts(), brief=True)

    def shift(self, by: float) -> None:
        run_all(lambda part: kernels.shift_positive(self._flat[part], by), self._parts(), brief=True)

    def clip(self) -> None:
        np.maximum(self.array, 0.0, out=self.array)

    def subtract_from(self, other: HostDistances) -> None:
        def subtract(part: slice) -> None:
            np.subtract(other._flat[part], self._flat[part], out=self._flat[part])

        run_all(subtract, self._parts(), brief=True)

    @property
    def _flat(self) -> Array:
        return self.array.reshape(-1)

    def _parts(self) -> list[slice]:
        """Stretches of entries that threads take; always the same, so that sums do not depend on how many there are."""
        return [slice(k, k + _STRETCH) for k in range(0, self.array.size, _STRETCH)]

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
