"""The 2-Wasserstein distance of Gaussians with independent coordinates: DBC's coupling."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .couplings import Coupling, probabilities
from .heads import Head, Norm
from .nexts import CategoricalNext, GaussianNext, Next
from .norms import norm_of

_EUCLIDEAN = Norm(2.0)


@dataclass(frozen=True)
class GaussianW2(Coupling):
    """W₂ = √(‖μ_i − μ_j‖² + ‖σ_i − σ_j‖²), for next embeddings modelled as Gaussians with independent coordinates.

    The ground distance is the Euclidean one whatever the head is: D and T are of one kind with `Norm(2)` only, or where
    embeddings lie on a line. (DBC's paper has `Norm(1)` beside it.) Next states that are no Gaussians are replaced by
    the ones with the same moments; distances of such moments are at most the true W₂ (Gelbrich), so that
    differences of shape are lost.

    Takes a `GaussianNext`, or a `CategoricalNext`, of which it takes the moments. Memory: B² + B·D.
    """

    def square(self, head: Head, following: Next) -> Tensor:
        del head
        both = self._coordinates(following)
        return _EUCLIDEAN.values(both, both)

    def paired(self, head: Head, following: Next, partner: Tensor) -> Tensor:
        del head
        both = self._coordinates(following)
        return _EUCLIDEAN.paired_values(both, both[partner])

    def _coordinates(self, following: Next) -> Tensor:
        """Points [B, 2D] whose Euclidean distances are the W₂."""
        return torch.cat(moments(self, following), dim=1)


def moments(coupling: Coupling, following: Next) -> GaussianNext:
    """Means and standard deviations [B, D]."""
    if isinstance(following, CategoricalNext):
        P, support = probabilities(following), following.support
        centre = support.mean(dim=0)  # near the points, so that squares keep their digits
        mean = P @ (support - centre)
        return GaussianNext(mean + centre, (P @ (support - centre).square() - mean.square()).clamp_min(0.0).sqrt())
    if isinstance(following, GaussianNext):
        return following
    raise coupling.refuse(following, "a GaussianNext(mean, std) or a CategoricalNext")


def coordinate_w2(following: GaussianNext, partner: Tensor) -> Tensor:
    """√((μ_ik − μ_jk)² + (σ_ik − σ_jk)²) of each coordinate k by itself [B, D]: what DBC's code computes."""
    gaps = (following.mean - following.mean[partner], following.std - following.std[partner])
    return norm_of(torch.stack(gaps, dim=-1), 2.0)
