"""Presets: their formulas, their fixed points on exact models, and what the published codes do otherwise."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from learn_training import chain_of, corridor, exact, fit, mixing  # noqa: E402
from torch.nn.functional import normalize  # noqa: E402

import bisimetric as bm  # noqa: E402
from bisimetric import learn  # noqa: E402
from bisimetric.learn.nexts import CategoricalNext, GaussianNext  # noqa: E402

# (loss, a model whose fixed point its head represents, dimensions, how to train, last layer)
REACHES = {
    "dbc": (learn.dbc(0.8), corridor(), 1, {}),
    "mico": (learn.mico(0.8), mixing(), 6, {"steps": 1200}),
    "mico as published": (learn.mico(0.8, as_published=True), mixing(2), 6, {"steps": 1200}),
    "ksme": (learn.ksme(0.8), mixing(), 6, {"lr": 0.3, "steps": 1500}),
    "ksme as published": (learn.ksme(0.8, as_published=True), mixing(), 6, {"lr": 0.3, "steps": 2500}),
    "simsr": (learn.simsr(0.8), corridor(), 6, {}),
    "simsr as published": (learn.simsr(0.8, as_published=True), corridor(), 6, {"layer": normalize}),
}


@pytest.mark.parametrize("name", REACHES)
def test_presets_reach_their_fixed_points(name):
    loss, chain, dim, how = REACHES[name]
    z = fit(loss, chain, dim, **how)
    truth = learn.oracle.fixed_point(loss, chain, tol=1e-8)
    assert truth.gap < 1e-9
    for got, wanted in (
        (loss.head.values(z, z), truth.values),
        (loss.head.distances(z, z), truth.distance),
    ):
        assert float(np.abs(got.numpy() - wanted).max()) <= 1e-3 * truth.values.max()


def test_published_dbc_reaches_its_own_and_not_the_papers():
    """Two states that stay where they are, rewards 0 and 1: h(x) = 1/2 + 0.8 x has x = 5, as the paper's x = 1 + 0.8 x.

    With rewards 0 and 0.5 the paper's is 2.5; the code's solves h(x) = 1/8 + 0.8 x, which is 3.125: more than half.
    """
    for reward, coordinate in ((1.0, 5.0), (0.5, 3.125)):
        chain = chain_of(np.eye(2), [0.0, reward])
        loss = learn.dbc(0.8, as_published=True)
        truth = learn.oracle.fixed_point(loss, chain)
        assert truth.values[0, 1] == pytest.approx(coordinate, abs=1e-4)
        assert not truth.certificate.rigorous
        assert truth.notes
        z = fit(loss, chain, 3, lr=0.1)
        assert (z[0] - z[1]).abs().numpy() == pytest.approx(np.full(3, coordinate), abs=5e-3)
        assert learn.oracle.fixed_point(learn.dbc(0.8), chain).values[0, 1] == pytest.approx(5.0 * reward, abs=1e-4)


def smooth(x: float) -> float:
    return 0.5 * x * x if abs(x) < 1.0 else abs(x) - 0.5


def test_published_dbc_is_its_formula():
    generator = torch.Generator().manual_seed(0)
    z, mean, std = (torch.randn(5, 3, dtype=torch.float64, generator=generator) for _ in range(3))
    std, reward = std.abs(), 2.0 * torch.randn(5, dtype=torch.float64, generator=generator)
    done = torch.zeros(5, dtype=torch.bool)
    loss = learn.dbc(0.9, as_published=True)
    value, seen = loss(z, None, reward, GaussianNext(mean, std), done, generator=torch.Generator().manual_seed(3))
    partner = torch.randperm(5, generator=torch.Generator().manual_seed(3))
    total = 0.0
    for i, j in enumerate(partner.tolist()):
        for k in range(3):
            h = smooth(float(z[i, k] - z[j, k]))
            r = smooth(float(reward[i] - reward[j]))
            ahead = float(((mean[i, k] - mean[j, k]) ** 2 + (std[i, k] - std[j, k]) ** 2).sqrt())
            total += (h - r - 0.9 * ahead) ** 2 / 15.0
    assert float(value) == pytest.approx(total)
    assert seen.scalars()["loss"] == pytest.approx(total)
    plain, _ = loss(z, None, reward, mean, done)  # a deterministic model's predictions
    assert torch.isfinite(plain)
    with pytest.raises(ValueError, match="z: must be finite"):
        loss(z * float("nan"), None, reward, mean, done)
    with pytest.raises(ValueError, match="transition_weight"):
        learn.PublishedDBC(1.0)


def test_ksme_is_reduced_mico():
    """The distance of KSMe's kernel is MICo's less half of the distances of both states from themselves."""
    mdp = bm.problems.garnet(12, 2, 3, seed=3)
    chain = mdp.under(mdp.uniform_policy())
    mico = learn.oracle.fixed_point(learn.mico(0.9), chain, tol=1e-9)
    ksme = learn.oracle.fixed_point(learn.ksme(0.9), chain, tol=1e-9)
    own = np.diag(mico.values)
    reduced = mico.values - 0.5 * (own[:, None] + own[None, :])
    np.testing.assert_allclose(ksme.distance, reduced, atol=1e-7)
    np.testing.assert_allclose(mico.distance, reduced, atol=1e-12)
    level = 1.0 / (1.0 - 0.9)
    K = level - 0.5 * ksme.values  # the kernel itself, by its own equation
    P = chain.rows.matrix().toarray()
    gaps = np.abs(chain.rewards[:, None] - chain.rewards[None, :])
    np.testing.assert_allclose(K, 1.0 - 0.5 * gaps + 0.9 * P @ K @ P.T, atol=1e-7)
    assert np.linalg.eigvalsh(K).min() > -1e-9


def test_published_losses_compare_with_targets_and_ignore_ends():
    """One pair by hand: Huber of U(online, target) − |Δr| − γ U(next), next states of ended transitions included."""
    z = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    target = torch.tensor([[0.5, 0.5], [1.0, 1.0]], dtype=torch.float64)
    ahead = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    reward, done = torch.tensor([0.0, 0.3], dtype=torch.float64), torch.tensor([True, True])

    def angle(x, y) -> float:
        return float(torch.acos((x * y).sum() / (x.norm() * y.norm())))

    def mico(x, y) -> float:
        return 0.5 * float(x.square().sum() + y.square().sum()) + 0.1 * (0.0 if torch.equal(x, y) else angle(x, y))

    value, _ = learn.mico(0.9, as_published=True)(z, target, reward, ahead, done)
    total = 0.0
    for i in range(2):
        for j in range(2):
            wanted = abs(float(reward[i] - reward[j])) + 0.9 * mico(ahead[i], ahead[j])
            total += smooth(mico(z[i], target[j]) - wanted) / 4.0
    assert float(value) == pytest.approx(total)

    value, _ = learn.ksme(0.9, as_published=True)(z, target, reward, ahead, done)
    total = 0.0
    for i in range(2):
        for j in range(2):
            wanted = 1.0 - 0.5 * abs(float(reward[i] - reward[j])) + 0.9 * float(ahead[i] @ ahead[j])
            total += smooth(float(z[i] @ target[j]) - wanted) / 4.0
    assert float(value) == pytest.approx(total)

    value, _ = learn.simsr(0.9, as_published=True)(z, None, reward, ahead, done)
    total = 0.0
    for i in range(2):
        for j in range(2):
            wanted = abs(float(reward[i] - reward[j])) + 0.9 * (1.0 - float(ahead[i] @ ahead[j]))
            total += smooth(1.0 - float(normalize(z)[i] @ normalize(z)[j]) - wanted) / 4.0
    assert float(value) == pytest.approx(total)


def test_norm_one_represents_the_metric_of_thirty_states():
    """The issue's measure: sup error of at most 3 % of the diameter, 32 dimensions, an exact model."""
    mdp = bm.problems.garnet(30, 2, 4, gamma=0.9, seed=1)
    policy = mdp.uniform_policy()
    chain = mdp.under(policy)
    loss = learn.MetricLoss(learn.Norm(1.0), learn.Categorical(), 0.9, rewards=learn.MeanRewards())
    z = fit(loss, chain, 32, steps=600, lr=0.05)
    score = learn.oracle.score(z, mdp, policy, head=loss.head)
    assert score.share <= 0.03
    assert score.lipschitz <= score.sup + score.error


def test_exact_batches_have_no_noise():
    """The exact target of a preset is the mean of its sampled ones."""
    chain = mixing()
    reward, rows, done = exact(chain)
    z = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    known = learn.Independent().square(learn.Norm(2.0), CategoricalNext(rows, z))
    draws = torch.multinomial(rows.probs, 40_000, replacement=True, generator=torch.Generator().manual_seed(1))
    x, y = z[draws[0]], z[draws[1]]
    assert float((x - y).norm(dim=1).mean()) == pytest.approx(float(known[0, 1]), rel=0.03)
    assert not done.any()
    assert reward.shape == (4,)
