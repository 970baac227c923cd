"""A results folder, which survives being stopped.

settings.json   version, profile and variant; written first, and checked whenever the folder is used again
runs/ID.npz     the arrays of one run, with what made it; whole or absent
tables/         CSV; figures/ SVG and PNG; claims.csv; index.html: all made from the runs
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import numpy as np

from .. import archives, atomic
from ..backends.select import backend
from ..damage import reading
from ..kinds import Facts
from .jobs import Arrays, Job, job_id
from .settings import PROFILES, Profile, Variant

FORMAT = 1


class ResultsError(ValueError):
    """A results folder that cannot be used; the message says why and what to do."""


def _described(profile: Profile, variant: Variant, version: str) -> Facts:
    return {"format": FORMAT, "version": version, "profile": profile.name, **variant.describe()}


def begin(folder: Path, profile: Profile, variant: Variant, version: str) -> None:
    """Make the folder, or check that it is of the same version and settings."""
    begin_study(folder, _described(profile, variant, version), "bisimetric paper")


def begin_study(folder: Path, wanted: Facts, command: str) -> None:
    """Make the folder of any study, or check that its settings are these."""
    path = folder / "settings.json"
    if path.exists():
        found = _read(path)
        for key, value in wanted.items():
            if found.get(key) != value:
                raise ResultsError(
                    f"{folder}: holds results with {key} = {found.get(key)}, not {value}; give another --out."
                )
        return
    if folder.exists() and (not folder.is_dir() or any(path.name != "runs" for path in folder.iterdir())):
        raise ResultsError(f"{folder}: exists and holds no results of {command}; give another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    atomic.save_json(path, wanted)  # first, so that a stop in between leaves a folder that can be used
    (folder / "runs").mkdir(exist_ok=True)


def settings_of(folder: Path, version: str) -> tuple[Profile, Variant]:
    """Profile and variant of a results folder."""
    path = folder / "settings.json"
    found = study_settings(folder, version, "bisimetric paper")
    try:
        return PROFILES[str(found["profile"])], Variant(*(str(found[key]) for key in Variant().describe()))
    except (KeyError, ValueError, TypeError) as error:
        raise ResultsError(f"{path}: damaged ({error}).") from None


def study_settings(folder: Path, version: str, command: str) -> Facts:
    """The settings of the results folder of any study, which must be of this version."""
    path = folder / "settings.json"
    if not path.exists():
        raise ResultsError(f"{folder}: no results folder (it has no settings.json); make one with {command} run.")
    found = _read(path)
    if found.get("format") != FORMAT or found.get("version") != version:
        raise ResultsError(
            f"{folder}: holds results of bisimetric {found.get('version')}, and this is {version}; run them anew."
        )
    return found


def _read(path: Path) -> Facts:
    try:
        found = json.loads(path.read_text())
        return dict(found)
    except (ValueError, TypeError):
        raise ResultsError(f"{path}: damaged; give another --out.") from None


def path_of(folder: Path, job: Job) -> Path:
    return folder / "runs" / f"{job_id(job)}.npz"


def save(folder: Path, job: Job, arrays: Arrays, device: str, version: str, processor: str | None = None) -> None:
    """Keep a result; it was made by this machine's device, where no other processor is named."""
    made = {
        "job": repr(job),
        "device": device,
        "version": version,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "processor": processor or backend(device, "float64").describe(),
    }
    (folder / "runs").mkdir(exist_ok=True)
    archives.save_arrays(path_of(folder, job), {**arrays, "made": np.array(json.dumps(made))})


def _read_result(path: Path, job: Job) -> tuple[Arrays, Facts]:
    if path.is_dir():
        raise ResultsError(f"{path}: damaged (it is a folder).")
    with reading(path, "a result", ResultsError):
        arrays = archives.read_arrays(path)
        made = dict(json.loads(str(arrays.pop("made"))))
        if made["job"] != repr(job):
            raise ResultsError(f"{path}: damaged (it is of another run).")
    return arrays, made


def load(folder: Path, job: Job) -> Arrays | None:
    """A result; None where there is none. Raises ResultsError for a damaged one."""
    path = path_of(folder, job)
    return _read_result(path, job)[0] if path.exists() else None


def made_by(folder: Path, job: Job) -> Facts | None:
    """What made a result; None where there is none, or a damaged one."""
    path = path_of(folder, job)
    try:
        return _read_result(path, job)[1] if path.exists() else None
    except ResultsError:
        return None


def tidy(folder: Path) -> None:
    """Remove what a process left that was stopped while writing."""
    atomic.remove_left(folder / "runs")
