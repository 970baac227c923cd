"""Couplings against closed forms, the plain transports of `reference`, and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

import bisimetric as bm  # noqa: E402
from bisimetric import learn  # noqa: E402
from bisimetric.backends import reference  # noqa: E402
from bisimetric.learn.nexts import CategoricalNext, GaussianNext  # noqa: E402

NORM = learn.Norm(1.0)


def samples(seed: int, B: int = 5, n: int = 4, D: int = 3):
    return torch.randn(B, n, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rows(seed: int, B: int = 5, K: int = 6):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(K, 0.5), size=B)
    return torch.tensor(P), torch.tensor(rng.normal(size=(K, 3)))


@given(seed=st.integers(0, 100))
def test_one_particle_is_micos_target(seed):
    x = samples(seed, n=1)
    for head in (NORM, learn.Diffuse(0.1), learn.Kernel(0.5)):  # values of the last may be negative
        mico = learn.Independent().square(head, x)
        off = ~torch.eye(5, dtype=torch.bool)
        for reg in (0.0, 0.7):
            one = learn.Particles(1, reg, debias=False).square(head, x)
            torch.testing.assert_close(one[off], mico[off], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(mico, head.values(x[:, 0], x[:, 0]))


@given(seed=st.integers(0, 100))
@settings(max_examples=10)
def test_particles_are_transports_of_empirical_distributions(seed):
    x = samples(seed)
    uniform = np.full(4, 0.25)
    for reg, transport in ((0.0, bm.Exact()), (0.5, bm.Sinkhorn(0.5, cost="value"))):
        got = learn.Particles(4, reg, debias=False).square(NORM, x)
        for i, j in ((0, 1), (2, 4), (3, 1)):
            d = NORM.values(x[i], x[j]).numpy()
            if reg == 0.0:
                wanted = reference.exact(d, uniform, uniform)
            else:
                wanted = reference.sinkhorn(d, uniform, uniform, reg, cost="value")
            assert float(got[i, j]) == pytest.approx(wanted, rel=1e-5, abs=1e-6), transport


@given(seed=st.integers(0, 100))
@settings(max_examples=10)
def test_limits_of_lambda(seed):
    x = samples(seed)
    off = ~torch.eye(5, dtype=torch.bool)
    exact = learn.Particles(4, 0.0, debias=False).square(NORM, x)
    near = learn.Particles(4, 1e-4, debias=False).square(NORM, x)
    assert float((near - exact)[off].abs().max()) <= 1e-4 * math.log(4) + 1e-6
    independent = learn.Independent().square(NORM, x)
    far = learn.Particles(4, 1e7, debias=False).square(NORM, x)
    torch.testing.assert_close(far[off], independent[off], rtol=1e-5, atol=1e-5)
    between = learn.Particles(4, 0.5, debias=False).square(NORM, x)
    assert bool((exact[off] <= between[off] + 1e-6).all())
    assert bool((between <= far + 1e-5)[off].all())


@pytest.mark.parametrize("reg", [0.0, 0.5])
@pytest.mark.parametrize("debias", [False, True])
def test_paired_particles_agree_with_squares(reg, debias):
    x = samples(1, B=6)
    partner = torch.tensor([3, 5, 0, 1, 2, 4])
    coupling = learn.Particles(4, reg, debias)
    whole = coupling.square(NORM, x)[torch.arange(6), partner]
    torch.testing.assert_close(coupling.paired(NORM, x, partner), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head", [NORM, learn.Diffuse(0.1), learn.Kernel(0.5)], ids=str)
@pytest.mark.parametrize(
    "coupling",
    [learn.Independent(), learn.Particles(4), learn.Particles(4, debias=False), learn.Particles(4, 0.5)],
    ids=str,
)
def test_states_with_themselves_are_one_number_in_pairs_and_in_squares(coupling, head):
    x, partner = samples(2, B=6), torch.tensor([0, 5, 2, 1, 4, 3])
    whole = coupling.square(head, x)[torch.arange(6), partner]
    torch.testing.assert_close(coupling.paired(head, x, partner), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transport", [bm.Independent(), bm.Sinkhorn(1e7, cost="value")], ids=str)
def test_known_rows_see_negative_values_as_they_are(transport):
    P, support = rows(0)
    head = learn.Kernel(0.5)
    wanted = learn.Independent().square(head, CategoricalNext(P, support))
    found = learn.Categorical(transport).square(head, CategoricalNext(P, support))
    if isinstance(transport, bm.Independent):
        torch.testing.assert_close(found, wanted)
        assert float(head.values(support, support).min()) < 0.0


def test_debiased_particles_of_equal_distributions_are_unbiased():
    """In the mean over draws 0 for a distribution and itself, to a tenth of the plug-in's bias; others hardly move."""
    rng = np.random.default_rng(0)
    plain, debiased = [], []
    for _ in range(80):
        x = torch.tensor(rng.integers(0, 4, size=(3, 32, 1)).astype(float))
        x[2] += 40.0
        plain.append(learn.Particles(32, 0.0, debias=False).square(NORM, x).numpy())
        debiased.append(learn.Particles(32, 0.0).square(NORM, x).numpy())
    bias, left = np.mean(plain, axis=0), np.mean(debiased, axis=0)
    error = np.std(debiased, axis=0)[0, 1] / math.sqrt(80)
    assert bias[0, 1] > 0.2
    assert abs(left[0, 1]) < 0.15 * bias[0, 1] + 3.0 * error
    assert abs(left[0, 2] - 40.0) < 0.1


