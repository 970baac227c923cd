"""Measure the losses of learned metrics against the certified metric (needs PyTorch)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from .. import __version__
from .examples import epilogue
from .inputs import Json
from .studies import check_limits, chosen_figures, report_on, run_left
from .words import BadInputError, print_json

if TYPE_CHECKING:
    pass

truth = App(
    name="truth",
    help=__doc__,
    help_epilogue=epilogue("truth"),
    help_format="plaintext",
)


@truth.command(name="list")
def list_figures(*, json: Json = False) -> int:
    """List the figures: their ids, what they show, and how many runs they need."""
    from ..truth import FIGURES, figure
    from ..truth.settings import PROFILES

    rows = [
        {
            "id": name,
            "title": figure(name).TITLE,
            "runs": {key: len(figure(name).cells(profile)) for key, profile in PROFILES.items()},
        }
        for name in FIGURES
    ]
    if json:
        print_json({"figures": rows})
        return 0
    print(f"{'id':12s} {'runs: quick':>11s} {'full':>6s}  what it shows")
    for name in FIGURES:
        runs = {key: len(figure(name).cells(profile)) for key, profile in PROFILES.items()}
        print(f"{name:12s} {runs['quick']:11d} {runs['full']:6d}  {figure(name).TITLE}")
    return 0


@truth.command
def run(
    *figures: str,
    profile: str = "quick",
    out: Path = Path("truth-results"),
    workers: int | None = None,
    time_limit: float | None = None,
    report: Annotated[bool, Parameter(help="Draw the figures and write the page at the end.")] = True,
) -> int:
    """Run the truth table and its experiments (their ids, or all), then draw them and check the claims.

    Runs that are done are skipped, so an interrupted command goes on where it was: give the same command again.

    Args:
        figures: ids as given by bisimetric truth list, or all.
        profile: quick (3 seeds, fewer models; minutes) or full (10 seeds).
        out: results folder.
        workers: processes (default: one per core).
        time_limit: minutes after which to stop; the shortest runs come first then.
    """
    from .. import truth as truth_study
    from ..paper import store
    from ..paper.jobs import job_id
    from ..policy.folder import locked
    from ..truth import check_installed, figure
    from ..truth import report as pages
    from ..truth.settings import PROFILES

    names = chosen_figures(figures, truth_study, "truth")
    if profile not in PROFILES:
        raise BadInputError(f"--profile {profile}: must be one of {', '.join(PROFILES)}.")
    check_limits(workers, time_limit)
    check_installed()
    if report:
        pages.check_matplotlib()
    size = PROFILES[profile]
    try:
        pages.begin(out, size, __version__)
    except OSError as error:
        raise BadInputError(f"{out}: cannot be written ({error.strerror}).") from None
    with locked(out):
        store.tidy(out)
        jobs = list({job_id(cell.job): cell.job for name in names for cell in figure(name).cells(size)}.values())
        status = run_left(jobs, out, workers=workers, time_limit=time_limit)
        if report and status.ended:
            report_on(pages, out, None)
    return status.exit_status


@truth.command(name="report")
def write_report(folder: Path, *, publish: Path | None = None, json: Json = False) -> int:
    """Draw the figures of a results folder, check the claims, and write its page (index.html).

    Args:
        folder: results folder.
        publish: also copy the page's small parts there: figures, tables, claims.
    """
    from ..policy.folder import locked
    from ..truth import report as pages

    pages.check_matplotlib()
    pages.settings_of(folder, __version__)
    with locked(folder):
        verdicts = report_on(pages, folder, publish, quiet=json)
    if json:
        print_json({"page": str(folder / "index.html"), "claims": [verdict.facts() for verdict in verdicts]})
    return 0
