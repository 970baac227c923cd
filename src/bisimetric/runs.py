"""Runs that last: a folder that survives being killed and goes on to the same result.

    settings.json     what was asked, with a fingerprint of the model; written first
    history.jsonl     one JSON object per step, appended as the steps are done
    checkpoint.npz    everything the next step depends on; replaced as a whole
    result.npz        the final policy, values and partition
    policy.csv        the policy as a table, with the model's own names of states and actions
    summary.json      the figures of the result
    .lock             held by the process that works in the folder

On resuming, steps after the checkpoint are dropped from the history and done again; all of them are deterministic,
so the result has the same bytes as that of a run that was never stopped (times in the history aside).
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import math
import os
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import atomic, policy_iteration
from .aggregation import Partition
from .model import MDP
from .operators import metric_operator
from .policy_run import LoopState, PolicyRun, RunStatus, Settings, Step
from .values import optimal_values

VERSION = 1
TIMES = ("seconds", "metric_seconds")  # entries of the history that differ from run to run


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
    import fcntl

    with open(folder / ".lock", "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunFolderError(f"{folder}: another process is working in this run folder.") from None
        yield


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a run folder; raises for a folder that is none."""
    path = folder / "settings.json"
    if not folder.is_dir():
        raise RunFolderError(f"{folder}: no such run folder.")
    if not path.exists():
        raise RunFolderError(f"{folder}: not a run folder (it has no settings.json).")
    try:
        data = json.loads(path.read_text())
        version, settings = data["version"], dict(data["settings"])
    except (ValueError, KeyError, TypeError):
        raise RunFolderError(f"{path}: damaged; the run cannot be resumed.") from None
    if version != VERSION:
        raise RunFolderError(f"{path}: written by another version ({version}; this one writes {VERSION}).")
    return settings


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Settings of `new` that differ from those of `old`, as text."""
    return [f"{key}: {old.get(key)!r} in the folder, {new[key]!r} given" for key in new if old.get(key) != new[key]]


def begin(folder: Path, description: Mapping[str, Any], mdp: MDP) -> None:
    """Make a new run folder; refuses one that holds anything."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        hint = "use --resume to go on with it" if (folder / "settings.json").exists() else "choose an empty folder"
        raise RunFolderError(f"{folder}: is not empty; {hint}.")
    write_settings(folder, description, mdp)


def write_settings(folder: Path, description: Mapping[str, Any], mdp: MDP) -> None:
    """Write settings.json."""
    data = {"version": VERSION, "fingerprint": fingerprint(mdp), "settings": dict(description)}
    atomic.save_json(folder / "settings.json", data)


def check_model(folder: Path, mdp: MDP) -> None:
    """Refuse to go on with a model that is not the one the run began with."""
    if json.loads((folder / "settings.json").read_text()).get("fingerprint") != fingerprint(mdp):
        raise RunFolderError(f"{folder}: the model is not the one that this run began with.")


