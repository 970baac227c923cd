"""The oracle: fixed points against the package's own solvers, and scores against what they should be."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from learn_training import chain_of, corridor  # noqa: E402

import bisimetric as bm  # noqa: E402
from bisimetric import learn  # noqa: E402
from bisimetric.learn.operators import gaussian_w2, operator_of, reward_distances  # noqa: E402
from bisimetric.learn.scores import correlation, rand_index  # noqa: E402

MDP = bm.problems.garnet(12, 3, 3, gamma=0.9, seed=2)
POLICY = MDP.uniform_policy()
CHAIN = MDP.under(POLICY)


def of_means(head, coupling) -> learn.MetricLoss:
    return learn.MetricLoss(head, coupling, 0.9, rewards=learn.MeanRewards())


@pytest.mark.parametrize(
    ("head", "coupling", "transport"),
    [
        (learn.Norm(1.0), learn.Categorical(), bm.Exact()),
        (learn.Norm(1.0), learn.Independent(), bm.Independent(diagonal="zero")),
        (learn.Diffuse(0.1), learn.Independent(), bm.Independent()),
        (learn.Cosine(), learn.Categorical(bm.Independent()), bm.Independent(diagonal="zero")),
        (learn.Diffuse(0.1), learn.Categorical(bm.Sinkhorn(0.2, cost="value")), bm.Sinkhorn(0.2, cost="value")),
    ],
)
def test_fixed_points_are_those_of_the_solvers(head, coupling, transport):
    found = learn.oracle.fixed_point(of_means(head, coupling), MDP, POLICY, tol=1e-6)
    wanted = bm.solve_metric(CHAIN, transport, tol=1e-6)
    np.testing.assert_allclose(found.values, wanted.distance, atol=found.certificate.error + wanted.error)
    assert found.certificate.rigorous
    assert found.certificate.error < 2e-6


def test_sampled_rewards_are_those_of_actions():
    """E|r − r'| over the actions of both states, by enumeration; it is at least |R − R'|, and not 0 on the diagonal."""
    weights = MDP.check_policy(POLICY)
    wanted = np.zeros((12, 12))
    for s, t in itertools.product(range(12), repeat=2):
        for a, b in itertools.product(range(3), repeat=2):
            i, j = 3 * s + a, 3 * t + b
            wanted[s, t] += weights[i] * weights[j] * abs(MDP.rewards[i] - MDP.rewards[j])
    got = reward_distances(learn.SampledRewards(), MDP, weights)
    np.testing.assert_allclose(got, wanted, atol=1e-12)
    means = reward_distances(learn.MeanRewards(), MDP, weights)
    assert (means <= got + 1e-12).all()
    assert np.diag(got).min() > 0.0
    corrected = reward_distances(learn.VarianceCorrected(), MDP, weights)
    assert np.isfinite(corrected).all()
    assert corrected[0, 1] != pytest.approx(got[0, 1])
    np.testing.assert_allclose(reward_distances(learn.SampledRewards(), CHAIN, None), means, atol=1e-12)


def test_particles_have_nearly_the_metric_where_they_are_debiased():
    """The issue's measure: 10 % of the diameter with n = 32; the plug-in misses by more."""
    exact = bm.solve_metric(CHAIN, tol=1e-6).distance
    errors = {}
    for debias in (False, True):
        loss = of_means(learn.Norm(1.0), learn.Particles(32, 0.0, debias))
        found = learn.oracle.fixed_point(loss, CHAIN, tol=1e-3, draws=24)
        errors[debias] = float(np.abs(found.values - exact).max()) / exact.max()
        assert not found.certificate.rigorous
    assert errors[True] <= 0.10
    assert errors[False] > errors[True]
    one = learn.oracle.fixed_point(
        of_means(learn.Norm(1.0), learn.Particles(1, 0.0, False)), CHAIN, draws=400, tol=1e-2
    )
    independent = learn.oracle.fixed_point(of_means(learn.Norm(1.0), learn.Independent()), CHAIN)
    np.testing.assert_allclose(one.values, independent.values, rtol=0.15)


def test_gaussians_on_a_line_are_exact():
    """In one dimension the distance-only formula is W₂ of the moments."""
    rng = np.random.default_rng(0)
    z, P = rng.normal(size=6), rng.dirichlet(np.ones(6), size=4)
    mean, std = P @ z, np.sqrt(P @ z**2 - (P @ z) ** 2)
    wanted = np.sqrt((mean[:, None] - mean) ** 2 + (std[:, None] - std) ** 2)
    np.testing.assert_allclose(gaussian_w2(P, np.abs(z[:, None] - z)), wanted, atol=1e-12)


