"""Couplings at equal cost: which brings an encoder nearest to d_π."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..paper.jobs import Arrays, Whole
from ..paper.table import Cell, Table
from ..policy.batch import Work
from .models import known
from .settings import COUPLINGS, Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..learn.couplings import Coupling

TITLE = "Couplings at equal cost"
CAPTION = (
    "Norm(1) on an embedding of 32 numbers for each state, all pairs, uniform policy: error to the certified d_π "
    "(largest over pairs, in diameters) over CPU seconds. independent: the expectation over independent next states; "
    "gaussian: W₂ of their moments; particles and debiased: 8 samples of each state's next states a step, exact "
    "transport; categorical: exact transport between the true probabilities. Each takes about as many steps as fit "
    "into the time, with a rate that falls to a hundredth over them. Claims compare errors at the time at which the "
    "first of them ended."
)
QUANTITIES = ("error", "seconds")
MODELS = ("garnet", "copies", "chain")
PARTICLES = 8
LOOKS = 40  # points of a curve
STEP_SECONDS = {  # measured once, on one core of a loaded machine: only to choose numbers of steps
    "independent": 0.4e-3,
    "gaussian": 0.4e-3,
    "particles": 2.3e-3,
    "debiased": 2.9e-3,
    "categorical": 0.7e-3,
}


@dataclass(frozen=True)
class CouplingJob:
    """Training with one coupling for so many steps; records error and CPU seconds at some of them."""

    coupling: str
    model: str
    steps: int
    seed: int
    alone: ClassVar[bool] = True  # seconds count
    on: ClassVar[str | None] = "cpu"

    @property
    def words(self) -> str:
        return f"coupling-{self.coupling}-{self.model}-s{self.seed}"

    @property
    def cost(self) -> float:
        return STEP_SECONDS[self.coupling] * self.steps

    def work(self, device: str) -> Work[Arrays]:
        """The run, as one part."""
        return Whole(self, device)

    def run(self, device: str) -> Arrays:
        import time

        import torch

        from ..learn import MeanRewards, MetricLoss, Norm
        from . import training

        del device
        torch.set_num_threads(1)
        case = known(self.model, self.seed)
        head, true = Norm(1.0), torch.tensor(case.distance)
        coupling, particles = _coupling(self.coupling)
        loss = MetricLoss(head, coupling, case.mdp.gamma, rewards=MeanRewards())
        encoder = training.encoder_of("table", case.mdp.n_states, self.seed)
        schedule = training.Schedule(encoder.parameters(), self.steps, training.RATES["table"])
        batch, generator = training.ExactBatch.of(case.chain), torch.Generator().manual_seed(self.seed)
        ends = np.unique(np.round(np.linspace(0, self.steps, LOOKS + 1)).astype(int))
        errors, seconds, spent = [], [], 0.0
        for start, end in pairwise(ends):
            began = time.process_time()
            training.learn_exactly(
                loss, encoder, batch, schedule, int(end - start), particles=particles, generator=generator
            )
            spent += time.process_time() - began
            with torch.no_grad():
                z = encoder()
                errors.append(float((head.distances(z, z) - true).abs().max()) / case.diameter)
            seconds.append(spent)
        return {"error": np.array(errors), "seconds": np.array(seconds)}


def _coupling(name: str) -> tuple[Coupling, int]:
    """(the coupling, how many samples of each state it wants; 0 for probabilities)."""
    from .. import learn

    if name in ("particles", "debiased"):
        return learn.Particles(PARTICLES, debias=name == "debiased"), PARTICLES
    return {"independent": learn.Independent, "gaussian": learn.GaussianW2, "categorical": learn.Categorical}[name](), 0


def cells(profile: Profile) -> list[Cell]:
    return [
        Cell(
            {"model": model, "coupling": coupling, "seed": float(seed)},
            CouplingJob(coupling, model, round(profile.coupling_seconds / STEP_SECONDS[coupling]), seed),
        )
        for model in MODELS
        for coupling in COUPLINGS
        for seed in profile.all_seeds
    ]


def draw(table: Table, profile: Profile) -> Figure:
    from ..paper import style

    del profile
    colours = dict(zip(COUPLINGS, (style.RED, style.ORANGE, style.PINK, style.SKY, style.BLUE), strict=True))
    figure, axes = style.panels(1, len(MODELS), height=2.3, legend=0.3)
    for axis, model in zip(axes[0], MODELS, strict=True):
        for coupling in COUPLINGS:
            part = table.where(model=model, coupling=coupling)
            errors = part.curves("error")
            seconds, mean = part.curves("seconds").mean(axis=0), errors.mean(axis=0)
            half = errors.std(axis=0, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else 0.0 * mean
            low = np.maximum(mean - half, 1e-5)
            axis.fill_between(seconds, low, mean + half, color=colours[coupling], alpha=0.22, linewidth=0.0)
            axis.plot(seconds, np.maximum(mean, 1e-5), color=colours[coupling], label=coupling)
        axis.set_yscale("log")
        axis.set_title(model)
        axis.set_xlabel("CPU seconds")
    axes[0][0].set_ylabel(r"error to $d_\pi$, diameters")
    style.legend_below(figure, axes[0][0], len(COUPLINGS))
    return figure
