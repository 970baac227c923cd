"""Episodes of a Gymnasium environment with discrete actions, for both agents.

Observations are flattened to vectors of float32; numbers of states (a `Discrete` space) to unit vectors. Episodes that
reach a time limit go on in what is learned: only `terminated` is `done`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .replay import Replay

if TYPE_CHECKING:
    from .actor_critic import ActorCritic
    from .q_learner import QLearner

Report = Callable[[int, dict[str, float]], None]


def sizes(env: Any) -> tuple[int, int]:
    """(inputs, actions) of an environment; refuses actions that are not discrete."""
    from gymnasium import spaces

    if not isinstance(env.action_space, spaces.Discrete) or env.action_space.start != 0:
        raise ValueError(
            "env: needs discrete actions 0 to A − 1, because policies are mixed action by action; got "
            f"{env.action_space}. Discretise the actions, or use the losses alone with an agent for continuous ones."
        )
    return int(spaces.flatdim(env.observation_space)), int(env.action_space.n)


def steps(env: Any, act: Callable[[torch.Tensor], torch.Tensor], seed: int) -> Iterator[tuple[Any, ...]]:
    """Endless transitions: observation, action, reward, next, done, and the return where an episode ended (or None)."""
    from gymnasium import spaces

    def vector(observation: Any) -> np.ndarray:
        return np.asarray(spaces.flatten(env.observation_space, observation), np.float32)

    observation, total = vector(env.reset(seed=seed)[0]), 0.0
    while True:
        action = int(act(torch.from_numpy(observation)[None])[0])
        following, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        ended = bool(terminated or truncated)
        yield observation, action, float(reward), vector(following), bool(terminated), total if ended else None
        observation = vector(env.reset()[0]) if ended else vector(following)
        total = 0.0 if ended else total


def train_q_learner(
    agent: QLearner, env: Any, n_steps: int, *, capacity: int = 50_000, start: int = 500, report: Report | None = None
) -> list[float]:
    """Act and update once a step, after `start` steps; returns the returns of the episodes that ended."""
    replay, returns = Replay(capacity, sizes(env)[0]), []
    for k, (*transition, total) in zip(range(n_steps), steps(env, agent.act, agent.settings.seed), strict=False):
        replay.add(*transition)
        if total is not None:
            returns.append(float(total))
        if k >= start:
            said = agent.update(replay.sample(agent.settings.batch, agent.generator))
            if report is not None:
                report(k, said)
    return returns


def train_actor_critic(
    agent: ActorCritic, env: Any, iterations: int, *, steps_each: int = 1_000, report: Report | None = None
) -> list[float]:
    """Collect transitions of the policy, then improve it; returns the returns of the episodes that ended."""
    returns = []
    coming = steps(env, agent.act, agent.settings.seed)
    for k in range(iterations):
        seen = Replay(steps_each, sizes(env)[0])
        for *transition, total in (next(coming) for _ in range(steps_each)):
            seen.add(*transition)
            if total is not None:
                returns.append(float(total))
        said = agent.improve(seen.all())
        if report is not None:
            report(k, said)
    return returns
