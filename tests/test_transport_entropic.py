"""Sinkhorn distances and KL balls against the reference, their limits, and what the sharp cost is not."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from engines import DEVICE
from hypothesis import given, settings
from hypothesis import strategies as st
from sweepers import sweep, sweeper_for
from transport_blocks import block_of, distances, distribution, ground, solver_of, table_of, transport_problems
from transports import name

import bisimetric as bm
from bisimetric.backends import reference

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = ("simplex", "equal", "integers", "points")
COSTS = st.sampled_from(["sharp", "value"])


def pairs(n, first=0):
    return [(s, t) for s in range(n) for t in range(s + first, n)]


def entropy(row):
    return float(-(row[row > 0.0] * np.log(row[row > 0.0])).sum())


@settings(max_examples=60)
@given(
    transport_problems(n_rows=3, max_support=5, rows=PLAIN),
    st.floats(-1.3, 4.0),
    COSTS,
    st.sampled_from([1.0, 1.0, 2.0]),
)
def test_sinkhorn_agrees_with_the_reference(problem, log_reg, cost, p):
    rows, d = problem
    scale = max(float(d.max()) ** p, 1.0)
    reg = scale * 10.0**log_reg
    W = distances(bm.Sinkhorn(reg, p=p, cost=cost), rows, d)
    for s, t in pairs(len(rows)):
        expected = reference.sinkhorn(d, rows[s], rows[t], reg, p, cost)
        assert W[s, t] ** p == pytest.approx(expected**p, abs=1e-6 * scale)


@settings(max_examples=60)
@given(transport_problems(n_rows=4, max_support=8), st.floats(-4.0, -1.0), COSTS, st.sampled_from([1.0, 2.0]))
def test_weak_regularisation_is_near_exact(problem, log_reg, cost, p):
    """0 ≤ W_λ^p − W^p ≤ λ min(H(μ), H(ν)), for both costs, wherever the kernel underflows or not."""
    rows, d = problem
    scale = max(float(d.max()) ** p, 1e-9)
    reg = scale * 10.0**log_reg
    W, exact = distances(bm.Sinkhorn(reg, p=p, cost=cost), rows, d), distances(bm.Exact(p), rows, d)
    for s, t in pairs(len(rows)):
        slack = reg * min(entropy(rows[s]), entropy(rows[t]))
        assert -1e-6 * scale <= W[s, t] ** p - exact[s, t] ** p <= slack + 1e-6 * scale


@pytest.mark.parametrize("cost", ["sharp", "value"])
def test_limits(cost):
    """λ → 0 tends to exact transport and λ → ∞ to the independent coupling."""
    rng = np.random.default_rng(0)
    rows = np.array([distribution(rng, "simplex", 9, size) for size in (2, 2, 4, 6, 9)])
    d = ground(rng, "paths", 9) + ground(rng, "uniform", 9)
    exact, independent = distances(bm.Exact(), rows, d), distances(bm.Independent(), rows, d)
    upper = np.triu_indices(5, 1)

    def miss(reg, limit):
        return np.abs(distances(bm.Sinkhorn(reg, cost=cost), rows, d) - limit)[upper].max()

    low = [miss(reg, exact) for reg in (1.0, 0.1, 1e-2, 1e-4)]
    high = [miss(reg, independent) for reg in (1.0, 10.0, 1e2, 1e4)]
    assert low == sorted(low, reverse=True)
    assert low[-1] < 1e-3
    assert high == sorted(high, reverse=True)
    assert high[-1] < 1e-3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("reg", 10.0 ** np.arange(-4.0, 5.0))
def test_nothing_overflows(reg, dtype):
    """Regularisation from 1e-4 to 1e4 of the scale, sparse and dense, cold and warm: finite, and in bounds."""
    rng = np.random.default_rng(1)
    slack = 1e-6 if dtype == "float64" else 1e-5 * max(reg, 1.0)
    for n, sizes in ((10, (1, 2, 2, 5, 9)), (33, (33, 30, 33))):
        rows = np.array([distribution(rng, "simplex", n, size) for size in sizes])
        d = ground(rng, "uniform", n)
        d /= d.max()
        exact, independent = distances(bm.Exact(), rows, d), distances(bm.Independent(), rows, d)
        upper = np.triu_indices(len(rows), 1)
        for cost in ("sharp", "value"):
            solver = solver_of(bm.Sinkhorn(reg, cost=cost), rows, dtype=dtype)
            assert (solver.matrix is not None) == (n == 33)
            for scale in (1.0, 1.01, 0.5, 1.0):
                W = table_of(solver, scale * d, 1e-7)
                assert (scale * exact - slack <= W)[upper].all()
                assert (scale * independent + slack >= W).all()


def test_extreme_masses():
    """Probabilities down to 1e-200 contribute nothing; they do not spoil the rest."""
    tiny = np.array([[1e-200, 1.0], [1e-200, 1.0]])
    three = np.array([[1e-200, 0.5, 0.5], [1e-200, 0.4, 0.6], [1e-160, 1e-100, 1.0]])
    for rows, plain in ((tiny, [[0, 1], [0, 1]]), (three, [[0, 0.5, 0.5], [0, 0.4, 0.6], [0, 0, 1]])):
        n = rows.shape[1]
        d = 1.0 - np.eye(n)
        for transport in (
            bm.Exact(),
            bm.Sinkhorn(1.0),
            bm.Sinkhorn(1.0, cost="value"),
            bm.Sinkhorn(1e-3),
            bm.KLBall(0.1),
            bm.Independent(),
        ):
            W, expected = distances(transport, rows, d), distances(transport, np.array(plain, float), d)
            np.testing.assert_allclose(W, expected, atol=1e-7, err_msg=repr(transport))


@pytest.mark.parametrize(
    "transport", [bm.Sinkhorn(0.5), bm.Sinkhorn(0.5, cost="value"), bm.Sinkhorn(1e-3), bm.KLBall(0.1)], ids=name
)
def test_nearly_degenerate_rows_converge(transport):
    """The authors' runs drew Dirichlet(1/N): rows have entries far below 1e-200 beside ones near 1."""
    mdp = bm.problems.chain(n_states=40, n_classes=4, concentration=0.005)
    chain = mdp.under(mdp.uniform_policy())
    assert 0.0 < chain.rows.probs.min() < 1e-150
    solution = bm.solve_metric(chain, transport, tol=1e-4, max_sweeps=300)
    assert solution.status is bm.Status.CONVERGED
    P = np.where(chain.rows.matrix().toarray() > 1e-30, chain.rows.matrix().toarray(), 0.0)
    cut = bm.Chain.from_arrays(P, chain.rewards, chain.gamma)
    np.testing.assert_allclose(solution.distance, bm.solve_metric(cut, transport, tol=1e-4).distance, atol=3e-4)


