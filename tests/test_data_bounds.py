"""Bounds from data: the inequalities against plain versions, the sets against what they contain, and coverage."""

from __future__ import annotations

import itertools
import math
import types
from dataclasses import replace

import numpy as np
import pytest
from data_replicates import NOISY, PROBLEMS, Truth, assumptions, covered, halved_radii, replicated_counts
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.stats import binom

import bisimetric as bm
from bisimetric.estimate import intervals
from bisimetric.estimate.bracket import Ending, bracket_over
from bisimetric.estimate.steady import Law, PairQuestion, steady_margins, steady_reach
from bisimetric.estimate.values import policy_band, value_band

DESIGNS = ("adaptive", "fixed")


def data_of(seed=0, S=5, A=2, samples=30, **options):
    mdp = bm.problems.garnet(n_states=S, n_actions=A, branching=min(3, S), seed=seed)
    return mdp, bm.Counts.from_simulator(mdp, n_states=S, n_actions=A, samples=samples, seed=seed, **options)


# ---- inequalities ----


@given(st.floats(0.0, 1.0), st.floats(1e-9, 30.0))
def test_inverse_divergences_are_inverses(q, slack):
    low, high = (f(np.array([q]), np.array([slack]))[0] for f in (intervals.kl_lower, intervals.kl_upper))
    assert 0.0 <= low <= q <= high <= 1.0 + 1e-15

    def kl(p):
        parts = [x * np.log(x / y) for x, y in ((q, p), (1.0 - q, 1.0 - p)) if x > 0.0]
        return sum(parts)

    for p in (low, high):
        if 1e-12 < p < 1.0 - 1e-12 and abs(p - q) > 1e-9:
            assert kl(p) == pytest.approx(slack, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 10**6])
def test_redundancy_is_at_most_its_bound(n):
    k = np.unique(np.linspace(0, n, 50).astype(int)).astype(float)
    found = intervals.redundancy(k, np.full(len(k), float(n)))
    assert (found >= -1e-9).all()
    assert (found <= intervals.largest_redundancy(np.array([float(n)])) + 1e-9).all()


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5])
@pytest.mark.parametrize("n", [5, 40])
def test_fixed_intervals_cover_by_the_binomial_law_itself(p, n):
    """The exact probability, not a simulation."""
    k = np.arange(n + 1.0)
    low, high = intervals.mean_interval(k, np.full(n + 1, float(n)), 0.1, "fixed")
    assert binom.pmf(k, n, p)[(low <= p) & (p <= high)].sum() >= 0.9


def test_adaptive_intervals_hold_for_all_numbers_at_once():
    """Paths of coin tosses, each looked at where it is worst; intervals for a fixed number are caught."""
    rng = np.random.default_rng(0)
    paths = np.cumsum(rng.random((400, 200)) < 0.3, axis=1).astype(float)
    n = np.broadcast_to(np.arange(1.0, 201.0), paths.shape)
    failures = {}
    for design in DESIGNS:
        low, high = intervals.mean_interval(paths, n, 0.05, design)
        failures[design] = float(((low > 0.3) | (high < 0.3)).any(axis=1).mean())
    assert failures["adaptive"] <= 0.05
    assert failures["fixed"] > 0.05


def test_bernstein_for_all_numbers_at_once():
    rng = np.random.default_rng(1)
    p, f = np.array([0.7, 0.2, 0.1]), np.array([0.0, 1.0, 5.0])
    draws = f[rng.choice(3, size=(2000, 300), p=p)]
    n = np.arange(1.0, 301.0)
    off = np.abs(np.cumsum(draws, axis=1) / n - p @ f)
    v, b = np.full(300, p @ f**2 - (p @ f) ** 2), np.full(300, 5.0)
    bound = intervals.bernstein(v, b, n, np.log(1 / 0.05), "adaptive", 7.0)
    assert (off > bound).any(axis=1).mean() <= 0.05
    fixed = intervals.bernstein(v, b, n, np.log(1 / 0.05), "fixed", 7.0)
    assert (off > fixed).mean(axis=0).max() <= 0.05
    assert bound[-1] < 0.8  # and it says something
    assert np.isinf(intervals.bernstein(v[:1], b[:1], np.zeros(1), 3.0, "fixed", 1.0)).all()


