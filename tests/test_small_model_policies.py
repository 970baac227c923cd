"""Policy iteration through small models: certified classes, certified policies, run folders, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_mdp

import bisimetric as bm
from bisimetric.aggregation import partition_within
from bisimetric.cli import run as command
from bisimetric.policy import small_models

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, size=st.integers(1, 9), p=st.sampled_from([1.0, 2.0]), restart=st.booleans())
def test_classes_and_policies_are_certified(seed, size, p, restart):
    """Of every step: the true metric of its policy stays within the diameter; of the end: the policy's loss."""
    mdp = random_mdp(seed, 8, 0.9, ragged=False)
    policies = [mdp.uniform_policy()]
    run = bm.solve_policy(
        mdp,
        transport=bm.Exact(p),
        aggregation=bm.SmallModel(size),
        step_size=bm.Constant(0.5),
        steps=4,
        restart_metric=restart,
        optimum=True,
    )
    loss = run.optimal_value - run.value
    assert -1e-9 <= loss.max() <= run.certificate.error + 1e-8
    assert run.distance.shape[0] == 8
    assert run.distance.shape[1] <= size
    assert run.theorems == ()
    single = bm.solve_policy(mdp, transport=bm.Exact(p), aggregation=bm.SmallModel(size), steps=1)
    d = bm.solve_metric(mdp.under(policies[0]), bm.Exact(p), respect=(), tol=1e-9).distance
    same = single.partition.class_of[:, None] == single.partition.class_of[None, :]
    assert d[same].max() <= single.partition.diameter + 1e-7
    medoid = single.partition.medoids[single.partition.class_of]
    assert d[np.arange(8), medoid].max() <= single.partition.radius + 1e-7


@given(seed=SEEDS)
def test_extents_follow_from_radii(seed):
    """States at random points of a line, classes by the nearest of some centres: radii are true, so extents are."""
    rng = np.random.default_rng(seed)
    x, centres = rng.random(9), rng.random(3)
    away = np.abs(x[:, None] - centres[None, :])
    class_of, radii = away.argmin(axis=1), away.min(axis=1)
    found = partition_within(class_of, radii)
    d = np.abs(x[:, None] - x[None, :])
    same = found.class_of[:, None] == found.class_of[None, :]
    assert np.array_equal(same, class_of[:, None] == class_of[None, :])
    assert d[same].max() <= found.diameter + 1e-12
    medoid = found.medoids[found.class_of]
    assert np.array_equal(found.class_of[found.medoids], np.arange(found.n_classes))
    assert d[np.arange(9), medoid].max() <= found.radius + 1e-12
    assert found.radius <= found.diameter + 1e-12 <= 2.0 * radii.max() + 1e-12


def test_as_many_states_as_the_model_has_is_exact():
    mdp = random_mdp(3, 7, 0.9, ragged=False)
    run = bm.solve_policy(mdp, aggregation=bm.SmallModel(7), steps=20, optimum=True, early_stop=0.0)
    assert run.error <= 1e-8
    assert run.certificate.error <= 1e-7


def test_known_classes_are_found():
    mdp = bm.problems.chain(n_states=60, n_classes=6)
    run = bm.solve_policy(mdp, aggregation=bm.SmallModel(8), step_size=bm.PowerDecay(0.8, floor=2**-6), steps=10)
    assert run.history[-1].nmi == pytest.approx(1.0)
    assert run.curve("metric_gap")[-1] < 0.1


def test_nothing_of_all_pairs_is_made(monkeypatch):
    """The loop asks for no S × S distances, and no solver of all pairs is made."""
    monkeypatch.setattr(small_models, "sweeper_of", None)
    mdp = bm.problems.gridworld(width=12, height=12)
    run = bm.solve_policy(mdp, aggregation=bm.SmallModel(30), steps=2, dtype="float32", lump=False)
    assert run.distance.shape == (144, 30)
    assert run.distance.dtype == np.float32


def test_one_seed_one_result():
    mdp = bm.problems.gridworld(width=6, height=6)
    runs = [bm.solve_policy(mdp, aggregation=bm.SmallModel(9), steps=4, greedy_noise=(0.01, 0.5)) for _ in range(2)]
    bm.set_threads(3)
    try:
        runs.append(bm.solve_policy(mdp, aggregation=bm.SmallModel(9), steps=4, greedy_noise=(0.01, 0.5)))
    finally:
        bm.set_threads(None)
    for other in runs[1:]:
        assert other.policy.tobytes() == runs[0].policy.tobytes()
        assert other.distance.tobytes() == runs[0].distance.tobytes()
    batch = bm.solve_policies(mdp, [{}, {}], aggregation=bm.SmallModel(9), steps=4, greedy_noise=(0.01, 0.5))
    assert all(one.policy.tobytes() == runs[0].policy.tobytes() for one in batch)


def test_ctrl_c_ends_a_run_between_steps(monkeypatch):
    mdp = bm.problems.gridworld(width=5, height=5)
    cross, calls = small_models.cross, []

    def stopping(*given_models, **how):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return cross(*given_models, **how)

    monkeypatch.setattr(small_models, "cross", stopping)
    run = bm.solve_policy(mdp, aggregation=bm.SmallModel(6), steps=9, settle=False)
    assert run.status is bm.Status.INTERRUPTED
    assert len(run.history) == 2


def test_run_folders_resume_to_the_same_bytes(tmp_path, capsys):
    model = ["problem:gridworld?width=6&height=5", "--small", "8", "--alpha", "0.5", "--no-pictures"]
    assert command(["solve", *model, "--steps", "6", "--out", str(tmp_path / "whole")]) == 0
    assert command(["solve", *model, "--steps", "3", "--out", str(tmp_path / "cut")]) == 0
    assert command(["solve", "--resume", str(tmp_path / "cut"), "--steps", "6", "--no-pictures"]) == 0
    capsys.readouterr()
    results = [(tmp_path / name / "result.npz").read_bytes() for name in ("whole", "cut")]
    assert results[0] == results[1]
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert summary["classes"] <= 8
    assert command(["view", str(tmp_path / "whole"), "-o", str(tmp_path / "page.html")]) == 2
    assert "small model" in capsys.readouterr().err


def test_saved_runs_come_back(tmp_path):
    run = bm.solve_policy(bm.problems.gridworld(width=4, height=4), aggregation=bm.SmallModel(5), steps=2)
    run.save(tmp_path / "r.npz")
    assert np.array_equal(bm.PolicyRun.load(tmp_path / "r.npz").distance, run.distance)


def test_what_cannot_be_is_refused(capsys):
    mdp = bm.problems.gridworld(width=4, height=4)
    with pytest.raises(ValueError, match="size must be at least 1"):
        bm.SmallModel(0)
    with pytest.raises(TypeError, match="whole number"):
        bm.SmallModel(2.5)
    with pytest.raises(ValueError, match="needs Exact transport"):
        bm.solve_policy(mdp, aggregation=bm.SmallModel(5), transport=bm.Independent())
    with pytest.raises(ValueError, match="lump=True"):
        bm.solve_policy(mdp, aggregation=bm.SmallModel(5), lump=True)
    with pytest.raises(ValueError, match="is for solve_policy"):
        bm.SmallModel(5)(np.zeros((4, 4)))
    assert command(["solve", "problem:gridworld", "--small", "5", "--eps", "0.1"]) == 2
    assert "one of them" in capsys.readouterr().err
    run = bm.solve_policy(mdp, aggregation=bm.SmallModel(5), steps=1)
    with pytest.raises(ValueError, match="needs those of all pairs"):
        bm.view(run, "page.html", model=mdp)
