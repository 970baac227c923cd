"""Our own model format: a NumPy archive without pickled objects.

Entries: format ("bisimetric-mdp"), version (1), indptr, indices, probs (one row per choice), rewards,
choice_ptr, gamma, action_of_choice, action_labels, and where known state_names, classes, action_names, reward_name,
label:NAME (labels of states) and reward:NAME (reward models).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..archives import read_arrays, save_arrays
from ..damage import reading
from ..kinds import Array, Facts, Floats, Ints
from ..model import MDP, Distributions, ModelError, rises

FORMAT, VERSION = "bisimetric-mdp", 1


def write_npz(mdp: MDP, path: Path) -> None:
    """Write a model."""
    arrays: Facts = {
        "format": FORMAT,
        "version": VERSION,
        "indptr": mdp.rows.indptr,
        "indices": mdp.rows.indices,
        "probs": mdp.rows.probs,
        "rewards": mdp.rewards,
        "choice_ptr": mdp.choice_ptr,
        "gamma": mdp.gamma,
        "action_of_choice": mdp.action_of_choice,
        "action_labels": np.array(mdp.action_labels, dtype=str),
    }
    if mdp.state_names is not None:
        arrays["state_names"] = np.array(mdp.state_names, dtype=str)
    if mdp.classes is not None:
        arrays["classes"] = mdp.classes
    if mdp.action_names is not None:
        arrays["action_names"] = np.array(mdp.action_names, dtype=str)
    if mdp.reward_name is not None:
        arrays["reward_name"] = np.array(mdp.reward_name, dtype=str)
    arrays.update({f"label:{name}": holds for name, holds in mdp.state_labels.items()})
    arrays.update({f"reward:{name}": values for name, values in mdp.reward_models.items()})
    save_arrays(path, arrays)


def read_npz(path: Path) -> MDP:
    """Read a model, checking all of it."""
    with reading(path, "a model archive", ModelError):
        data = read_arrays(path)
    if str(data.get("format")) != FORMAT:
        raise ModelError(f"{path}: not a bisimetric model (no entry format = {FORMAT!r}).")
    with reading(path, "a model", ModelError):
        if data.get("version") is None or int(data["version"]) > VERSION:
            raise ModelError(f"written by a newer version (format version {data.get('version')}, known {VERSION}).")
        return _assemble(data)


def _entry(data: Mapping[str, Array], name: str, kinds: str, words: str) -> Array:
    if name not in data:
        raise ModelError(f"entry {name!r} is missing.")
    if data[name].dtype.kind not in kinds:
        raise ModelError(f"entry {name!r} must be {words}; got {data[name].dtype}.")
    return data[name]


def _integers(data: Mapping[str, Array], name: str) -> Ints:
    return _entry(data, name, "iu", "integers").astype(np.int64)


def _numbers(data: Mapping[str, Array], name: str) -> Floats:
    return _entry(data, name, "fiub", "numbers").astype(np.float64)


def _words(data: Mapping[str, Array], name: str) -> tuple[str, ...] | None:
    return None if name not in data else tuple(str(word) for word in data[name].reshape(-1))


def _assemble(data: Mapping[str, Array]) -> MDP:
    indptr, choice_ptr, indices = (_integers(data, name) for name in ("indptr", "choice_ptr", "indices"))
    probs, rewards = _numbers(data, "probs"), _numbers(data, "rewards")
    n_states = len(choice_ptr) - 1
    broken = indptr.ndim != 1 or len(indptr) < 2 or indptr[0] != 0 or not rises(indptr)
    if broken or indices.ndim != 1 or indptr[-1] != len(indices) or indices.shape != probs.shape:
        raise ModelError("the row pointers do not fit the entries.")
    if choice_ptr.ndim != 1 or n_states < 1 or choice_ptr[-1] != len(indptr) - 1 or not rises(choice_ptr):
        raise ModelError("the choices of the states do not fit the rows.")
    if indices.size and not 0 <= indices.min() <= indices.max() < n_states:
        raise ModelError(f"a successor index is outside 0 … {n_states - 1}.")
    from scipy.sparse import csr_array

    matrix = csr_array((probs, indices, indptr), shape=(len(indptr) - 1, n_states))
    labels = _words(data, "action_labels") or ()
    action_of_choice = _integers(data, "action_of_choice")
    if action_of_choice.size and not 0 <= action_of_choice.min() <= action_of_choice.max() < len(labels):
        raise ModelError("a choice has a label that is not in action_labels.")
    gamma = _numbers(data, "gamma")
    if gamma.size != 1:
        raise ModelError("gamma must be one number.")
    return MDP(
        Distributions.from_matrix(matrix),
        rewards,
        choice_ptr,
        float(gamma.reshape(())),
        action_of_choice,
        labels,
        _words(data, "state_names"),
        _integers(data, "classes") if "classes" in data else None,
        {key[6:]: data[key].astype(np.bool_) for key in data if key.startswith("label:")},
        {key[7:]: _numbers(data, key) for key in data if key.startswith("reward:")},
        _words(data, "action_names"),
        str(data["reward_name"]) if "reward_name" in data else None,
    )
