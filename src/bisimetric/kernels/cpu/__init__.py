"""Numba kernels for the CPU. All are serial and release the interpreter lock; threads are above."""

from .ball import ball_block, bounds_block
from .classes import all_finite, averaged_system, cover, extents, neighbour_weights, value_gap
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
from .simplex import exact_block
from .sinkhorn import sinkhorn_block

__all__ = [
    "all_finite",
    "averaged_system",
    "ball_block",
    "bounds_block",
    "carry_over",
    "cover",
    "dense_independent_block",
    "dense_rows",
    "dense_sinkhorn_block",
    "exact_block",
    "extents",
    "gibbs",
    "hausdorff",
    "independent_block",
    "kept_layout",
    "neighbour_weights",
    "power",
    "raise_to",
    "refine",
    "sinkhorn_block",
    "start_rows",
    "value_gap",
    "write_rows",
]
