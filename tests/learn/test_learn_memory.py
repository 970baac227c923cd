"""The all-pairs loss makes no tensor of B² · D numbers, forwards or backwards: memory is O(B² + B·D)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from bisimetric import learn  # noqa: E402
from bisimetric.learn import norms  # noqa: E402

B, D = 96, 80


class Sizes(TorchDispatchMode):
    """The largest tensor that is made, in numbers."""

    largest = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        made = function(*arguments, **(named or {}))
        for tensor in made if isinstance(made, tuple) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return made


LOSSES = {
    "norm 1": learn.MetricLoss(learn.Norm(1.0), learn.Independent(), 0.9),
    "norm 2, Gaussian": learn.MetricLoss(learn.Norm(2.0), learn.GaussianW2(), 0.9),
    "mico": learn.mico(0.9),
    "ksme": learn.ksme(0.9),
    "simsr": learn.simsr(0.9),
}


@pytest.mark.parametrize("name", LOSSES)
def test_no_tensor_is_as_large_as_all_pairs_times_dimensions(name):
    loss, generator = LOSSES[name], torch.Generator().manual_seed(0)
    z = torch.randn(B, D, generator=generator).requires_grad_()
    following = torch.randn(B, D, generator=generator)
    told = learn.GaussianNext(following, following.exp()) if "Gaussian" in name else following
    with Sizes() as sizes:
        loss(z, None, torch.rand(B, generator=generator), told, torch.zeros(B, dtype=torch.bool))[0].backward()
    assert 0 < sizes.largest <= 2 * (B * B + B * D)  # B² · D would be 44 times as much


def test_the_measure_sees_large_tensors():
    with Sizes() as sizes:
        x = torch.zeros(B, D)
        (x[:, None] - x[None, :]).abs()
    assert sizes.largest == B * B * D


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, float("inf")])
def test_gradients_some_coordinates_at_a_time_are_those_of_pytorch(p, alone, monkeypatch):
    """Those are what devices use (PyTorch's own take B² · D numbers there); embeddings that coincide among them."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(n, 5, dtype=torch.float64, generator=generator) for n in (11, 7))
    x[3], y[2] = x[8].clone(), x[1].clone()
    weights = torch.randn(11, 11 if alone else 7, dtype=torch.float64, generator=generator)
    found = {}
    for way in (norms.norms_between, norms.norms_in_blocks):
        for block in (1, 100, 10**6):
            monkeypatch.setattr(norms, "_BLOCK", block)
            left, right = x.clone().requires_grad_(), y.clone().requires_grad_()
            value = way(left, left if alone else right, p)
            (value * weights).sum().backward()
            found[way, block] = value.detach(), left.grad, torch.zeros(0) if alone else right.grad
    first = found.pop((norms.norms_between, 1))
    for other in found.values():
        for ours, theirs in zip(other, first, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_gradients_some_coordinates_at_a_time_take_no_more_memory(monkeypatch):
    for block in (1, 3 * B * B):
        monkeypatch.setattr(norms, "_BLOCK", block)
        z = torch.randn(B, D, generator=torch.Generator().manual_seed(0)).requires_grad_()
        with Sizes() as sizes:
            norms.norms_in_blocks(z, z, 1.0).sum().backward()
        assert sizes.largest == max(block, B * B)