@settings(max_examples=15)
@given(
    transport_problems(n_rows=2, max_support=4, rows=("simplex", "equal"), grounds=("uniform", "paths")),
    st.floats(0.02, 0.8),
)
def test_kl_ball_agrees_with_the_reference(problem, radius):
    rows, d = problem
    W = distances(bm.KLBall(radius), rows, d)
    scale = max(d.max(), 1.0)
    for s, t in pairs(2):
        # The reference takes the exact value where λ = 1e-3 of the scale is inside the ball.
        slack = 1e-6 if radius < 0.9 * min(entropy(rows[s]), entropy(rows[t])) else 2e-3
        assert W[s, t] == pytest.approx(reference.kl_ball(d, rows[s], rows[t], radius), abs=slack * scale)


@settings(max_examples=60)
@given(
    transport_problems(n_rows=4, max_support=6),
    st.lists(st.floats(0.0, 3.0), min_size=3, max_size=3),
    st.sampled_from([1.0, 2.0]),
)
def test_kl_ball_falls_with_its_radius(problem, radii, p):
    rows, d = problem
    scale = max(d.max() ** p, 1e-9)
    chain = [bm.Independent(p), *(bm.KLBall(radius, p=p) for radius in sorted(radii)), bm.Exact(p)]
    tables = [distances(transport, rows, d) ** p for transport in chain]
    for larger, smaller in pairwise(tables):
        assert (smaller <= larger + 1e-8 * scale).all()