# ---- sets ----


def extreme(p, spread, unseen, V, sign):
    """min (sign 1) or max (−1) of q·V over the set of a row, by linear programming."""
    n = len(p)
    c = np.concatenate([sign * V, np.zeros(n)])
    eye = np.eye(n)
    A = [np.hstack([eye, -eye]), np.hstack([-eye, -eye]), np.concatenate([np.zeros(n), np.ones(n)])[None]]
    A.append(np.concatenate([(p == 0.0).astype(float), np.zeros(n)])[None])
    b = np.concatenate([p, -p, [2.0 * spread], [unseen]])
    equal = np.concatenate([np.ones(n), np.zeros(n)])[None]
    found = linprog(c, A_ub=np.vstack(A), b_ub=b, A_eq=equal, b_eq=[1.0], bounds=(0, None))
    assert found.success
    return sign * found.fun


@pytest.mark.parametrize("seed", range(4))
def test_extreme_means_are_those_of_a_linear_program(seed):
    _, counts = data_of(seed, samples=20 + 200 * seed)
    sets = counts.confidence(0.1, exact_rewards=True)
    V = np.random.default_rng(seed).normal(size=5)
    P = sets.rows.matrix().toarray()
    for k in range(10):
        given = P[k], sets.spread[k], sets.unseen[k], V
        assert sets.lowest(V)[k] == pytest.approx(extreme(*given, 1.0), abs=1e-7)
        assert sets.highest(V)[k] == pytest.approx(extreme(*given, -1.0), abs=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_no_row_of_a_set_is_farther_than_its_reach(seed):
    """W between the estimate and random rows of its set, by the package's own transport."""
    mdp, counts = data_of(seed, samples=60)
    sets = counts.confidence(0.1, exact_rewards=True)
    d = np.array(bm.solve_metric(mdp, match="labels").distance)
    w, P = sets.reach(d), sets.rows.matrix().toarray()
    rng = np.random.default_rng(seed)
    for k in range(10):
        new = P[k] == 0.0
        for _ in range(10):
            q = rng.dirichlet(np.ones(5) * 0.3)
            t = min(1.0, sets.spread[k] / max(0.5 * np.abs(q - P[k]).sum(), 1e-12))
            if new.any() and q[new].sum() > 0.0:
                t = min(t, sets.unseen[k] / q[new].sum())
            row = P[k] + t * (q - P[k])
            assert transport(P[k], row, d) <= w[k] + 1e-9


def transport(p, q, d):
    n = len(p)
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    found = linprog(d.reshape(-1), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q]), bounds=(0, None))
    assert found.success
    return found.fun


def test_rows_that_were_never_visited_can_be_anything():
    counts = bm.Counts.from_transitions([0] * 50, [0] * 50, [1.0] * 50, [1] * 50, n_states=3, n_actions=1)
    sets = counts.confidence(0.1, reward_range=(0.0, 2.0))
    V = np.array([0.0, 1.0, 5.0])
    assert sets.lowest(V)[1] == 0.0
    assert sets.highest(V)[1] == 5.0
    assert (sets.reward_low[1], sets.reward_high[1]) == (0.0, 2.0)
    assert sets.spread[0] < 0.5  # one successor in 50 visits: mass elsewhere is small
    lower, upper = counts.bracket(0.1, gamma=0.5, reward_range=(0.0, 2.0))
    assert upper[1, 2] == pytest.approx(4.0)
    assert lower[1, 2] == 0.0


