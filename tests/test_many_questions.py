"""Many questions at once, by threads and by a cluster; commands that work on a cluster."""

from __future__ import annotations

import json
import os
import signal
import threading

import clusters
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bisimetric as bm
from bisimetric.cli import run
from bisimetric.queries import asking

SEEDS = st.integers(0, 10**6)


def facts(answers):
    return [(a.lower, a.upper, a.status, a.opened, a.updates, a.notes) for a in answers]


def some_pairs(n, count, seed=0):
    return [(int(s), int(t)) for s, t in np.random.default_rng(seed).integers(0, n, (count, 2))]


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, match=st.sampled_from(["labels", "hausdorff"]), most=st.sampled_from([None, 1, 7]))
def test_brackets_hold_the_truth(seed, match, most):
    mdp = clusters.mdp(14, seed)
    truth = bm.solve_metric(mdp, match=match, tol=1e-9).distance
    pairs = some_pairs(14, 40, seed)
    found = bm.Query(mdp, match=match).distances(pairs, tol=1e-4, budget=bm.Budget(pairs=most))
    assert len(found) == 40
    for (s, t), answer in zip(pairs, found, strict=True):
        assert answer.lower <= truth[s, t] + 1e-8
        assert truth[s, t] <= answer.upper + 1e-8
        assert answer.gap <= 1e-4 or most is not None


def test_answers_depend_on_nothing_but_the_pairs():
    mdp = clusters.mdp(30, 3)
    pairs = some_pairs(30, 50)
    query = bm.Query(mdp, match="labels")
    first = query.distances(pairs)
    query.distance(0, 1, tol=1e-6)
    bm.set_threads(3)
    try:
        assert facts(query.distances(pairs)) == facts(first)
    finally:
        bm.set_threads(None)
    assert facts(bm.Query(mdp, match="labels").distances(pairs)) == facts(first)
    assert query.known < 1000  # the table of the query itself is not filled by them
    assert facts(query.distances([]) + query.distances(pairs[:16])) == facts(first[:16])


def test_two_models_and_initial_states():
    one = clusters.mdp(9, 1).with_labels({"init": np.arange(9) == 2})
    other = clusters.mdp(7, 2).with_labels({"init": np.arange(7) == 5})
    query = bm.Query(one, other, match="labels")
    a, b = query.distances([(None, None), (2, 5)])
    assert (a.lower, a.upper) == (b.lower, b.upper)
    with pytest.raises(ValueError, match="number 0: t: there is no state 7"):
        query.distances([(0, 7)])


def test_ctrl_c_leaves_true_bounds(monkeypatch):
    """What was not reached has the bounds that are known at once."""
    mdp = clusters.mdp(30, 3)
    truth = bm.solve_metric(mdp, match="labels", tol=1e-9).distance
    query, pairs = bm.Query(mdp, match="labels"), some_pairs(30, 80)
    ask, count = asking.Asking.ask, []

    def slow(self, *given):
        count.append(1)
        if len(count) == 20:
            signal.raise_signal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else os.kill(
                os.getpid(), signal.SIGINT
            )
        threading.Event().wait(0.01)
        return ask(self, *given)

    monkeypatch.setattr(asking.Asking, "ask", slow)
    bm.set_threads(2)
    try:
        found = query.distances(pairs, tol=1e-9)
    finally:
        bm.set_threads(None)
    assert len(found) == 80
    assert any(answer.status is bm.Status.INTERRUPTED for answer in found)
    assert any(answer.status is bm.Status.CONVERGED for answer in found)
    for (s, t), answer in zip(pairs, found, strict=True):
        assert answer.lower <= truth[s, t] + 1e-8
        assert truth[s, t] <= answer.upper + 1e-8


def test_bad_input_is_named():
    query = bm.Query(clusters.mdp(6, 1), match="labels")
    with pytest.raises(ValueError, match="tol must be positive"):
        query.distances([(0, 1)], tol=0.0)
    with pytest.raises(TypeError, match="budget"):
        query.distances([(0, 1)], budget=3)
    with pytest.raises(ValueError, match="number 1: s: there is no state 6"):
        query.distances([(0, 1), (6, 0)])


