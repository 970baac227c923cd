"""UMB, the binary exchange format of Storm and others: a tar archive of raw arrays with a JSON index.

Read with the standard library and NumPy. The archive is decompressed in one pass that stops where the file's budget is
spent; members are taken only where their sizes fit the index.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import tarfile
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..damage import Budget
from ..kinds import Array, Bools, Floats, Ints
from ..model import MDP, Distributions, rises
from .text import ParseError, shown

_FOLDERS = ("actions/", "annotations/", "valuations/")
_FILES = (
    "index.json",
    "state-to-choices.bin",
    "state-is-initial.bin",
    "choice-to-branches.bin",
    "branch-to-target.bin",
    "branch-to-probability.bin",
)
_CHUNK = 1 << 20
_DICTIONARY = 1 << 28  # bytes of memory that a decompressor may want


class _Decompressor(Protocol):
    """What the standard library has for each kind of compression."""

    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _decompressed(path: Path, budget: Budget) -> bytes:
    """The tar archive, whatever it is compressed with."""
    raw = path.read_bytes()
    engine: _Decompressor | None = None
    if raw.startswith(b"\x1f\x8b"):
        engine = zlib.decompressobj(31)
    elif raw.startswith(b"\xfd7zXZ\x00"):
        engine = lzma.LZMADecompressor(memlimit=_DICTIONARY)
    elif raw.startswith(b"BZh"):
        engine = bz2.BZ2Decompressor()
    if engine is None:
        return raw
    out = io.BytesIO()
    given, waiting = 0, b""  # what the engine has not taken yet
    while not engine.eof:
        if not waiting and getattr(engine, "needs_input", True):
            waiting = raw[given : given + _CHUNK]
            given += len(waiting)
            if not waiting:
                raise ParseError(path, 0, "the archive is cut short.")
        part = engine.decompress(waiting, _CHUNK)
        waiting = getattr(engine, "unconsumed_tail", b"")
        budget.take(len(part), "what it holds, decompressed,")
        out.write(part)
    return out.getvalue()


def _members(path: Path, budget: Budget) -> dict[str, bytes]:
    """All plain files of the archive, by name."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(_decompressed(path, budget)), mode="r:") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if member.isdir():
                continue
            if name.startswith(("/", "\\")) or ".." in Path(name).parts or not member.isfile():
                raise ParseError(
                    path, 0, f"the archive holds {shown(member.name)}, which is not a plain file inside it."
                )
            if name in found:
                raise ParseError(path, 0, f"member {shown(name)} is there twice.")
            if name not in _FILES and not name.startswith(_FOLDERS):
                continue
            stream = archive.extractfile(member)
            data = stream.read() if stream is not None else b""
            if len(data) != member.size:
                raise ParseError(path, 0, f"member {shown(name)} claims {member.size} bytes and has {len(data)}.")
            found[name] = data
    return found


class _Umb:
    def __init__(self, path: Path) -> None:
        self.path, self.budget = path, Budget(path)
        self.files = _members(path, self.budget)
        try:
            self.index: Any = json.loads(self.files["index.json"])
            system = self.index["transition-system"]
            self.n_states, self.n_choices = int(system["#states"]), int(system["#choices"])
            self.n_branches = int(system["#branches"])
            self.time, self.players = str(system.get("time", "discrete")), int(system.get("#players", 1))
            self.probability = system.get("branch-probability-type", {"type": "double", "size": 64})
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise ParseError(path, 0, f"has no index.json that can be read ({type(error).__name__}).") from None
        if self.n_states < 1 or self.time != "discrete" or self.players > 1:
            raise ParseError(path, 0, "only discrete-time models with one player and at least one state can be read.")
        if min(self.n_choices, self.n_branches) < 0:
            raise ParseError(path, 0, "index.json counts fewer than 0 choices or branches.")

    def numbers(self, name: str, dtype: str, count: int) -> Array:
        """A member as `count` numbers; its size must fit."""
        data = self.files.get(name)
        if data is None:
            raise ParseError(self.path, 0, f"member {name!r} is missing.")
        size = np.dtype(dtype).itemsize * count
        if len(data) != size:
            raise ParseError(self.path, 0, f"member {name!r} has {len(data)} bytes instead of {size}.")
        return np.frombuffer(data, dtype)

    def pointers(self, name: str, count: int, total: int) -> Ints:
        """Row pointers; a missing member means one entry each."""
        if name not in self.files and count == total:
            return np.arange(count + 1, dtype=np.int64)
        values = self.numbers(name, "<u8", count + 1).astype(np.int64)
        if values[0] != 0 or values[-1] != total or not rises(values):
            raise ParseError(self.path, 0, f"member {name!r} does not rise from 0 to {total}.")
        return values

    def bits(self, name: str, count: int) -> Bools:
        words = self.numbers(name, "<u8", (count + 63) // 64)
        return np.unpackbits(words.view(np.uint8), bitorder="little")[:count].astype(np.bool_)

    def labels(self) -> dict[str, Bools]:
        """Atomic propositions of states, and init."""
        labels = {}
        for key, entry in self.index.get("annotations", {}).get("aps", {}).items():
            self.budget.take(self.n_states, "its labels")
            if "states" in entry.get("applies-to", ()):
                labels[str(entry.get("alias", key))] = self.bits(
                    f"annotations/aps/{key}/states/values.bin", self.n_states
                )
        if "state-is-initial.bin" in self.files:
            labels["init"] = self.bits("state-is-initial.bin", self.n_states)
        return labels

    def rewards(self, choice_ptr: Ints, indptr: Ints, probs: Floats) -> dict[str, Floats]:
        """Reward models per choice: rewards of states, choices and branches, added up in expectation."""
        models = {}
        for key, entry in self.index.get("annotations", {}).get("rewards", {}).items():
            kind = entry.get("type", {"type": "double", "size": 64})
            if kind.get("type") != "double":
                raise ParseError(self.path, 0, f"rewards of type {kind.get('type')} are not supported; double is.")
            self.budget.take(8 * self.n_choices, "its reward models")
            total = np.zeros(self.n_choices)
            for where in dict.fromkeys(entry.get("applies-to", ())):
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
        if cuts[0] != 0 or not rises(cuts) or cuts[-1] > len(text) or numbers.max() >= len(cuts) - 1:
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
    umb.budget.take(umb.n_states * (at + 80 * len(columns)), "the names of its states")
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(umb.n_states, at // 8), axis=1, bitorder="little")
    parts = []
    for name, kind, size, start, offset in columns:
        values = bits[:, start : start + size].astype(np.int64) @ (1 << np.arange(size)) + offset
        parts.append([f"{name}={v}" if kind == "uint" else (name if v else f"!{name}") for v in values.tolist()])
    return tuple(" & ".join(words) for words in zip(*parts, strict=True)) if parts else None


def read_umb(path: Path, gamma: float) -> MDP:
    """Read a UMB file. It has no discount, so this must be given. Choices are labelled by position.

    No reward model is chosen.
    """
    return _build(_Umb(path), path, gamma)


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
    return MDP(
        Distributions.from_matrix(matrix),
        np.zeros(umb.n_choices),
        choice_ptr,
        gamma,
        position,
        tuple(str(k) for k in range(int(counts.max(initial=1)))),
        _state_names(umb),
        None,
        umb.labels(),
        models,
        umb.actions(),
    )
