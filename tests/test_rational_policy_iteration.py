"""The rational oracle itself: plans that are optimal vertices, closed forms, and agreement with sweeps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import rational_policy_iteration as oracle
from exact_truth import least_cost, values
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import choices_of

import bisimetric as bm
from bisimetric.backends import reference

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)
MATCHES = (None, "labels", "hausdorff")


def model_for(match, seed, n=5, **settings_of_model):
    make = oracle.eighths_chain if match is None else oracle.eighths_mdp
    return make(seed, n, **settings_of_model)


@settings(max_examples=150)
@given(SEEDS, st.integers(1, 5), st.integers(1, 5), st.sampled_from([2, 4, 16]))
def test_plans_are_optimal_vertices(seed, n, m, levels):
    """Few levels of cost and equal masses: ties and degenerate bases."""
    rng = np.random.default_rng(seed)
    a, b = (oracle.sparse(rng.integers(1, 4, size=k) if rng.random() < 0.7 else np.ones(k)) for k in (n, m))
    cost = {x: Fraction(int(rng.integers(levels))) for x in np.ndindex(n, m)}
    value, plan = oracle.best_plan(a, b, cost)
    assert value == least_cost(list(a.values()), list(b.values()), [[cost[i, j] for j in b] for i in a])
    assert value == sum(mass * cost[x] for x, mass in plan.items())
    assert {i: sum(mass for x, mass in plan.items() if x[0] == i) for i in a} == a
    assert {j: sum(mass for x, mass in plan.items() if x[1] == j) for j in b} == b
    assert all(mass > 0 for mass in plan.values())
    # A vertex has a forest as its support: peeling off cells that are alone in a row or column leaves nothing.
    left = set(plan)
    while alone := {x for x in left if any(sum(y[k] == x[k] for y in left) == 1 for k in (0, 1))}:
        left -= alone
    assert not left


@given(SEEDS, st.integers(1, 7))
def test_linear_systems_are_solved(seed, n):
    rng = np.random.default_rng(seed)
    x = [Fraction(int(rng.integers(-9, 10)), 7) for _ in range(n)]
    A = [[Fraction(int(rng.integers(-2, 3))) + (50 * n if i == (j + 1) % n else 0) for j in range(n)] for i in range(n)]
    assert oracle.solved([[*row, sum(u * v for u, v in zip(row, x, strict=True))] for row in A]) == x


@given(st.integers(0, 8), st.integers(0, 8), st.sampled_from([0.0, 0.5, 0.9, 0.9999]), st.integers(1, 9))
def test_two_states_have_a_closed_form(p, q, gamma, reward):
    """All mass that two rows do not share goes between the two states: d = c_R r / (1 − c_T |p − q|)."""
    P = np.array([[p, 8 - p], [q, 8 - q]]) / 8.0
    d = oracle.chain_metric(P, np.array([1.0, 1.0 + reward]), 3.0, gamma)
    expected = Fraction(3 * reward) / (1 - Fraction(gamma) * Fraction(abs(p - q), 8))
    assert (d == np.array([[0, expected], [expected, 0]])).all()


def test_a_chain_whose_coupling_is_not_the_obvious_one():
    """Two coins that end in heads or tails, one of them biased and slow: worked out by hand.

    States: 0 fair, 1 biased (5/8), 2 waits with 1/2 and else becomes 0, 3 heads, 4 tails. At discount 1/2 and rewards
    1 at heads, −1 at tails: d(3, 4) = 2 + d(3, 4)/2 = 4, and d(3, 0) = d(4, 0) with mass 1/2 moved by 4.
    """
    P = np.zeros((5, 5))
    P[0, [3, 4]] = 0.5
    P[1, [3, 4]] = 0.625, 0.375
    P[2, [2, 0]] = 0.5
    P[[3, 4], [3, 4]] = 1.0
    d = oracle.chain_metric(P, np.array([0.0, 0.0, 0.0, 1.0, -1.0]), 1.0, 0.5)
    assert d[3, 4] == 4
    assert d[0, 3] == d[0, 4] == 1 + Fraction(1, 2) * Fraction(1, 2) * 4
    assert d[0, 1] == Fraction(1, 2) * Fraction(1, 8) * 4
    # d(2, 3) = 1 + (d(2, 3) + d(0, 3)) / 4, and d(2, 4) alike; d(0, 2) = (d(3, 2) + d(4, 0)) / 4 over either plan.
    assert d[2, 3] == d[2, 4] == Fraction(4, 3) * (1 + Fraction(1, 4) * d[0, 3])
    assert d[0, 2] == Fraction(1, 4) * (d[2, 3] + d[0, 4])
    assert d[1, 2] == Fraction(1, 2) * (Fraction(1, 2) * d[2, 3] + Fraction(1, 8) * d[0, 3] + Fraction(3, 8) * d[0, 4])


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("match", MATCHES)
def test_solved_metrics_are_within_their_errors_of_the_oracle(match, labelled):
    far = 0
    for seed in range(12):
        model = model_for(match, seed, 3 + seed % 3, labelled=labelled)
        truth = oracle.metric_of(model, match)
        solution = bm.solve_metric(model, match=match, tol=1e-9)
        assert solution.converged
        assert oracle.within(solution.distance, truth, solution.error)
        lower, upper = solution.bracket()
        assert oracle.enclosed(lower, truth, upper)
        far += int((truth.astype(float) > 0.1).sum())
    assert far > 50


@settings(max_examples=30)
@given(SEEDS, st.sampled_from(MATCHES), st.sampled_from([0.0, 0.3, 0.75]), st.sampled_from([0.0, 1.0, 2.5]))
def test_the_oracle_is_a_fixed_point_of_the_reference(seed, match, c_T, c_R):
    model = model_for(match, seed, 4)
    truth = oracle.metric_of(model, match, c_R, c_T).astype(float)
    largest = float(oracle.largest_distance(c_R, c_T, model))
    again = reference.operator(bm.Exact(), truth, choices_of(model), match or "chain", c_R, c_T, largest)
    np.testing.assert_allclose(again, truth, rtol=0.0, atol=1e-9 * max(largest, 1.0))


def test_hausdorff_is_at_most_labels_and_both_are_reached():
    """Sets of choices may be matched in more ways than names allow, and then are nearer."""
    nearer = 0
    for seed in range(10):
        mdp = oracle.eighths_mdp(seed, 4)
        by_name, as_sets = oracle.metric_of(mdp, "labels"), oracle.metric_of(mdp, "hausdorff")
        assert (as_sets <= by_name).all()
        nearer += int((as_sets < by_name).sum())
    assert nearer > 10


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("match", MATCHES)
def test_distances_to_the_same_model_are_its_metric(match, labelled):
    """The rectangle has its own unknowns for both orders and the diagonal; they come out symmetric and 0."""
    for seed in range(4):
        model = model_for(match, seed, 4, labelled=labelled)
        assert (oracle.cross_metric(model, model, match) == oracle.metric_of(model, match)).all()


def test_distances_between_two_chains_bound_their_values():
    """|V(s) − V'(t)| ≤ D(s, t), and equal to it where mass goes one way only."""
    tight = 0
    for seed in range(8):
        model, other = oracle.eighths_chain(seed, 3), oracle.eighths_chain(seed + 100, 4)
        D = oracle.cross_metric(model, other)
        V, W = (values(x.rows.matrix().toarray(), x.rewards, x.gamma) for x in (model, other))
        gap = np.array([[abs(v - w) for w in W] for v in V])
        assert (gap <= D).all()
        tight += int((gap == D).sum())
        assert (D == oracle.cross_metric(other, model).T).all()
    assert tight > 0