def test_more_samples_more_knowledge_more_delta_narrow_the_sets():
    _, few = data_of(samples=20)
    _, many = data_of(samples=2000)

    def spread(counts, delta=0.1, **options):
        return counts.confidence(delta, exact_rewards=True, **options).spread.max()

    assert spread(many) < spread(few)
    assert spread(many, 0.5) < spread(many)
    assert spread(many, successors=3) < spread(many)
    assert spread(many, design="fixed") < spread(many, design="adaptive")
    with pytest.raises(bm.ModelError, match="more than its successors = 1"):
        many.confidence(0.1, exact_rewards=True, successors=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delta": 0.0, "exact_rewards": True}, "delta must be in"),
        ({"delta": 1.0, "exact_rewards": True}, "delta must be in"),
        ({"delta": float("nan"), "exact_rewards": True}, "delta must be in"),
        ({"delta": 0.1}, "range of the rewards"),
        ({"delta": 0.1, "reward_range": (0.0, 0.01)}, "outside reward_range"),
        ({"delta": 0.1, "reward_range": (1.0, 0.0)}, "reward_range must be"),
        ({"delta": 0.1, "exact_rewards": True, "successors": 0}, "successors must be"),
        ({"delta": 0.1, "exact_rewards": True, "design": "iid"}, "design must be"),
    ],
)
def test_bad_assumptions_are_named(options, words):
    _, counts = data_of()
    with pytest.raises(ValueError, match=words):
        counts.confidence(**options)


def test_exact_rewards_that_differ_are_named():
    counts = bm.Counts.from_transitions(["a", "a"], ["go", "go"], [0.0, 1.0], ["a", "a"])
    with pytest.raises(bm.ModelError, match="state a, action go earned 0 and 1"):
        counts.confidence(0.1, exact_rewards=True)


def test_no_samples_say_nothing_and_nothing_wrong():
    counts = bm.Counts.from_transitions([], [], [], [], n_states=3, n_actions=2)
    assert counts.n_samples == 0
    lower, upper = counts.bracket(0.1, gamma=0.9, reward_range=(0.0, 1.0))
    assert (lower == 0.0).all()
    assert upper[0, 1] == pytest.approx(10.0)
    data = counts.certify("uniform", 0.1, gamma=0.9, reward_range=(0.0, 1.0))
    assert data.loss.max() == pytest.approx(10.0)
    with pytest.raises(bm.ModelError, match="no samples"):
        counts.confidence(0.1, exact_rewards=True)


# ---- brackets ----


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("policy", [None, "uniform", "first"])
def test_brackets_cover_and_narrow(design, policy):
    mdp, _ = data_of(1)
    chosen = np.zeros(5, np.int64) if policy == "first" else policy
    if policy is None:
        d = bm.solve_metric(mdp, match="labels").distance
    else:
        d = bm.solve_metric(mdp.under(mdp.uniform_policy() if policy == "uniform" else chosen)).distance
    widths = []
    for samples in (100, 20_000):
        _, counts = data_of(1, samples=samples)
        bracket = counts.bracket(0.1, gamma=0.9, policy=chosen, exact_rewards=True, design=design)
        lower, upper = bracket
        assert (lower <= d + 1e-6).all()
        assert (d <= upper + 1e-6).all()
        assert bracket.settled
        widths.append(bracket.width)
    assert widths[1] < 0.2 * widths[0]


def test_brackets_hold_wherever_iterations_end():
    mdp, counts = data_of(2, samples=3000)
    d = bm.solve_metric(mdp, match="labels").distance
    sets = counts.confidence(0.05, exact_rewards=True)
    last = np.inf
    for most in (1, 3, 10, 40):
        found = bracket_over(sets, None, (1.0, 0.9), 0.05, Ending(1e-9, most))
        assert (found.lower <= d + 1e-6).all()
        assert (d <= found.upper + 1e-6).all()
        assert found.upper.max() <= last + 1e-12
        last = found.upper.max()


def test_the_law_of_samples_under_the_true_metric():
    """W_d(p̂, p) by linear programming stays below its bound, in all rows of several replicates."""
    for seed in range(5):
        mdp, counts = data_of(3, samples=400)
        counts = bm.Counts.from_simulator(mdp, n_states=5, n_actions=2, samples=400, seed=seed)
        d = np.array(bm.solve_metric(mdp, match="labels").distance)
        sets = counts.confidence(0.05, exact_rewards=True)
        P, mine = mdp.rows.matrix().toarray(), sets.rows.matrix().toarray()
        for design in DESIGNS:
            own = counts.confidence(0.05, exact_rewards=True, design=design)
            bound = steady_reach(own, Law.of(own, d), 0.05)
            assert all(transport(mine[k], P[k], d) <= bound[k] for k in range(10))


