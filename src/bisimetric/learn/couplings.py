"""Couplings: T(D)(P_i, P_j), how far apart next states are, from what is known of them.

All of it is a target, so no gradient goes through. The next states come as samples [B, n, D], a `GaussianNext` or a
`CategoricalNext`; each coupling says which of these it can use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..transport import Exact, Transport
from ..transport import Independent as IndependentTransport
from .heads import Head
from .nexts import CategoricalNext, Next, TransitionRows


@dataclass(frozen=True)
class Coupling(ABC):
    """A way to couple the next states of two states."""

    @abstractmethod
    def square(self, head: Head, following: Next) -> Tensor:
        """T(D) of all pairs of states [B, B]."""

    @abstractmethod
    def paired(self, head: Head, following: Next, partner: Tensor) -> Tensor:
        """T(D) of each state i and state partner[i] [B]."""

    def knows_diagonal(self, head: Head, following: Next) -> bool:
        """Whether the values of a state with itself are true ones, and not those of one sample with itself."""
        del head, following
        return True

    def refuse(self, following: Next, wanted: str) -> TypeError:
        """The error for next states that this coupling cannot use."""
        return TypeError(f"next: {type(self).__name__}() takes {wanted}; got {kind_of(following)}.")


def kind_of(following: object) -> str:
    """What next states are, in words."""
    if isinstance(following, Tensor):
        return f"samples {list(following.shape)}"
    return type(following).__name__


def probabilities(following: CategoricalNext) -> Tensor:
    """The matrix [B, K] of known probabilities."""
    return following.probs.probs if isinstance(following.probs, TransitionRows) else following.probs


@dataclass(frozen=True)
class Independent(Coupling):
    """E D(X, Y) of independent next states X ~ P_i, Y ~ P_j: MICo's, for any head.

    Takes samples (one of each state is enough for an unbiased target of two different states; with several, all pairs
    of samples are averaged, for a state with itself those of different ones) and known probabilities (P D Pᵀ). It is
    the limit λ → ∞ of Sinkhorn's plan. Memory: (B·n)², or K² and B².
    """

    def square(self, head: Head, following: Next) -> Tensor:
        if isinstance(following, CategoricalNext):
            P = probabilities(following)
            return P @ head.next_values(following.support, following.support) @ P.T
        if not isinstance(following, Tensor):
            raise self.refuse(following, "samples [B, D] or [B, n, D], or a CategoricalNext")
        B, n, D = following.shape
        flat = following.reshape(B * n, D)
        values = head.next_values(flat, flat)
        if n == 1:
            return values
        blocks = values.reshape(B, n, B, n)
        own = torch.diagonal(blocks, dim1=0, dim2=2)  # [n, n, B]
        same = torch.diagonal(own, dim1=0, dim2=1).sum(-1)
        return torch.diagonal_scatter(blocks.mean(dim=(1, 3)), (own.sum(dim=(0, 1)) - same) / (n * (n - 1)))

    def paired(self, head: Head, following: Next, partner: Tensor) -> Tensor:
        if isinstance(following, CategoricalNext):
            P = probabilities(following)
            return ((P @ head.next_values(following.support, following.support)) * P[partner]).sum(-1)
        if not isinstance(following, Tensor):
            raise self.refuse(following, "samples [B, D] or [B, n, D], or a CategoricalNext")
        values = head.next_paired_values(following[:, :, None, :], following[partner][:, None, :, :])
        found = values.mean(dim=(1, 2))
        n, own = following.shape[1], partner == torch.arange(len(partner), device=partner.device)
        if n > 1 and bool(own.any()):
            same = values[own]
            found[own] = (same.sum(dim=(1, 2)) - same.diagonal(dim1=1, dim2=2).sum(-1)) / (n * (n - 1))
        return found

    def knows_diagonal(self, head: Head, following: Next) -> bool:
        return isinstance(following, CategoricalNext) or (isinstance(following, Tensor) and following.shape[1] > 1)


@dataclass(frozen=True)
class Categorical(Coupling):
    """A transport between known probabilities over finitely many states, by this package's engine on the host.

    Takes a `CategoricalNext`; with `TransitionRows` in it each step starts from the plans of the last one. What the
    head says of the support is the ground cost (at least 0; with a zero diagonal where the transport's is).

    Args:
        transport: `bm.Exact()`, `bm.Sinkhorn(…)`, `bm.KLBall(…)` or `bm.Independent()`.

    Cost: B² transports over the supports of the rows a step. Memory: K² and B².
    """

    transport: Transport = field(default_factory=Exact)

    def square(self, head: Head, following: Next) -> Tensor:
        if not isinstance(following, CategoricalNext):
            raise self.refuse(following, "a CategoricalNext(probs, support)")
        ground = head.next_values(following.support, following.support)
        if isinstance(self.transport, IndependentTransport) and self.transport == IndependentTransport():
            P = probabilities(following)
            return P @ ground @ P.T
        ground = ground.clamp_min(0.0)
        if not self.transport.with_diagonal:
            ground = ground.fill_diagonal_(0.0)
        given = following.probs
        rows = given if isinstance(given, TransitionRows) else TransitionRows(given)
        return rows.costs(self.transport, ground)

    def paired(self, head: Head, following: Next, partner: Tensor) -> Tensor:
        return self.square(head, following)[torch.arange(len(partner), device=partner.device), partner]
