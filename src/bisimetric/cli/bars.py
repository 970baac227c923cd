"""Progress of sweeps on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import interrupts

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from ..metric import Progress


class SweepBar:
    """A progress bar on a terminal, silence elsewhere. The error falls by about c_T a sweep."""

    def __init__(self, tol: float, quiet: bool) -> None:
        self.tol, self.first = tol, 0.0
        self.bar: RichProgress | None = None
        self.task: TaskID | None = None
        if not quiet and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> SweepBar:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("compiling and first sweep", total=1.0)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, progress: Progress) -> None:
        interrupts.check()
        if self.bar is None or self.task is None:
            return
        from math import log

        self.first = max(self.first, progress.error)
        total = log(max(self.first / self.tol, 1.0 + 1e-9))
        share = log(max(self.first / max(progress.error, self.tol), 1.0)) / total
        self.bar.update(self.task, completed=share, description=f"sweep {progress.sweep}, error {progress.error:.1e}")
