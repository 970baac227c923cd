"""The effect of the step size α on the first and second MDP: error, metric gap, number of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..schedules import Constant
from . import models, style
from .jobs import PolicyJob
from .settings import ALPHAS, AUTHORS, Profile, Variant
from .table import Cell, Keys, Setting, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Step size α"
CAPTION = (
    "API(α) for five step sizes on the first MDP (ε = 0.1) and the second (ε = 0.04). Left: distance of the policy's "
    "value from the optimum. Middle: how far the learned metric is from the difference of values. Right: number of "
    "classes found. The upper two rows are the chosen variant, the lower two the authors' choices (diameter rule, "
    "Dirichlet(1/N), alternating actions on the second MDP). The dashed line is the true number of classes."
)
QUANTITIES = ("error", "metric_gap", "n_classes")
MDPS = ("first", "second")


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    for name, choices in (("chosen", variant), ("authors", AUTHORS)):
        for mdp in MDPS:
            for alpha in ALPHAS:
                for seed in profile.all_seeds:
                    keys: Keys = {"variant": name, "mdp": mdp, "alpha": alpha, "seed": seed}
                    found.append(Cell(keys, job(profile, choices, mdp, alpha, seed)))
    return found


def job(profile: Profile, variant: Variant, mdp: str, alpha: float, seed: int, steps: int | None = None) -> PolicyJob:
    """One run of API(α)."""
    return PolicyJob(
        models.BUILD[mdp](profile, variant, seed),
        variant.transport(),
        variant.cover(models.EPS[mdp]),
        Constant(alpha),
        seed,
        steps or profile.fixed_steps,
    )


def draw(table: Table, profile: Profile) -> Figure:
    shown = [(v, m) for v in table.values("variant") for m in MDPS if len(table.where(variant=v, mdp=m))]
    figure, axes = style.panels(len(shown), 3, legend=0.3)
    for line, (variant, mdp) in zip(axes, shown, strict=True):
        part = table.where(variant=variant, mdp=mdp)
        draw_row(line, part, "alpha", style.ALPHA_COLOURS, style.alpha_name, profile.n_classes)
        where = f"{mdp} MDP" + (", authors' variant" if variant == "authors" else "")
        line[0].set_ylabel(f"{where}\n{style.ERROR}")
    style.legend_below(figure, axes[0][0], 5)
    return figure


def draw_row(
    axes: Sequence[Axes],
    table: Table,
    key: str,
    colours: Mapping[Setting, str],
    name: Callable[[Setting], str],
    n_classes: int,
) -> None:
    """Error, metric gap and number of classes, one curve for each value of a setting."""
    for axis, quantity in zip(axes, QUANTITIES, strict=True):
        for value in table.values(key):
            floor = 1e-4 if quantity == "error" else 0.0
            part = table.where(**{key: value})
            style.band(axis, part, quantity, colour=colours[value], label=name(value), floor=floor)
        axis.set_ylabel(style.LABELS[quantity])
        style.step_axis(axis)
    style.log_values(axes[0])
    axes[1].set_ylim(bottom=0.0)
    axes[2].set_ylim(bottom=0.0)
    axes[2].axhline(n_classes, color=style.GREY, linestyle="--", linewidth=0.9)
