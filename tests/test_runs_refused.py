"""Run folders that cannot be used: one line that says why, exit status 2, and nothing changed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from run_folders import MODEL, QUICK, assert_same, history, solve

import bisimetric as bm
from bisimetric.policy import folder as runs


@pytest.fixture
def folder(tmp_path, capsys):
    """A run of 6 steps."""
    path = tmp_path / "run"
    assert solve(MODEL, *QUICK, "--steps", 6, "--out", path) == 0
    capsys.readouterr()
    return path


def refused(capsys, *arguments) -> str:
    """The one line on stderr of a command that fails with status 2."""
    assert solve(*arguments) == 2
    out, said = capsys.readouterr()
    assert out == ""
    lines = [line for line in said.splitlines() if not line.startswith("MDP(")]
    assert len(lines) == 1, said
    assert lines[0].startswith("bisimetric: ")
    return lines[0]


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (("--eps", "0.2"), "eps: the default in the folder, 0.2 given"),
        (("--seed", "5"), "seed: the default in the folder, 5 given"),
        (("--transport", "sinkhorn:1.0"), "transport: the default in the folder, 'sinkhorn:1.0' given"),
        (("--noise", "none"), "noise: '0.05,0.1' in the folder, 'none' given"),
        (("problem:chain",), "model: "),
    ],
)
def test_settings_cannot_change(folder, capsys, change, shown):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert shown in refused(capsys, *change, "--resume", folder, "--steps", 9)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert solve("--resume", folder, "--sweeps", 5, MODEL, "--no-pictures") == 0  # the same as before


def test_a_changed_model_or_policy(tmp_path, capsys):
    path, policy = tmp_path / "model.npz", tmp_path / "policy.npy"
    bm.write(bm.problems.garnet(n_states=6, seed=0), path)
    np.save(policy, np.full((6, 2), 0.5))
    arguments = (path, "--policy", policy, "--steps", 3, "--no-pictures", "--json", "--out", tmp_path / "run")
    assert solve(*arguments) == 0
    capsys.readouterr()
    np.save(policy, np.tile([0.25, 0.75], (6, 1)))
    assert "first policy is not the one" in refused(capsys, "--resume", tmp_path / "run")
    np.save(policy, np.full((6, 2), 0.5))
    bm.write(bm.problems.garnet(n_states=6, seed=1), path)
    assert "model is not the one that this run began with" in refused(capsys, "--resume", tmp_path / "run")


def test_folders_that_are_no_runs(tmp_path, capsys):
    assert "no such run folder" in refused(capsys, "--resume", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    assert "not a run folder (it has no settings.json)" in refused(capsys, "--resume", tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not empty; choose an empty folder" in refused(capsys, MODEL, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_old_run_is_not_overwritten(folder, capsys):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "is not empty; use --resume to go on with it" in refused(capsys, MODEL, *QUICK, "--out", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        "5",
        '{"version": 3}',
        '{"settings": {}}',
        '{"version": 3, "settings": {}}',
        '{"version": 3, "settings": 5}',
        '{"version": 3, "settings": "abc"}',
        "\x00" * 200,
    ],
)
def test_damaged_settings(folder, capsys, text):
    (folder / "settings.json").write_text(text)
    said = refused(capsys, "--resume", folder)
    assert "settings.json" in said
    assert "damaged" in said


def test_settings_with_an_entry_missing(folder, capsys):
    data = json.loads((folder / "settings.json").read_text())
    for key in ("model", "policy_hash", "noise"):
        less = {**data, "settings": {name: value for name, value in data["settings"].items() if name != key}}
        (folder / "settings.json").write_text(json.dumps(less))
        assert "settings.json" in refused(capsys, "--resume", folder)


def test_another_version(folder, capsys):
    data = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps({**data, "version": 99}))
    assert "written by another version (99; this one writes 3)" in refused(capsys, "--resume", folder)


def checkpoint_damages(data: bytes) -> list[bytes]:
    rng = np.random.default_rng(0)
    entry = data.index(b"PK\x01\x02")  # of the archive's table: version, flags and method at 6, 8 and 10
    places = [*rng.integers(0, len(data), 60), *rng.integers(0, 60, 30), *(len(data) - rng.integers(1, 400, 60))]
    bits = [(place, int(rng.integers(1, 256))) for place in places]
    flipped = []
    for place, bit in [*bits, (entry + 6, 128), (entry + 8, 1), (entry + 10, 64)]:
        copy = bytearray(data)
        copy[place] ^= bit
        flipped.append(bytes(copy))
    return [b"", b"PK\x03\x04", b"\x00" * 500, data[: len(data) // 2], data[:-30], b"text", *flipped]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy.load leaves a bad zip open
def test_a_damaged_checkpoint_is_never_used(folder, capsys):
    """Cut off, zeroed, or with one byte changed: refused with the remedy, or as good as before."""
    path = folder / "checkpoint.npz"
    data = path.read_bytes()
    wanted = history(folder)
    result = (folder / "result.npz").read_bytes()
    raised, refusals = [], 0
    for damaged in checkpoint_damages(data):
        path.write_bytes(damaged)
        try:
            status = solve("--resume", folder, "--no-pictures", "--json")
        except Exception as error:
            raised.append(repr(error))
            continue
        out, said = capsys.readouterr()
        if status == 2:
            refusals += 1
            assert "checkpoint.npz: damaged" in said, said
            assert "Delete this file to begin the run again" in said
        else:
            assert (status, out[:1]) == (0, "{")
            assert (folder / "result.npz").read_bytes() == result
            assert history(folder) == wanted
    assert refusals > 50
    assert not raised, f"{len(raised)} tracebacks, such as {sorted(set(raised))[:5]}"
    path.unlink()
    assert solve("--resume", folder, "--no-pictures", "--json") == 0  # the remedy works
    assert (folder / "result.npz").read_bytes() == result


def test_a_line_cut_short_is_repaired(folder, tmp_path):
    whole = tmp_path / "whole"
    assert solve(MODEL, *QUICK, "--steps", 9, "--out", whole) == 0
    with open(folder / "history.jsonl", "a") as log:
        log.write('{"k": 6, "error": 0.1')
    assert [step.k for step in runs.read_history(folder / "history.jsonl")] == list(range(6))
    assert solve("--resume", folder, "--steps", 9, "--no-pictures", "--json") == 0
    assert_same(whole, folder)


def test_steps_after_the_checkpoint_are_done_again(folder, tmp_path):
    whole = tmp_path / "whole"
    assert solve(MODEL, *QUICK, "--steps", 9, "--out", whole) == 0
    lines = (whole / "history.jsonl").read_text().splitlines()
    with open(folder / "history.jsonl", "a") as log:
        log.write(lines[6].replace('"alpha": ', '"alpha": 9') + "\n")  # from the time after the checkpoint
    assert solve("--resume", folder, "--steps", 9, "--no-pictures", "--json") == 0
    assert_same(whole, folder)


@pytest.mark.parametrize("keep", [0, 3, 5])
def test_a_history_shorter_than_its_checkpoint(folder, capsys, keep):
    path = folder / "history.jsonl"
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:keep]))
    said = refused(capsys, "--resume", folder, "--steps", 9)
    assert f"has {keep} steps, the checkpoint is of step 6; the folder is damaged" in said
    path.unlink()
    assert "has 0 steps" in refused(capsys, "--resume", folder)


def test_a_history_with_a_bad_line(folder, capsys):
    path = folder / "history.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "garbage", *lines[2:]]) + "\n")
    assert "line 2 is damaged" in refused(capsys, "--resume", folder)
    path.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    assert "the folder is damaged" in refused(capsys, "--resume", folder)