def test_independent_transports_are_those_that_were_asked_for():
    """Of order 2, and with a diagonal of 0 in their ground costs: by iterations of their own."""
    P, R = CHAIN.rows.matrix().toarray(), CHAIN.rewards
    delta = np.abs(R[:, None] - R[None, :])
    square, apart = np.zeros((12, 12)), np.zeros((12, 12))
    for _ in range(400):
        square = delta + 0.9 * np.sqrt(P @ (square * square) @ P.T)
        off = apart.copy()
        np.fill_diagonal(off, 0.0)
        apart = delta + 0.9 * (P @ off @ P.T)
    for kind, wanted in ((bm.Independent(2.0), square), (bm.Independent(diagonal="zero"), apart)):
        loss = learn.MetricLoss(learn.Diffuse(0.1), learn.Categorical(kind), 0.9)
        found = learn.oracle.fixed_point(loss, CHAIN, tol=1e-9)
        # rewards of a chain are certain, so sampled ones are the same, and go another way
        other = learn.oracle.fixed_point(learn.MetricLoss(learn.Norm(1.0), learn.Categorical(kind), 0.9), MDP, POLICY)
        if kind.p == 2.0:
            np.testing.assert_allclose(found.values, wanted, atol=1e-6)
        else:
            different = ~np.eye(12, dtype=bool)
            np.testing.assert_allclose(found.values[different], wanted[different], atol=1e-6)
        assert not other.certificate.rigorous


def test_particles_at_one_state_are_apart_where_the_head_says_so():
    """With one particle, MICo's operator: to what so many draws leave."""
    P, d = CHAIN.rows.matrix().toarray(), np.random.default_rng(0).uniform(0.5, 1.0, (12, 12))
    d = d + d.T
    for n in (1, 4):
        T = operator_of(learn.Particles(n, debias=False), CHAIN.rows, 3000, 0, zero_diagonal=False)
        wanted = P @ d @ P.T
        if n == 1:
            np.testing.assert_allclose(T.apply(d), wanted, atol=0.06)
        else:
            assert (T.apply(d) <= wanted + 0.06).all()
    # and the loss's own coupling, in the mean over samples
    states = torch.eye(12, dtype=torch.float64)
    head, generator = learn.Diffuse(0.1), torch.Generator().manual_seed(0)
    coupling = learn.Particles(2, debias=False)
    total = torch.zeros(12, 12, dtype=torch.float64)
    for _ in range(2000):
        drawn = torch.multinomial(torch.as_tensor(P), 2, replacement=True, generator=generator)
        total += coupling.square(head, states[drawn])
    ground = head.values(states, states).numpy()
    T = operator_of(coupling, CHAIN.rows, 2000, 1, zero_diagonal=False)
    different = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose(T.apply(ground)[different], total.numpy()[different] / 2000.0, atol=0.02)


