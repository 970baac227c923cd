"""What a user is told of the error: the a-posteriori bound beside the true error and the theorem's bound."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..schedules import Constant
from . import models, style
from .jobs import Arrays, PolicyJob
from .lambda_ablation import DECAY
from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Certificates"
CAPTION = (
    "With exact transport and the diameter rule: true error, the a-posteriori certificate max(TV − V)/(1 − γ), which "
    "bounds it at every step, and the theorem's bound on the limit of the naive algorithm (for API(α_k) the same "
    "formula; its step sizes are larger than the theorem asks). The grey line is the largest value there is, "
    "1/(1 − γ). Beyond the paper."
)
QUANTITIES = ("error", "bound")
MODELS = ("first", "second", "garnet")


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    sound = replace(variant, cost="exact", rule="diameter")
    for mdp in MODELS:
        for algorithm, warm, step_size in (("naive", False, Constant(1.0)), ("API(a_k)", True, DECAY)):
            for seed in profile.all_seeds:
                problem = models.garnet(profile, seed) if mdp == "garnet" else models.BUILD[mdp](profile, sound, seed)
                cover = sound.cover(models.EPS.get(mdp, 0.1))
                job = PolicyJob(problem, sound.transport(), cover, step_size, seed, profile.extra_steps, warm=warm)
                found.append(Cell({"mdp": mdp, "algorithm": algorithm, "seed": seed}, job))
    return found


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(2, len(MODELS), legend=0.3)
    for line, algorithm, name in zip(axes, ("naive", "API(a_k)"), ("naive API", r"API($\alpha_k$)"), strict=True):
        for axis, mdp in zip(line, MODELS, strict=True):
            part = table.where(mdp=mdp, algorithm=algorithm)
            if not len(part):
                continue
            style.band(axis, part, "bound", colour=style.RED, label="certificate", floor=1e-4)
            style.band(axis, part, "error", colour=style.BLUE, label="true error", floor=1e-4)
            limit = float(np.mean([theorem_limit(row.arrays) for row in part]))
            axis.axhline(limit, color=style.BLACK, linestyle="--", linewidth=1.0, label="theorem, in the limit")
            axis.axhline(10.0, color=style.GREY, linewidth=0.9, label="largest value")
            style.log_values(axis)
            axis.set_title(f"{name}, {mdp}" + ("" if mdp == "garnet" else " MDP"))
            style.step_axis(axis)
        line[0].set_ylabel(style.ERROR)
    style.legend_below(figure, axes[0][0], 4)
    return figure


def theorem_limit(arrays: Arrays, gamma: float = 0.9, sweeps: int = 28) -> float:
    """δ/(1−γ)² + 2γ(2ε + c_n)/(1−γ)³ of the naive algorithm, with the run's own δ and largest class diameter 2ε."""
    from ..certificates import api_limit

    eps, delta = float(arrays["diameter"].max()) / 2.0, float(arrays["delta"].max())
    return api_limit(
        eps,
        delta,
        gamma=gamma,
        sweeps=sweeps,
        scale=1.0,
        early_stop=1e-3,
        certified_metric=True,
        from_zero=True,
        alpha=1.0,
    ).error
