"""The third family of MDPs: step size, regularisation, and a budget of classes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..aggregation import KMedoids
from . import models, style
from .alpha_ablation import draw_row
from .alpha_ablation import job as alpha_job
from .lambda_ablation import REGS, decaying
from .settings import ALPHAS, Profile, Variant
from .table import Cell, Keys, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The third family"
CAPTION = (
    "Ten actions and random detours. First row: API(α). Second row: λ with α_k = max(0.01, k^−0.8), ε = 0.1. Third "
    "row: λ with medoids (30 for 20 classes)."
)
QUANTITIES = ("error", "metric_gap", "n_classes")
BUDGET_REGS = (0.0, 0.1, 1.0, math.inf)


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    for seed in profile.all_seeds:
        problem = models.third(profile, variant, seed)
        for alpha in ALPHAS:
            keys: Keys = {"sweep": "alpha", "alpha": alpha, "reg": 1.0, "seed": seed}
            found.append(Cell(keys, alpha_job(profile, variant, "third", alpha, seed)))
        for reg in REGS:
            keys = {"sweep": "lambda", "alpha": "decay", "reg": reg, "seed": seed}
            cover = variant.cover(models.EPS["third"])
            found.append(Cell(keys, decaying(profile, variant, problem, reg, cover, seed)))
        for reg in BUDGET_REGS:
            keys = {"sweep": "budget", "alpha": "decay", "reg": reg, "seed": seed}
            medoids = KMedoids(profile.medoids, seed)
            found.append(Cell(keys, decaying(profile, variant, problem, reg, medoids, seed, medoids=profile.n_classes)))
    return found


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(3, 3, height=2.1)
    draw_row(axes[0], table.where(sweep="alpha"), "alpha", style.ALPHA_COLOURS, style.alpha_name, profile.n_classes)
    draw_row(axes[1], table.where(sweep="lambda"), "reg", style.REG_COLOURS, style.reg_name, profile.n_classes)
    budget = table.where(sweep="budget")
    for axis, quantity in zip(axes[2], ("error", "metric_gap", "metric_nmi"), strict=True):
        for reg in budget.values("reg"):
            part = budget.where(reg=reg)
            floor = 1e-4 if quantity == "error" else 0.0
            style.band(axis, part, quantity, colour=style.REG_COLOURS[reg], label=style.reg_name(reg), floor=floor)
        axis.set_ylabel(style.LABELS[quantity])
        style.step_axis(axis)
    style.log_values(axes[2][0])
    axes[2][1].set_ylim(bottom=0.0)
    axes[2][2].set_ylim(0.0, 1.03)
    for line in axes:
        style.legend_beside(line[2])
    for line, title in zip(axes, ("step size", "regularisation", f"{profile.medoids} medoids"), strict=True):
        line[0].set_title(title, loc="left")
    return figure
