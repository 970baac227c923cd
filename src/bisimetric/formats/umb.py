"""UMB, the binary exchange format of Storm and others: a tar archive of raw arrays with a JSON index.

Read with the standard library and NumPy. For a whole model the archive is decompressed in one pass that stops where the
file's budget is spent; for one in parts no more is held than the part. Members are taken only where their sizes fit the
index.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import tarfile
import zlib
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
_ALL = slice(None)
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


class Piece(NamedTuple):
    """Some states of a model as the archive has them.

    Attributes: states, choices, branches (their numbers in the whole), choice_ptr, indptr (from 0 on), target, probs.
    """

    states: slice
    choices: slice
    branches: slice
    choice_ptr: Ints
    indptr: Ints
    target: Ints
    probs: Floats

    @property
    def positions(self) -> Ints:
        """The place of each choice in its state."""
        counts = np.diff(self.choice_ptr)
        return np.arange(len(self.indptr) - 1) - np.repeat(self.choice_ptr[:-1], counts)


class _Members(Protocol):
    """The plain files of an archive, wherever they are."""

    def __contains__(self, name: object) -> bool: ...
    def size(self, name: str) -> int: ...
    def read(self, name: str, first: int, last: int) -> bytes:
        """Bytes first … last − 1 of a file."""
        ...


class _Held:
    """Plain files in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def size(self, name: str) -> int:
        return len(self._files[name])

    def read(self, name: str, first: int, last: int) -> bytes:
        data = self._files[name]
        return data if (first, last) == (0, len(data)) else data[first:last]


