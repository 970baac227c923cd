"""V*, V^π and the aggregated values at the end of a long run, on the three MDPs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..aggregation import KMedoids
from . import models, style
from .lambda_ablation import decaying
from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Value functions"
CAPTION = (
    "Values of all states, sorted by V*, after a long run (1,000 steps in full) with λ = ∞ and as many medoids as in "
    "the budget figure. One seed."
)
QUANTITIES = ("error", "metric_gap", "nmi")
MDPS = ("first", "second", "third")


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    for mdp in MDPS:
        for seed in profile.all_seeds:
            problem = models.BUILD[mdp](profile, variant, seed)
            job = decaying(
                profile, variant, problem, math.inf, KMedoids(profile.medoids, seed), seed, profile.long_steps
            )
            found.append(Cell({"mdp": mdp, "seed": seed}, job))
    return found


def summary(table: Table) -> str:
    """The values that are drawn: one line per state, sorted by V*."""
    lines = ["mdp,seed,state,optimal_value,value,abstract_value"]
    for mdp in MDPS:
        row = table.where(mdp=mdp).rows[0]
        arrays = row.arrays
        for s in np.argsort(arrays["optimal_value"], kind="stable"):
            numbers = ",".join(f"{arrays[name][s]:.6g}" for name in ("optimal_value", "value", "abstract_value"))
            lines.append(f"{mdp},{row.keys['seed']},{s},{numbers}")
    return "\n".join(lines) + "\n"


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(1, len(MDPS), legend=0.3)
    for axis, mdp in zip(axes[0], MDPS, strict=True):
        arrays = table.where(mdp=mdp).rows[0].arrays
        order = np.argsort(arrays["optimal_value"], kind="stable")
        states = np.arange(1, len(order) + 1)
        axis.plot(states, arrays["optimal_value"][order], color=style.GREY, linewidth=3.0, label=r"$V^*$")
        axis.plot(states, arrays["value"][order], color=style.BLUE, label=r"$V^\pi$")
        axis.plot(
            states,
            arrays["abstract_value"][order],
            color=style.RED,
            linestyle="--",
            linewidth=1.0,
            label=r"$\tilde V^\pi_\Phi$",
        )
        axis.set_title(f"{mdp} MDP")
        axis.set_xlabel("state, sorted by $V^*$")
    axes[0][0].set_ylabel("value")
    style.legend_below(figure, axes[0][0], 3)
    return figure