def test_a_file_of_pairs(tmp_path, capsys):
    (tmp_path / "p.csv").write_text("s,t\n0,5\n3, 3\n\n1,17\n")
    command = ["query", "problem:gridworld", "--match", "labels", "--list", str(tmp_path / "p.csv")]
    assert run(command) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    assert lines[0] == "s,t,lower,upper,status"
    assert lines[2] == "3,3,0.0,0.0,CONVERGED"
    assert run([*command, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["answers"]) == 3
    assert run([*command, "--pairs", "1", "--tol", "1e-9"]) == 1
    capsys.readouterr()
    for text, words in (
        ("0,1,2\n", "line 1: two states"),
        ("s,t\n", "no pairs"),
        ("0,99\n", "p.csv: line 1: t: there is no state 99"),
        ("²,1\n", "no state '²'"),
    ):
        (tmp_path / "p.csv").write_text(text)
        assert run(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert words in err
    for data, words in (
        ("\ufeffs,t\n0,1\n".encode(), ""),  # as spreadsheets write it
        ("s,t\n0,1\n".encode("utf-16"), "is not in UTF-8"),
        (b"0," + b"1" * 200_000, "is no CSV file"),
        (b"0,1" + b"0" * 400, "line 1: t:"),
    ):
        (tmp_path / "p.csv").write_bytes(data)
        assert run(command) == (2 if words else 0)
        assert words in capsys.readouterr().err
    assert run([*command, "3", "4"]) == 2
    assert "states come from the file" in capsys.readouterr().err
    assert run([*command[:-1], str(tmp_path / "nothing.csv")]) == 2
    assert "nothing.csv" in capsys.readouterr().err
    assert run(["query", "problem:gridworld", "--cluster", "tcp://127.0.0.1:1", "--match", "labels"]) == 2
    assert "give --list" in capsys.readouterr().err


# ---- on a cluster ----


@pytest.fixture(scope="module")
def client():
    pytest.importorskip("distributed")
    with clusters.local_client(2, processes=True) as found:
        yield found


def test_answers_of_a_cluster_are_those_of_threads(client):
    for seed, match in ((1, "labels"), (2, "hausdorff")):
        mdp = clusters.mdp(40, seed)
        query, pairs = bm.Query(mdp, match=match), some_pairs(40, 70, seed)
        assert facts(query.distances(pairs, cluster=client)) == facts(query.distances(pairs))


def test_commands_on_a_cluster(client, tmp_path, capsys):
    address = client.scheduler.address
    bm.write(bm.problems.gridworld(width=5, height=4), tmp_path / "m.npz")
    (tmp_path / "p.csv").write_text("0,5\n1,7\n")
    match = ["--match", "labels", "--json"]

    def both(command, *more, drop=()):
        found = []
        for extra in ([], ["--cluster", address, *more]):
            assert run([*command, *match, *extra]) == 0, capsys.readouterr().err
            found.append(json.loads(capsys.readouterr().out))
        for facts_of in found:
            for name in ("seconds", "output", *drop):
                facts_of.pop(name, None)
        assert found[0] == found[1]

    model = str(tmp_path / "m.npz")
    both(["query", model, "--list", str(tmp_path / "p.csv")])
    both(["metric", model, "--no-lump"], "--store", str(tmp_path / "a"))
    both(["compare", model, "problem:gridworld?width=4&height=3", "--no-lump"], "--store", str(tmp_path / "b"))
    both(["abstract", model, "--size", "5"], "--store", str(tmp_path / "c"))
    whole = [*match, "--size", "5", "--cluster", address]
    assert run(["abstract", model, "--in-parts", *whole]) == 0
    assert json.loads(capsys.readouterr().out)["states"] == 20
    assert run(["metric", model, *match, "--no-lump", "--cluster", address, "-o", str(tmp_path / "d.npz")]) == 0
    capsys.readouterr()
    assert bm.MetricSolution.load(tmp_path / "d.npz").converged
    assert not list(tmp_path.glob("*.checkpoint"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["metric", "problem:gridworld", "--match", "labels", "--store", "x"], "give --cluster"),
        (["compare", "problem:chain", "problem:chain", "--store", "x"], "give --cluster"),
        (["abstract", "problem:gridworld", "--match", "labels", "--size", "3", "--in-parts"], "give --cluster"),
        (["metric", "problem:chain", "--cluster", "tcp://127.0.0.1:1"], "no cluster at"),
        (["metric", "problem:chain", "--cluster", "tcp://h:1", "--resume", "-o", "d.npz"], "leave out --resume"),
        (
            ["abstract", "problem:gridworld", "--size", "3", "--in-parts", "--cluster", "tcp://h:1", "--costs"],
            "leave out --costs",
        ),
        (
            ["abstract", "problem:gridworld", "--size", "3", "--in-parts", "--cluster", "tcp://h:1"],
            "read in parts from files",
        ),
    ],
)
def test_commands_that_cannot_be_are_refused(command, words, capsys, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    from bisimetric.cluster import crew

    monkeypatch.setattr(crew, "_CONNECT", 0.5)
    monkeypatch.chdir(tmp_path)
    assert run(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert not list(tmp_path.iterdir())
