"""Distances between the states of two models: against rational truth, the metric of their union, and laws."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import rational_policy_iteration as oracle
from exact_truth import values
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_diag
from transports import EVERY_TRANSPORT, name

import bisimetric as bm

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)
MATCHES = (None, "labels", "hausdorff")
# Between two models there is no diagonal that could be set to 0.
WAYS = (*(way for way in EVERY_TRANSPORT if getattr(way, "diagonal", "kept") == "kept"), bm.Independent(2.0))
every_way = pytest.mark.parametrize("way", WAYS, ids=name)
every_match = pytest.mark.parametrize("match", MATCHES)


def model_for(match, seed, n=4, **settings_of_model):
    make = oracle.eighths_chain if match is None else oracle.eighths_mdp
    return make(seed, n, **settings_of_model)


def two_models(match, seed, **settings_of_model):
    """Models of 4 and 3 states that have the same label of states, where they have any."""
    return model_for(match, 2 * seed, 4, **settings_of_model), model_for(match, 2 * seed + 1000, 3, **settings_of_model)


def union(model, other):
    """Both models side by side: between their states, its metric is the distance that is looked for."""
    P = block_diag([model.rows.matrix(), other.rows.matrix()], format="csr")
    R = np.concatenate([model.rewards, other.rewards])
    labels = {x: np.concatenate([model.state_labels[x], other.state_labels[x]]) for x in model.state_labels}
    if isinstance(model, bm.Chain):
        return bm.Chain.from_arrays(P, R, model.gamma, state_labels=labels)
    actions = [x.action_labels[k] for x in (model, other) for k in x.action_of_choice]
    pointers = np.concatenate([model.choice_ptr, model.choice_ptr[-1] + other.choice_ptr[1:]])
    return bm.MDP.from_choices(P, R, pointers, model.gamma, actions).with_labels(labels)


def apart(a, b):
    return float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())


def slack(way, *solutions):
    """How far answers may be apart: the sum of their errors; without a theorem, some of them."""
    return (1.0 if way.axioms.nonexpansive else 5.0) * sum(x.error for x in solutions) * (1.0 + 1e-12)


def test_two_coins():
    """A fair coin, and one that gives heads with 5/8: d = γ/8 · d(heads, tails), from a chain to another."""
    fair = bm.Chain.from_arrays([[0, 0.5, 0.5], [0, 1, 0], [0, 0, 1]], [0.0, 1.0, -1.0], 0.5)
    biased = bm.Chain.from_arrays([[0, 0.375, 0.625], [0, 1, 0], [0, 0, 1]], [0.0, -1.0, 1.0], 0.5)
    found = bm.compare(fair, biased, tol=1e-9)
    # d(heads, tails) = 4. From the fair coin to either: 1 + 1/2 · 1/2 · 4; to the biased coin mass 3/8 or 5/8 is moved.
    expected = np.array([[0.25, 2.0, 2.0], [1.75, 4.0, 0.0], [2.25, 0.0, 4.0]])
    assert found.status is bm.Status.CONVERGED
    assert apart(found.distance, expected) <= found.error + 1e-15
    assert found.nearest().tolist() == [0, 2, 1]


@every_match
@pytest.mark.parametrize("labelled", [False, True])
@settings(max_examples=12)
@given(seed=SEEDS, gamma=st.sampled_from([0.0, 0.5, 0.9, 0.99]), c_R=st.sampled_from([1.0, 1.0, 2.5]))
def test_distances_are_within_their_errors_of_the_truth(match, labelled, seed, gamma, c_R):
    model, other = two_models(match, seed, gamma=gamma, labelled=labelled)
    truth = oracle.cross_metric(model, other, match, c_R)
    found = bm.compare(model, other, match=match, reward_weight=c_R, tol=1e-7)
    assert found.distance.shape == (4, 3)
    assert found.status is bm.Status.CONVERGED
    assert found.error == found.certificate.error <= 1e-7
    assert found.certificate.rigorous
    assert oracle.within(found.distance, truth, found.error)
    lower, upper = found.bracket()
    assert oracle.enclosed(lower, truth, upper)
    assert (upper - lower).max() <= 1e-4


@every_match
@settings(max_examples=10)
@given(seed=SEEDS, tol=st.sampled_from([1.0, 1e-2, 1e-4]))
def test_single_precision_is_within_its_errors_of_the_truth(match, seed, tol):
    model, other = two_models(match, seed)
    truth = oracle.cross_metric(model, other, match)
    found = bm.compare(model, other, bm.Exact(), match=match, tol=tol, dtype="float32")
    assert found.distance.dtype == np.float32
    assert oracle.within(found.distance, truth, found.error)
    lower, upper = found.bracket()
    assert oracle.enclosed(lower, truth, upper)


@every_match
@pytest.mark.parametrize("max_sweeps", [1, 2, 4])
def test_bounds_hold_after_an_early_stop(match, max_sweeps):
    for seed in range(6):
        model, other = two_models(match, seed, gamma=0.99)
        truth = oracle.cross_metric(model, other, match)
        found = bm.compare(model, other, match=match, tol=1e-9, max_sweeps=max_sweeps)
        assert found.status in (bm.Status.SWEEP_LIMIT, bm.Status.CONVERGED)
        assert (found.status is bm.Status.CONVERGED) == (found.error <= 1e-9)
        assert oracle.within(found.distance, truth, found.error)
        lower, upper = found.bracket()
        assert oracle.enclosed(lower, truth, upper)


@every_way
@every_match
@pytest.mark.parametrize("labelled", [False, True])
def test_distances_are_those_within_the_union(way, match, labelled):
    for seed in range(3):
        model, other = two_models(match, seed, labelled=labelled)
        found = bm.compare(model, other, way, match=match, tol=1e-5)
        whole = bm.solve_metric(union(model, other), way, match=match, tol=1e-5, lump=False)
        assert found.certificate.rigorous == way.axioms.nonexpansive
        assert found.error <= 1e-5
        assert apart(found.distance, whole.distance[:4, 4:]) <= slack(way, found, whole)


@every_way
@every_match
def test_a_model_and_itself(way, match):
    """The metric of the model, on the diagonal too, which the transports that are not exact keep above 0."""
    positive = 0
    for seed in range(3):
        model = model_for(match, seed, 5, labelled=bool(seed % 2))
        found = bm.compare(model, model, way, match=match, tol=1e-5)
        solution = bm.solve_metric(model, way, match=match, tol=1e-5)
        assert apart(found.distance, solution.distance) <= slack(way, found, solution)
        assert apart(found.distance, found.distance.T) <= 2.0 * slack(way, found)
        positive += int((np.diag(found.distance) > 0.01).sum())
        if way.axioms.zero_diagonal:
            assert np.diag(found.distance).max() <= found.error
    assert way.axioms.zero_diagonal or positive > 0


@every_way
@every_match
def test_the_other_way_round(way, match):
    for seed in range(3):
        model, other = two_models(match, seed, labelled=True)
        found, back = (bm.compare(*pair, way, match=match, tol=1e-5) for pair in ((model, other), (other, model)))
        assert found.distance.shape == back.distance.T.shape
        assert apart(found.distance, back.distance.T) <= slack(way, found, back)


@pytest.mark.parametrize("match", [None, "hausdorff"])
@settings(max_examples=10)
@given(seed=SEEDS, p=st.sampled_from([1.0, 2.0]))
def test_the_triangle_inequality_through_a_third_model(match, seed, p):
    a, b, c = (model_for(match, seed + k, 3 + k % 2) for k in (0, 7001, 14002))
    ab, bc, ac = (bm.compare(*pair, bm.Exact(p), match=match, tol=1e-6) for pair in ((a, b), (b, c), (a, c)))
    through = (ab.distance[:, :, None] + bc.distance[None, :, :]).min(axis=1)
    assert (ac.distance <= through + ab.error + bc.error + ac.error).all()


@settings(max_examples=20)
@given(seed=SEEDS, gamma=st.sampled_from([0.5, 0.9, 0.99]))
def test_distances_bound_differences_of_values(seed, gamma):
    model, other = two_models(None, seed, gamma=gamma)
    V, W = (values(x.rows.matrix().toarray(), x.rewards, gamma) for x in (model, other))
    found = bm.compare(model, other, tol=1e-6)
    _, upper = found.bracket()
    for s, t in np.ndindex(4, 3):
        gap = abs(V[s] - W[t])
        assert gap <= Fraction(float(found.distance[s, t])) + Fraction(found.error)
        assert gap <= Fraction(float(upper[s, t]))


@pytest.mark.parametrize("match", ["labels", "hausdorff"])
def test_values_of_the_best_policies_are_bounded_too(match):
    for seed in range(6):
        model, other = two_models(match, seed)
        V, W = (bm.optimal_values(x).value for x in (model, other))
        found = bm.compare(model, other, match=match, tol=1e-6)
        assert (np.abs(V[:, None] - W[None, :]) <= found.distance + found.error + 1e-9).all()


@pytest.mark.parametrize("match", ["labels", "hausdorff"])
@pytest.mark.parametrize(
    "mdp",
    [
        bm.problems.chain(n_states=24, n_classes=6),
        bm.problems.gridworld(width=3, height=2, copies=3),
        bm.problems.detours(n_states=20, n_classes=5, n_actions=3),
    ],
    ids=["chain", "gridworld", "detours"],
)
def test_each_state_is_at_no_distance_from_its_class(mdp, match):
    classes = bm.lump(mdp, match)
    assert classes.quotient.n_states < mdp.n_states
    found = bm.compare(mdp, classes.quotient, match=match, tol=1e-6)
    assert found.status is bm.Status.CONVERGED
    own = found.distance[np.arange(mdp.n_states), classes.class_of]
    assert own.max() <= found.error
    others = np.delete(found.distance, classes.class_of[0], axis=1)[0]
    assert others.min() > found.error  # classes are not at distance 0 from each other
    np.testing.assert_array_equal(found.nearest(), classes.class_of)
    uniform = np.full(mdp.n_states, 1.0 / mdp.n_states)
    value, error = found.between(uniform, np.bincount(classes.class_of, uniform))
    assert 0.0 <= value <= error + 1e-12


def test_a_model_whose_choices_are_moved_and_named_apart():
    """Actions and labels of states are matched by name, whatever their numbers and their order are."""
    P = np.array([[0.5, 0.5], [0.0, 1.0], [1.0, 0.0], [0.25, 0.75]])
    R, x, y = np.array([0.0, 1.0, 0.25, 0.5]), np.array([True, False]), np.array([False, False])
    model = bm.MDP.from_choices(P, R, [0, 2, 4], 0.75, ["left", "right"] * 2).with_labels({"x": x, "y": y})
    moved = [3, 2, 1, 0]  # states and choices in the other order
    other = bm.MDP.from_choices(P[moved][:, ::-1], R[moved], [0, 2, 4], 0.75, ["right", "left"] * 2)
    other = other.with_labels({"y": y[::-1], "x": x[::-1]})
    found = bm.compare(model, other, match="labels", tol=1e-9)
    truth = oracle.metric_of(model, "labels")[:, ::-1]
    assert oracle.within(found.distance, truth, found.error)
    assert found.nearest().tolist() == [1, 0]
    more = dataclasses.replace(
        other, action_labels=("up", *other.action_labels), action_of_choice=1 + other.action_of_choice
    )
    again = bm.compare(model, more, match="labels", tol=1e-9)
    assert oracle.within(again.distance, truth, again.error)


def test_actions_that_one_model_does_not_have():
    """As far apart as can be by labels, with the rewards of both models; as sets of choices they may be alike."""
    here = bm.MDP.from_choices(np.eye(1), [1.0], [0, 1], 0.5, ["a"])
    there = bm.MDP.from_choices(np.array([[1.0], [1.0]]), [1.0, 4.0], [0, 2], 0.5, ["a", "b"])
    renamed = bm.MDP.from_choices(np.eye(1), [1.0], [0, 1], 0.5, ["b"])
    found = bm.compare(here, there, match="labels")
    assert apart(found.distance, [[6.0]]) <= found.error
    assert (
        apart(bm.compare(here, renamed, match="labels").distance, [[2.0]]) <= 1e-6
    )  # equal rewards count as a span of 1
    assert apart(bm.compare(here, renamed, match="hausdorff").distance, [[0.0]]) <= 1e-6


@settings(max_examples=25)
@given(seed=SEEDS, labelled=st.booleans())
def test_distances_between_distributions(seed, labelled):
    """W of the distances between two distributions over states, within the error that is given with it."""
    model, other = two_models(None, seed, labelled=labelled)
    rng = np.random.default_rng(seed)
    a, b = oracle.eighths(rng, 1, 4)[0], oracle.eighths(rng, 1, 3)[0]
    truth = oracle.cross_metric(model, other)
    mu, nu = oracle.sparse(a), oracle.sparse(b)
    expected, _ = oracle.best_plan(mu, nu, {(i, j): truth[i, j] for i in mu for j in nu})
    found = bm.compare(model, other, tol=1e-6)
    value, error = found.between(a, b)
    assert abs(Fraction(float(value)) - expected) <= Fraction(error)
    assert error <= 1e-5
    for s, t in np.ndindex(4, 3):
        value, error = found.between(np.eye(4)[s], np.eye(3)[t])
        assert abs(Fraction(float(value)) - truth[s, t]) <= Fraction(error)


@every_way
def test_distances_between_points_are_those_of_the_states(way):
    """All couplings of two points are one, so every transport gives the distance of the states."""
    model, other = two_models(None, 3)
    found = bm.compare(model, other, way, tol=1e-5)
    for s, t in np.ndindex(4, 3):
        value, error = found.between(np.eye(4)[s], np.eye(3)[t])
        assert abs(value - found.distance[s, t]) <= error
        assert error <= 1e-4


def test_distributions_that_are_none_are_refused():
    model, other = two_models(None, 0)
    found = bm.compare(model, other)
    good, fair = np.full(4, 0.25), np.full(3, 1.0 / 3.0)
    for a, b in (
        (fair, fair),
        (good, good),
        (2.0 * good, fair),
        (np.array([1.5, -0.5, 0.0, 0.0]), fair),
        (good, np.array([np.nan, 0.5, 0.5])),
    ):
        with pytest.raises(ValueError, match="initial"):
            found.between(a, b)


def test_nearest_states():
    for seed in range(5):
        model, other = two_models(None, seed)
        found = bm.compare(model, other)
        near = found.nearest()
        assert near.shape == (4,)
        np.testing.assert_array_equal(found.distance[np.arange(4), near], found.distance.min(axis=1))


@every_match
def test_models_of_one_state(match):
    P = np.eye(1)
    if match is None:
        one, two = (bm.Chain.from_arrays(P, [r], 0.5) for r in (1.0, 4.0))
    else:
        one, two = (bm.MDP.from_choices(P, [r], [0, 1], 0.5) for r in (1.0, 4.0))
    found = bm.compare(one, two, match=match, tol=1e-9)
    assert apart(found.distance, [[6.0]]) <= found.error
    assert found.nearest().tolist() == [0]


@every_way
@every_match
def test_threads_change_no_bit(way, match):
    model, other = (bm.problems.garnet(n_states=n, branching=4, seed=n, gamma=0.9) for n in (20, 31))
    if match is None:
        model, other = (x.under(x.uniform_policy()) for x in (model, other))
    results = set()
    for threads in (1, 2):
        bm.set_threads(threads)
        found = bm.compare(model, other, way, match=match, tol=1e-2)
        results.add((found.distance.tobytes(), found.error, *(bound.tobytes() for bound in found.bracket())))
    assert len(results) == 1


@every_way
def test_brackets_hold_the_exact_distances(way):
    """Around the exact distances of the same order, whatever the transport was."""
    for seed in range(2):
        model, other = two_models(None, seed)
        lower, upper = bm.compare(model, other, way, tol=1e-3).bracket()
        assert (lower <= upper).all()
        assert (lower >= 0.0).all()
        if way.p == 1.0:
            assert oracle.enclosed(lower, oracle.cross_metric(model, other), upper)
        else:
            exact = bm.solve_metric(union(model, other), bm.Exact(way.p), tol=1e-8, lump=False)
            assert (lower <= exact.distance[:4, 4:] + exact.error).all()
            assert (exact.distance[:4, 4:] - exact.error <= upper).all()


def test_models_are_not_changed():
    model, other = two_models("labels", 1, labelled=True)

    def seen():
        return [x.tobytes() for m in (model, other) for x in (m.rows.probs, m.rows.indices, m.rewards, m.choice_ptr)]

    before = seen()
    first = bm.compare(model, other, match="labels").distance.copy()
    bm.compare(model, other, match="labels").bracket()
    assert seen() == before
    np.testing.assert_array_equal(bm.compare(model, other, match="labels").distance, first)


def test_what_does_not_fit_together_is_refused():
    chain, mdp = model_for(None, 0), model_for("labels", 0)
    with pytest.raises(ValueError, match=r"gamma|discount"):
        bm.compare(chain, model_for(None, 1, gamma=0.5))
    with pytest.raises(ValueError, match=r"gamma|discount"):
        bm.compare(mdp, mdp.with_gamma(0.5), match="labels")
    with pytest.raises((TypeError, ValueError), match=r"(?i)chain"):
        bm.compare(chain, mdp)
    with pytest.raises((TypeError, ValueError), match=r"(?i)chain"):
        bm.compare(mdp, chain, match="labels")
    with pytest.raises(ValueError, match="match"):
        bm.compare(mdp, mdp)
    with pytest.raises(ValueError, match="match"):
        bm.compare(chain, chain, match="labels")
    with pytest.raises(TypeError, match="other"):
        bm.compare(chain, None)
    with pytest.raises(ValueError, match="tol"):
        bm.compare(chain, chain, tol=0.0)
