"""bisimetric paper: rerun the experiments of the paper, and say which of its claims hold."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from cyclopts import App, Parameter

from .. import __version__
from . import interrupts
from .examples import epilogue
from .inputs import Json
from .words import BadInputError, print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress

    from ..paper.claims import Decision
    from ..paper.jobs import Job

paper = App(
    name="paper",
    help="Rerun the paper's experiments and check its claims.",
    help_epilogue=epilogue("paper"),
    help_format="plaintext",
)


class _Listed(TypedDict):
    """A figure of the list."""

    id: str
    title: str
    runs: dict[str, int]
    in_paper: bool


@paper.command(name="list")
def list_figures(*, json: Json = False) -> int:
    """List the figures: their ids, what they show, and how many runs they need."""
    from ..paper import BEYOND, FIGURES, figure
    from ..paper.jobs import can_run
    from ..paper.settings import PROFILES, TEXT

    rows: list[_Listed] = []
    for name in FIGURES:
        module = figure(name)
        runs = {
            key: sum(can_run(cell.job, "cpu") for cell in module.cells(profile, TEXT))
            for key, profile in PROFILES.items()
        }
        rows.append({"id": name, "title": module.TITLE, "runs": runs, "in_paper": name not in BEYOND})
    if json:
        print_json({"figures": rows})
        return 0
    print(f"{'id':18s} {'runs: quick':>11s} {'full':>6s}  what it shows")
    for row in rows:
        note = "" if row["in_paper"] else " (beyond the paper)"
        print(f"{row['id']:18s} {row['runs']['quick']:11d} {row['runs']['full']:6d}  {row['title']}{note}")
    return 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class VariantOptions:
    """Choices that the paper leaves open."""

    rule: str = "radius"
    """Radius (the paper's Algorithm 1) or diameter (its authors' runs)."""
    concentration: str = "1"
    """1 (uniform on the simplex, the text) or 1/N (its authors' runs)."""
    cost: str = "sharp"
    """Sharp or value of the regularised plan, or exact for exact transport instead of λ = 1."""
    advance: str = "first"
    """On the second MDP, first or alternating (its authors' runs) actions advance."""


_TEXT = VariantOptions()


@paper.command
def run(
    *figures: str,
    profile: str = "quick",
    out: Path = Path("paper-results"),
    workers: int | None = None,
    time_limit: float | None = None,
    device: str = "cpu",
    choices: VariantOptions = _TEXT,
    report: Annotated[bool, Parameter(help="Draw the figures and write the page at the end.")] = True,
) -> int:
    """Run the experiments of figures (their ids, or all), then draw them and check the claims.

    Runs that are done are skipped, so an interrupted command goes on where it was: give the same command again.

    Args:
        figures: ids as given by bisimetric paper list, or all.
        profile: quick (60 states, 3 seeds; minutes) or full (200 states, 10 seeds; hours on few cores).
        out: results folder.
        workers: processes (default: one per core).
        time_limit: minutes after which to stop; the shortest runs come first then.
        device: cpu, or cuda for one NVIDIA GPU; cuda times the runs of the runtime figure on both.
    """
    from ..backends.select import backend
    from ..backends.threads import threads
    from ..paper import FIGURES, experiments, figure, pool, store
    from ..paper import report as pages
    from ..paper.jobs import can_run
    from ..paper.settings import PROFILES, Variant
    from ..policy.folder import locked

    if not figures:
        raise BadInputError("give ids of figures, or all; see bisimetric paper list.")
    for name in figures:
        if name != "all":
            figure(name)  # refuses unknown ones
    names = list(FIGURES) if "all" in figures else list(dict.fromkeys(figures))
    if profile not in PROFILES:
        raise BadInputError(f"--profile {profile}: must be one of {', '.join(PROFILES)}.")
    if workers is not None and workers < 1:
        raise BadInputError(f"--workers must be at least 1; got {workers}.")
    if time_limit is not None and not time_limit > 0.0:
        raise BadInputError(f"--time-limit must be a positive number of minutes; got {time_limit}.")
    backend(device, "float64")  # refuses what is not there
    if report:
        pages.check_matplotlib()
    size, variant = PROFILES[profile], Variant(**asdict(choices))
    try:
        store.begin(out, size, variant, __version__)
    except OSError as error:
        raise BadInputError(f"{out}: cannot be written ({error.strerror}).") from None
    with locked(out):
        store.tidy(out)
        jobs = [job for job in experiments.jobs_of(names, size, variant) if can_run(job, device)]
        left = experiments.missing(jobs, out, say)
        say(f"{len(jobs)} runs, {len(jobs) - len(left)} of them done before; results in {out}")
        try:
            with _progress(left) as done:
                failures = pool.run_jobs(
                    left,
                    out,
                    workers=workers or threads(),
                    device=device,
                    version=__version__,
                    done=done,
                    say=say,
                    seconds=None if time_limit is None else 60.0 * time_limit,
                )
        except TimeoutError:
            say(f"bisimetric: the time is up; finished runs are kept in {out}, and the same command goes on.")
            return 1
        except KeyboardInterrupt:
            say(f"bisimetric: interrupted; finished runs are kept in {out}, and the same command goes on from there.")
            return 130
        for failure in failures:
            say(f"bisimetric: run {failure.run} failed: {failure.reason}")
        if report:
            _write_report(out, None)
    return 1 if failures else 0


@paper.command(name="report")
def write_report(folder: Path, *, publish: Path | None = None, json: Json = False) -> int:
    """Draw the figures of a results folder, check the claims, and write its page (index.html).

    Args:
        folder: results folder.
        publish: also copy the page's small parts there: figures, summary tables, claims.
    """
    from ..paper import report as pages
    from ..paper import store
    from ..policy.folder import locked

    pages.check_matplotlib()
    store.settings_of(folder, __version__)
    with locked(folder):
        verdicts = _write_report(folder, publish, quiet=json)
    if json:
        print_json({"page": str(folder / "index.html"), "claims": [verdict.facts() for verdict in verdicts]})
    return 0


def _write_report(folder: Path, publish: Path | None, quiet: bool = False) -> list[Decision]:
    from ..paper import report as pages

    interrupts.check()
    made = pages.write(folder, __version__, say)
    if publish is not None:
        pages.publish(folder, publish, __version__, made)
    if not quiet:
        for line in pages.lines(made):
            print(line)
        print(f"page: {folder / 'index.html'}")
    return made


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
