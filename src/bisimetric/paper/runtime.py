"""Seconds per step: by step size, by regularisation, and with potentials kept or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..kinds import Floats
from ..schedules import Constant, StepSize
from . import models, style
from .jobs import TimedJob
from .lambda_ablation import DECAY
from .settings import ALPHAS, Profile, Variant
from .table import Cell, Setting, Table, plotted_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Run time"
CAPTION = (
    "Seconds per step on the first MDP (running median over 9 steps, then mean over seeds), timed one run at a time. "
    "Left: by step size, λ = 1. Middle: by λ with α_k = max(0.01, k^−0.8), where Sinkhorn's iteration stops at a "
    "marginal error of 1e-6 (solid) and of 1e-2, as in the authors' runs (dotted). Right: with the potentials of "
    "every pair kept from sweep to sweep (solid) and started anew (dashed). One row for each device that runs were "
    "timed on."
)
QUANTITIES = ("seconds", "metric_seconds", "iterations", "sweeps")
REGS = (0.1, 1.0, 10.0, math.inf)
COLD_REGS = (0.1, 1.0)
STOPS = (1e-6, 1e-2)  # marginal errors at which Sinkhorn's iteration stops
DEVICES = {"cpu": "CPU", "cuda": "GPU"}


def cells(profile: Profile, variant: Variant) -> list[Cell]:
    return [
        cell
        for device in DEVICES
        for seed in range(profile.timed_seeds)
        for cell in _cells(profile, variant, device, seed)
    ]


def _cells(profile: Profile, variant: Variant, device: str, seed: int) -> list[Cell]:
    problem = models.first(profile, variant, seed)
    cover = variant.cover(models.EPS["first"])
    found = []

    def timed(
        sweep: str, alpha: Setting, reg: float, step_size: StepSize, potentials: str = "kept", stop: float = STOPS[0]
    ) -> None:
        keys = {
            "device": device,
            "sweep": sweep,
            "alpha": alpha,
            "reg": reg,
            "potentials": potentials,
            "stop": stop,
            "seed": seed,
        }
        transport = variant.transport(reg, swept=sweep == "lambda", marginal_tol=stop)
        job = TimedJob(
            problem,
            transport,
            cover,
            step_size,
            seed,
            profile.timed_steps,
            potentials=potentials == "kept",
            device=device,
        )
        found.append(Cell(keys, job))

    for alpha in ALPHAS:
        timed("alpha", alpha, 1.0, Constant(alpha))
    for reg in REGS:
        timed("lambda", "decay", reg, DECAY)
    for reg in COLD_REGS:
        timed("lambda", "decay", reg, DECAY, "anew")
    for reg in REGS:
        if math.isfinite(reg):
            timed("lambda", "decay", reg, DECAY, stop=STOPS[1])
    return found


def smooth(curve: ArrayLike, width: int = 9) -> Floats:
    """Running median, so that one slow step of a busy machine does not show, nor one in which kernels are loaded."""
    padded = np.pad(np.asarray(curve, np.float64), width // 2, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=-1)


def _line(axis: Axes, table: Table, colour: str, label: str, line: str = "-") -> None:
    if not len(table):
        return
    mean = np.mean([smooth(row.arrays["seconds"]) for row in table], axis=0)
    k = plotted_steps(len(mean))
    axis.plot(k + 1, mean[k], color=colour, label=label, linestyle=line)


def draw(table: Table, profile: Profile) -> Figure:
    devices = [device for device in DEVICES if len(table.where(device=device))]
    figure, axes = style.panels(len(devices), 3, height=2.8 if len(devices) == 1 else 2.4)
    for row, device in zip(axes, devices, strict=True):
        _draw_row(row, table.where(device=device))
        row[0].set_ylabel(f"{style.LABELS['seconds']}, {DEVICES[device]}")
    for axis in axes[-1]:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    return figure


def _draw_row(axes: Sequence[Axes], table: Table) -> None:
    left, middle, right = axes
    for alpha in ALPHAS:
        _line(left, table.where(sweep="alpha", alpha=alpha), style.ALPHA_COLOURS[alpha], style.alpha_name(alpha))
    for reg in REGS:
        for stop, line in zip(STOPS, ("-", ":"), strict=True):
            part = table.where(sweep="lambda", reg=reg, potentials="kept", stop=stop)
            label = style.reg_name(reg) if stop == STOPS[0] else "_"  # a name with _ is not listed
            _line(middle, part, style.REG_COLOURS[reg], label, line)
    for reg in COLD_REGS:
        for potentials, line in (("kept", "-"), ("anew", "--")):
            part = table.where(sweep="lambda", reg=reg, potentials=potentials, stop=STOPS[0])
            _line(right, part, style.REG_COLOURS[reg], f"{style.reg_name(reg)}, {potentials}", line)
    for axis in axes:
        style.step_axis(axis)
        style.log_values(axis)
