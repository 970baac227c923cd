"""The loop of policy iteration: the paper's updates, what is recorded, how it ends, what it depends on."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from policy_runs import NOISY, chain, mirrored, same
from pseudocode import algorithm_1
from random_models import random_chain, random_mdp
from transports import EVERY_TRANSPORT, name

import bisimetric as bm
from bisimetric import values
from bisimetric.values import best_values

TRANSPORTS = (*EVERY_TRANSPORT, bm.Sinkhorn(1.0, diagonal="zero"), bm.KLBall(0.1, diagonal="zero"))


def best_actions(mdp: bm.MDP) -> np.ndarray:
    """Whether each choice is optimal [N]."""
    V = best_values(mdp)[0]
    Q = mdp.rewards + mdp.gamma * (mdp.rows.matrix() @ V)
    return V[mdp.state_of_choice] - Q < 1e-9


@pytest.mark.parametrize("warm", [True, False])
def test_exact_policy_iteration_finds_the_optimum(warm):
    mdp = chain(seed=4)
    run = bm.solve_policy(mdp, transport=bm.Exact(), restart_metric=not warm, steps=50)
    assert run.status is bm.Status.SETTLED
    assert run.error < 1e-10
    assert run.certificate.error < 1e-9
    assert run.policy[~best_actions(mdp)].max() == 0.0
    assert (run.partition.n_classes, run.partition.purity(mdp.classes), run.history[-1].nmi) == (5, 1.0, 1.0)
    assert np.abs(run.partition.lift(run.value[run.partition.medoids]) - run.value).max() < 1e-10


@pytest.mark.parametrize("seed", range(6))
def test_optimal_values_agree_with_quantecon(seed):
    quantecon = pytest.importorskip("quantecon")
    rng = np.random.default_rng(seed)
    mdp = random_mdp(seed, 12, gamma=float(rng.choice([0.5, 0.9, 0.99])), ragged=seed % 2 == 0, support=5)
    actions = np.arange(mdp.n_choices) - mdp.choice_ptr[mdp.state_of_choice]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ddp = quantecon.markov.DiscreteDP(
            np.array(mdp.rewards), mdp.rows.matrix().toarray(), mdp.gamma, np.array(mdp.state_of_choice), actions
        )
        wanted = ddp.solve(method="policy_iteration").v
    found, error = best_values(mdp)
    assert np.abs(found - wanted).max() < 1e-8
    assert 0.0 <= error < 1e-8
    assert np.abs(bm.solve_policy(mdp, steps=1).optimal_value - wanted).max() < 1e-8


def plain_loop(P: np.ndarray, R: np.ndarray, gamma: float, *, eps: float, alpha: float, sweeps: int, steps: int):
    """Eqs. 21 to 25 with plain arrays and a foreign solver: yields (π, d, classes, V^π, Ṽ_Φ) of each step."""
    import ot

    S, A = R.shape
    pi, d = np.full((S, A), 1.0 / A), np.zeros((S, S))
    for _ in range(steps):
        P_pi, R_pi = np.einsum("sa,sat->st", pi, P), (pi * R).sum(axis=1)
        for _ in range(sweeps):
            W = np.array([[ot.emd2(P_pi[s], P_pi[t], d) for t in range(S)] for s in range(S)])
            d = np.abs(R_pi[:, None] - R_pi[None, :]) + gamma * W
        classes = algorithm_1(d, eps)
        Phi = np.zeros((S, len(classes)))
        for k, members in enumerate(classes):
            Phi[members, k] = 1.0
        mean = (Phi / Phi.sum(axis=0)).T
        V_abstract = Phi @ np.linalg.solve(np.eye(len(classes)) - gamma * mean @ P_pi @ Phi, mean @ R_pi)
        yield pi, d, classes, np.linalg.solve(np.eye(S) - gamma * P_pi, R_pi), V_abstract
        greedy = np.eye(A)[(R + gamma * P @ V_abstract).argmax(axis=1)]
        pi = (1.0 - alpha) * pi + alpha * greedy


@pytest.mark.parametrize(("alpha", "sweeps"), [(1.0, 3), (0.3, 2)])
def test_the_loop_is_the_papers(alpha, sweeps):
    rng = np.random.default_rng(5)
    P, R = rng.dirichlet(np.full(6, 0.5), size=(6, 3)), rng.random((6, 3))
    mdp = bm.MDP.from_arrays(P, R, 0.8, axes="sas")
    wanted = list(plain_loop(P, R, 0.8, eps=0.3, alpha=alpha, sweeps=sweeps, steps=5))
    run = bm.solve_policy(
        mdp,
        transport=bm.Exact(),
        aggregation=bm.EpsilonCover(0.3),
        step_size=bm.Constant(alpha),
        sweeps=sweeps,
        early_stop=0.0,
        steps=4,
    )
    V_best = best_values(mdp)[0]
    for step, (_, d, classes, V, V_abstract) in zip(run.history, wanted, strict=False):
        assert step.error == pytest.approx(np.abs(V_best - V).max(), abs=1e-9)
        assert step.metric_gap == pytest.approx(np.abs(d - np.abs(V[:, None] - V[None, :])).max(), abs=1e-9)
        assert step.n_classes == len(classes)
        assert step.diameter == pytest.approx(max(d[np.ix_(c, c)].max() for c in classes), abs=1e-9)
        assert step.abstract_error >= np.abs(V - V_abstract).max() - 1e-12
        assert (step.sweeps, step.delta, step.alpha) == (sweeps, 0.0, alpha)
    assert np.allclose(run.policy.reshape(6, 3), wanted[4][0], atol=1e-9)
    assert np.allclose(run.distance, wanted[3][1], atol=1e-9)
    assert np.allclose(run.abstract_value, wanted[3][4], atol=1e-9)


@pytest.mark.parametrize("transport", TRANSPORTS, ids=name)
def test_bounds_hold_and_deltas_are_in_the_band(transport):
    mdp = chain(mixing=0.1, seed=1)
    run = bm.solve_policy(mdp, transport=transport, steps=25, sweeps=6, **NOISY)
    assert len(run.history) == 25
    for k, step in enumerate(run.history):
        assert step.k == k
        assert step.error <= step.bound + 1e-12
        assert step.bound <= 10.0 + 1e-10  # the range of all values
        assert 0.05 <= step.delta <= 0.1
        assert step.alpha == NOISY["step_size"](k + 1, gamma=0.9, sweeps=6, p=1.0)
        assert 1 <= step.sweeps <= 6
        assert step.sweeps == 6 or step.change <= 1e-3
    assert run.error <= run.certificate.error + 1e-12


@pytest.mark.parametrize("transport", TRANSPORTS, ids=name)
def test_the_metric_of_a_step_is_that_of_solve_metric(transport):
    """Enough sweeps in one step give the fixed point, for every transport."""
    mdp = chain(mixing=0.1, seed=2)
    run = bm.solve_policy(mdp, transport=transport, steps=1, sweeps=400, early_stop=1e-9)
    wanted = bm.solve_metric(mdp.under(mdp.uniform_policy()), transport, tol=1e-8).distance
    assert np.abs(run.distance - wanted).max() < 1e-4


@pytest.mark.parametrize("transport", TRANSPORTS, ids=name)
def test_abstract_error_is_a_bound(transport):
    mdp = bm.problems.garnet(n_states=12, branching=3, seed=3)
    policy = np.random.default_rng(0).dirichlet([1.0, 1.0], size=12)
    run = bm.solve_policy(mdp, transport=transport, aggregation=bm.KMedoids(4), policy=policy, steps=1)
    under = mdp.under(policy)
    V = np.linalg.solve(np.eye(12) - mdp.gamma * under.rows.matrix().toarray(), under.rewards)
    assert 1e-3 < np.abs(V - run.abstract_value).max() <= run.history[0].abstract_error + 1e-12
    assert run.history[0].error == pytest.approx(np.abs(run.optimal_value - V).max(), abs=1e-10)


def test_a_metric_from_zero_needs_sweeps_and_a_warm_one_does_not():
    mdp = mirrored(chain())  # else ties are right by luck
    naive, warm = (
        bm.solve_policy(mdp, sweeps=1, restart_metric=not warm, steps=40, lump=False) for warm in (False, True)
    )
    assert warm.error < 1e-10
    assert naive.error > 2.0
    assert np.all(naive.curve("metric_gap")[2:] > 3.0)
    assert warm.history[-1].metric_gap < 1e-9
    one_sweep = bm.solve_policy(mdp, sweeps=1, restart_metric=True, steps=1, policy=naive.policy, lump=False).distance
    rewards = mdp.under(naive.policy).rewards
    assert np.array_equal(one_sweep, np.abs(rewards[:, None] - rewards[None, :]))


def test_an_unreachable_noise_band_is_refused():
    with pytest.raises(ValueError, match=r"no noise of \d+ tries at step 0 gave δ in \[50, 60\]; δ between .* and"):
        bm.solve_policy(chain(), greedy_noise=(50.0, 60.0), steps=3)
    single = bm.MDP.from_arrays(np.full((2, 1, 2), 0.5), [0.0, 1.0], 0.5, axes="sas")
    with pytest.raises(ValueError, match=r"δ between 0 and 0 were seen"):
        bm.solve_policy(single, greedy_noise=(0.1, 0.2), steps=3)


@pytest.mark.parametrize("transport", [bm.Exact(), bm.Sinkhorn(0.5), bm.Independent()], ids=name)
def test_a_seed_fixes_every_byte(transport):
    mdp = chain(n_states=40, mixing=0.2)
    setting = {"transport": transport, "sweeps": 4, "steps": 12, **NOISY}
    runs = []
    for threads in (1, 2, 5, None):
        bm.set_threads(threads)
        runs.append(bm.solve_policy(mdp, seed=3, **setting))
    for other in runs[1:]:
        same(runs[0], other)
    assert not np.array_equal(runs[0].policy, bm.solve_policy(mdp, seed=4, **setting).policy)


def test_arguments_are_not_changed():
    mdp = chain()
    policy = mdp.uniform_policy()
    before = policy.copy()
    run = bm.solve_policy(mdp, policy=policy, steps=3, **NOISY)
    assert np.array_equal(policy, before)
    same(run, bm.solve_policy(mdp, steps=3, **NOISY))


def test_ragged_models():
    mdp = random_mdp(7, 12, gamma=0.8)
    assert len(set(np.diff(mdp.choice_ptr))) > 1
    run = bm.solve_policy(mdp, aggregation=bm.EpsilonCover(0.0), steps=50)
    assert run.error < 1e-9
    assert np.allclose(np.add.reduceat(run.policy, mdp.choice_ptr[:-1]), 1.0)
    assert run.policy[~best_actions(mdp)].max() == 0.0
    assert run.history[0].nmi is run.history[0].purity is None


@pytest.mark.parametrize(("factor", "shift"), [(8.0, 0.0), (0.25, 3.0), (4.0, -7.0)])
def test_other_ranges_of_rewards(factor, shift):
    """Rewards a r + b with ε, bands and stops in the new units give the same policies."""
    mdp = bm.problems.garnet(n_states=15, branching=3, seed=1)
    other = bm.MDP.from_choices(mdp.rows.matrix(), factor * mdp.rewards + shift, mdp.choice_ptr, mdp.gamma)
    one, two = (
        bm.solve_policy(
            model,
            aggregation=bm.EpsilonCover(0.3 * unit),
            early_stop=1e-3 * unit,
            steps=12,
            greedy_noise=(0.02 * unit, 0.1 * unit),
            step_size=bm.Constant(0.5),
        )
        for model, unit in ((mdp, 1.0), (other, factor))
    )
    assert np.abs(one.policy - two.policy).max() < 1e-9
    assert one.partition == two.partition
    assert np.allclose(factor * one.curve("error"), two.curve("error"), atol=1e-9)
    assert np.allclose(factor * one.curve("bound"), two.curve("bound"), atol=1e-9)
    assert np.allclose(factor * one.distance, two.distance, atol=1e-9)


def test_float32_and_k_medoids():
    mdp = chain()
    run = bm.solve_policy(mdp, dtype="float32", aggregation=bm.KMedoids(6), steps=30, lump=False)
    assert run.distance.dtype == np.float32
    assert run.partition.n_classes == 6
    assert run.error < 1e-6


@pytest.mark.parametrize("weighted", [False, True])
def test_values_by_iteration_are_those_of_the_dense_solve(weighted, monkeypatch):
    mdp = random_mdp(3, 12)
    chain, zeros = mdp.under(mdp.uniform_policy()), np.zeros(12)
    part = bm.Partition.from_classes([0, 1, 0, 2, 1, 3, 3, 0, 4, 5, 5, 2])
    weights = np.random.default_rng(0).random(12) + 0.1 if weighted else None
    solved = values.policy_values(chain, zeros)[0], values.abstract_values(chain, part, zeros, weights)
    small = bm.quotient(
        bm.MDP.from_arrays(chain.rows.matrix().toarray()[:, None, :], chain.rewards[:, None], mdp.gamma, axes="sas"),
        part,
        weights,
    )
    np.testing.assert_allclose(solved[1], part.lift(best_values(small)[0]), atol=1e-12)
    monkeypatch.setattr(values, "_DENSE_SOLVE", 0)
    iterated, error = values.policy_values(chain, zeros)
    assert np.abs(iterated - solved[0]).max() <= error <= 1e-9
    np.testing.assert_allclose(values.abstract_values(chain, part, zeros, weights), solved[1], atol=1e-9)


def test_values_of_a_discount_near_one_end():
    """Rounding alone changes such values by more than a fixed tolerance would allow."""
    chain = random_chain(1, 600, gamma=1.0 - 1e-5)
    V, error = values.policy_values(chain, np.zeros(600))
    backup = chain.rewards + chain.gamma * (chain.rows.matrix() @ V)
    assert np.abs(backup - V).max() / (1.0 - chain.gamma) <= error <= 1e-3


def test_values_without_rewards_end_soon(monkeypatch):
    """From values of another policy: nothing is left of them, and what counts is how small that is against them."""
    chain = random_chain(1, 60, gamma=0.99)
    free = bm.Chain(chain.rows, np.zeros(60), 0.99)
    monkeypatch.setattr(values, "_DENSE_SOLVE", 0)
    start = values.policy_values(chain, np.zeros(60))[0]
    V, error = values.policy_values(free, start)
    assert np.abs(V).max() <= error <= 1e-8 * np.abs(start).max()
    assert np.abs(V).max() > 0.0  # it did not go on to the smallest number there is
