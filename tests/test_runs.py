"""Run folders: what they hold, how they go on, and what they refuse."""

from __future__ import annotations

import dataclasses
import errno
import json
import os

import numpy as np
import pytest
from run_folders import MODEL, QUICK, assert_same, assert_same_state, fresh, history, model, settings, solve, start
from transports import EVERY_TRANSPORT, name

import bisimetric as bm
from bisimetric import archives, atomic
from bisimetric.policy import folder as runs


class CrashError(Exception):
    """Something that ends a run where nobody expects it."""


def at_step(k: int, error: type[BaseException]):
    def observe(step: bm.Step) -> None:
        if step.k == k:
            raise error

    return (observe,)


def test_a_folder_holds_the_run(tmp_path):
    mdp, folder = model(), fresh(tmp_path / "run")
    result = runs.run(mdp, settings(), folder)
    plain = bm.solve_policy(mdp, **{f.name: getattr(settings(), f.name) for f in dataclasses.fields(settings())})
    with np.load(folder / "result.npz", allow_pickle=False) as data:
        assert data["policy"].tobytes() == result.policy.tobytes() == plain.policy.tobytes()
        assert data["value"].tobytes() == result.value.tobytes()
        assert data["optimal_value"].tobytes() == result.optimal_value.tobytes()
        assert data["abstract_value"].tobytes() == result.abstract_value.tobytes()
        assert np.array_equal(data["class_of"], result.partition.class_of)
        assert np.array_equal(data["medoids"], result.partition.medoids)
    assert runs.read_history(folder / "history.jsonl") == list(result.history)
    facts = json.loads((folder / "summary.json").read_text())
    assert (facts["status"], facts["steps"], facts["states"]) == ("STEPS", 12, 20)
    assert (facts["error"], facts["bound"]) == (result.error, result.certificate.error)
    assert runs.read_settings(folder) == {"steps": 12}
    table = (folder / "policy.csv").read_text().splitlines()
    assert table[0] == "state,name,action,probability,value,class"
    assert len(table) == 1 + np.count_nonzero(result.policy)


@pytest.mark.parametrize(
    "change",
    [
        *({"transport": transport} for transport in EVERY_TRANSPORT),
        {"transport": bm.Sinkhorn(1.0, diagonal="zero")},
        {"transport": bm.Sinkhorn(0.02, p=2.0)},
        {"transport": bm.Sinkhorn(0.5), "dtype": "float32"},
        {"transport": bm.Exact(), "dtype": "float32"},
        {"restart_metric": True},
        {"aggregation": bm.KMedoids(6, seed=3)},
        {"optimum": False, "lump": False},
    ],
    ids=lambda change: "-".join(name(v) if isinstance(v, bm.Transport) else f"{k}" for k, v in change.items()),
)
def test_a_crash_at_any_step_leads_to_the_same_bytes(tmp_path, change):
    """Crashes with a fresh, an old and no checkpoint; then one run to the end."""
    mdp, chosen = model(), settings(**change)
    whole, broken = fresh(tmp_path / "whole"), fresh(tmp_path / "broken")
    runs.run(mdp, chosen, whole)
    for k, every in ((1, 1e9), (4, 0.0), (6, 1e9), (9, 0.0)):
        with pytest.raises(CrashError):
            runs.run(mdp, chosen, broken, checkpoint_every=every, observers=at_step(k, CrashError))
    seen: list[bm.Step] = []
    runs.run(mdp, chosen, broken, observers=(seen.append,))
    assert [step.k for step in seen] == [10, 11]  # the rest was not done again
    assert_same(whole, broken)
    assert_same_state(whole, broken)


def test_lumped_models_resume_too(tmp_path):
    mdp = bm.problems.chain(n_states=20, n_classes=5)
    whole, broken = fresh(tmp_path / "whole", mdp), fresh(tmp_path / "broken", mdp)
    runs.run(mdp, settings(), whole)
    with pytest.raises(CrashError):
        runs.run(mdp, settings(), broken, checkpoint_every=0.0, observers=at_step(5, CrashError))
    runs.run(mdp, settings(), broken)
    assert_same(whole, broken)


