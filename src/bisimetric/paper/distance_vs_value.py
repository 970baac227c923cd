"""Whether the learned metric bounds differences of values, over the steps of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from . import models, style
from .jobs import QUANTILES, PolicyJob
from .lambda_ablation import DECAY
from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Distances against differences of values"
CAPTION = (
    "Distribution of d̂(s, s') − |V^π(s) − V^π(s')| over all pairs of states, on the first MDP with ε = 0.1 and "
    "α_k = max(0.01, k^−0.8), with n = 1 (above) and n = 5 sweeps a step (below). Boxes: quartiles; whiskers: 5 and 95 "
    "per cent; quantiles are means over seeds. The exact metric is never below 0."
)
QUANTITIES = ("error", "metric_gap", "n_classes")
REGS = (0.25, 2.0, math.inf)
SWEEP_COUNTS = (1, 5)
STEPS = 200
PROBES = (0, 1, 2, 4, 7, 10, 15, 20, 25, 30, 40, 50, 75, 100, 125, 149, 199)


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    steps = min(STEPS, profile.steps)
    probes = tuple(k for k in PROBES if k < steps)
    for sweeps in SWEEP_COUNTS:
        for reg in REGS:
            for seed in profile.all_seeds:
                job = PolicyJob(
                    models.first(profile, variant, seed),
                    variant.transport(reg, swept=True),
                    variant.cover(models.EPS["first"]),
                    DECAY,
                    seed,
                    steps,
                    sweeps=sweeps,
                    probes=probes,
                )
                found.append(Cell({"n": sweeps, "reg": reg, "seed": seed}, job))
    return found


def summary(table: Table) -> str:
    """Quantiles of d̂ − ΔV over pairs, and the share of pairs where it is not negative; means over seeds."""
    lines = ["n,reg,seeds,step," + ",".join(f"q{round(100 * q):02d}" for q in QUANTILES) + ",share"]
    for sweeps in SWEEP_COUNTS:
        for reg in REGS:
            part = table.where(n=sweeps, reg=reg)
            means = np.mean([row.arrays["boxes"] for row in part], axis=0)
            for k, numbers in zip(PROBES, means, strict=False):
                lines.append(f"{sweeps},{reg:g},{len(part)},{k + 1}," + ",".join(f"{x:.6g}" for x in numbers))
    return "\n".join(lines) + "\n"


def draw(table: Table, profile: Profile) -> Figure:
    figure, axes = style.panels(len(SWEEP_COUNTS), len(REGS))
    for line, sweeps in zip(axes, SWEEP_COUNTS, strict=True):
        for axis, reg in zip(line, REGS, strict=True):
            part = table.where(n=sweeps, reg=reg)
            quantiles = np.mean([row.arrays["boxes"] for row in part], axis=0)  # [probes, 8]
            count = len(quantiles)
            colour = style.REG_COLOURS[reg]
            style.boxes(axis, quantiles[:, 1:6], range(count), colour=colour, width=0.6)
            axis.axhline(0.0, color=style.GREY, linewidth=0.8, linestyle="--")
            ticks = range(0, count, 3)
            axis.set_xticks(list(ticks), [str(PROBES[k] + 1) for k in ticks])
            axis.set_title(f"{style.reg_name(reg)}, $n={sweeps}$")
        line[0].set_ylabel(r"$\hat d - \Delta V^{\pi_k}$")
    for axis in axes[-1]:
        axis.set_xlabel("step $k$")
    return figure
