"""Small models at the edges: states that have other actions than their class, equal rewards, odd arguments."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_models import random_chain, random_mdp

import bisimetric as bm

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS, size=st.integers(1, 4))
@example(seed=9000, size=1)
@example(seed=9000, size=3)
def test_policies_are_policies_where_sets_of_actions_differ(seed, size):
    """Fewer classes than sets of actions: some states have none of the actions that their class plays."""
    mdp = random_mdp(seed, 8, 0.9, ragged=True)
    found = bm.abstract(mdp, size=size, match="labels")
    assert (found.policy >= 0.0).all()
    assert np.allclose(np.add.reduceat(found.policy, mdp.choice_ptr[:-1]), 1.0, rtol=0.0, atol=1e-12)
    loss = bm.optimal_values(mdp).value - bm.evaluate(mdp, found.policy).value
    assert found.certificate.rigorous
    assert loss.max() <= found.certificate.error + 1e-8


def test_states_that_play_what_they_have_are_counted():
    """One class for all: b is what it plays, and the state that has only a plays a."""
    P = np.eye(3)[[0, 1, 1, 2]]
    mdp = bm.MDP.from_choices(P, [0.0, 0.0, 1.0, 0.5], [0, 1, 3, 4], 0.9, ["a", "a", "b", "b"])
    found = bm.abstract(mdp, size=1, match="labels")
    assert np.array_equal(np.add.reduceat(found.policy, [0, 1, 3]), [1.0, 1.0, 1.0])
    assert any(note.endswith("all of theirs alike: 1") for note in found.notes)


def test_policies_are_lifted_only_where_actions_agree():
    mdp = random_mdp(0, 4, ragged=False)
    small = bm.MDP.from_choices(np.ones((3, 1)), [0.0, 1.0, 0.5], [0, 3], mdp.gamma, ["0", "1", "2"])
    with pytest.raises(bm.ModelError, match="different actions"):
        bm.lift_policy(mdp, small, bm.Partition.from_classes(np.zeros(4, np.int64)), small.uniform_policy())


@pytest.mark.parametrize("most", [0, -3])
def test_a_largest_size_below_1_is_refused(most):
    with pytest.raises(ValueError, match="most must be at least 1"):
        bm.abstract(random_chain(0, 4), eps=0.1, most=most)


def labelled_chain(P, rewards, holds):
    return bm.Chain.from_arrays(P, rewards, 0.9, state_labels={"x": np.array(holds)})


THREE = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.3, 0.3, 0.4]])
TWO = [[0.5, 0.5], [0.2, 0.8]]


def test_equal_rewards_of_a_large_model_must_be_those_of_the_small_one_where_states_are_apart():
    """Apart by definition is as far as rewards that differ by 1 there: the largest distances of both must be equal."""
    large = labelled_chain(THREE, [0.2] * 3, [True, False, False])
    with pytest.raises(bm.ModelError, match=r"all 0\.2, so those of the small one must be too.*0\.2 to 0\.5"):
        bm.cross(large, labelled_chain(TWO, [0.2, 0.5], [True, False]), tol=1e-6)
    with pytest.raises(bm.ModelError, match=r"must be too.*0\.2 to 1\.5"):
        bm.cross(large, labelled_chain(TWO, [0.2, 1.5], [True, False]), tol=1e-6)
    found = bm.cross(large, labelled_chain(TWO, [0.2, 0.2], [True, False]), tol=1e-6)
    truth = bm.solve_metric(large, tol=1e-9)
    for s in range(3):
        lower, upper = found.bracket(s, range(3))
        assert (lower <= truth.distance[s] + truth.error).all()
        assert (truth.distance[s] - truth.error <= upper).all()


def test_equal_rewards_do_not_matter_where_no_states_are_apart():
    large, small = bm.Chain.from_arrays(THREE, [0.2] * 3, 0.9), bm.Chain.from_arrays(TWO, [0.2, 0.5], 0.9)
    lower, _ = bm.cross(large, small, tol=1e-6).bracket(0, [1, 2])
    assert (lower == 0.0).all()


def test_brackets_have_the_shape_of_what_was_asked():
    found = bm.cross(random_chain(0, 7, 0.9), random_chain(1, 3, 0.9), tol=0.1)
    flat = found.bracket(2, np.arange(6))
    for several in (np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2, 1)):
        for bound, one in zip(found.bracket(2, several), flat, strict=True):
            assert bound.shape == several.shape
            assert np.array_equal(bound.ravel(), one)
    assert found.bracket(2, 5)[0].shape == ()
    for none in ([], np.zeros((0, 2), np.int64)):
        assert found.bracket(2, none)[0].shape == np.shape(none)
    with pytest.raises(ValueError, match="numbers of states"):
        found.bracket(2, [0.5])


def test_a_distance_that_is_the_largest_one_is_within_the_bounds():
    """In rational arithmetic: largest = 1/(1 − γ), which the numbers can be a unit below."""
    for gamma in (0.7, 0.9, 0.95, 0.99, 0.999):
        chain = bm.Chain.from_arrays(np.eye(2), [0.0, 1.0], gamma)
        lower, upper = bm.cross(chain, chain, tol=1e-6).bracket(0, 1)
        truth = 1 / (1 - Fraction(gamma))
        assert Fraction(float(lower)) <= truth <= Fraction(float(upper))


def test_settings_of_a_cross_metric_are_named():
    large, small = random_chain(0, 7, 0.9), random_chain(1, 3, 0.9)
    assert (bm.cross(large, small, reward_weight=0.0).distance == 0.0).all()  # nothing differs, and a default for tol
    with pytest.raises(TypeError, match="reward_weight must be a number"):
        bm.cross(large, small, reward_weight=None)
    with pytest.raises(ValueError, match="transition_weight"):
        bm.cross(large, small, transition_weight=2.0)
    with pytest.raises(TypeError, match="model must be a Chain or an MDP"):
        bm.cross(None, small)
    with pytest.raises(ValueError, match=r"tol must be positive and finite; got 0\.0"):
        bm.cross(large, small, tol=0.0)


@pytest.mark.parametrize("exponent", [-1074, -1060, -1030, 0, 900])
def test_states_are_merged_by_rewards_of_any_size(exponent):
    """Rewards whose unit of comparison would be no number."""
    rewards = np.ldexp([1.0, 1.0, 0.0], exponent)
    mdp = bm.MDP.from_arrays(np.full((3, 1, 3), 1.0 / 3.0), rewards[:, None], 0.5, axes="sas")
    assert bm.lump(mdp).class_of.tolist() == [0, 0, 1]


def circle(n):
    P = np.zeros((n, 1, n))
    P[np.arange(n), 0, (np.arange(n) + 1) % n] = 1.0
    return bm.MDP.from_arrays(P, np.full((n, 1), -1.0), 0.99, axes="sas")


def test_iterated_best_values_may_be_too_high():
    """With many states values are iterated, from above where rewards are negative: max(TV − V) says nothing of that."""
    mdp = circle(600)
    best = bm.optimal_values(mdp)
    off = np.abs(best.value + 100.0).max()
    assert 0.0 < off <= best.error
    value, bound = bm.cross(mdp, mdp, match="labels", lump=False).values(best)
    assert (np.abs(value + 100.0) <= bound).all()
    one = bm.MDP.from_arrays(np.ones((1, 1, 1)), [[-1.0]], 0.99, axes="sas")
    lower, upper = bm.compare(mdp, one, match="labels").bracket()
    assert (lower <= upper).all()


def test_errors_of_small_values_count():
    mdp = bm.problems.gridworld(width=3, height=3)
    found = bm.cross(mdp, mdp, match="labels", tol=1e-6)
    exact, off = bm.optimal_values(mdp), 0.5
    rough = bm.values.Values(exact.value + off, bm.certificates.Certificate(off, True, "a test"))
    assert (found.values(rough)[1] >= off).all()
    with pytest.raises(ValueError, match="finite"):
        found.values(np.full(mdp.n_states, np.nan))


def test_rewards_out_of_range_by_rounding_are_counted_where_states_are_apart():
    large = bm.Chain.from_arrays(np.eye(2), [1.0, 0.0], 0.7, state_labels={"x": np.array([True, False])})
    for off in (9e-13, -9e-13):
        found = bm.cross(large, bm.Chain.from_arrays(np.eye(2), [1.0 + off, 0.0], 0.7))
        lower, upper = found.bracket(0, 1)
        assert lower <= 1.0 / 0.3 <= upper * (1.0 + 1e-15)
        assert found.moved <= 4e-12
    with pytest.raises(ValueError, match="needs Exact transport"):
        bm.cross(large, large, transport=bm.Sinkhorn(1.0), on_progress=lambda progress: pytest.fail("solved first"))


def test_no_more_states_are_needed_than_there_are():
    """Two states of each kind: by chance too few of the pairs that are drawn are alike, which must not refuse all."""
    rewards = np.arange(40) / 40
    chain = bm.Chain.from_arrays(np.eye(80), np.r_[rewards, rewards], 0.9)
    assert bm.abstract(chain, eps=0.01).radius <= 0.01


def test_there_is_a_state_for_each_class_where_that_is_asked_for():
    """Landmarks do not tell all states apart; where there is room for all of them, that does not matter."""
    rng = np.random.default_rng(0)
    n = 24
    P = np.zeros((n, 2, n))
    for s in range(n):
        P[s, 0, (s + 1) % n] = P[s, 1, (5 * s + 2) % n] = 1.0
    rewards = np.zeros((n, 2))
    rewards[0] = 1.0
    mdp = bm.MDP.from_arrays(P, rewards, 0.5, axes="sas").with_labels({"a": rng.random(n) < 0.3})
    classes = bm.lump(mdp).n_classes
    for size in (classes, 10 * n):
        found = bm.abstract(mdp, size=size, match="labels")
        assert found.small.n_states == classes
        assert found.radius <= 2e-3 * bm.solve_metric(mdp, match="labels").largest
    less = bm.abstract(mdp, size=classes - 3, match="labels")
    largest = bm.solve_metric(mdp, match="labels").largest
    assert less.small.n_states == classes - 3 or any(f"not {classes - 3}" in note for note in less.notes)
    assert less.radius <= largest * (1.0 + 1e-12)
    twice = bm.problems.gridworld(width=3, height=3, copies=2)  # not halved but for its copies, and by them it is
    assert bm.abstract(twice, eps=0.01, match="labels").radius <= 0.01