@given(transport_problems(n_rows=4, max_support=6), st.sampled_from([1.0, 2.0]))
def test_kl_ball_limits(problem, p):
    """Radius 0 is the independent coupling; a radius of log n, and already of min H, is exact transport."""
    rows, d = problem
    scale = max(d.max() ** p, 1e-9)
    exact = distances(bm.Exact(p), rows, d) ** p
    np.testing.assert_allclose(
        distances(bm.KLBall(0.0, p=p), rows, d), distances(bm.Independent(p), rows, d), atol=1e-12
    )
    np.testing.assert_allclose(distances(bm.KLBall(10.0, p=p), rows, d) ** p, exact, atol=1e-9 * scale)
    for s, t in pairs(len(rows), 1):
        radius = min(entropy(rows[s]), entropy(rows[t])) + 1e-12
        W = distances(bm.KLBall(radius, p=p), rows[[s, t]], d)
        assert W[0, 1] ** p == pytest.approx(exact[s, t], abs=1e-9 * scale)


def dense_problem(n=36):
    mdp = bm.problems.chain(n_states=n, n_classes=6, mixing=0.2, seed=2)
    chain = mdp.under(mdp.uniform_policy())
    return chain.rows.matrix().toarray(), ground(np.random.default_rng(2), "uniform", n)


@pytest.mark.parametrize(
    "transport",
    [
        bm.Sinkhorn(0.3),
        bm.Sinkhorn(0.3, cost="value"),
        bm.Sinkhorn(0.3, p=2.0),
        bm.Sinkhorn(0.02, diagonal="zero"),
        bm.Sinkhorn(0.02, cost="value"),
        bm.Sinkhorn(1e-3),
        bm.Independent(),
        bm.Independent(2.0),
    ],
    ids=name,
)
def test_matrix_products_equal_supports(transport, monkeypatch):
    """Rows that reach most states go through matrix products; the answer is that of the sparse kernels."""
    rows, d = dense_problem()
    solver = solver_of(transport, rows)
    assert solver.matrix is not None
    cold = table_of(solver, d)
    warm = table_of(solver, d)
    for kind in ("sinkhorn", "independent"):
        for engine in ("cpu", "cuda"):
            monkeypatch.setattr(f"bisimetric.backends.{engine}.{kind}.matrix_like", lambda rows: False)
    sparse = solver_of(transport, rows)
    assert sparse.matrix is None
    expected = table_of(sparse, d)
    np.testing.assert_allclose(cold, expected, atol=1e-8)
    np.testing.assert_allclose(warm, expected, atol=1e-8)
    for s, t in ((0, 1), (3, 20), (34, 35)):
        if not (isinstance(transport, bm.Sinkhorn) and transport.reg < 0.1):
            assert cold[s, t] == pytest.approx(reference.transport(transport, d, rows[s], rows[t]), abs=1e-6)


def test_slow_dense_pairs_are_finished(monkeypatch):
    """Pairs that reach the limit of matrix-product steps are handed to the sparse kernel."""
    rows, d = dense_problem()
    expected = distances(bm.Sinkhorn(0.05), rows, d)
    monkeypatch.setattr("bisimetric.transport.budget.DENSE_LIMIT", 3)
    np.testing.assert_allclose(distances(bm.Sinkhorn(0.05), rows, d), expected, atol=1e-8)


