"""Numba kernels for the CPU. They are serial and release the interpreter lock; threads are above.

What they take in bundles is in `arguments`.
"""

from .ball import ball_block, bounds_block
from .choices import (
    APART,
    UNKNOWN,
    raise_and_note,
    respond,
    take_choices,
    take_wanted,
    wanted_of_choices,
    wanted_of_group,
    wanted_of_partners,
)
from .classes import all_finite, averaged_system, averaged_values, epsilon_classes, extents, value_gap
from .combine import gibbs, hausdorff, power, raise_to, start_rows, write_rows
from .dense import dense_independent_block, dense_rows, dense_sinkhorn_block
from .distances import add_scaled, inner_product, largest_gap, shift_positive
from .gather import gather, gather_turned
from .halves import gather_rows, mirror, write_above
from .independent import independent_block
from .kept import kept_block
from .memory import carry_over, kept_layout
from .paths import one_step, order_paths, walk
from .reach import kept_equations, meeting_pairs, number_pairs, relax, rises, slots_of_rows, spread_pairs
from .refine import refine
from .simplex import exact_block, row_defects
from .sinkhorn import sinkhorn_block

__all__ = [
    "APART",
    "UNKNOWN",
    "add_scaled",
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
    "gather",
    "gather_rows",
    "gather_turned",
    "gibbs",
    "hausdorff",
    "independent_block",
    "inner_product",
    "kept_block",
    "kept_equations",
    "kept_layout",
    "largest_gap",
    "meeting_pairs",
    "mirror",
    "number_pairs",
    "one_step",
    "order_paths",
    "power",
    "raise_and_note",
    "raise_to",
    "refine",
    "relax",
    "respond",
    "rises",
    "row_defects",
    "shift_positive",
    "sinkhorn_block",
    "slots_of_rows",
    "spread_pairs",
    "start_rows",
    "take_choices",
    "take_wanted",
    "value_gap",
    "walk",
    "wanted_of_choices",
    "wanted_of_group",
    "wanted_of_partners",
    "write_above",
    "write_rows",
]
