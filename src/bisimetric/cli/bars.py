"""Progress of sweeps on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bars import Bar
from . import interrupts

if TYPE_CHECKING:
    from ..metric.driver import Progress


class SweepBar(Bar):
    """A bar of a command, which hears Ctrl-C between sweeps."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet=quiet)

    def __call__(self, progress: Progress) -> None:
        interrupts.check()
        super().__call__(progress)
