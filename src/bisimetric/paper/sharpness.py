"""How sharp Sinkhorn distances are as upper bounds, by the entropy of the distributions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from . import style
from .jobs import SharpnessJob
from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Sharpness of Sinkhorn distances"
CAPTION = (
    "Relative error of the sharp Sinkhorn distance against one with λ' = 0.02, over pairs of distributions on 32 "
    "points of a sphere of radius 0.5. The first distribution of a pair has the entropy on the horizontal axis; the "
    "second ones cover evenly what lies above it, up to 5 bits. Boxes: quartiles; whiskers: 5 and 95 per cent."
)
QUANTITIES = ()
REGS = (0.1, 1.0, math.inf)
DIMENSIONS = (2, 8, 32)
ENTROPIES = tuple(0.5 * k for k in range(10))


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    del variant  # the appendix is about the sharp cost
    found = []
    for dimension in DIMENSIONS:
        for reg in REGS:
            for entropy in ENTROPIES:
                for seed in profile.all_seeds:
                    keys = {"dimension": dimension, "reg": reg, "entropy": entropy, "seed": seed}
                    found.append(Cell(keys, SharpnessJob(dimension, reg, entropy, profile.pairs, seed)))
    return found


def summary(table: Table) -> str:
    """Quantiles of the relative error of each box, over all its pairs and seeds."""
    lines = ["dimension,reg,entropy,pairs,q05,q25,q50,q75,q95"]
    for dimension in DIMENSIONS:
        for reg in REGS:
            for entropy in ENTROPIES:
                part = table.where(dimension=dimension, reg=reg, entropy=entropy)
                errors = np.concatenate([row.arrays["relative_error"].ravel() for row in part])
                numbers = ",".join(f"{q:.6g}" for q in np.quantile(errors, (0.05, 0.25, 0.5, 0.75, 0.95)))
                lines.append(f"{dimension},{reg:g},{entropy:g},{errors.size},{numbers}")
    return "\n".join(lines) + "\n"


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(len(DIMENSIONS), len(REGS), height=1.75)
    for line, dimension in zip(axes, DIMENSIONS, strict=True):
        for axis, reg in zip(line, REGS, strict=True):
            part = table.where(dimension=dimension, reg=reg)
            stats = []
            for entropy in ENTROPIES:
                errors = np.concatenate([row.arrays["relative_error"].ravel() for row in part.where(entropy=entropy)])
                stats.append(np.quantile(errors, (0.05, 0.25, 0.5, 0.75, 0.95)))
            style.boxes(axis, stats, ENTROPIES, colour=style.REG_COLOURS[reg], width=0.3)
            axis.set_title(f"{style.reg_name(reg)}, dimension {dimension}")
            axis.set_xticks(range(5))
            axis.set_ylim(bottom=min(-0.02, axis.get_ylim()[0]))
        line[0].set_ylabel("relative error")
    for axis in axes[-1]:
        axis.set_xlabel(r"$\min(H(\mu_1), H(\mu_2))$ in bits")
    return figure
