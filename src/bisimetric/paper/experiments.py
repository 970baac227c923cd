"""Doing the runs of figures, and reading their results back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from . import figure, pool, store
from .jobs import Job, job_id
from .pool import Failure
from .settings import Profile, Variant
from .table import Row, Table


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


def run(
    jobs: Sequence[Job], folder: Path, *, workers: int, device: str, version: str, done: Callable[[Job], None],
    say: Callable[[str], None],
) -> list[Failure]:  # fmt: skip
    """Do runs and keep their results; returns those that failed."""
    return pool.run_jobs(jobs, folder, workers=workers, device=device, version=version, done=done, say=say)


def table_of(name: str, folder: Path, profile: Profile, variant: Variant) -> tuple[Table, int]:
    """(the results of a figure that are there, how many are not). Raises ResultsError for a damaged one."""
    rows, absent = [], 0
    for cell in figure(name).cells(profile, variant):
        arrays = store.load(folder, cell.job)
        if arrays is None:
            absent += 1
        else:
            rows.append(Row(cell.keys, arrays, job_id(cell.job)))
    return Table(tuple(rows)), absent
