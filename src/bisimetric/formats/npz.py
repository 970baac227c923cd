"""Our own model format: a NumPy archive without pickled objects.

Entries: format ("bisimetric-mdp"), version (1), indptr, indices, probs (one row per choice), rewards,
choice_ptr, gamma, label_of_choice, label_names, and where known state_names, classes, action_names, label:NAME (labels
of states) and reward:NAME (reward models).
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import save_arrays
from ..model import MDP, Distributions, ModelError

FORMAT, VERSION = "bisimetric-mdp", 1


def write_npz(mdp: MDP, path: Path) -> None:
    """Write a model."""
    arrays: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "indptr": mdp.rows.indptr,
        "indices": mdp.rows.indices,
        "probs": mdp.rows.probs,
        "rewards": mdp.rewards,
        "choice_ptr": mdp.choice_ptr,
        "gamma": mdp.gamma,
        "label_of_choice": mdp.label_of_choice,
        "label_names": np.array(mdp.label_names, dtype=str),
    }
    if mdp.state_names is not None:
        arrays["state_names"] = np.array(mdp.state_names, dtype=str)
    if mdp.classes is not None:
        arrays["classes"] = mdp.classes
    if mdp.action_names is not None:
        arrays["action_names"] = np.array(mdp.action_names, dtype=str)
    arrays.update({f"label:{name}": holds for name, holds in mdp.state_labels.items()})
    arrays.update({f"reward:{name}": values for name, values in mdp.reward_models.items()})
    save_arrays(path, arrays)


def read_npz(path: Path) -> MDP:
    """Read a model, checking all of it."""
    with open(path, "rb") as stream:
        try:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ModelError("a single array")
            with archive:
                data = {key: archive[key] for key in archive.files}
        except (ArithmeticError, EOFError, LookupError, MemoryError, NotImplementedError, RuntimeError, SyntaxError,
                TypeError, ValueError, struct.error, zipfile.BadZipFile, zlib.error, OSError) as error:  # fmt: skip
            reason = " ".join(str(error).split())
            raise ModelError(f"{path}: not a readable model archive ({reason}).") from None
    if str(data.get("format")) != FORMAT:
        raise ModelError(f"{path}: not a bisimetric model (no entry format = {FORMAT!r}).")
    try:
        if int(data["version"]) > VERSION:
            raise ModelError(f"written by a newer version (format version {data['version']}, known {VERSION}).")
        return _assemble(data)
    except KeyError as missing:
        raise ModelError(f"{path}: entry {missing} is missing.") from None
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ModelError(f"{path}: an entry has the wrong shape or type ({error}).") from None


def _assemble(data: Mapping[str, Any]) -> MDP:
    indptr = data["indptr"].astype(np.int64)
    choice_ptr = data["choice_ptr"].astype(np.int64)
    n_states = len(choice_ptr) - 1
    indices, probs = data["indices"], data["probs"].astype(np.float64)
    broken = indptr.ndim != 1 or len(indptr) < 2 or indptr[0] != 0 or np.any(np.diff(indptr) < 0)
    if broken or indptr[-1] != len(indices) or len(indices) != len(probs):
        raise ModelError("the row pointers do not fit the entries.")
    if indices.size and not 0 <= indices.min() <= indices.max() < n_states:
        raise ModelError(f"a successor index is outside 0 … {n_states - 1}.")
    from scipy.sparse import csr_array

    matrix = csr_array((probs, indices.astype(np.int64), indptr), shape=(len(indptr) - 1, n_states))
    labels = tuple(str(name) for name in data["label_names"])
    label_of_choice = data["label_of_choice"].astype(np.int64)
    if label_of_choice.size and not 0 <= label_of_choice.min() <= label_of_choice.max() < len(labels):
        raise ModelError("a choice has a label that is not in label_names.")
    names = data.get("state_names")
    classes = data.get("classes")
    return MDP(
        Distributions.from_matrix(matrix), data["rewards"].astype(np.float64), choice_ptr, float(data["gamma"]),
        label_of_choice, labels, None if names is None else tuple(str(name) for name in names),
        None if classes is None else classes.astype(np.int64),
        {key[6:]: data[key].astype(np.bool_) for key in data if key.startswith("label:")},
        {key[7:]: data[key].astype(np.float64) for key in data if key.startswith("reward:")},
        tuple(str(name) for name in data["action_names"]) if "action_names" in data else None,
    )  # fmt: skip
