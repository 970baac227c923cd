"""The truth table: each loss on each model, by its own fixed point and by the certified metric."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..kinds import Floats
from ..model import MDP
from ..paper.jobs import Arrays, Whole
from ..paper.table import Cell, Keys, Table
from ..policy.batch import Work
from .distractors import correlation
from .models import RANDOM, known
from .settings import DATA, ENCODERS, LOSSES, Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..learn.oracle import FixedPoint
    from ..learn.published import Loss

TITLE = "The truth table"
CAPTION = (
    "Each loss on each model, under the uniform policy; rewards scaled so that mean rewards span 1, γ = 0.9. Bars: "
    "error of learned distances to the certified d_π, the largest over pairs of states, in diameters of d_π; black "
    "lines: that of the loss's own fixed point, which no training can undo. table: an embedding of 32 numbers for "
    "each state; network: a small network on 16 random features. exact: all pairs, the model known; samples: "
    "minibatches of 64 of the transitions (norm: the exact coupling of observed frequencies; dbc: a Gaussian learned "
    "beside). dbc-published: the mean over coordinates, each of which solves the whole equation there (their sum, the "
    "L1 norm, is 32 times as large). lake has 17 states, taxi 501, the others 27 or 30; each has the same number of "
    "optimiser steps. Errors above 2 are cut off."
)
NAMES = (
    "own_error",
    "true_error",
    "true_mean",
    "bias",
    "bias_mean",
    "correlation",
    "fixed_correlation",
    "largest",
    "gap",
    "solution",
    "seconds",
)
QUANTITIES = NAMES
MOST = 2.0  # of the pictures
TOL = 1e-4  # of fixed points


@dataclass(frozen=True)
class TableJob:
    """One cell of the truth table with one seed.

    Errors are in diameters of d_π: own_error of learned distances to the loss's fixed point, true_error and true_mean
    to d_π (largest, mean over pairs), bias and bias_mean of the fixed point to d_π. largest is the largest learned
    distance, solution the largest value of the equation on all pairs and gap how far any embedding stays from that, as
    numbers; seconds are CPU seconds of training.
    """

    loss: str
    model: str
    encoder: str
    data: str
    steps: int
    samples: int
    seed: int
    alone: ClassVar[bool] = False
    on: ClassVar[str | None] = "cpu"

    @property
    def words(self) -> str:
        return f"table-{self.loss}-{self.model}-{self.encoder}-{self.data}-s{self.seed}"

    @property
    def cost(self) -> float:
        if self.model != "taxi":
            return 0.002 * self.steps
        return (0.03 if self.data == "exact" or self.loss == "norm" else 0.005) * self.steps

    def work(self, device: str) -> Work[Arrays]:
        """The run, as one part."""
        return Whole(self, device)

    def run(self, device: str) -> Arrays:
        import time

        import torch

        del device
        torch.set_num_threads(1)
        case = known(self.model, self.seed)
        loss = loss_of(self.loss, self.data, case.mdp.gamma)
        fixed = fixed_point(self.loss, self.model, self.data, self.seed if self.model in RANDOM else 0)
        began = time.process_time()
        learned = self._learned(case.mdp, case.policy, loss)
        seconds = time.process_time() - began
        own, true = np.asarray(fixed.distance, np.float64), case.distance
        found = _measures(learned, own, true, seconds) | {"gap": fixed.gap, "solution": fixed.largest}
        return {name: np.array([value]) for name, value in found.items()}

    def _learned(self, mdp: MDP, policy: Floats, loss: Loss) -> Floats:
        """The learned distances [S, S]."""
        import torch

        from . import training

        start = training.START if loss.head.translates else training.START_ANGLES
        encoder = training.encoder_of(self.encoder, mdp.n_states, self.seed, start)
        schedule = training.Schedule(encoder.parameters(), self.steps, training.RATES[self.encoder])
        chain = mdp.under(policy)
        if self.data == "samples":
            drawn = training.sample(mdp, policy, self.samples, self.seed)
            chain = training.estimated(drawn, mdp.n_states, mdp.gamma)
        if self.data == "exact" or self.loss == "norm":
            training.learn_exactly(loss, encoder, training.ExactBatch.of(chain), schedule, self.steps)
        else:
            training.learn_from_samples(loss, encoder, drawn, schedule, self.steps, self.seed)
        with torch.no_grad():
            z = encoder()
            learned = np.asarray(loss.head.distances(z, z).numpy(), np.float64)
        # As published, each coordinate solves the whole equation by itself: the mean over coordinates, not the sum.
        return learned / training.DIMENSIONS if self.loss == "dbc-published" else learned


def loss_of(name: str, data: str, gamma: float) -> Loss:
    """The loss of a cell; Norm(1) has its exact coupling also between observed frequencies."""
    from .losses import exact_loss, sampled_loss

    return exact_loss(name, gamma) if data == "exact" or name == "norm" else sampled_loss(name, gamma)


@lru_cache(32)  # of the seeds of a model, from both kinds of data
def fixed_point(loss: str, model: str, data: str, seed: int) -> FixedPoint:
    """What a loss converges to on a model: of mean rewards where the model is known, of sampled ones otherwise."""
    from ..learn import oracle

    case = known(model, seed)
    made = loss_of(loss, data, case.mdp.gamma)
    if data == "exact" or loss == "norm":
        return oracle.fixed_point(made, case.chain, tol=TOL)
    return oracle.fixed_point(made, case.mdp, case.policy, tol=TOL)


def _measures(learned: Floats, own: Floats, true: Floats, seconds: float) -> dict[str, float]:
    """What is recorded, from three matrices of distances [S, S]."""
    diameter = float(true.max())
    upper = np.triu_indices(len(true), 1)

    def apart(x: Floats, y: Floats) -> tuple[float, float]:
        gaps = np.abs(x - y)[upper] / diameter
        return float(gaps.max()), float(gaps.mean())

    true_error, true_mean = apart(learned, true)
    bias, bias_mean = apart(own, true)
    return {
        "own_error": apart(learned, own)[0],
        "true_error": true_error,
        "true_mean": true_mean,
        "bias": bias,
        "bias_mean": bias_mean,
        "correlation": correlation(learned[upper], true[upper]),
        "fixed_correlation": correlation(own[upper], true[upper]),
        "largest": float(learned.max()),
        "seconds": seconds,
    }


def cells(profile: Profile) -> list[Cell]:
    """Every loss on every model, with both encoders and from both kinds of data, with every seed."""
    found = []
    for loss, model, encoder, data, seed in product(LOSSES, profile.models, ENCODERS, DATA, profile.all_seeds):
        keys: Keys = {"loss": loss, "model": model, "encoder": encoder, "data": data, "seed": float(seed)}
        job = TableJob(loss, model, encoder, data, profile.table_steps, profile.samples, seed)
        found.append(Cell(keys, job))
    return found


def draw(table: Table, profile: Profile) -> Figure:
    from ..paper import style

    colours = dict(zip(LOSSES, (style.BLUE, style.ORANGE, style.RED, style.GREEN, style.PINK, style.SKY), strict=True))
    figure, axes = style.panels(len(ENCODERS) * len(DATA), 1, height=1.45, legend=0.3)
    figure.set_figwidth(7.6)
    for axis, (encoder, data) in zip((line[0] for line in axes), ((e, d) for d in DATA for e in ENCODERS), strict=True):
        models = [model for model in profile.models if len(table.where(model=model, encoder=encoder, data=data))]
        for k, loss in enumerate(LOSSES):
            for place, model in enumerate(models):
                part = table.where(loss=loss, model=model, encoder=encoder, data=data)
                x = place + (k - 2.5) * 0.14
                error, bias = part.curves("true_error")[:, 0], part.curves("bias")[:, 0]
                spread = float(error.std(ddof=1) / np.sqrt(len(error))) if len(error) > 1 else 0.0
                height = min(float(error.mean()), MOST)
                label = loss if place == 0 else "_"
                axis.bar(x, height, 0.13, yerr=spread, color=colours[loss], label=label, error_kw={"linewidth": 0.6})
                level = min(float(bias.mean()), MOST)
                axis.plot([x - 0.065, x + 0.065], [level, level], color="black", linewidth=1.2)
        axis.set_xticks(range(len(models)), models)
        axis.set_ylim(0.0, 1.02 * MOST)
        axis.set_ylabel(f"{encoder}, {data}")
    style.legend_below(figure, axes[0][0], len(LOSSES))
    return figure


def summary(table: Table) -> str:
    """Mean and standard error over seeds, a line for each cell."""
    keys = ("loss", "model", "encoder", "data")
    groups: dict[tuple[object, ...], list[dict[str, float]]] = {}
    for row in table:
        group = groups.setdefault(tuple(row.keys[key] for key in keys), [])
        group.append({name: float(row.arrays[name][0]) for name in NAMES})
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*keys, "seeds", *(f"{name}{end}" for name in NAMES for end in ("", "_se"))])
    for setting, rows in groups.items():
        numbers = []
        for name in NAMES:
            values = np.array([row[name] for row in rows])
            spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
            numbers += [f"{values.mean():.5g}", f"{spread:.3g}"]
        writer.writerow([*setting, len(rows), *numbers])
    return stream.getvalue()
