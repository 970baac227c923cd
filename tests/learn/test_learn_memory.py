"""The all-pairs loss makes no tensor of B² · D numbers, forwards or backwards: memory is O(B² + B·D)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from bisimetric import learn  # noqa: E402

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
