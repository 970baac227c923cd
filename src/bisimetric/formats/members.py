"""Stretches of the members of archives: what is asked for is read, and no more is held.

Where an archive is not compressed, a member lies in one piece, and any stretch of it is read at once. Where it is, all
that comes before a stretch is decompressed on the way to it, and thrown away.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.lib import format as npy

from ..damage import DamagedFileError
from ..kinds import Array

_LOCAL = struct.Struct("<26x2H")  # where a zip archive's local header has the lengths of what follows it
_LONGEST_HEADER = 1 << 16
_MOST_MEMBERS = 10_000
_STRETCH = 1 << 22  # bytes that are held at a time


@dataclass(frozen=True)
class Member:
    """Where a member is: where it begins in the stream that `open` gives, and its bytes."""

    begin: int
    size: int


@dataclass(frozen=True)
class StoredArray:
    """An array of an .npz archive: its member, whether that is compressed, and where numbers begin in it."""

    member: str
    begin: int  # in the file, or in the member where that is compressed
    compressed: bool
    dtype: np.dtype[Any]
    count: int


class ArrayFile:
    """The arrays of an .npz archive by name, of which stretches are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays: dict[str, StoredArray] = {}
        with open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
            for entry in archive.infolist()[:_MOST_MEMBERS]:
                if entry.filename.endswith(".npy"):
                    self.arrays[entry.filename[:-4]] = _stored(archive, stream, entry)

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def count(self, name: str) -> int:
        return self._known(name).count

    def kind(self, name: str) -> str:
        """The kind of its numbers, as NumPy has it: "i", "u", "f" and so on."""
        return str(self._known(name).dtype.kind)

    def take(self, name: str, first: int = 0, last: int | None = None) -> Array:
        """Entries first … last − 1 of an array, as if it were flat."""
        known = self._known(name)
        end = known.count if last is None else last
        if not 0 <= first <= end <= known.count:
            raise DamagedFileError(f"{self.path}: the entry {name!r} has {known.count} numbers, not {end}.")
        begin, size = known.begin + first * known.dtype.itemsize, (end - first) * known.dtype.itemsize
        if not known.compressed:
            with open(self.path, "rb") as stream:
                return _numbers(self.path, stream, begin, size, known.dtype)
        with zipfile.ZipFile(self.path) as archive, archive.open(known.member) as packed:
            return _numbers(self.path, packed, begin, size, known.dtype)

    def check(self, name: str) -> None:
        """Read an array to its end, so that its check sum is compared; raises zipfile.BadZipFile where it differs."""
        with zipfile.ZipFile(self.path) as archive, archive.open(self._known(name).member) as packed:
            while packed.read(_STRETCH):
                pass

    def _known(self, name: str) -> StoredArray:
        if name not in self.arrays:
            raise DamagedFileError(f"{self.path}: the entry {name!r} is missing.")
        return self.arrays[name]


def _stored(archive: zipfile.ZipFile, stream: IO[bytes], entry: zipfile.ZipInfo) -> StoredArray:
    with archive.open(entry) as packed:
        head = io.BytesIO(packed.read(_LONGEST_HEADER))
    version = npy.read_magic(head)
    if version not in ((1, 0), (2, 0)):
        raise DamagedFileError(f"{archive.filename}: an array of format version {version} is not known.")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(head)
    count, begin = math.prod(shape), head.tell()
    if dtype.hasobject or (fortran and len(shape) > 1) or begin + count * dtype.itemsize != entry.file_size:
        raise DamagedFileError(f"{archive.filename}: {entry.filename[:60]!r} is no array that can be read in parts.")
    compressed = entry.compress_type != zipfile.ZIP_STORED
    if not compressed:
        stream.seek(entry.header_offset)
        begin += entry.header_offset + 30 + sum(_LOCAL.unpack(stream.read(30)))
    return StoredArray(entry.filename, begin, compressed, dtype, count)


def _numbers(path: Path, stream: IO[bytes], begin: int, size: int, dtype: np.dtype[Any]) -> Array:
    stream.seek(begin)
    data = stream.read(size)
    if len(data) != size:
        raise DamagedFileError(f"{path}: ends {size - len(data)} bytes too early.")
    return np.frombuffer(data, dtype)


_STREAMS: Mapping[bytes, type[gzip.GzipFile | lzma.LZMAFile | bz2.BZ2File]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
}


def unpacked(path: Path) -> IO[bytes]:
    """A file as a stream, decompressed where it is compressed."""
    with open(path, "rb") as stream:
        magic = stream.read(6)
    kind = next((found for known, found in _STREAMS.items() if magic.startswith(known)), None)
    return open(path, "rb") if kind is None else cast(IO[bytes], kind(path))


class TarFile:
    """The plain files of a tar archive by name, of which stretches are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: dict[str, Member] = {}
        with unpacked(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                if member.isfile() and len(self.members) < _MOST_MEMBERS:
                    self.members[member.name.removeprefix("./")] = Member(member.offset_data, member.size)

    def __contains__(self, name: object) -> bool:
        return name in self.members

    def size(self, name: str) -> int:
        return self.members[name].size

    def read(self, name: str, first: int, last: int) -> bytes:
        """Bytes first … last − 1 of a member."""
        member = self.members[name]
        with unpacked(self.path) as stream:
            stream.seek(member.begin + first)
            return stream.read(min(last, member.size) - first)
