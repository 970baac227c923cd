"""Files that are not what they should be: one budget for what reading may cost, one place that names the damage.

A file may cost memory in proportion to its size on disk, however much it claims to hold. Whatever goes wrong while it
is read (parsers and decompressors raise all kinds of errors) becomes one line with the file's name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FREE = 64 << 20  # bytes that any file may cost
_FACTOR = 64  # and for each of its own bytes
_LONGEST_REASON = 200


class DamagedFileError(ValueError):
    """A file that cannot be read as what it should be; the message has its name."""


class Budget:
    """Bytes that reading a file may still cost."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, os.stat(path).st_size
        self.left = _FREE + _FACTOR * self.size

    def take(self, count: int, what: str) -> None:
        """Spend some; raises where there are not so many left."""
        self.left -= count
        if self.left < 0:
            raise DamagedFileError(
                f"{self.path}: {what} would need {count:,} bytes, far more than a file of {self.size:,} bytes should."
            )


@contextmanager
def reading(path: Path, what: str, error: type[ValueError] = DamagedFileError) -> Iterator[None]:
    """Turn whatever goes wrong inside into an `error` that names the file; what cannot be opened stays an OSError."""
    try:
        yield
    except (error, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError):
        raise
    except DamagedFileError as damage:  # names the file already
        raise error(str(damage)) from None
    except Exception as damage:
        if os.environ.get("BISIMETRIC_TRACEBACKS"):
            raise
        reason = " ".join(f"{type(damage).__name__}: {damage}".split())
        shown = reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "…"
        raise error(f"{path}: not {what} that can be read ({shown}).") from None
