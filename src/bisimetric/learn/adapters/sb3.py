"""Stable-Baselines3: a DQN whose features obey a metric loss.

    model = MetricDQN("MlpPolicy", env, metric=mico(0.99), policy_kwargs=encoder_kwargs(dimensions=32))
    model.learn(10_000)

After each of DQN's own training calls, as many steps of the metric loss are taken on minibatches of the same replay
buffer, by an optimiser of their own over the features extractor: Adam, whose steps do not depend on the scale of a
loss, so that `metric_weight` is a factor of its learning rate. Targets are by the target network's extractor. What the
loss says is logged under metric/. What is learned beside the network (a latent model, the place of the end) and the
optimiser's state are saved and loaded with the model.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from ...checks import check_number
from ..agents.auxiliary import MetricTask
from ..agents.networks import AgentSettings, Encoder
from ..agents.replay import Experience
from ..published import Loss


class EncoderExtractor(BaseFeaturesExtractor):
    """A features extractor that learns: flattened observations to embeddings, by two hidden layers."""

    def __init__(self, observation_space: Any, dimensions: int = 32, hidden: int = 64) -> None:
        super().__init__(observation_space, dimensions)
        from stable_baselines3.common.preprocessing import get_flattened_obs_dim

        generator = torch.Generator().manual_seed(torch.initial_seed())
        settings = AgentSettings(dimensions=dimensions, hidden=hidden)
        self.encoder = Encoder(get_flattened_obs_dim(observation_space), settings, generator)

    def forward(self, observations: Tensor) -> Tensor:
        """Embeddings [B, dimensions]."""
        out: Tensor = self.encoder(observations.flatten(1))
        return out


def encoder_kwargs(dimensions: int = 32, hidden: int = 64) -> dict[str, Any]:
    """The policy_kwargs that give a policy a features extractor which a metric loss can train."""
    sizes = {"dimensions": dimensions, "hidden": hidden}
    return {"features_extractor_class": EncoderExtractor, "features_extractor_kwargs": sizes}


class MetricDQN(DQN):
    """DQN with a metric loss on its features; all of DQN's arguments, and two more (see the module).

    Rewards are those of the replay buffer, and time limits are no ends (as SB3's buffer has it).
    """

    def __init__(
        self, policy: Any, env: Any, *args: Any, metric: Loss | None = None, metric_weight: float = 0.5, **kwargs: Any
    ) -> None:
        """Make a DQN.

        Args:
            policy, env, args, kwargs: DQN's.
            metric: a `MetricLoss` (or a published loss) for the features; None only where a saved model is loaded.
            metric_weight: how large the metric loss's steps are, as a factor of DQN's learning rate; 0 for none.
        """
        if not 0.0 <= check_number("metric_weight", metric_weight) < math.inf:
            raise ValueError(f"metric_weight must be finite and not negative; got {metric_weight}.")
        self.metric, self.metric_weight = metric, metric_weight
        super().__init__(policy, env, *args, **kwargs)

    def _setup_model(self) -> None:
        super()._setup_model()
        extractor = self.policy.q_net.features_extractor
        if self.metric is None:
            return
        if not any(p.requires_grad for p in extractor.parameters()):
            raise ValueError(
                f"policy_kwargs: the features extractor {type(extractor).__name__} has nothing to learn; "
                "use policy_kwargs=encoder_kwargs(), or an extractor of your own with parameters."
            )
        steps, weight = getattr(self, "n_steps", 1), self.metric.transition_weight
        if steps > 1 and abs(weight - self.gamma**steps) > 1e-9:
            raise ValueError(
                f"metric: transitions of n_steps={steps} are discounted by gamma**{steps} = {self.gamma**steps:.6g}, "
                f"and the loss has transition_weight={weight:g}; make it with gamma**{steps}."
            )
        generator = torch.Generator().manual_seed(0 if self.seed is None else self.seed)
        self.metric_task = MetricTask(self.metric, extractor.features_dim, generator).to(self.device)
        beside = list(self.metric_task.parameters())
        groups = [{"params": list(extractor.parameters())}, *([{"params": beside}] if beside else [])]
        self.metric_optimizer = torch.optim.Adam(groups)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """DQN's updates, and as many of the metric loss."""
        super().train(gradient_steps, batch_size)
        if self.metric is None or not self.metric_weight:
            return
        said: dict[str, float] = {}
        rate = self.lr_schedule(self._current_progress_remaining)
        for group, factor in zip(self.metric_optimizer.param_groups, (self.metric_weight, 1.0), strict=False):
            group["lr"] = factor * rate
        for _ in range(gradient_steps):
            said = self._metric_step(batch_size)
        for name, value in said.items():
            self.logger.record(f"metric/{name}", value)

    def _metric_step(self, batch_size: int) -> dict[str, float]:
        drawn = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
        batch = Experience(
            drawn.observations,
            drawn.actions[:, 0],
            drawn.rewards[:, 0],
            drawn.next_observations,
            drawn.dones[:, 0].bool(),
        )
        online, slow = self.policy.q_net, self.policy.q_net_target
        z = online.extract_features(batch.observation, online.features_extractor)
        with torch.no_grad():
            z_target = slow.extract_features(batch.observation, slow.features_extractor)
            z_next = slow.extract_features(batch.next_observation, slow.features_extractor)
        loss, said = self.metric_task(z, z_target, batch, z_next)
        self.metric_optimizer.zero_grad()
        loss.backward()
        self.metric_optimizer.step()
        return said

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "metric_task", "metric_optimizer"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names, variables = super()._get_torch_save_params()
        return ([*names, "metric_task", "metric_optimizer"] if self.metric is not None else names), variables
