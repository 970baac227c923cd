"""Certificates at the edges of what is accepted: extreme scales, masses of 1e-17, high orders, starts from elsewhere.

Every claim is checked against rational or 60-digit arithmetic (`exact_truth`).
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import exact_truth as truth
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transport_blocks import block_of, rows_of, solver_of

import bisimetric as bm

EPS = {"float64": 2.0**-52, "float32": 2.0**-23}
SCALES = (-150, -20, 0, 20, 150)


def edge_rows(rng: np.random.Generator, n_rows: int, n: int, smallest: float) -> np.ndarray:
    """Rows with masses between 10^smallest and 1 on some of the states; one may be another but for such a mass."""
    rows = np.zeros((n_rows, n))
    for k in range(n_rows):
        row = rows[k]
        support = rng.choice(n, rng.integers(1, n + 1), replace=False)
        row[support] = 10.0 ** rng.uniform(smallest, 0.0, len(support)) * (rng.random(len(support)) < 0.7)
        row[support[0]] = 1.0
        rows[k] = row / row.sum()
    if rng.random() < 0.5:
        rows[1] = rows[0]
        rows[1, rng.integers(n)] += 10.0**smallest
        rows[1] /= rows[1].sum()
    return rows


def edge_ground(rng: np.random.Generator, n: int, scale: float) -> np.ndarray:
    """Distances over some orders of magnitude, some of them 0 or equal."""
    d = np.triu(10.0 ** rng.uniform(-6.0, 0.0, (n, n)) * (rng.random((n, n)) < 0.8), 1)
    if rng.random() < 0.4:
        d = np.triu(np.ones((n, n)) * (rng.random((n, n)) < 0.6), 1)
    return (d + d.T) * scale


def exact_ground(d: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in row] for row in d]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["exact", "independent"])
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, 8, 64]), st.sampled_from(SCALES), st.booleans())
@settings(max_examples=60)
def test_transports_are_within_their_claimed_errors(kind, dtype, seed, p, scale, tiny):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    rows = edge_rows(rng, 3, n, -17.0 if tiny else -2.0)
    size = 10.0 ** (scale if dtype == "float64" else scale / 5)
    d = edge_ground(rng, n, size).astype(dtype).astype(np.float64)
    way = bm.Exact(float(p)) if kind == "exact" else bm.Independent(float(p))
    solver = solver_of(way, rows, dtype=dtype)
    out, report = block_of(solver, d, 1e-9 * size)
    for a in range(3):
        for b in range(a + solver.first, 3):
            true = truth.transport(kind, exact_ground(d), *(truth.rational_row(rows[k]) for k in (a, b)), p)
            allowed = report.error + 16.0 * EPS[dtype] * float(d.max())
            assert abs(Decimal(float(out[a, b])) - true) <= Decimal(allowed), (a, b, float(out[a, b]), float(true))


@pytest.mark.parametrize("p", [2.0, 8.0])
def test_masses_below_round_off_count(p):
    """A mass of 1e-17 is 0.0075 of the distance for p = 8; it is not lost beside a mass of 1."""
    d = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    for rows in (
        [[1.0, 1e-17, 0.0], [1.0, 0.0, 0.0]],
        [[1.0, 1e-17, 0.0], [1.0, 0.0, 3e-17]],
        [[0.5, 0.5, 1e-17], [0.5, 0.5, 0.0]],
        [[0.5, 0.25, 0.25], [0.5, 0.25 + 1e-17, 0.25]],
    ):
        table = np.array(rows)
        out, report = block_of(solver_of(bm.Exact(p), table), d, 1e-12)
        true = truth.transport("exact", exact_ground(d), *(truth.rational_row(r) for r in table), int(p))
        assert abs(float(true) - out[0, 1]) <= report.error + 1e-15
        assert report.error <= 1e-3 if p == 2.0 else 2e-2


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 0.05, 1.0, 30.0, 1e3, 1e6, 1e9]), st.booleans())
@settings(max_examples=40)
@example(0, 1e3, True)
@example(201, 1e3, True)
@example(1390, 30.0, True)
def test_values_from_starts_of_other_masses_are_within_their_claimed_errors(dtype, seed, reg, tiny):
    """Scalings kept under other probabilities, also ones that were 1e-12 before."""
    rng = np.random.default_rng(seed)
    n = 3
    before, after = (edge_rows(rng, 2, n, -13.0 if tiny else -2.0) for _ in range(2))
    before, after = (np.maximum(rows, 1e-12 if tiny else 1e-3) for rows in (before, after))
    before, after = (rows / rows.sum(axis=1, keepdims=True) for rows in (before, after))
    d = edge_ground(rng, n, 1.0).astype(dtype).astype(np.float64)
    if not d.any():
        d += 1.0 - np.eye(n)
    if d.max() > 30.0 * reg:  # 60 digits of Sinkhorn's iteration would take for ever
        return
    way = bm.Sinkhorn(reg, cost="value")
    solver = solver_of(way, before, dtype=dtype)
    block_of(solver, d, 1e-3)
    solver.follow(rows_of(after))
    for accuracy in (1e-3, 1e-6):
        out, report = block_of(solver, d, accuracy)
        for a, b in ((0, 0), (0, 1), (1, 1)):
            low, high = truth.entropic_value(d, after[a], after[b], reg)
            allowed = Decimal(report.error + 16.0 * EPS[dtype] * float(d.max()))
            assert low - allowed <= Decimal(float(out[a, b])) <= high + allowed


@given(
    st.integers(0, 2**32 - 1), st.sampled_from([1e-30, 1e-18, 1e-14, 1e-10, 1e-6, 1e-3]), st.sampled_from([1.0, 2.0])
)
def test_a_small_ball_is_below_the_product_plan_and_not_far(seed, radius, p):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    rows, d = rng.dirichlet(np.ones(n), 3), edge_ground(rng, n, 1.0)
    ball, report = block_of(solver_of(bm.KLBall(radius, p=p), rows), d, 1e-12)
    product, other = block_of(solver_of(bm.Independent(p), rows), d, 1e-12)
    inside = np.triu_indices(3)
    assert (ball[inside] <= product[inside] + report.error + other.error).all()
    # Pinsker: the cost of a plan in the ball is at least that of the product plan less max C √(radius/2).
    least = np.maximum(product**p - float(d.max()) ** p * np.sqrt(radius / 2.0), 0.0) ** (1.0 / p)
    assert (ball[inside] >= least[inside] - report.error - other.error - 1e-15).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("p", [1, 2, 8])
@given(st.integers(0, 2**32 - 1), st.sampled_from(SCALES))
@settings(max_examples=12)
def test_metrics_are_within_their_certificates_at_any_scale(p, dtype, seed, scale):
    rng = np.random.default_rng(seed)
    n, size = 3, 10.0 ** (scale if dtype == "float64" else scale / 5)
    P, R = edge_rows(rng, n, n, -17.0), rng.integers(0, 3, n) / 2.0 * size
    chain = bm.Chain.from_arrays(P, R, 0.5)
    sol = bm.solve_metric(chain, bm.Exact(float(p)), tol=1e-9 * size, dtype=dtype, max_sweeps=200)
    true = truth.metric("exact", P, R, 0.5, p, sweeps=60)
    off = float(np.abs(sol.distance.astype(np.float64) - true).max())
    assert off <= sol.error * (1.0 + 1e-9) + 1e-15 * float(true.max())
    lower, upper = sol.bracket()
    assert (lower <= true * (1.0 + 1e-15)).all()
    assert (true * (1.0 - 1e-15) <= upper).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "way", [bm.Exact(2.0), bm.Independent(3.0), bm.Sinkhorn(0.5, 2.0, cost="value"), bm.KLBall(0.2, p=2.0)]
)
def test_distances_scale_with_the_rewards(way, dtype):
    """Rewards times a power of 2 give distances times the same, bit by bit, however far that is from 1."""
    rng = np.random.default_rng(0)
    P, R = rng.dirichlet(np.ones(5), 5), rng.random(5)
    base = bm.solve_metric(bm.Chain.from_arrays(P, R, 0.8), way, tol=1e-3, dtype=dtype).distance
    for exponent in (-300, 300) if dtype == "float64" else (-60, 60):
        factor = 2.0**exponent
        scaled = way
        if isinstance(way, bm.Sinkhorn):
            scaled = bm.Sinkhorn(way.reg * factor**way.p, way.p, cost="value")
            if not 0.0 < scaled.reg < np.inf:
                continue
        sol = bm.solve_metric(bm.Chain.from_arrays(P, R * factor, 0.8), scaled, tol=1e-3 * factor, dtype=dtype)
        np.testing.assert_array_equal(sol.distance, base * np.asarray(factor, dtype))


def test_orders_are_monotone_as_far_as_they_are_certain():
    rng = np.random.default_rng(1)
    P, R = rng.dirichlet(np.ones(4), 4), np.array([0.0, 0.3, 1.0, 1.0])
    chain = bm.Chain.from_arrays(P, R, 0.9)
    last = None
    for p in (1.0, 2.0, 8.0, 50.0, 500.0):
        sol = bm.solve_metric(chain, bm.Exact(p), tol=1e-6, max_sweeps=300)
        if last is not None:
            assert (sol.distance + sol.error >= last.distance - last.error).all()
        last = sol


@pytest.mark.parametrize("reg", [1e-200, 1e-12, 1e12, 1e200])
@pytest.mark.parametrize("p", [1.0, 2.0])
def test_sinkhorn_far_from_its_range_is_one_of_its_limits(reg, p):
    rng = np.random.default_rng(2)
    chain = bm.Chain.from_arrays(rng.dirichlet(np.ones(6), 6), rng.random(6), 0.8)
    sol = bm.solve_metric(chain, bm.Sinkhorn(reg, p, cost="value"), tol=1e-5)
    limit = bm.Exact(p) if reg < 1.0 else bm.Independent(p)
    expected = bm.solve_metric(chain, limit, tol=1e-6)
    off_diagonal = ~np.eye(6, dtype=bool)
    assert sol.converged
    gap = np.abs(sol.distance - expected.distance)[off_diagonal if reg < 1.0 else slice(None)]
    assert gap.max() <= sol.error + expected.error + (1e-5 if reg < 1.0 else 0.0)


def test_rows_within_the_tolerance_are_the_same_for_metrics_and_values():
    """Rows that sum to 1 − 5e-9: equal rewards make all states alike, whatever is asked."""
    P = np.diag([1.0, 1.0 - 5e-9])
    chain = bm.Chain.from_arrays(P, [1000.0, 1000.0], 0.99)
    assert chain.rows.moved == pytest.approx(5e-9, rel=1e-6)
    sol = bm.solve_metric(chain)
    lower, upper = sol.bracket()
    assert sol.distance.max() == lower.max() == 0.0
    assert upper.max() <= 1e-6
    mdp = bm.MDP.from_arrays(np.stack([P, np.eye(2)], axis=1), [1000.0, 1000.0], 0.99, axes="sas")
    run = bm.solve_policy(mdp, steps=3)
    best = 1000.0 / (1.0 - 0.99)
    assert np.abs(run.value - best).max() <= run.certificate.error + 1e-9 * best
    off = np.array([0.5 + 4e-9, 0.5, 1.0, 0.0])
    np.testing.assert_allclose(np.add.reduceat(mdp.check_policy(off), mdp.choice_ptr[:-1]), 1.0, rtol=0, atol=1e-15)


@given(st.integers(0, 2**32 - 1), st.floats(-9.9e-9, 9.9e-9), st.sampled_from([0.5, 0.99, 0.99999]))
def test_bounds_of_values_and_metrics_agree_for_rows_at_the_tolerance(seed, excess, gamma):
    """c_R |V(s) − V(t)| ≤ d + error, with V exact for the normalised rows; brackets do not cross."""
    rng = np.random.default_rng(seed)
    n = 3
    P = edge_rows(rng, n, n, -9.0)
    P[0] *= 1.0 + excess
    R = rng.integers(0, 2, n) * 1000.0
    chain = bm.Chain.from_arrays(P, R, gamma)
    V = truth.values(P, R, gamma)
    sol = bm.solve_metric(chain, tol=1e-3, max_sweeps=2000)
    lower, upper = sol.bracket()
    for s in range(n):
        for t in range(n):
            gap = float(abs(V[s] - V[t]))
            assert gap <= sol.distance[s, t] + sol.error + 1e-12 * gap
            assert gap <= upper[s, t] * (1.0 + 1e-12)
            assert lower[s, t] <= upper[s, t]
