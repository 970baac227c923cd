"""UMB, the binary exchange format of Storm and others: a tar archive of raw arrays with a JSON index.

Read with the standard library and NumPy. Members are taken only where their sizes fit the index.
"""

from __future__ import annotations

import json
import lzma
import tarfile
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import MDP, Distributions, ModelError
from .text import ParseError

_LARGEST = 1 << 30  # bytes of one member
_FOLDERS = ("actions/", "annotations/", "valuations/")
_FILES = ("index.json", "state-to-choices.bin", "state-is-initial.bin", "choice-to-branches.bin",
          "branch-to-target.bin", "branch-to-probability.bin")  # fmt: skip


def _members(path: Path) -> dict[str, bytes]:
    """All plain files of the archive, by name."""
    found = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if member.isdir():
                    continue
                if name.startswith(("/", "\\")) or ".." in Path(name).parts or not member.isfile():
                    raise ParseError(
                        path, 0, f"the archive holds {member.name!r}, which is not a plain file inside it."
                    )
                if member.size > _LARGEST:
                    raise ParseError(
                        path, 0, f"member {name!r} claims {member.size} bytes; at most {_LARGEST} are read."
                    )
                if name in found:
                    raise ParseError(path, 0, f"member {name!r} is there twice.")
                if name not in _FILES and not name.startswith(_FOLDERS):
                    continue
                stream = archive.extractfile(member)
                found[name] = stream.read() if stream is not None else b""
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, OSError, ValueError) as error:
        if isinstance(error, (ParseError, FileNotFoundError, PermissionError, IsADirectoryError)):
            raise
        raise ParseError(path, 0, f"not a readable UMB archive ({' '.join(str(error).split())}).") from None
    return found


