"""Angles between embeddings, with the digits that they are given in.

1 − cos of a small angle has half of the digits of the angle. For embeddings in double precision chords ‖u − v‖ and
‖u + v‖ keep them all (Kahan). Embeddings in single precision have 2⁻²⁴ as their own rounding: for these inner products
in double precision are enough, of which an angle is off by some 10⁻⁸, and a matrix product is many times as fast as
differences. Their directions count as equal (or opposite) where cosines do within `_ALIKE`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import threshold

from .norms import directions, norm_of, norms_between

_ALIKE = 16.0 * float(np.finfo(np.float64).eps)  # of 1 − cos and 1 + cos: angles of 8e-8


def angles(x: Tensor, y: Tensor) -> Tensor:
    """Angles [N, M] of embeddings x [N, D] and y [M, D], with gradient 0 where they are 0 or π."""
    if x.dtype != torch.float64:
        return by_products(x, y, turned=True)
    u, _ = directions(x)
    v = u if x is y else directions(y)[0]
    return _angle(norms_between(u, v, 2.0), norms_between(u, -v, 2.0))


def paired_angles(x: Tensor, y: Tensor) -> Tensor:
    """Angles of embeddings [..., D] and embeddings [..., D], one by one."""
    u, v = directions(_of_size_one(x))[0], directions(_of_size_one(y))[0]
    return _angle(norm_of(u - v, 2.0), norm_of(u + v, 2.0))


def _of_size_one(x: Tensor) -> Tensor:
    """Embeddings with a largest entry of 1, so that no square leaves the range of single precision."""
    peak = x.detach().abs().amax(-1, keepdim=True)
    return x / peak.masked_fill(peak == 0.0, 1.0)


def _angle(apart: Tensor, across: Tensor) -> Tensor:
    """The angle of unit vectors from ‖u − v‖ and ‖u + v‖."""
    return 2.0 * torch.atan2(apart, across)


def cosine_gaps(x: Tensor, y: Tensor) -> Tensor:
    """1 − cos of angles [N, M]."""
    if x.dtype != torch.float64:
        return by_products(x, y, turned=False)
    u, _ = directions(x)
    return 0.5 * norms_between(u, u if x is y else directions(y)[0], 2.0).square()


def paired_cosine_gaps(x: Tensor, y: Tensor) -> Tensor:
    """1 − cos of angles, one by one."""
    return 0.5 * (directions(_of_size_one(x))[0] - directions(_of_size_one(y))[0]).square().sum(-1)


def by_products(x: Tensor, y: Tensor, *, turned: bool) -> Tensor:
    """Angles (`turned`) or 1 − cos [N, M] from inner products in double precision."""
    found: Tensor = _Products.apply(x, None if x is y else y, turned)
    return found


class _Products(torch.autograd.Function):
    """Angles or 1 − cos of x and y [N, M], without y those of x with itself [N, N]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None, turned: bool) -> Tensor:
        u, size = directions(x.double())
        v, there = (u, size) if y is None else directions(y.double())
        cosine = u @ v.T
        if turned:
            sine = threshold((1.0 - cosine * cosine).to(x.dtype), 2.0 * _ALIKE, 0.0, inplace=True).sqrt_()
            found = torch.atan2(sine, cosine.to(x.dtype))
            steep = sine.reciprocal_().nan_to_num_(nan=torch.nan, posinf=0.0)  # where directions are alike: no gradient
            ctx.save_for_backward(u, size, v, there, steep)
        else:
            found = threshold((1.0 - cosine).to(x.dtype), _ALIKE, 0.0, inplace=True)
            ctx.save_for_backward(u, size, v, there)
        ctx.alone = y is None
        return found.fill_diagonal_(0.0) if ctx.alone else found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        u, size, v, there, *steep = ctx.saved_tensors
        weights = gradient
        if steep:  # 1/sine may be large, and what it multiplies nearly cancels: double precision, as of the products
            weights = (gradient * steep[0]).double()
        else:
            u, v, size, there = (part.to(gradient.dtype) for part in (u, v, size, there))
        if ctx.alone:
            return _pulled((weights + weights.T).fill_diagonal_(0.0) @ u, u, size, gradient.dtype), None, None
        first = _pulled(weights @ v, u, size, gradient.dtype) if ctx.needs_input_grad[0] else None
        second = _pulled(weights.T @ u, v, there, gradient.dtype) if ctx.needs_input_grad[1] else None
        return first, second, None


def _pulled(pull: Tensor, u: Tensor, size: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient to embeddings, along which 1 − cos falls by `pull` in the directions: the part across them."""
    across = u * (u * pull).sum(-1, keepdim=True) - pull
    return (across[:, :-1] / size).to(dtype)
