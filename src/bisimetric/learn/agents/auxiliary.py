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

    It is not told the action, so what it learns is the mixture over the actions of whoever acted, as d_π wants it. The
    Gaussian is that of transitions that go on; `ends` learns the chance of those that do not, once one has been seen.
    """

    seen_ends: Tensor

    def __init__(self, dimensions: int, hidden: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = mlp([dimensions, hidden, 2 * dimensions], generator, dtype)
        self.last = mlp([dimensions, hidden, 1], torch.Generator().manual_seed(0), dtype)
        self.register_buffer("seen_ends", torch.zeros((), dtype=torch.bool))

    def ends(self, z: Tensor) -> Tensor:
        """The chance of an end [B]; 0 as long as none was seen."""
        chance: Tensor = torch.sigmoid(self.last(z)[:, 0])
        return torch.where(self.seen_ends, chance, torch.zeros_like(chance))

    def forward(self, z: Tensor) -> GaussianNext:
        mean, spread = self.layers(z).chunk(2, dim=-1)
        return GaussianNext(mean, nn.functional.softplus(spread) + _SMALLEST_STD)

    def loss(self, z: Tensor, following: Tensor, done: Tensor) -> Tensor:
        """Negative log-likelihood of next embeddings [B, D] and ends [B] that were seen, without its constant."""
        total = z.new_zeros(())
        if bool(done.any()):
            self.seen_ends.fill_(True)
        if bool(self.seen_ends):
            total = nn.functional.binary_cross_entropy_with_logits(self.last(z)[:, 0], done.to(z))
        if not bool(done.all()):
            guess = self(z[~done])
            total = total + (0.5 * ((following[~done] - guess.mean) / guess.std).square() + guess.std.log()).mean()
        return total


class MetricTask(nn.Module):
    """A metric loss on a batch of transitions.

    The next states are told as the coupling wants them: `Independent` gets the embedding of the one that was seen,
    `GaussianW2` a `LatentModel` that is learned beside with its chance of an end, `Particles` samples of both.
    `Categorical` needs a finite model and is refused. Terminal transitions lead to an absorbing state: at the origin
    for heads that allow it, and otherwise to an embedding of its own that is learned.
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
        extra, done = z.new_zeros(()), batch.done
        if self.model is not None:
            extra = self.model.loss(z_target.detach(), z_next, done)
            with torch.no_grad():
                following, done = self._told(self.model, z_target)
        loss, diagnostics = self.metric(
            z, z_target, batch.reward, following, done, absorbing=self.absorbing, generator=self._generator
        )
        return loss + extra, diagnostics.scalars()

    def _told(self, model: LatentModel, z: Tensor) -> tuple[Next, Tensor]:
        """(Next states and ends) of states, as the model has them: a Gaussian and chances, or samples of both."""
        guess, chance = model(z), model.ends(z)
        n = getattr(getattr(self.metric, "coupling", None), "n", None)
        if n is None:
            return guess, chance
        size = (len(guess.mean), n, guess.mean.shape[1])
        where = self._generator.device
        noise = torch.randn(size, generator=self._generator, dtype=z.dtype, device=where).to(z.device)
        samples = guess.mean[:, None] + guess.std[:, None] * noise
        if not bool(model.seen_ends):
            return samples, torch.zeros(size[:2], dtype=torch.bool, device=z.device)
        lots = torch.rand(size[:2], generator=self._generator, dtype=z.dtype, device=where).to(z.device)
        return samples, lots < chance[:, None]


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
