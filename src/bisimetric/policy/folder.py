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
from types import TracebackType
from typing import Self, TypedDict, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from .. import archives, atomic, locks
from ..damage import reading
from ..kinds import Facts
from ..model import MDP
from ..status import Status
from .checkpoint import VERSION, Before, RunFolderError
from .checkpoint import restore as restore_checkpoint
from .checkpoint import save as save_checkpoint
from .loop import LoopState
from .run import PolicyRun, Step
from .settings import PolicySettings
from .solve import PolicyWork, progress

TIMES = ("seconds", "metric_seconds")  # entries of the history that differ from run to run


def fingerprint(mdp: MDP) -> str:
    """A hash of all that the model's behaviour depends on."""
    digest = hashlib.sha256(repr((mdp.gamma, mdp.action_labels)).encode())
    for array in (mdp.rows.indptr, mdp.rows.indices, mdp.rows.probs, mdp.rewards, mdp.choice_ptr, mdp.action_of_choice):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for one process."""
    with locks.locked(folder) as held:
        if not held:
            raise RunFolderError(f"{folder}: another process is working in this run folder.")
        yield


class _Description(TypedDict):
    """What settings.json holds."""

    version: int
    fingerprint: str
    digest: str
    settings: Facts


def read_settings(folder: Path) -> Facts:
    """The settings of a run folder; raises for a folder that is none."""
    return _read_description(folder)["settings"]


def _read_description(folder: Path) -> _Description:
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
    return _Description(
        version=VERSION, fingerprint=str(data.get("fingerprint")), digest=data["digest"], settings=data["settings"]
    )


def _digest_of_settings(settings: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Settings of `new` that differ from those of `old`, as text."""
    return [
        f"{key}: {repr(old[key]) if key in old else 'the default'} in the folder, {new[key]!r} given"
        for key in new
        if key not in old or old[key] != new[key]
    ]


