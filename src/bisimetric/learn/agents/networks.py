"""Networks of the agents, and their settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ...checks import check_number


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """What both agents share.

    Attributes:
        gamma: discount.
        dimensions: of embeddings.
        hidden: width of the encoder's two hidden layers.
        layer_norm: whether embeddings are normalised by a LayerNorm.
        rate: of Adam.
        batch: transitions of an update.
        tau: share of the online weights that goes into the target copy with each update.
        metric_weight: of the metric loss beside the agent's own.
        exploration: share of uniform actions while learning.
        seed: of the weights, the actions and the minibatches.
    """

    gamma: float = 0.99
    dimensions: int = 32
    hidden: int = 64
    layer_norm: bool = False
    rate: float = 1e-3
    batch: int = 128
    tau: float = 0.01
    metric_weight: float = 0.5
    exploration: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high in (("gamma", 0.0, 1.0), ("tau", 0.0, 1.0), ("exploration", 0.0, 1.0)):
            if not low <= check_number(name, getattr(self, name)) <= high:
                raise ValueError(f"{name} must be in [{low:g}, {high:g}]; got {getattr(self, name)}.")
        for name in ("dimensions", "hidden", "batch"):
            least = 2 if name == "batch" else 1
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise ValueError(f"{name} must be a whole number, at least {least}; got {getattr(self, name)!r}.")
        rate, weight = check_number("rate", self.rate), check_number("metric_weight", self.metric_weight)
        if not 0.0 < rate < math.inf or not 0.0 <= weight < math.inf:
            raise ValueError(
                f"rate must be positive and metric_weight not negative, both finite; got {rate}, {weight}."
            )


class Encoder(nn.Module):
    """Observations [B, inputs] to embeddings [B, dimensions], by two hidden layers."""

    def __init__(self, n_inputs: int, settings: AgentSettings, generator: torch.Generator) -> None:
        super().__init__()
        layers: list[nn.Module] = [mlp([n_inputs, settings.hidden, settings.hidden, settings.dimensions], generator)]
        if settings.layer_norm:
            layers.append(nn.LayerNorm(settings.dimensions))
        self.layers = nn.Sequential(*layers)

    def forward(self, observation: Tensor) -> Tensor:
        out: Tensor = self.layers(observation)
        return out


def mlp(sizes: list[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Linear layers with ReLU between them, drawn by a generator of their own."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layer = nn.Linear(fan_in, fan_out, dtype=dtype)
        bound = 1.0 / math.sqrt(fan_in)
        with torch.no_grad():
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
