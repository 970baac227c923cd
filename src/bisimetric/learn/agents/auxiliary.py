"""Losses beside an agent's own: a metric loss, and self-prediction as a baseline."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..couplings import Categorical, Independent
from ..nexts import GaussianNext, Next
from ..published import Loss
from .networks import mlp
from .replay import Experience

_SMALLEST_STD = 1e-3


class LatentModel(nn.Module):
    """A Gaussian over next embeddings given an embedding: P_π in the space of embeddings, as far as a Gaussian goes.

    It is not told the action, so what it learns is the mixture over the actions of whoever acted, as d_π wants it.
    """

    def __init__(self, dimensions: int, hidden: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = mlp([dimensions, hidden, 2 * dimensions], generator, dtype)

    def forward(self, z: Tensor) -> GaussianNext:
        mean, spread = self.layers(z).chunk(2, dim=-1)
        return GaussianNext(mean, nn.functional.softplus(spread) + _SMALLEST_STD)

    def loss(self, z: Tensor, following: Tensor) -> Tensor:
        """Negative log-likelihood of next embeddings that were seen [B, D], without its constant."""
        guess = self(z)
        return (0.5 * ((following - guess.mean) / guess.std).square() + guess.std.log()).mean()


class MetricTask(nn.Module):
    """A metric loss on a batch of transitions.

    The next states are told as the coupling wants them: `Independent` gets the embedding of the one that was seen,
    `GaussianW2` a `LatentModel` that is learned beside, `Particles` samples of it. `Categorical` needs a finite model
    and is refused. Terminal transitions lead to an absorbing state: at the origin for heads that allow it, and
    otherwise to an embedding of its own that is learned.
    """

    def __init__(
        self,
        metric: Loss,
        dimensions: int,
        generator: torch.Generator,
        *,
        hidden: int = 64,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Take a loss (`MetricLoss`, or a published one) for embeddings of so many dimensions."""
        super().__init__()
        coupling = getattr(metric, "coupling", None)  # DBC as published has none; it takes Gaussians
        if isinstance(coupling, Categorical):
            raise ValueError(
                "metric: a Categorical coupling needs the probabilities of a finite model, and an agent sees "
                "transitions. Take Independent(), GaussianW2() or Particles(n)."
            )
        self.metric, self._generator = metric, generator
        samples = isinstance(coupling, Independent)
        self.model = None if samples else LatentModel(dimensions, hidden, generator, dtype)
        place = 0.1 * torch.randn(dimensions, generator=generator, dtype=dtype)
        self.absorbing = None if metric.head.translates else nn.Parameter(place)

    def forward(
        self, z: Tensor, z_target: Tensor, batch: Experience, z_next: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """(loss, scalars). z has gradients; z_target and z_next [B, D] are by the target encoder."""
        following: Next = z_next
        extra = z.new_zeros(())
        if self.model is not None:
            extra = self.model.loss(z_target.detach(), z_next)
            with torch.no_grad():
                following = self._told(self.model(z_target))
        loss, diagnostics = self.metric(
            z, z_target, batch.reward, following, batch.done, absorbing=self.absorbing, generator=self._generator
        )
        return loss + extra, diagnostics.scalars()

    def _told(self, guess: GaussianNext) -> Next:
        n = getattr(getattr(self.metric, "coupling", None), "n", None)
        if n is None:
            return guess
        size = (len(guess.mean), n, guess.mean.shape[1])
        noise = torch.randn(size, generator=self._generator, dtype=guess.mean.dtype, device=self._generator.device)
        return guess.mean[:, None] + guess.std[:, None] * noise.to(guess.mean.device)


class SelfPrediction(nn.Module):
    """A baseline: predict the target embedding of the next observation, up to its length (after SPR and BYOL)."""

    def __init__(self, dimensions: int, n_actions: int, generator: torch.Generator, *, hidden: int = 64) -> None:
        super().__init__()
        self.layers = mlp([dimensions + n_actions, hidden, dimensions], generator)
        self._n_actions = n_actions

    def forward(
        self, z: Tensor, z_target: Tensor, batch: Experience, z_next: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """(loss, scalars): 1 − cos of prediction and truth, in the mean over transitions that go on."""
        del z_target
        action = nn.functional.one_hot(batch.action, self._n_actions).to(z)
        likeness = nn.functional.cosine_similarity(self.layers(torch.cat([z, action], dim=1)), z_next, dim=1)
        going_on = (~batch.done).to(z)
        loss = ((1.0 - likeness) * going_on).sum() / going_on.sum().clamp_min(1.0)
        return loss, {"loss": float(loss.detach())}
