"""Policy iteration over couplings, and other ways to be faster than sweeps: they may change the way, not the answer.

Truth is rational (`rational_policy_iteration`) where the transport is `Exact()`, and plain sweeps elsewhere.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import rational_policy_iteration as oracle
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_models import random_chain, random_mdp
from solved_metrics import garnet_chain, miss
from sweepers import sweep, sweeper_for
from transports import EVERY_TRANSPORT, name

import bisimetric as bm

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)
MATCHES = (None, "labels", "hausdorff")
WEIGHTS = (0.0, 0.5, 0.9, 0.99, 0.9999)
# λ of Sinkhorn is in units of the largest distance here.
WAYS = (
    bm.Exact(),
    bm.Exact(2.0),
    bm.Sinkhorn(0.05),
    bm.Sinkhorn(0.05, diagonal="zero"),
    bm.Sinkhorn(0.05, cost="value"),
    bm.Sinkhorn(0.05, p=2.0, cost="value"),
    bm.Sinkhorn(0.05, cost="value", diagonal="zero"),
    bm.KLBall(0.2),
    bm.KLBall(0.2, p=2.0, diagonal="zero"),
    bm.Independent(),
    bm.Independent(2.0),
    bm.Independent(diagonal="zero"),
)
every_way = pytest.mark.parametrize("way", WAYS, ids=name)
every_match = pytest.mark.parametrize("match", MATCHES)


def model_for(match, seed, n=5, **settings_of_model):
    make = oracle.eighths_chain if match is None else oracle.eighths_mdp
    return make(seed, n, **settings_of_model)


def scaled(way, largest):
    """The transport for distances of this size."""
    return dataclasses.replace(way, reg=way.reg * largest**way.p) if isinstance(way, bm.Sinkhorn) else way


def apart(a, b):
    return float(np.abs(a.distance.astype(np.float64) - b.distance.astype(np.float64)).max())


def check_agreement(fast, slow):
    """Two answers to one question are as near to each other as their errors say; those without a theorem nearly so."""
    allowed = fast.error + slow.error
    if fast.certificate.rigorous:
        assert apart(fast, slow) <= allowed * (1.0 + 1e-12)
    elif fast.converged and slow.converged:
        assert apart(fast, slow) <= 5.0 * allowed


def check_form(solution, tol):
    """What every answer has: an error within the tolerance where it says so, and a symmetric table of distances."""
    d = solution.distance
    assert np.isfinite(d).all()
    assert (d >= 0.0).all()
    assert np.array_equal(d, d.T)
    assert solution.error >= 0.0
    assert solution.converged == (solution.error <= tol)
    if solution.question.transport.axioms.zero_diagonal:
        assert (np.diag(d) == 0.0).all()


def test_acceleration_is_a_setting_and_on_by_default():
    assert bm.MetricSettings().accelerate is True
    chain = garnet_chain(gamma=0.99)
    default, fast, slow = (
        bm.solve_metric(chain, tol=1e-6, **setting) for setting in ({}, {"accelerate": True}, {"accelerate": False})
    )
    assert default.distance.tobytes() == fast.distance.tobytes()
    assert default.sweeps == fast.sweeps
    assert 2 * fast.sweeps < slow.sweeps
    given_ = bm.solve_metric(chain, settings=bm.MetricSettings(accelerate=False, tol=1e-6))
    assert given_.distance.tobytes() == slow.distance.tobytes()


@every_way
@every_match
def test_without_acceleration_there_are_plain_sweeps(way, match):
    """k sweeps from 0 give F^k(0), bit by bit."""
    model = model_for(match, 4, gamma=0.9)
    solution = bm.solve_metric(model, way, match=match, lump=False, tol=1e-6, max_sweeps=4, accelerate=False)
    assert solution.sweeps == 4
    sweeper, d = sweeper_for(model, way, match=match, tol=1e-6), np.zeros((5, 5))
    for _ in range(4):
        sweep(sweeper, d, solution.question.accuracy)
    np.testing.assert_array_equal(solution.distance, d)


@every_way
@every_match
@settings(max_examples=16)
@given(
    seed=SEEDS,
    c_T=st.sampled_from(WEIGHTS),
    lump=st.sampled_from([None, False]),
    remember=st.booleans(),
    dtype=st.sampled_from(["float64", "float64", "float32"]),
)
def test_both_ways_lead_to_the_same_metric(way, match, seed, c_T, lump, remember, dtype):
    """From 0, and plain sweeps from where the fast way ended: they would leave a wrong answer, and they do not."""
    model = model_for(match, seed)
    largest = float(oracle.largest_distance(1.0, c_T, model))
    tol = largest * {"float64": 1e-5 if c_T > 0.99 else 1e-6, "float32": 1e-2}[dtype]
    asked = {"match": match, "transition_weight": c_T, "lump": lump, "remember": remember, "dtype": dtype, "tol": tol}
    transport = scaled(way, largest)
    fast = bm.solve_metric(model, transport, accelerate=True, max_sweeps=2000, **asked)
    check_form(fast, tol)
    if dtype == "float64" and (way == bm.Exact() or (way.axioms.nonexpansive and c_T <= 0.99)):
        assert fast.converged
    cold = bm.solve_metric(model, transport, accelerate=False, max_sweeps=180, **asked)
    check_form(cold, tol)
    check_agreement(fast, cold)
    sweeps = max(2, min(int(1.0 / (1.0 - c_T)), 10_000 if way == bm.Exact() else 500))
    on = bm.solve_metric(model, transport, accelerate=False, max_sweeps=sweeps, start=fast, **asked)
    check_agreement(fast, on)
    if fast.converged and way.axioms.nonexpansive:
        assert on.error <= 4.0 * tol / (1.0 - c_T)  # a sweep from within tol changes little


@every_match
@pytest.mark.parametrize("c_T", WEIGHTS)
@settings(max_examples=12)
@given(
    seed=SEEDS,
    n=st.integers(2, 5),
    labelled=st.booleans(),
    accelerate=st.booleans(),
    lump=st.sampled_from([None, False]),
    remember=st.booleans(),
)
def test_exact_metrics_are_within_their_errors_of_the_truth(match, c_T, seed, n, labelled, accelerate, lump, remember):
    model = model_for(match, seed, n, labelled=labelled)
    truth = oracle.metric_of(model, match, c_T=c_T)
    tol = 1e-6 * float(oracle.largest_distance(1.0, c_T, model))
    if c_T > 0.99:
        tol *= 10.0
    solution = bm.solve_metric(
        model,
        match=match,
        transition_weight=c_T,
        tol=tol,
        accelerate=accelerate,
        lump=lump,
        remember=remember,
        max_sweeps=2000,
    )
    check_form(solution, tol)
    assert solution.converged or (not accelerate and c_T > 0.99)
    assert oracle.within(solution.distance, truth, solution.error)
    lower, upper = solution.bracket()
    assert oracle.enclosed(lower, truth, upper)


@every_match
@settings(max_examples=12)
@given(seed=SEEDS, c_T=st.sampled_from(WEIGHTS), tol=st.sampled_from([1.0, 1e-2, 1e-4]))
def test_single_precision_is_within_its_errors_of_the_truth(match, seed, c_T, tol):
    model = model_for(match, seed, 4)
    truth = oracle.metric_of(model, match, c_T=c_T)
    solution = bm.solve_metric(model, match=match, transition_weight=c_T, tol=tol, dtype="float32", max_sweeps=3000)
    check_form(solution, tol)
    assert solution.distance.dtype == np.float32
    assert oracle.within(solution.distance, truth, solution.error)
    lower, upper = solution.bracket()
    assert oracle.enclosed(lower, truth, upper)


@pytest.mark.parametrize("exponent", [-150, -20, 20, 150])
@settings(max_examples=8)
@given(seed=SEEDS, c_T=st.sampled_from(WEIGHTS), accelerate=st.booleans())
def test_the_truth_at_any_scale(exponent, seed, c_T, accelerate):
    chain = oracle.eighths_chain(seed, 4, scale=10.0**exponent)
    truth = oracle.metric_of(chain, c_T=c_T)
    tol = 1e-5 * float(oracle.largest_distance(1.0, c_T, chain))
    solution = bm.solve_metric(chain, transition_weight=c_T, tol=tol, accelerate=accelerate, max_sweeps=1500)
    check_form(solution, tol)
    assert solution.converged or (not accelerate and c_T > 0.99)
    assert oracle.within(solution.distance, truth, solution.error)
    lower, upper = solution.bracket()
    assert oracle.enclosed(lower, truth, upper)


@every_way
@pytest.mark.parametrize("exponent", [-150, 150])
@settings(max_examples=5)
@given(seed=SEEDS, c_T=st.sampled_from((0.5, 0.9, 0.99)))
def test_both_ways_agree_at_any_scale(way, exponent, seed, c_T):
    chain = oracle.eighths_chain(seed, 4, scale=10.0**exponent)
    largest = float(oracle.largest_distance(1.0, c_T, chain))
    transport, tol = scaled(way, largest), 1e-5 * largest
    fast, slow = (
        bm.solve_metric(chain, transport, transition_weight=c_T, tol=tol, accelerate=accelerate, max_sweeps=1500)
        for accelerate in (True, False)
    )
    check_form(fast, tol)
    if way.axioms.nonexpansive:
        assert fast.converged
    check_agreement(fast, slow)


def test_rows_that_are_not_exact():
    """Masses of 1e-17 beside 1, and rows that only nearly sum to 1: the truth is that of the rows over their sums."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        P = 10.0 ** rng.uniform(-17.0, 0.0, (4, 4)) * (rng.random((4, 4)) < 0.7)
        P[np.arange(4), rng.integers(4, size=4)] = 1.0
        P /= P.sum(axis=1, keepdims=True)
        R = rng.random(4)
        truth = oracle.chain_metric(P, R, 1.0, 0.99)
        for accelerate in (True, False):
            solution = bm.solve_metric(bm.Chain.from_arrays(P, R, 0.99), tol=1e-8, accelerate=accelerate)
            assert solution.converged
            assert oracle.off_by(solution.distance, truth) <= Fraction(solution.error) * (1 + Fraction(1, 10**9))


