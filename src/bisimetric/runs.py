"""Runs that last: a folder that survives being killed and goes on to the same result.

    settings.json     what was asked, with a fingerprint of the model; written first
    history.jsonl     one JSON object per step, appended as the steps are done
    checkpoint.npz    everything the next step depends on, with a digest; replaced as a whole
    result.npz        the policy, values and partition: the final ones, or those so far after Ctrl-C
    policy.csv        the policy as a table, with the model's own names of states and actions
    summary.json      the figures of the result
    .lock             held by the process that works in the folder

On resuming, steps after the checkpoint are dropped from the history and done again; all of them are deterministic,
so the result has the same bytes as that of a run that was never stopped (times in the history aside). All that is read
is checked before anything is changed.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import archives, atomic, locks, policy_iteration
from .aggregation import Partition
from .damage import reading
from .model import MDP
from .operators import MetricOperator, metric_operator
from .policy_run import LoopState, PolicyRun, PolicySettings, Step
from .status import Status
from .values import best_values

VERSION = 2
TIMES = ("seconds", "metric_seconds")  # entries of the history that differ from run to run
_MOST_REMEMBERED = 1 << 30  # bytes of the transport's state of which a copy is held, for Ctrl-C inside a step


class RunFolderError(ValueError):
    """A run folder that cannot be used; the message says why and what to do."""


def fingerprint(mdp: MDP) -> str:
    """A hash of all that the model's behaviour depends on."""
    digest = hashlib.sha256(repr((mdp.gamma, mdp.label_names)).encode())
    for array in (mdp.rows.indptr, mdp.rows.indices, mdp.rows.probs, mdp.rewards, mdp.choice_ptr, mdp.label_of_choice):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one process."""
    with locks.locked(folder) as held:
        if not held:
            raise RunFolderError(f"{folder}: another process is working in this run folder.")
        yield


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a run folder; raises for a folder that is none."""
    return _read_description(folder)["settings"]  # type: ignore[no-any-return]


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / "settings.json"
    if not folder.is_dir():
        raise RunFolderError(f"{folder}: no such run folder.")
    if not path.exists():
        raise RunFolderError(f"{folder}: not a run folder (it has no settings.json).")
    with reading(path, "settings of a run", RunFolderError):
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict) or not isinstance(data.get("settings"), dict) or "version" not in data:
            raise RunFolderError(f"{path}: damaged; the run cannot be resumed.")
    if data["version"] != VERSION:
        raise RunFolderError(f"{path}: written by another version ({data['version']}; this one writes {VERSION}).")
    if data.get("digest") != _digest_of_settings(data["settings"]):
        raise RunFolderError(f"{path}: damaged (it is not what was written); the run cannot be resumed.")
    return dict(data)


