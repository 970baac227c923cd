"""Distractors: whether metric losses help an agent to see past those that it was not trained with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .. import problems
from ..kinds import Floats, Ints
from ..model import MDP
from ..paper.jobs import Arrays, Whole
from ..paper.table import Cell, Table
from ..policy.batch import Work
from ..values import evaluate, optimal_values
from .models import GAMMA, true_metric
from .observations import Distracted
from .settings import LIGHT, METHODS, METRIC_METHODS, WEIGHT, Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..learn.agents import Experience, QLearner

TITLE = "Distractors: trained with some, tested with others"
CAPTION = (
    "A gridworld of 16 cells seen through 8 loud distractors, noise and a random projection; Q-learning on "
    "transitions of the uniform policy, tested with 8 other distractors. none: the Q loss alone; layernorm: with a "
    "LayerNorm on the embeddings; self-prediction: predict the next embedding; the others: a metric loss of the "
    "uniform policy beside it, weight 0.5 (blue) or 0.05 (orange), not tuned for any (norm: Norm(2) with the Gaussian "
    "coupling that fits it). Left: return of the greedy policy over states and test distractors (0: uniform policy, "
    "1: best). Middle: correlation of the distances of embeddings with d_π over pairs of test observations (Euclidean "
    "where there is no metric loss). Right: share of test observations whose nearest neighbour with another "
    "distractor shows the same state. Bars: standard errors over seeds; hollow: the same with training distractors."
)
QUANTITIES = ("return", "correlation", "neighbours", "train_return", "train_correlation", "train_neighbours", "seconds")
BATCH = 128
VIEWS = 2  # noise draws of each state and distractor


@dataclass(frozen=True)
class DistractorJob:
    """Q-learning from observations with one auxiliary loss, tested on disjoint distractors."""

    method: str
    steps: int
    transitions: int
    seed: int
    weight: ClassVar[float] = WEIGHT
    alone: ClassVar[bool] = False
    on: ClassVar[str | None] = "cpu"

    @property
    def words(self) -> str:
        return f"distractors-{self.method}-s{self.seed}"

    @property
    def cost(self) -> float:
        return 0.004 * self.steps

    def work(self, device: str) -> Work[Arrays]:
        """The run, as one part."""
        return Whole(self, device)

    def run(self, device: str) -> Arrays:
        import time

        import torch

        del device
        torch.set_num_threads(1)
        mdp = room(self.seed)
        seen = Distracted(mdp, self.seed)
        agent = agent_with(self.method, seen, self.seed, self.weight)
        data = experience(seen, self.transitions, self.seed)
        generator = torch.Generator().manual_seed(self.seed)
        began = time.process_time()
        for _ in range(self.steps):
            drawn = torch.randint(self.transitions, (BATCH,), generator=generator)
            agent.update(type(data)(*(part[drawn] for part in data)))
        seconds = time.process_time() - began
        test, train = (self._scores(seen, agent, which) for which in (seen.test, seen.train))
        return {**test, **{f"train_{name}": value for name, value in train.items()}, "seconds": np.array([seconds])}

    def _scores(self, seen: Distracted, agent: QLearner, bank: Ints) -> Arrays:
        """What the agent makes of every state with every distractor of a bank."""
        import torch

        from ..learn import Norm
        from ..learn.agents import MetricTask

        S = seen.mdp.n_states
        state = np.tile(np.repeat(np.arange(S), len(bank)), VIEWS)
        distractor = np.tile(np.tile(bank, S), VIEWS)
        observation = torch.from_numpy(seen.observe(state, distractor, np.random.default_rng([self.seed, 13])))
        head = agent.task.metric.head if isinstance(agent.task, MetricTask) else Norm(2.0)
        with torch.no_grad():
            z = agent.encoder(observation)
            learned = head.distances(z, z).double().numpy()
            action = agent.greedy()(observation).double().numpy()
        policy = np.zeros((S, agent.n_actions))
        np.add.at(policy, state, action)
        policy = (policy / policy.sum(axis=1, keepdims=True)).reshape(-1)
        true = true_metric(seen.mdp.under(seen.mdp.uniform_policy()))[np.ix_(state, state)]
        upper = np.triu_indices(len(state), 1)
        other = distractor[:, None] != distractor[None, :]
        nearest = np.where(other, learned, np.inf).argmin(axis=1)
        return {
            "return": np.array([normalised_return(seen.mdp, policy)]),
            "correlation": np.array([correlation(learned[upper], true[upper])]),
            "neighbours": np.array([float(np.mean(state[nearest] == state))]),
        }


@dataclass(frozen=True)
class LightDistractorJob(DistractorJob):
    """The same with a tenth of the weight."""

    weight: ClassVar[float] = LIGHT

    @property
    def words(self) -> str:
        return f"distractors-light-{self.method}-s{self.seed}"


def room(seed: int) -> MDP:
    return problems.gridworld(width=4, height=4, gamma=GAMMA, seed=seed)


def agent_with(method: str, seen: Distracted, seed: int, weight: float) -> QLearner:
    """A Q-learner with one of the auxiliary losses, or a baseline."""
    from ..learn.agents import AgentSettings, QLearner, SelfPrediction
    from .losses import sampled_loss

    settings = AgentSettings(
        gamma=GAMMA, batch=BATCH, layer_norm=method == "layernorm", tau=0.02, metric_weight=weight, seed=seed
    )
    n_actions = seen.mdp.n_choices // seen.mdp.n_states
    if method == "self-prediction":
        return QLearner(
            seen.n_inputs,
            n_actions,
            settings,
            task=lambda generator: SelfPrediction(settings.dimensions, n_actions, generator),
        )
    metric = sampled_loss(method, GAMMA) if method in METRIC_METHODS else None
    return QLearner(seen.n_inputs, n_actions, settings, metric=metric)


def experience(seen: Distracted, count: int, seed: int) -> Experience:
    """Transitions of the uniform policy, seen with training distractors."""
    import torch

    from ..learn.agents import Experience
    from .training import sample

    mdp = seen.mdp
    drawn = sample(mdp, mdp.uniform_policy(), count, seed)
    rng = np.random.default_rng([seed, 12])
    before, after = (seen.train[rng.integers(seen.n_train, size=count)] for _ in range(2))
    return Experience(
        torch.from_numpy(seen.observe(drawn.state, before, rng)),
        torch.as_tensor(drawn.action),
        torch.as_tensor(drawn.reward).float(),
        torch.from_numpy(seen.observe(drawn.following, after, rng)),
        torch.zeros(count, dtype=torch.bool),
    )


def normalised_return(mdp: MDP, policy: Floats) -> float:
    """Mean value of a policy over states: 0 for the uniform policy, 1 for a best one."""
    own, floor, best = (
        float(np.mean(values.value))
        for values in (evaluate(mdp, policy), evaluate(mdp, mdp.uniform_policy()), optimal_values(mdp))
    )
    return (own - floor) / (best - floor)


def correlation(x: Floats, y: Floats) -> float:
    """Pearson's; 0 where one side is constant."""
    if np.ptp(x) <= 1e-12 or np.ptp(y) <= 1e-12:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def cells(profile: Profile) -> list[Cell]:
    return [
        Cell(
            {"method": method, "weight": kind.weight, "seed": float(seed)},
            kind(method, profile.distractor_steps, profile.distractor_transitions, seed),
        )
        for method in METHODS
        for kind in ((DistractorJob, LightDistractorJob) if method in METRIC_METHODS else (DistractorJob,))
        for seed in profile.all_seeds
    ]


def draw(table: Table, profile: Profile) -> Figure:
    from ..paper import style

    del profile
    figure, axes = style.panels(1, 3, height=2.4)
    titles = ("return, unseen distractors", r"correlation with $d_\pi$", "nearest neighbour right")
    for axis, quantity, title in zip(axes[0], QUANTITIES[:3], titles, strict=True):
        for place, method in enumerate(METHODS):
            for weight, colour in ((LIGHT, style.ORANGE), (WEIGHT, style.BLUE)):
                part = table.where(method=method, weight=weight)
                for name, face in ((f"train_{quantity}", "none"), (quantity, colour)):
                    values = part.curves(name)[:, 0] if len(part) else np.zeros(0)
                    if len(values):
                        error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
                        y = place + (0.25 if weight == LIGHT else 0.0)
                        axis.errorbar(
                            float(values.mean()), y, xerr=error, fmt="o", color=colour, mfc=face, markersize=4
                        )
        axis.set_yticks(range(len(METHODS)), METHODS if axis is axes[0][0] else [""] * len(METHODS))
        axis.invert_yaxis()
        axis.set_title(title)
    return figure