@every_match
def test_starts_from_elsewhere_reach_the_truth(match):
    """From another policy, another transport, a positive diagonal, another discount, distances that are too large."""
    sources = (bm.Exact(), bm.Independent(), bm.Sinkhorn(0.5), bm.Exact(2.0))
    for seed in range(3):
        model, other = (model_for(match, seed + k, 4, gamma=0.99) for k in (0, 50))
        truth = oracle.metric_of(model, match)
        for k, source in enumerate(sources):
            begun = bm.solve_metric(
                other,
                source,
                match=match,
                tol=1e-3,
                reward_weight=1.0 if k % 2 else 30.0,
                transition_weight=0.9,
                lump=False,
                accelerate=k < 2,
            )
            before = begun.distance.tobytes()
            for accelerate in (True, False):
                solution = bm.solve_metric(model, match=match, tol=1e-6, start=begun, accelerate=accelerate)
                assert solution.converged
                assert oracle.within(solution.distance, truth, solution.error)
                lower, upper = solution.bracket()
                assert oracle.enclosed(lower, truth, upper)
            assert begun.distance.tobytes() == before


@every_way
def test_starts_from_the_metric_of_another_policy(way):
    mdp = bm.problems.garnet(n_states=10, branching=3, gamma=0.95)
    transport = scaled(way, 20.0)
    weights = np.random.default_rng(1).random(mdp.n_choices)
    policies = [mdp.uniform_policy(), np.zeros(10, int), np.arange(10) % 2, mdp.check_policy(_normalised(mdp, weights))]
    last = None
    for policy in policies:
        chain = mdp.under(policy)
        warm = bm.solve_metric(chain, transport, tol=1e-5, start=last)
        check_form(warm, 1e-5)
        check_agreement(warm, bm.solve_metric(chain, transport, tol=1e-5, accelerate=False))
        last = warm


