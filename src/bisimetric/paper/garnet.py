"""Garnet MDPs, where a metric carries more than differences of values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..aggregation import EpsilonCover
from . import models, style
from .jobs import PolicyJob
from .lambda_ablation import DECAY
from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Garnet MDPs"
CAPTION = (
    "Random sparse MDPs (4 actions, 5 successors, rewards in [0, 1]) with α_k = max(0.01, k^−0.8) and ε = 0.5. No two "
    "states are bisimilar here, and the metric differs from differences of values even when it is exact (middle). "
    "Beyond the paper."
)
QUANTITIES = ("error", "metric_gap", "n_classes", "bound")
REGS = (0.0, 0.1, 1.0, math.inf)
EPS = 0.5


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    for reg in REGS:
        for seed in profile.all_seeds:
            transport = variant.transport(reg, swept=True)
            cover = EpsilonCover(EPS, variant.rule)
            job = PolicyJob(models.garnet(profile, seed), transport, cover, DECAY, seed, profile.extra_steps)
            found.append(Cell({"reg": reg, "seed": seed}, job))
    return found


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(1, 3, legend=0.3)
    for axis, quantity in zip(axes[0], ("error", "metric_gap", "n_classes"), strict=True):
        for reg in REGS:
            floor = 1e-4 if quantity == "error" else 0.0
            part = table.where(reg=reg)
            style.band(axis, part, quantity, colour=style.REG_COLOURS[reg], label=style.reg_name(reg), floor=floor)
        axis.set_ylabel(style.LABELS[quantity])
        style.step_axis(axis)
    style.log_values(axes[0][0])
    for axis in axes[0][1:]:
        axis.set_ylim(bottom=0.0)
    style.legend_below(figure, axes[0][0], 4)
    return figure