def test_gaussians_in_one_dimension():
    """W₂² = (μ − μ')² + (σ − σ')², here against quantiles."""
    from scipy.stats import norm

    mean, std = torch.tensor([[0.0], [1.5], [-2.0]]).double(), torch.tensor([[1.0], [0.3], [2.0]]).double()
    got = learn.GaussianW2().square(NORM, GaussianNext(mean, std))
    levels = (np.arange(100_000) + 0.5) / 100_000
    quantiles = [norm.ppf(levels, float(m), float(s)) for m, s in zip(mean, std, strict=True)]
    for i in range(3):
        for j in range(3):
            wanted = math.sqrt(np.mean((quantiles[i] - quantiles[j]) ** 2))
            assert float(got[i, j]) == pytest.approx(wanted, abs=2e-3)
    partner = torch.tensor([1, 2, 0])
    paired = learn.GaussianW2().paired(NORM, GaussianNext(mean, std), partner)
    torch.testing.assert_close(paired, got[torch.arange(3), partner])


def test_moments_of_known_probabilities():
    P, support = rows(0)
    offset = 1e6  # far from the origin, where E z² − (E z)² would lose the digits
    got = learn.GaussianW2().square(NORM, CategoricalNext(P, support + offset))
    mean = P @ support
    std = (P @ support.square() - mean.square()).sqrt()
    wanted = learn.GaussianW2().square(NORM, GaussianNext(mean, std))
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


@given(seed=st.integers(0, 50))
@settings(max_examples=5)
def test_categorical_agrees_with_the_reference(seed):
    P, support = rows(seed)
    known = learn.TransitionRows(P)
    for transport in (bm.Exact(), bm.Sinkhorn(0.5, cost="value"), bm.Independent()):
        for factor in (1.0, 1.3):  # the second from the plans of the first
            z = factor * support
            got = learn.Categorical(transport).square(NORM, CategoricalNext(known, z))
            d = NORM.values(z, z).numpy()
            wanted = reference.transport(transport, d, P[1].numpy(), P[3].numpy())
            assert float(got[1, 3]) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
            assert float(got[3, 1]) == pytest.approx(float(got[1, 3]), rel=1e-12)
        partner = torch.tensor([1, 2, 3, 4, 0])
        paired = learn.Categorical(transport).paired(NORM, CategoricalNext(P, z), partner)
        torch.testing.assert_close(paired, got[torch.arange(5), partner], rtol=1e-6, atol=1e-7)