def _normalised(mdp, weights):
    return weights / np.add.reduceat(weights, mdp.choice_ptr[:-1])[mdp.state_of_choice]


FAMILIES = {
    "garnet": lambda gamma, seed: bm.problems.garnet(n_states=40, branching=4, gamma=gamma, seed=seed),
    "garnet-wide": lambda gamma, seed: bm.problems.garnet(n_states=25, branching=12, gamma=gamma, seed=seed),
    "gridworld": lambda gamma, seed: bm.problems.gridworld(width=5, height=4, gamma=gamma, seed=seed),
    "gridworld-copies": lambda gamma, seed: bm.problems.gridworld(
        width=4, height=3, copies=2, noise=0.05, gamma=gamma, seed=seed
    ),
}


@pytest.mark.parametrize("match", [None, "labels"])
@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999])
@pytest.mark.parametrize("family", FAMILIES)
def test_few_sweeps_are_enough(family, gamma, match):
    """Where plain sweeps would be some log(1e6) / (1 − γ), at most 20 are (25 of tiny models that need no more plain
    ones). Plain sweeps from there find nothing new."""
    for seed in range(2):
        mdp = FAMILIES[family](gamma, seed)
        model = mdp.under(mdp.uniform_policy()) if match is None else mdp
        fast = bm.solve_metric(model, match=match, tol=1e-6)
        assert fast.converged
        assert fast.error <= 1e-6
        assert fast.sweeps <= (25 if model.n_states <= 64 else 20)
        on = bm.solve_metric(
            model, match=match, tol=1e-6, start=fast, accelerate=False, max_sweeps=int(1.0 / (1.0 - gamma))
        )
        assert apart(fast, on) <= fast.error + on.error
        assert on.error <= 3e-6 / (1.0 - gamma)


