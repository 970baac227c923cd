"""The best policy of a small model, played in the large one, and its certified loss there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from .. import certificates
from ..aggregation import label_table
from ..certificates import Certificate
from ..cluster.backups import Passes
from ..cluster.crew import crew_of
from ..cluster.store import Store
from ..kinds import Floats, Ints
from ..metric.evaluation import least_combination
from ..model import MDP
from ..model.parts import ModelParts
from ..values import best_values, certified_loss, greedy, policy_values
from .rooms import Rooms

_SHARE, _FINE = 0.01, 1e-7  # of a bound, and of the largest one, that what is not known of values may add to it
_FEW = 2.0  # errors of rounding that are as good as one
TURNS, _LAST = 2000, 5  # passes at most, and how many images there are beside the last one


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


def loss_of(model: MDP, policy: Floats) -> Certificate:
    """How far the values of a policy are from the best, at most: by its own values and their Bellman residual."""
    return certified_loss(model, *policy_values(model.under_checked(policy), np.zeros(model.n_states)))


def carried_in_parts(
    parts: ModelParts, small: MDP, class_of: Ints, rooms: Rooms, turns: int
) -> tuple[Floats, int, Certificate]:
    """(`carried`, and `loss_of`) of a model that workers read in parts.

    Values are iterated from those of the small model: V becomes the combination of the last images T_π V whose change
    T_π V − V is least in mean square (Anderson). The error of V is at most ‖T_π V − V‖∞/(1−γ), and the Bellman
    residual of any V whose error is known bounds the loss. What is left is the best bound of all turns, also where
    Ctrl-C ends them. Rounding is counted: a backup is off by r = (2n + 8) ε (max |R| + max |V|) at most, with n the
    most successors or choices. Cost: a pass over the model for each turn, and 2·6 numbers a state.
    """
    values, table = best_values(small)[0], label_table(small)
    best = greedy(small, values)
    play = np.where(table >= 0, best[table], 0.0)
    V, gamma = values[class_of], parts.gamma
    images: list[Floats] = []
    changes: list[Floats] = []
    with crew_of(rooms.cluster) as crew, tempfile.TemporaryDirectory(dir=rooms.folder) as folder:
        crew.check(Store(folder))
        passes = Passes(crew, parts, Path(folder), play, class_of)
        low, high = passes.reward_range
        bounds = [certificates.trivial(gamma=gamma, scale=high - low)]
        try:
            for _ in range(turns):
                best_of_all, played = passes.backed_up(V)
                rounding = passes.rounding(V)
                images, changes = [*images[-_LAST:], played], [*changes[-_LAST:], played - V]
                error = (float(np.abs(changes[-1]).max()) + rounding) / (1.0 - gamma)
                residual = certificates.bellman_residual(V, best_of_all + rounding, gamma=gamma, value_error=error)
                bounds.append(residual)
                off = (1.0 + gamma) * error / (1.0 - gamma)
                known = error * (1.0 - gamma) <= _FEW * rounding
                if known or off <= max(_SHARE * residual.error, _FINE * bounds[0].error):
                    break
                gram = np.array([[one @ other for other in changes] for one in changes])
                weights = least_combination(gram, len(changes) - 1)
                V = np.asarray(sum(weight * image for weight, image in zip(weights, images, strict=True)))
        except KeyboardInterrupt:
            pass  # any turn's bound is true
    return passes.policy, passes.alone, certificates.best(*bounds)
