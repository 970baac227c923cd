"""Solutions, runs and partitions that outlive their process: pickled, copied, saved, loaded, and gone on from."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from random_models import random_chain, random_mdp
from transports import EVERY_TRANSPORT, name

import bisimetric as bm
from bisimetric.damage import DamagedFileError
from bisimetric.reduction import Lumped

every_transport = pytest.mark.parametrize("transport", EVERY_TRANSPORT, ids=name)


def same_metric(a: bm.MetricSolution, b: bm.MetricSolution) -> None:
    assert a.distance.tobytes() == b.distance.tobytes()
    assert (a.status, a.certificate, a.sweeps, a.largest, a.notes, a.question) == (
        b.status,
        b.certificate,
        b.sweeps,
        b.largest,
        b.notes,
        b.question,
    )


@every_transport
@pytest.mark.parametrize("way", ["pickle", "copy"])
def test_metrics_can_be_pickled_and_copied(transport, way):
    """With all that a restart and a bracket need: the answers are the same bits."""
    chain = random_chain(3, 9)
    solution = bm.solve_metric(chain, transport, tol=1e-3)
    other = pickle.loads(pickle.dumps(solution)) if way == "pickle" else copy.deepcopy(solution)
    same_metric(other, solution)
    for mine, theirs in zip(other.bracket(), solution.bracket(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    on, expected = (bm.solve_metric(chain, transport, tol=1e-7, start=start) for start in (other, solution))
    same_metric(on, expected)


@every_transport
@pytest.mark.parametrize("restart", [True, False])
def test_metrics_are_saved_and_loaded(tmp_path, transport, restart):
    chain = random_chain(4, 9)
    solution = bm.solve_metric(chain, transport, tol=1e-3)
    solution.save(tmp_path / "d.npz", restart=restart)
    loaded = bm.MetricSolution.load(tmp_path / "d.npz")
    same_metric(loaded, solution)
    on, expected = (bm.solve_metric(chain, transport, tol=1e-7, start=start) for start in (loaded, solution))
    if restart:
        same_metric(on, expected)
    assert np.abs(on.distance - expected.distance).max() <= on.error + expected.error
    with pytest.raises(ValueError, match="without its model"):
        loaded.bracket()


@pytest.mark.parametrize("match", ["labels", "hausdorff"])
def test_metrics_of_lumped_models_are_kept(tmp_path, match):
    mdp = bm.problems.gridworld(width=3, height=2, copies=2)
    solution = bm.solve_metric(mdp, match=match, tol=1e-5)
    assert isinstance(solution.restart.reduction, Lumped)
    other = pickle.loads(pickle.dumps(solution))
    same_metric(other, solution)
    np.testing.assert_array_equal(other.bracket()[0], solution.bracket()[0])
    solution.save(tmp_path / "d.npz", restart=True)
    loaded = bm.MetricSolution.load(tmp_path / "d.npz")
    same_metric(
        bm.solve_metric(mdp, match=match, tol=1e-8, start=loaded),
        bm.solve_metric(mdp, match=match, tol=1e-8, start=solution),
    )


def test_checkpoints_of_a_solve_can_be_gone_on_from(tmp_path):
    chain = random_chain(5, 12, gamma=0.95)
    whole = bm.solve_metric(chain, bm.Sinkhorn(0.3, cost="value"), tol=1e-6)
    seen: list[int] = []

    def save(solution: bm.MetricSolution) -> None:
        seen.append(solution.sweeps)
        if len(seen) == 2:
            solution.save(tmp_path / "d.npz", restart=True)

    again = bm.solve_metric(chain, bm.Sinkhorn(0.3, cost="value"), tol=1e-6, on_checkpoint=save, checkpoint_every=0.0)
    same_metric(again, whole)  # looking changes nothing
    assert 1 < seen[1] < whole.sweeps  # sweeps that are combined are not parted
    start = bm.MetricSolution.load(tmp_path / "d.npz")
    on = bm.solve_metric(chain, bm.Sinkhorn(0.3, cost="value"), tol=1e-6, start=start)
    assert on.distance.tobytes() == whole.distance.tobytes()
    assert start.sweeps + on.sweeps == whole.sweeps


def test_runs_and_partitions_are_kept(tmp_path):
    mdp = random_mdp(1, 8, ragged=True)
    run = bm.solve_policy(mdp, steps=4, aggregation=bm.EpsilonCover(0.2))
    run.save(tmp_path / "run.npz")
    for other in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run), bm.PolicyRun.load(tmp_path / "run.npz")):
        for field in ("policy", "value", "choices", "distance", "abstract_value", "optimal_value"):
            assert getattr(other, field).tobytes() == getattr(run, field).tobytes(), field
        assert (other.history, other.certificate, other.status, other.actions) == (
            run.history,
            run.certificate,
            run.status,
            run.actions,
        )
        assert str(other.theorems) == str(run.theorems)
        assert other.partition == run.partition
        assert repr(other) == repr(run)
    run.partition.save(tmp_path / "classes.npz")
    for part in (bm.Partition.load(tmp_path / "classes.npz"), pickle.loads(pickle.dumps(run.partition))):
        assert part == run.partition
        assert (part.radius, part.diameter) == (run.partition.radius, run.partition.diameter)
    lumping = bm.lump(mdp)
    lumping.save(tmp_path / "lumping.npz")
    assert bm.Partition.load(tmp_path / "lumping.npz") == lumping
    with pytest.raises(TypeError, match=r"holds its partition alone; use Partition\.load"):
        bm.Lumping.load(tmp_path / "lumping.npz")
    with pytest.raises(DamagedFileError, match="not a saved partition of this version"):
        bm.Partition.load(tmp_path / "run.npz")
    other = pickle.loads(pickle.dumps(lumping))
    assert other == lumping
    np.testing.assert_array_equal(
        other.lift_policy(other.quotient.uniform_policy()), lumping.lift_policy(lumping.quotient.uniform_policy())
    )


def test_reprs_are_short():
    mdp = random_mdp(1, 8)
    chain = mdp.under(mdp.uniform_policy())
    run = bm.solve_policy(mdp, steps=2)
    for thing in (
        mdp,
        chain,
        bm.solve_metric(chain),
        run,
        run.partition,
        bm.lump(mdp),
        bm.evaluate(mdp, run.policy),
        run.certificate,
    ):
        assert len(repr(thing)) < 250, repr(thing)


def rewritten(path, **changes):
    with np.load(path) as data:
        arrays = {key: data[key] for key in data.files}
    np.savez(path, **{**arrays, **changes})


@pytest.mark.parametrize(
    "change",
    [
        {"distance": np.zeros((3, 4))},
        {"distance": np.full((9, 9), np.nan)},
        {"distance": -np.ones((9, 9))},
        {"distance": np.arange(81.0).reshape(9, 9)},
        {"distance": np.zeros((9, 9), np.float32)},
        {"about": np.array("{")},
        {"about": np.array('{"question": 5}')},
        {"version": np.array(99)},
        {"format": np.array("something")},
    ],
)
def test_damaged_metric_files_are_refused(tmp_path, change):
    path = tmp_path / "d.npz"
    bm.solve_metric(random_chain(4, 9), tol=1e-3).save(path)
    rewritten(path, **change)
    with pytest.raises(DamagedFileError, match=r"d\.npz"):
        bm.MetricSolution.load(path)


def test_values_and_policies_of_a_model():
    mdp = bm.problems.gridworld(width=3, height=3)
    best = bm.optimal_values(mdp)
    policy = bm.greedy(mdp, best)
    value = bm.evaluate(mdp, policy)
    np.testing.assert_allclose(value, best, atol=1e-9)
    assert best.error < 1e-9
    assert value.certificate.rigorous
    assert len(best) == 9
    run = bm.solve_policy(mdp, aggregation=bm.EpsilonCover(1e-6))
    np.testing.assert_allclose(run.value, best, atol=1e-9)
    assert set(run.actions) <= {"north", "south", "west", "east"}
    np.testing.assert_allclose(bm.evaluate(mdp, list(run.actions)), run.value, atol=1e-9)
    np.testing.assert_allclose(bm.evaluate(mdp, mdp.action_of_choice[run.choices]), run.value, atol=1e-9)
    with pytest.raises(ValueError, match="one entry per state"):
        bm.greedy(mdp, [1.0, 2.0])
    assert {"chain", "staircase", "detours", "garnet", "gridworld"} <= set(dir(bm.problems))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bm.solve_metric(np.eye(2)), "model must be a Chain or an MDP; got ndarray"),
        (lambda: bm.solve_metric(random_chain(0, 3), "exact"), "transport must be a transport"),
        (lambda: bm.solve_metric(random_chain(0, 3), tol="1e-6"), "tol must be a number; got str"),
        (lambda: bm.solve_metric(random_chain(0, 3), max_sweeps=2.5), "max_sweeps must be a whole number"),
        (lambda: bm.solve_metric(random_chain(0, 3), start=np.eye(3)), "start must be MetricSolution; got ndarray"),
        (lambda: bm.solve_metric(random_mdp(0, 3), match="labels", respect="goal"), "respect must be a sequence"),
        (lambda: bm.solve_policy(random_chain(0, 3)), "mdp must be an MDP; got Chain"),
        (lambda: bm.solve_policy(random_mdp(0, 3), transport="exact"), "transport must be a transport"),
        (lambda: bm.solve_policy(random_mdp(0, 3), stepz=5), "there is no setting 'stepz'"),
        (lambda: bm.solve_policy(random_mdp(0, 3), steps="5"), "steps must be a number; got str"),
        (lambda: bm.solve_policy(random_mdp(0, 3), aggregation=0.1), "aggregation must be a rule"),
        (lambda: bm.lump(random_chain(0, 3)), "mdp must be an MDP; got Chain"),
        (lambda: bm.evaluate(random_chain(0, 3), [0.0]), "mdp must be an MDP; got Chain"),
        (lambda: bm.EpsilonCover("0.1"), "eps must be a number; got str"),
        (lambda: bm.KMedoids(2.5), "k must be a whole number"),
        (lambda: bm.Sinkhorn("1"), "reg must be a number; got str"),
        (lambda: bm.Exact("1"), "p must be a number; got str"),
        (lambda: bm.KLBall([1.0]), "radius must be a number; got list"),
        (lambda: bm.Constant("1"), "alpha must be a number; got str"),
        (lambda: bm.quotient(random_mdp(0, 3), [0, 1, 2]), "partition must be Partition; got list"),
    ],
)
def test_wrong_types_name_the_argument(call, words):
    with pytest.raises(TypeError) as caught:
        call()
    assert words in str(caught.value)