def begin(folder: Path, description: Mapping[str, object], mdp: MDP) -> None:
    """Make a new run folder; refuses one that holds anything."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        hint = "use --resume to go on with it" if (folder / "settings.json").exists() else "choose an empty folder"
        raise RunFolderError(f"{folder}: is not empty; {hint}.")
    write_settings(folder, description, mdp)


def write_settings(folder: Path, description: Mapping[str, object], mdp: MDP) -> None:
    """Write settings.json."""
    plain = dict(description)
    data = _Description(
        version=VERSION, fingerprint=fingerprint(mdp), digest=_digest_of_settings(plain), settings=plain
    )
    atomic.save_json(folder / "settings.json", data)


def check_model(folder: Path, mdp: MDP) -> None:
    """Refuse to go on with a model that is not the one the run began with."""
    if _read_description(folder)["fingerprint"] != fingerprint(mdp):
        raise RunFolderError(f"{folder}: the model is not the one that this run began with.")


def run(
    mdp: MDP,
    settings: PolicySettings,
    folder: Path,
    *,
    policy: ArrayLike | None = None,
    description: Mapping[str, object] | None = None,
    checkpoint_every: float = 15.0,
    observers: tuple[Callable[[Step], None], ...] = (),
    finish: Callable[[PolicyRun], PolicyRun] | None = None,
) -> PolicyRun:
    """Go on with the run in a folder from its checkpoint, or from the start, to its end.

    Ctrl-C keeps all steps that were done and writes the policy so far.

    Args:
        mdp, settings, policy: as for `solve_policy`.
        folder: made by `begin`. description: settings to write anew, where they differ.
        checkpoint_every: seconds between checkpoints (0: after every step).
        observers: called with each new step.
        finish: what becomes of the result before it is written, such as a certificate from data.
    """
    with locked(folder), _FolderJournal(folder, checkpoint_every) as journal:
        watch = tuple(observer for given in observers for observer in progress(given))
        work = PolicyWork(mdp, settings, policy, observers=watch, journal=journal)
        with _writing(folder):
            if description is not None and read_settings(folder) != dict(description):
                write_settings(folder, description, mdp)
            journal.open(work.state.k)
        while not work.go_on():
            pass
        result = work.result() if finish is None else finish(work.result())
        with _writing(folder):
            _write_result(folder, mdp, result)
        return result


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What cannot be written is one clear line; the last checkpoint is there."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"{folder}: cannot be written ({error.strerror}); the last checkpoint is kept. Free some space and resume."
        ) from None


class _FolderJournal:
    """A run written down in its folder: the history step by step, checkpoints now and then."""

    def __init__(self, folder: Path, checkpoint_every: float) -> None:
        self._folder, self._every = folder, checkpoint_every
        self._history = folder / "history.jsonl"
        self._log: io.TextIOBase | None = None
        self._before = Before(0, None, None, 0.0)
        self._saved = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._log is not None:
            self._log.close()

    def restore(self, mdp: MDP, settings: PolicySettings) -> tuple[LoopState | None, list[Step]]:
        state = restore_checkpoint(self._folder, mdp, settings)
        return state, _checked_history(self._history, 0 if state is None else state.k)

    def open(self, count: int) -> None:
        """Cut the history after so many steps, to go on writing."""
        for left in self._folder.glob(".*.part"):  # half-written files of a killed process
            left.unlink(missing_ok=True)
        if self._history.exists():
            lines = self._history.read_bytes().split(b"\n")
            os.truncate(self._history, sum(len(line) + 1 for line in lines[:count]))
        self._log = open(self._history, "a", encoding="utf-8")  # noqa: SIM115 (closed on leaving)
        self._saved = time.monotonic()

    def before(self, state: LoopState) -> None:
        self._before = Before.of(state)

    def after(self, state: LoopState, step: Step, status: Status | None) -> None:
        assert self._log is not None
        self._before = Before(state.k, None, None, 0.0)  # the state is that after the step
        with _writing(self._folder):
            self._log.write(_line(step))
            self._log.flush()
            if status is not None or time.monotonic() - self._saved >= self._every:
                os.fsync(self._log.fileno())
                save_checkpoint(self._folder, state)
                self._saved = time.monotonic()

    def interrupted(self, state: LoopState, history: list[Step]) -> list[Step]:
        if len(history) < state.k:  # it came in the moment between a step and its record
            return history
        before = self._before
        before.give_back(state)
        history = history[: state.k]
        with _writing(self._folder):
            _save_history(self._history, history)
            save_checkpoint(self._folder, state, before.kept if before.k == state.k else None)
        return history


def _line(step: Step) -> str:
    return json.dumps(dataclasses.asdict(step)) + "\n"


_STEP_TYPES = get_type_hints(Step)


def _step_from(data: object) -> Step:
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


def _save_history(path: Path, history: list[Step]) -> None:
    """Write the whole history: Ctrl-C may have come between a step and its line."""
    atomic.write_text(path, "".join(_line(step) for step in history))


def _write_result(folder: Path, mdp: MDP, result: PolicyRun) -> None:
    archives.save_arrays(
        folder / "result.npz",
        {
            "policy": result.policy,
            "value": result.value,
            "abstract_value": result.abstract_value,
            "class_of": result.partition.class_of,
            "medoids": result.partition.medoids,
            **({} if result.optimal_value is None else {"optimal_value": result.optimal_value}),
            **({} if result.data is None else {f"data_{k}": x for k, x in result.data.arrays().items()}),
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
            table.writerow(
                [
                    s,
                    mdp.name_of(s),
                    mdp.action_name(c),
                    repr(float(result.policy[c])),
                    repr(float(result.value[s])),
                    result.partition.class_of[s],
                ]
            )
    atomic.write_text(path, text.getvalue())


class Summary(TypedDict):
    """The figures of a result."""

    status: str
    states: int
    classes: int
    steps: int
    error: float | None
    bound: float
    bound_source: str
    metric_gap: float | None
    nmi: float | None
    purity: float | None
    seconds: float
    theorems: list[str]


def summary(mdp: MDP, result: PolicyRun) -> Summary:
    """The figures of a result, ready for JSON."""
    last = result.history[-1] if result.history else None
    return Summary(
        status=result.status.name,
        states=mdp.n_states,
        classes=result.partition.n_classes,
        steps=len(result.history),
        error=result.error,
        bound=result.certificate.error,
        bound_source=result.certificate.source,
        metric_gap=None if last is None else last.metric_gap,
        nmi=None if last is None else last.nmi,
        purity=None if last is None else last.purity,
        seconds=math.fsum(step.seconds for step in result.history),
        theorems=[str(certificate) for certificate in result.theorems],
    )
