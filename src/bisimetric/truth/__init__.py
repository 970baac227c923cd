"""The truth table of learned metrics: losses on finite MDPs, against their own fixed points and the certified metric.

settings      sizes (quick, full), and what is compared
models        finite models, with the certified metric of their uniform policy
observations  a model seen through distractors, with true distances of observations
losses        the losses by name
training      encoders, trained from the model or from transitions
registry      where claims are registered
table_claims  what the table is asked, and the rules that decide; claims: the same of all
report        tables, pictures and the page
the others    one figure each: a job, `cells` (which runs it needs), `draw`

Jobs, results folders, processes, rules and the looks of figures are those of `paper`.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from .settings import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..paper.table import Cell, Table

FIGURES = ("table", "drift", "distractors", "couplings")


class FigureModule(Protocol):
    """What the module of a figure offers."""

    TITLE: str
    CAPTION: str
    QUANTITIES: tuple[str, ...]  # in the table of means

    def cells(self, profile: Profile) -> list[Cell]: ...

    def draw(self, table: Table, profile: Profile) -> Figure: ...


def figure(name: str) -> FigureModule:
    """The module of a figure; raises ValueError with the nearest name for an unknown one."""
    if name not in FIGURES:
        near = get_close_matches(name, FIGURES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(FIGURES)}."
        raise ValueError(f"unknown figure {name!r}; {hint}")
    module: FigureModule = import_module(f".{name}", __name__)
    return module


def check_installed() -> None:
    """Refuse to begin without what the runs need."""
    if find_spec("torch") is None:
        raise ValueError('learned metrics need PyTorch: pip install "bisimetric[learn]".')
    if find_spec("gymnasium") is None:
        raise ValueError('the models lake and taxi are Gymnasium\'s: pip install "bisimetric[gym]".')
