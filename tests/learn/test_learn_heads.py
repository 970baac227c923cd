"""Heads: what they represent, their kinks, and that pairs agree with matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from bisimetric import learn  # noqa: E402

HEADS = [
    learn.Norm(1.0),
    learn.Norm(2.0),
    learn.Norm(3.0),
    learn.Norm(math.inf),
    learn.Diffuse(0.1),
    learn.Kernel(5.0),
    learn.Cosine(),
    learn.Cosine(3.0, unit_next=False),
]


def points(seed: int, count: int = 7, dim: int = 4, scale: float = 1.0):
    z = scale * torch.randn(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    z[-1] = z[0]  # two that coincide
    z[-2] = 0.0
    z[-3] = -z[1]
    return z


@pytest.mark.parametrize("head", HEADS, ids=str)
@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_pairs_agree_with_matrices(head, seed, scale):
    x, y = points(seed, scale=scale), points(seed + 1, scale=scale)
    for whole, paired in (
        (head.values, head.paired_values),
        (head.next_values, head.next_paired_values),
        (head.distances, head.paired_distances),
    ):
        table, single = whole(x, y), paired(x[:, None, :], y[None, :, :])
        torch.testing.assert_close(table, single, rtol=1e-9, atol=1e-9 * max(scale, scale**2))
        assert torch.equal(torch.diagonal(head.distances(x, x)), torch.zeros(len(x), dtype=torch.float64))


@pytest.mark.parametrize("head", HEADS, ids=str)
@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
def test_distances_are_reduced_values_below_the_ceiling(head, seed, scale):
    x = points(seed, scale=scale)
    if isinstance(head, learn.Kernel):  # with k(x, x) ≤ level, as fixed points have it
        x = x * (head.level**0.5 / max(float(x.norm(dim=1).max()), head.level**0.5))
    values, distances = head.values(x, x), head.distances(x, x)
    own = torch.diagonal(values)
    torch.testing.assert_close(
        distances, values - 0.5 * (own[:, None] + own[None, :]), rtol=1e-7, atol=1e-9 * max(1.0, scale**2)
    )
    assert float(distances.max()) <= head.ceiling * (1.0 + 1e-12)
    p = head.p if isinstance(head, learn.Norm) else 2.0
    largest = float(torch.linalg.vector_norm(x, p, dim=1).max())
    assert float(distances.max()) <= head.ceiling_within(largest) * (1.0 + 1e-9)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_gradients_are_finite_where_embeddings_coincide(head):
    for method in (head.values, head.distances):
        x = points(3).requires_grad_()
        method(x, x).sum().backward()
        assert torch.isfinite(x.grad).all()
    x, y = points(3).requires_grad_(), points(3)
    (head.paired_values(x, y).sum() + head.paired_distances(x, y).sum()).backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_gradients_are_derivatives(head):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(4, 3, dtype=torch.float64, generator=generator).requires_grad_()
    y = torch.randn(4, 3, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(lambda z: head.values(z, y), (x,))
    assert torch.autograd.gradcheck(lambda z: head.paired_values(z, y), (x,))


def test_mico_cannot_exceed_its_ceiling():
    head = learn.Diffuse(0.1)
    assert head.ceiling == pytest.approx(0.31416, abs=1e-5)
    opposite = torch.tensor([[1e9, 0.0], [-1e-9, 0.0]], dtype=torch.float64)
    assert float(head.distances(opposite, opposite).max()) == pytest.approx(0.1 * math.pi)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-6, 0.3, math.pi / 2, 3.0, math.pi - 1e-9, math.pi])
def test_angles_keep_their_digits(angle):
    """1 − cos² loses all digits of angles below 1e-8."""
    x = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    y = 7.0 * torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    assert float(learn.Diffuse(1.0).distances(x, y)) == pytest.approx(angle, rel=1e-9, abs=1e-15)


def test_bounds_on_norms_keep_values_below_the_largest():
    span, c_T = 2.0, 0.9
    for head in (learn.Norm(1.0), learn.Norm(2.0), learn.Diffuse(0.1)):
        radius = learn.norm_bound(head, c_T, span)
        ball = learn.Ball(radius, getattr(head, "p", 2.0))
        z = ball(points(1, count=30, scale=100.0))
        largest = span / (1.0 - c_T)
        angles = 0.0 if head.zero_diagonal else head.ceiling
        assert float(head.values(z, z).max()) <= (largest + angles) * (1.0 + 1e-12)
        torch.testing.assert_close(ball(z), z)
    far = learn.Ball(2.0)(torch.tensor([[1e20, 0.0], [-3e38, 3e38]]))  # squares overflow in single precision
    torch.testing.assert_close(far, 2.0 * torch.tensor([[1.0, 0.0], [-math.sqrt(0.5), math.sqrt(0.5)]]))
    assert learn.norm_bound(learn.Norm(1.0), c_T, span) == pytest.approx(10.0)  # halved
    assert learn.norm_bound(learn.Kernel(10.0), c_T, span) == pytest.approx(math.sqrt(10.0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: learn.Norm(0.5),
        lambda: learn.Norm(float("nan")),
        lambda: learn.Diffuse(0.0),
        lambda: learn.Kernel(-1.0),
        lambda: learn.Cosine(math.inf),
        lambda: learn.Ball(0.0),
        lambda: learn.norm_bound(learn.Norm(1.0), 1.0, 1.0),
        lambda: learn.Huber(0.0),
    ],
)
def test_settings_are_checked(make):
    with pytest.raises(ValueError, match=r"must be|needs"):
        make()


def test_moving_averages_follow():
    encoder = torch.nn.Linear(3, 2)
    slow, online = learn.MovingAverage(encoder, 0.25), learn.Online(encoder)
    start = [p.clone() for p in encoder.parameters()]
    with torch.no_grad():
        for p in encoder.parameters():
            p.add_(1.0)
    slow.update()
    for p, before in zip(slow.encoder.parameters(), start, strict=True):
        torch.testing.assert_close(p, before + 0.25)
        assert not p.requires_grad
    x = torch.ones(4, 3)
    assert not slow(x).requires_grad
    assert not online(x).requires_grad
    torch.testing.assert_close(online(x), encoder(x).detach())
    with pytest.raises(ValueError, match="tau"):
        learn.MovingAverage(encoder, 0.0)


def test_kernels_with_enough_level_represent_their_fixed_point():
    """The condition of the docstring: (1 − c_T)·level ≥ c_R L/4 makes the right side positive definite."""
    rng = np.random.default_rng(0)
    r = rng.uniform(0.0, 3.0, size=40)
    gaps = np.abs(r[:, None] - r[None, :])
    assert np.linalg.eigvalsh(np.ptp(r) / 4.0 - 0.5 * gaps).min() > -1e-12
    ends = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert np.linalg.eigvalsh(0.24 - 0.5 * ends).min() < 0.0  # and less does not do