def test_the_law_of_pairs_under_the_true_metric():
    """W_d of estimated and of true rows differ by no more than the margins, and by more than an eighth of them."""
    mdp, _ = data_of(3)
    d = np.array(bm.solve_metric(mdp, match="labels").distance)
    P = mdp.rows.matrix().toarray()
    true = np.array([[transport(P[i], P[j], d) for j in range(10)] for i in range(10)])
    shares = []
    for seed in range(4):
        counts = bm.Counts.from_simulator(mdp, n_states=5, n_actions=2, samples=400, seed=seed)
        for options in ({}, {"design": "adaptive"}, {"successors": 3}, {"successors": P > 0.0}):
            sets = counts.confidence(0.05, exact_rewards=True, **options)
            mine, law = sets.rows.matrix().toarray(), Law.of(sets, d)
            each = csr_array(np.eye(10))
            above, below = steady_margins(sets, law, PairQuestion(each, sets.rows.sizes, 1, 10.0), 0.05)
            off = true - np.array([[transport(mine[i], mine[j], d) for j in range(10)] for i in range(10)])
            assert (off <= above + 1e-12).all()
            assert (-off <= below + 1e-12).all()
            shares.append((off / above).max())
    assert max(shares) > 0.125


def test_margins_of_mixtures_are_narrower_than_the_sum_of_their_rows():
    """Independent rows: a mixture of two equal ones has half the variance."""
    mdp, counts = data_of(3, samples=4000)
    sets, d = counts.confidence(0.05, exact_rewards=True), np.array(bm.solve_metric(mdp, match="labels").distance)
    law, pick, mix = Law.of(sets, d), np.zeros((5, 10)), np.zeros((5, 10))
    for s in range(5):
        pick[s, 2 * s], mix[s, 2 * s : 2 * s + 2] = 1.0, 0.5
    one, both = (
        steady_margins(sets, law, PairQuestion(csr_array(m), np.full(5, 5), 1, 10.0), 0.05)[0] for m in (pick, mix)
    )
    assert np.median(both) < 0.85 * np.median(one)


def test_margins_of_mixtures_pay_for_their_vertices_in_whole():
    """Adaptive data: rows of a policy that mixes them pay as much as rows that stand alone, not a share of it."""
    mdp, counts = data_of(3, samples=4000)
    sets = counts.confidence(0.05, exact_rewards=True, design="adaptive")
    law = Law.of(sets, np.array(bm.solve_metric(mdp, match="labels").distance))
    doubled = law._replace(variance=np.full(10, law.variance.max()), reach=np.full(10, law.reach.max()))
    pick, mix = np.zeros((5, 10)), np.zeros((5, 10))
    for s in range(5):
        pick[s, 2 * s], mix[s, 2 * s : 2 * s + 2] = 1.0, 0.5
    alone, mixed = (
        steady_margins(sets, doubled, PairQuestion(csr_array(m), np.full(5, 5), 1, 10.0), 0.05)[1] for m in (pick, mix)
    )
    visits = sets.visits.reshape(5, 2)
    least = np.sqrt(visits[:, 0] / visits.max(axis=1))  # were all rows visited as often, both would be the same
    assert (mixed >= 0.99 * alone * np.minimum.outer(least, least)).all()


def test_rows_never_visited_have_no_margins():
    counts = bm.Counts.from_transitions([0], [0], [0.0], [0], n_states=1, n_actions=2)
    lower, upper = counts.bracket(0.1, gamma=0.9, reward_range=(0.0, 1.0), design="fixed")
    assert lower.tolist() == upper.tolist() == [[0.0]]