def _digest_of_settings(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Settings of `new` that differ from those of `old`, as text."""
    return [
        f"{key}: {repr(old[key]) if key in old else 'the default'} in the folder, {new[key]!r} given"
        for key in new
        if key not in old or old[key] != new[key]
    ]


def begin(folder: Path, description: Mapping[str, Any], mdp: MDP) -> None:
    """Make a new run folder; refuses one that holds anything."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        hint = "use --resume to go on with it" if (folder / "settings.json").exists() else "choose an empty folder"
        raise RunFolderError(f"{folder}: is not empty; {hint}.")
    write_settings(folder, description, mdp)


def write_settings(folder: Path, description: Mapping[str, Any], mdp: MDP) -> None:
    """Write settings.json."""
    plain = dict(description)
    data = {
        "version": VERSION, "fingerprint": fingerprint(mdp), "digest": _digest_of_settings(plain), "settings": plain,
    }  # fmt: skip
    atomic.save_json(folder / "settings.json", data)


def check_model(folder: Path, mdp: MDP) -> None:
    """Refuse to go on with a model that is not the one the run began with."""
    if _read_description(folder).get("fingerprint") != fingerprint(mdp):
        raise RunFolderError(f"{folder}: the model is not the one that this run began with.")


def run(
    mdp: MDP,
    settings: PolicySettings,
    folder: Path,
    *,
    policy: ArrayLike | None = None,
    description: Mapping[str, Any] | None = None,
    checkpoint_every: float = 15.0,
    observers: tuple[Callable[[Step], None], ...] = (),
) -> PolicyRun:
    """Go on with the run in a folder from its checkpoint, or from the start, to its end.

    Ctrl-C keeps all steps that were done and writes the policy so far.

    Args:
        mdp, settings, policy: as for `solve_policy`.
        folder: made by `begin`. description: settings to write anew, where they differ.
        checkpoint_every: seconds between checkpoints (0: after every step).
        observers: called with each new step.
    """
    settings = settings.for_model(mdp)
    with locked(folder):
        small, lumping, first = policy_iteration.reduced(mdp, settings, policy)
        state = _restore(folder, small, settings) or policy_iteration.first_state(small, settings, first)
        history = _checked_history(folder / "history.jsonl", state.k)
        if description is not None and read_settings(folder) != dict(description):
            write_settings(folder, description, mdp)
        for left in folder.glob(".*.part"):  # half-written files of a killed process
            left.unlink(missing_ok=True)
        best_value = best_values(small)[0] if settings.optimum else None
        status = policy_iteration.end_of(settings, state, history[-1]) if history else None
        before = _Before.of(state)
        try:
            with _cut_history(folder / "history.jsonl", state.k) as log:
                last = time.monotonic()
                while status is None:
                    before = _Before.of(state)
                    step = policy_iteration.advance(small, settings, state, best_value, lumping)
                    before = _Before(state.k, None, None, 0.0)  # the state is that after the step
                    history.append(step)
                    log.write(_line(step))
                    log.flush()
                    status = policy_iteration.end_of(settings, state, step)
                    if status is not None or time.monotonic() - last >= checkpoint_every:
                        os.fsync(log.fileno())
                        _save(folder, state)
                        last = time.monotonic()
                    for observe in observers:
                        observe(step)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
            if len(history) >= state.k:  # else it came in the moment between a step and its record
                before.give_back(state)
                history = history[: state.k]
                _save_history(folder / "history.jsonl", history)
                _save(folder, state, before.kept if before.k == state.k else None)
        except OSError as error:
            raise RunFolderError(
                f"{folder}: cannot be written ({error.strerror}); the last checkpoint is kept. Free some space and "
                "resume."
            ) from None
        small_result = policy_iteration.finish(small, settings, state, history, status, best_value)
        result = policy_iteration.lifted(mdp, lumping, small_result)
        _write_result(folder, mdp, result)
        return result


class _Before(NamedTuple):
    """What a step changes before it is done: enough to undo a step that was broken off."""

    k: int
    kept: dict[str, NDArray[Any]] | None  # the transport's state; None where it is that of now
    rng: Any
    noise: float

    @classmethod
    def of(cls, state: LoopState) -> _Before:
        evaluator = state.operator.evaluator
        remembered = not state.operator.engine.on_device and evaluator.kept_bytes <= _MOST_REMEMBERED
        kept = {name: array.copy() for name, array in evaluator.state().items()} if remembered else {}
        return cls(state.k, kept, state.rng.bit_generator.state, state.noise)

    def give_back(self, state: LoopState) -> None:
        """Undo what a broken-off step did to the generator."""
        if self.rng is not None and state.k == self.k:
            state.rng.bit_generator.state = self.rng
            state.noise = self.noise


def _line(step: Step) -> str:
    return json.dumps(dataclasses.asdict(step)) + "\n"


_STEP_TYPES = get_type_hints(Step)


def _step_from(data: Any) -> Step:
    """A step from JSON; raises unless all of its entries are there and are numbers."""
    if not isinstance(data, dict) or set(data) != set(_STEP_TYPES):
        raise ValueError("entries are missing")
    for name, value in data.items():
        kind = _STEP_TYPES[name]
        whole = kind is int
        good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not good and not (value is None and kind not in (int, float)):
            raise ValueError(f"{name} is no number")
    return Step(**data)


def read_history(path: Path) -> list[Step]:
    """The whole steps of a history file; a last line cut short is left out."""
    if not path.exists():
        return []
    steps: list[Step] = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            steps.append(_step_from(json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            if number + 1 < len(lines):
                raise RunFolderError(f"{path}: line {number + 1} is damaged.") from None
            break
    return steps


def _checked_history(path: Path, count: int) -> list[Step]:
    """The first `count` steps of the file, which must be there."""
    steps = read_history(path)
    if len(steps) < count or any(step.k != k for k, step in enumerate(steps[:count])):
        raise RunFolderError(
            f"{path}: has {len(steps)} steps, the checkpoint is of step {count}; the folder is damaged."
        )
    return steps[:count]


@contextmanager
def _cut_history(path: Path, count: int) -> Iterator[io.TextIOBase]:
    """The history file, cut after `count` steps, to go on writing."""
    if path.exists():
        lines = path.read_bytes().split(b"\n")
        os.truncate(path, sum(len(line) + 1 for line in lines[:count]))
    with open(path, "a", encoding="utf-8") as log:
        yield log


def _save_history(path: Path, history: list[Step]) -> None:
    """Write the whole history: Ctrl-C may have come between a step and its line."""
    atomic.write_text(path, "".join(_line(step) for step in history))


def _digest(arrays: Mapping[str, Any]) -> str:
    """A hash of all arrays, by which damage shows."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _save(folder: Path, state: LoopState, kept: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write a checkpoint; `kept` stands in for the transport's state where that is of a step that was broken off."""
    partition = state.partition
    arrays = {
        "version": VERSION,
        "k": state.k,
        "policy": state.policy,
        "measured": state.measured,
        "distance": state.operator.engine.to_host(state.distance),
        "noise": state.noise,
        "value": state.value,
        "abstract_value": state.abstract_value,
        "labels": partition.labels,
        "medoids": partition.medoids,
        "extents": np.array([partition.radius, partition.diameter]),
        "settled": state.settled,
        "rng": json.dumps(state.rng.bit_generator.state),
    }
    remembered = state.operator.evaluator.state() if kept is None else kept
    arrays.update({f"kept_{name}": array for name, array in remembered.items()})
    archives.save_arrays(folder / "checkpoint.npz", {**arrays, "digest": _digest(arrays)})


def _restore(folder: Path, mdp: MDP, settings: PolicySettings) -> LoopState | None:
    """The state at the last checkpoint, or None before the first."""
    path = folder / "checkpoint.npz"
    if not path.exists():
        return None
    try:
        with reading(path, "a checkpoint", RunFolderError):
            data = archives.read_arrays(path)
            return _checked_state(data, mdp, settings)
    except RunFolderError as error:
        text = str(error).removeprefix(f"{path}: ")
        raise RunFolderError(
            f"{path}: damaged ({text.rstrip('.')}). Delete this file to begin the run again from its first step."
        ) from None


def _checked_state(data: dict[str, NDArray[Any]], mdp: MDP, settings: PolicySettings) -> LoopState:
    """The state that a checkpoint holds; raises unless every part of it can be one."""
    if str(data.pop("digest", "")) != _digest(data):
        raise RunFolderError("it is not what was written")
    if int(data["version"]) != VERSION:
        raise RunFolderError(f"it is of version {data['version']}, and this is {VERSION}")
    n, wanted = mdp.n_states, np.dtype(settings.dtype)
    d = data["distance"]
    if d.shape != (n, n) or d.dtype != wanted:
        raise RunFolderError(f"its distances are {d.dtype} {d.shape} instead of {wanted} {(n, n)}")
    if not (np.isfinite(d).all() and (d >= 0.0).all() and np.array_equal(d, d.T)):
        raise RunFolderError("its distances are not finite, not symmetric, or below 0")
    for name in ("value", "abstract_value"):
        if data[name].shape != (n,) or not np.isfinite(data[name].astype(np.float64)).all():
            raise RunFolderError(f"its {name} is not one finite number per state")
    k, noise = int(data["k"]), float(data["noise"])
    if k < 0 or not 0.0 < noise < math.inf:
        raise RunFolderError("its step or its noise is out of range")
    rng = np.random.default_rng()
    rng.bit_generator.state = json.loads(str(data["rng"]))
    policy, measured = (mdp.check_policy(data[name]) for name in ("policy", "measured"))
    operator = metric_operator(
        mdp.under(measured), settings.transport, respect=(), device=settings.device, dtype=settings.dtype
    )
    _load_kept(operator, {name[5:]: array for name, array in data.items() if name.startswith("kept_")})
    return LoopState(
        k, policy, measured, operator.engine.to_device(d), operator, rng, noise, data["value"],
        _checked_partition(data, n), data["abstract_value"], bool(data["settled"]),
    )  # fmt: skip


def _checked_partition(data: Mapping[str, NDArray[Any]], n_states: int) -> Partition:
    labels, medoids = data["labels"].astype(np.int64), data["medoids"].astype(np.int64)
    radius, diameter = (float(x) for x in data["extents"])
    inside = labels.shape == (n_states,) and labels.min() >= 0 and labels.max() < len(medoids)
    inside = inside and medoids.min() >= 0 and medoids.max() < n_states
    if not inside or (labels[medoids] != np.arange(len(medoids))).any():
        raise RunFolderError("its classes do not fit the states")
    return Partition(labels, medoids, radius, diameter)


def _load_kept(operator: MetricOperator, kept: Mapping[str, NDArray[Any]]) -> None:
    """Hand the transport its state of all pairs, where it was kept."""
    if not kept:
        return
    for name, array in operator.evaluator.state().items():
        there = kept.get(name)
        if there is None or (array.size and (there.shape != array.shape or there.dtype != array.dtype)):
            raise RunFolderError(f"what the transport kept ({name}) does not fit the model")
    operator.evaluator.load(kept)


def _write_result(folder: Path, mdp: MDP, result: PolicyRun) -> None:
    archives.save_arrays(
        folder / "result.npz",
        {
            "policy": result.policy,
            "value": result.value,
            "abstract_value": result.abstract_value,
            "labels": result.partition.labels,
            "medoids": result.partition.medoids,
            **({} if result.optimal_value is None else {"optimal_value": result.optimal_value}),
        },
    )
    _write_policy_table(folder / "policy.csv", mdp, result)
    atomic.save_json(folder / "summary.json", summary(mdp, result))


def _write_policy_table(path: Path, mdp: MDP, result: PolicyRun) -> None:
    """The policy with the model's own names: state, action, probability, value, class."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["state", "name", "action", "probability", "value", "class"])
    for c, s in enumerate(mdp.state_of_choice):
        if result.policy[c] > 0.0:
            table.writerow([s, mdp.name_of(s), mdp.action_name(c), repr(float(result.policy[c])),
                            repr(float(result.value[s])), result.partition.labels[s]])  # fmt: skip
    atomic.write_text(path, text.getvalue())


def summary(mdp: MDP, result: PolicyRun) -> dict[str, Any]:
    """The figures of a result, ready for JSON."""
    last = result.history[-1] if result.history else None
    return {
        "status": result.status.name,
        "states": mdp.n_states,
        "classes": result.partition.n_classes,
        "steps": len(result.history),
        "error": result.error,
        "bound": result.certificate.error,
        "bound_source": result.certificate.source,
        "metric_gap": None if last is None else last.metric_gap,
        "nmi": None if last is None else last.nmi,
        "purity": None if last is None else last.purity,
        "seconds": math.fsum(step.seconds for step in result.history),
        "theorems": [str(certificate) for certificate in result.theorems],
    }
