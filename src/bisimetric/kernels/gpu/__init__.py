"""CUDA kernels, on CuPy arrays: blocks of pairs, passes over the distances, and what a sweep reports.

All calls are asynchronous on the current stream; reports gather in a tally on the device that is read once a sweep.
"""

from .classes import averaged_values, epsilon_classes, extents, value_gap
from .dense import dense_independent_block, dense_matrix, dense_pairs, dense_sinkhorn_block
from .device import HostRoom, captured, check, cupy, device_name, free_bytes, memory_errors, put, stream
from .fields import (
    Tally,
    end_sweep,
    forget,
    hausdorff,
    mirror,
    power,
    raise_to,
    start_rows,
    unit_of,
    write_chain,
    write_rows,
)
from .pairs import Rows, ball_block, bounds_block, exact_block, independent_block, sinkhorn_block

__all__ = [
    "HostRoom",
    "Rows",
    "Tally",
    "averaged_values",
    "ball_block",
    "bounds_block",
    "captured",
    "check",
    "cupy",
    "dense_independent_block",
    "dense_matrix",
    "dense_pairs",
    "dense_sinkhorn_block",
    "device_name",
    "end_sweep",
    "epsilon_classes",
    "exact_block",
    "extents",
    "forget",
    "free_bytes",
    "hausdorff",
    "independent_block",
    "memory_errors",
    "mirror",
    "power",
    "put",
    "raise_to",
    "sinkhorn_block",
    "start_rows",
    "stream",
    "unit_of",
    "value_gap",
    "write_chain",
    "write_rows",
]