def test_ways_of_paying_for_vertices_share():
    """Sizes are seen before the cheaper way is taken, so what both ways spend is at most 1."""
    from scipy.special import gammaln

    from bisimetric.estimate.steady import _log_vertices

    for S in (5, 20, 60):
        sizes = np.arange(1, S + 1)
        frame = types.SimpleNamespace(n_states=S, successors=np.full(S, S))
        eye = csr_array(np.eye(S))
        charged = np.exp(
            -_log_vertices(frame, PairQuestion(eye, sizes, 1, 1.0))
        )  # share of one vertex, by sizes [S, S]
        ways = lambda n, k: np.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))  # noqa: E731
        k, m = np.broadcast_arrays(sizes[:, None], sizes[None, :])
        # every pair of sets of these sizes that was paid for alone, and all between the true supports, once
        alone = ways(S, k) * ways(S, m) * ways(k + m - 2, k - 1)
        whole = ways(2 * S - 2, S - 1)
        cheaper = charged > 0.5 / whole * (1.0 + 1e-9)
        spent = (charged * alone)[cheaper].sum() + (0.5 if (~cheaper).any() else 0.0)
        assert spent <= 1.0


def test_bounds_that_cross_end():
    """States that are not alike, vouched for as one class: bounds contradict each other, and that is said."""
    done = {"n_states": 2, "n_actions": 1}
    counts = bm.Counts.from_transitions([0, 1] * 5000, [0] * 10_000, [0.0, 1.0] * 5000, [0, 1] * 5000, **done)
    with pytest.raises(bm.ModelError, match="contradict"):
        counts.pool(0.05, gamma=0.9, classes=[0, 0], bias=0.0, exact_rewards=True)
    for wrong, words in (({"bias": 0.0}, "classes must be given"), ({"eps": []}, "at least one")):
        with pytest.raises(ValueError, match=words):
            counts.pool(0.05, gamma=0.9, exact_rewards=True, **wrong)


@pytest.mark.parametrize("gamma", [0.9999, 0.99999])
def test_values_of_rows_that_go_to_and_fro_end_soon(gamma):
    """A cycle of two: every other iteration brings nothing new. Iterations are counted, not seconds."""
    from bisimetric.estimate import values

    counts = bm.Counts.from_transitions([0, 1] * 50, [0] * 100, [0.0, 1.0] * 50, [1, 0] * 50, n_states=2, n_actions=1)
    sets = counts.confidence(0.05, exact_rewards=True, successors=1)
    done = []

    def counted(*given, **named):
        V, number = iterated(*given, **named)
        done.append(number)
        return V, number

    iterated = values._iterated
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_iterated", counted)
        band = values.value_band(sets, gamma, 0.05)
    assert sum(done) < 2000
    best = np.linalg.solve(np.eye(2) - gamma * np.array([[0.0, 1.0], [1.0, 0.0]]), [0.0, 1.0])
    assert (band.lower <= best).all()
    assert (best <= band.upper).all()


def test_arguments_of_brackets_and_certificates_are_named():
    counts = bm.Counts.from_transitions([0, 1], [0, 0], [0.0, 1.0], [1, 0], n_states=2, n_actions=1)
    given = {"gamma": 0.9, "reward_range": (0.0, 1.0)}
    for weight in (np.nan, -1.0, np.inf):
        with pytest.raises(ValueError, match="reward_weight"):
            counts.bracket(0.1, reward_weight=weight, **given)
    with pytest.raises(ValueError, match="\"uniform\"; got 'greedy'"):
        counts.certify("greedy", 0.1, **given)
    with pytest.raises(ValueError, match="reward_range must be"):
        counts.confidence(0.1, reward_range=(0, 1, 2))


