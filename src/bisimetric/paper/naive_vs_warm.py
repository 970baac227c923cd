"""Metrics learned anew for each policy, against metrics that go on from the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..schedules import Constant, PowerDecay, StepSize
from . import models, style
from .jobs import PolicyJob
from .settings import SWEEPS, Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Naive API, API(α) and API(α_k) with few sweeps"
CAPTION = (
    "Distance from the optimum on the first MDP (ε = 0.1) with n = 28, 7 and 1 sweeps of the metric in a step; "
    "γ = 0.9 above, 0.99 below. α_k = max(2⁻⁶, k^−0.8). Ties between actions are broken at random. Dotted: naive API "
    "where they go to the first action, which is the best one everywhere on this MDP, so that a metric that tells no "
    "states apart does well by luck."
)
QUANTITIES = ("error", "n_classes", "metric_gap")
SWEEP_COUNTS = (SWEEPS, 7, 1)
GAMMAS = (0.9, 0.99)
ALGORITHMS: dict[str, tuple[bool, StepSize]] = {
    "naive": (False, Constant(1.0)),
    "API(1)": (True, Constant(1.0)),
    "API(2^-6)": (True, Constant(2.0**-6)),
    "API(a_k)": (True, PowerDecay(0.8, 2.0**-6)),
}
_NAMES = {"naive": "API (naive)", "API(1)": "API(1)", "API(2^-6)": r"API($2^{-6}$)", "API(a_k)": r"API($\alpha_k$)"}


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    kinds: list[tuple[float, Literal["first", "random"], str]] = [
        (gamma, "random", algorithm) for gamma in GAMMAS for algorithm in ALGORITHMS
    ]
    kinds.append((0.9, "first", "naive"))
    found = []
    for gamma, ties, algorithm in kinds:
        warm, step_size = ALGORITHMS[algorithm]
        for sweeps in SWEEP_COUNTS:
            for seed in profile.all_seeds:
                problem = models.first(profile, variant, seed, gamma=gamma)
                keys = {"gamma": gamma, "ties": ties, "n": sweeps, "algorithm": algorithm, "seed": seed}
                job = PolicyJob(
                    problem,
                    variant.transport(),
                    variant.cover(models.EPS["first"]),
                    step_size,
                    seed,
                    profile.fixed_steps,
                    sweeps=sweeps,
                    warm=warm,
                    ties=ties,
                )
                found.append(Cell(keys, job))
    return found


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(len(GAMMAS), len(SWEEP_COUNTS), legend=0.3)
    for line, gamma in zip(axes, GAMMAS, strict=True):
        for axis, sweeps in zip(line, SWEEP_COUNTS, strict=True):
            part = table.where(gamma=gamma, n=sweeps)
            lucky = part.where(ties="first", algorithm="naive")
            style.band(axis, lucky, "error", colour=style.GREY, label="naive, lucky ties", style=":", floor=1e-4)
            for algorithm in ALGORITHMS:
                style.band(
                    axis,
                    part.where(ties="random", algorithm=algorithm),
                    "error",
                    label=_NAMES[algorithm],
                    colour=style.ALGORITHM_COLOURS[algorithm],
                    style=style.STYLES[algorithm],
                    floor=1e-4,
                )
            style.log_values(axis)
            axis.set_title(rf"$\gamma={gamma:g}$, $n={sweeps}$")
            style.step_axis(axis)
        line[0].set_ylabel(style.ERROR)
    style.legend_below(figure, axes[0][0], 5)
    return figure
