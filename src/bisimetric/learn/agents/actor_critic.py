"""An actor-critic with conservative updates: a critic on an encoder that a metric loss shapes, a distilled actor.

An iteration, on transitions of π_k:

    critic   Q(x, a) onto r + γ Σ_b π_k(b|x') Q̄(x', b)  +  metric_weight · metric loss of π_k   (some epochs)
    target   π'(a|x) ∝ π_k(a|x) exp(η Q(x, a)), with ‖π'(·|x) − π_k(·|x)‖_TV ≤ α in every state (`MirrorStep`)
    actor    trained onto π' on the observations that were seen; how far it is from π_k there is measured and reported

so that the metric, the critic and the policy move together, as slowly as α says.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..mirror import MirrorStep
from ..published import Loss
from ..targets import MovingAverage
from ..updates import total_variation
from .auxiliary import MetricTask
from .networks import AgentSettings, Encoder, mlp
from .replay import Experience

Scalars = dict[str, float]


class ActorCritic:
    """A small actor-critic for discrete actions; see the module."""

    def __init__(
        self,
        n_inputs: int,
        n_actions: int,
        settings: AgentSettings,
        *,
        improvement: MirrorStep,
        metric: Loss | None = None,
        critic_updates: int = 100,
        actor_updates: int = 50,
    ) -> None:
        """Make networks for so many inputs and actions.

        Args:
            n_inputs, n_actions: sizes of observations and of the set of actions.
            settings: see `AgentSettings`.
            improvement: how far a step goes, `MirrorStep(max_tv)`.
            metric: a `MetricLoss` (or a published loss) beside the critic's; None for none.
            critic_updates, actor_updates: optimiser steps of an iteration.
        """
        if n_actions < 2:
            raise ValueError(f"n_actions: needs at least two actions; got {n_actions}.")
        self.settings, self.n_actions, self.improvement = settings, n_actions, improvement
        self.critic_updates, self.actor_updates = critic_updates, actor_updates
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.encoder = Encoder(n_inputs, settings, self.generator)
        self.critic = mlp([settings.dimensions, settings.hidden, n_actions], self.generator)
        self.actor = mlp([n_inputs, settings.hidden, settings.hidden, n_actions], self.generator)
        self.slow_encoder = MovingAverage(self.encoder, settings.tau)
        self.slow_critic = MovingAverage(self.critic, settings.tau)
        self.task = None if metric is None else MetricTask(metric, settings.dimensions, self.generator)
        trained = [self.encoder, self.critic] + ([] if self.task is None else [self.task])
        self._critic_step = torch.optim.Adam([p for part in trained for p in part.parameters()], lr=settings.rate)
        self._actor_step = torch.optim.Adam(self.actor.parameters(), lr=settings.rate)

    @torch.no_grad()
    def probabilities(self, observation: Tensor) -> Tensor:
        """The policy, without exploration [B, A]."""
        out: Tensor = self.actor(observation).softmax(dim=-1)
        return out

    @torch.no_grad()
    def act(self, observation: Tensor, *, explore: bool = True) -> Tensor:
        """Actions [B] for observations [B, n]."""
        probs = self.probabilities(observation)
        if explore:
            share = self.settings.exploration
            probs = (1.0 - share) * probs + share / self.n_actions
        return torch.multinomial(probs, 1, generator=self.generator)[:, 0]

    def improve(self, seen: Experience) -> Scalars:
        """One iteration on transitions of the current policy; returns scalars for a logger."""
        said: Scalars = {}
        for _ in range(self.critic_updates):
            said = self._update_critic(self._minibatch(seen))
        with torch.no_grad():
            before = self.probabilities(seen.observation)
            target = self.improvement(before, self.critic(self.encoder(seen.observation))).policy
        for _ in range(self.actor_updates):
            drawn = torch.randint(len(target), (self.settings.batch,), generator=self.generator)
            loss = -(target[drawn] * self.actor(seen.observation[drawn]).log_softmax(dim=-1)).sum(dim=-1).mean()
            self._actor_step.zero_grad()
            loss.backward()
            self._actor_step.step()
        after = self.probabilities(seen.observation)
        moved, asked = total_variation(after, before), total_variation(target, before)
        return said | {"tv": float(moved.max()), "tv_mean": float(moved.mean()), "tv_asked": float(asked.max())}

    def _minibatch(self, seen: Experience) -> Experience:
        drawn = torch.randint(len(seen.reward), (self.settings.batch,), generator=self.generator)
        return Experience(*(part[drawn] for part in seen))

    def _update_critic(self, batch: Experience) -> Scalars:
        z = self.encoder(batch.observation)
        z_next = self.slow_encoder(batch.next_observation)
        with torch.no_grad():
            value = (self.probabilities(batch.next_observation) * self.slow_critic(z_next)).sum(dim=-1)
            target = batch.reward + self.settings.gamma * torch.where(batch.done, torch.zeros_like(value), value)
        q = self.critic(z).gather(1, batch.action[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(q, target)
        said = {"td": float(loss.detach())}
        if self.task is not None:
            beside, scalars = self.task(z, self.slow_encoder(batch.observation), batch, z_next)
            loss = loss + self.settings.metric_weight * beside
            said |= {f"metric/{name}": value for name, value in scalars.items()}
        self._critic_step.zero_grad()
        loss.backward()
        self._critic_step.step()
        self.slow_encoder.update()
        self.slow_critic.update()
        return said
