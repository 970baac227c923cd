"""A fixed number of classes (k-medoids) instead of a fixed ε, on ever more random transitions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..aggregation import KMedoids
from . import models, style
from .lambda_ablation import decaying
from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Aggregation on a budget"
CAPTION = (
    "API(α_k) on the first MDP with half as many medoids again as there are classes (30 for 20), its transitions mixed "
    "with random ones by weight 0, 0.05 and 0.5. Above: distance from the optimum. Below: how well the metric knows "
    "the true classes of the unperturbed MDP: their normalised mutual information with as many classes as there are, "
    "found by k-medoids on the learned metric. (The classes that the run works with are more, so they split true "
    "ones; their agreement is dotted.)"
)
QUANTITIES = ("error", "metric_nmi", "nmi", "metric_gap")
MIXINGS = (0.0, 0.05, 0.5)
REGS = (0.0, 0.1, 1.0, math.inf)


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    for mixing in MIXINGS:
        for reg in REGS:
            if reg == 0.0 and mixing > 0.0 and not profile.perturbed_exact:
                continue  # 20,000 pairs of 200 × 200 exact problems a sweep
            for seed in profile.all_seeds:
                problem = models.first(profile, variant, seed, mixing=mixing)
                job = decaying(
                    profile,
                    variant,
                    problem,
                    reg,
                    KMedoids(profile.medoids, seed),
                    seed,
                    profile.slow_steps,
                    medoids=profile.n_classes,
                )
                found.append(Cell({"mixing": mixing, "reg": reg, "seed": seed}, job))
    return found


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(2, len(MIXINGS), legend=0.3)
    for column, mixing in enumerate(MIXINGS):
        for axis, quantity in zip((axes[0][column], axes[1][column]), ("error", "metric_nmi"), strict=True):
            for reg in REGS:
                part = table.where(mixing=mixing, reg=reg)
                floor = 1e-4 if quantity == "error" else 0.0
                style.band(axis, part, quantity, colour=style.REG_COLOURS[reg], label=style.reg_name(reg), floor=floor)
                if quantity == "metric_nmi":
                    style.band(axis, part, "nmi", colour=style.REG_COLOURS[reg], label="_", style=":", floor=floor)
            style.step_axis(axis)
        style.log_values(axes[0][column])
        axes[1][column].set_ylim(0.0, 1.03)
        axes[0][column].set_title(f"random part {mixing:g}")
    axes[0][0].set_ylabel(style.ERROR)
    axes[1][0].set_ylabel(style.LABELS["metric_nmi"])
    style.legend_below(figure, axes[0][0], 4)
    return figure
