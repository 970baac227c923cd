"""How encoders of finite models are trained: from the model itself, or from sampled transitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..kinds import Floats, Ints
from ..learn import CategoricalNext, GaussianNext, MetricLoss, TransitionRows
from ..learn.nexts import Next
from ..model import MDP, Chain

DIMENSIONS = 32
HIDDEN = 64
FEATURES = 16
RATE = 2e-2  # of Adam at first; falls to a hundredth by a cosine
BATCH = 64
Needs = str  # what a coupling is told of next states: "rows", "gaussian" or "samples"


def encoder_of(kind: str, n_states: int, seed: int) -> Callable[[], Tensor]:
    """A module that gives the embeddings of all states [S, DIMENSIONS], in float64.

    "table": a vector of its own for each state. "network": a small network on random features of the states [S, 16],
    which it sees instead of their numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    if kind == "table":
        return _Table(0.1 * torch.randn(n_states, DIMENSIONS, generator=generator, dtype=torch.float64))
    return _Network(torch.randn(n_states, FEATURES, generator=generator, dtype=torch.float64), generator)


class _Table(nn.Module):
    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.z = nn.Parameter(start)

    def forward(self) -> Tensor:
        return self.z


class _Network(nn.Module):
    def __init__(self, features: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        self.features = features
        self.layers = mlp([FEATURES, HIDDEN, HIDDEN, DIMENSIONS], generator)

    def forward(self) -> Tensor:
        out: Tensor = self.layers(self.features)
        return out


def mlp(sizes: list[int], generator: torch.Generator) -> nn.Sequential:
    """Linear layers with ReLU between them, in float64, drawn by a generator of their own."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True):
        layer = nn.Linear(fan_in, fan_out, dtype=torch.float64)
        with torch.no_grad():
            bound = 1.0 / math.sqrt(fan_in)
            layer.weight.uniform_(-bound, bound, generator=generator)
            layer.bias.uniform_(-bound, bound, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Schedule:
    """Adam whose rate falls by a cosine to a hundredth over so many steps."""

    def __init__(self, parameters: Iterator[nn.Parameter], steps: int, rate: float = RATE) -> None:
        self.optimiser = torch.optim.Adam(parameters, lr=rate)
        self._rate, self._steps, self._done = rate, max(steps, 1), 0

    def step(self, loss: Tensor) -> None:
        share = 0.5 * (1.0 + math.cos(math.pi * min(self._done / self._steps, 1.0)))
        for group in self.optimiser.param_groups:
            group["lr"] = self._rate * (0.01 + 0.99 * share)
        self._done += 1
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()


# ---- from the model ----


@dataclass(frozen=True)
class ExactBatch:
    """All states of a chain at once, with their mean rewards and their transition probabilities."""

    reward: Tensor  # [S]
    rows: TransitionRows
    done: Tensor  # [S], nothing ends: absorbing states are in the model

    @classmethod
    def of(cls, chain: Chain) -> ExactBatch:
        reward = torch.as_tensor(np.asarray(chain.rewards, np.float64))
        return cls(reward, TransitionRows.of(chain), torch.zeros(len(reward), dtype=torch.bool))

    def next(self, needs: Needs, z: Tensor, particles: int, generator: torch.Generator) -> Next:
        """The next states as a coupling wants them."""
        if needs == "rows":
            return CategoricalNext(self.rows, z)
        P = self.rows.probs
        if needs == "gaussian":
            mean = P @ z
            return GaussianNext(mean, (P @ z.square() - mean.square()).clamp_min(0.0).sqrt())
        drawn = torch.multinomial(P, particles, replacement=True, generator=generator)
        return z[drawn]


def learn_exactly(
    loss: MetricLoss,
    encoder: Callable[[], Tensor],
    batch: ExactBatch,
    schedule: Schedule,
    steps: int,
    *,
    needs: Needs = "rows",
    particles: int = 1,
    generator: torch.Generator | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
) -> None:
    """Optimiser steps on all pairs of states of a known chain; `watch` sees the embeddings after each."""
    drawing = torch.Generator().manual_seed(0) if generator is None else generator
    for k in range(steps):
        z = encoder()
        following = batch.next(needs, z.detach(), particles, drawing)
        schedule.step(loss(z, None, batch.reward, following, batch.done)[0])
        if watch is not None:
            watch(k, encoder().detach())


# ---- from samples ----


class Transitions(NamedTuple):
    """Sampled transitions under a policy: state, reward, next state, each [N]."""

    state: Ints
    reward: Floats
    following: Ints


def sample(mdp: MDP, policy: Floats, count: int, seed: int) -> Transitions:
    """Transitions from states drawn uniformly, with actions of the policy."""
    rng = np.random.default_rng([seed, count])
    state = rng.integers(mdp.n_states, size=count)
    choice = _draw(rng, _by_state(mdp, policy)[state]) + np.asarray(mdp.choice_ptr)[state]
    P = np.asarray(mdp.rows.matrix().toarray())
    following = _draw(rng, P[choice])
    return Transitions(state, np.asarray(mdp.rewards, np.float64)[choice], following)


def _by_state(mdp: MDP, policy: Floats) -> Floats:
    """A policy [N] as a table [S, most actions of a state]."""
    starts = np.asarray(mdp.choice_ptr)
    table = np.zeros((mdp.n_states, int(np.diff(starts).max())))
    owner = np.asarray(mdp.state_of_choice)
    table[owner, np.arange(mdp.n_choices) - starts[owner]] = policy
    return table


def _draw(rng: np.random.Generator, probs: Floats) -> Ints:
    """One index for each row of probabilities."""
    levels = probs.cumsum(axis=1)
    u = rng.random(len(probs)) * levels[:, -1]
    return np.minimum((u[:, None] > levels).sum(axis=1), probs.shape[1] - 1)


def estimated(transitions: Transitions, n_states: int, gamma: float) -> Chain:
    """The chain of observed frequencies and mean rewards; a state that was never left stays where it is."""
    counts = np.zeros((n_states, n_states))
    np.add.at(counts, (transitions.state, transitions.following), 1.0)
    seen = counts.sum(axis=1)
    rewards = np.bincount(transitions.state, transitions.reward, n_states) / np.maximum(seen, 1.0)
    unseen = np.flatnonzero(seen == 0.0)
    counts[unseen, unseen] = 1.0
    return Chain.from_arrays(counts / counts.sum(axis=1, keepdims=True), rewards, gamma)


class LatentModel(nn.Module):
    """A Gaussian over next embeddings, as DBC learns it: mean and deviations by a small network from an embedding."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.layers = mlp([DIMENSIONS, HIDDEN, 2 * DIMENSIONS], generator)

    def forward(self, z: Tensor) -> GaussianNext:
        mean, spread = self.layers(z).chunk(2, dim=-1)
        return GaussianNext(mean, nn.functional.softplus(spread) + 1e-3)

    def loss(self, z: Tensor, following: Tensor) -> Tensor:
        """Negative log-likelihood of observed next embeddings."""
        guess = self(z)
        return (((following - guess.mean) / guess.std).square() * 0.5 + guess.std.log()).mean()


def learn_from_samples(
    loss: MetricLoss,
    encoder: nn.Module,
    transitions: Transitions,
    steps: int,
    seed: int,
    *,
    needs: Needs,
) -> None:
    """Optimiser steps on minibatches of transitions; a Gaussian is learned beside where the coupling wants one."""
    generator = torch.Generator().manual_seed(seed)
    state, following = torch.as_tensor(transitions.state), torch.as_tensor(transitions.following)
    reward = torch.as_tensor(transitions.reward)
    model = LatentModel(generator) if needs == "gaussian" else None
    own = Schedule(encoder.parameters(), steps)
    beside = None if model is None else Schedule(model.parameters(), steps, 5e-3)
    done = torch.zeros(BATCH, dtype=torch.bool)
    for _ in range(steps):
        drawn = torch.randint(len(state), (BATCH,), generator=generator)
        embeddings = encoder()
        z, coming = embeddings[state[drawn]], embeddings.detach()[following[drawn]]
        told: Next = coming
        if model is not None and beside is not None:
            beside.step(model.loss(z.detach(), coming))
            with torch.no_grad():
                told = model(z.detach())
        own.step(loss(z, None, reward[drawn], told, done, generator=generator)[0])
