"""Exact transport against linear programming and POT, and its restarts against cold starts."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from engines import DEVICE
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_chain
from sweepers import sweep, sweeper_for
from transport_blocks import (
    GROUNDS,
    block_of,
    distances,
    distribution,
    ground,
    solver_of,
    table_of,
    transport_problems,
)

import bisimetric as bm
from bisimetric.backends import reference

pytestmark = pytest.mark.usefixtures("one_thread")


def pot(d, mu, nu, p=1.0):
    i, j = np.flatnonzero(mu), np.flatnonzero(nu)
    return ot.emd2(mu[i], nu[j], np.ascontiguousarray(d[np.ix_(i, j)] ** p), numItermax=10**7)


def assert_optimal(W, rows, d, p=1.0, tol=1e-9, oracles=(reference.exact, pot)):
    """Compare p-th powers: a root would magnify the oracle's own errors near 0."""
    top = max(float(d.max()) ** p, 1e-300)
    if rows[rows > 0.0].min() < 1e-8:  # below the feasibility tolerance of the linear program
        oracles = (pot,)
    for s in range(len(rows)):
        for t in range(s + 1, len(rows)):
            for oracle in oracles:
                expected = oracle(d, rows[s], rows[t], p)
                expected = expected**p if oracle is reference.exact else expected
                assert W[s, t] ** p == pytest.approx(expected, abs=tol * top, rel=1e-9), (s, t, oracle)


@settings(max_examples=150)
@given(transport_problems(n_rows=3, max_support=8))
def test_agrees_with_linear_programming_and_pot(problem):
    rows, d = problem
    W = distances(bm.Exact(), rows, d)
    assert_optimal(W, rows, d)
    assert (np.diag(W) == 0.0).all()


@settings(max_examples=80)
@given(transport_problems(n_rows=3, max_support=40, extra_states=20, rows=("simplex", "equal", "integers", "tiny")))
def test_agrees_on_wide_supports(problem):
    rows, d = problem
    assert_optimal(distances(bm.Exact(), rows, d), rows, d)


@pytest.mark.parametrize("kind", GROUNDS)
@pytest.mark.parametrize("sizes", [(1, 1), (1, 7), (7, 1), (2, 2), (2, 3), (3, 2), (3, 3), (2, 9)])
def test_small_shapes(sizes, kind):
    """Closed forms (1 × k, 2 × 2) and the smallest trees, with overlapping and with separate supports."""
    rng = np.random.default_rng([*sizes, GROUNDS.index(kind)])
    for n in (max(sizes), sum(sizes)):
        d = ground(rng, kind, n)
        for weights in ("simplex", "equal"):
            rows = np.zeros((2, n))
            rows[0, : sizes[0]] = distribution(rng, weights, sizes[0], sizes[0])
            rows[1, n - sizes[1] :] = distribution(rng, weights, sizes[1], sizes[1])
            assert_optimal(distances(bm.Exact(), rows, d), rows, d)


@settings(max_examples=60)
@given(transport_problems(n_rows=3, max_support=6), st.sampled_from([1.5, 2.0, 4.0]))
def test_orders(problem, p):
    rows, d = problem
    assert_optimal(distances(bm.Exact(p), rows, d), rows, d, p)


@given(transport_problems(n_rows=2, max_support=8), st.sampled_from([1.0, 2.0]))
def test_equal_rows_are_at_distance_zero(problem, p):
    rows, d = problem
    rows[1] = rows[0]
    assert distances(bm.Exact(p), rows, d)[0, 1] <= 1e-13 ** (1.0 / p) * max(d.max(), 1.0)


def test_masses_of_any_size():
    """Probabilities from 1e-14 to 1 and costs from 1e-9 to 1e9 lose nothing that matters."""
    rng = np.random.default_rng(0)
    for scale in (1e-9, 1.0, 1e9):
        rows = np.array([distribution(rng, "tiny", 12, 9) for _ in range(4)])
        d = scale * ground(rng, "uniform", 12)
        assert_optimal(distances(bm.Exact(), rows, d) / scale, rows, d / scale)


def test_supports_beyond_one_byte():
    """More than 128 successors need 16-bit trees."""
    rng = np.random.default_rng(1)
    n = 150
    rows = np.array([distribution(rng, kind, n, 140) for kind in ("simplex", "equal", "integers")])
    for kind in ("uniform", "ties"):
        d = ground(rng, kind, n)
        warm = solver_of(bm.Exact(), rows)
        if DEVICE == "cpu":
            assert warm.trees.of[0].entries.dtype == np.uint16
        W = table_of(warm, d)
        assert_optimal(W, rows, d, oracles=(pot,))
        d2 = d * (1.0 + 0.1 * ground(rng, "uniform", n))
        np.testing.assert_allclose(table_of(warm, d2), distances(bm.Exact(), rows, d2), atol=1e-12 * d2.max())
    narrow = solver_of(bm.Exact(), rows[:, :128] / rows[:, :128].sum(axis=1, keepdims=True))
    if DEVICE == "cpu":
        assert narrow.trees.of[0].entries.dtype == np.uint8


