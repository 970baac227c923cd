"""Files that are whole or absent: written beside their target, then moved there.

Several files of one result are all written before the first is moved. What a killed process left half-written beside a
target is removed when that target is written again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

Fill = Callable[[IO[bytes]], None]


def write(path: Path, fill: Fill) -> None:
    """Let `fill` write a file, and put it in place only when it is safely on the disk."""
    write_all({path: fill})


def write_all(files: Mapping[Path, Fill]) -> None:
    """Let several files be written, and put them in place, in their order, only when all are safely on the disk."""
    made: list[tuple[Path, Path]] = []
    try:
        for path, fill in files.items():
            with _naming(path):
                if path.exists() and not path.is_file():  # a pipe or a device cannot be replaced
                    with open(path, "wb") as stream:
                        fill(stream)
                else:
                    made.append((_part(path, fill, made), path))
        for part, path in made:
            with _naming(path):
                os.replace(part, path)
    except BaseException:
        for part, _ in made:
            part.unlink(missing_ok=True)
        raise


def _part(path: Path, fill: Fill, made: list[tuple[Path, Path]]) -> Path:
    """The file, written beside its place."""
    import tempfile

    remove_left(path.parent, path.name)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{os.getpid()}-", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(part, 0o666 & ~_umask())
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


def remove_left(folder: Path, name: str = "") -> None:
    """Remove half-written files (of one target, or of all in a folder) whose processes are gone."""
    for part in folder.glob(f".{_escaped(name)}*.part"):
        owner = re.fullmatch(rf"\.{re.escape(name)}.*?\.(\d+)-[^.]*\.part", part.name)
        if owner is not None and not _alive(int(owner[1])):
            with suppress(OSError):
                part.unlink()


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _alive(process: int) -> bool:
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or a system that cannot tell
        return True
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors of the system name the file that was to be written, not the one beside it."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror or str(error), str(path)) from None


def save_json(path: Path, data: object) -> None:
    """Write a JSON file, keys in the order given."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    write(path, text_filler(text))


def text_filler(text: str) -> Fill:
    """What `write_all` needs to write a text."""

    def fill(stream: IO[bytes]) -> None:
        stream.write(text.encode("utf-8", "surrogatepass"))

    return fill
