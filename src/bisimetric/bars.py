"""Progress bars, on terminals and in notebooks.

    with bm.Bar() as bar:
        solution = bm.solve_metric(model, on_progress=bar)

Ctrl-C (the stop button of a notebook) ends a solve with a valid answer, as without a bar.
"""

from __future__ import annotations

import sys
from math import log
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


@runtime_checkable
class SweepSeen(Protocol):
    """What is seen of a sweep."""

    @property
    def sweep(self) -> int: ...
    @property
    def error(self) -> float: ...
    @property
    def tol(self) -> float: ...


@runtime_checkable
class BoundsSeen(Protocol):
    """What is seen of a question about one pair."""

    @property
    def lower(self) -> float: ...
    @property
    def upper(self) -> float: ...
    @property
    def opened(self) -> int: ...


class StepSeen(Protocol):
    """What is seen of a step of a run."""

    @property
    def k(self) -> int: ...
    @property
    def bound(self) -> float: ...
    @property
    def n_classes(self) -> int: ...


class Bar:
    """A progress bar for `on_progress` of metrics, comparisons, queries and runs; silence where nobody would see it.

    Args:
        total: how many steps a policy run has; not needed for metrics, whose bar follows the error.
        quiet: show nothing.
    """

    def __init__(self, total: int | None = None, *, quiet: bool = False) -> None:
        self._total, self._first = total, 0.0
        self._bar: RichProgress | None = None
        self._task: TaskID | None = None
        if quiet or not (in_notebook() or (sys.stderr is not None and sys.stderr.isatty())):
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        console = Console() if in_notebook() else Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=not in_notebook())

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("compiling and first sweep", total=1.0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: SweepSeen | BoundsSeen | StepSeen) -> None:
        """Take note of a sweep (`Progress`), a question (`QuerySeen`) or of a step of a run (`Step`)."""
        if self._bar is None or self._task is None:
            return
        if isinstance(progress, SweepSeen):
            self._first = max(self._first, progress.error)
            total = log(max(self._first / progress.tol, 1.0 + 1e-9))
            share = log(max(self._first / max(progress.error, progress.tol), 1.0)) / total
            text = f"sweep {progress.sweep}, error {progress.error:.1e}"
        elif isinstance(progress, BoundsSeen):
            gap = progress.upper - progress.lower
            self._first = max(self._first, gap)
            share = 1.0 - gap / self._first if self._first > 0.0 else 1.0
            text = f"bounds {progress.lower:.4g} to {progress.upper:.4g}, {progress.opened} pairs opened"
        else:
            share = (progress.k + 1) / self._total if self._total else 0.0
            text = f"step {progress.k}, bound {progress.bound:.3g}, {progress.n_classes} classes"
        self._bar.update(self._task, completed=share, description=text)


def in_notebook() -> bool:
    """Whether output goes to a notebook, without loading anything."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ in ("ZMQInteractiveShell", "Shell")
