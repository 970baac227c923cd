"""A folder that one process works in at a time."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LOCK = ".lock"
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOLCK)  # some network file systems


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock file; gives whether it could be had. It is free again when the process ends, however."""
    with open(folder / LOCK, "a") as handle:
        yield _lock(handle)


def _lock(handle: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return _lock_on_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _NO_LOCKS  # such a file system cannot tell who else is there
    return True


def _lock_on_windows(handle: IO[str]) -> bool:
    import importlib

    msvcrt = importlib.import_module("msvcrt")
    try:
        handle.seek(0)
        msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
