"""Models in files that are read in parts: .npz (our own), .umb (Storm's), and .parquet tables of transitions.

Opening one reads its index only. Where an archive is compressed, each part is decompressed from the beginning on, so
unpack large ones first (`bisimetric convert` writes .npz files, which are not compressed).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..damage import Budget, reading
from ..kinds import Floats
from ..model import ModelError
from ..model.chain import check_discount
from ..model.parts import ModelParts, Part, checked_part
from .members import ArrayFile, TarFile
from .umb import Umb

_END, _SAMPLE, _SAMPLES = 1 << 16, 1 << 12, 64  # bytes of an end and of another sample, and how many of these
READABLE_IN_PARTS = (".npz", ".umb", ".parquet")


def read_parts(path: str | os.PathLike[str], gamma: float | None = None, *, reward: str | None = "") -> ModelParts:
    """Open a model that need not fit into memory, for `cross` and `abstract` on a cluster.

    Workers read their parts themselves, so the path must be theirs too. Nothing is merged first.

    Args:
        path: .npz (our own, not compressed), .umb (Storm), or .parquet: a table with the columns idstatefrom, idaction,
            idstateto, probability and reward, sorted by the first.
        gamma: discount. Only .npz files have one of their own.
        reward: name of the reward model to use, None for no rewards. A file with several needs one of these; by
            default the only one is used.

    Raises ModelError for a file that is not such a model, OSError for one that cannot be opened.
    """
    place = Path(path).absolute()
    if gamma is not None:
        check_discount(gamma)
    if place.suffix not in READABLE_IN_PARTS:
        known = ", ".join(READABLE_IN_PARTS)
        raise ModelError(f"{path}: models are read in parts from files that end in {known}; got {place.suffix!r}.")
    if gamma is None and place.suffix != ".npz":
        raise ModelError(
            f"{path}: {place.suffix} files have no discount.", python="Give gamma.", command="Give --gamma."
        )
    with open(place, "rb"):
        pass  # a missing or forbidden file is reported as such, before its format is
    with reading(place, "a model", ModelError):
        if place.suffix == ".npz":
            return _open_npz(place, gamma, reward)
        assert gamma is not None
        if place.suffix == ".umb":
            return _open_umb(place, gamma, reward)
        from .parquet import open_parquet

        return open_parquet(place, gamma, reward)
    raise AssertionError  # errors do not come this far


def chosen_reward(path: Path, models: Sequence[str], wanted: str | None, own: str | None = None) -> str | None:
    """The reward model that is asked for; the one in use, or the only one, where none is."""
    if wanted is None or wanted in models:
        return wanted
    if wanted:
        raise ModelError(f"{path}: has no reward model {wanted!r}; it has: {', '.join(models) or 'none'}.")
    if own is not None or len(models) == 0:
        return own
    if len(models) == 1:
        return models[0]
    raise ModelError(
        f"{path}: has {len(models)} reward models ({', '.join(list(models)[:12])}); choose one.",
        python="Give reward=NAME, or reward=None for no rewards.",
        command="Give --reward NAME, or --reward none.",
    )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FileParts(ModelParts):
    """A model in a file. Attributes: path, stamp (what the file is known by, as it is opened)."""

    path: Path
    stamp: Stamp

    @property
    def source(self) -> str:
        if stamp_of(self.path) != self.stamp:
            raise self._changed
        what = f"reward {self.reward_name!r}, {'its uniform policy' if self.uniform else 'all choices'}"
        return f"{self.path.name}, {self.stamp.size} bytes, {self.stamp.changed}, {self.stamp.digest}, {what}"

    @property
    def _changed(self) -> ModelError:
        return ModelError(f"{self.path}: has changed since it was opened; open it again.")

    def load(self, first: int, last: int) -> Part:
        here = stamp_of(self.path)  # of a worker's copy, perhaps, which may have been made at another time
        if (here.size, here.digest) != (self.stamp.size, self.stamp.digest):
            raise self._changed
        with reading(self.path, "a model", ModelError), np.errstate(over="ignore", invalid="ignore"):
            try:
                return self._load(first, last)
            except ModelError as error:
                if str(error).startswith(f"{self.path}: "):
                    raise
                raise ModelError(f"{self.path}: {error.message}", python=error.python, command=error.command) from None

    def _load(self, first: int, last: int) -> Part:
        raise NotImplementedError


class Stamp(NamedTuple):
    """What a file is known by: its bytes, when it was changed last, and a digest of samples of it.

    The samples are its two ends and some stretches between. The end of an archive has the check sums of all its arrays,
    that of a Parquet file the range of each column.
    """

    size: int
    changed: int
    digest: str


def stamp_of(path: Path) -> Stamp:
    """The stamp of a file as it is now."""
    found = os.stat(path)
    return Stamp(found.st_size, found.st_mtime_ns, _digest(path, found.st_size, found.st_mtime_ns))


@lru_cache(64)
def _digest(path: Path, size: int, changed: int) -> str:
    del changed  # another one is another file
    places = [0, max(size - _END, 0), *range(0, size, max(size // _SAMPLES, _SAMPLE))]
    found = blake2b(digest_size=12)
    with open(path, "rb") as stream:
        for k, place in enumerate(places):
            stream.seek(place)
            found.update(stream.read(_END if k < 2 else _SAMPLE))
    return found.hexdigest()


# ---- .npz ----


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NpzParts(FileParts):
    """A model in an archive of our own.

    Attributes: own (whether the rewards in use are those of the entry rewards), members (the archive's arrays).
    """

    own: bool
    members: tuple[str, ...]

    @property
    def source(self) -> str:
        return super().source + (" (own)" if self.own else "")

    @cached_property
    def _file(self) -> ArrayFile:
        return ArrayFile(self.path)

    @property
    def checkable(self) -> tuple[str, ...]:
        return self.members

    def check(self, member: str) -> None:
        with reading(self.path, "a model", ModelError):
            self._file.check(member)

    def _load(self, first: int, last: int) -> Part:
        file = self._file
        pointers = file.take("choice_ptr", first, last + 1).astype(np.int64)
        choices = int(pointers[0]), int(pointers[-1])
        indptr = file.take("indptr", choices[0], choices[1] + 1).astype(np.int64)
        entries = int(indptr[0]), int(indptr[-1])
        rewards = np.zeros(choices[1] - choices[0])
        if self.own or self.reward_name is not None:
            rewards = file.take("rewards" if self.own else f"reward:{self.reward_name}", *choices).astype(np.float64)
        actions = file.take("action_of_choice", *choices).astype(np.int64)
        if actions.size and not 0 <= actions.min() <= actions.max() < len(self.action_labels):
            raise ModelError("a choice has a label that is not in action_labels.")
        labels = {name: file.take(f"label:{name}", first, last).astype(np.bool_) for name in self.label_names}
        found = indptr - entries[0], file.take("indices", *entries), file.take("probs", *entries).astype(np.float64)
        return checked_part(first, self.n_states, found, pointers - choices[0], rewards, actions, labels)


def _open_npz(path: Path, gamma: float | None, reward: str | None) -> NpzParts:
    from .npz import FORMAT, VERSION

    stamp = stamp_of(path)
    file = ArrayFile(path)
    if "format" not in file or str(file.take("format")[0]) != FORMAT:
        raise ModelError(f"{path}: not a bisimetric model (no entry format = {FORMAT!r}).")
    if int(file.take("version")[0]) > VERSION:
        raise ModelError(f"{path}: written by a newer version.")
    _check_sizes(file)
    models = [name.removeprefix("reward:") for name in file.arrays if name.startswith("reward:")]
    used = str(file.take("reward_name")[0]) if "reward_name" in file else None
    wanted = used if reward == "" and used is not None else reward
    undecided = len(models) > 1 and used is None
    own = wanted == used if used is not None else wanted == "" and not (undecided and not _any(file, "rewards"))
    name = used if own else chosen_reward(path, models, wanted)
    return NpzParts(
        path=path,
        stamp=stamp,
        nbytes=sum(array.count * array.dtype.itemsize for array in file.arrays.values()),
        own=own,
        members=tuple(file.arrays),
        n_states=file.count("choice_ptr") - 1,
        gamma=float(file.take("gamma")[0]) if gamma is None else gamma,
        action_labels=tuple(str(word) for word in file.take("action_labels")),
        label_names=tuple(name.removeprefix("label:") for name in file.arrays if name.startswith("label:")),
        reward_name=name,
    )


def _check_sizes(file: ArrayFile) -> None:
    """Refuse arrays that do not fit each other, as far as their ends tell."""
    for name in ("choice_ptr", "indptr", "indices", "action_of_choice"):
        if file.kind(name) not in "iu":
            raise ModelError(f"entry {name!r} must be integers.")
    states, choices, entries = (file.count(name) for name in ("choice_ptr", "indptr", "indices"))
    ends = [
        int(file.take(name, at, at + 1)[0])
        for name, n in (("choice_ptr", states), ("indptr", choices))
        for at in (0, n - 1)
        if n
    ]
    if ends != [0, choices - 1, 0, entries] or file.count("probs") != entries:
        raise ModelError("the row pointers do not fit the entries.")
    wanted = {
        name: choices - 1 for name in file.arrays if name in ("rewards", "action_of_choice") or name[:7] == "reward:"
    }
    wanted |= {name: states - 1 for name in file.arrays if name.startswith("label:")} | {"gamma": 1}
    for name, count in wanted.items():
        if file.count(name) != count:
            raise ModelError(f"entry {name!r} must have {count} numbers; it has {file.count(name)}.")


def _any(file: ArrayFile, name: str, stretch: int = 1 << 20) -> bool:
    """Whether an array has an entry that is not 0."""
    ends = range(0, file.count(name), stretch)
    return any(bool(file.take(name, at, min(at + stretch, file.count(name))).any()) for at in ends)


# ---- .umb ----


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class UmbParts(FileParts):
    """A model in an archive of Storm's; choices are labelled by position."""

    def _load(self, first: int, last: int) -> Part:
        umb = _umb(self.path)
        piece = umb.piece(slice(first, last))
        rewards: Floats = np.zeros(len(piece.indptr) - 1)
        if self.reward_name is not None:
            rewards = umb.rewards(self.reward_name, piece)
        found = piece.indptr, piece.target, piece.probs
        labels = umb.labels(piece.states)
        return checked_part(first, self.n_states, found, piece.choice_ptr, rewards, piece.positions, labels)


def _umb(path: Path) -> Umb:
    return Umb(path, TarFile(path), Budget(path))


def _open_umb(path: Path, gamma: float, reward: str | None) -> UmbParts:
    stamp = stamp_of(path)
    umb = _umb(path)
    widest, stretch = 1, 1 << 20
    for first in range(0, umb.n_states, stretch):
        pointers = umb.pointers("state-to-choices.bin", umb.n_states, umb.n_choices, slice(first, first + stretch))
        widest = max(widest, int(np.diff(pointers).max(initial=1)))
    return UmbParts(
        path=path,
        stamp=stamp,
        nbytes=8 * (umb.n_states + umb.n_choices + 2 * umb.n_branches),
        n_states=umb.n_states,
        gamma=gamma,
        action_labels=tuple(str(k) for k in range(widest)),
        label_names=tuple(umb.label_members),
        reward_name=chosen_reward(path, list(umb.reward_models), reward),
    )