@every_match
@pytest.mark.parametrize("max_sweeps", [1, 2, 3])
@settings(max_examples=15)
@given(seed=SEEDS, c_T=st.sampled_from((0.5, 0.9, 0.99)), labelled=st.booleans())
def test_bounds_hold_after_an_early_stop(match, max_sweeps, seed, c_T, labelled):
    model = model_for(match, seed, 4, labelled=labelled)
    truth = oracle.metric_of(model, match, c_T=c_T)
    solution = bm.solve_metric(model, match=match, transition_weight=c_T, tol=1e-7, max_sweeps=max_sweeps)
    assert solution.sweeps <= max_sweeps
    assert solution.status in (bm.Status.SWEEP_LIMIT, bm.Status.CONVERGED)
    check_form(solution, 1e-7)
    assert oracle.within(solution.distance, truth, solution.error)
    lower, upper = solution.bracket()
    assert oracle.enclosed(lower, truth, upper)


@pytest.mark.parametrize("way", [way for way in WAYS if way.p == 1.0 and way != bm.Exact()], ids=name)
@every_match
def test_brackets_of_other_transports_hold_the_truth(way, match):
    """Around the exact metric of the same order, also after two sweeps; here for p = 1, where it is rational."""
    for seed in range(2):
        model = model_for(match, seed, 4)
        truth = oracle.metric_of(model, match)
        for max_sweeps in (2, 1000):
            solution = bm.solve_metric(model, scaled(way, 8.0), match=match, tol=1e-4, max_sweeps=max_sweeps)
            lower, upper = solution.bracket()
            assert oracle.enclosed(lower, truth, upper)