@pytest.mark.parametrize(
    "transport", [bm.Exact(), bm.Sinkhorn(0.5), bm.Sinkhorn(0.5, cost="value"), bm.Independent()], ids=name
)
def test_float32_is_close(transport):
    mdp = bm.problems.garnet(n_states=30, branching=4, seed=3)
    sparse = mdp.under(mdp.uniform_policy()).rows.matrix().toarray()
    for rows in (sparse, dense_problem()[0]):
        d = ground(np.random.default_rng(4), "uniform", rows.shape[1])
        solver = solver_of(transport, rows, dtype="float32")
        np.testing.assert_allclose(table_of(solver, d, 1e-6), distances(transport, rows, d), atol=2e-5)


def test_sharp_is_not_monotone():
    """Two points at distance c, uniform distributions: c / (1 + e^(c/λ)), which falls for c > 1.28 λ."""
    rows = np.array([[0.5, 0.5]])
    reg = 0.7

    def at(c, cost="sharp"):
        return distances(bm.Sinkhorn(reg, cost=cost), rows, np.array([[0.0, c], [c, 0.0]]))[0, 0]

    for c in (0.1, 0.5, 1.0, 2.0, 5.0):
        assert at(c) == pytest.approx(c / (1.0 + np.exp(c / reg)), rel=1e-9)
    assert at(1.0 * reg) < at(1.27 * reg) > at(1.6 * reg) > at(3.0 * reg)
    assert at(1.0 * reg, "value") < at(1.27 * reg, "value") < at(1.6 * reg, "value") < at(3.0 * reg, "value")
    assert not bm.Sinkhorn(reg).axioms.monotone
    assert bm.Sinkhorn(reg, cost="value").axioms.monotone


def test_sharp_is_not_nonexpansive():
    """Uniform distributions over 1,000 points at distance c: the slope in c falls to about −1.36."""
    n, reg = 1000, 1.0
    rows = np.full((1, n), 1.0 / n)

    def at(c, cost):
        return distances(bm.Sinkhorn(reg, cost=cost), rows, c * (1.0 - np.eye(n)))[0, 0]

    grid = np.arange(7.0, 10.0, 0.25)
    slopes = np.diff([at(c, "sharp") for c in grid]) / 0.25
    assert slopes.min() == pytest.approx(-1.36, abs=0.02)
    assert np.abs(np.diff([at(c, "value") for c in grid]) / 0.25).max() <= 1.0 + 1e-9
    assert not bm.Sinkhorn(reg).axioms.nonexpansive
    assert bm.Sinkhorn(reg, cost="value").axioms.nonexpansive


def test_a_sharp_metric_says_that_it_is_heuristic():
    chain = bm.Chain.from_arrays(np.full((2, 2), 0.5), [0.0, 1.0], 0.9)
    heuristic, rigorous = (
        bm.solve_metric(chain, bm.Sinkhorn(1.0, cost=cost)).certificate for cost in ("sharp", "value")
    )
    assert not heuristic.rigorous
    assert str(heuristic).startswith("heuristic")
    assert rigorous.rigorous
    assert str(rigorous).startswith("rigorous")


def test_paper_mode_zeroes_the_diagonal():
    """The true diagonal of a regularised metric is positive: 0.38 on the first MDP at λ = 1."""
    mdp = bm.problems.chain()
    chain = mdp.under(mdp.uniform_policy())
    kept, zero = (
        bm.solve_metric(chain, bm.Sinkhorn(1.0, diagonal=mode), tol=1e-2).distance for mode in ("kept", "zero")
    )
    assert np.diag(kept).max() == pytest.approx(0.38, abs=0.01)
    assert (np.diag(zero) == 0.0).all()
    assert not bm.Sinkhorn(1.0).axioms.zero_diagonal
    d = ground(np.random.default_rng(0), "uniform", 200)
    for mode, diagonal in (("kept", True), ("zero", False)):
        swept = d.copy()
        sweep(sweeper_for(chain, bm.Sinkhorn(1.0, diagonal=mode)), swept)
        assert (np.diag(swept) > 0.0).any() == diagonal


