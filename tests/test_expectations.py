"""What a new user expects: examples that run, one set of defaults, answers that follow from what was asked."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tracemalloc
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import bisimetric as bm
from bisimetric.cli import run
from bisimetric.cli.examples import EXAMPLES
from bisimetric.cli.options import PolicyOptions, settings_from


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)


# ---- help ----


def test_examples_of_help_run(capsys):
    """All of them, in their order, in one folder: each ends well."""
    pytest.importorskip("gymnasium")
    rng = np.random.default_rng(0)
    lines = [f"{s},{a},{s % 2},{t},false" for s, a, t in rng.integers(2, size=(500, 3))]
    Path("data.csv").write_text("\n".join(["s,a,r,s_next,done", *lines]) + "\n")
    order = (
        *("solve", "estimate", "metric", "query", "compare", "abstract", "explain", "lump"),
        *("aggregate", "view", "convert", "info", "cluster-plan", "bench", "paper"),
    )
    assert set(EXAMPLES) == {*order, "truth"}  # which takes minutes: tests/learn/test_truth.py runs its parts
    for line in (line for command in order for line in EXAMPLES[command]):
        program, *arguments = shlex.split(line)
        assert program == "bisimetric"
        status = run(arguments)
        assert status == 0, (line, capsys.readouterr().err[-2000:])


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_shows_the_examples(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run([command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for line in EXAMPLES[command]:
        assert line in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["metric", "missing.drn"],
        ["metric", "problem:chain", "--policy", "uniform", "--match", "labels"],
        ["metric", "problem:chain", "--transport", "sinkhorn:-1"],
        ["metric", "problem:garnet", "--device", "cuda"],
        ["solve", "problem:chain", "--noise", "0.2,0.1"],
        ["solve", "problem:chain", "--dtype", "int8"],
        ["solve", "problem:chain", "--ties", "last"],
        ["aggregate", "missing.npz", "--eps", "0.1"],
        ["convert", "problem:chain", "out.xyz"],
        ["lump", "problem:chain", "--match", "names"],
        ["info", "problem:nothing"],
        ["solve", "problem:chain", "--label", "goal=x=4"],
        ["solve", "problem:chain", "--absorb", "goal"],
        ["metric", "problem:chain", "--match", "foo"],
        ["metric", "problem:chain", "--match", "labels", "--constants", "K=2"],
        ["metric", "problem:chain", "--match", "labels", "--transport", "exact:2,p=3"],
        ["metric", "problem:chain", "--match", "labels", "--max-sweeps", "-3"],
        ["solve", "problem:chain", "--noise", "-1,2"],
        ["solve", "problem:chain", "--alpha", "-3"],
        ["solve", "problem:chain", "--early-stop", "-1"],
    ],
)
def test_the_command_line_gives_no_advice_for_python(arguments, capsys):
    if "cuda" in arguments and "cupy" in sys.modules:
        pytest.skip("a device is emulated or present")
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert len(said) <= 650
    assert not re.search(r"\w=\"|bm\.|\w+\(\)|solve_\w+|None\b|from_arrays|[a-z]_[a-z]|mdp\.", said), said


def test_options_that_do_nothing_are_refused(capsys):
    assert run(["metric", "problem:garnet?n_states=6", "--match", "labels", "-o", "d.npz"]) == 0
    capsys.readouterr()
    for extra, words in ((["--eps", "0.1", "--seed", "3"], "--seed"), (["--k", "2", "--seed", "-1"], "negative")):
        assert run(["aggregate", "d.npz", *extra]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert len(said.splitlines()) == 1


def test_a_damaged_run_folder_is_one_line(capsys):
    model = "problem:garnet?n_states=6"
    assert run(["solve", model, "--steps", "5", "--out", "run", "--no-pictures"]) == 0
    os.truncate("run/checkpoint.npz", 30)
    capsys.readouterr()
    assert run(["solve", "--resume", "run", "--steps", "9"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


# ---- defaults ----


def settings_of(**options):
    return settings_from(bm.PolicySettings, PolicyOptions(**options))


def test_every_setting_of_a_run_can_be_given_on_the_command_line():
    """Each field of the settings differs from its default for some option, and no option does nothing."""
    options = PolicyOptions(
        transport="sinkhorn:1.0",
        eps=0.3,
        alpha="0.5",
        sweeps=3,
        early_stop=0.2,
        naive=True,
        noise="0.1,0.2",
        ties="random",
        steps=7,
        target=0.5,
        seed=3,
        settle=False,
        optimum=False,
        lump=False,
        remember=False,
        device="cuda",
        dtype="float32",
    )
    made, default = settings_from(bm.PolicySettings, options), bm.PolicySettings()
    assert [f.name for f in fields(made) if getattr(made, f.name) == getattr(default, f.name)] == []
    for option in fields(options):
        if option.name not in ("rule", "k", "small"):
            alone = settings_of(**{option.name: getattr(options, option.name)})
            assert alone != default, option.name
    assert settings_of(rule="diameter").aggregation == bm.EpsilonCover(rule="diameter")
    assert settings_of(k=4).aggregation == bm.KMedoids(4, 0)
    assert settings_of(small=4).aggregation == bm.SmallModel(4)


def test_library_and_command_line_have_the_same_defaults(capsys):
    assert settings_of() == bm.PolicySettings()
    model = "problem:staircase?n_states=40&n_classes=5"
    assert run(["solve", model, "--out", "run", "--no-pictures", "--json"]) == 0
    with np.load("run/result.npz") as made:
        policy, labels = made["policy"], made["class_of"]
    called = bm.solve_policy(bm.problems.staircase(n_states=40, n_classes=5))
    np.testing.assert_array_equal(policy, called.policy)
    np.testing.assert_array_equal(labels, called.partition.class_of)
    assert json.loads(capsys.readouterr().out)["bound"] == called.certificate.error


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_default_settings_follow_the_scale_of_rewards(scale):
    mdp = bm.problems.staircase(n_states=40, n_classes=5)
    scaled = replace(mdp, rewards=scale * mdp.rewards)
    one, other = bm.solve_policy(mdp), bm.solve_policy(scaled)
    np.testing.assert_array_equal(one.partition.class_of, other.partition.class_of)
    np.testing.assert_allclose(one.policy, other.policy, atol=1e-9)
    assert other.certificate.error == pytest.approx(scale * one.certificate.error, rel=1e-6, abs=scale * 1e-9)


# ---- targets ----


def test_a_missed_target_is_status_1_and_names_the_limit(capsys):
    """Too coarse a partition ends with nothing changing any more: more steps do not help, a smaller ε does."""
    model = "problem:garnet?n_states=40"
    assert run(["solve", model, "--eps", "1", "--target", "1e-6", "--out", "run", "--no-pictures"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "missed" in out
    assert "--eps" in out
    assert "--steps" not in out
    assert run(["solve", model, "--eps", "1", "--target", "1e-6", "--out", "two", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["target_met"] is False
    assert facts["status"] != "TARGET"
    called = bm.solve_policy(bm.problems.garnet(n_states=40), aggregation=bm.EpsilonCover(1.0), target=1e-6)
    assert called.status.name == facts["status"]


def test_a_target_that_steps_would_meet_says_so(capsys):
    model = "problem:garnet?n_states=40"
    assert run(["solve", model, "--steps", "1", "--target", "1e-9", "--out", "run", "--no-pictures"]) == 1
    assert "--steps" in " ".join(capsys.readouterr().out.split())


def test_a_target_that_is_met_is_status_0(capsys):
    model = "problem:chain?n_states=40&n_classes=10"
    assert run(["solve", model, "--target", "0.5", "--out", "run", "--no-pictures", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["status"], facts["target_met"]) == ("TARGET", True)
    assert facts["bound"] <= 0.5


# ---- quotients ----


def two_rewards() -> bm.MDP:
    """Two pairs of states that are alike in the chosen reward and differ in another, and in a label."""
    P = np.array([[[0, 0, 0.5, 0.5]], [[0, 0, 0.5, 0.5]], [[1, 0, 0, 0]], [[0, 1, 0, 0]]], float)
    mdp = bm.MDP.from_arrays(P, np.array([0.0, 0.0, 1.0, 1.0]), 0.9, axes="sas")
    labels = {"odd": np.array([False, True, False, True]), "late": np.array([False, False, True, True])}
    return replace(mdp, reward_models={"energy": np.array([0.0, 7.0, 0.0, 3.0])}, state_labels=labels)


def test_a_quotient_keeps_only_what_its_classes_tell_apart():
    mdp = two_rewards()
    respected = bm.lump(mdp, respect=("late",))
    assert respected.quotient.n_states == 2
    assert set(respected.quotient.state_labels) == {"late"}
    assert dict(respected.quotient.reward_models) == {}
    plain = bm.quotient(mdp, bm.Partition.from_classes([0, 0, 1, 1]))
    assert not plain.reward_models
    assert "odd" not in plain.state_labels
    everything = bm.lump(mdp)
    assert everything.quotient.n_states == 4  # all labels respected: nothing is merged, and all of them stay
    assert set(everything.quotient.state_labels) == {"odd", "late"}


@pytest.mark.parametrize("seed", range(4))
def test_classes_of_the_hausdorff_metric_are_aggregated_and_lifted(seed):
    """Copies of states with their choices in another order, and some twice: aggregated, solved, lifted, optimal."""
    rng = np.random.default_rng(seed)
    base = bm.problems.garnet(n_states=6, n_actions=3, branching=2, seed=seed, gamma=0.8)
    P, R = base.dense()[0] if hasattr(base, "dense") else base.rows.matrix().toarray(), base.rewards
    rows, rewards, pointers = [], [], [0]
    for copy in range(2):
        for s in range(6):
            order = rng.permutation(3)
            order = np.append(order, order[:1]) if copy else order
            for c in base.choice_ptr[s] + order:
                share = rng.uniform()
                rows.append(np.concatenate([share * P[c], (1.0 - share) * P[c]]))
                rewards.append(R[c])
            pointers.append(len(rows))
    labels = np.concatenate([np.arange(b - a) for a, b in pairwise(pointers)])
    from bisimetric.model import Distributions

    mdp = bm.MDP(
        Distributions.from_matrix(np.array(rows)),
        np.array(rewards),
        np.array(pointers),
        0.8,
        labels,
        tuple("abcd"),
    )
    solution = bm.solve_metric(mdp, match="hausdorff", tol=1e-7)
    part = bm.EpsilonCover(1e-5)(solution.distance)
    assert part.n_classes == 6
    with pytest.raises(bm.ModelError, match="same actions"):
        bm.quotient(mdp, part)
    small = bm.quotient(mdp, part, match="hausdorff")
    assert small.n_states == 6
    best = bm.optimal_values(small)
    lifted = bm.lift_policy(mdp, small, part, bm.greedy(small, best.value), match="hausdorff")
    np.testing.assert_allclose(bm.evaluate(mdp, lifted).value, bm.optimal_values(mdp).value, atol=1e-6)


# ---- properties ----


def counter(tmp_path: Path) -> Path:
    """A counter that goes up or stays, with a valuation; nothing is rewarded."""
    path = tmp_path / "counter.drn"
    n = 6
    lines = [
        "@type: MDP",
        "@parameters",
        "",
        "@reward_models",
        "",
        "@nr_states",
        str(n),
        "@nr_choices",
        str(n),
        "@model",
    ]
    for s in range(n):
        lines += [f"state {s}{' init' if s == 0 else ''}", f"//[l={s} & busy={'true' if s % 2 else 'false'}]"]
        lines += ["\taction up", f"\t\t{min(s + 1, n - 1)} : 0.5", f"\t\t{s} : 0.5"][: 2 if s == n - 1 else 3]
        if s == n - 1:
            lines[-1] = f"\t\t{s} : 1"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_labels_from_expressions_and_stops(tmp_path, capsys):
    path = str(counter(tmp_path))
    assert run(["metric", path, "--gamma", "0.9", "--match", "labels", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["largest_distance"] == 0.0
    assert "tells" in err + out  # nothing tells states apart
    given = ["--gamma", "0.9", "--label", "goal=l=4", "--label", "calm=!busy & l<3"]
    assert run(["metric", path, *given, "--absorb", "goal", "--match", "labels", "--json", "-o", "d.npz"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["largest_distance"] > 0.0
    assert set(facts["respected"]) == {"goal", "calm"}
    mdp = bm.read(path, gamma=0.9).with_labels({"goal": "l=4", "calm": "!busy & l<3"})
    np.testing.assert_array_equal(np.flatnonzero(mdp.state_labels["goal"]), [4])
    np.testing.assert_array_equal(np.flatnonzero(mdp.state_labels["calm"]), [0, 2])
    stopped = mdp.absorb("goal")
    assert stopped.rows.matrix()[[4]].toarray()[0].tolist() == [0, 0, 0, 0, 1, 0]
    np.testing.assert_array_equal(
        bm.MetricSolution.load("d.npz").distance, bm.solve_metric(stopped, match="labels").distance
    )
    assert run(["lump", path, *given, "--json"]) == 0
    capsys.readouterr()
    assert run(["info", path, *given]) == 0
    assert "goal" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("goal=x=4", "x"),
        ("goal=l=", "too early"),
        ("goal", "NAME=EXPRESSION"),
        ("goal=l=4 &", "too early"),
        ("=l=4", "NAME"),
    ],
)
def test_labels_that_cannot_be_understood(label, words, tmp_path, capsys):
    path = str(counter(tmp_path))
    assert run(["metric", path, "--gamma", "0.9", "--match", "labels", "--label", label]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


# ---- sizes ----


def test_info_costs_little_for_many_states(capsys):
    """40,000 states: nothing of 40,000² is made, and nothing invented is said."""
    n = 40_000
    from scipy.sparse import csr_array

    bm.write(
        bm.MDP.from_arrays(
            [csr_array((np.ones(n), ((np.arange(n) + step) % n, np.arange(n)))).T.tocsr() for step in (1, 2)],
            np.arange(n) / n,
            0.9,
            axes="ass",
        ),
        "large.npz",
    )
    tracemalloc.start()
    assert run(["info", "large.npz"]) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    out = capsys.readouterr().out
    assert re.search(r"states +40000", out)
    assert peak < 200 * n * 8
    assert "GB" in out or "GiB" in out


def test_a_solve_that_does_not_fit_is_refused_before_it_starts(monkeypatch, capsys):
    from bisimetric.metric import plan

    monkeypatch.setattr(plan, "available_memory", lambda: 1_000_000)
    assert run(["metric", "problem:garnet?n_states=2000", "--match", "labels", "-o", "d.npz"]) == 2
    said = capsys.readouterr().err
    assert "2000" in said or "2,000" in said
    assert not os.path.exists("d.npz")
    assert run(["solve", "problem:garnet?n_states=2000", "--out", "run"]) == 2
    assert not os.path.exists("run")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: bm.MetricSettings(match="labelled"), "match must be"),
        (lambda: bm.MetricSettings(device="gpu"), 'device must be "cpu" or "cuda"'),
        (lambda: bm.MetricSettings(dtype="int"), 'dtype must be "float64" or "float32"'),
        (lambda: bm.PolicySettings(device="gpu"), 'device must be "cpu" or "cuda"'),
        (lambda: bm.PolicySettings(dtype="float16"), 'dtype must be "float64" or "float32"'),
        (lambda: bm.PolicySettings(ties="last"), 'ties must be "first" or "random"'),
    ],
)
def test_settings_that_cannot_be_are_refused_where_they_are_made(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_the_uniform_policy_has_a_word():
    mdp = bm.problems.gridworld(width=3, height=3)
    assert mdp.under("uniform").rewards.tobytes() == mdp.under(mdp.uniform_policy()).rewards.tobytes()
    assert bm.evaluate(mdp, "uniform").value.tobytes() == bm.evaluate(mdp, mdp.uniform_policy()).value.tobytes()
    runs = [bm.solve_policy(mdp, policy=policy, steps=2).policy.tobytes() for policy in ("uniform", None)]
    assert runs[0] == runs[1]
