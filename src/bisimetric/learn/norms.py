"""Norms of embeddings and of their differences, with gradient 0 where they are 0."""

from __future__ import annotations

import torch
from torch import Tensor

from .squares import unfolded

_EXACT = "donot_use_mm_for_euclid_dist"  # squares of differences, not differences of squares: near pairs keep digits


def norms_between(x: Tensor, y: Tensor, p: float) -> Tensor:
    """‖x_i − y_j‖_p [N, M], with gradient 0 where it is 0; where y is x each pair is computed once."""
    if x is not y:
        return torch.cdist(x, y, p=p, compute_mode=_EXACT)
    return unfolded(torch.pdist(x, p), len(x))


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
