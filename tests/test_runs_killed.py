"""Runs that are killed for real, at random moments, and go on to the same bytes."""

from __future__ import annotations

import json
import signal
import time

import numpy as np
import pytest
from run_folders import assert_same, assert_same_state, start, wait_for_steps

MODEL = "problem:chain?n_states=40&n_classes=4&mixing=0.3"
WORK = ("--noise", "0.05,0.1", "--checkpoint-every", "0.05", "--no-pictures", "--json")


@pytest.mark.parametrize(("transport", "steps"), [("exact", 220), ("sinkhorn:1.0", 120)])
def test_killed_runs_reach_the_same_result(tmp_path, transport, steps):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = (MODEL, *WORK, "--transport", transport, "--steps", steps)
    reference = start(*arguments, "--out", whole)
    rng = np.random.default_rng(len(transport))
    process = start(*arguments, "--out", killed)
    for step in sorted(rng.choice(np.arange(1, steps - steps // 5), 3, replace=False)):
        wait_for_steps(process, killed, int(step))
        time.sleep(rng.uniform(0.0, 0.06))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL
        assert not (killed / "result.npz").exists()
        process = start("--resume", killed, "--checkpoint-every", "0.05", "--no-pictures", "--json")
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert json.loads(out)["steps"] == steps
    _, said = reference.communicate(timeout=300)
    assert reference.returncode == 0, said
    assert_same(whole, killed)
    assert_same_state(whole, killed)


def test_an_interrupted_process_says_how_to_go_on(tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    arguments = (MODEL, *WORK, "--transport", "sinkhorn:1.0", "--steps", 60)
    reference = start(*arguments, "--out", whole)
    process = start(*arguments, "--out", stopped)
    for step in (7, 25):
        wait_for_steps(process, stopped, step)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=300)
        assert process.returncode == 130, said
        assert f"bisimetric solve --resume {stopped}" in said
        assert "Traceback" not in said
        assert json.loads(out)["status"] == "INTERRUPTED"
        process = start("--resume", stopped, "--no-pictures", "--json")
    process.communicate(timeout=300)
    assert (process.returncode, reference.wait(timeout=300)) == (0, 0)
    reference.communicate()
    assert_same(whole, stopped)


@pytest.mark.slow
def test_a_hundred_kills(tmp_path):
    """Killed at any moment, start-up and the last writes included, a run goes on to the same bytes."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = (MODEL, *WORK, "--transport", "sinkhorn:1.0", "--steps", 4000)
    arguments = tuple(0 if one == "0.05" else one for one in arguments)  # a checkpoint after every step
    process = start(*arguments, "--out", killed)
    rng = np.random.default_rng(0)
    steps = []
    for _ in range(100):
        time.sleep(rng.uniform(0.2, 3.0))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL
        assert not (killed / "result.npz").exists()
        steps.append((killed / "history.jsonl").read_bytes().count(b"\n") if (killed / "history.jsonl").exists() else 0)
        begun = (killed / "settings.json").exists()
        again = ("--resume", killed) if begun else (*arguments, "--out", killed)
        process = start(*again, "--checkpoint-every", "0", "--no-pictures", "--json")
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=300)
    assert process.returncode in (130, -signal.SIGINT), said
    done = max(steps[-1], 1)
    assert steps[-1] > 0
    last = start("--resume", killed, "--steps", done + 5, "--no-pictures", "--json")
    out, said = last.communicate(timeout=300)
    assert last.returncode == 0, said
    assert json.loads(out)["steps"] == done + 5
    reference = start(*arguments[:-1], done + 5, "--out", whole)
    _, said = reference.communicate(timeout=600)
    assert reference.returncode == 0, said
    assert_same(whole, killed)
    assert_same_state(whole, killed)
