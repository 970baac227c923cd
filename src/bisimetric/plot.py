"""Pictures with Matplotlib (extra `viz`): each function takes axes, or makes some, and gives them back.

    axes = bm.plot.map(solution)
    bm.plot.curves(run, axes=axes)

Colours are those of the pages: Okabe and Ito for classes, viridis for numbers; colour-blind people can tell both apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .aggregation import Partition
from .kinds import Array
from .metric.solution import MetricSolution
from .model import MDP, Chain
from .pages.coordinates import board_of
from .pages.layout import laid_out
from .pages.subjects import of_metric
from .policy.run import PolicyRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["board", "classes", "curves", "map", "metric"]

_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#7F7F7F")
_SHAPES = ("o", "s", "^", "D")


def metric(solution: MetricSolution, *, axes: Axes | None = None, order: bool = True) -> Axes:
    """Draw the distances [S, S] as a heat map, states in the order of clusters.

    Args:
        solution: a metric. axes: where to draw. order: False keeps the states' own order.
    """
    axes = _axes(axes)
    d = solution.distance
    if order and len(d) > 1:
        layout = laid_out(d, most=len(d))
        d = d[np.ix_(layout.order, layout.order)]
    image = axes.imshow(d, cmap="viridis", interpolation="nearest")
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes, label="distance", shrink=0.8)
    axes.set_xlabel("state, in the order of clusters" if order else "state")
    return axes


def map(solution: MetricSolution, *, axes: Axes | None = None, colour: ArrayLike | Partition | None = None) -> Axes:
    """Draw the states in the plane, so that their distances are kept as well as a plane can.

    Args:
        solution: a metric. axes: where to draw.
        colour: numbers or words by state [S], or a partition; nothing for one colour.
    """
    axes = _axes(axes)
    layout = laid_out(solution.distance)
    x, y = layout.place.T
    values = colour.class_of.astype(str) if isinstance(colour, Partition) else colour
    if values is None:
        axes.scatter(x, y, s=18, color=_COLOURS[0])
    else:
        array = np.asarray(values)
        if array.shape != (len(x),):
            raise ValueError(f"colour needs one entry per state ({len(x)}); got shape {array.shape}.")
        _scatter(axes, x, y, array)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(f"distorted by {100 * layout.stress:.1f} % (stress)", fontsize=9)
    return axes


def _scatter(axes: Axes, x: Array, y: Array, values: Array) -> None:
    if values.dtype.kind in "fiu":
        points = axes.scatter(x, y, s=18, c=values, cmap="viridis")
        figure = axes.get_figure()
        assert figure is not None
        figure.colorbar(points, ax=axes, shrink=0.8)
        return
    words = list(dict.fromkeys(values.astype(str).tolist()))
    for k, word in enumerate(words):
        here = values.astype(str) == word
        label = None if len(words) > 16 else word[:40].replace("$", r"\$")
        axes.scatter(x[here], y[here], s=18, color=_COLOURS[k % 8], marker=_SHAPES[k // 8 % 4], label=label)
    if 1 < len(words) <= 16:
        axes.legend(fontsize=7, frameon=False)


def classes(solution: MetricSolution, *, axes: Axes | None = None) -> Axes:
    """Draw how many classes of diameter 2ε there are (complete linkage) over ε, and the certified loss of values.

    The loss is that of eqs. 4 and 6 of the paper, on a second axis, where their conditions hold.
    """
    axes = _axes(axes)
    subject = of_metric(solution)
    layout = laid_out(solution.distance, most=solution.n_states)
    eps = np.concatenate([[0.0], layout.merges[:, 2] / 2.0])
    count = np.arange(solution.n_states, 0, -1)
    axes.step(eps, count, where="post", color=_COLOURS[0])
    axes.set_xlabel("ε")
    axes.set_ylabel("classes", color=_COLOURS[0])
    losses = [subject.loss(2.0 * e) for e in eps]
    if not losses[0].failed:
        right = axes.twinx()
        right.plot(eps, [loss.error for loss in losses], color=_COLOURS[5], linestyle="--")
        right.set_ylabel("certified loss", color=_COLOURS[5])
    return axes


def curves(run: PolicyRun, names: Sequence[str] = ("bound", "error"), *, axes: Axes | None = None) -> Axes:
    """Draw quantities of a run over its steps, such as "bound", "error", "n_classes" or "metric_gap"."""
    axes = _axes(axes)
    steps = np.array([step.k for step in run.history])
    for k, name in enumerate(names):
        values = run.curve(name)
        if not np.isnan(values).all():
            axes.plot(steps, values, color=_COLOURS[(5 - 5 * k) % 8], label=name)
    positive = all((run.curve(name)[~np.isnan(run.curve(name))] > 0.0).all() for name in names)
    if positive:
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.legend(fontsize=8, frameon=False)
    return axes


def board(
    model: MDP | Chain, values: ArrayLike, *, axes: Axes | None = None, board: ArrayLike | tuple[int, int] | None = None
) -> Axes:
    """Draw numbers of states on their board; several states in one place are averaged.

    Args:
        model: the model. values: one number per state [S]. axes: where to draw.
        board: (rows, columns), or the row and column of each state [S, 2]; by default the names say it.
    """
    places = board_of(model.state_names, board, model.n_states)
    if places is None:
        raise ValueError("the names of the states give no rows and columns; give board=(rows, columns).")
    numbers = np.asarray(values, np.float64)
    if numbers.shape != (model.n_states,):
        raise ValueError(f"values need one number per state ({model.n_states}); got shape {numbers.shape}.")
    axes = _axes(axes)
    has = places[:, 0] >= 0
    shape = tuple(places[has].max(axis=0) + 1)
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, tuple(places[has].T), numbers[has])
    np.add.at(counts, tuple(places[has].T), 1.0)
    image = axes.imshow(np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan), cmap="viridis")
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, ax=axes, shrink=0.8)
    axes.set_xlabel("column")
    axes.set_ylabel("row")
    return axes


def _axes(axes: Axes | None) -> Axes:
    """The axes given, or new ones."""
    if axes is not None:
        return axes
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("pictures need matplotlib; pip install 'bisimetric[viz]'.") from None
    return plt.subplots(figsize=(5.0, 4.0), layout="constrained")[1]
