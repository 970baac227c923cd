"""Q-learning on an encoder that a metric loss shapes; it acts by a conservative mixture of greedy policies.

    Q(x, a) = head(φ(x))_a,  regressed onto  r + γ max_b Q̄(x', b),  φ̄ and the target head being slow copies;
    loss = TD error (Huber) + metric_weight · metric loss on the same minibatch.

With `improvement=SnapshotMixture(alpha, …)` the policy that acts is the paper's (1 − α)π + απ_g, renewed every `period`
updates; without, it is greedy (with exploration). Learning Q does not depend on who acts; the metric does: it is that
of the policy whose transitions are in the replay.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..targets import MovingAverage
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


class QLearner:
    """A small Q-learner for discrete actions; see the module."""

    def __init__(
        self,
        n_inputs: int,
        n_actions: int,
        settings: AgentSettings,
        *,
        metric: Any = None,
        task: Callable[[torch.Generator], nn.Module] | None = None,
        improvement: Any = None,
        period: int = 100,
    ) -> None:
        """Make networks for so many inputs and actions.

        Args:
            n_inputs, n_actions: sizes of observations and of the set of actions.
            settings: see `AgentSettings`.
            metric: a `MetricLoss` (or a published loss) beside the TD loss; None for none.
            task: another loss in its place, made from the agent's generator: called as `MetricTask` is.
            improvement: a `SnapshotMixture` over greedy policies that acts; None for the greedy policy.
            period: updates between two improvements.
        """
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
        self.improvement, self.period = improvement, period
        self.updates = 0
        trained = [self.encoder, self.head] + ([] if self.task is None else [self.task])
        self.optimiser = torch.optim.Adam([p for part in trained for p in part.parameters()], lr=settings.rate)

    @torch.no_grad()
    def probabilities(self, observation: Tensor) -> Tensor:
        """The policy that acts, without exploration [B, A]."""
        if self.improvement is not None:
            out: Tensor = self.improvement(observation)
            return out
        return self.greedy()(observation)

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
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.slow_encoder.update()
        self.slow_head.update()
        self.updates += 1
        if self.improvement is not None and self.updates % self.period == 0:
            self.improvement.update(Greedy(copy.deepcopy(self.encoder), copy.deepcopy(self.head)))
        return said
