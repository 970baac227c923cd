"""convert, lump, metric, solve and info on model files and Gymnasium environments, through the command line."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from model_equality import assert_same
from model_files import DRN, reread

import bisimetric as bm
from bisimetric.cli import run

TWINS = """@type: MDP
@parameters

@reward_models
r q
@nr_states
3
@nr_choices
4
@model
state 0 init
//[x=0]
\taction go [0, 5]
\t\t1 : 0.5
\t\t2 : 0.5
\taction wait [0.25, 5]
\t\t0 : 1
state 1 special
//[x=1]
\taction stay [1, 5]
\t\t1 : 1
state 2
//[x=2]
\taction rest [1, 7]
\t\t2 : 1
"""


@pytest.fixture
def drn(tmp_path):
    (tmp_path / "model.drn").write_text(TWINS)
    return tmp_path / "model.drn"


def json_of(capsys, *arguments, status=0):
    assert run([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("ending", ["npz", "drn", "tra", "csv"])
def test_convert(drn, ending, capsys):
    out = drn.parent / f"out.{ending}"
    assert run(["convert", str(drn), str(out), "--gamma", "0.8", "--reward", "r"]) == 0
    assert str(out) in capsys.readouterr().out
    mdp, again = reread(drn, 0.8), reread(out, None if ending == "npz" else 0.8)
    assert again.gamma == 0.8
    assert np.array_equal(again.rows.matrix().toarray(), mdp.rows.matrix().toarray())
    assert np.array_equal(again.rewards, mdp.rewards)
    if ending != "csv":
        assert again.state_labels["special"].tolist() == [False, True, False]
        assert again.reward_models["q"].tolist() == [5.0, 5.0, 5.0, 7.0]


@pytest.mark.parametrize("ending", ["npz", "drn", "tra", "csv"])
@pytest.mark.parametrize(
    ("options", "rewards"),
    [
        (["--reward", "r", "--costs"], [0, -0.25, -1, -1]),
        (["--reward", "q"], [5, 5, 5, 7]),
        (["--reward", "none"], [0, 0, 0, 0]),
        (["--reward", "q", "--costs"], [-5, -5, -5, -7]),
    ],
)
def test_convert_writes_the_rewards_that_were_chosen(drn, ending, options, rewards):
    out = drn.parent / f"out.{ending}"
    assert run(["convert", str(drn), str(out), "--gamma", "0.8", *options]) == 0
    assert reread(out, 0.8).rewards.tolist() == rewards


def test_convert_to_npz_needs_a_discount(drn, capsys):
    for command in ("convert", "lump"):
        to = [str(drn.parent / "out.npz")] if command == "convert" else ["-o", str(drn.parent / "out.npz")]
        assert run([command, str(drn), *to, "--reward", "r"]) == 2
        assert "--gamma" in capsys.readouterr().err
        assert not (drn.parent / "out.npz").exists()
    assert run(["convert", str(drn), str(drn.parent / "out.csv"), "--reward", "r"]) == 0


@pytest.mark.parametrize("command", [["metric", "--gamma", "0.9"], ["solve", "--gamma", "0.9"], ["lump"]])
def test_one_of_several_rewards_must_be_chosen(drn, command, capsys, monkeypatch):
    monkeypatch.chdir(drn.parent)
    assert run([command[0], "model.drn", *command[1:]]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "bisimetric: model.drn: has 2 reward models (r, q); give --reward NAME, or --reward none.\n",
    )
    with pytest.raises(bm.ModelError, match=r"2 reward models \(r, q\); choose one. Give reward=NAME"):
        bm.read(drn, 0.9)
    assert bm.read(drn, 0.9, reward="q").reward_name == "q"
    assert run(["convert", "model.drn", "all.npz", "--gamma", "0.9"]) == 0  # keeps both, and chooses none
    with pytest.raises(bm.ModelError, match="2 reward models"):
        bm.read("all.npz")
    assert bm.read("all.npz", reward="q").rewards.tolist() == [5, 5, 5, 7]


@pytest.mark.parametrize("out", ["out.umb", "out.xyz", "no/folder/out.drn", "."])
def test_outputs_that_cannot_be_written(drn, out, capsys):
    before = sorted(drn.parent.iterdir())
    for command in (
        ["convert", str(drn), str(drn.parent / out), "--gamma", "0.9"],
        ["lump", str(drn), "-o", str(drn.parent / out)],
    ):
        assert run(command) == 2
        printed, err = capsys.readouterr()
        assert (printed, err.count("\n")) == ("", 1)
    assert sorted(drn.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "classes"),
    [
        (["--reward", "r"], 3),
        (["--reward", "r", "--respect", ""], 2),
        (["--reward", "r", "--respect", "init"], 2),
        (["--reward", "r", "--respect", "special"], 3),
        (["--reward", "all", "--respect", ""], 3),
        (["--reward", "q", "--respect", ""], 3),
        (["--reward", "none", "--respect", ""], 2),
        (["--reward", "none", "--respect", "", "--match", "hausdorff"], 1),
        (["--reward", "r", "--respect", "", "--match", "hausdorff"], 2),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_lump_counts(drn, options, classes, capsys):
    facts = json_of(capsys, "lump", str(drn), *options)
    assert (facts["states"], facts["choices"], facts["classes"]) == (3, 4, classes)
    assert run(["lump", str(drn), *options]) == 0
    assert re.search(rf"classes +{classes} ", capsys.readouterr().out)


def test_lump_writes_the_quotient_and_the_map(drn, capsys):
    out, table = drn.parent / "small.drn", drn.parent / "classes.csv"
    facts = json_of(capsys, "lump", str(drn), "--reward", "r", "--respect", "", "-o", str(out), "--map", str(table))
    assert (facts["output"], facts["map"], facts["largest_class"]) == (str(out), str(table), 2)
    small = reread(out, 0.9)
    assert_same(small, reread(out, 0.9))
    assert np.array_equal(small.rows.matrix().toarray(), [[0, 1], [1, 0], [0, 1]])
    assert small.rewards.tolist() == [0.0, 0.25, 1.0]
    assert small.action_names == ("go", "wait", "stay")
    with open(table, newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["state"], row["name"], row["class"], row["representative"]) for row in rows] == [
        ("0", "x=0", "0", "0"),
        ("1", "x=1", "1", "1"),
        ("2", "x=2", "1", "1"),
    ]


@pytest.mark.parametrize(
    "options",
    [["--respect", "none such"], ["--match", "sets"], ["--reward", "none such"], ["--tol", "0"], ["--tol", "x"]],
)
def test_lump_refuses(drn, options, capsys):
    assert run(["lump", str(drn), "--map", str(drn.parent / "m.csv"), *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert not (drn.parent / "m.csv").exists()


def test_metric_of_a_file(drn, capsys):
    out = drn.parent / "d.npz"
    facts = json_of(capsys, "metric", str(drn), "--gamma", "0.5", "--reward", "r", "--match", "labels", "-o", str(out))
    assert (facts["status"], facts["states"], facts["gamma"]) == ("CONVERGED", 3, 0.5)
    with np.load(out) as data:
        assert data["distance"][1, 2] == 2.0  # the label keeps them apart
        assert data["state_names"].tolist() == ["x=0", "x=1", "x=2"]
    plain = json_of(capsys, "metric", str(drn), "--gamma", "0.5", "--reward", "q", "--costs", "--no-lump")
    chain = reread(drn, 0.5).with_reward("q")
    expected = bm.solve_metric(chain.under(chain.uniform_policy())).distance.max()
    assert plain["largest_distance"] == pytest.approx(expected, abs=1e-5)
    assert run(["metric", str(drn)]) == 2
    assert "--gamma" in capsys.readouterr().err


def test_solve_writes_the_policy_with_the_models_own_names(drn, capsys):
    folder = drn.parent / "run"
    base = ["solve", str(drn), "--gamma", "0.5", "--reward", "r", "--eps", "0.001", "--no-pictures"]
    facts = json_of(capsys, *base, "--out", str(folder))
    assert facts["error"] < 1e-9
    with open(folder / "policy.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    chosen = {row["name"]: row["action"] for row in rows if float(row["probability"]) > 0.5}
    assert chosen == {"x=0": "go", "x=1": "stay", "x=2": "rest"}
    values = {row["name"]: float(row["value"]) for row in rows}
    assert values == pytest.approx({"x=0": 1.0, "x=1": 2.0, "x=2": 2.0})
    costs = json_of(capsys, *base, "--out", str(drn.parent / "run2"), "--costs")
    assert costs["error"] < 1e-9
    with open(drn.parent / "run2" / "policy.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert next(float(row["value"]) for row in rows if row["name"] == "x=0") == pytest.approx(-0.5)


def test_info(drn, capsys):
    facts = json_of(capsys, "info", str(drn))
    assert (facts["states"], facts["choices"], facts["transitions"], facts["choices_per_state"]) == (3, 4, 5, [1, 2])
    assert (facts["reward"], facts["gamma"]) == (None, None)  # neither is invented
    assert facts["reward_models"] == ["r", "q"]
    assert facts["labels"] == {"init": 1, "special": 1}
    assert json_of(capsys, "info", str(drn), "--reward", "q", "--gamma", "0.3")["reward_range"] == [5.0, 7.0]
    assert run(["info", str(drn)]) == 0
    page = capsys.readouterr().out
    assert re.search(r"states +3", page)
    assert "none in the file; give --gamma" in page
    (drn.parent / "other.drn").write_text(DRN)
    assert json_of(capsys, "info", str(drn.parent / "other.drn"))["states"] == 2


def test_gymnasium_through_the_command_line(tmp_path, capsys):
    pytest.importorskip("gymnasium")
    lake = "gym:FrozenLake-v1?is_slippery=false"
    assert json_of(capsys, "info", lake, "--gamma", "0.9")["states"] == 17
    assert run(["convert", lake, str(tmp_path / "lake.npz"), "--gamma", "0.9"]) == 0
    capsys.readouterr()
    assert_same(reread(tmp_path / "lake.npz"), bm.from_gymnasium("FrozenLake-v1", 0.9, is_slippery=False))
    classes = json_of(capsys, "lump", lake)["classes"]
    assert classes == bm.lump(reread(tmp_path / "lake.npz")).n_classes < 17
    facts = json_of(
        capsys,
        "solve",
        lake,
        "--gamma",
        "0.9",
        "--eps",
        "1e-6",
        "--alpha",
        "1",
        "--no-pictures",
        "--out",
        str(tmp_path / "run"),
    )
    assert facts["error"] < 1e-6
    with open(tmp_path / "run" / "policy.csv", newline="") as stream:
        first = next(csv.DictReader(stream))
    assert float(first["value"]) == pytest.approx(0.9**5)
