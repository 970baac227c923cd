"""Q-learning on an encoder that a metric loss shapes; it acts by a conservative mixture of greedy policies.

    Q(x, a) = head(φ(x))_a,  regressed onto  r + γ max_b Q̄(x', b),  φ̄ and the target head being slow copies;
    loss = TD error (Huber) + metric_weight · metric loss on the same minibatch.

With `alpha` the policy that acts is a `SnapshotMixture`, the paper's (1 − α)π + απ_g, from the uniform policy on and
renewed every `period` updates; without, it is greedy (with exploration). Learning Q does not depend on who acts; the
metric does: it is that of the policy whose transitions are in the replay.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...checks import check_whole
from ..published import Loss
from ..targets import MovingAverage
from ..updates import SnapshotMixture
from .auxiliary import MetricTask
from .networks import AgentSettings, Encoder, mlp
from .replay import Experience

Scalars = dict[str, float]


class Greedy(nn.Module):
    """The greedy policy of an encoder and its head: probabilities [B, A] from observations [B, n]."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    @torch.no_grad()
    def forward(self, observation: Tensor) -> Tensor:
        q = self.head(self.encoder(observation))
        return nn.functional.one_hot(q.argmax(dim=-1), q.shape[-1]).to(q)


class Uniform(nn.Module):
    """All actions alike: probabilities [B, A]."""

    def __init__(self, n_actions: int) -> None:
        super().__init__()
        self.n_actions = n_actions

    def forward(self, observation: Tensor) -> Tensor:
        return observation.new_full((len(observation), self.n_actions), 1.0 / self.n_actions)


class QLearner:
    """A small Q-learner for discrete actions; see the module."""

    def __init__(
        self,
        n_inputs: int,
        n_actions: int,
        settings: AgentSettings,
        *,
        metric: Loss | None = None,
        task: Callable[[torch.Generator], nn.Module] | None = None,
        alpha: float | None = None,
        keep: int = 50,
        period: int = 100,
    ) -> None:
        """Make networks for so many inputs and actions.

        Args:
            n_inputs, n_actions: sizes of observations and of the set of actions.
            settings: see `AgentSettings`.
            metric: a `MetricLoss` (or a published loss) beside the TD loss; None for none.
            task: another loss in its place, made from the agent's generator: called as `MetricTask` is.
            alpha: share of the greedy policy in an improvement of the policy that acts; None to act greedily.
            keep: greedy policies in the mixture; older ones are dropped, see `SnapshotMixture.tv_dropped`.
            period: updates between two improvements.
        """
        if check_whole("period", period) < 1:
            raise ValueError(f"period must be at least 1; got {period}.")
        if n_actions < 2:
            raise ValueError(f"n_actions: needs at least two actions; got {n_actions}.")
        self.settings, self.n_actions = settings, n_actions
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.encoder = Encoder(n_inputs, settings, self.generator)
        self.head = mlp([settings.dimensions, settings.hidden, n_actions], self.generator)
        self.slow_encoder = MovingAverage(self.encoder, settings.tau)
        self.slow_head = MovingAverage(self.head, settings.tau)
        self.task: nn.Module | None = None
        if task is not None:
            self.task = task(self.generator)
        elif metric is not None:
            self.task = MetricTask(metric, settings.dimensions, self.generator, hidden=settings.hidden)
        self.mixture = None if alpha is None else SnapshotMixture(alpha, Uniform(n_actions), keep=keep)
        self.period, self.updates = period, 0
        trained = [self.encoder, self.head] + ([] if self.task is None else [self.task])
        self.optimiser = torch.optim.Adam([p for part in trained for p in part.parameters()], lr=settings.rate)

    @torch.no_grad()
    def probabilities(self, observation: Tensor) -> Tensor:
        """The policy that acts, without exploration [B, A]."""
        policy = self.greedy() if self.mixture is None else self.mixture
        out: Tensor = policy(observation)
        return out

    def greedy(self) -> Greedy:
        """The greedy policy of the networks as they are; it changes with them."""
        return Greedy(self.encoder, self.head)

    @torch.no_grad()
    def act(self, observation: Tensor, *, explore: bool = True) -> Tensor:
        """Actions [B] for observations [B, n]."""
        probs = self.probabilities(observation)
        if explore:
            share = self.settings.exploration
            probs = (1.0 - share) * probs + share / self.n_actions
        return torch.multinomial(probs, 1, generator=self.generator)[:, 0]

    def update(self, batch: Experience) -> Scalars:
        """One optimiser step on a minibatch; returns scalars for a logger."""
        z = self.encoder(batch.observation)
        z_next = self.slow_encoder(batch.next_observation)
        with torch.no_grad():
            best = self.slow_head(z_next).max(dim=1).values
            target = batch.reward + self.settings.gamma * torch.where(batch.done, torch.zeros_like(best), best)
        q = self.head(z).gather(1, batch.action[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(q, target)
        said = {"td": float(loss.detach())}
        if self.task is not None:
            beside, scalars = self.task(z, self.slow_encoder(batch.observation), batch, z_next)
            loss = loss + self.settings.metric_weight * beside
            said |= {f"metric/{name}": value for name, value in scalars.items()}
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.slow_encoder.update()
        self.slow_head.update()
        self.updates += 1
        if self.mixture is not None and self.updates % self.period == 0:
            self.mixture.update(self.greedy())
            said |= {"tv": self.mixture.tv_step, "tv_dropped": self.mixture.tv_dropped}
        return said
