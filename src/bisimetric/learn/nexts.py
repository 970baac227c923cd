"""What is known of the next states: samples, a Gaussian, or probabilities over finitely many states.

Samples are plain tensors [B, D], or [B, n, D] for n of each state. All of them live in the space of embeddings.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..backends.select import host
from ..kinds import Floats
from ..model import Chain, Distributions
from ..transport import Transport


class GaussianNext(NamedTuple):
    """A Gaussian with independent coordinates for each state: mean [B, D] and standard deviations [B, D]."""

    mean: Tensor
    std: Tensor


class CategoricalNext(NamedTuple):
    """Probabilities [B, K] over K states whose embeddings are the rows of support [K, D]."""

    probs: Tensor | TransitionRows
    support: Tensor


Next: TypeAlias = "Tensor | GaussianNext | CategoricalNext"


class TransitionRows:
    """Known transition probabilities, which are the same in every step: what is remembered of their transports is kept.

    That only saves time: results do not depend on it beyond the tolerance of a transport.
    """

    def __init__(self, probs: Tensor | Floats, *, device: torch.device | str | None = None) -> None:
        """Take probabilities [B, K], one row for each state of a batch."""
        self.probs = torch.as_tensor(probs, device=device)
        if self.probs.ndim != 2 or not self.probs.dtype.is_floating_point:
            raise ValueError(f"probs: must be real numbers [B, K]; got {self.probs.dtype} {list(self.probs.shape)}.")
        P = self.probs.detach().cpu().double().numpy()
        sums = P.sum(axis=1, keepdims=True)
        near = np.abs(sums - 1.0) <= P.shape[1] * torch.finfo(self.probs.dtype).eps  # the rounding of single precision
        rows = Distributions.from_matrix(np.where(near, P / np.where(near, sums, 1.0), P)).normalised()
        rows.check(lambda row: f"row {row} of probs")
        self.rows = rows
        self._solvers: dict[Transport, Transports] = {}

    @classmethod
    def of(
        cls, chain: Chain, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None
    ) -> TransitionRows:
        """Those of a chain, a state for each row."""
        return cls(torch.as_tensor(chain.rows.matrix().toarray(), dtype=dtype), device=device)

    def costs(self, transport: Transport, ground: Tensor) -> Tensor:
        """T(ground)(P_i, P_j) of all pairs of rows [B, B], by the engine of the host."""
        if transport not in self._solvers:
            self._solvers[transport] = Transports(self.rows, transport)
        (values,) = self._solvers[transport](on_host(ground))
        return torch.as_tensor(values, dtype=ground.dtype, device=ground.device)


class NotFiniteError(ValueError):
    """Ground costs are not finite, so that no transport can be looked for."""


def on_host(ground: Tensor) -> Floats:
    """Ground costs for the host's transports."""
    if not bool(torch.isfinite(ground).all()):
        raise NotFiniteError("ground costs: must be finite; next states, or what a head makes of them, are not.")
    return np.asarray(ground.detach().cpu().double().numpy())


class Transports:
    """Transports between all pairs of rows of each of some equal parts, again and again for other ground distances."""

    def __init__(self, rows: Distributions, transport: Transport, *, parts: int = 1, remember: bool = True) -> None:
        self.size, self.parts = len(rows) // parts, parts
        groups = tuple(np.arange(k * self.size, (k + 1) * self.size) for k in range(parts))
        self.solver = host().solver(rows, groups, transport, remember)

    def __call__(self, ground: Floats) -> Floats:
        """W of the pairs of each part [parts, rows, rows], for ground costs [K, K]."""
        found = np.zeros((self.parts, self.size, self.size))
        self.solver.prepare(np.ascontiguousarray(ground), np.inf)
        for part in range(self.parts):
            self.solver.fill(part, 0, self.size, found[part], _Nobody())
        upper = np.triu(self.solver.unit * found)
        return np.asarray(upper + np.triu(upper, 1).transpose(0, 2, 1))


class _Nobody:
    """Nobody listens to what a solver reports."""

    def add(self, iterations: int, error: float) -> None:
        del iterations, error