class Umb:
    """An archive whose index fits; files of it are read when they are asked for."""

    def __init__(self, path: Path, files: _Members, budget: Budget) -> None:
        self.path, self.budget, self.files = path, budget, files
        try:
            self.index: Any = json.loads(self.whole("index.json"))
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

    def whole(self, name: str) -> bytes:
        """All bytes of a member; none where it is missing."""
        return self.files.read(name, 0, self.files.size(name)) if name in self.files else b""

    def numbers(self, name: str, dtype: str, count: int, part: slice = _ALL) -> Array:
        """A member of `count` numbers, or some of them; its size must fit."""
        if name not in self.files:
            raise ParseError(self.path, 0, f"member {name!r} is missing.")
        each, there = np.dtype(dtype).itemsize, self.files.size(name)
        if there != each * count:
            raise ParseError(self.path, 0, f"member {name!r} has {there} bytes instead of {each * count}.")
        first, last, _ = part.indices(count)
        data = self.files.read(name, each * first, each * last)
        if len(data) != each * (last - first):
            raise ParseError(self.path, 0, f"member {name!r} is cut short.")
        return np.frombuffer(data, dtype)

    def pointers(self, name: str, count: int, total: int, part: slice = _ALL) -> Ints:
        """Row pointers, or those of some rows and the one after; a missing member means one entry each."""
        first, last, _ = part.indices(count)
        if name not in self.files and count == total:
            return np.arange(first, last + 1, dtype=np.int64)
        values = self.numbers(name, "<u8", count + 1, slice(first, last + 1)).astype(np.int64)
        begins, ends = first > 0 or values[0] == 0, last < count or values[-1] == total
        if not begins or not ends or values[-1] > total or not rises(values):
            raise ParseError(self.path, 0, f"member {name!r} does not rise from 0 to {total}.")
        return values

    def bits(self, name: str, count: int, part: slice = _ALL) -> Bools:
        first, last, _ = part.indices(count)
        words = self.numbers(name, "<u8", (count + 63) // 64, slice(first // 64, (last + 63) // 64))
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        return bits[first % 64 :][: last - first].astype(np.bool_)

    @cached_property
    def label_members(self) -> dict[str, str]:
        """The member of each label of states: atomic propositions, and init."""
        found = {}
        for key, entry in self.index.get("annotations", {}).get("aps", {}).items():
            if "states" in entry.get("applies-to", ()):
                found[str(entry.get("alias", key))] = f"annotations/aps/{key}/states/values.bin"
        if "state-is-initial.bin" in self.files:
            found["init"] = "state-is-initial.bin"
        return found

    def labels(self, states: slice = _ALL) -> dict[str, Bools]:
        """Labels of states."""
        found = {}
        for name, member in self.label_members.items():
            self.budget.take(self.n_states, "its labels")
            found[name] = self.bits(member, self.n_states, states)
        return found

    @cached_property
    def reward_models(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """For each reward model where its members are, and what it gives rewards to."""
        found = {}
        for key, entry in self.index.get("annotations", {}).get("rewards", {}).items():
            kind = entry.get("type", {"type": "double", "size": 64})
            if kind.get("type") != "double":
                raise ParseError(self.path, 0, f"rewards of type {kind.get('type')} are not supported; double is.")
            places = tuple(str(place) for place in dict.fromkeys(entry.get("applies-to", ())))
            found[str(entry.get("alias", key))] = f"annotations/rewards/{key}", places
        return found

    def rewards(self, model: str, piece: Piece) -> Floats:
        """A reward model per choice: rewards of states, choices and branches, added up in expectation."""
        self.budget.take(8 * self.n_choices, "its reward models")
        folder, places = self.reward_models[model]
        total = np.zeros(len(piece.indptr) - 1)
        for place in places:
            name = f"{folder}/{place}/values.bin"
            if place == "states":
                total += np.repeat(self.numbers(name, "<f8", self.n_states, piece.states), np.diff(piece.choice_ptr))
            elif place == "choices":
                total += self.numbers(name, "<f8", self.n_choices, piece.choices)
            elif place == "branches":
                owner = np.repeat(np.arange(len(total)), np.diff(piece.indptr))
                np.add.at(total, owner, piece.probs * self.numbers(name, "<f8", self.n_branches, piece.branches))
        return total

    def piece(self, states: slice = _ALL) -> Piece:
        """Some states of the model."""
        first, last, _ = states.indices(self.n_states)
        if (first, last) == (0, self.n_states):
            # Targets first: pointers may be left out, and their number must then be backed by what is there.
            self.numbers("branch-to-target.bin", "<u8", self.n_branches, slice(0, 0))
        choice_ptr = self.pointers("state-to-choices.bin", self.n_states, self.n_choices, slice(first, last))
        choices = slice(int(choice_ptr[0]), int(choice_ptr[-1]))
        indptr = self.pointers("choice-to-branches.bin", self.n_choices, self.n_branches, choices)
        branches = slice(int(indptr[0]), int(indptr[-1]))
        target = self.numbers("branch-to-target.bin", "<u8", self.n_branches, branches)
        if target.size and target.max() >= self.n_states:
            raise ParseError(self.path, 0, f"a branch leads to state {target.max()}, of {self.n_states} states.")
        if self.probability.get("type") != "double":
            kind = self.probability.get("type")
            raise ParseError(self.path, 0, f"probabilities of type {kind} are not supported; double is.")
        probs = np.ones(branches.stop - branches.start)
        if "branch-to-probability.bin" in self.files:
            probs = self.numbers("branch-to-probability.bin", "<f8", self.n_branches, branches)
        return Piece(
            slice(first, last),
            choices,
            branches,
            choice_ptr - choices.start,
            indptr - branches.start,
            target.astype(np.int64),
            probs,
        )

    def actions(self) -> tuple[str, ...] | None:
        """Action names of the choices."""
        if "actions/choices/values.bin" not in self.files:
            return None
        numbers = self.numbers("actions/choices/values.bin", "<u4", self.n_choices)
        text, raw = self.whole("actions/choices/strings.bin"), self.whole("actions/choices/string-mapping.bin")
        if len(raw) % 8 or len(raw) < 8:
            raise ParseError(self.path, 0, "the names of actions cannot be read.")
        cuts = np.frombuffer(raw, "<u8").astype(np.int64)
        if cuts[0] != 0 or not rises(cuts) or cuts[-1] > len(text) or numbers.max() >= len(cuts) - 1:
            raise ParseError(self.path, 0, "the names of actions do not fit the choices.")
        names = [text[a:b].decode("utf-8", "replace") for a, b in pairwise(cuts)]
        return tuple("" if names[k] == "__NOLABEL__" else names[k] for k in numbers)


_STRETCH, _STRING = 1 << 12, 64  # states at a time; bytes of a string beside its letters


def _state_names(umb: Umb) -> tuple[str, ...] | None:
    """Names such as "x=1 & y=0" from the valuations, where these are packed plainly."""
    data = umb.whole("valuations/states/valuations.bin")
    classes = umb.index.get("valuations", {}).get("states", {}).get("classes", [])
    if not data or len(classes) != 1:
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
    packed = np.frombuffer(data, np.uint8).reshape(umb.n_states, at // 8)
    names: list[str] = []
    for begin in range(0, umb.n_states if columns else 0, _STRETCH):
        bits = np.unpackbits(packed[begin : begin + _STRETCH], axis=1, bitorder="little")
        parts = []
        for name, kind, size, start, offset in columns:
            numbers = bits[:, start : start + size].astype(np.int64) @ (1 << np.arange(size)) + offset
            values, places = np.unique(numbers, return_inverse=True)
            words = [f"{name}={v}" if kind == "uint" else (name if v else f"!{name}") for v in values.tolist()]
            parts.append(np.array(words, dtype=object)[places.reshape(-1)].tolist())
        more = [" & ".join(words) for words in zip(*parts, strict=True)]
        umb.budget.take(sum(map(len, more)) + _STRING * len(more), "the names of its states")
        names += more
    return tuple(names) or None


def read_umb(path: Path, gamma: float) -> MDP:
    """Read a UMB file. It has no discount, so this must be given. Choices are labelled by position.

    No reward model is chosen.
    """
    budget = Budget(path)
    return _build(Umb(path, _Held(_members(path, budget)), budget), gamma)


def _build(umb: Umb, gamma: float) -> MDP:
    from scipy.sparse import csr_array

    piece = umb.piece()
    matrix = csr_array((piece.probs, piece.target, piece.indptr), shape=(umb.n_choices, umb.n_states))
    position = piece.positions
    return MDP(
        Distributions.from_matrix(matrix),
        np.zeros(umb.n_choices),
        piece.choice_ptr,
        gamma,
        position,
        tuple(str(k) for k in range(int(position.max(initial=0)) + 1)),
        _state_names(umb),
        None,
        umb.labels(),
        {name: umb.rewards(name, piece) for name in umb.reward_models},
        umb.actions(),
    )