def test_coins_at_discount_one():
    """0 is fair, 1 biased (5/8), 2 waits with 1/2 and else gives heads, 3 waits with 1/2 and else is fair.

    4 is heads, 5 tails. d(2, 3) = (d(2, 3) + 1/2) / 2, with heads on heads. 0 and 3 end in heads equally often, each
    after a time of its own: 0 is there when 3 still waits with probability 1/2, and labels tell that.
    """
    P = np.zeros((6, 6))
    P[0, [4, 5]] = 0.5
    P[1, [4, 5]] = 0.625, 0.375
    P[2, [2, 4]] = 0.5
    P[3, [3, 4, 5]] = 0.5, 0.25, 0.25
    P[[4, 5], [4, 5]] = 1.0
    d = oracle.undiscounted(P, ["", "", "", "", "h", "t"])
    assert d[0, 1] == Fraction(1, 8)
    assert d[2, 3] == Fraction(1, 2)
    assert d[0, 3] == Fraction(1, 2)
    assert d[0, 2] == Fraction(1, 2)
    assert d[1, 2] == Fraction(1, 2)
    assert (d[4:, :4] == 1).all()
    assert d[4, 5] == 1
    relabelled = oracle.undiscounted(P, ["", "", "", "", "h", "h"])  # heads and tails are one
    assert relabelled[0, 1] == relabelled[2, 3] == relabelled[4, 5] == 0
    assert relabelled[0, 2] == Fraction(1, 2)


def test_pairs_at_distance_one_and_zero_from_the_graph():
    """0 and 1 never meet: one reaches only heads, the other only tails. 2 and 3 are bisimilar though rows differ."""
    P = np.zeros((7, 7))
    P[0, [0, 4]] = 0.5
    P[1, [1, 5]] = 0.5
    P[2, [4, 6]] = 0.5
    P[3, 4] = 1.0
    P[[4, 5], [4, 5]] = 1.0
    P[6, 4] = 1.0
    labels = ["", "", "", "", "h", "t", "h"]
    d = oracle.undiscounted(P, labels)
    assert oracle.bisimilar(P, labels) == [0, 1, 2, 2, 3, 4, 3]
    assert d[2, 3] == d[4, 6] == 0
    assert d[0, 1] == d[1, 2] == 1
    assert 0 < d[0, 2] < 1


@settings(max_examples=25)
@given(SEEDS, st.integers(2, 6))
def test_discounts_approach_discount_one_from_below(seed, n):
    """d_c grows with c to the least fixed point at c = 1, and not beyond it."""
    chain = oracle.coin_chain(seed, n)
    P, labels = chain.rows.matrix().toarray(), chain.state_labels["heads"].tolist()
    limit = oracle.undiscounted(P, labels)
    before = np.zeros((n, n), dtype=object)
    for digits in (1, 4, 40):
        c = 1 - Fraction(1, 2**digits)
        d = oracle.chain_metric(P, np.zeros(n), 0, c, labels, Fraction(1))
        assert (before <= d).all()
        assert (d <= limit).all()
        before = d
    assert (limit - before).max() < Fraction(1, 10**6)


def test_bounds_and_errors_are_compared_exactly():
    """A tenth is not 0.1: an error of 0 is not enough, and one beyond the difference is."""
    truth = np.array([[Fraction(1, 10)]])
    given_ = np.array([[0.1]])
    assert oracle.off_by(given_, truth) == Fraction(0.1) - Fraction(1, 10) > 0
    assert not oracle.within(given_, truth, 0.0)
    assert oracle.within(given_, truth, 1e-17)
    assert not oracle.enclosed(given_, truth, given_)
    assert oracle.enclosed(np.nextafter(given_, 0.0), truth, given_)
