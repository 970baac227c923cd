"""Rerun the paper's experiments and check its claims."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from cyclopts import App, Parameter

from .. import __version__
from .examples import epilogue
from .inputs import Json
from .studies import check_limits, chosen_figures, report_on, run_left
from .words import BadInputError, print_json

if TYPE_CHECKING:
    pass

paper = App(
    name="paper",
    help=__doc__,
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
    cluster: str | None = None,
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
        cluster: address of a Dask scheduler, such as tcp://host:8786, whose workers do the runs.
    """
    from .. import paper as paper_study
    from ..backends.select import backend
    from ..paper import experiments, on_cluster, store
    from ..paper import report as pages
    from ..paper.jobs import can_run
    from ..paper.settings import PROFILES, Variant
    from ..policy.folder import locked

    names = chosen_figures(figures, paper_study, "paper")
    if profile not in PROFILES:
        raise BadInputError(f"--profile {profile}: must be one of {', '.join(PROFILES)}.")
    check_limits(workers, time_limit)
    if cluster is not None and (workers is not None or device != "cpu"):
        raise BadInputError("--cluster has its own workers, and their CPUs: leave out --workers and --device.")
    backend(device, "float64")  # refuses what is not there
    if report:
        pages.check_matplotlib()
    if cluster is not None:
        on_cluster.check(cluster)
    size, variant = PROFILES[profile], Variant(**asdict(choices))
    try:
        store.begin(out, size, variant, __version__)
    except OSError as error:
        raise BadInputError(f"{out}: cannot be written ({error.strerror}).") from None
    with locked(out):
        store.tidy(out)
        jobs = [job for job in experiments.jobs_of(names, size, variant) if can_run(job, device)]
        status = run_left(jobs, out, workers=workers, time_limit=time_limit, device=device, cluster=cluster)
        if report and status.ended:
            report_on(pages, out, None)
    return status.exit_status


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
        verdicts = report_on(pages, folder, publish, quiet=json)
    if json:
        print_json({"page": str(folder / "index.html"), "claims": [verdict.facts() for verdict in verdicts]})
    return 0
