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
from ..learn import CategoricalNext, TransitionRows
from ..learn.agents.auxiliary import LatentModel
from ..learn.agents.networks import mlp
from ..learn.gaussian import GaussianW2
from ..learn.nexts import Next
from ..learn.published import Loss, PublishedDBC
from ..model import MDP, Chain

DIMENSIONS = 32
HIDDEN = 64
FEATURES = 16
RATES = {"table": 1e-2, "network": 3e-3}  # of Adam at first; they fall to a hundredth by a cosine
START = 0.01  # deviation of the first embeddings of a table, for norms
START_ANGLES = 0.1  # for other heads, for which the origin is a saddle
BATCH = 64


def encoder_of(kind: str, n_states: int, seed: int, start: float = START) -> nn.Module:
    """A module that gives the embeddings of all states [S, DIMENSIONS], in float64.

    "table": a vector of its own for each state. "network": a small network on random features of the states [S, 16],
    which it sees instead of their numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    if kind == "table":
        return _Table(start * torch.randn(n_states, DIMENSIONS, generator=generator, dtype=torch.float64))
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
        self.layers = mlp([FEATURES, HIDDEN, HIDDEN, DIMENSIONS], generator, torch.float64)

    def forward(self) -> Tensor:
        out: Tensor = self.layers(self.features)
        return out


class Schedule:
    """Adam whose rate falls by a cosine to a hundredth over so many steps; it stays for 0 steps."""

    def __init__(self, parameters: Iterator[nn.Parameter], steps: int, rate: float) -> None:
        self.optimiser = torch.optim.Adam(parameters, lr=rate)
        self._rate, self._steps, self._done = rate, steps, 0

    def step(self, loss: Tensor) -> None:
        share = 0.5 * (1.0 + math.cos(math.pi * min(self._done / self._steps, 1.0))) if self._steps else 1.0
        for group in self.optimiser.param_groups:
            group["lr"] = self._rate * (0.01 + 0.99 * share)
        self._done += 1
        self.optimiser.zero_grad()
        loss.backward()
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
        reward = torch.tensor(np.asarray(chain.rewards, np.float64))
        return cls(reward, TransitionRows.of(chain), torch.zeros(len(reward), dtype=torch.bool))

    def next(self, z: Tensor, particles: int, generator: torch.Generator) -> Next:
        """The next states: their probabilities, or so many samples of each state's."""
        if not particles:
            return CategoricalNext(self.rows, z)
        return z[torch.multinomial(self.rows.probs, particles, replacement=True, generator=generator)]


def learn_exactly(
    loss: Loss,
    encoder: Callable[[], Tensor],
    batch: ExactBatch,
    schedule: Schedule,
    steps: int,
    *,
    particles: int = 0,
    generator: torch.Generator | None = None,
    watch: Callable[[int, Tensor], None] | None = None,
) -> None:
    """Optimiser steps on all pairs of states of a known chain; `watch` sees the embeddings after each.

    particles: samples of each state's next states that the loss is told of, 0 for their probabilities.
    """
    drawing = torch.Generator().manual_seed(0) if generator is None else generator
    for k in range(steps):
        z = encoder()
        following = batch.next(z.detach(), particles, drawing)
        schedule.step(loss(z, None, batch.reward, following, batch.done, generator=drawing)[0])
        if watch is not None:
            watch(k, encoder().detach())


# ---- from samples ----


class Transitions(NamedTuple):
    """Sampled transitions under a policy: state, action (its number in the state), reward, next state, each [N]."""

    state: Ints
    action: Ints
    reward: Floats
    following: Ints


def sample(mdp: MDP, policy: Floats, count: int, seed: int) -> Transitions:
    """Transitions from states drawn uniformly, with actions of the policy."""
    rng = np.random.default_rng([seed, count])
    state = rng.integers(mdp.n_states, size=count)
    action = _draw(rng, _by_state(mdp, policy)[state])
    choice = action + np.asarray(mdp.choice_ptr)[state]
    P = np.asarray(mdp.rows.matrix().toarray())
    following = _draw(rng, P[choice])
    return Transitions(state, action, np.asarray(mdp.rewards, np.float64)[choice], following)


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
    return np.asarray(np.minimum((u[:, None] > levels).sum(axis=1), probs.shape[1] - 1), np.int64)


def estimated(transitions: Transitions, n_states: int, gamma: float) -> Chain:
    """The chain of observed frequencies and mean rewards; a state that was never left stays where it is."""
    counts = np.zeros((n_states, n_states))
    np.add.at(counts, (transitions.state, transitions.following), 1.0)
    seen = counts.sum(axis=1)
    rewards = np.bincount(transitions.state, transitions.reward, n_states) / np.maximum(seen, 1.0)
    unseen = np.flatnonzero(seen == 0.0)
    counts[unseen, unseen] = 1.0
    return Chain.from_arrays(counts / counts.sum(axis=1, keepdims=True), rewards, gamma)


def learn_from_samples(
    loss: Loss,
    encoder: nn.Module,
    transitions: Transitions,
    schedule: Schedule,
    steps: int,
    seed: int,
) -> None:
    """Optimiser steps on minibatches of transitions; a Gaussian is learned beside where the coupling wants one."""
    generator = torch.Generator().manual_seed(seed)
    gaussian = isinstance(getattr(loss, "coupling", None), GaussianW2) or isinstance(loss, PublishedDBC)
    state, following = torch.as_tensor(transitions.state), torch.as_tensor(transitions.following)
    reward = torch.as_tensor(transitions.reward)
    model = LatentModel(DIMENSIONS, HIDDEN, generator, torch.float64) if gaussian else None
    beside = None if model is None else Schedule(model.parameters(), steps, 5e-3)
    done = torch.zeros(BATCH, dtype=torch.bool)
    for _ in range(steps):
        drawn = torch.randint(len(state), (BATCH,), generator=generator)
        embeddings = encoder()
        z, coming = embeddings[state[drawn]], embeddings.detach()[following[drawn]]
        told: Next = coming
        if model is not None and beside is not None:
            beside.step(model.loss(z.detach(), coming, done))
            with torch.no_grad():
                told = model(z.detach())
        schedule.step(loss(z, None, reward[drawn], told, done, generator=generator)[0])
