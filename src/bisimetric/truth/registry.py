"""Where claims are registered, and what their rules measure rows with.

Numbers are measured for each seed; `paper.evidence` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..paper.claims import Claim
from ..paper.evidence import Finding
from ..paper.table import Row, Table

Tables = Mapping[str, Table]
Decide = Callable[[Tables], Finding]

SAFE = 1e-12
CLAIMS: list[Claim] = []
DECIDE: dict[str, Decide] = {}


def claim(name: str, text: str, figure: str) -> Callable[[Decide], Decide]:
    """Register what decides a claim about a figure."""

    def register(decide: Decide) -> Decide:
        CLAIMS.append(Claim(name, text, (figure,), lambda tables, _: decide(tables)))
        DECIDE[name] = decide
        return decide

    return register


def seeds_of(table: Table) -> list[int]:
    return sorted({row.seed for row in table})


def per_seed(table: Table, measure: Callable[[Table], float]) -> dict[int, float]:
    """A number for the rows of each seed together."""
    return {seed: measure(table.where(seed=float(seed))) for seed in seeds_of(table)}


def number(row: Row, name: str) -> float:
    return float(row.arrays[name].reshape(-1)[0])


def median(table: Table, name: str) -> float:
    return float(np.median([number(row, name) for row in table])) if len(table) else float("nan")
