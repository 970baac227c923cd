"""Laws of the operators and of their fixed points, and agreement with the reference on tiny models."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import choices_of, random_chain, random_mdp
from sweepers import sweep, sweeper_for
from transport_blocks import PSEUDO_METRICS, distances, ground, transport_problems
from transports import EVERY_TRANSPORT, name

import bisimetric as bm
from bisimetric.backends import reference

pytestmark = pytest.mark.usefixtures("one_thread")

SEEDS = st.integers(0, 10**6)
MATCHES = (None, "labels", "hausdorff")
every_transport = pytest.mark.parametrize("transport", EVERY_TRANSPORT, ids=name)


def model_for(match, seed, n=5):
    return random_chain(seed, n) if match is None else random_mdp(seed, n)


def swept(sweeper, d):
    new = d.copy()
    sweep(sweeper, new, 1e-11)
    return new


def loose_ground(seed, n, kind="uniform"):
    """A ground distance whose diagonal is positive too where transports keep theirs."""
    rng = np.random.default_rng(seed)
    return ground(rng, kind, n) + 0.3 * np.diag(rng.random(n))


@every_transport
@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=15)
@given(seed=SEEDS, c_T=st.floats(0.0, 0.99))
def test_operator_laws(transport, match, seed, c_T):
    """Symmetry, diagonal, monotonicity and contraction of F, where the transport claims them."""
    model = model_for(match, seed)
    sweeper = sweeper_for(model, transport, match=match, transition_weight=c_T)
    rng = np.random.default_rng(seed)
    d = loose_ground(seed, 5) if sweeper.solver.with_diagonal else ground(rng, "uniform", 5)
    more = d + rng.random() * ground(rng, "zeros", 5)
    F, F_more = swept(sweeper, d), swept(sweeper, more)
    assert np.array_equal(F, F.T)
    if transport.axioms.zero_diagonal:
        assert (np.diag(F) == 0.0).all()
    if transport.axioms.monotone:
        assert (F_more + 1e-8 >= F).all()
    if transport.axioms.nonexpansive:
        other = np.maximum(d + 0.5 * rng.uniform(-1, 1, d.shape) * (d > 0.0), 0.0)
        other = np.minimum(other, other.T)
        for changed, F_changed in ((more, F_more), (other, swept(sweeper, other))):
            assert np.abs(F_changed - F).max() <= c_T * np.abs(changed - d).max() + 1e-8


@every_transport
@settings(max_examples=40)
@given(problem=transport_problems(n_rows=5, max_support=5, grounds=PSEUDO_METRICS))
def test_triangle_inequality_and_diagonal(transport, problem):
    rows, d = problem
    W = distances(transport, rows, d)
    slack = 1e-7 * max(d.max(), 1.0)
    if transport.axioms.zero_diagonal:
        assert (np.diag(W) <= slack).all()
    if transport.axioms.triangle:
        through = W[:, :, None] + W[None, :, :]  # [s, t, u]: from s to u via t
        assert (through.min(axis=1) + slack >= W).all()


@settings(max_examples=60)
@given(
    transport_problems(n_rows=4, max_support=6), st.floats(-2.0, 2.0), st.floats(0.0, 1.5), st.sampled_from([1.0, 2.0])
)
def test_order_of_the_transports(problem, log_reg, radius, p):
    """W_p ≤ sharp ≤ value ≤ independent, and W_p ≤ KL ball ≤ independent (p-th powers)."""
    rows, d = problem
    scale = max(d.max() ** p, 1e-9)
    reg = scale * 10.0**log_reg
    exact, independent = (distances(kind(p), rows, d) ** p for kind in (bm.Exact, bm.Independent))
    sharp, value = (distances(bm.Sinkhorn(reg, p=p, cost=cost), rows, d) ** p for cost in ("sharp", "value"))
    ball = distances(bm.KLBall(radius, p=p), rows, d) ** p
    slack = 1e-6 * scale
    for chain in ((exact, sharp, value, independent), (exact, ball, independent)):
        for lower, upper in pairwise(chain):
            assert (lower <= upper + slack).all()


@every_transport
@pytest.mark.parametrize("match", MATCHES)
def test_permutation_equivariance(transport, match):
    for seed in range(3):
        model = model_for(match, seed, 6)
        order = np.random.default_rng(seed).permutation(6)
        back = np.argsort(order)
        if match is None:
            P = model.rows.matrix().toarray()
            shuffled = bm.Chain.from_arrays(P[np.ix_(order, order)], model.rewards[order], model.gamma)
        else:
            rows = [choices_of(model)[s] for s in order]
            flat = [choice for choices in rows for choice in reversed(choices)]
            pointers = np.concatenate([[0], np.cumsum([len(choices) for choices in rows])])
            P, R, labels = np.array([c[2][order] for c in flat]), [c[1] for c in flat], [c[0] for c in flat]
            shuffled = bm.MDP.from_choices(P, R, pointers, model.gamma, labels)
        a = bm.solve_metric(model, transport, match=match, tol=1e-7).distance
        b = bm.solve_metric(shuffled, transport, match=match, tol=1e-7).distance
        np.testing.assert_allclose(b[np.ix_(back, back)], a, atol=3e-7)


def union(blocks):
    """Many small models side by side: inside each block the metric is that of the block alone."""
    n = sum(len(P) for P, _ in blocks)
    P, R = np.zeros((n, blocks[0][0].shape[1], n)), np.zeros((n, blocks[0][0].shape[1]))
    for k, (p, r) in enumerate(blocks):
        here = slice(k * len(p), (k + 1) * len(p))
        P[here, :, here], R[here] = p, r
    return bm.MDP.from_arrays(P, R, 0.9, axes="sas")


def optimal_values(mdp, best=np.maximum):
    V, P = np.zeros(mdp.n_states), mdp.rows.matrix()
    for _ in range(400):
        V = best.reduceat(mdp.rewards + mdp.gamma * (P @ V), mdp.choice_ptr[:-1])
    return V


def batches(options, n_states, size):
    models = list(product(options, repeat=n_states))
    for start in range(0, len(models), size):
        yield [(np.array([s[0] for s in m]), np.array([s[1] for s in m])) for m in models[start : start + size]]


def inside_blocks(n, width):
    return np.arange(n)[:, None] // width == np.arange(n)[None, :] // width


def test_values_of_a_policy_on_all_tiny_chains():
    """|V^π(s) − V^π(t)| ≤ d for every chain of 3 states with these rows and rewards in {0, 1}."""
    grid = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.5, 0), (0, 0.4, 0.6), (0.2, 0.3, 0.5)]
    options = [(np.array([row]), np.array([r])) for row in grid for r in (0.0, 1.0)]
    tight = 0
    for blocks in batches(options, 3, 144):
        mdp = union(blocks)
        chain = mdp.under(mdp.uniform_policy())
        P = chain.rows.matrix().toarray()
        V = np.linalg.solve(np.eye(len(P)) - 0.9 * P, chain.rewards)
        gap = np.abs(V[:, None] - V[None, :])
        solution = bm.solve_metric(chain, bm.Exact(), tol=1e-4)
        mask = inside_blocks(len(P), 3)
        assert (gap - solution.distance)[mask].max() <= solution.error
        tight += int((np.abs(gap - solution.distance)[mask] <= 1e-4).sum())
    assert tight > 1000  # the bound is attained, and not because distances are large


@pytest.mark.parametrize("match", ["labels", "hausdorff"])
def test_optimal_values_on_all_tiny_mdps(match):
    """|V*(s) − V*(t)| ≤ d, for the best and the worst policy, on every MDP with 2 states and 2 actions of a grid."""
    actions = list(product([(1.0, 0.0), (0.3, 0.7), (0.0, 1.0)], (0.0, 1.0)))
    options = [(np.array([x[0], y[0]]), np.array([x[1], y[1]])) for x, y in product(actions, repeat=2)]
    strict = 0
    for blocks in batches(options, 2, 216):
        mdp = union(blocks)
        solution = bm.solve_metric(mdp, bm.Exact(), match=match, tol=1e-4)
        mask = inside_blocks(mdp.n_states, 2)
        for best in (np.maximum, np.minimum):
            V = optimal_values(mdp, best)
            gap = np.abs(V[:, None] - V[None, :])
            assert (gap - solution.distance)[mask].max() <= solution.error + 1e-9
            strict += int((solution.distance - gap)[mask].max() > 0.1)
    assert strict > 0


def iterate_reference(transport, model, match, c_R, c_T, sweeps):
    span = model.reward_span or 1.0
    d = np.zeros((model.n_states, model.n_states))
    for _ in range(sweeps):
        d = reference.operator(transport, d, choices_of(model), match or "chain", c_R, c_T, c_R * span / (1.0 - c_T))
    return d


@pytest.mark.parametrize(
    "transport",
    [
        bm.Exact(),
        bm.Exact(2.0),
        bm.Sinkhorn(2.0),
        bm.Sinkhorn(2.0, cost="value"),
        bm.Sinkhorn(2.0, diagonal="zero"),
        bm.Independent(),
        bm.Independent(2.0, diagonal="zero"),
    ],
    ids=name,
)
@pytest.mark.parametrize("match", MATCHES)
def test_solutions_agree_with_the_iterated_reference(transport, match):
    for seed in range(3):
        model = model_for(match, seed, 3)
        expected = iterate_reference(transport, model, match, 2.0, 0.3, 16)
        solution = bm.solve_metric(model, transport, match=match, reward_weight=2.0, transition_weight=0.3, tol=1e-7)
        assert solution.converged
        np.testing.assert_allclose(solution.distance, expected, atol=2e-6)


@pytest.mark.parametrize("match", MATCHES)
def test_kl_ball_solutions_are_fixed_points_of_the_reference(match):
    """The reference is slow here: one sweep shows the same, because the operator is a contraction."""
    transport = bm.KLBall(0.1)
    model = model_for(match, 1, 3)
    d = bm.solve_metric(model, transport, match=match, transition_weight=0.5, tol=1e-7).distance
    largest = (model.reward_span or 1.0) / 0.5
    again = reference.operator(transport, d, choices_of(model), match or "chain", 1.0, 0.5, largest)
    np.testing.assert_allclose(d, again, atol=3e-3 * d.max())
    assert d.max() > 0.1


def test_different_actions_are_as_far_apart_as_can_be():
    P = np.array([[1.0, 0.0, 0.0]] * 2 + [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    mdp = bm.MDP.from_choices(P, [0.0, 1.0, 0.0, 0.25], [0, 2, 3, 4], 0.5, ["a", "b", "a", "a"])
    d = bm.solve_metric(mdp, match="labels", reward_weight=3.0, tol=1e-9).distance
    np.testing.assert_allclose(d, [[0, 6, 6], [6, 0, 1.5], [6, 1.5, 0]], atol=1e-8)
    flat = bm.MDP.from_choices(P, np.zeros(4), [0, 2, 3, 4], 0.5, ["a", "b", "a", "a"])
    d = bm.solve_metric(flat, match="labels", tol=1e-9).distance  # equal rewards: the span counts as 1
    np.testing.assert_allclose(d, [[0, 2, 2], [2, 0, 0], [2, 0, 0]], atol=1e-8)
    assert (bm.solve_metric(flat, match="hausdorff", tol=1e-9).distance == 0.0).all()


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("transport", [bm.Exact(), bm.Exact(2.0), bm.Independent(), bm.KLBall(0.2)], ids=name)
def test_rewards_of_any_range(transport, match):
    """Shifting rewards changes nothing; scaling them, or c_R, scales the metric."""
    model = model_for(match, 3)
    base = bm.solve_metric(model, transport, match=match, tol=1e-7).distance

    def changed(rewards):
        if match is None:
            return bm.Chain.from_arrays(model.rows.matrix(), rewards, model.gamma)
        labels = [model.action_labels[k] for k in model.action_of_choice]
        return bm.MDP.from_choices(model.rows.matrix(), rewards, model.choice_ptr, model.gamma, labels)

    shifted = bm.solve_metric(changed(model.rewards - 1000.0), transport, match=match, tol=1e-7).distance
    np.testing.assert_allclose(shifted, base, atol=3e-7)
    scaled = bm.solve_metric(changed(-1e6 * model.rewards), transport, match=match, tol=0.1).distance
    np.testing.assert_allclose(1e-6 * scaled, base, atol=3e-7)
    small = bm.solve_metric(changed(1e-9 * model.rewards), transport, match=match, tol=1e-16).distance
    np.testing.assert_allclose(1e9 * small, base, atol=3e-7)
    weighted = bm.solve_metric(model, transport, match=match, reward_weight=7.0, tol=1e-7).distance
    np.testing.assert_allclose(weighted, 7.0 * base, atol=1e-6)
    assert (bm.solve_metric(model, transport, match=match, reward_weight=0.0).distance == 0.0).all()
