"""Runs on a cluster of Dask: workers send their results back, and this process keeps them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from operator import attrgetter
from pathlib import Path

from ..backends.select import backend
from ..cluster.crew import Crew, crew_of
from ..cluster.pieces import Broken, pieces
from . import store
from .jobs import Arrays, Job, job_id
from .pool import Failure


def check(cluster: object) -> None:
    """Refuse a cluster that is not there, or whose workers cannot do runs."""
    with crew_of(cluster) as crew:
        crew.check()


def run_jobs(
    jobs: Iterable[Job],
    folder: Path,
    *,
    cluster: object,
    version: str,
    done: Callable[[Job], None],
    seconds: float | None = None,
) -> list[Failure]:
    """Do all jobs on the CPUs of a cluster and keep their results in the folder; returns those that failed.

    Args:
        jobs: the longest come first, or the shortest where there is a limit; timed ones last, one at a time.
        cluster: a Client of Dask, or an address.
        version: of bisimetric, which workers must have too. done: told of each.
        seconds: limit, after which TimeoutError is raised.
    """
    ordered = sorted(jobs, key=attrgetter("cost"), reverse=seconds is None)
    end = math.inf if seconds is None else time.monotonic() + seconds
    with crew_of(cluster) as crew:
        crew.check()
        keep = partial(_keep, folder, version, done)
        failures = _all(crew, [job for job in ordered if not job.alone], end, keep)
        for job in (job for job in ordered if job.alone):
            failures += _all(crew, [job], end, keep)
    return failures


def _all(crew: Crew, jobs: list[Job], end: float, keep: Callable[[Job, tuple[Arrays, str]], None]) -> list[Failure]:
    failures = []
    for number, found in pieces(crew, "bisimetric paper run", _run, jobs, end=end):
        if isinstance(found, Broken):
            words = " ".join(f"{type(found.error).__name__}: {found.error}".split())
            failures.append(Failure(job_id(jobs[number]), words))
        else:
            keep(jobs[number], found)
    return failures


def _run(job: Job) -> tuple[Arrays, str]:
    """(what a run makes, on which processor)."""
    device = job.on or "cpu"
    return job.work(device).result(), backend(device, "float64").describe()


def _keep(folder: Path, version: str, done: Callable[[Job], None], job: Job, found: tuple[Arrays, str]) -> None:
    arrays, processor = found
    store.save(folder, job, arrays, job.on or "cpu", version, processor)
    done(job)
