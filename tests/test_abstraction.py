"""Cross metrics: their inequalities for any small model; abstractions: what they certify is so."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_chain, random_mdp

import bisimetric as bm
from bisimetric.abstraction.abstract import states_needed
from bisimetric.abstraction.proposals import farthest_points
from bisimetric.abstraction.subjects import InMemory
from bisimetric.cli import run

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)
MATCHES = (None, "labels", "hausdorff")


@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, tol=st.sampled_from([1e-6, 0.3]))
def test_inequalities_hold_for_any_small_model(match, seed, tol):
    """The small model is random: nothing is known of it, and the bounds are true."""
    make = random_chain if match is None else random_mdp
    model, small = make(seed, 7, 0.9), make(seed + 1, 3, 0.9)
    if model.reward_range != (0.0, 1.0) or not 0.0 <= small.reward_range[0] <= small.reward_range[1] <= 1.0:
        return
    truth = bm.solve_metric(model, match=match, tol=1e-9)
    found = bm.cross(model, small, match=match, tol=tol)
    for s in range(7):
        lower, upper = found.bracket(s, np.arange(7))
        assert (lower <= truth.distance[s] + 1e-8).all()
        assert (truth.distance[s] <= upper + 1e-8).all()
        near = found.nearest(s, 2)
        kth = np.sort(np.delete(truth.distance[s], s))[1]
        assert (truth.distance[s, near.states] <= kth + near.eta + 1e-8).all()
    if match != "hausdorff":
        sides = [m if match else None for m in (model, small)]
        if match is None:
            V, W = (_chain_values(m) for m in (model, small))
        else:
            V, W = (bm.optimal_values(m).value for m in sides)
        values, errors = found.values(W)
        assert (np.abs(V - values) <= errors + 1e-8).all()


def _chain_values(chain):
    n = chain.n_states
    return np.linalg.solve(np.eye(n) - chain.gamma * chain.rows.matrix().toarray(), chain.rewards)


def test_rewards_beyond_the_range_are_refused_where_states_are_apart():
    model = random_mdp(0, 5, 0.9, ragged=False).with_labels({"x": np.arange(5) < 2})
    small = random_mdp(1, 3, 0.9, ragged=False)
    with pytest.raises(ValueError, match="rewards must lie within"):
        bm.cross(model, small.with_rewards(small.rewards * 9.0), match="labels")
    with pytest.raises(ValueError, match="Exact transport"):
        bm.cross(model, small, match="labels", transport=bm.Independent())


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, size=st.integers(1, 6), match=st.sampled_from(["labels", "hausdorff"]))
def test_abstractions_are_certified(seed, size, match):
    mdp = random_mdp(seed, 8, 0.9, ragged=False)
    found = bm.abstract(mdp, size=size, match=match)
    assert found.small.n_states <= size
    D = bm.compare(mdp, found.small, match=match, tol=1e-9).distance
    assert (D[np.arange(8), found.class_of] <= found.radii + 1e-8).all()
    if match == "labels":
        loss = bm.optimal_values(mdp).value - bm.evaluate(mdp, found.policy).value
        assert loss.max() <= found.certificate.error + 1e-8


def test_bisimilar_states_are_merged_first():
    mdp = bm.problems.gridworld(copies=3)
    found = bm.abstract(mdp, eps=0.05, match="labels")
    assert found.radius <= 0.05
    assert found.small.n_states <= 25
    assert found.certificate.error < 1e-6


def test_a_random_graph_has_no_cover_and_that_is_said_early():
    mdp = bm.problems.garnet(n_states=1500, n_actions=2, branching=4, gamma=0.9, seed=0)
    with pytest.raises(bm.NoCoverError, match="needs at least") as error:
        bm.abstract(mdp, eps=0.2, match="labels", most=64)
    assert 64 < error.value.needed <= 1500


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_the_number_of_states_needed_is_no_more_than_a_cover_has(seed):
    chain = random_chain(seed, 8, 0.9)
    d = bm.solve_metric(chain, tol=1e-9).distance
    cover = bm.EpsilonCover(0.3)(d)
    assert states_needed(InMemory(chain, None), float(cover.radius) + 1e-6, seed) <= cover.n_classes


def test_medoids_are_far_apart_and_one_of_each_kind():
    rng = np.random.default_rng(0)
    x, apart = rng.random((50, 2)), np.arange(50) % 3
    found = farthest_points(x, apart, 10)
    assert len(set(apart[found.states])) == 3
    assert (apart[found.states[found.class_of]] == apart).all()


@pytest.mark.parametrize(
    ("given_settings", "words"),
    [({}, "one of them"), ({"eps": 1.0, "size": 2}, "one of them"), ({"eps": 0.0}, "eps"), ({"size": 0}, "size")],
)
def test_bad_input_is_named(given_settings, words):
    with pytest.raises(ValueError, match=words):
        bm.abstract(random_chain(0, 4), **given_settings)


def test_commands(capsys, tmp_path):
    assert run(["query", "problem:gridworld", "0", "5", "--match", "labels", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["lower"] <= facts["upper"] <= facts["lower"] + 1e-3
    assert run(["query", "problem:gridworld", "0", "--nearest", "2", "--match", "labels"]) == 0
    assert "eta" in capsys.readouterr().out
    assert run(["query", "problem:gridworld", "0", "5", "--at-most", "100", "--match", "labels"]) == 0
    assert "yes" in capsys.readouterr().out
    assert run(["query", "problem:gridworld", "0", "999", "--match", "labels"]) == 2
    assert run(["query", "problem:gridworld", "0", "5", "--pairs", "0", "--match", "labels"]) == 2
    assert run(["query", "problem:garnet", "0", "1", "--pairs", "1", "--tol", "1e-6", "--match", "labels"]) == 1
    capsys.readouterr()
    out = tmp_path / "small.npz"
    assert run(["abstract", "problem:gridworld", "--match", "labels", "--size", "10", "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["radius"] > 0.0
    with np.load(out) as saved:
        assert len(saved["class_of"]) == len(saved["radii"])
    assert run(["abstract", "problem:gridworld", "--match", "labels"]) == 2