def test_an_interrupted_run_goes_on(tmp_path):
    mdp = model()
    whole, broken = fresh(tmp_path / "whole"), fresh(tmp_path / "broken")
    runs.run(mdp, settings(), whole)
    for k in (2, 7):
        result = runs.run(mdp, settings(), broken, observers=at_step(k, KeyboardInterrupt))
        assert result.status is bm.Status.INTERRUPTED
        assert len(result.history) == k + 1
        assert json.loads((broken / "summary.json").read_text())["status"] == "INTERRUPTED"
        assert (broken / "policy.csv").exists()  # the policy so far
    seen: list[bm.Step] = []
    runs.run(mdp, settings(), broken, observers=(seen.append,))
    assert seen[0].k == 8  # an interrupt between steps loses nothing
    assert_same(whole, broken)


def test_an_interrupt_while_a_step_is_written_down(tmp_path, monkeypatch):
    """Ctrl-C may come between any two instructions, also before the line of a step is in the file."""
    mdp = model()
    whole, broken = fresh(tmp_path / "whole"), fresh(tmp_path / "broken")
    runs.run(mdp, settings(), whole)
    line, pressed = runs._line, []

    def interrupted(step: bm.Step) -> str:
        if step.k == 4 and not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        return line(step)

    monkeypatch.setattr(runs, "_line", interrupted)
    assert runs.run(mdp, settings(), broken).status is bm.Status.INTERRUPTED
    monkeypatch.undo()
    runs.run(mdp, settings(), broken)
    assert_same(whole, broken)


@pytest.mark.parametrize("where", ["write", "fsync"])
def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch, where):
    mdp = model()
    whole, broken = fresh(tmp_path / "whole"), fresh(tmp_path / "broken")
    runs.run(mdp, settings(), whole)
    count = [0]
    target = (atomic, "write") if where == "write" else (os, "fsync")
    before = getattr(*target)

    def full(*arguments):
        count[0] += 1
        if count[0] > 7:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return before(*arguments)

    monkeypatch.setattr(*target, full)
    with pytest.raises(runs.RunFolderError, match=r"No space left on device.*last checkpoint is kept"):
        runs.run(mdp, settings(), broken, checkpoint_every=0.0)
    monkeypatch.undo()
    with np.load(broken / "checkpoint.npz") as data:
        kept = int(data["k"])
    assert 0 < kept < 12
    seen: list[bm.Step] = []
    runs.run(mdp, settings(), broken, observers=(seen.append,))
    assert seen[0].k == kept
    assert_same(whole, broken)
    assert not list(broken.glob(".*.part"))


def test_a_full_disk_when_the_result_is_written(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    before = atomic.write

    def full(path, fill):
        if path.name == "result.npz":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        before(path, fill)

    monkeypatch.setattr(atomic, "write", full)
    assert solve(MODEL, *QUICK, "--steps", 4, "--out", folder) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "No space left on device" in said[0]
    monkeypatch.undo()
    assert solve("--resume", folder, "--no-pictures", "--json") == 0
    assert (folder / "result.npz").exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.npz"
    archives.save_arrays(path, {"a": np.arange(3)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="allow_pickle"):
        archives.save_arrays(path, {"b": np.zeros(2), "a": np.array([object()])})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.npz"]
    archives.save_arrays(path, {"a": np.arange(3)})
    assert path.read_bytes() == before  # no time stamps


def test_what_a_killed_process_left_half_written_is_cleared(tmp_path):
    folder = fresh(tmp_path / "run")
    stale = folder / ".checkpoint.npz.abc123.part"
    stale.write_bytes(b"half a checkpoint")
    runs.run(model(), settings(steps=2), folder)
    assert not stale.exists()


def test_more_steps_may_be_asked_for(tmp_path, capsys):
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    assert solve(MODEL, *QUICK, "--steps", 11, "--out", whole) == 0
    assert solve(MODEL, *QUICK, "--steps", 4, "--out", grown) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 4
    assert solve("--resume", grown, "--steps", 11, "--no-pictures", "--json") == 0
    assert_same(whole, grown)
    assert runs.read_settings(grown)["steps"] == 11
    assert solve("--resume", grown, "--no-pictures", "--json") == 0  # nothing left to do
    assert_same(whole, grown)
    assert len(history(grown)) == 11


def test_one_process_at_a_time(tmp_path):
    folder = tmp_path / "run"
    assert solve(MODEL, *QUICK, "--steps", 3, "--out", folder) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with runs.locked(folder):
        process = start("--resume", folder, "--steps", 99)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "another process is working in this run folder" in said
    assert "Traceback" not in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before  # not a byte was changed
    assert solve("--resume", folder, "--no-pictures") == 0