@pytest.mark.parametrize(("k", "n"), [(1, 3), (2, 2), (2, 4), (3, 3), (4, 3)])
def test_dual_problems_have_no_more_vertices_than_are_paid_for(k, n):
    """All spanning trees of random costs: those whose potentials are feasible are the vertices."""
    rng = np.random.default_rng(k + n)
    arcs = list(itertools.product(range(k), range(n)))
    for cost in (rng.random((k, n)), rng.integers(0, 3, (k, n)).astype(float)):
        found = set()
        for tree in itertools.combinations(arcs, k + n - 1):
            A = np.zeros((k + n, k + n))
            for row, (x, y) in enumerate(tree):
                A[row, x], A[row, k + y] = 1.0, -1.0
            A[-1, 0] = 1.0
            if abs(np.linalg.det(A)) > 0.5:
                f = np.linalg.solve(A, np.array([*(cost[arc] for arc in tree), 0.0]))
                if (f[:k, None] - f[None, k:] <= cost + 1e-9).all():
                    found.add(tuple(np.round(f, 6) + 0.0))
        assert 1 <= len(found) <= math.comb(k + n - 2, k - 1)
        if len(np.unique(cost)) == cost.size:
            assert len(found) == math.comb(k + n - 2, k - 1)


def test_known_supports_narrow_what_was_not_seen():
    """The mass of a state that was never seen can only be where it is possible."""
    s = np.repeat(["a", "b", "c", "far"], 30)
    to = np.concatenate([np.tile(["a", "b"], 15), np.repeat("c", 30), np.repeat("a", 30), np.repeat("far", 30)])
    r = np.where(s == "far", 1.0, 0.0)
    counts = bm.Counts.from_transitions(s, np.zeros(120, int), r, to, n_states=4, n_actions=1)
    possible = np.zeros((4, 4), bool)
    for state, follow in enumerate(([0, 1, 2], [2], [0, 1], [3])):
        possible[state, follow] = True
    V = np.array([0.0, 0.0, 0.0, 1.0])
    free = counts.confidence(0.1, exact_rewards=True, successors=possible.sum(axis=1))
    held = counts.confidence(0.1, exact_rewards=True, successors=possible)
    assert free.highest(V)[0] > 0.0
    assert held.highest(V)[0] == 0.0
    U = 10.0 * (V[:, None] != V[None, :]) + 1.0 - np.eye(4)
    assert held.reach(U)[0] < free.reach(U)[0]
    sparse = counts.confidence(0.1, exact_rewards=True, successors=csr_array(possible))
    np.testing.assert_array_equal(sparse.reach(U), held.reach(U))
    rows = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert held.contains(rows, np.array([0.0, 0.0, 0.0, 1.0]))
    wrong = possible.copy()
    wrong[0, 1] = False
    with pytest.raises(bm.ModelError, match="seen to lead to state b"):
        counts.confidence(0.1, exact_rewards=True, successors=wrong)
    wrong[0] = False
    with pytest.raises(ValueError, match="has none"):
        counts.confidence(0.1, exact_rewards=True, successors=wrong)
    with pytest.raises(ValueError, match=r"\[4, 4\]"):
        counts.confidence(0.1, exact_rewards=True, successors=possible[:2])


def test_scaled_rewards_scale_brackets():
    _, counts = data_of(1, samples=500)
    for k in (1e-150, 1e-100, 1e100, 1e150):
        scaled = replace(
            counts,
            reward_sum=k * counts.reward_sum,
            reward_low=k * counts.reward_low,
            reward_high=k * counts.reward_high,
        )
        one, other = (c.bracket(0.1, gamma=0.9, exact_rewards=True) for c in (counts, scaled))
        np.testing.assert_allclose(other.upper, k * one.upper, rtol=1e-6)
        np.testing.assert_allclose(other.lower, k * one.lower, rtol=1e-6, atol=1e-6 * k)


@pytest.mark.parametrize("seed", range(3))
def test_both_forms_of_the_decomposition_hold_and_the_computed_one_is_narrower(seed):
    mdp, counts = data_of(seed, samples=2000)
    d = bm.solve_metric(mdp.under(mdp.uniform_policy())).distance
    found = counts.decomposition(0.05, gamma=0.9, exact_rewards=True)
    gap = float(np.abs(found.distance - d).max())
    assert gap <= found.bound <= found.bound_a_priori
    bracket = counts.bracket(0.05, gamma=0.9, policy="uniform", exact_rewards=True)
    assert bracket.width / 2.0 <= found.bound
    assert found.value_error(0.1).rigorous
    assert found.value_error(0.1).error >= found.bound


