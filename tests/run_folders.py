"""What the tests of run folders share: starting runs, and comparing what they leave behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import bisimetric as bm
from bisimetric import cli
from bisimetric.policy import folder as runs

PROGRAM = (sys.executable, "-c", "from bisimetric.cli import main; main()")
MODEL = "problem:chain?n_states=20&n_classes=5&mixing=0.2"
QUICK = ("--noise", "0.05,0.1", "--sweeps", "5", "--no-pictures", "--json")


def settings(**changes) -> bm.PolicySettings:
    """A short noisy run."""
    chosen = {"greedy_noise": (0.05, 0.1), "step_size": bm.PowerDecay(0.8, 2**-4), "sweeps": 5, "steps": 12}
    return bm.PolicySettings(**{**chosen, **changes})


def model() -> bm.MDP:
    return bm.problems.chain(n_states=20, n_classes=5, mixing=0.2)


def fresh(folder: Path, mdp: bm.MDP | None = None) -> Path:
    runs.begin(folder, {"steps": 12}, mdp or model())
    return folder


def history(folder: Path) -> list[dict]:
    """The history without its times."""
    steps = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in step.items() if key not in runs.TIMES} for step in steps]


def summary(folder: Path) -> dict:
    facts = json.loads((folder / "summary.json").read_text())
    del facts["seconds"]
    return facts


def assert_same(one: Path, two: Path) -> None:
    """Equal results, byte for byte; times aside."""
    assert (one / "result.npz").read_bytes() == (two / "result.npz").read_bytes()
    assert (one / "policy.csv").read_bytes() == (two / "policy.csv").read_bytes()
    assert history(one) == history(two)
    assert summary(one) == summary(two)


def assert_same_state(one: Path, two: Path) -> None:
    """Equal checkpoints, array for array."""
    with np.load(one / "checkpoint.npz") as a, np.load(two / "checkpoint.npz") as b:
        assert a.files == b.files
        for name in a.files:
            assert a[name].tobytes() == b[name].tobytes(), name


def solve(*arguments: str | Path) -> int:
    """The command line in this process."""
    return cli.run(["solve", *(str(argument) for argument in arguments)])


def start(*arguments: str | Path) -> subprocess.Popen:
    """The command line in a process of its own."""
    command = [*PROGRAM, "solve", *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_steps(process: subprocess.Popen, folder: Path, count: int, seconds: float = 300.0) -> None:
    """Wait until the history has `count` lines; the process must still be at work then."""
    end = time.monotonic() + seconds
    path = folder / "history.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        if process.poll() is not None:
            raise AssertionError(f"ended before step {count}: {process.communicate()}")
        if time.monotonic() > end:
            process.kill()
            raise AssertionError(f"step {count} was not reached in {seconds} s")
        time.sleep(0.005)