@settings(max_examples=80)
@given(transport_problems(n_rows=5, max_support=9), st.integers(0, 10**6), st.sampled_from([1.0, 1.5, 2.0]))
def test_restart_after_the_costs_changed(problem, seed, p):
    rows, d = problem
    rng = np.random.default_rng(seed)
    solver = solver_of(bm.Exact(p), rows)
    for step in range(4):
        W, cold = table_of(solver, d), distances(bm.Exact(p), rows, d)
        np.testing.assert_allclose(W**p, cold**p, atol=1e-12 * max(d.max() ** p, 1e-300))
        # A small change, a new problem altogether, no cost at all.
        noise = ground(rng, "uniform", len(d))
        d = d + 0.01 * noise if step == 0 else noise if step == 1 else 0.0 * d


@settings(max_examples=80)
@given(transport_problems(n_rows=5, max_support=9), st.integers(0, 10**6), st.booleans())
def test_restart_after_the_masses_changed(problem, seed, same_support):
    rows, d = problem
    rng = np.random.default_rng(seed)
    old = solver_of(bm.Exact(), rows)
    table_of(old, d)
    before = [array.tobytes() for array in old.remembered().values()]
    for _ in range(3):
        if same_support:
            rows = np.where(rows > 0.0, rng.random(rows.shape) + 1e-3, 0.0)
        else:
            rows = np.where(rng.random(rows.shape) < 0.3, rng.random(rows.shape), rows) + 1e-9 * (rows > 0.0)
            rows[0] = rows[0] * (rng.random(rows.shape[1]) < 0.5) + 1e-6 * (np.arange(rows.shape[1]) == 0)
        rows /= rows.sum(axis=1, keepdims=True)
        new = solver_of(bm.Exact(), rows)
        new.take_from(old)
        d = d + 0.01 * ground(rng, "uniform", len(d))
        np.testing.assert_allclose(table_of(new, d), distances(bm.Exact(), rows, d), atol=1e-12 * d.max())
        assert [array.tobytes() for array in old.remembered().values()] == before
        old, before = new, [array.tobytes() for array in new.remembered().values()]


@given(transport_problems(n_rows=5, max_support=7))
def test_keeping_trees_changes_nothing(problem):
    rows, d = problem
    np.testing.assert_array_equal(distances(bm.Exact(), rows, d, remember=False), distances(bm.Exact(), rows, d))


def test_a_restart_saves_pivots():
    rng = np.random.default_rng(2)
    rows = np.array([distribution(rng, "simplex", 30, 15) for _ in range(10)])
    d = ground(rng, "paths", 30) + ground(rng, "uniform", 30)
    solver = solver_of(bm.Exact(), rows)
    pivots = [block_of(solver, ground_now, 1e-9)[1].iterations for ground_now in (d, d, d * 1.001)]
    assert pivots[0] > 45
    assert pivots[1:] == [0, 0]


@given(st.integers(0, 10**6))
def test_the_operator_adds_rewards_and_discounts(seed):
    """F(d) = |ΔR| + c_T W(d), by linear programming."""
    chain = random_chain(seed, 6, kind="simplex", support=4)
    d = ground(np.random.default_rng(seed), "paths", 6)
    P, R = chain.rows.matrix().toarray(), chain.rewards
    expected = np.abs(R[:, None] - R[None, :])
    for s in range(6):
        for t in range(6):
            if s != t:
                expected[s, t] += 0.25 * reference.exact(d, P[s], P[t])
    swept = d.copy()
    report = sweep(sweeper_for(chain, bm.Exact(), transition_weight=0.25), swept)
    np.testing.assert_allclose(swept, expected, atol=1e-9)
    assert report.change == np.abs(swept - d).max()


def test_the_reported_error_is_honest():
    """Entries are never below the optimum, and above it by no more than is reported."""
    rng = np.random.default_rng(3)
    rows = np.array([distribution(rng, "simplex", 20, 12) for _ in range(6)])
    d = ground(rng, "uniform", 20)
    out, report = block_of(solver_of(bm.Exact(), rows), d, 1e-9)
    error = report.error
    assert error <= 1e-12
    for s in range(6):
        for t in range(s + 1, 6):
            best = pot(d, rows[s], rows[t])
            assert best - 1e-14 <= out[s, t] <= best + error + 1e-14
