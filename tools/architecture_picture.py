"""Draw docs/architecture.png: the modules in layers, each of which imports only what is below it."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

LAYERS = [
    ("commands, experiments,\npages, models from elsewhere",
     ["cli", "paper\ntruth", "learn", "pages, plot,\nbench,\npictures", "formats", "problems"], "#e8e8e8"),
    ("policies,\nsmall models in their place",
     ["policy: loop, solve, batch, folder, record", "abstraction"], "#cfe3f5"),
    ("from data, pair by pair", ["estimate: counts, confidence, bracket, policies", "queries"], "#cfe3f5"),
    ("metrics", ["metric: operator, driver, acceleration, solve, compare, solution, plan"], "#cfe3f5"),
    ("smaller models, values",
     ["reduction", "lumping", "aggregation", "values", "certificates", "schedules"], "#e3f1d9"),
    ("the seam", ["backends.comparison\nComparison, Unit",
                  "backends.protocol\nDistances, PairSolver,\nSweeper, Pending, Backend",
                  "backends.select, .threads"], "#ffe2b8"),
    ("engines", ["backends.cpu\nsweeper, solver, exact,\nsinkhorn, ball, independent",
                 "backends.cuda\nsweeper, solver, exact,\nsinkhorn, ball, independent",
                 "cluster\nsweeper, distances, tiles,\nstore, tasks, crew"], "#ffe2b8"),
    ("what is compared", ["model: MDP, Chain, Distributions", "transport: settings, axioms, budget"], "#f3dcec"),
    ("for everybody", ["archives, atomic, checks, damage, frames, kinds, locks, showing, status"], "#e8e8e8"),
]  # fmt: skip


def main() -> None:
    width, gap, height = 12.0, 0.15, 1.0
    figure, axes = plt.subplots(figsize=(11.5, 8.4))
    for k, (title, boxes, colour) in enumerate(reversed(LAYERS)):
        y = k * (height + 0.28)
        axes.text(-0.2, y + height / 2, title, ha="right", va="center", fontsize=11, color="#444444")
        each = (width - gap * (len(boxes) - 1)) / len(boxes)
        for n, text in enumerate(boxes):
            x = n * (each + gap)
            axes.add_patch(
                FancyBboxPatch((x, y), each, height, "round,pad=0,rounding_size=0.12", fc=colour, ec="#777777")
            )
            axes.text(x + each / 2, y + height / 2, text, ha="center", va="center", fontsize=10)
        if k:
            axes.annotate("", (width / 2, y - 0.26), (width / 2, y - 0.01), arrowprops={"arrowstyle": "->", "lw": 1.4})
    axes.set_xlim(-3.6, width + 0.1)
    axes.set_ylim(-0.1, len(LAYERS) * (height + 0.28) - 0.18)
    axes.axis("off")
    figure.savefig(Path(__file__).parents[1] / "docs" / "architecture.png", dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
