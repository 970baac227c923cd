"""The engine of one NVIDIA GPU: CUDA kernels on arrays of CuPy, which is loaded when it is first needed.

All work is asynchronous on the current stream; reports gather in a tally on the device that is read once a sweep.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import ClassVar

import numpy as np

from ...kinds import Array, Floats, Ints, Precision
from ...model import Chain, Distributions
from ...transport import Exact, Independent, KLBall, Sinkhorn, Transport
from ..comparison import Comparison
from ..protocol import Distances, known
from . import kernels
from .ball import BallSolver
from .distances import DeviceDistances
from .exact import ExactSolver
from .independent import IndependentSolver
from .memory import needs_in_words
from .sinkhorn import SinkhornSolver
from .solver import CudaSolver
from .sweeper import CudaSweeper

SOLVERS: dict[type[Transport], type[CudaSolver]] = {
    Exact: ExactSolver,
    Sinkhorn: SinkhornSolver,
    KLBall: BallSolver,
    Independent: IndependentSolver,
}


class CudaBackend:
    """One GPU in one precision; raises `DeviceError` where there is none."""

    device: ClassVar[str] = "cuda"
    on_host: ClassVar[bool] = False

    def __init__(self, dtype: Precision) -> None:
        kernels.check()
        self.dtype = dtype

    def zeros(self, shape: tuple[int, int]) -> DeviceDistances:
        return DeviceDistances(kernels.cupy().zeros(shape, self.dtype))

    def distances(self, given: Array | Distances) -> DeviceDistances:
        if isinstance(given, DeviceDistances):
            given = given.array
        elif not isinstance(given, np.ndarray):
            given = given.to_host()
        return DeviceDistances(kernels.cupy().array(given, self.dtype))

    def solver(self, rows: Distributions, groups: tuple[Ints, ...], transport: Transport, remember: bool) -> CudaSolver:
        return known(SOLVERS, transport)(self.dtype, rows, groups, transport, remember)

    def sweeper(self, comparison: Comparison, transport: Transport, remember: bool) -> CudaSweeper:
        return CudaSweeper(self, comparison, transport, remember)

    def averaged_values(
        self, chain: Chain, class_of: Ints, shares: Floats, start: Floats, limit: float
    ) -> tuple[Floats, float]:
        return kernels.averaged_values(chain, class_of, shares, start, limit)

    def describe(self) -> str:
        return kernels.device_name()

    def stream(self) -> AbstractContextManager[object]:
        return kernels.stream()

    def guard(self, squares: int, shape: tuple[int, int]) -> AbstractContextManager[object]:
        return kernels.memory_errors(needs_in_words(squares, shape, self.dtype))
