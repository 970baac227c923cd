"""Symmetric matrices of all pairs of a batch, from one number for each two of its embeddings."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

_KEPT = 1024  # places of so many embeddings take 8 MiB


@lru_cache(4)  # a batch, one with an absorbing state, and the next states of both
def _places(count: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Places of pairs i < j in a flattened matrix, of pairs j > i, and which pair is in each place (diagonal: any)."""
    with torch.inference_mode(False):
        row, column = torch.triu_indices(count, count, 1, dtype=torch.int32, device=device)
        upper, lower = row * count + column, column * count + row
        pair = torch.zeros(count * count, dtype=torch.int32, device=device)
        pair[upper.long()] = pair[lower.long()] = torch.arange(len(upper), dtype=torch.int32, device=device)
        return upper, lower, pair


def _whole(half: Tensor, count: int) -> Tensor:
    return half.index_select(0, _places(count, half.device)[2]).view(count, count).fill_diagonal_(0.0)


class _Unfolded(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, half: Tensor, count: int) -> Tensor:
        return _whole(half, count)

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> tuple[Tensor, None]:
        upper, lower, _ = _places(len(gradient), gradient.device)
        flat = gradient.reshape(-1)
        return flat.index_select(0, upper).add_(flat.index_select(0, lower)), None


def unfolded(half: Tensor, count: int) -> Tensor:
    """The symmetric matrix [N, N] with zeros on its diagonal, from the numbers of pairs i < j [N(N − 1)/2]."""
    if count < 2:
        return half.new_zeros(count, count)
    if count > _KEPT:  # slower, and nothing stays
        upper = torch.ones(count, count, dtype=torch.bool, device=half.device).triu_(1)
        above = half.new_zeros(count, count).masked_scatter(upper, half)
        return above + above.T
    whole: Tensor = _Unfolded.apply(half, count) if half.requires_grad else _whole(half, count)
    return whole
