"""Reading and writing models: one file per format, each giving an MDP."""

from __future__ import annotations

import os
from pathlib import Path

from ..model import MDP, ModelError

_READERS = (".npz",)


def read(path: str | os.PathLike[str]) -> MDP:
    """Read a model; the format follows the file's ending (.npz).

    Raises ModelError for a file that is not such a model, OSError for one that cannot be opened.
    """
    path = Path(path)
    if path.suffix not in _READERS:
        raise ModelError(
            f"{path}: cannot tell the format from the ending {path.suffix!r}; known: {', '.join(_READERS)}."
        )
    from .npz import read_npz

    return read_npz(path)


def write(mdp: MDP, path: str | os.PathLike[str]) -> None:
    """Write a model; the format follows the file's ending (.npz). All or nothing is written."""
    path = Path(path)
    if path.suffix not in _READERS:
        raise ModelError(
            f"{path}: cannot tell the format from the ending {path.suffix!r}; known: {', '.join(_READERS)}."
        )
    from .npz import write_npz

    write_npz(mdp, path)
