"""The command `bisimetric`: outside the package, so that Ctrl-C is heard while that is loaded."""

from __future__ import annotations

import os
import signal
import sys


def _stopped(number: int, frame: object) -> None:
    os.write(2, b"bisimetric: interrupted\n")
    os._exit(130)


def _open_streams() -> None:
    """Where a standard stream is closed, let it lead nowhere, so that no other file takes its place."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def main() -> None:
    """Load the package and run a command."""
    _open_streams()
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not ignored:
        signal.signal(signal.SIGINT, _stopped)
    from bisimetric.cli import run

    if not ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))
