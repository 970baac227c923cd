"""The same algorithms with exact transport, which the paper found too slow to run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from . import style
from .alpha_ablation import MDPS, draw_row
from .alpha_ablation import job as alpha_job
from .settings import ALPHAS, Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Exact transport everywhere"
CAPTION = (
    "API(α) as in the first figure, with exact transport (λ = 0) instead of λ = 1: nothing is left of the entropic "
    "slack, so the middle column shows noise and unfinished learning alone. Beyond the paper."
)
QUANTITIES = ("error", "metric_gap", "n_classes")


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    exact = replace(variant, cost="exact")
    return [
        Cell(
            {"mdp": mdp, "alpha": alpha, "seed": seed}, alpha_job(profile, exact, mdp, alpha, seed, profile.extra_steps)
        )
        for mdp in MDPS
        for alpha in ALPHAS
        for seed in profile.all_seeds
    ]


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(len(MDPS), 3, legend=0.3)
    for line, mdp in zip(axes, MDPS, strict=True):
        draw_row(line, table.where(mdp=mdp), "alpha", style.ALPHA_COLOURS, style.alpha_name, profile.n_classes)
        line[0].set_ylabel(f"{mdp} MDP\n{style.ERROR}")
    style.legend_below(figure, axes[0][0], 5)
    return figure
