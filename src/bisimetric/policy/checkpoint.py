"""Checkpoints of a run: everything that the next step depends on, with a digest, replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from .. import archives
from ..aggregation import Partition, SmallModel
from ..damage import reading
from ..kinds import Array, Facts, Floats
from ..model import MDP
from .loop import LoopState
from .settings import PolicySettings
from .small_models import Measure, distances_like, measure_of

VERSION = 3
_MOST_REMEMBERED = 1 << 30  # bytes of what solvers remember of which a copy is held, for Ctrl-C inside a step


class RunFolderError(ValueError):
    """A run folder that cannot be used; the message says why and what to do."""


class Before(NamedTuple):
    """What a step changes before it is done: enough to undo a step that was broken off."""

    k: int
    kept: dict[str, Array] | None  # the transport's state; None where it is that of now
    rng: Mapping[str, object] | None
    noise: float

    @classmethod
    def of(cls, state: LoopState) -> Before:
        solver = state.sweeper.solver
        remembered = state.sweeper.portable and solver.remembered_bytes <= _MOST_REMEMBERED
        kept = {name: array.copy() for name, array in solver.remembered().items()} if remembered else {}
        return cls(state.k, kept, state.rng.bit_generator.state, state.noise)

    def give_back(self, state: LoopState) -> None:
        """Undo what a broken-off step did to the generator."""
        if self.rng is not None and state.k == self.k:
            state.rng.bit_generator.state = self.rng
            state.noise = self.noise


class _Parts(TypedDict):
    """The fields of the state that a checkpoint holds as they are."""

    k: int
    policy: Floats
    measured: Floats
    rng: np.random.Generator
    noise: float
    value: Floats
    partition: Partition
    abstract_value: Floats
    settled: bool


def _digest(arrays: Mapping[str, object]) -> str:
    """A hash of all arrays, by which damage shows."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def save(folder: Path, state: LoopState, kept: Mapping[str, Array] | None = None) -> None:
    """Write a checkpoint; `kept` stands in for the transport's state where that is of a step that was broken off."""
    partition = state.partition
    arrays: Facts = {
        "version": VERSION,
        "k": state.k,
        "policy": state.policy,
        "measured": state.measured,
        "distance": state.distance.to_host(),
        "noise": state.noise,
        "value": state.value,
        "abstract_value": state.abstract_value,
        "class_of": partition.class_of,
        "medoids": partition.medoids,
        "extents": np.array([partition.radius, partition.diameter]),
        "settled": state.settled,
        "rng": json.dumps(state.rng.bit_generator.state),
    }
    remembered = state.sweeper.solver.remembered() if kept is None else kept
    arrays.update({f"kept_{name}": array for name, array in remembered.items()})
    archives.save_arrays(folder / "checkpoint.npz", {**arrays, "digest": _digest(arrays)})


def restore(folder: Path, mdp: MDP, settings: PolicySettings) -> LoopState | None:
    """The state at the last checkpoint, or None before the first."""
    path = folder / "checkpoint.npz"
    if not path.exists():
        return None
    try:
        with reading(path, "a checkpoint", RunFolderError):
            data = archives.read_arrays(path)
            parts = _checked_parts(data, mdp, settings)
        chain = mdp.under(parts["measured"])
        sweeper = measure_of(chain, settings)  # what a device lacks is not the file's fault
        _recall(sweeper, {name[5:]: array for name, array in data.items() if name.startswith("kept_")})
    except RunFolderError as error:
        text = str(error).removeprefix(f"{path}: ")
        raise RunFolderError(
            f"{path}: damaged ({text.rstrip('.')}). Delete this file to begin the run again from its first step."
        ) from None
    return LoopState(**parts, distance=distances_like(sweeper, data["distance"], mdp.n_states), sweeper=sweeper)


def _checked_parts(data: dict[str, Array], mdp: MDP, settings: PolicySettings) -> _Parts:
    """The fields of the state that a checkpoint holds, but for the metric's; raises unless all of it can be one."""
    if str(data.pop("digest", "")) != _digest(data):
        raise RunFolderError("it is not what was written")
    if int(data["version"]) != VERSION:
        raise RunFolderError(f"it is of version {data['version']}, and this is {VERSION}")
    n, wanted = mdp.n_states, np.dtype(settings.dtype)
    d = data["distance"]
    rule = settings.aggregation
    square = not isinstance(rule, SmallModel)
    narrow = isinstance(rule, SmallModel) and d.ndim == 2 and len(d) == n and d.shape[1] <= rule.size
    fits = d.shape == (n, n) if square else narrow
    if not fits or (d.size and d.dtype != wanted):
        raise RunFolderError(f"its distances are {d.dtype} {d.shape}, which are not those of a run like this")
    if not (np.isfinite(d).all() and (d >= 0.0).all() and (not square or np.array_equal(d, d.T))):
        raise RunFolderError("its distances are not finite, not symmetric, or below 0")
    for name in ("value", "abstract_value"):
        if data[name].shape != (n,) or not np.isfinite(data[name].astype(np.float64)).all():
            raise RunFolderError(f"its {name} is not one finite number per state")
    k, noise = int(data["k"]), float(data["noise"])
    if k < 0 or not 0.0 < noise < math.inf:
        raise RunFolderError("its step or its noise is out of range")
    rng = np.random.default_rng()
    rng.bit_generator.state = json.loads(str(data["rng"]))
    return _Parts(
        k=k,
        policy=mdp.check_policy(data["policy"]),
        measured=mdp.check_policy(data["measured"]),
        rng=rng,
        noise=noise,
        value=data["value"],
        partition=_checked_partition(data, n),
        abstract_value=data["abstract_value"],
        settled=bool(data["settled"]),
    )


def _checked_partition(data: Mapping[str, Array], n_states: int) -> Partition:
    class_of, medoids = data["class_of"].astype(np.int64), data["medoids"].astype(np.int64)
    radius, diameter = (float(x) for x in data["extents"])
    inside = class_of.shape == (n_states,) and class_of.min() >= 0 and class_of.max() < len(medoids)
    inside = inside and medoids.min() >= 0 and medoids.max() < n_states
    if not inside or (class_of[medoids] != np.arange(len(medoids))).any():
        raise RunFolderError("its classes do not fit the states")
    return Partition(class_of, medoids, radius, diameter)


def _recall(sweeper: Measure, kept: Mapping[str, Array]) -> None:
    """Hand the solver what it remembered of all pairs, where that was kept."""
    if not kept:
        return
    if not sweeper.portable:  # another device may have room for fewer pairs: it takes what fits
        sweeper.solver.recall(kept)
        return
    for name, array in sweeper.solver.remembered().items():
        there = kept.get(name)
        if there is None or (array.size and (there.shape != array.shape or there.dtype != array.dtype)):
            raise RunFolderError(f"what the transport kept ({name}) does not fit the model")
    sweeper.solver.recall(kept)
