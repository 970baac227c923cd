"""Angles of single-precision embeddings, by products in double: digits at 0 and π, kinks, gradients."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from bisimetric import learn  # noqa: E402
from bisimetric.learn import squares  # noqa: E402
from bisimetric.learn.angles import by_products  # noqa: E402
from bisimetric.learn.squares import unfolded  # noqa: E402

HEADS = [learn.Diffuse(1.0), learn.Cosine()]


def points(seed: int, scale: float, count: int = 9, dim: int = 5):
    """Single-precision embeddings: some near each other, some nearly opposite, one twice, one 0."""
    x = scale * torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))
    x[1], x[2] = x[0] * (1.0 + 1e-3) + 1e-4 * x[2], -x[0] + 1e-4 * x[2]
    x[3] = x[4]
    x[5] = 0.0
    return x


@pytest.mark.parametrize("head", HEADS, ids=str)
@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-18, 1e-3, 1.0, 1e18]))
def test_single_precision_has_the_digits_of_double(head, seed, scale):
    x, y = points(seed, scale), points(seed + 1, scale)
    for other in (x, y):
        found = head.distances(x, other)
        assert found.dtype == torch.float32
        long = x.double()
        careful = head.distances(long, long if other is x else other.double())
        torch.testing.assert_close(found.double(), careful, rtol=3e-7, atol=1e-7)
    assert torch.equal(torch.diagonal(head.distances(x, x)), torch.zeros(len(x)))


@pytest.mark.parametrize("angle", [0.0, 1e-6, 1e-3, 0.3, math.pi / 2, 3.0, math.pi - 1e-3, math.pi - 1e-6, math.pi])
def test_small_and_large_angles_in_single_precision(angle):
    """In single precision 1 − cos² has no digits of angles below 3e-4."""
    x = torch.tensor([[2.0, 0.0]])
    y = torch.tensor([[7.0 * math.cos(angle), 7.0 * math.sin(angle)]])
    exact = math.atan2(float(y[0, 1]), float(y[0, 0]))  # of the rounded numbers
    assert float(learn.Diffuse(1.0).distances(x, y)) == pytest.approx(exact, rel=2e-7, abs=5e-8)
    assert float(learn.Cosine().distances(x, y)) == pytest.approx(1.0 - math.cos(exact), rel=2e-7, abs=1e-14)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_the_origin_is_at_a_right_angle_to_others(head):
    x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]])
    right = float(head.distances(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])))
    wanted = right * torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    for dtype in (torch.float32, torch.float64):
        z = x.to(dtype)
        for d in (head.distances(z, z), head.distances(z, z.clone()), head.paired_distances(z[:, None], z[None])):
            torch.testing.assert_close(d, wanted.to(dtype))


@pytest.mark.parametrize("turned", [True, False], ids=["angles", "cosines"])
def test_gradients_are_derivatives(turned):
    generator = torch.Generator().manual_seed(5)
    x, y = (torch.randn(n, 3, dtype=torch.float64, generator=generator).requires_grad_() for n in (5, 4))
    assert torch.autograd.gradcheck(lambda a, b: by_products(a, b, turned=turned), (x, y))
    assert torch.autograd.gradcheck(lambda a: by_products(a, a, turned=turned), (x,))
    weights = torch.randn(5, 5, dtype=torch.float64, generator=generator)  # pairs (i, j) and (j, i) by themselves
    assert torch.autograd.gradcheck(lambda a: (weights * by_products(a, a, turned=turned)).sum(), (x,))


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_gradients_in_single_precision_are_those_of_double(head, seed):
    weights = torch.randn(9, 9, generator=torch.Generator().manual_seed(seed))
    for other in (None, points(seed + 1, 1.0)):
        grads = []
        for dtype in (torch.float32, torch.float64):
            x = points(seed, 1.0).to(dtype).requires_grad_()
            y = x if other is None else other.to(dtype)
            (weights.to(dtype) * head.distances(x, y)).sum().backward()
            grads.append(x.grad.double())
        torch.testing.assert_close(grads[0], grads[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_no_gradient_where_directions_coincide_or_are_opposite(head):
    one = torch.randn(1, 6, generator=torch.Generator().manual_seed(0))
    for start in (one.repeat(7, 1), torch.cat([one, -one, 3.0 * one, -0.5 * one])):
        x = start.clone().requires_grad_()
        head.distances(x, x).sum().backward()
        assert float(x.grad.abs().max()) < 1e-6


def test_near_directions_keep_the_direction_of_their_gradient():
    """The gradient of an angle has size 1/‖x‖, also where its sine is 1e-4 and products have to cancel."""
    x = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1e-4, 0.0]], requires_grad=True)
    learn.Diffuse(1.0).distances(x, x)[0, 1].backward()
    torch.testing.assert_close(x.grad[0], torch.tensor([0.0, -1.0, 0.0]), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(x.grad[1], torch.tensor([-1e-4, 1.0, 0.0]), rtol=0.0, atol=1e-5)


def test_nan_stays_nan():
    x = torch.randn(3, 2)
    x[1, 0] = math.nan
    for head in HEADS:
        d = head.distances(x, x)
        assert torch.isnan(d[0, 1])
        assert torch.isnan(d[1, 2])
        assert not torch.isnan(d[0, 2])


@pytest.mark.parametrize("kept", [0, 1024], ids=["large", "small"])
def test_matrices_from_one_number_for_each_pair(kept, monkeypatch):
    monkeypatch.setattr(squares, "_KEPT", kept)
    half = torch.arange(6, dtype=torch.float64).requires_grad_()
    whole = unfolded(half, 4)
    upper = torch.triu_indices(4, 4, 1)
    assert torch.equal(whole[upper[0], upper[1]], half)
    assert torch.equal(whole, whole.T)
    assert torch.equal(torch.diagonal(whole), torch.zeros(4, dtype=torch.float64))
    weights = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda h: weights * unfolded(h, 4), (half,))
    for count in (0, 1):
        assert torch.equal(unfolded(torch.zeros(0), count), torch.zeros(count, count))


def test_places_made_without_gradients_serve_with_them():
    with torch.inference_mode():
        learn.Norm(1.0).values(torch.rand(37, 2), torch.rand(37, 2))
        z = torch.rand(37, 2)
        learn.Norm(1.0).values(z, z)
    x = torch.rand(37, 2, requires_grad=True)
    learn.Norm(1.0).values(x, x).sum().backward()
    assert torch.isfinite(x.grad).all()