def test_what_cannot_be_solved_for_is_refused():
    loss = learn.mico(0.9)
    for bad in ({"tol": 0.0}, {"tol": math.nan}, {"tol": -1.0}, {"max_sweeps": 0}, {"draws": 0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            learn.oracle.fixed_point(loss, CHAIN, **bad)


def test_what_heads_cannot_represent_is_said():
    """A cosine head under independent coupling: 0 from itself, where the equation wants most of the largest value."""
    cosine = learn.oracle.fixed_point(of_means(learn.Cosine(), learn.Independent()), CHAIN)
    kept = bm.solve_metric(CHAIN, bm.Independent(), tol=1e-6).distance
    assert cosine.gap == pytest.approx(max(np.diag(kept).max(), kept.max() - 2.0), abs=1e-5)
    assert cosine.gap > 0.5 * kept.max()
    mico = learn.oracle.fixed_point(of_means(learn.Diffuse(0.1), learn.Independent()), CHAIN)
    assert mico.gap == pytest.approx(0.5 * (mico.distance.max() - 0.1 * math.pi))
    assert any("0.3142" in note for note in mico.notes)
    assert learn.oracle.fixed_point(of_means(learn.Norm(1.0), learn.Categorical()), CHAIN).gap == 0.0


def test_sweeps_that_do_not_suffice_are_said():
    short = learn.oracle.fixed_point(of_means(learn.Norm(1.0), learn.Independent()), CHAIN, max_sweeps=3)
    assert short.sweeps == 3
    assert any("not within tol" in note for note in short.notes)
    long = learn.oracle.fixed_point(of_means(learn.Norm(1.0), learn.Independent()), CHAIN, tol=1e-9)
    assert np.abs(short.values - long.values).max() <= short.certificate.error


def test_a_perfect_encoder_scores_perfectly():
    chain = corridor(7)
    truth = bm.solve_metric(chain, tol=1e-9)
    place = np.concatenate([[0.0], truth.distance[0, 1:]])[:, None]
    score = learn.oracle.score(place, chain, head=learn.Norm(1.0))
    assert score.sup <= 1e-5
    assert score.share <= 1e-5
    assert score.lipschitz <= 1e-5
    assert score.correlation == pytest.approx(1.0)
    assert score.agreement == 1.0
    assert score.diameter == pytest.approx(truth.distance.max(), abs=1e-5)
    half = learn.oracle.score(0.5 * place, chain, head=learn.Norm(1.0), truth=truth)
    assert half.sup == pytest.approx(0.5 * half.diameter)
    assert half.lipschitz == pytest.approx(0.5 * half.diameter)
    assert half.correlation == pytest.approx(1.0)
    point = learn.oracle.score(0.0 * place, chain, head=learn.Norm(1.0), truth=truth)
    assert math.isnan(point.correlation)
    assert point.agreement < 0.1
    assert point.sup == pytest.approx(point.diameter)


def test_encoders_are_networks_or_embeddings():
    net = torch.nn.Linear(12, 4).double()
    by_net = learn.oracle.score(net, MDP, POLICY, head=learn.Norm(2.0))
    table = net(torch.eye(12, dtype=torch.float64)).detach()
    assert by_net.sup == pytest.approx(learn.oracle.score(table, CHAIN, head=learn.Norm(2.0)).sup)
    doubled = learn.oracle.score(
        lambda x: net(2.0 * x), MDP, POLICY, head=learn.Norm(2.0), observations=torch.eye(12).double()
    )
    assert doubled.distance == pytest.approx(2.0 * by_net.distance)
    with pytest.raises(ValueError, match=r"all 12 states"):
        learn.oracle.score(table[:5], CHAIN, head=learn.Norm(2.0))
    with pytest.raises(ValueError, match="finite"):
        learn.oracle.score(table * math.nan, CHAIN, head=learn.Norm(2.0))
    with pytest.raises(TypeError, match=r"uniform_policy"):
        learn.oracle.score(table, MDP, head=learn.Norm(2.0))
    with pytest.raises(TypeError, match="no choices"):
        learn.oracle.score(table, CHAIN, POLICY, head=learn.Norm(2.0))
    other = bm.solve_metric(chain_of(np.eye(2), [0.0, 1.0]), tol=1e-3)
    with pytest.raises(ValueError, match="truth"):
        learn.oracle.score(table, CHAIN, head=learn.Norm(2.0), truth=other)


def test_rand_index():
    """Against scikit-learn, and at the ends."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.integers(0, 4, size=(2, 15))
        assert rand_index(x, y) == pytest.approx(metrics.adjusted_rand_score(x, y))
    assert rand_index(np.arange(4), np.arange(4)) == 1.0
    assert rand_index(np.zeros(3, int), np.zeros(3, int)) == 1.0


def test_the_table_of_the_page_is_what_the_oracle_says():
    """Sup errors and correlations of docs/learn.md, recomputed (but for particles, whose draws take long)."""
    page = (Path(__file__).parents[2] / "docs" / "learn.md").read_text()
    rows = {
        "exact transport": of_means(learn.Norm(1.0), learn.Categorical()),
        "DBC's paper": learn.dbc(0.9),
        "DBC as published": learn.dbc(0.9, as_published=True),
        "MICo, KSMe": learn.mico(0.9),
        "SimSR": learn.simsr(0.9),
    }
    models = bm.problems.garnet(30, 2, 4, gamma=0.9, seed=1), bm.problems.gridworld(gamma=0.9)
    for k, mdp in enumerate(models):
        chain = mdp.under(mdp.uniform_policy())
        exact = bm.solve_metric(chain, tol=1e-6).distance
        off = ~np.eye(chain.n_states, dtype=bool)
        for name, loss in rows.items():
            (line,) = re.findall(rf"^\| {re.escape(name)}.*$", page, re.MULTILINE)
            share, seen = line.split("|")[2 + k].split(",")
            got = learn.oracle.fixed_point(loss, chain).distance
            error = float(np.abs(got - exact).max()) / exact.max()
            assert 100.0 * error == pytest.approx(float(share.strip(" %")), abs=0.51), (name, k)
            assert correlation(got[off], exact[off]) == pytest.approx(float(seen), abs=0.006), (name, k)


def test_values_are_of_the_weight_that_distances_are_of():
    """With c_T below the discount d_π bounds differences of the values of discount c_T, no others."""
    truth = bm.solve_metric(CHAIN, tol=1e-9, transition_weight=0.3)
    z = torch.tensor(truth.distance)  # the maximum norm of rows of a metric is the metric
    found = learn.oracle.score(z, MDP, POLICY, head=learn.Norm(math.inf), truth=truth)
    assert found.sup < 1e-8
    assert found.lipschitz < 1e-8


def test_the_truth_must_be_of_the_same_chain(tmp_path):
    z = torch.zeros(12, 2)
    other = MDP.under(np.eye(3)[np.zeros(12, int)])
    for wrong in (other, bm.Chain.from_arrays(CHAIN.rows.matrix(), 2.0 * CHAIN.rewards, 0.9)):
        with pytest.raises(ValueError, match="another model"):
            learn.oracle.score(z, MDP, POLICY, head=learn.Norm(1.0), truth=bm.solve_metric(wrong, tol=0.1))
    bm.solve_metric(CHAIN, tol=0.1).save(tmp_path / "d.npz")
    learn.oracle.score(z, MDP, POLICY, head=learn.Norm(1.0), truth=bm.MetricSolution.load(tmp_path / "d.npz"))
