"""The effect of the order p of the transport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import models, style
from .alpha_ablation import draw_row
from .jobs import PolicyJob
from .lambda_ablation import DECAY
from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Order p"
CAPTION = (
    "API(α_k), α_k = max(0.01, k^−0.8), on the first MDP with λ = 0.1 and ε = 0.25. Optimality hardly depends on p, "
    "but the metric's slack and so the number of classes do."
)
QUANTITIES = ("error", "metric_gap", "n_classes")
ORDERS = (1.0, 2.0, 4.0)
REG, EPS = 0.1, 0.25


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    for p in ORDERS:
        for seed in profile.all_seeds:
            transport = variant.transport(REG, p)
            problem = models.first(profile, variant, seed)
            job = PolicyJob(problem, transport, variant.cover(EPS), DECAY, seed, profile.slow_steps)
            found.append(Cell({"p": p, "seed": seed}, job))
    return found


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(1, 3, legend=0.3)
    draw_row(axes[0], table, "p", style.ORDER_COLOURS, lambda p: rf"$p={p:g}$", profile.n_classes)
    style.legend_below(figure, axes[0][0], 3)
    return figure
