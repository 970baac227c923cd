"""What `paper` and `truth` have in common: runs in a results folder, with progress, limits and Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .. import __version__
from . import interrupts
from .words import BadInputError, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..paper.claims import Decision
    from ..paper.jobs import Job


class Outcome(Enum):
    """How runs ended."""

    DONE = 0
    FAILED = 1  # some of them
    OUT_OF_TIME = 2
    INTERRUPTED = 3

    @property
    def ended(self) -> bool:
        """Whether all were tried, so that there is something to report."""
        return self in {Outcome.DONE, Outcome.FAILED}

    @property
    def exit_status(self) -> int:
        return {Outcome.DONE: 0, Outcome.INTERRUPTED: 130}.get(self, 1)


class Figures(Protocol):
    """The package of a study: its figures by their ids."""

    @property
    def FIGURES(self) -> Sequence[str]: ...  # noqa: N802 (a constant of both)

    def figure(self, name: str) -> object: ...  # refuses unknown ones


class Pages(Protocol):
    """What draws the figures of a study and decides its claims."""

    def write(self, folder: Path, version: str, say: Callable[[str], None]) -> list[Decision]: ...
    def publish(self, folder: Path, target: Path, version: str, made: list[Decision]) -> None: ...
    def lines(self, made: list[Decision]) -> list[str]: ...


def chosen_figures(figures: Sequence[str], study: Figures, command: str) -> list[str]:
    """Ids of the figures asked for, each once; refuses unknown ones, and none."""
    if not figures:
        raise BadInputError(f"give ids of figures, or all; see bisimetric {command} list.")
    for name in figures:
        if name != "all":
            study.figure(name)
    return list(study.FIGURES) if "all" in figures else list(dict.fromkeys(figures))


def report_on(pages: Pages, folder: Path, publish: Path | None, quiet: bool = False) -> list[Decision]:
    """Draw the figures of a results folder, decide its claims, write its page, and say what came out."""
    interrupts.check()
    made = pages.write(folder, __version__, say)
    if publish is not None:
        pages.publish(folder, publish, __version__, made)
    if not quiet:
        for line in pages.lines(made):
            print(line)
        print(f"page: {folder / 'index.html'}")
    return made


def check_limits(workers: int | None, time_limit: float | None) -> None:
    """Refuse numbers of processes and minutes that make no sense."""
    if workers is not None and workers < 1:
        raise BadInputError(f"--workers must be at least 1; got {workers}.")
    if time_limit is not None and not time_limit > 0.0:
        raise BadInputError(f"--time-limit must be a positive number of minutes; got {time_limit}.")


def run_left(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int | None,
    time_limit: float | None,
    device: str = "cpu",
    cluster: str | None = None,
) -> Outcome:
    """Do those of the jobs that have no result in the folder yet; what ended early or failed is said.

    Processes of this machine do them, or the workers of a cluster (its address).
    """
    from ..backends.threads import threads
    from ..paper import experiments, on_cluster, pool

    do = partial(pool.run_jobs, workers=workers or threads(), device=device, say=say)
    if cluster is not None:
        do = partial(on_cluster.run_jobs, cluster=cluster)
    left = experiments.missing(jobs, out, say)
    say(f"{len(jobs)} runs, {len(jobs) - len(left)} of them done before; results in {out}")
    try:
        with _progress(left) as done:
            failures = do(
                left,
                out,
                version=__version__,
                done=done,
                seconds=None if time_limit is None else 60.0 * time_limit,
            )
    except TimeoutError:
        say(f"bisimetric: the time is up; finished runs are kept in {out}, and the same command goes on.")
        return Outcome.OUT_OF_TIME
    except KeyboardInterrupt:
        say(f"bisimetric: interrupted; finished runs are kept in {out}, and the same command goes on from there.")
        return Outcome.INTERRUPTED
    for failure in failures:
        say(f"bisimetric: run {failure.run} failed: {failure.reason}")
    return Outcome.FAILED if failures else Outcome.DONE


@contextmanager
def _progress(jobs: list[Job]) -> Iterator[Callable[[Job], None]]:
    """Overall progress with the time left: a bar on a terminal, a line now and then elsewhere."""
    total = sum(job.cost for job in jobs)
    began = shown = time.monotonic()
    count, worked = 0, 0.0
    bar: Progress | None = None
    if sys.stderr.isatty() and jobs:
        from rich import progress as rich
        from rich.console import Console

        bar = rich.Progress(
            rich.TextColumn("runs"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
        )
        task = bar.add_task("runs", total=len(jobs), left="")
        bar.start()

    def done(job: Job) -> None:
        nonlocal count, worked, shown
        interrupts.check()
        count, worked = count + 1, worked + job.cost
        now = time.monotonic()
        left = (now - began) * (total - worked) / max(worked, 1e-9)
        text = f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left"
        if bar is not None:
            bar.update(task, completed=count, left=text)
        elif now - shown > 15.0:
            shown = now
            say(f"{count} of {len(jobs)} runs done, {text}")

    try:
        yield done
    finally:
        if bar is not None:
            bar.stop()
