"""Which engine runs where: from the names of a device and a precision to an engine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..checks import check_engine
from ..transport import Transport
from .comparison import Comparison
from .protocol import Backend, Distances

if TYPE_CHECKING:
    from .cpu import CpuBackend
    from .cpu.local_pairs import PairTable
    from .cpu.tiles import Kind, TileSweeper

# Three of these are types, which only type checkers find here.
__all__ = ["Kind", "PairTable", "TileSweeper", "backend", "distances_of", "host", "tile_sweeper"]


def backend(device: str, dtype: str) -> Backend:
    """The engine for device "cpu" or "cuda" and dtype "float64" or "float32"."""
    check_engine(device, dtype)
    if device == "cuda":
        from .cuda import CudaBackend

        return CudaBackend(np.dtype(dtype))
    from .cpu import CpuBackend

    return CpuBackend(np.dtype(dtype))


@cache
def host() -> CpuBackend:
    """The engine of the host in double precision, for what is never done elsewhere."""
    from .cpu import CpuBackend

    return CpuBackend(np.dtype(np.float64))


def distances_of(given: ArrayLike | Distances) -> Distances:
    """Distances as they are, or an array of NumPy, or of a GPU, as distances."""
    if hasattr(given, "epsilon_classes"):
        return given  # type: ignore[return-value]
    if hasattr(given, "__cuda_array_interface__"):
        from .cuda.distances import DeviceDistances

        return DeviceDistances.of(given)
    from .cpu.distances import HostDistances

    return HostDistances(np.asarray(given))


def tile_sweeper(dtype: str, comparison: Comparison, transport: Transport, remember: bool) -> TileSweeper:
    """F on some rows and columns of the distances, on the host."""
    from .cpu import CpuBackend
    from .cpu.tiles import TileSweeper

    return TileSweeper(CpuBackend(np.dtype(dtype)), comparison, transport, remember)