@pytest.mark.parametrize("transport", EVERY_TRANSPORT, ids=name)
@every_match
def test_interrupts_at_any_sweep_leave_a_valid_error(transport, match):
    model = random_chain(3, 6, 0.95) if match is None else random_mdp(3, 6, 0.95)
    asked = {"match": match, "tol": 1e-5}
    whole = bm.solve_metric(model, transport, **asked)
    slow = bm.solve_metric(model, transport, accelerate=False, **asked)
    assert whole.converged
    for after in range(1, min(whole.sweeps, 8) + 1):
        seen = []

        def stop(progress, seen=seen, after=after):
            seen.append(progress)
            if len(seen) == after:
                raise KeyboardInterrupt

        solution = bm.solve_metric(model, transport, on_progress=stop, **asked)
        assert solution.status is bm.Status.INTERRUPTED
        assert solution.sweeps == seen[-1].sweep
        assert np.array_equal(solution.distance, solution.distance.T)
        if transport.axioms.nonexpansive:
            assert miss(solution, slow) <= solution.error + slow.error
        lower, upper = solution.bracket()
        assert (lower <= upper).all()
        on = bm.solve_metric(model, transport, start=solution, **asked)
        assert on.converged
        check_agreement(on, slow)


@every_match
@settings(max_examples=10)
@given(seed=SEEDS, after=st.integers(1, 6))
@example(0, 1)
def test_interrupts_are_within_their_errors_of_the_truth(match, seed, after):
    model = model_for(match, seed, 4, gamma=0.99)
    count = [0]

    def stop(progress):
        count[0] += 1
        if count[0] == after:
            raise KeyboardInterrupt

    solution = bm.solve_metric(model, match=match, tol=1e-7, on_progress=stop)
    assert (solution.status is bm.Status.INTERRUPTED) == (count[0] == after)
    truth = oracle.metric_of(model, match)
    assert oracle.within(solution.distance, truth, solution.error)
    lower, upper = solution.bracket()
    assert oracle.enclosed(lower, truth, upper)


@every_way
@every_match
def test_threads_change_no_bit(way, match):
    mdp = bm.problems.garnet(n_states=30, branching=4, gamma=0.95)
    model = mdp.under(mdp.uniform_policy()) if match is None else mdp
    results = set()
    for threads in (1, 2, 3):
        bm.set_threads(threads)
        solution = bm.solve_metric(model, scaled(way, 20.0), match=match, tol=1e-2)
        lower, upper = solution.bracket()
        results.add((solution.distance.tobytes(), solution.error, solution.sweeps, lower.tobytes(), upper.tobytes()))
    assert len(results) == 1


def test_the_same_solve_gives_the_same_bits():
    """Nothing is left from a solve that changes the next, and progress callbacks read only."""
    chain = garnet_chain(20, gamma=0.99)
    first = bm.solve_metric(chain, tol=1e-6)
    seen = []
    second = bm.solve_metric(chain, tol=1e-6, on_progress=seen.append)
    assert first.distance.tobytes() == second.distance.tobytes()
    assert [p.sweep for p in seen] == list(range(1, second.sweeps + 1))
    assert seen[-1].error == second.error


# Discount one: labelled chains without rewards.


def at_one(chain, **settings_of_metric):
    return bm.solve_metric(chain, transition_weight=1.0, **settings_of_metric)


def truth_at_one(chain, *names):
    """The rational truth, with these labels respected; all but "init" by default."""
    names = names or [x for x in chain.state_labels if x != "init"]
    labels = list(zip(*(chain.state_labels[x].tolist() for x in names), strict=True))
    return oracle.undiscounted(chain.rows.matrix().toarray(), labels)


