"""Policies from data: certificates for the true MDP, pooled classes, and the commands."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import bisimetric as bm
from bisimetric.cli import run
from bisimetric.estimate.policies import policy_on_rows


def data_of(mdp, samples, seed=0):
    n_actions = mdp.n_choices // mdp.n_states
    return bm.Counts.from_simulator(mdp, n_states=mdp.n_states, n_actions=n_actions, samples=samples, seed=seed)


ASSUMED = {"exact_rewards": True, "reward_range": (0.0, 1.0)}


@pytest.fixture
def mdp():
    return bm.problems.garnet(n_states=8, n_actions=2, branching=3, seed=3)


# ---- certificates ----


def test_a_run_on_data_is_certified_for_the_true_model(mdp, tmp_path):
    best = bm.optimal_values(mdp).value
    bounds = []
    for samples in (50, 5000):
        counts = data_of(mdp, samples)
        made = bm.solve_policy(counts, gamma=0.9, delta=0.1, steps=20, **ASSUMED)
        value = bm.evaluate(mdp, made.data.policy.reshape(-1)).value
        assert (best - value <= made.data.loss + 1e-9).all()
        assert (made.data.lower <= value + 1e-9).all()
        assert (value <= made.data.upper + 1e-9).all()
        assert made.certificate is made.data.certificate
        assert "probability 0.9" in made.certificate.source
        bounds.append(made.certificate.error)
    assert bounds[1] < 0.3 * bounds[0]
    made.save(tmp_path / "run.npz")
    for back in (bm.PolicyRun.load(tmp_path / "run.npz"), pickle.loads(pickle.dumps(made))):
        np.testing.assert_array_equal(back.data.loss, made.data.loss)
        assert back.data.certificate == made.certificate
    plain = bm.solve_policy(mdp, steps=3)
    plain.save(tmp_path / "plain.npz")
    assert bm.PolicyRun.load(tmp_path / "plain.npz").data is None


def test_where_the_best_actions_are_clear_the_loss_is_nothing():
    """Two actions, one worth 1 and one worth 0, whatever the successors: bounds on values are wide, the loss is 0."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), size=(3, 2))
    P[:, 1] = P[:, 0]
    mdp = bm.MDP.from_arrays(P, np.array([[1.0, 0.0]] * 3), 0.5, axes="sas")
    counts = data_of(mdp, 300)
    data = counts.certify(np.zeros(3, np.int64), 0.1, gamma=0.5, **ASSUMED)
    assert data.certificate.error < 1e-6
    wrong = counts.certify(np.ones(3, np.int64), 0.1, gamma=0.5, **ASSUMED)
    assert wrong.loss.min() >= 2.0 - 1e-9


def test_certificates_hold_for_policies_chosen_in_any_way(mdp):
    counts, best = data_of(mdp, 200), bm.optimal_values(mdp).value
    rng = np.random.default_rng(0)
    for policy in ("uniform", rng.integers(2, size=8), rng.dirichlet(np.ones(2), size=8)):
        data = counts.certify(policy, 0.05, gamma=0.9, **ASSUMED)
        value = bm.evaluate(mdp, data.policy.reshape(-1)).value
        assert (best - value <= data.loss + 1e-9).all()
    with pytest.raises(ValueError, match="a policy"):
        counts.certify(np.full(8, 7), 0.05, gamma=0.9, **ASSUMED)
    with pytest.raises(ValueError, match="a policy"):
        counts.certify(np.ones((8, 2)), 0.05, gamma=0.9, **ASSUMED)


def test_policies_of_the_estimated_model_are_those_of_the_states_of_the_data():
    counts = bm.Counts.from_transitions([0, 0, 1], [0, 1, 1], [1.0, 0.0, 0.5], [1, 0, 0], [False, False, True])
    for unseen in ("absent", "sink"):
        model = counts.model(0.9, unseen=unseen)
        policy = np.random.default_rng(0).uniform(0.1, 1.0, model.n_choices)
        policy /= np.add.reduceat(policy, model.choice_ptr[:-1])[model.state_of_choice]
        weights = policy_on_rows(counts, model, policy)
        for s, a, mass in zip(model.state_of_choice, model.action_of_choice, policy, strict=True):
            if s < len(weights):
                assert weights[s, a] == mass
        np.testing.assert_allclose(weights[:2].sum(axis=1), 1.0)


