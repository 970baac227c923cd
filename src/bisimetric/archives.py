"""NumPy archives (.npz) without pickled objects, written atomically and read with care.

Archives carry no time stamps, so equal arrays give equal bytes. An entry is read only where its size on disk, its
header and the budget of the file agree.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from . import atomic
from .damage import Budget, DamagedFileError
from .kinds import Array

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip archive


def save_arrays(path: Path, arrays: Mapping[str, object]) -> None:
    """Write an archive."""
    import zipfile

    def fill(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, value in arrays.items():
                entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
                with archive.open(entry, "w", force_zip64=True) as target:
                    npy.write_array(target, np.asanyarray(value), allow_pickle=False)

    atomic.write(path, fill)


def read_arrays(path: Path) -> dict[str, Array]:
    """All arrays of an archive by name. To be called inside `damage.reading`, as errors may be of any kind."""
    import zipfile

    budget = Budget(path)
    found: dict[str, Array] = {}
    with open(path, "rb") as stream, zipfile.ZipFile(stream) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".npy"):
                raise DamagedFileError(f"{path}: holds {entry.filename[:60]!r}, which is no array.")
            name = entry.filename[:-4]
            if name in found:
                raise DamagedFileError(f"{path}: the entry {name!r} is there twice.")
            budget.take(2 * entry.file_size, f"the entry {name[:60]!r}")
            found[name] = read_array(archive.read(entry), path)
    return found


def read_array(data: bytes, path: Path) -> Array:
    """An array from the bytes of an .npy file, which must be just as many as its header says."""
    stream = io.BytesIO(data)
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise DamagedFileError(f"{path}: an array of format version {version} is not known.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers of Python 2 are read, only more slowly; damaged ones are errors
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise DamagedFileError(f"{path}: an array holds Python objects, which are not read.")
    left = len(data) - stream.tell()
    if math.prod(shape) * dtype.itemsize != left:
        raise DamagedFileError(f"{path}: an array of shape {shape} and type {dtype} has {left} bytes.")
    flat = np.frombuffer(data, dtype, math.prod(shape), stream.tell()) if left else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C").copy(order="C")
