"""The command line: results, exit statuses, one line for a mistake, and files that are whole or absent."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bisimetric as bm
from bisimetric.cli import run

SMALL = "problem:chain?n_states=20&n_classes=5"
MODULE = [sys.executable, "-c", "from bisimetric.cli import main; main()"]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)


def strict(text):
    """Parse JSON as the standard has it: no NaN, no Infinity."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def files(folder="."):
    return sorted(os.listdir(folder))


def test_metric_to_a_file(tmp_path, capsys):
    assert run(["metric", SMALL, "--transport", "sinkhorn:0.5,cost=value", "--tol", "1e-5", "-o", "d.npz"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "converged" in out
    assert "rigorous error" in out
    assert "d.npz" in out
    assert files() == ["d.npz"]
    mdp = bm.problems.chain(20, 5)
    expected = bm.solve_metric(mdp.under(mdp.uniform_policy()), bm.Sinkhorn(0.5, cost="value"), tol=1e-5)
    again = bm.MetricSolution.load("d.npz")
    np.testing.assert_array_equal(again.distance, expected.distance)
    assert (again.certificate, again.status, again.sweeps) == (expected.certificate, expected.status, expected.sweeps)
    assert again.question == expected.question
    with np.load("d.npz", allow_pickle=False) as data:
        np.testing.assert_array_equal(data["classes"], mdp.classes)
    with pytest.raises(bm.ModelError, match="not a bisimetric model"):
        bm.read("d.npz")


def test_metric_as_json(capsys):
    assert run(["metric", SMALL, "--match", "labels", "--transport", "exact:2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    facts = strict(out)
    assert facts["status"] == "CONVERGED"
    assert facts["states"] == 20
    assert facts["match"] == "labels"
    assert 0.0 < facts["error"] <= 1e-6
    assert facts["rigorous"] is True
    truth = bm.solve_metric(bm.problems.chain(20, 5), bm.Exact(2.0), match="labels")
    assert facts["largest_distance"] == pytest.approx(truth.distance.max(), abs=2e-6)


@pytest.mark.parametrize("extra", [["--tol", "inf"], ["--transport", "sinkhorn:1"], ["--max-sweeps", "1"]])
def test_json_is_json(extra, capsys):
    if run(["metric", SMALL, "--json", *extra]) != 2:
        strict(capsys.readouterr().out)


def test_models_and_policies_from_files(capsys):
    mdp = bm.problems.garnet(6, 2, 3, gamma=0.5)
    bm.write(mdp, "model.npz")
    policy = np.tile([0.25, 0.75], 6)
    np.save("policy.npy", policy)
    np.savez("policy.npz", policy=policy.reshape(6, 2))
    np.savetxt("policy.csv", policy.reshape(6, 2), delimiter=",")
    np.savetxt("policy.txt", policy)
    expected = bm.solve_metric(mdp.under(policy)).distance
    for kind in ("npy", "npz", "csv", "txt"):
        assert run(["metric", "model.npz", "--policy", f"policy.{kind}", "-o", "d.npz"]) == 0
        with np.load("d.npz") as data:
            np.testing.assert_allclose(data["distance"], expected, atol=1e-12)
    assert run(["metric", "model.npz", "--policy", "uniform", "-o", "d.npz"]) == 0
    with np.load("d.npz") as data:
        assert not np.allclose(data["distance"], expected, atol=1e-3)
    capsys.readouterr()


def test_settings_are_passed_on(capsys):
    base = ["metric", SMALL, "--json"]
    largest = {}
    for key, extra in {
        "plain": [],
        "reward": ["--reward-weight", "3"],
        "transition": ["--transition-weight", "0.5"],
        "float32": ["--dtype", "float32", "--tol", "1e-3"],
        "lean": ["--no-remember"],
        "independent": ["--transport", "independent,diagonal=zero"],
        "ball": ["--transport", "kl:0.1"],
    }.items():
        assert run(base + extra) == 0
        largest[key] = strict(capsys.readouterr().out)["largest_distance"]
    assert largest["reward"] == pytest.approx(3.0 * largest["plain"], abs=1e-5)
    assert largest["transition"] < largest["plain"] == pytest.approx(largest["lean"], abs=1e-6)
    assert largest["float32"] == pytest.approx(largest["plain"], abs=1e-3)
    assert largest["plain"] < min(largest["ball"], largest["independent"]) - 0.01


def test_info(capsys):
    assert run(["info", "problem:gridworld?width=3&height=2&copies=2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    facts = strict(out)
    assert (facts["states"], facts["choices"], facts["known_classes"], facts["gamma"]) == (12, 48, 6, 0.95)
    assert facts["choices_per_state"] == [4, 4]
    assert facts["reward_range"][0] == 0.0
    assert run(["info", SMALL]) == 0
    assert re.search(r"states +20", capsys.readouterr().out)


def test_bench(capsys):
    assert run(["bench", "--quick", "--json"]) == 0
    facts = strict(capsys.readouterr().out)
    assert facts["correct"] is True
    assert len(facts["rows"]) >= 6
    assert all(row["seconds"] > 0.0 and row["sweeps"] > 0 for row in facts["rows"])


def test_an_unmet_tolerance_is_status_1(capsys):
    assert run(["metric", SMALL, "--max-sweeps", "1", "-o", "d.npz"]) == 1
    out, _ = capsys.readouterr()
    assert "sweep limit" in out
    solution = bm.MetricSolution.load("d.npz")
    assert solution.status is bm.Status.SWEEP_LIMIT
    assert solution.error > 1e-6
    assert "--max-sweeps" in out  # words for the command line, not for Python
    assert "max_sweeps" not in out


def test_help_and_version(capsys):
    assert run(["--help"]) == 0
    assert "metric" in capsys.readouterr().out
    assert run(["metric", "--help"]) == 0
    assert "--transport" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert bm.__version__ in capsys.readouterr().out


BAD = {
    "unknown problem": (["metric", "problem:chian"], "Did you mean 'chain'?"),
    "unknown argument": (["metric", "problem:chain?n_state=3"], "Did you mean 'n_states'?"),
    "unknown option": (["metric", SMALL, "--tolerance", "1"], "--tolerance"),
    "unknown command": (["measure", SMALL], "measure"),
    "no model": (["metric"], "model"),
    "two models": (["metric", SMALL, SMALL], "nused"),
    "unknown transport": (["metric", SMALL, "--transport", "emd"], "exact, sinkhorn, kl, independent"),
    "bad reg": (["metric", SMALL, "--transport", "sinkhorn:0"], "reg must be positive"),
    "reg no number": (["metric", SMALL, "--transport", "sinkhorn:x"], "reg must be a number; got 'x'"),
    "radius missing": (["metric", SMALL, "--transport", "kl"], "kl:0.5"),
    "unknown setting": (["metric", SMALL, "--transport", "exact,reg=1"], "no setting 'reg'"),
    "setting without value": (["metric", SMALL, "--transport", "exact,p"], "name=value"),
    "bad p": (["metric", SMALL, "--transport", "exact:0.5"], "p must be at least 1"),
    "bad tol": (["metric", SMALL, "--tol", "0"], "tol must be positive"),
    "tol no number": (["metric", SMALL, "--tol", "small"], "small"),
    "bad c_T": (["metric", SMALL, "--transition-weight", "1"], "[0, 1)"),
    "bad sweeps": (["metric", SMALL, "--max-sweeps", "0"], "--max-sweeps"),
    "bad match": (["metric", SMALL, "--match", "names"], "'names'"),
    "bad dtype": (["metric", SMALL, "--dtype", "float16"], "float16"),
    "bad device": (["metric", SMALL, "--device", "tpu"], "tpu"),
    "folder missing": (["metric", SMALL, "-o", "none/d.npz"], "none/d.npz: cannot be written"),
    "output is a folder": (["metric", SMALL, "-o", "folder"], "folder"),
    "output in a file": (["metric", SMALL, "-o", "readme.txt/d.npz"], "cannot be written"),
    "missing file": (["metric", "none.npz"], "none.npz: no such file"),
    "unknown format": (["metric", "readme.txt"], ".npz"),
    "model is a folder": (["metric", "folder"], "folder"),
    "damaged model": (["metric", "damaged.npz"], "damaged.npz"),
    "damaged model for info": (["info", "damaged.npz"], "damaged.npz"),
    "array as model": (["metric", "array.npz"], "array.npz"),
    "policy missing": (["metric", SMALL, "--policy", "none.npy"], "none.npy"),
    "policy of wrong shape": (["metric", SMALL, "--policy", "array.npy"], "[40] or [20, 2]"),
    "policy entry missing": (["metric", SMALL, "--policy", "other.npz"], "no entry 'policy'"),
    "policy empty": (["metric", SMALL, "--policy", "empty.npy"], "empty.npy"),
    "policy text empty": (["metric", SMALL, "--policy", "empty.csv"], ""),
    "policy no numbers": (["metric", SMALL, "--policy", "readme.txt"], "readme.txt"),
    "policy archive damaged": (["metric", SMALL, "--policy", "damaged.npz"], "damaged.npz"),
    "policy and match": (["metric", SMALL, "--policy", "uniform", "--match", "labels"], "not both"),
}


@pytest.fixture
def odd_files(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "readme.txt").write_text("hello\n")
    for empty in ("empty.npy", "empty.csv"):
        (tmp_path / empty).write_bytes(b"")
    bm.write(bm.problems.garnet(20), tmp_path / "damaged.npz")
    content = (tmp_path / "damaged.npz").read_bytes()
    (tmp_path / "damaged.npz").write_bytes(content[: len(content) // 2])
    np.save(tmp_path / "array.npy", np.full((3, 3), 1 / 3))
    (tmp_path / "array.npz").write_bytes((tmp_path / "array.npy").read_bytes())
    np.savez(tmp_path / "other.npz", x=np.eye(2))
    yield
    gc.collect()  # a file left open is noticed here


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_status_2(case, odd_files, capsys):
    arguments, words = BAD[case]
    before = files()
    output = [] if "-o" in arguments or arguments[0] != "metric" else ["-o", "result.npz"]
    assert run([*arguments, *output]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("bisimetric: ")
    assert "Traceback" not in err
    assert words in err
    assert files() == before
    assert files("folder") == []


@pytest.mark.parametrize(("arguments", "status"), [([SMALL], 0), ([SMALL, "--max-sweeps", "1"], 1), (["problem:x"], 2)])
def test_exit_statuses_of_the_program(arguments, status):
    done = subprocess.run([*MODULE, "metric", *arguments, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == status
    if status == 2:
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
    else:
        assert done.stderr == ""
        assert strict(done.stdout)["status"] == ("CONVERGED" if status == 0 else "SWEEP_LIMIT")


def test_ctrl_c_while_loading(monkeypatch, capsys):
    def interrupted(spec):
        raise KeyboardInterrupt

    monkeypatch.setattr(bm.problems, "from_spec", interrupted)
    assert run(["metric", SMALL, "-o", "d.npz"]) == 130
    out, err = capsys.readouterr()
    assert (out, err) == ("", "bisimetric: interrupted\n")
    assert files() == []


SLOW = "problem:garnet?n_states=500&branching=8&gamma=0.9999"
WATCHED = """
from bisimetric.backends.cpu.sweeper import CpuSweeper
from bisimetric.cli import main
original = CpuSweeper.sweep
def sweep(*arguments):
    print("sweep", flush=True)
    return original(*arguments)
CpuSweeper.sweep = sweep
print("loaded", flush=True)
main()
"""


@pytest.mark.parametrize("sweeps", [0, 1, 4])
def test_ctrl_c_leaves_a_whole_file_or_none(sweeps):
    """Interrupted before the first sweep or within one: status 130, no traceback, never part of a file."""
    command = [sys.executable, "-c", WATCHED, "metric", SLOW, "--tol", "1e-9", "-o", "d.npz"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(1 + sweeps):
            assert process.stdout.readline() in ("loaded\n", "sweep\n")
        time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    if sweeps == 0 and not files():
        assert err == "bisimetric: interrupted\n"
        return
    assert files() == ["d.npz", "d.npz.checkpoint"]
    assert "interrupted" in out
    assert "--resume" in err
    solution = bm.MetricSolution.load("d.npz")
    assert solution.distance.shape == (500, 500)
    assert solution.status is bm.Status.INTERRUPTED
    assert np.isfinite(solution.error)


def test_an_interrupted_metric_is_gone_on_from(capsys):
    """Stopped by a limit of sweeps here, as by Ctrl-C: the checkpoint beside the output is gone on from.

    Plain sweeps come to the same bytes; accelerated ones are parted elsewhere than where they would have gone on.
    """
    for transport in ("exact", "sinkhorn:0.3,cost=value", "exact:2"):
        base = ["metric", "problem:garnet?n_states=30&gamma=0.9", "--transport", transport, "--tol", "1e-5"]
        assert run([*base, "-o", "whole.npz"]) == 0
        assert run([*base, "-o", "part.npz", "--max-sweeps", "4"]) == 1
        assert run([*base, "-o", "part.npz", "--resume"]) == 0
        whole, part = bm.MetricSolution.load("whole.npz"), bm.MetricSolution.load("part.npz")
        assert np.abs(whole.distance - part.distance).max() <= whole.error + part.error
        base.append("--no-accelerate")
        assert run([*base, "-o", "whole.npz"]) == 0
        assert run([*base, "-o", "part.npz", "--max-sweeps", "7"]) == 1
        assert files() == ["part.npz", "part.npz.checkpoint", "whole.npz"]
        assert run([*base, "-o", "part.npz", "--resume"]) == 0
        whole, part = bm.MetricSolution.load("whole.npz"), bm.MetricSolution.load("part.npz")
        assert whole.distance.tobytes() == part.distance.tobytes()
        assert whole.error == part.error
        assert files() == ["part.npz", "whole.npz"]
        assert run([*base, "-o", "part.npz", "--resume"]) == 2
    assert "no checkpoint to resume from" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["solve", "metric", "lump", "aggregate", "convert", "info", "bench", "paper run", "paper report", "paper list"],
)
def test_help_says_what_every_option_is_for(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert run([*command.split(), "--help"]) == 0
    page = capsys.readouterr().out
    bare = re.findall(r"^│ \*?\s*((?:[A-Z]+ )?--[\w-]+)(?: --[\w-]+)*(?: [A-Z]+)?\s+(?:\[.*)?│$", page, re.MULTILINE)
    assert not bare, f"options without a word of help: {bare}"


def test_the_package_can_be_run():
    command = [sys.executable, "-m", "bisimetric", "info", "problem:chain?n_states=6&n_classes=2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["states"] == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["metric", "m.npz", "-o", "m.npz"], "m.npz: is read from, so it is not written to"),
        (["metric", SMALL, "--policy", "p.npz", "-o", "p.npz"], "p.npz: is read from"),
        (["lump", "m.npz", "-o", "./m.npz"], "m.npz: is read from"),
        (["lump", "m.npz", "--map", "m.npz"], "m.npz: is read from"),
        (["convert", "m.npz", "link.npz"], "link.npz: is read from"),
        (["aggregate", "d.npz", "--eps", "1", "-o", "d.npz"], "d.npz: is read from"),
        (["compare", SMALL, "m.npz", "-o", "m.npz"], "m.npz: is read from"),
        (["abstract", "m.npz", "--match", "labels", "--size", "3", "-o", "m.npz"], "m.npz: is read from"),
        (["explain", "m.npz", "0", "1", "--match", "labels", "-o", "m.npz"], "m.npz: is read from"),
        (["view", "d.npz", "-o", "d.npz"], "d.npz: is read from"),
        (["metric", "m.npz", "-o", "d.csv"], "d.csv: what is written is an .npz file"),
        (["aggregate", "d.npz", "--eps", "1", "-o", "c"], "c: what is written is an .npz file"),
        (["query", "m.npz", "0", "5", "--nearest", "2"], "leave out '5'"),
        (["query", "m.npz", "0", "--nearest", "0"], "--nearest must be at least 1"),
        (["query", "m.npz", "0", "5", "--at-most", "-1"], "--at-most must be finite and not negative"),
        (["info", "."], "is a folder, and a model is a file"),
        (["info", "problem:chain?n_states=-1"], "problem 'chain': n_states must be"),
        (["solve", "no.csv", "--gamma", "0.9", "--reward-range", "0,1"], "no.csv: no such file"),
        (["solve", "m.npz", "--small", "0"], "--small must be at least 1"),
        (["metric", "m.npz", "--policy", "unform"], "unform: no such file of a policy; the uniform one is the word"),
        (["metric", "m.npz", "-o", "d2.npz", "--transport", "sinkhorn:0.2", "--resume"], "was begun with transport"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_inputs_are_never_written_over_and_mistakes_are_said(arguments, words, capsys):
    mdp = bm.problems.chain(20, 5)
    bm.write(mdp, "m.npz")
    os.link("m.npz", "link.npz")
    np.savez("p.npz", policy=mdp.uniform_policy())
    bm.solve_metric(mdp, match="labels").save("d.npz")
    bm.solve_metric(mdp.under(mdp.uniform_policy()), bm.Sinkhorn(0.1), max_sweeps=2).save(
        "d2.npz.checkpoint", restart=True
    )
    before = {name: Path(name).read_bytes() for name in files()}
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert {name: Path(name).read_bytes() for name in files()} == before


def test_what_a_table_has_no_place_for_is_said(capsys):
    mdp = bm.problems.chain(20, 5).with_labels({"first": np.arange(20) == 0})
    bm.write(mdp, "m.npz")
    for name in ("t.csv", "t.parquet"):
        assert run(["convert", "m.npz", name]) == 0
        assert f"{name} has no place for, and so is without: labels first" in capsys.readouterr().err
    assert run(["convert", "m.npz", "t.drn"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["info", "m.npz", "--label", "never=x=1"]) == 2  # these states have no variables
    capsys.readouterr()


def test_labels_that_hold_nowhere_are_said(tmp_path, capsys):
    """As where an expression has the wrong number in it."""
    text = (
        "@type: MDP\n@parameters\n\n@reward_models\nr\n@nr_states\n1\n@nr_choices\n1\n@model\nstate 0 init\n//[x=0]\n"
    )
    (tmp_path / "m.drn").write_text(text + "\taction a [1]\n\t\t0 : 1\n")
    assert run(["info", "m.drn", "--gamma", "0.9", "--label", "goal=x>300", "--absorb", "goal"]) == 0
    assert "--label goal holds in no state" in capsys.readouterr().err
