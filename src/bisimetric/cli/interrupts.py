"""Ctrl-C that is never lost.

A KeyboardInterrupt raised while compiled code calls back into Python (as during compilation) is swallowed there. So
it is also remembered, and raised again at the next look.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_seen = {"ctrl-c": False}


@contextmanager
def watched() -> Iterator[None]:
    """Remember Ctrl-C while a command runs."""
    _seen["ctrl-c"] = False
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as for jobs in the background: leave it so
    if ignored or threading.current_thread() is not threading.main_thread():
        yield
        return

    def remember(number: int, frame: FrameType | None) -> None:
        _seen["ctrl-c"] = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check() -> None:
    """Raise KeyboardInterrupt where Ctrl-C was pressed before, once."""
    if pressed():
        raise KeyboardInterrupt


def pressed() -> bool:
    """Whether Ctrl-C was pressed before, once: for work that it ended, and that does not say so."""
    seen, _seen["ctrl-c"] = _seen["ctrl-c"], False
    return seen
