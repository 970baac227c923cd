"""TorchRL: a LossModule for the distances of an encoder, to be added to an agent's own loss.

    metric_loss = MetricLossModule(encoder, mico(0.99))
    updater = SoftUpdate(metric_loss, tau=0.005)
    losses = metric_loss(batch)                      # a TensorDict: loss_metric, and scalars for a logger
    (dqn_loss(batch)["loss"] + 0.5 * losses["loss_metric"]).backward()

The encoder is the one that the value network uses. Transitions are TorchRL's: "observation", ("next", "observation"),
("next", "reward"), ("next", "terminated"); other names by `set_keys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.objectives import LossModule

from ..agents.auxiliary import MetricTask
from ..agents.replay import Experience
from ..published import Loss

_SCALARS = ("spread", "collapse", "explosion", "bias")


class MetricLossModule(LossModule):
    """A metric loss on transitions in a TensorDict; see the module.

    Its `loss_metric` has gradients to the encoder's parameters (and to the latent model's, where the coupling needs
    one). Targets are by a copy of the encoder that TorchRL's `SoftUpdate` or `HardUpdate` move.
    """

    @dataclass
    class _AcceptedKeys:
        observation: Any = "observation"
        action: Any = "action"
        reward: Any = "reward"
        terminated: Any = "terminated"

    default_keys = _AcceptedKeys
    encoder_network: TensorDictModule
    encoder_network_params: Any
    target_encoder_network_params: Any

    def __init__(self, encoder: nn.Module, metric: Loss, *, dimensions: int, seed: int = 0) -> None:
        """Make the loss.

        Args:
            encoder: an nn.Module from observations [B, …] to embeddings [B, dimensions].
            metric: a `MetricLoss` or a published loss.
            dimensions: of embeddings.
            seed: of what is drawn (pairs, particles, the latent model's first weights).
        """
        super().__init__()
        self._in_keys: Any = None
        module = TensorDictModule(encoder, in_keys=["in"], out_keys=["z"])
        self.convert_to_functional(module, "encoder_network", create_target_params=True)
        self.task = MetricTask(metric, dimensions, torch.Generator().manual_seed(seed))

    def _forward_value_estimator_keys(self, **kwargs: Any) -> None:
        """There is no value estimator."""

    @property
    def in_keys(self) -> list[Any]:
        """What a batch must have."""
        keys = self.tensor_keys
        following = [("next", key) for key in (keys.observation, keys.reward, keys.terminated)]
        return [keys.observation, *following]

    @in_keys.setter
    def in_keys(self, values: list[Any]) -> None:
        self._in_keys = values

    @property
    def out_keys(self) -> list[str]:
        """What comes out."""
        return ["loss_metric", *_SCALARS]

    @out_keys.setter
    def out_keys(self, values: list[str]) -> None:
        if list(values) != self.out_keys:
            raise ValueError(f"out_keys are {self.out_keys}, and cannot be changed to {list(values)}.")

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """The loss of a batch of transitions, flattened where it has several batch dimensions."""
        batch, keys = tensordict.reshape(-1), self.tensor_keys
        missing = [key for key in self.in_keys if key not in batch.keys(include_nested=True)]
        if missing:
            raise KeyError(f"the batch has no {missing[0]!r}; name it with set_keys(…).")
        observation, following = batch[keys.observation], batch["next", keys.observation]
        z = self._encode(observation, self.encoder_network_params)
        with torch.no_grad():
            z_target = self._encode(observation, self.target_encoder_network_params)
            z_next = self._encode(following, self.target_encoder_network_params)
        reward = batch["next", keys.reward].reshape(-1)
        done = batch["next", keys.terminated].reshape(-1)
        experience = Experience(observation, torch.zeros_like(reward).long(), reward, following, done)
        loss, said = self.task(z, z_target, experience, z_next)
        scalars = {name: torch.tensor(said[name]) for name in _SCALARS}
        return TensorDict({"loss_metric": loss, **scalars}, batch_size=[])

    def _encode(self, observation: torch.Tensor, parameters: Any) -> torch.Tensor:
        with parameters.to_module(self.encoder_network):
            out: torch.Tensor = self.encoder_network(TensorDict({"in": observation}, batch_size=[len(observation)]))[
                "z"
            ]
        return out
