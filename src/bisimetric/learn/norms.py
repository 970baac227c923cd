"""Norms of embeddings and of their differences, with gradient 0 where they are 0.

On a CUDA device gradients of PyTorch's own norms between all pairs take N·M·D numbers for a moment (the buffers of
`_cdist_backward` and `_pdist_backward` there), and a block of threads for each pair. Away from the CPU both are
therefore worked out some coordinates at a time: as many as make `_BLOCK` numbers, or one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .squares import unfolded

_EXACT = "donot_use_mm_for_euclid_dist"  # squares of differences, not differences of squares: near pairs keep digits
_BLOCK = 1 << 22  # numbers, a few times in use: 16 MiB in single precision, which a device's cache holds


def norms_between(x: Tensor, y: Tensor, p: float) -> Tensor:
    """‖x_i − y_j‖_p [N, M], with gradient 0 where it is 0; where y is x each pair is computed once."""
    if x.device.type != "cpu":
        return norms_in_blocks(x, y, p)
    if x is not y:
        return torch.cdist(x, y, p=p, compute_mode=_EXACT)
    return unfolded(torch.pdist(x, p), len(x))


def norms_in_blocks(x: Tensor, y: Tensor, p: float) -> Tensor:
    """The same, in memory N·M + (N + M)·D, or `_BLOCK`, forwards and backwards on every device."""
    found: Tensor = _Between.apply(x, None if x is y else y, p)
    return found


class _Between(torch.autograd.Function):
    """‖x_i − y_j‖_p [N, M], without y those of x with itself [N, N]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None, p: float) -> Tensor:
        other = x if y is None else y
        found = x.new_zeros(len(x), len(other))
        for difference in _differences(x, other):
            if p == math.inf:
                torch.maximum(found, difference.abs_().amax(0), out=found)
            else:
                found += (difference.abs_() if p == 1.0 else difference.abs_().pow_(p)).sum(0)
        if 1.0 < p < math.inf:
            found.pow_(1.0 / p)
        ctx.p, ctx.alone = p, y is None
        ctx.save_for_backward(x, other, found)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, y, found = ctx.saved_tensors
        if ctx.alone:  # both places of a pair at once
            return _pulls(x, x, found, gradient + gradient.T, ctx.p), None, None
        first = _pulls(x, y, found, gradient, ctx.p) if ctx.needs_input_grad[0] else None
        second = _pulls(y, x, found.T, gradient.T, ctx.p) if ctx.needs_input_grad[1] else None
        return first, second, None


def _differences(x: Tensor, y: Tensor) -> Iterator[Tensor]:
    """x_i − y_j, some coordinates at a time [C, N, M]; whoever is given them may write over them."""
    count = max(1, _BLOCK // max(1, len(x) * len(y)))
    for xs, ys in zip(x.T.split(count), y.T.split(count), strict=True):
        yield xs[:, :, None] - ys[:, None, :]


def _pulls(x: Tensor, y: Tensor, found: Tensor, weights: Tensor, p: float) -> Tensor:
    """Σ_j weights_ij ∂‖x_i − y_j‖_p/∂x_i [N, D]."""
    pulls = [_slopes(difference, found, p).mul_(weights).sum(-1) for difference in _differences(x, y)]
    return torch.cat(pulls).T.contiguous()


def _slopes(difference: Tensor, norm: Tensor, p: float) -> Tensor:
    """∂‖x‖_p/∂x_c of differences x_c [C, N, M] with norms [N, M], 0 where these are 0; writes over the differences."""
    if p == 1.0:
        return difference.sign_()
    if p == math.inf:
        return difference.sign() * (difference.abs() == norm)
    share = difference.div_(norm.masked_fill(norm == 0.0, 1.0))
    return share if p == 2.0 else share.sign() * share.abs_().pow_(p - 1.0)


def norm_of(x: Tensor, p: float) -> Tensor:
    """‖x‖_p over the last axis, with gradient 0 where x is 0."""
    if p == 1.0:
        return x.abs().sum(-1)
    if p == 2.0:
        square = x.square().sum(-1)
        zero = square == 0.0
        return square.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)
    zero = (x == 0.0).all(-1)
    safe = torch.where(zero[..., None], torch.ones_like(x), x)
    return torch.where(zero, torch.zeros_like(safe[..., 0]), torch.linalg.vector_norm(safe, p, dim=-1))


def directions(x: Tensor) -> tuple[Tensor, Tensor]:
    """(unit vectors [..., D + 1], what embeddings [..., D] were divided by [..., 1]).

    The vector 0 has an axis of its own: it is at a right angle to all others, and at no angle to itself.
    """
    size = norm_of(x, 2.0)[..., None]
    zero = size == 0.0
    size = size.masked_fill(zero, 1.0)
    return torch.cat([x / size, zero.to(x.dtype)], dim=-1), size
