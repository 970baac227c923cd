"""Numba kernels for the CPU. They are serial and release the interpreter lock; threads are above.

What they take in bundles is in `arguments`.
"""

from .ball import ball_block, bounds_block
from .classes import all_finite, averaged_system, averaged_values, epsilon_classes, extents, value_gap
from .combine import (
    carry_over,
    gibbs,
    hausdorff,
    independent_block,
    kept_layout,
    power,
    raise_to,
    start_rows,
    write_rows,
)
from .dense import dense_independent_block, dense_rows, dense_sinkhorn_block
from .refine import refine
from .simplex import exact_block, row_defects
from .sinkhorn import sinkhorn_block

__all__ = [
    "all_finite",
    "averaged_system",
    "averaged_values",
    "ball_block",
    "bounds_block",
    "carry_over",
    "dense_independent_block",
    "dense_rows",
    "dense_sinkhorn_block",
    "epsilon_classes",
    "exact_block",
    "extents",
    "gibbs",
    "hausdorff",
    "independent_block",
    "kept_layout",
    "power",
    "raise_to",
    "refine",
    "row_defects",
    "sinkhorn_block",
    "start_rows",
    "value_gap",
    "write_rows",
]
