"""bisimetric solve and aggregate on the command line: what they print, write, and refuse."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from run_folders import MODEL, QUICK

from bisimetric import cli
from bisimetric.policy import folder as runs


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """Commands run in an empty folder of their own."""
    monkeypatch.chdir(tmp_path)


def png_pixels(path: Path) -> np.ndarray:
    """The unfiltered bytes of a PNG file, after checking its structure and check sums."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, packed, kinds = 8, b"", []
    while place < len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        assert struct.unpack(">I", data[place + 8 + length : place + 12 + length])[0] == zlib.crc32(kind + body)
        kinds.append(kind)
        packed += body if kind == b"IDAT" else b""
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        place += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, -1)
    assert rows.shape[1] > width > 500
    assert height > 300
    return rows


def test_solve_prints_a_table_and_draws(capsys):
    pytest.importorskip("matplotlib")
    arguments = ["solve", "problem:chain?n_states=20&n_classes=5", "--noise", "0.05,0.1", "--steps", "8"]
    assert cli.run([*arguments, "--out", "run"]) == 0
    out, said = capsys.readouterr()
    for words in ("states", "classes found", "the model was made with 5", "error to the optimum", "certified bound"):
        assert words in out
    for words in (
        "pictures",
        "run/progress.png",
        "run/values.png",
        "run/result.npz",
        "run/policy.csv",
        "all steps done",
    ):
        assert words in out
    assert "run folder run" in said
    assert "step 8: error" in said
    for name in ("progress", "values"):
        pixels = png_pixels(Path("run") / f"{name}.png")
        assert len(np.unique(pixels)) > 20
        assert Path("run", f"{name}.svg").read_text().rstrip().endswith("</svg>")
    assert sorted(os.listdir()) == ["run"]


def test_json(capsys):
    assert cli.run(["solve", MODEL, *QUICK, "--steps", "5", "--out", "run"]) == 0
    out, said = capsys.readouterr()
    assert said == ""
    facts = json.loads(out)
    assert out.count("\n") == 1
    assert (facts["status"], facts["states"], facts["steps"], facts["folder"]) == ("STEPS", 20, 5, "run")
    assert 0.0 <= facts["error"] <= facts["bound"]
    assert facts["pictures"] == []
    assert len(facts["theorems"]) == 3
    stored = json.loads(Path("run/summary.json").read_text())
    assert {key: facts[key] for key in stored} == stored
    assert not list(Path("run").glob("*.png"))


def test_the_first_free_folder_is_taken(capsys):
    for wanted in ("bisimetric-run", "bisimetric-run-2", "bisimetric-run-3"):
        assert cli.run(["solve", MODEL, *QUICK, "--steps", "1"]) == 0
        assert json.loads(capsys.readouterr().out)["folder"] == wanted
    assert sorted(os.listdir()) == ["bisimetric-run", "bisimetric-run-2", "bisimetric-run-3"]


def test_every_setting_reaches_the_run(capsys):
    policy = np.random.default_rng(0).dirichlet([1.0, 1.0], size=20)
    np.savetxt("first.txt", policy)
    arguments = {
        "--transport": "sinkhorn:0.5,cost=value,diagonal=zero",
        "--k": "7",
        "--alpha": "0.25",
        "--sweeps": "3",
        "--noise": "0.01,0.2",
        "--steps": "4",
        "--seed": "9",
        "--policy": "first.txt",
        "--dtype": "float32",
        "--target": "1e-9",
        "--gamma": "0.7",
    }
    flags = [part for pair in arguments.items() for part in pair]
    assert cli.run(["solve", MODEL, *flags, "--naive", "--no-optimum", "--no-pictures", "--out", "run"]) == 1
    out = capsys.readouterr().out
    assert "error to the optimum" not in out
    settings = runs.read_settings(Path("run"))
    assert (settings["k"], settings["alpha"], settings["sweeps"], settings["naive"]) == (7, "0.25", 3, True)
    steps = runs.read_history(Path("run/history.jsonl"))
    assert {(step.n_classes, step.alpha, step.error) for step in steps} == {(7, 0.25, None)}
    assert all(step.sweeps <= 3 and 0.01 <= step.delta <= 0.2 for step in steps)
    with np.load("run/checkpoint.npz") as data:
        assert data["distance"].dtype == np.float32
        moved = data["policy"] - 0.75**4 * policy.reshape(-1)
        assert moved.min() > -1e-12
        assert np.allclose(moved.reshape(20, 2).sum(axis=1), 1.0 - 0.75**4)