def run(
    mdp: MDP,
    settings: Settings,
    folder: Path,
    *,
    policy: ArrayLike | None = None,
    description: Mapping[str, Any] | None = None,
    checkpoint_every: float = 15.0,
    observers: tuple[Callable[[Step], None], ...] = (),
) -> PolicyRun:
    """Go on with the run in a folder from its checkpoint, or from the start, to its end.

    Args:
        mdp, settings, policy: as for `solve_policy`.
        folder: made by `begin`. description: settings to write anew, where they differ.
        checkpoint_every: seconds between checkpoints (0: after every step).
        observers: called with each new step.
    """
    with locked(folder):
        for left in folder.glob(".*.part"):  # half-written files of a killed process
            left.unlink(missing_ok=True)
        if description is not None and read_settings(folder) != dict(description):
            write_settings(folder, description, mdp)
        small, lumping, first = policy_iteration.reduced(mdp, settings, policy)
        best_value = optimal_values(small)[0] if settings.optimum else None
        state = _restore(folder, small, settings) or policy_iteration.first_state(small, settings, first)
        history = _trim_history(folder / "history.jsonl", state.k)
        status = policy_iteration.end_of(settings, state, history[-1]) if history else None
        inside = False
        try:
            with open(folder / "history.jsonl", "a", encoding="utf-8") as log:
                last = time.monotonic()
                while status is None:
                    inside = True
                    step = policy_iteration.advance(small, settings, state, best_value, lumping)
                    log.write(_line(step))
                    log.flush()
                    history.append(step)
                    inside = False
                    status = policy_iteration.end_of(settings, state, step)
                    if status is not None or time.monotonic() - last >= checkpoint_every:
                        os.fsync(log.fileno())
                        _save(folder, state)
                        last = time.monotonic()
                    for observe in observers:
                        observe(step)
        except KeyboardInterrupt:
            status = RunStatus.INTERRUPTED
            if not inside and len(history) == state.k:  # inside a step, the last checkpoint must do
                _save(folder, state)
        except OSError as error:
            raise RunFolderError(
                f"{folder}: cannot be written ({error.strerror}); the last checkpoint is kept. Free some space and "
                "resume."
            ) from None
        small_result = policy_iteration.finish(small, settings, state, history, status, best_value)
        result = policy_iteration.lifted(mdp, lumping, small_result)
        if status is not RunStatus.INTERRUPTED:
            _write_result(folder, mdp, result)
        return result


def _line(step: Step) -> str:
    return json.dumps(dataclasses.asdict(step)) + "\n"


def read_history(path: Path) -> list[Step]:
    """The whole steps of a history file; a last line cut short is left out."""
    if not path.exists():
        return []
    steps = []
    for number, line in enumerate(path.read_bytes().split(b"\n")):
        if not line:
            continue
        try:
            steps.append(Step(**json.loads(line)))
        except (ValueError, TypeError):
            if number + 1 < path.read_bytes().count(b"\n"):
                raise RunFolderError(f"{path}: line {number + 1} is damaged.") from None
            break
    return steps


def _trim_history(path: Path, count: int) -> list[Step]:
    """Keep the first `count` steps of the file, and return them."""
    steps = read_history(path)
    if len(steps) < count or any(step.k != k for k, step in enumerate(steps[:count])):
        raise RunFolderError(
            f"{path}: has {len(steps)} steps, the checkpoint is of step {count}; the folder is damaged."
        )
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    if path.exists():
        os.truncate(path, sum(len(line) + 1 for line in lines[:count]))
    return steps[:count]


def _save(folder: Path, state: LoopState) -> None:
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
    kept = {f"kept_{name}": array for name, array in state.operator.evaluator.state().items()}
    atomic.save_arrays(folder / "checkpoint.npz", {**arrays, **kept})


def _restore(folder: Path, mdp: MDP, settings: Settings) -> LoopState | None:
    """The state at the last checkpoint, or None before the first."""
    path = folder / "checkpoint.npz"
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            data = {name: archive[name] for name in archive.files}
        operator = metric_operator(
            mdp.under(data["measured"]), settings.transport, device=settings.device, dtype=settings.dtype
        )
        operator.evaluator.load({name[5:]: array for name, array in data.items() if name.startswith("kept_")})
        rng = np.random.default_rng()
        rng.bit_generator.state = json.loads(str(data["rng"]))
        radius, diameter = (float(x) for x in data["extents"])
        partition = Partition(data["labels"], data["medoids"], radius, diameter)
        return LoopState(
            int(data["k"]), data["policy"], data["measured"], operator.engine.to_device(data["distance"]), operator,
            rng, float(data["noise"]), data["value"], partition, data["abstract_value"], bool(data["settled"]),
        )  # fmt: skip
    except (zipfile.BadZipFile, zlib.error, struct.error, ValueError, LookupError, ArithmeticError, TypeError, EOFError,
            NotImplementedError, RuntimeError, SyntaxError, MemoryError, OSError) as error:  # fmt: skip
        raise RunFolderError(
            f"{path}: damaged ({error}). Delete this file to begin the run again from its first step."
        ) from None


def _write_result(folder: Path, mdp: MDP, result: PolicyRun) -> None:
    atomic.save_arrays(
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
