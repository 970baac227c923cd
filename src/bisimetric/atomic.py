"""Files that are whole or absent: written beside their target, then moved there.

Archives carry no time stamps, so equal arrays give equal bytes.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip archive


def write(path: Path, fill: Callable[[IO[bytes]], None]) -> None:
    """Let `fill` write a file, and put it in place only when it is safely on the disk."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a NumPy archive (.npz) without pickled objects."""

    def fill(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, value in arrays.items():
                entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
                with archive.open(entry, "w", force_zip64=True) as target:
                    np.lib.format.write_array(target, np.asanyarray(value), allow_pickle=False)

    write(path, fill)


def save_json(path: Path, data: Any) -> None:
    """Write a JSON file, keys in the order given."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file."""

    def fill(stream: IO[bytes]) -> None:
        stream.write(text.encode())

    write(path, fill)