def test_exit_status_says_whether_the_target_was_met(capsys):
    easy = ["solve", "problem:chain?n_states=20&n_classes=5", "--alpha", "0.9", "--no-pictures"]
    assert cli.run([*easy, "--target", "0.5", "--out", "met"]) == 0
    assert "the certified bound reached the target" in capsys.readouterr().out
    assert cli.run([*easy, "--target", "0.5", "--steps", "1", "--out", "missed"]) == 1
    assert cli.run([*easy, "--out", "settled"]) == 0
    assert "nothing changes any more" in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(3))
def test_success_means_that_the_policy_meets_the_target(capsys, seed):
    arguments = ["--noise", "0.05,0.5", "--alpha", "1", "--target", "3", "--steps", "60", "--seed", str(seed)]
    status = cli.run(["solve", MODEL, *arguments, "--no-pictures", "--json", "--out", "run"])
    facts = json.loads(capsys.readouterr().out)
    assert (status == 0) == (facts["bound"] <= 3.0), facts


BAD = [
    (["--alpha", "0"], "alpha must be in (0, 1]; got 0.0"),
    (["--alpha", "2"], "alpha must be in (0, 1]; got 2.0"),
    (["--alpha", "fast"], "--alpha fast: give a number in (0, 1], decay:POWER,FLOOR or theory"),
    (["--alpha", "decay:0.8,7"], "floor must be in (0, 1]"),
    (["--alpha", "decay:1,2,3"], "--alpha decay:1,2,3: give"),
    (["--alpha", "theory:x"], "--alpha theory:x: give"),
    (["--alpha", "theory", "--sweeps", "5"], "use sweeps = 28 or more"),
    (["--eps", "-1"], "eps must be finite and not negative; got -1"),
    (["--eps", "nan"], "eps must be"),
    (["--eps", "wide"], "eps"),
    (["--rule", "ball"], 'rule must be "radius" or "diameter"'),
    (["--k", "0"], "k must be at least 1"),
    (["--k", "21"], "--k 21: the model has only 20 states"),
    (["--noise", "loud"], "--noise loud: give LOW,HIGH or none"),
    (["--noise", "0.1"], "--noise 0.1: give LOW,HIGH or none"),
    (["--noise", "0.2,0.1"], "--noise must be (low, high)"),
    (["--steps", "0"], "steps must be at least 1"),
    (["--sweeps", "0"], "sweeps must be at least 1"),
    (["--target", "0"], "target must be positive"),
    (["--transport", "teleport"], "unknown transport 'teleport'"),
    (["--transport", "sinkhorn:-1"], "reg must be positive"),
    (["--transport", "sinkhorn:1.0", "--lump"], "exact for Exact"),
    (["--device", "tpu"], 'device must be "cpu"'),
    (["--dtype", "float16"], "dtype must be"),
    (["--seed", "-1"], "seed"),
    (["--policy", "nowhere.npy"], "nowhere.npy: no such file"),
    (["--policy", "wrong.npy"], "one probability per choice: [40] or [20, 2]"),
    (["--policy", "unnamed.npz"], "unnamed.npz: has no entry 'policy'"),
    (["--policy", "empty.npy"], "empty.npy"),
    (["--policy", "cut.npz"], "cut.npz"),
    (["--policy", "words.txt"], "words.txt"),
    (["--resume", "old"], "--out (a new run) or --resume (an old one), not both"),
    (["--no-such-flag"], "no-such-flag"),
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy.load leaves a bad zip open
@pytest.mark.parametrize(("arguments", "words"), BAD, ids=lambda x: " ".join(x) if isinstance(x, list) else "")
def test_bad_input_is_one_line_and_leaves_nothing_behind(capsys, arguments, words):
    np.save("wrong.npy", np.ones((3, 3)))
    np.savez("unnamed.npz", weights=np.ones(40))
    Path("empty.npy").touch()
    Path("cut.npz").write_bytes(Path("unnamed.npz").read_bytes()[:40])
    Path("words.txt").write_text("to be or not to be\n")
    before = sorted(os.listdir())
    assert cli.run(["solve", MODEL, "--no-pictures", *arguments, "--out", "run"]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert words in said
    assert sorted(os.listdir()) == before, "a run folder was made for settings that cannot be run"
    assert len(said.splitlines()) == 1
    assert said.startswith("bisimetric: ")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("problem:chian", "unknown problem 'chian'. Did you mean 'chain'?"),
        ("problem:chain?n_stats=3", "has no argument 'n_stats'. Did you mean 'n_states'?"),
        ("problem:chain?n_states=7&n_classes=3", "multiple of n_classes"),
        ("nowhere.npz", "nowhere.npz: no such file"),
    ],
)
def test_bad_models(capsys, model, words):
    assert cli.run(["solve", model, "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert os.listdir() == []


def test_a_folder_that_cannot_be_made(capsys):
    Path("file").touch()
    assert cli.run(["solve", MODEL, "--out", "file"]) == 2
    assert "file: cannot be written" in capsys.readouterr().err
    assert cli.run(["solve", MODEL, "--out", "file/run"]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.fixture
def metric_file(capsys) -> Path:
    assert cli.run(["metric", "problem:chain?n_states=20&n_classes=5", "-o", "d.npz"]) == 0
    capsys.readouterr()
    return Path("d.npz")


@pytest.mark.parametrize("how", [["--eps", "1e-5"], ["--eps", "1e-5", "--rule", "diameter"], ["--k", "5"]])
def test_aggregate(metric_file, capsys, how):
    assert cli.run(["aggregate", str(metric_file), *how, "--json", "-o", "classes.npz"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["states"], facts["classes"], facts["largest_class"]) == (20, 5, 4)
    assert (facts["purity"], facts["nmi"]) == (1.0, pytest.approx(1.0))
    assert facts["radius"] <= facts["diameter"] <= 1e-5
    with np.load("classes.npz") as data:
        assert np.array_equal(data["class_of"], np.repeat(np.arange(5), 4))
        assert np.array_equal(data["class_of"][data["medoids"]], np.arange(5))
    assert cli.run(["aggregate", str(metric_file), *how]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["classes", "5"] for line in lines)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy.load leaves a bad zip open
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["d.npz"], "give --eps or --k"),
        (["d.npz", "--eps", "0.1", "--k", "2"], "give --eps or --k"),
        (["d.npz", "--eps", "-0.1"], "eps must be finite and not negative"),
        (["d.npz", "--k", "0"], "k must be at least 1"),
        (["d.npz", "--k", "21"], "k = 21 classes cannot be made of 20 states"),
        (["d.npz", "--eps", "0.1", "--rule", "ball"], "rule must be"),
        (["none.npz", "--eps", "0.1"], "none.npz: No such file"),
        (["text.npz", "--eps", "0.1"], "text.npz: not a metric file"),
        (["empty.npz", "--eps", "0.1"], "empty.npz: not a metric file"),
        (["other.npz", "--eps", "0.1"], "other.npz: not a metric file"),
        (["array.npy", "--eps", "0.1"], "array.npy: not a metric file"),
        (["d.npz", "--eps", "0.1", "-o", "no/such/folder.npz"], "cannot be written"),
    ],
)
def test_aggregate_refuses(metric_file, capsys, arguments, words):
    Path("text.npz").write_text("text")
    Path("empty.npz").touch()
    np.savez("other.npz", a=np.ones(3))
    np.save("array.npy", np.ones((3, 3)))
    before = sorted(os.listdir())
    assert cli.run(["aggregate", *arguments]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert words in said
    assert len(said.splitlines()) == 1
    assert sorted(os.listdir()) == before