def check_at_one(solution, truth, tol):
    d = solution.distance
    assert np.array_equal(d, d.T)
    assert solution.converged == (solution.error <= tol)
    assert oracle.within(d, truth, solution.error)
    assert (d[truth == 0] == 0.0).all()
    assert (d[truth == 1] == 1.0).all()
    lower, upper = solution.bracket()
    assert oracle.enclosed(lower, truth, upper)
    assert (lower >= 0.0).all()
    assert (upper <= 1.0 + solution.error + 1e-12).all()


@settings(max_examples=120)
@given(SEEDS, st.integers(1, 6), st.sampled_from([1e-3, 1e-9]))
def test_discount_one(seed, n, tol):
    chain = oracle.coin_chain(seed, n)
    solution = at_one(chain, tol=tol)
    assert solution.converged
    assert solution.certificate.rigorous
    assert solution.largest == 1.0
    check_at_one(solution, truth_at_one(chain), tol)


@settings(max_examples=20)
@given(SEEDS, st.integers(1, 3))
def test_discount_one_after_an_early_stop(seed, max_sweeps):
    chain = oracle.coin_chain(seed, 5)
    check_at_one(at_one(chain, tol=1e-9, max_sweeps=max_sweeps), truth_at_one(chain), 1e-9)


def test_discount_one_in_any_form():
    """1 and 1.0, Exact() by name, rewards that are equal or have no weight, some of the labels, lumped or not."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        P = oracle.eighths(rng, 5, 5)
        labels = {"a": rng.random(5) < 0.4, "b": rng.random(5) < 0.4, "init": np.arange(5) == 0}
        equal = bm.Chain.from_arrays(P, np.full(5, 0.3), 0.9, state_labels=labels)
        paid = bm.Chain.from_arrays(P, rng.random(5), 0.9, state_labels=labels)
        of_both, of_a = truth_at_one(equal), truth_at_one(equal, "a")
        for solution, truth in (
            (bm.solve_metric(equal, bm.Exact(), transition_weight=1, tol=1e-8), of_both),
            (at_one(equal, tol=1e-8, respect=["a"]), of_a),
            (at_one(equal, tol=1e-8, lump=False), of_both),
            (at_one(equal, tol=1e-8, reward_weight=0.0), of_both),
            (at_one(paid, tol=1e-8, reward_weight=0.0), of_both),
            (at_one(paid, tol=1e-8, reward_weight=0.0, respect=["a"]), of_a),
        ):
            check_at_one(solution, truth, 1e-8)
            assert solution.converged


def test_discount_one_where_differences_are_rare():
    """Both states wait for a million steps, then one shows heads, the other heads or tails: 1/2, not 0."""
    rare = 2.0**-20
    P = np.zeros((4, 4))
    P[0, [0, 2]] = 1.0 - rare, rare
    P[1, [1, 2, 3]] = 1.0 - rare, rare / 2.0, rare / 2.0
    P[[2, 3], [2, 3]] = 1.0
    labels = {"heads": np.array([0, 0, 1, 0], bool), "tails": np.array([0, 0, 0, 1], bool)}
    chain = bm.Chain.from_arrays(P, np.zeros(4), 0.5, state_labels=labels)
    truth = truth_at_one(chain)
    assert truth[0, 1] == Fraction(1, 2)
    solution = at_one(chain, tol=1e-6)
    check_at_one(solution, truth, 1e-6)
    assert solution.converged


def test_discount_one_where_rows_differ_by_rounding():
    """Two coins whose odds differ in the last digit: 0 or 1e-16, and what is claimed covers both."""
    P = np.zeros((4, 4))
    P[0, [2, 3]] = 0.3, 0.7
    P[1, [2, 3]] = 0.1 + 0.2, 0.7
    P[[2, 3], [2, 3]] = 1.0
    labels = {"heads": np.array([0, 0, 1, 0], bool), "tails": np.array([0, 0, 0, 1], bool)}
    chain = bm.Chain.from_arrays(P, np.zeros(4), 0.5, state_labels=labels)
    assert P[1, 2] != 0.3
    for lump in (None, False):
        solution = at_one(chain, tol=1e-9, lump=lump)
        assert solution.converged
        assert solution.distance[0, 1] <= 1e-15 + solution.error
        lower, upper = solution.bracket()
        assert (lower <= solution.distance + solution.error).all()
        assert (solution.distance - solution.error <= upper).all()
        assert lower[0, 1] <= 1e-15
        assert lower[2, 3] >= 1.0 - 1e-9


def test_discount_one_is_the_limit_of_discounts():
    """On 40 states: metrics with weights c_R = 1 − c_T, whose largest distance is 1, grow to that of discount one."""
    rng = np.random.default_rng(5)
    P = oracle.eighths(rng, 40, 40)
    chain = bm.Chain.from_arrays(P, np.zeros(40), 0.5, state_labels={"x": rng.random(40) < 0.3})
    limit = at_one(chain, tol=1e-7)
    assert limit.converged
    lower, upper = limit.bracket()
    assert (upper - lower).max() <= 1e-6
    gaps = []
    for c_T in (0.9, 0.999, 0.99999):
        near = bm.solve_metric(chain, transition_weight=c_T, reward_weight=1.0 - c_T, tol=1e-5)
        assert (near.distance - near.error <= upper).all()
        gaps.append(float((limit.distance - near.distance).max()))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-2


def test_discount_one_and_threads():
    rng = np.random.default_rng(6)
    P = oracle.eighths(rng, 30, 30)
    chain = bm.Chain.from_arrays(P, np.zeros(30), 0.5, state_labels={"x": rng.random(30) < 0.3})
    results = set()
    for threads in (1, 2):
        bm.set_threads(threads)
        solution = at_one(chain, tol=1e-8)
        results.add((solution.distance.tobytes(), solution.error, *(bound.tobytes() for bound in solution.bracket())))
    assert len(results) == 1


def test_discount_one_and_interrupts():
    def stop(progress):
        raise KeyboardInterrupt

    for seed in range(10):
        chain = oracle.coin_chain(seed, 5)
        solution = at_one(chain, tol=1e-9, on_progress=stop)
        assert solution.status in (bm.Status.INTERRUPTED, bm.Status.CONVERGED)  # some need no sweep
        assert oracle.within(solution.distance, truth_at_one(chain), solution.error)


def test_discount_one_is_refused_where_it_has_no_meaning_here():
    chain = oracle.coin_chain(0, 4)
    P, heads = chain.rows.matrix(), chain.state_labels["heads"]
    paid = bm.Chain.from_arrays(P, np.arange(4.0), 0.5, state_labels={"heads": heads})
    bare = bm.Chain.from_arrays(P, np.zeros(4), 0.5)
    about_modelling = bm.Chain.from_arrays(P, np.zeros(4), 0.5, state_labels={"init": heads})
    mdp = bm.MDP.from_choices(P, np.zeros(4), np.arange(5), 0.5).with_labels({"heads": heads})
    for match in ("labels", "hausdorff"):
        with pytest.raises(ValueError, match=r"(?i)chain"):
            at_one(mdp, match=match)
    for transport in EVERY_TRANSPORT[1:]:
        with pytest.raises(ValueError, match="Exact"):
            bm.solve_metric(chain, transport, transition_weight=1.0)
    with pytest.raises(ValueError, match="reward"):
        at_one(paid)
    with pytest.raises(ValueError, match="reward"):
        at_one(paid, reward_weight=1e-9)
    for unlabelled in (bare, about_modelling):
        with pytest.raises(ValueError, match="label"):
            at_one(unlabelled)
    with pytest.raises(ValueError, match="label"):
        at_one(chain, respect=())
    for beyond in (1.0 + 2.0**-52, 1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match="transition_weight"):
            bm.solve_metric(chain, transition_weight=beyond)
