"""Progress of sweeps on a terminal."""

from __future__ import annotations

from ..bars import Bar, BoundsSeen, StepSeen, SweepSeen
from . import interrupts


class SweepBar(Bar):
    """A bar of a command, which hears Ctrl-C between sweeps."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet=quiet)

    def __call__(self, progress: SweepSeen | BoundsSeen | StepSeen) -> None:
        interrupts.check()
        super().__call__(progress)