def test_a_target_is_for_the_true_model(mdp):
    counts = data_of(mdp, 100)
    made = bm.solve_policy(counts, gamma=0.9, target=1e-3, steps=20, **ASSUMED)
    assert made.status is bm.Status.DATA
    assert "more transitions" in made.status.advice
    made = bm.solve_policy(counts, gamma=0.9, target=9.0, steps=20, **ASSUMED)
    assert made.status is bm.Status.TARGET


def test_what_is_missing_or_does_not_belong_is_named(mdp):
    counts = data_of(mdp, 20)
    with pytest.raises(ValueError, match="Give gamma"):
        bm.solve_policy(counts, **ASSUMED)
    with pytest.raises(ValueError, match="range of the rewards"):
        bm.solve_policy(counts, gamma=0.9)
    with pytest.raises(ValueError, match="delta must be in"):
        bm.solve_policy(counts, gamma=0.9, delta=1.5, **ASSUMED)
    with pytest.raises(TypeError, match="gamma is for counts"):
        bm.solve_policy(mdp, gamma=0.5)
    with pytest.raises(bm.ModelError, match="gamma must be in"):
        counts.certify("uniform", 0.1, gamma=1.0, **ASSUMED)


def test_rewards_by_chance_are_bounded_by_their_mean():
    s, r = np.zeros(400, np.int64), np.arange(400) % 2.0
    data = bm.Counts.from_transitions(s, s, r, s, n_states=1, n_actions=1).certify(
        "uniform", 0.05, gamma=0.5, reward_range=(0.0, 1.0)
    )
    assert 0.5 < data.lower[0] < 1.0 < data.upper[0] < 1.5


def test_bounds_that_cross_say_what_may_be_wrong():
    from bisimetric.estimate.policies import certified
    from bisimetric.estimate.values import Band

    one_state = bm.Counts.from_transitions([0], [0], [0.5], [0], n_states=1, n_actions=1)
    sets = one_state.confidence(0.1, exact_rewards=True)
    one, zero = np.ones(1), np.zeros(1)
    with pytest.raises(bm.ModelError, match="not from one Markov decision process"):
        certified(sets, Band(one, zero, one, zero), np.ones((1, 1)), 0.5, 0.1)


# ---- pooling ----


@pytest.mark.parametrize("learn", [True, False])
def test_pooled_policies_are_the_same_in_a_class_and_certified(learn, one_thread):
    mdp = bm.problems.detours(n_states=12, n_classes=4, n_actions=2)
    counts, best = data_of(mdp, 300), bm.optimal_values(mdp).value
    made = counts.pool(0.05, gamma=0.9, learn_bias=learn, **ASSUMED)
    for k in range(made.partition.n_classes):
        members = made.policy[made.partition.class_of == k]
        assert (members == members[0]).all()
    value = bm.evaluate(mdp, made.policy.reshape(-1)).value
    assert (best - value <= made.data.loss + 1e-9).all()
    assert made.data.certificate.error == min(trial.bound for trial in made.trials)
    assert made.trials[0].n_classes == 12
    assert np.isnan(made.bias) != learn


def test_known_classes_narrow_the_bounds():
    mdp = bm.problems.chain(n_states=20, n_classes=2)
    counts = data_of(mdp, 400)
    plain = counts.pool(0.05, gamma=0.9, eps=[0.0], learn_bias=False, **ASSUMED)
    known = counts.pool(0.05, gamma=0.9, classes=mdp.classes, bias=0.0, **ASSUMED)
    best = bm.optimal_values(mdp).value
    for made in (plain, known):
        assert (made.data.best_lower <= best + 1e-9).all()
        assert (best <= made.data.best_upper + 1e-9).all()
    width = [(made.data.best_upper - made.data.best_lower).max() for made in (plain, known)]
    assert width[1] < 0.9 * width[0]
    with pytest.raises(ValueError, match="classes need one entry"):
        counts.pool(0.05, gamma=0.9, classes=[0, 1], **ASSUMED)
    with pytest.raises(ValueError, match="bias must be"):
        counts.pool(0.05, gamma=0.9, bias=-1.0, **ASSUMED)


def test_pooling_keeps_the_end_apart():
    s, t = np.array([0, 1, 0, 1] * 30), np.array([1, 0, 1, 0] * 30)
    done, zeros = np.arange(120) % 4 > 1, np.zeros(120, int)
    counts = bm.Counts.from_transitions(s, zeros, zeros, t, done, n_states=2, n_actions=1)
    made = counts.pool(0.1, gamma=0.5, eps=[0.0, 5.0], exact_rewards=True)
    assert made.partition.class_of[2] not in made.partition.class_of[:2]


# ---- commands ----

SIZES = ["--states", "8", "--actions", "2"]


