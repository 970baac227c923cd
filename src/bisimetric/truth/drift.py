"""Drift: whether conservative updates keep a learned metric near that of the policy that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..aggregation import EpsilonCover
from ..kinds import Floats
from ..model import MDP
from ..paper.jobs import Arrays, Whole
from ..paper.table import Cell, Table
from ..policy.batch import Work
from ..values import abstract_values, evaluate, greedy, optimal_values
from .models import known, true_metric
from .settings import ALPHAS, DRIFT_MODELS, Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Drift: a learned metric behind its policy"
CAPTION = (
    "API(α) in which an encoder takes the place of the sweeps: for each policy so many optimiser steps of Norm(1) "
    "with exact transport (an embedding of 32 numbers for each state, all pairs, the model known), then classes by "
    "the learned distances, a greedy policy with noise (|N(0, 0.2)| added to its probabilities), and a step of size α "
    "towards it. Left: ‖d̂_k − d_π_k‖∞ against the certified metric of each policy, as a part of the diameter of the "
    "first one. Middle: how far the certified metric moved. Right: distance from the best values, as a part of their "
    "span. α = 0: the policy stays."
)
NOISE = 0.2
RATE = 5e-3
EPS = 0.1  # of classes, as a part of the largest learned distance
QUANTITIES = ("error", "moved", "regret", "relative")


@dataclass(frozen=True)
class DriftJob:
    """A run of API(α) with a learned metric.

    Records for each policy: error ‖d̂_k − d_π_k‖∞ and moved ‖d_π_k − d_π_k−1‖∞, in diameters of d_π_0; relative, the
    error in diameters of d_π_k; regret.
    """

    model: str
    alpha: float
    policies: int
    steps: int
    seed: int
    alone: ClassVar[bool] = False
    on: ClassVar[str | None] = "cpu"

    @property
    def words(self) -> str:
        return f"drift-{self.model}-{self.alpha:g}-s{self.seed}"

    @property
    def cost(self) -> float:
        return 0.004 * self.policies * self.steps

    def work(self, device: str) -> Work[Arrays]:
        """The run, as one part."""
        return Whole(self, device)

    def run(self, device: str) -> Arrays:
        import torch

        from ..learn import Categorical, MetricLoss, Norm
        from . import training

        del device
        torch.set_num_threads(1)
        mdp = known(self.model, self.seed).mdp
        best = np.asarray(optimal_values(mdp).value)
        span = max(float(np.ptp(best)), 1e-12)
        head = Norm(1.0)
        loss = MetricLoss(head, Categorical(), mdp.gamma)
        encoder = training.encoder_of("table", mdp.n_states, self.seed)
        # One optimiser for the whole run, at a constant rate: what is learned goes on from policy to policy.
        schedule = training.Schedule(encoder.parameters(), 0, RATE)
        rng = np.random.default_rng([self.seed, 7])
        policy, before = mdp.uniform_policy(), np.zeros((0, 0))
        diameter, curves = 1.0, []
        for k in range(self.policies):
            chain = mdp.under(policy)
            training.learn_exactly(loss, encoder, training.ExactBatch.of(chain), schedule, self.steps)
            with torch.no_grad():
                z = encoder()
                learned = head.distances(z, z).numpy()
            true = true_metric(chain)
            diameter = float(true.max()) if k == 0 else diameter
            moved = 0.0 if k == 0 else float(np.abs(true - before).max())
            regret = float(np.abs(best - np.asarray(evaluate(mdp, policy).value)).max())
            error = float(np.abs(learned - true).max())
            curves.append([error / diameter, moved / diameter, regret / span, error / float(true.max())])
            before, policy = true, self._next(mdp, policy, learned, rng)
        errors, moves, regrets, relative = np.array(curves).T
        return {"error": errors, "moved": moves, "regret": regrets, "relative": relative}

    def _next(self, mdp: MDP, policy: Floats, learned: Floats, rng: np.random.Generator) -> Floats:
        """(1 − α)π + α π_g, with π_g greedy, but for noise, in the model of the learned classes."""
        partition = EpsilonCover(max(EPS * float(learned.max()), 1e-9))(0.5 * (learned + learned.T))
        chain = mdp.under(policy)
        values = abstract_values(chain, partition, np.zeros(mdp.n_states))
        wanted = greedy(mdp, values) + np.abs(rng.normal(0.0, NOISE, mdp.n_choices))
        wanted /= np.add.reduceat(wanted, mdp.choice_ptr[:-1])[mdp.state_of_choice]
        return (1.0 - self.alpha) * policy + self.alpha * wanted


def cells(profile: Profile) -> list[Cell]:
    return [
        Cell(
            {"model": model, "alpha": alpha, "seed": float(seed)},
            DriftJob(model, alpha, profile.policies, profile.steps_a_policy, seed),
        )
        for model in DRIFT_MODELS
        for alpha in ALPHAS
        for seed in profile.all_seeds
    ]


def draw(table: Table, profile: Profile) -> Figure:
    from ..paper import style

    del profile
    colours = dict(zip(ALPHAS, (style.RED, style.ORANGE, style.BLUE, style.GREY), strict=True))
    labels = {"error": r"$\|\hat d_k - d_{\pi_k}\|_\infty$", "moved": r"$\|d_{\pi_k} - d_{\pi_{k-1}}\|_\infty$"}
    figure, axes = style.panels(len(DRIFT_MODELS), 3, legend=0.3)
    for line, model in zip(axes, DRIFT_MODELS, strict=True):
        for axis, quantity in zip(line, QUANTITIES[:3], strict=True):
            for alpha in ALPHAS:
                part = table.where(model=model, alpha=alpha)
                style.band(axis, part, quantity, colour=colours[alpha], label=rf"$\alpha={alpha:g}$", floor=1e-6)
            axis.set_title(labels.get(quantity, "distance from the best values"))
            axis.set_xlabel("policy $k$")
        line[0].set_ylabel(f"{model}\nparts of the diameter")
    style.legend_below(figure, axes[0][0], len(ALPHAS))
    return figure
