"""Two small agents for discrete actions that show how the pieces are used: not more than that.

networks      encoder, heads, target copies
auxiliary     a `MetricLoss` beside an agent's own loss: what is next, how it is weighed
replay        transitions of the past
q_learner     Q-learning with an encoder; acts by a mixture of greedy snapshots
actor_critic  a critic on an encoder, an actor distilled onto mirror steps
rollouts      episodes of a Gymnasium environment
"""

from __future__ import annotations

from .actor_critic import ActorCritic
from .auxiliary import LatentModel, MetricTask, SelfPrediction
from .networks import AgentSettings, Encoder
from .q_learner import QLearner
from .replay import Experience, Replay
from .rollouts import sizes, train_actor_critic, train_q_learner

__all__ = [
    "ActorCritic",
    "AgentSettings",
    "Encoder",
    "Experience",
    "LatentModel",
    "MetricTask",
    "QLearner",
    "Replay",
    "SelfPrediction",
    "sizes",
    "train_actor_critic",
    "train_q_learner",
]
