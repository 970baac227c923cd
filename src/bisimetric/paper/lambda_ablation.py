"""The effect of the regularisation λ, from exact transport to the independent coupling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..aggregation import Aggregation
from ..schedules import PowerDecay
from . import models, style
from .alpha_ablation import draw_row
from .jobs import PolicyJob, Problem
from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Regularisation λ"
CAPTION = (
    "API(α_k), α_k = max(0.01, k^−0.8), on the first MDP with p = 1 and ε = 0.1. Optimality hardly depends on λ, but "
    "the metric's slack and so the number of classes do. λ = 0 is exact transport, λ = ∞ the independent coupling."
)
QUANTITIES = ("error", "metric_gap", "n_classes")
REGS = (0.0, 0.1, 1.0, 10.0, math.inf)
DECAY = PowerDecay(0.8, 0.01)


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    for reg in REGS:
        for seed in profile.all_seeds:
            problem = models.first(profile, variant, seed)
            job = decaying(profile, variant, problem, reg, variant.cover(models.EPS["first"]), seed)
            found.append(Cell({"reg": reg, "seed": seed}, job))
    return found


def decaying(
    profile: Profile,
    variant: Variant,
    problem: Problem,
    reg: float,
    aggregation: Aggregation,
    seed: int,
    steps: int | None = None,
    medoids: int = 0,
) -> PolicyJob:
    """API(α_k) with a swept λ."""
    transport = variant.transport(reg, swept=True)
    return PolicyJob(problem, transport, aggregation, DECAY, seed, steps or profile.steps, medoids=medoids)


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(1, 3, legend=0.3)
    draw_row(axes[0], table, "reg", style.REG_COLOURS, style.reg_name, profile.n_classes)
    style.legend_below(figure, axes[0][0], 5)
    return figure