@pytest.mark.parametrize("reg", [0.1, 0.05, 0.02, 0.01])
@pytest.mark.parametrize("mixing", [0.05, 0.3])
def test_dense_rows_reach_their_accuracy_for_small_regularisation(reg, mixing):
    """Pairs that scale slowly need Newton steps or a new start in the log domain; none may be left behind."""
    n = 40
    mdp = bm.problems.chain(n_states=n, n_classes=4, seed=0, mixing=mixing)
    rows = mdp.under(mdp.uniform_policy()).rows.matrix().toarray()
    points = np.random.default_rng(0).random((n, 3))
    d = 3.0 * np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    out, report = block_of(solver_of(bm.Sinkhorn(reg), rows), d, 1e-9)
    assert report.error <= 1e-9
    if reg >= 0.05:  # below, the plain reference takes too long
        for a, b in [(0, 1), (3, 17), (20, 39)]:
            assert out[a, b] == pytest.approx(reference.sinkhorn(d, rows[a], rows[b], reg), abs=1e-7)


@pytest.mark.parametrize("reg", [0.1, 0.05])
def test_newton_steps_finish_dense_pairs_together(reg, monkeypatch):
    """Plans that fall into hardly joined parts need Newton steps, also after the rows change; no pair is left."""
    n = 60
    mdp = bm.problems.chain(n_states=n, n_classes=6, seed=0, mixing=0.05)
    policies = (mdp.uniform_policy(), np.eye(2)[np.zeros(n, int)], np.eye(2)[np.arange(n) % 2])
    chains = [mdp.under(policy) for policy in policies]
    expected = []
    for chain in chains:
        way = {"tol": 1e-6, "max_sweeps": 8, "accelerate": False}
        expected.append(bm.solve_metric(chain, bm.Sinkhorn(reg, diagonal="zero"), **way).distance)

    def refuse(*_):
        raise AssertionError("a pair was left")

    monkeypatch.setattr("bisimetric.backends.cpu.sinkhorn.SinkhornSolver._fill_pairs", refuse)
    d, warm = None, None
    for chain, cold in zip(chains, expected, strict=True):
        sweeper = sweeper_for(chain, bm.Sinkhorn(reg, diagonal="zero"))
        if warm is not None:
            sweeper.solver.take_from(warm.solver)
        d = np.zeros((n, n))
        for _ in range(8):
            sweep(sweeper, d)
        np.testing.assert_allclose(d, cold, atol=1e-5)
        warm = sweeper


def plain_scalings(K, a, b, tol):
    """Half steps of plain Sinkhorn until the L1 error of the columns is at most tol."""
    y, count = b.copy(), 0
    while True:
        x = a / (K @ y)
        q = K.T @ x
        count += 1
        if np.abs(q * y - b).sum() <= tol:
            return count
        y = b / q


@pytest.mark.skipif(DEVICE == "cuda", reason="the kernels with a warp a pair count a Newton step as eight scalings")
def test_momentum_saves_scalings():
    """Several hundred in all for plain scaling, which is slow here but not so slow that Newton steps take over."""
    rng = np.random.default_rng(0)
    n, reg, tol = 60, 0.15, 1e-6
    rows = np.array([distribution(rng, "simplex", n, 20) for _ in range(8)])
    d = ground(rng, "uniform", n)
    transport = bm.Sinkhorn(reg, marginal_tol=tol, diagonal="zero")
    _, report = block_of(solver_of(transport, rows), d, np.inf)
    plain = 0
    for s, t in combinations(range(8), 2):
        i, j = np.flatnonzero(rows[s]), np.flatnonzero(rows[t])
        plain += plain_scalings(np.exp(-d[np.ix_(i, j)] / reg), rows[s, i], rows[t, j], tol)
    assert plain > 250
    assert report.iterations < 0.75 * plain
