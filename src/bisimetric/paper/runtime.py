"""Seconds per step: by step size, by regularisation, and with potentials kept or not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..schedules import Constant
from . import models, style
from .jobs import PolicyJob
from .lambda_ablation import DECAY
from .settings import ALPHAS, Profile, Variant
from .table import Cell, Table, plotted_steps

TITLE = "Run time"
CAPTION = (
    "Seconds per step on the first MDP (running median over 9 steps, then mean over seeds), timed one run at a time. "
    "Left: by step size, λ = 1. Middle: by λ with α_k = max(0.01, k^−0.8). Right: with the potentials of every pair "
    "kept from sweep to sweep (solid) and started anew (dashed)."
)
QUANTITIES = ("seconds", "metric_seconds", "iterations", "sweeps")
REGS = (0.1, 1.0, 10.0, math.inf)
COLD_REGS = (0.1, 1.0)


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    found = []
    for seed in range(profile.timed_seeds):
        problem = models.first(profile, variant, seed)
        cover = variant.cover(models.EPS["first"])

        def timed(transport: Any, step_size: Any, potentials: bool = True) -> PolicyJob:
            return PolicyJob(
                problem, transport, cover, step_size, seed, profile.timed_steps, potentials=potentials, alone=True
            )

        for alpha in ALPHAS:
            keys = {"sweep": "alpha", "alpha": alpha, "reg": 1.0, "potentials": "kept", "seed": seed}
            found.append(Cell(keys, timed(variant.transport(), Constant(alpha))))
        for reg in REGS:
            keys = {"sweep": "lambda", "alpha": "decay", "reg": reg, "potentials": "kept", "seed": seed}
            found.append(Cell(keys, timed(variant.transport(reg, swept=True), DECAY)))
        for reg in COLD_REGS:
            keys = {"sweep": "lambda", "alpha": "decay", "reg": reg, "potentials": "anew", "seed": seed}
            found.append(Cell(keys, timed(variant.transport(reg, swept=True), DECAY, potentials=False)))
    return found


def smooth(curve: Any, width: int = 9) -> Any:
    """Running median, so that one slow step of a busy machine does not show."""
    padded = np.pad(np.asarray(curve, np.float64), width // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=-1)


def _line(axis: Any, table: Table, colour: str, label: str, line: Any = "-") -> None:
    if not len(table):
        return
    mean = np.mean([smooth(row.arrays["seconds"]) for row in table], axis=0)
    k = plotted_steps(len(mean))
    axis.plot(k + 1, mean[k], color=colour, label=label, linestyle=line)


def draw(table: Table, profile: Profile) -> Any:
    figure, axes = style.panels(1, 3, height=2.8)
    left, middle, right = axes[0]
    for alpha in ALPHAS:
        _line(left, table.where(sweep="alpha", alpha=alpha), style.ALPHA_COLOURS[alpha], style.alpha_name(alpha))
    for reg in REGS:
        part = table.where(sweep="lambda", reg=reg, potentials="kept")
        _line(middle, part, style.REG_COLOURS[reg], style.reg_name(reg))
    for reg in COLD_REGS:
        for potentials, line in (("kept", "-"), ("anew", "--")):
            part = table.where(sweep="lambda", reg=reg, potentials=potentials)
            _line(right, part, style.REG_COLOURS[reg], f"{style.reg_name(reg)}, {potentials}", line)
    for axis in axes[0]:
        style.step_axis(axis)
        style.log_values(axis)
        axis.set_ylabel(style.LABELS["seconds"])
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    return figure