def test_the_ball_lies_between_exact_and_independent():
    P, support = rows(2)
    exact, ball, independent = (
        learn.Categorical(transport).square(NORM, CategoricalNext(P, support)).fill_diagonal_(0.0)
        for transport in (bm.Exact(), bm.KLBall(0.3), bm.Independent())
    )
    assert bool((exact <= ball + 1e-5).all())
    assert bool((ball <= independent + 1e-5).all())
    assert float((ball - exact).max()) > 1e-3
    assert float((independent - ball).max()) > 1e-3


def test_independent_samples_and_probabilities_agree():
    """Each state's samples are its support, as often as its probabilities say; own pairs leave out equal samples."""
    P = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]).double()
    support = torch.tensor([[0.0], [1.0], [5.0]]).double()
    chosen = torch.tensor([[0, 0, 1, 1], [0, 1, 2, 2]])
    for head in (NORM, learn.Diffuse(0.1), learn.Kernel(3.0)):
        known = learn.Independent().square(head, CategoricalNext(P, support))
        drawn = learn.Independent().square(head, support[chosen])
        assert float(known[0, 1]) == pytest.approx(float(drawn[0, 1]))
        own = head.values(support[chosen[0]], support[chosen[0]])
        assert float(drawn[0, 0]) == pytest.approx(float(own[~torch.eye(4, dtype=torch.bool)].mean()))
        partner = torch.tensor([1, 0])
        for following in (CategoricalNext(P, support), support[chosen]):
            paired = learn.Independent().paired(head, following, partner)
            torch.testing.assert_close(paired, known[torch.arange(2), partner])


@given(seed=st.integers(0, 100), reg=st.sampled_from([0.0, 0.3, 5.0]))
@settings(max_examples=15)
def test_the_gradient_of_a_transport_is_its_plan(seed, reg):
    rng = np.random.default_rng(seed)
    cost = torch.tensor(rng.random((4, 3)), requires_grad=True)
    a, b = torch.tensor(rng.dirichlet(np.ones(4))), torch.tensor(rng.dirichlet(np.ones(3)))
    value = learn.transport_of(cost, reg, a=a, b=b)
    value.backward()
    plan = cost.grad
    torch.testing.assert_close(plan.sum(1), a, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(plan.sum(0), b, rtol=1e-5, atol=1e-6)
    push = torch.tensor(rng.normal(size=(4, 3)))
    step = 1e-5
    up, down = (float(learn.transport_of(cost.detach() + s * push, reg, a=a, b=b)) for s in (step, -step))
    assert (up - down) / (2.0 * step) == pytest.approx(float((plan * push).sum()), abs=1e-3)


@pytest.mark.parametrize(
    ("coupling", "following", "says"),
    [
        (learn.Independent, lambda: GaussianNext(samples(0)[:, 0], samples(0)[:, 0]), "samples"),
        (learn.GaussianW2, lambda: samples(0), "GaussianNext"),
        (lambda: learn.Particles(8), lambda: samples(0), "samples"),
        (learn.Categorical, lambda: samples(0), "CategoricalNext"),
    ],
)
def test_next_states_that_a_coupling_cannot_use(coupling, following, says):
    with pytest.raises(TypeError, match=says):
        coupling().square(NORM, following())


@pytest.mark.parametrize("arguments", [(0,), (3,), (4, -1.0), (4, math.inf), (4, math.nan)])
def test_settings_of_particles(arguments):
    with pytest.raises(ValueError, match="Particles"):
        learn.Particles(*arguments)


def test_rows_are_checked():
    with pytest.raises(bm.ModelError, match="row 1 of probs"):
        learn.TransitionRows(torch.tensor([[0.5, 0.5], [0.5, 0.6]]))
    with pytest.raises(ValueError, match="cost"):
        learn.transport_of(torch.tensor([[-1.0]]))
