"""Reading and writing models: one file per format or foreign library, each giving an MDP."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..model import MDP, ModelError
from .arrays import from_mdptoolbox, from_quantecon, to_mdptoolbox, to_quantecon
from .gymnasium import from_gymnasium
from .text import ParseError

STORM_ENDINGS = (".prism", ".nm", ".pm", ".sm", ".jani")
READABLE = (".npz", ".drn", ".umb", ".tra", ".csv", *STORM_ENDINGS)
WRITABLE = (".npz", ".drn", ".tra", ".csv")


def read(
    path: str | os.PathLike[str], gamma: float | None = None, *, reward: str | None = "", constants: str = ""
) -> MDP:
    """Read a model; the format follows the file's ending.

    Args:
        path: .npz (our own), .drn or .umb (Storm), .tra with .lab, .srew and .trew beside it (PRISM), .csv
            (idstatefrom, idaction, idstateto, probability, reward), or a PRISM-language or JANI file (needs stormpy).
        gamma: discount. Only .npz files have one of their own.
        reward: name of the reward model to use, None for no rewards; by default the file's first.
        constants: for PRISM-language and JANI files, such as "K=2".

    Raises ModelError for a file that is not such a model (with the line), OSError for one that cannot be opened.
    """
    path = Path(path)
    if path.suffix not in READABLE:
        raise ModelError(f"{path}: the ending {path.suffix!r} is not of a known format; known: {', '.join(READABLE)}.")
    if path.suffix == ".npz":
        from .npz import read_npz

        mdp = read_npz(path)
        mdp = mdp if gamma is None else mdp.with_gamma(gamma)
    else:
        if gamma is None:
            raise ModelError(f"{path}: {path.suffix} files have no discount; give gamma (--gamma on the command line).")
        with open(path, "rb"):
            pass  # a missing or forbidden file is reported as such, before its format is
        if path.suffix in STORM_ENDINGS:
            from .storm import read_with_storm

            mdp = read_with_storm(path, gamma, constants)
        else:
            try:
                with np.errstate(over="ignore", invalid="ignore"):  # the model refuses what is not finite
                    mdp = _reader(path.suffix)(path, gamma)
            except ParseError:
                raise
            except ModelError as error:  # of the model as a whole
                raise ModelError(f"{path}: {error}") from None
    return mdp if reward == "" else mdp.with_reward(reward)


def _reader(ending: str) -> Callable[[Path, float], MDP]:
    if ending == ".drn":
        from .drn import read_drn

        return read_drn
    if ending == ".umb":
        from .umb import read_umb

        return read_umb
    if ending == ".tra":
        from .prism import read_prism

        return read_prism
    from .csv_table import read_csv

    return read_csv


def write(mdp: MDP, path: str | os.PathLike[str]) -> None:
    """Write a model; the format follows the file's ending (.npz, .drn, .tra, .csv). All or nothing is written."""
    path = Path(path)
    if path.suffix == ".npz":
        from .npz import write_npz as writer
    elif path.suffix == ".drn":
        from .drn import write_drn as writer
    elif path.suffix == ".tra":
        from .prism import write_prism as writer
    elif path.suffix == ".csv":
        from .csv_table import write_csv as writer
    else:
        raise ModelError(f"{path}: cannot write the ending {path.suffix!r}; known: {', '.join(WRITABLE)}.")
    writer(mdp, path)


__all__ = [
    "READABLE",
    "WRITABLE",
    "from_gymnasium",
    "from_mdptoolbox",
    "from_quantecon",
    "read",
    "to_mdptoolbox",
    "to_quantecon",
    "write",
]
