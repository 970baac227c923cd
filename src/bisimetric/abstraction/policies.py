"""The best policy of a small model, played in the large one, and its certified loss there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from .. import certificates
from ..aggregation import label_table
from ..certificates import Certificate
from ..cluster.backups import backed_up
from ..cluster.crew import crew_of
from ..kinds import Floats, Ints
from ..model import MDP
from ..model.parts import ModelParts
from ..values import best_values, greedy, optimal_backup, policy_values
from .rooms import Rooms

_SHARE = 0.01  # of a certificate that the error of values may be, where they are iterated
_SWEEPS = 2000


def carried(model: MDP, small: MDP, class_of: Ints) -> tuple[Floats, int]:
    """(The best policy of the small model, played by all states of a class, per choice [N]; how many states cannot).

    Where there are more sets of actions than classes, some states have none of the actions that their class plays.
    These play all of theirs alike.
    """
    best, states = greedy(small, best_values(small)[0]), model.state_of_choice
    chosen = label_table(small)[class_of[states], model.action_of_choice]
    weights = np.where(chosen >= 0, best[chosen], 0.0)
    total = np.add.reduceat(weights, model.choice_ptr[:-1])
    alone = total == 0.0
    played = weights / np.where(alone, 1.0, total)[states]
    return np.where(alone[states], model.uniform_policy(), played), int(alone.sum())


def certified_loss(model: MDP, policy: Floats) -> Certificate:
    """How far the values of a policy are from the best, at most: by its own values and their Bellman residual."""
    V, error = policy_values(model.under_checked(policy), np.zeros(model.n_states))
    residual = certificates.bellman_residual(V, optimal_backup(model, V), gamma=model.gamma, value_error=error)
    anything = certificates.trivial(gamma=model.gamma, scale=model.reward_span, value_error=2.0 * error)
    return certificates.best(residual, anything)


def carried_in_parts(parts: ModelParts, small: MDP, class_of: Ints, rooms: Rooms) -> tuple[Floats, int, Certificate]:
    """(`carried`, and `certified_loss`) of a model that workers read in parts.

    Values are iterated from those of the small model: V becomes T_π V until its error, ‖T_π V − V‖∞/(1−γ) (see
    `certificates.evaluation_residual`), is a small share of the bound. Cost: a pass over the model for each turn.
    """
    values, table = best_values(small)[0], label_table(small)
    best = greedy(small, values)
    play = np.where(table >= 0, best[table], 0.0)
    V, gamma = values[class_of], parts.gamma
    with crew_of(rooms.cluster) as crew, tempfile.TemporaryDirectory(dir=rooms.folder) as folder:
        for _ in range(_SWEEPS):
            step = backed_up(crew, parts, Path(folder), play, class_of, V)
            off = certificates.evaluation_residual(V, step.played, gamma=gamma).error
            residual = certificates.bellman_residual(V, step.best, gamma=gamma, value_error=off)
            if (1.0 + gamma) * off / (1.0 - gamma) <= _SHARE * residual.error:
                break
            V = step.played
    low, high = step.reward_range
    anything = certificates.trivial(gamma=gamma, scale=high - low, value_error=2.0 * off)
    return step.policy, step.alone, certificates.best(residual, anything)
