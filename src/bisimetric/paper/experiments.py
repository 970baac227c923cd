"""Which runs figures need, which of them are missing, and the results of those that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from . import figure, store
from .jobs import Job, job_id
from .settings import Profile, Variant
from .table import Cell, Row, Table


def jobs_of(names: Sequence[str], profile: Profile, variant: Variant) -> list[Job]:
    """All runs that figures need, each once."""
    found: dict[str, Job] = {}
    for name in names:
        for cell in figure(name).cells(profile, variant):
            found.setdefault(job_id(cell.job), cell.job)
    return list(found.values())


def missing(jobs: Sequence[Job], folder: Path, say: Callable[[str], None]) -> list[Job]:
    """Runs without a result; a damaged result is named, and counts as missing."""
    left = []
    for job in jobs:
        try:
            if store.load(folder, job) is None:
                left.append(job)
        except store.ResultsError as error:
            say(f"{error} It is run again.")
            left.append(job)
    return left


def results(cells: Sequence[Cell], folder: Path, say: Callable[[str], None]) -> Table:
    """The results of runs that are there; a damaged one is named and left out."""
    rows = []
    for cell in cells:
        try:
            arrays = store.load(folder, cell.job)
        except store.ResultsError as error:
            say(f"{error} Left out; bisimetric paper run does it again.")
            continue
        if arrays is not None:
            rows.append(Row(cell.keys, arrays, job_id(cell.job)))
    return Table(tuple(rows))
