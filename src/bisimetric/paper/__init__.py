"""The experiments of Kemertas and Jepson (2022): one module per figure, and what the figures must show.

settings    sizes (quick, full) and the variants that the paper leaves open
jobs        one run: what is computed, and its id
store       a results folder, which survives being stopped
pool        runs in parallel processes
table       results as rows: settings of a run, and its curves
claims      each statement of the paper as a function from results to a verdict
report      tables, pictures and the page
the others  one figure each: `cells` says what is run, `draw` how it is shown
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from .settings import Profile, Variant
from .table import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = (
    "alpha-ablation",
    "naive-vs-warm",
    "lambda-ablation",
    "p-ablation",
    "budget",
    "runtime",
    "sharpness",
    "distance-vs-value",
    "value-functions",
    "third-family",
    "exact-transport",
    "garnet",
    "certificates",
)
BEYOND = ("exact-transport", "garnet", "certificates")  # not in the paper


class FigureModule(Protocol):
    """What the module of a figure offers."""

    TITLE: str
    CAPTION: str
    QUANTITIES: tuple[str, ...]  # in the summary table

    def cells(self, profile: Profile, variant: Variant) -> list[Cell]: ...

    def draw(self, table: Table, profile: Profile) -> Figure: ...


def figure(name: str) -> FigureModule:
    """The module of a figure; raises ValueError with the nearest name for an unknown one."""
    if name not in FIGURES:
        near = get_close_matches(name, FIGURES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(FIGURES)}."
        raise ValueError(f"unknown figure {name!r}; {hint}")
    module: FigureModule = import_module(f".{name.replace('-', '_')}", __name__)
    return module
