"""Reading and writing models: one file per format or foreign library, each giving an MDP."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..damage import reading
from ..model import MDP, ModelError
from .arrays import from_mdptoolbox, from_quantecon, to_mdptoolbox, to_quantecon
from .gymnasium import from_gymnasium
from .parts import read_parts
from .text import ParseError

STORM_ENDINGS = (".prism", ".nm", ".pm", ".sm", ".jani")
READABLE = (".npz", ".drn", ".umb", ".tra", ".csv", ".parquet", *STORM_ENDINGS)
WRITABLE = (".npz", ".drn", ".tra", ".csv", ".parquet")


def read(
    path: str | os.PathLike[str], gamma: float | None = None, *, reward: str | None = "", constants: str = ""
) -> MDP:
    """Read a model; the format follows the file's ending.

    Args:
        path: .npz (our own), .drn or .umb (Storm), .tra with .lab, .srew and .trew beside it (PRISM), .csv
            or .parquet (idstatefrom, idaction, idstateto, probability, reward), or a PRISM-language or JANI file (needs
            stormpy).
        gamma: discount. Only .npz files have one of their own.
        reward: name of the reward model to use, None for no rewards. A file with several needs one of these; by
            default the only one is used.
        constants: for PRISM-language and JANI files, such as "K=2".

    Raises ModelError for a file that is not such a model (with the line), OSError for one that cannot be opened.
    """
    path = Path(path)
    mdp = read_whole(path, gamma, constants)
    if reward != "":
        with _named(path):
            return mdp.with_reward(reward)
    if undecided(mdp):
        raise ModelError(
            f"{path}: has {len(mdp.reward_models)} reward models ({_listed(mdp.reward_models)}); choose one.",
            python="Give reward=NAME, or reward=None for no rewards.",
            command="Give --reward NAME, or --reward none.",
        )
    return mdp


def undecided(mdp: MDP) -> bool:
    """Whether a model has several reward models, and none of them is in use."""
    return len(mdp.reward_models) > 1 and mdp.reward_name is None and not mdp.rewards.any()


def read_whole(path: Path, gamma: float | None, constants: str = "") -> MDP:
    """`read` without a choice of rewards: an only one is in use, none where there are several."""
    if path.suffix not in READABLE:
        raise ModelError(f"{path}: the ending {path.suffix!r} is not of a known format; known: {', '.join(READABLE)}.")
    if constants and path.suffix not in STORM_ENDINGS:
        raise ModelError(f"{path}: constants are for models in the PRISM language and in JANI.")
    if gamma is None and path.suffix != ".npz":
        raise ModelError(
            f"{path}: {path.suffix} files have no discount.",
            python="Give gamma.",
            command="Give --gamma.",
        )
    with open(path, "rb"):
        pass  # a missing or forbidden file is reported as such, before its format is
    with reading(path, "a model", ModelError), np.errstate(over="ignore", invalid="ignore"), _named(path):
        if path.suffix == ".npz":
            from .npz import read_npz

            mdp = read_npz(path)
            return mdp if gamma is None else mdp.with_gamma(gamma)
        assert gamma is not None
        if path.suffix in STORM_ENDINGS:
            from .storm import read_with_storm

            mdp = read_with_storm(path, gamma, constants)
        else:
            mdp = _reader(path.suffix)(path, gamma)
        return mdp.with_reward(next(iter(mdp.reward_models))) if len(mdp.reward_models) == 1 else mdp
    raise AssertionError  # errors do not come this far


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the model as a whole name its file."""
    try:
        yield
    except ModelError as error:
        if str(error).startswith(f"{path}: ") or isinstance(error, ParseError):
            raise
        raise ModelError(f"{path}: {error.message}", python=error.python, command=error.command) from None


def _listed(names: Iterable[str]) -> str:
    """Names for a message, not too many."""
    known = list(names)
    return ", ".join(name[:60] for name in known[:12]) + (", …" if len(known) > 12 else "")


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
    if ending == ".parquet":
        from .parquet import read_parquet

        return read_parquet
    from .csv_table import read_csv

    return read_csv


def write(mdp: MDP, path: str | os.PathLike[str]) -> None:
    """Write a model, or nothing; the format follows the file's ending (.npz, .drn, .tra, .csv, .parquet)."""
    path = Path(path)
    if path.suffix == ".npz":
        from .npz import write_npz as writer
    elif path.suffix == ".drn":
        from .drn import write_drn as writer
    elif path.suffix == ".tra":
        from .prism import write_prism as writer
    elif path.suffix == ".csv":
        from .csv_table import write_csv as writer
    elif path.suffix == ".parquet":
        from .parquet import write_parquet as writer
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
    "read_parts",
    "read_whole",
    "to_mdptoolbox",
    "to_quantecon",
    "undecided",
    "write",
]
