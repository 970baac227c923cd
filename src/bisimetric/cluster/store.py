"""A folder that all workers see, with the distances in versions.

    question.json            what is worked on
    blocks/R-0-99.npy        rows of the model: those of states 0 to 98; C for those of the other model
    d00007/i-j.npy           distances of version 7, tile by tile; a version never changes once it is there
    m00004/i-j.npy           what solvers remember after a sweep, one array after the other
    n00006/i-j.npy           which pair of rows decided each distance
    state.json               the last whole version, and what else the next sweep depends on

Files are written beside their places and moved there, so what is there is whole; who writes a file twice writes the
same bytes. Before state.json names a version, it is on the disk.

A store that ends with the work is written over: files of versions that are retired are kept as spares, and the next
version is written into them, for a tenth of what new files cost. A retired version leaves its place before that, and a
task whose sources have left their places keeps to itself what it made of them (`tasks`). So a worker that was given up
for lost, and goes on all the same, does no harm.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from .. import atomic
from ..kinds import Array
from ..locks import LOCK, locked
from .errors import ClusterError
from .tiles import TileGrid

STATE, QUESTION = "state.json", "question.json"
_KINDS = "dmn"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_STRETCH = 1 << 22  # bytes that are held at a time where check sums are taken
_SPARES, _MOST_SPARES = "spares", 1  # a folder, and how many it has for each tile and kind


class Store:
    """The files of one metric in tiles."""

    def __init__(self, folder: Path | str, *, passing: bool = False) -> None:
        """`passing`: it is on this machine, and ends with the work."""
        self.folder, self.passing = Path(folder).absolute(), passing  # workers may be in other folders

    @classmethod
    def temporary(cls) -> Store:
        """One that is thrown away after use, on this machine."""
        return cls(tempfile.mkdtemp(prefix="bisimetric-store-"), passing=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for one caller; folders that were made for nothing are removed again."""
        made = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        with ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                mine = stack.enter_context(locked(self.folder))
            except OSError as error:
                raise self._failed(error) from None
            if not mine:
                raise ClusterError(
                    f"another process is working in the store {self.folder}; wait for it, or give another folder."
                )
            try:
                yield
            finally:
                with suppress(OSError):  # there is something in them
                    if made and [path.name for path in self.folder.iterdir()] == [LOCK]:
                        (self.folder / LOCK).unlink()
                    for folder in made:
                        folder.rmdir()

    def place(self, kind: str, number: int, tile: tuple[int, int]) -> Path:
        """Where the array of a tile is: kind "d" for distances, "m" for memory, "n" for notes."""
        return self.folder / f"{kind}{number:05d}" / f"{tile[0]}-{tile[1]}.npy"

    def block(self, side: str, ends: Sequence[int]) -> Path:
        """Where a block of rows of the model is: side "R" for rows, "C" for columns, and its range of states."""
        return self.folder / "blocks" / f"{side}-{ends[0]}-{ends[1]}.npy"

    def write(self, path: Path, arrays: Iterable[Array]) -> int:
        """Write arrays one after the other; returns how many bytes they have."""
        part, listed = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex}"), list(arrays)
        try:
            path.parent.mkdir(parents=not self.passing, exist_ok=True)  # what is over is not begun again
            try:
                self._fill(path, part, listed)
            except OSError as error:
                if error.errno not in _FULL or not self._drop_spares():
                    raise
                self._fill(path, part, listed)
        except OSError as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise self._failed(error) from None
        return sum(array.nbytes for array in listed)

    def _fill(self, path: Path, part: Path, arrays: list[Array]) -> None:
        with open(part, "r+b" if self._take_spare(path, part) else "wb", buffering=0) as stream:
            for array in arrays:
                npy.write_array(stream, array, allow_pickle=False)
            stream.truncate()
        os.replace(part, path)

    def _drop_spares(self) -> bool:
        """Make room; False where there is none to be made."""
        spares = self.folder / _SPARES
        there = spares.is_dir() and any(spares.iterdir())
        shutil.rmtree(spares, ignore_errors=True)
        return there

    def _take_spare(self, path: Path, part: Path) -> bool:
        """Put a spare file of the same tile where a part is to be written; False where there is none."""
        if self.passing:
            for spare in self.folder.glob(f"{_SPARES}/{_spare_name(path)}.*"):
                with suppress(FileNotFoundError):  # another one was quicker
                    os.rename(spare, part)
                    return True
        return False

    def holds(self, kind: str, number: int) -> bool:
        """Whether a version is there, and not retired; of negative ones there is nothing to be held but the store."""
        return (self.folder / f"{kind}{number:05d}" if number >= 0 else self.folder).is_dir()

    def settle(self, files: Iterable[Path]) -> None:
        """Wait until files are on the disk, with their names."""
        listed = list(files)
        for path in (*listed, *{path.parent for path in listed}, self.folder):
            with suppress(FileNotFoundError) if path.suffix else suppress(OSError):  # not all systems settle folders
                handle = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def read(self, path: Path) -> list[Array]:
        """All arrays of a file."""
        found = []
        with open(path, "rb") as stream:
            end = os.fstat(stream.fileno()).st_size
            while stream.tell() < end:
                found.append(npy.read_array(stream, allow_pickle=False))
        return found

    def tile(self, number: int, tile: tuple[int, int]) -> Array:
        """The distances of a tile as the file has them, to be read only where they are looked at."""
        found: Array = np.load(self.place("d", number, tile), mmap_mode="r")
        return found

    def begin(self, question: Mapping[str, object], grid: TileGrid) -> tuple[TileGrid, dict[str, Any] | None]:
        """Take the folder for a question; returns how it is cut, and the state to go on from, if there is one."""
        found = self.known(question)
        if found is not None:
            return found
        try:
            self.prepare()
            plain = json.loads(json.dumps(question))
            atomic.save_json(self.folder / QUESTION, {"question": plain, "grid": asdict(grid)})
        except OSError as error:
            raise self._failed(error) from None
        return grid, None

    def known(self, question: Mapping[str, object]) -> tuple[TileGrid, dict[str, Any] | None] | None:
        """How the folder is cut for a question, and the state to go on from; nothing where none was begun in it."""
        plain = json.loads(json.dumps(question))
        try:
            if not (self.folder / QUESTION).exists():
                return None
            found = json.loads((self.folder / QUESTION).read_text())
            if found["question"] != plain:
                raise ClusterError(
                    f"the store {self.folder} holds work on something else "
                    f"({_difference(found['question'], plain)}). Give another folder, or remove this one."
                )
            state = self.folder / STATE
            cuts = found["grid"]
            known = TileGrid(tuple(cuts["rows"]), tuple(cuts["columns"]), cuts["square"])
            return known, dict(json.loads(state.read_text())) if state.exists() else None
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ClusterError(f"the store {self.folder} is damaged; remove it.") from None
        except OSError as error:
            raise self._failed(error) from None

    def prepare(self) -> None:
        """Make the folder, where it is not there; refuses one with other things in it than blocks of a model."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(path.name != "blocks" and not path.name.startswith(".") for path in self.folder.iterdir()):
            raise ClusterError(f"the store {self.folder} holds other files; give an empty folder, or a new one.")

    @contextmanager
    def token(self) -> Iterator[str]:
        """A file by which others can tell that they see the folder, and what is in it."""
        word, place = uuid.uuid4().hex, self.folder / f".token-{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            place.write_text(word)
        except OSError as error:
            raise self._failed(error) from None
        try:
            yield f"{place.name} {word}"
        finally:
            with suppress(OSError):
                place.unlink()

    def sees(self, token: str) -> bool:
        """Whether the file of a token is seen here."""
        name, word = token.split()
        try:
            return (self.folder / name).read_text() == word
        except OSError:
            return False

    def keep(self, state: Mapping[str, object]) -> None:
        """Make what is known so far the state to go on from."""
        try:
            atomic.save_json(self.folder / STATE, state)
        except OSError as error:
            raise self._failed(error) from None

    def check(self, files: Iterable[Path]) -> None:
        """Refuse files that are not whole: what was not yet on the disk when the power was cut."""
        for path in files:
            try:
                self.read(path)
            except (OSError, ValueError):
                raise ClusterError(
                    f"the store {self.folder} is damaged ({path.name} is not whole); remove it."
                ) from None

    def sums(self) -> dict[str, int]:
        """Check sums of the model's blocks, which are on the disk then."""
        blocks = sorted((self.folder / "blocks").glob("[!.]*.npy"))
        try:
            self.settle(blocks)
            return {path.name: _sum_of(path) for path in blocks}
        except OSError as error:
            raise self._failed(error) from None

    def check_blocks(self, sums: Mapping[str, int]) -> None:
        """Refuse blocks of the model that are not those of these check sums."""
        for name, wanted in sums.items():
            try:
                whole = _sum_of(self.folder / "blocks" / name) == wanted
            except OSError:
                whole = False
            if not whole:
                raise ClusterError(f"the store {self.folder} is damaged ({name} is not what it was); remove it.")

    def remove_all_but(self, wanted: Mapping[str, set[int]]) -> None:
        """Remove versions, by kind, that nobody needs any more."""
        for folder in self.folder.iterdir():
            kind, number = folder.name[:1], folder.name[1:]
            if kind in _KINDS and number.isdigit() and int(number) not in wanted.get(kind, set()):
                self._retire(folder)

    def _retire(self, folder: Path) -> None:
        """Remove a version; its files are spares for others where the store ends with the work."""
        if not self.passing:
            shutil.rmtree(folder, ignore_errors=True)
            return
        spares, gone = self.folder / _SPARES, self.folder / f".retired-{uuid.uuid4().hex}"
        with suppress(OSError):  # what cannot be used again is removed
            spares.mkdir(exist_ok=True)
            os.rename(folder, gone)
            for path in gone.iterdir():
                known = _spare_name(folder / path.name)
                if not path.name.startswith(".") and len(list(spares.glob(f"{known}.*"))) < _MOST_SPARES:
                    os.rename(path, spares / f"{known}.{uuid.uuid4().hex}")
        for left in (gone, folder):
            shutil.rmtree(left, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder with all in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _failed(self, error: OSError) -> ClusterError:
        if error.errno in _FULL:
            return ClusterError(
                f"the store {self.folder} is full. The last whole version is kept: make room, and call again with the "
                "same store to go on from there."
            )
        return ClusterError(f"the store {self.folder} cannot be used: {error.strerror or error}.")


def _sum_of(path: Path) -> int:
    """The check sum of a file."""
    found = 0
    with open(path, "rb") as stream:
        while stretch := stream.read(_STRETCH):
            found = zlib.crc32(stretch, found)
    return found


def _spare_name(path: Path) -> str:
    """What files of the same tile, and about the same size, have in common."""
    return f"{path.parent.name[:1]}-{path.name}"


def _difference(found: Mapping[str, object], question: Mapping[str, object]) -> str:
    """The first entry in which two questions differ."""
    names = [name for name in question if found.get(name) != question[name]]
    return f"{names[0]}: {found.get(names[0])}, not {question[names[0]]}" if names else "another question"