# ---- values ----


@pytest.mark.parametrize("seed", range(3))
def test_values_of_all_models_in_the_sets_lie_in_the_bands(seed):
    """Random models inside the sets: their best values and those of a policy."""
    _, counts = data_of(seed, samples=40)
    sets = counts.confidence(0.1, exact_rewards=True)
    rng, P = np.random.default_rng(seed), sets.rows.matrix().toarray()
    weights = rng.dirichlet(np.ones(2), size=5)
    own, best = policy_band(sets, weights, 0.9), value_band(sets, 0.9, 0.0)
    for _ in range(20):
        rows = np.empty_like(P)
        for k in range(10):
            q = rng.dirichlet(np.ones(5) * 0.2)
            new = q[P[k] == 0.0].sum()
            t = min(1.0, sets.spread[k] / (0.5 * np.abs(q - P[k]).sum()), sets.unseen[k] / new if new > 0.0 else 1.0)
            rows[k] = P[k] + t * (q - P[k])
        mdp = bm.MDP.from_choices(bm.MDP.normalised(rows), sets.reward_low, np.arange(6) * 2, 0.9)
        for V, band in ((bm.evaluate(mdp, weights.reshape(-1)).value, own), (bm.optimal_values(mdp).value, best)):
            assert (band.lower <= V + 1e-9).all()
            assert (band.upper + 1e-9 >= V).all()


# ---- coverage ----


@pytest.mark.parametrize("fixed", [False, True], ids=["adverse", "fixed"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_bounds_cover(name, fixed, one_thread):
    """One replicate of each MDP; benchmarks/data_coverage.py does a thousand."""
    truth = Truth.of(PROBLEMS[name](), name in NOISY)
    counts = replicated_counts(truth, 300, np.random.default_rng(7), fixed=fixed)
    assert all(covered(truth, counts).values())


def count_of_sets(name, replicates):
    truth = Truth.of(PROBLEMS[name](), name in NOISY)
    held = 0
    for replicate in range(replicates):
        counts = replicated_counts(truth, 300, np.random.default_rng([replicate, 8]))
        held += counts.confidence(0.05, **assumptions(truth)).contains(truth.rows, truth.mdp.rewards)
    return held / replicates


@pytest.mark.parametrize("name", ["chain", "frozen lake", "detours"])
def test_sets_cover_and_broken_ones_are_caught(name):
    assert count_of_sets(name, 60) >= 0.95
    with halved_radii():
        assert count_of_sets(name, 60) < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_thousand_replicates_cover(name, one_thread):
    truth = Truth.of(PROBLEMS[name](), name in NOISY)
    held: dict[str, int] = {}
    for replicate in range(1000):
        for key, holds in covered(
            truth, replicated_counts(truth, 400, np.random.default_rng([replicate, 400]))
        ).items():
            held[key] = held.get(key, 0) + holds
    assert min(held.values()) >= 950


# ---- tightness ----


def test_the_bracket_is_within_twenty_times_the_actual_error(one_thread):
    """S = 20, δ = 0.05, γ = 0.9, 10⁴ samples a row, rows with all successors."""
    mdp = bm.problems.garnet(n_states=20, n_actions=1, branching=20, seed=0)
    d = bm.solve_metric(mdp.under(mdp.uniform_policy())).distance
    counts = bm.Counts.from_simulator(mdp, n_states=20, n_actions=1, samples=10_000, seed=1)
    model = counts.model(0.9)
    error = np.abs(bm.solve_metric(model.under(model.uniform_policy())).distance - d).max()
    lower, upper = counts.bracket(0.05, gamma=0.9, policy="uniform", exact_rewards=True, reward_range=(0.0, 1.0))
    slack = max((upper - d).max(), (d - lower).max())
    assert error > 0.0
    assert slack <= 20.0 * error
