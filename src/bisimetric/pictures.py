"""Pictures of a run: its progress, and its value functions. Needs matplotlib (extra `viz`)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .model import MDP
from .policy.run import PolicyRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colour-blind safe (Okabe and Ito), the same colour for the same quantity everywhere.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7F7F7F"


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def _figure(columns: int, width: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 2.7), layout="constrained")
    FigureCanvasAgg(figure)
    axes: list[Axes] = list(figure.subplots(1, columns, squeeze=False)[0])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(True, color="0.9", linewidth=0.6)
        axis.tick_params(labelsize=8)
    return figure, axes


def progress_picture(mdp: MDP, run: PolicyRun, path: Path) -> None:
    """Error and certified bound, metric gap, and number of classes over the steps."""
    figure, (left, middle, right) = _figure(3, 9.0)
    k = np.arange(1, len(run.history) + 1)
    floor = 1e-10 * max(mdp.reward_span, 1e-300) / (1.0 - mdp.gamma)
    left.plot(k, np.maximum(run.curve("bound"), floor), color=ORANGE, label="certified bound")
    if run.optimal_value is not None:
        left.plot(k, np.maximum(run.curve("error"), floor), color=BLUE, label="error")
    left.set_yscale("log")
    left.set_title(r"$\|V^* - V^{\pi_k}\|_\infty$", fontsize=10)
    left.legend(fontsize=8, frameon=False)
    middle.plot(k, run.curve("metric_gap"), color=GREEN)
    middle.set_ylim(bottom=0.0)
    middle.set_title(r"$\max\,|\hat d - \Delta V^{\pi_k}|$", fontsize=10)
    right.plot(k, run.curve("n_classes"), color=BLUE)
    if mdp.classes is not None:
        count = len(np.unique(mdp.classes))
        right.axhline(count, color=GREY, linestyle="--", linewidth=1.0, label=f"true classes: {count}")
        right.legend(fontsize=8, frameon=False)
    right.set_ylim(0, max(1.05 * float(run.curve("n_classes").max()), 1.0))
    right.set_title(r"number of classes $|\tilde S|$", fontsize=10)
    for axis in (left, middle, right):
        axis.set_xlabel("step", fontsize=9)
        if len(k) > 50:
            axis.set_xscale("log")
    figure.savefig(path, dpi=160)


def value_picture(run: PolicyRun, path: Path) -> None:
    """V*, V^π and the abstract values, states sorted by V* (or V^π)."""
    figure, (axis,) = _figure(1, 4.6)
    order = np.argsort(run.value if run.optimal_value is None else run.optimal_value, kind="stable")
    states = np.arange(len(order))
    if run.optimal_value is not None:
        axis.plot(states, run.optimal_value[order], color=GREY, linewidth=3.0, label=r"$V^*$")
    axis.plot(states, run.value[order], color=BLUE, linewidth=1.2, label=r"$V^\pi$")
    axis.plot(states, run.abstract_value[order], color=ORANGE, linestyle="--", linewidth=1.2, label=r"$\tilde V_\Phi$")
    axis.set_xlabel(
        r"state, sorted by $V^*$" if run.optimal_value is not None else r"state, sorted by $V^\pi$", fontsize=9
    )
    axis.set_ylabel("value", fontsize=9)
    axis.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=160)


def draw(mdp: MDP, run: PolicyRun, folder: Path) -> list[Path]:
    """Write all pictures of a run as PNG and SVG; returns the PNG files."""
    made = []
    for ending in ("png", "svg"):
        progress_picture(mdp, run, folder / f"progress.{ending}")
        value_picture(run, folder / f"values.{ending}")
        made += [folder / f"progress.{ending}", folder / f"values.{ending}"]
    return [path for path in made if path.suffix == ".png"]