@pytest.fixture
def folder(tmp_path, monkeypatch, mdp, one_thread):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    P = mdp.rows.matrix().toarray()
    lines = ["reward,state,action,next_state,terminated"]
    for row in rng.integers(16, size=3000):
        s, a = divmod(int(row), 2)
        lines.append(f"{float(mdp.rewards[row])!r},{s},{a},{rng.choice(8, p=P[row])},0")
    Path("data.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_solving_a_file_of_transitions(folder, capsys):
    given = ["--gamma", "0.9", "--reward-range", "0,1", "--exact-rewards", "--no-pictures", *SIZES]
    assert run(["solve", "data.csv", *given, "--delta", "0.1", "--out", "run", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    counts = bm.Counts.read("data.csv", n_states=8, n_actions=2)
    called = bm.solve_policy(counts, gamma=0.9, delta=0.1, **ASSUMED)
    assert facts["bound"] == called.certificate.error
    assert facts["delta"] == 0.1
    assert json.loads(Path("run/summary.json").read_text())["bound"] == called.certificate.error
    with np.load("run/result.npz") as kept:
        np.testing.assert_array_equal(kept["data_loss"], called.data.loss)
    assert run(["solve", "--resume", "run", "--steps", "600", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound"] == called.certificate.error
    assert run(["solve", "data.csv", *given, "--target", "1e-4", "--out", "two"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "with probability 0.95" in shown
    assert "missed" in shown


def test_estimating_a_model(folder, capsys):
    order = [
        "estimate",
        "data.csv",
        "--gamma",
        "0.9",
        "-o",
        "model.npz",
        "--counts",
        "counts.npz",
        "--reward-range",
        "0,1",
        *SIZES,
    ]
    assert run(order) == 0
    assert "every row that was visited is within" in capsys.readouterr().out
    counts = bm.Counts.read("counts.npz")
    assert counts.n_samples == 3000
    np.testing.assert_array_equal(bm.read("model.npz").rows.probs, counts.model(0.9).rows.probs)
    assert run(["estimate", "counts.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["transitions"] == 3000
    assert run(["estimate", "data.csv", "-o", "model.drn"]) == 0
    assert run(["solve", "counts.npz", "--gamma", "0.9", "--exact-rewards", "--out", "run", "--no-pictures"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", "data.csv", "--reward-range", "0,1"], "--gamma"),
        (["solve", "data.csv", "--gamma", "0.9"], "--reward-range"),
        (["solve", "data.csv", "--gamma", "0.9", "--reward-range", "0,1", "--delta", "2"], "--delta"),
        (["solve", "data.csv", "--gamma", "0.9", "--reward-range", "0"], "LOW,HIGH"),
        (["solve", "data.csv", "--gamma", "0.9", "--reward-range", "0,0.1", *SIZES], "outside"),
        (["solve", "data.csv", "--gamma", "0.9", "--reward-range", "0,1"], "--states 8 --actions 2"),
        (["solve", "data.csv", "--gamma", "0.9", "--reward-range", "0,1", "--states", "8"], "show all, --actions 2."),
        (["solve", "data.csv", "--gamma", "0.9", "--reward", "x", "--exact-rewards"], "--reward is for models"),
        (["solve", "problem:chain", "--delta", "0.1"], "--delta is for transitions"),
        (["estimate", "data.csv", "-o", "model.npz"], "--gamma"),
        (["estimate", "data.csv", "-o", "model.xyz"], "ending"),
        (["estimate", "missing.csv"], "no such file"),
        (["estimate", "data.csv", "--states", "3"], "out of range"),
        (["estimate", "data.csv", "--counts", "counts.csv"], ".npz"),
        (["estimate", "data.csv", "--gamma", "0.9", "-o", "m.npz", "--unseen", "uniform"], "--unseen"),
        (["solve", "data.csv", "--gamma", "0.9", "--exact-rewards", "--successors", "1", *SIZES], "successors"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(arguments, words, folder, capsys):
    before = sorted(path.name for path in folder.iterdir())
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not re.search(r"bm\.|\w+\(\)|None\b|[a-z]_[a-z]", said.replace("reward_range = (", "")), said
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_documented_example_runs(one_thread):
    pytest.importorskip("gymnasium")
    page = (Path(__file__).parent.parent / "docs" / "data.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "steps=200_000" in code
    found: dict[str, object] = {}
    exec(code.replace("steps=200_000", "steps=3_000"), found)
    made, lower, upper = found["run"], found["lower"], found["upper"]
    assert made.data.delta == 0.05
    assert len(made.data.loss) == 17
    assert (lower <= upper).all()
