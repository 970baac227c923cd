"""How the figures look: one colour per setting everywhere, safe for colour-blind readers, readable at column width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..kinds import Floats
from .table import Setting, Table, mean_and_error, plotted_steps

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import IO

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import LineStyleType, RcKeyType

# Okabe and Ito's colours, without yellow, which is hard to see on white.
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK, GREY = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#7F7F7F",
)
ALPHA_COLOURS: dict[Setting, str] = {
    1.0: RED,
    2.0**-1: ORANGE,
    2.0**-2: GREEN,
    2.0**-4: SKY,
    2.0**-6: BLUE,
    "decay": BLACK,
}
REG_COLOURS: dict[Setting, str] = {0.0: BLACK, 0.1: BLUE, 0.25: SKY, 1.0: GREEN, 2.0: PINK, 10.0: ORANGE, math.inf: RED}
ORDER_COLOURS: dict[Setting, str] = {1.0: BLUE, 2.0: GREEN, 4.0: RED}
ALGORITHM_COLOURS = {"naive": PINK, "API(1)": RED, "API(2^-6)": BLUE, "API(a_k)": BLACK}
STYLES: dict[str, LineStyleType] = {"naive": (0, (4, 1.5)), "API(1)": "-", "API(2^-6)": "-", "API(a_k)": "-"}

ERROR = r"$\|V^* - V^{\pi_k}\|_\infty$"
GAP = r"$\max\,|\hat d - \Delta V^{\pi_k}|$"
CLASSES = r"number of classes $|\tilde S|$"
LABELS = {
    "error": ERROR,
    "metric_gap": GAP,
    "n_classes": CLASSES,
    "nmi": "NMI of the run's classes",
    "metric_nmi": "NMI with the true classes",
    "seconds": "seconds per step",
}
COLUMN = 2.45  # inches of one panel

_SETTINGS: dict[RcKeyType, object] = {
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.5,
    "legend.fontsize": 7.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "bisimetric",
    "mathtext.fontset": "dejavusans",
}


def alpha_name(alpha: Setting) -> str:
    """α as a power of two."""
    if alpha == "decay":
        return r"$\alpha_k$"
    power = round(math.log2(float(alpha)))
    return r"$\alpha=1$" if power == 0 else rf"$\alpha=2^{{{power}}}$"


def reg_name(setting: Setting) -> str:
    """λ, with its two limits in words."""
    reg = float(setting)
    if reg == 0.0:
        return r"$\lambda=0$ (exact)"
    return r"$\lambda=\infty$ (MICo)" if math.isinf(reg) else rf"$\lambda={reg:g}$"


def looks() -> AbstractContextManager[None]:
    """A context in which figures are drawn and saved."""
    import matplotlib

    return matplotlib.rc_context(_SETTINGS)


def panels(rows: int, columns: int, *, height: float = 2.0, legend: float = 0.0) -> tuple[Figure, list[list[Axes]]]:
    """A figure with its axes [rows, columns]; `legend` leaves inches of room below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN * columns + 0.25, height * rows + legend), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def band(
    axis: Axes, table: Table, name: str, *, colour: str, label: str, style: LineStyleType = "-", floor: float = 0.0
) -> None:
    """Mean over seeds, with a shaded standard error."""
    if not len(table):
        return
    mean, error = mean_and_error(table.curves(name))
    k = plotted_steps(len(mean))
    y, e = mean[k], error[k]
    axis.fill_between(k + 1, np.maximum(y - e, floor), y + e, color=colour, alpha=0.22, linewidth=0.0)
    axis.plot(k + 1, np.maximum(y, floor), color=colour, label=label, linestyle=style)


def step_axis(axis: Axes) -> None:
    """Steps on a logarithmic axis, with plain numbers."""
    from matplotlib.ticker import FormatStrFormatter, NullFormatter

    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("step $k$")


def log_values(axis: Axes) -> None:
    """A logarithmic vertical axis with plain numbers, also between powers of ten where it spans little."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    axis.set_yscale("log")
    low, high = axis.get_ylim()
    decades = math.log10(high / low) if low > 0.0 else 9.0
    axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    if decades < 2.2:
        axis.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axis.yaxis.set_minor_formatter(FormatStrFormatter("%g"))
        axis.tick_params(axis="y", which="minor", labelsize=6.5)
    else:
        axis.yaxis.set_minor_formatter(NullFormatter())


def legend_beside(axis: Axes) -> None:
    """A legend to the right of a panel."""
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def legend_below(figure: Figure, axis: Axes, columns: int) -> None:
    """One legend for all panels, under them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def boxes(axis: Axes, quantiles: Sequence[Floats], positions: Sequence[float], *, colour: str, width: float) -> None:
    """Box plots from (low whisker, quartile, median, quartile, high whisker)."""
    stats = [{"whislo": q[0], "q1": q[1], "med": q[2], "q3": q[3], "whishi": q[4], "fliers": []} for q in quantiles]
    line = {"color": colour, "linewidth": 0.9}
    axis.bxp(
        stats,
        positions=list(positions),
        widths=width,
        showfliers=False,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "alpha": 0.35, "edgecolor": colour, "linewidth": 0.8},
        medianprops={"color": "black", "linewidth": 1.0},
        whiskerprops=line,
        capprops=line,
    )


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write SVG and PNG, whole or not at all; equal figures give equal bytes."""
    from .. import atomic

    made = []
    with looks():
        for ending, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
            path = folder / f"{name}.{ending}"

            def fill(stream: IO[bytes], ending: str = ending, metadata: dict[str, None] = metadata) -> None:
                figure.savefig(stream, format=ending, dpi=200, metadata=metadata)

            atomic.write(path, fill)
            made.append(path)
    return made