class _Umb:
    def __init__(self, path: Path) -> None:
        self.path, self.files = path, _members(path)
        try:
            self.index: Any = json.loads(self.files["index.json"])
            system = self.index["transition-system"]
            self.n_states, self.n_choices = int(system["#states"]), int(system["#choices"])
            self.n_branches = int(system["#branches"])
            self.time, self.players = str(system.get("time", "discrete")), int(system.get("#players", 1))
            self.probability = system.get("branch-probability-type", {"type": "double", "size": 64})
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ParseError(path, 0, f"has no readable index.json ({reason}).") from None
        if self.n_states < 1 or self.time != "discrete" or self.players > 1:
            raise ParseError(path, 0, "only discrete-time models with one player and at least one state can be read.")

    def numbers(self, name: str, dtype: str, count: int) -> NDArray[Any]:
        """A member as `count` numbers; its size must fit."""
        data = self.files.get(name)
        if data is None:
            raise ParseError(self.path, 0, f"member {name!r} is missing.")
        size = np.dtype(dtype).itemsize * count
        if len(data) != size:
            raise ParseError(self.path, 0, f"member {name!r} has {len(data)} bytes instead of {size}.")
        return np.frombuffer(data, dtype)

    def pointers(self, name: str, count: int, total: int) -> NDArray[np.int64]:
        """Row pointers; a missing member means one entry each."""
        if name not in self.files and count == total:
            return np.arange(count + 1, dtype=np.int64)
        values = self.numbers(name, "<u8", count + 1).astype(np.int64)
        if values[0] != 0 or values[-1] != total or np.any(np.diff(values) < 0):
            raise ParseError(self.path, 0, f"member {name!r} does not rise from 0 to {total}.")
        return values

    def bits(self, name: str, count: int) -> NDArray[np.bool_]:
        words = self.numbers(name, "<u8", (count + 63) // 64)
        return np.unpackbits(words.view(np.uint8), bitorder="little")[:count].astype(np.bool_)

    def labels(self) -> dict[str, NDArray[np.bool_]]:
        """Atomic propositions of states, and init."""
        labels = {}
        for key, entry in self.index.get("annotations", {}).get("aps", {}).items():
            if "states" in entry.get("applies-to", ()):
                labels[str(entry.get("alias", key))] = self.bits(
                    f"annotations/aps/{key}/states/values.bin", self.n_states
                )
        if "state-is-initial.bin" in self.files:
            labels["init"] = self.bits("state-is-initial.bin", self.n_states)
        return labels

    def rewards(self, choice_ptr: NDArray[np.int64], indptr: NDArray[np.int64], probs: NDArray[Any]) -> dict[str, Any]:
        """Reward models per choice: rewards of states, choices and branches, added up in expectation."""
        models = {}
        for key, entry in self.index.get("annotations", {}).get("rewards", {}).items():
            kind = entry.get("type", {"type": "double", "size": 64})
            if kind.get("type") != "double":
                raise ParseError(self.path, 0, f"rewards of type {kind.get('type')} are not supported; double is.")
            total = np.zeros(self.n_choices)
            for where in entry.get("applies-to", ()):
                name = f"annotations/rewards/{key}/{where}/values.bin"
                if where == "states":
                    total += np.repeat(self.numbers(name, "<f8", self.n_states), np.diff(choice_ptr))
                elif where == "choices":
                    total += self.numbers(name, "<f8", self.n_choices)
                elif where == "branches":
                    owner = np.repeat(np.arange(self.n_choices), np.diff(indptr))
                    np.add.at(total, owner, probs * self.numbers(name, "<f8", self.n_branches))
            models[str(entry.get("alias", key))] = total
        return models

    def actions(self) -> tuple[str, ...] | None:
        """Action names of the choices."""
        if "actions/choices/values.bin" not in self.files:
            return None
        numbers = self.numbers("actions/choices/values.bin", "<u4", self.n_choices)
        text = self.files.get("actions/choices/strings.bin", b"")
        raw = self.files.get("actions/choices/string-mapping.bin", b"")
        if len(raw) % 8 or len(raw) < 8:
            raise ParseError(self.path, 0, "the names of actions cannot be read.")
        cuts = np.frombuffer(raw, "<u8").astype(np.int64)
        if cuts[0] != 0 or np.any(np.diff(cuts) < 0) or cuts[-1] > len(text) or numbers.max() >= len(cuts) - 1:
            raise ParseError(self.path, 0, "the names of actions do not fit the choices.")
        names = [text[a:b].decode("utf-8", "replace") for a, b in pairwise(cuts)]
        return tuple("" if names[k] == "__NOLABEL__" else names[k] for k in numbers)


def _state_names(umb: _Umb) -> tuple[str, ...] | None:
    """Names such as "x=1 & y=0" from the valuations, where these are packed plainly."""
    data = umb.files.get("valuations/states/valuations.bin")
    classes = umb.index.get("valuations", {}).get("states", {}).get("classes", [])
    if data is None or len(classes) != 1:
        return None
    columns, at = [], 0
    for variable in classes[0].get("variables", []):
        if "padding" in variable:
            at += int(variable["padding"])
            continue
        kind = variable["type"]
        columns.append(
            (str(variable["name"]), str(kind["type"]), int(kind["size"]), at, int(variable.get("offset", 0)))
        )
        at += int(kind["size"])
    if at % 8 or at * umb.n_states // 8 != len(data) or any(c[1] not in ("uint", "bool") or c[2] > 52 for c in columns):
        return None
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(umb.n_states, at // 8), axis=1, bitorder="little")
    parts = []
    for name, kind, size, start, offset in columns:
        values = bits[:, start : start + size].astype(np.int64) @ (1 << np.arange(size)) + offset
        parts.append([f"{name}={v}" if kind == "uint" else (name if v else f"!{name}") for v in values.tolist()])
    return tuple(" & ".join(words) for words in zip(*parts, strict=True)) if parts else None


def read_umb(path: Path, gamma: float) -> MDP:
    """Read a UMB file. It has no discount, so this must be given. Choices are labelled by position."""
    umb = _Umb(path)
    try:
        return _build(umb, path, gamma)
    except ModelError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ParseError(path, 0, f"index.json does not describe the archive ({reason}).") from None


def _build(umb: _Umb, path: Path, gamma: float) -> MDP:
    # Targets first: pointers may be left out, and their number must then be backed by what is there.
    target = umb.numbers("branch-to-target.bin", "<u8", umb.n_branches)
    indptr = umb.pointers("choice-to-branches.bin", umb.n_choices, umb.n_branches)
    choice_ptr = umb.pointers("state-to-choices.bin", umb.n_states, umb.n_choices)
    if target.size and target.max() >= umb.n_states:
        raise ParseError(path, 0, f"a branch leads to state {target.max()}, of {umb.n_states} states.")
    if umb.probability.get("type") != "double":
        raise ParseError(path, 0, f"probabilities of type {umb.probability.get('type')} are not supported; double is.")
    probs = np.ones(umb.n_branches)
    if "branch-to-probability.bin" in umb.files:
        probs = umb.numbers("branch-to-probability.bin", "<f8", umb.n_branches)
    from scipy.sparse import csr_array

    matrix = csr_array((probs, target.astype(np.int64), indptr), shape=(umb.n_choices, umb.n_states))
    models = umb.rewards(choice_ptr, indptr, probs)
    counts = np.diff(choice_ptr)
    position = np.arange(umb.n_choices) - np.repeat(choice_ptr[:-1], counts)
    first = next(iter(models.values()), np.zeros(umb.n_choices)).copy()
    return MDP(Distributions.from_matrix(matrix), first, choice_ptr, gamma, position,
               tuple(str(k) for k in range(int(counts.max(initial=1)))), _state_names(umb), None, umb.labels(), models,
               umb.actions())  # fmt: skip
