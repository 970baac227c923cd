"""One run of an experiment: what is computed, its id, and its result as named arrays.

A job holds settings only. Its id is a hash of all of them, so that two figures that need the same run share it, and a
result is found again after a stop.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, Protocol

import numpy as np

from .. import problems
from ..aggregation import Aggregation, KMedoids
from ..backends.select import host
from ..kinds import Array, Floats
from ..model import MDP, Distributions
from ..policy.batch import Work
from ..policy.loop import LoopState
from ..policy.run import Step
from ..policy.settings import PolicySettings
from ..policy.solve import PolicyWork
from ..schedules import StepSize
from ..transport import Exact, Independent, Sinkhorn, Transport
from .settings import EARLY_STOP, NOISE, SWEEPS

Arrays = dict[str, Array]

CURVES = tuple(field.name for field in fields(Step) if field.name != "k")
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class Job(Protocol):
    """One run of any study: a frozen dataclass of settings, of which `repr` shows all."""

    @property
    def alone(self) -> bool: ...  # whether it must not share the machine

    @property
    def on(self) -> str | None: ...  # the device that it needs; None for any

    @property
    def words(self) -> str: ...  # the readable part of its id

    @property
    def cost(self) -> float: ...  # about how long it takes, in arbitrary units

    def work(self, device: str) -> Work[Arrays]: ...


@dataclass(frozen=True)
class Problem:
    """A generated MDP."""

    name: str
    arguments: tuple[tuple[str, float | str], ...]

    @classmethod
    def of(cls, name: str, **arguments: float | str) -> Problem:
        return cls(name, tuple(sorted(arguments.items())))

    def build(self) -> MDP:
        mdp: MDP = getattr(problems, self.name)(**dict(self.arguments))
        return mdp


@dataclass(frozen=True)
class PolicyJob:
    """Approximate policy iteration on one MDP with one seed.

    probes: steps at which the distribution of d̂ − ΔV^π over pairs of states is recorded.
    medoids: as how many classes d̂ is looked at in each step, by k-medoids; 0 for none. How well they agree with the
    true classes of the unperturbed MDP (NMI) measures the metric, not the classes that the run works with.
    potentials: whether the transport keeps its potentials between sweeps and steps.
    """

    problem: Problem
    transport: Transport
    aggregation: Aggregation
    step_size: StepSize
    seed: int
    steps: int
    sweeps: int = SWEEPS
    warm: bool = True
    noise: tuple[float, float] | None = NOISE
    ties: Literal["first", "random"] = "random"
    probes: tuple[int, ...] = ()
    medoids: int = 0
    potentials: bool = True
    alone: ClassVar[bool] = False  # whether it must not share the machine
    on: ClassVar[str | None] = None  # any device will do

    @property
    def words(self) -> str:
        return f"{self.problem.name}-{_word(self.transport)}-{_word(self.step_size)}-n{self.sweeps}-s{self.seed}"

    @property
    def cost(self) -> float:
        arguments = dict(self.problem.arguments)
        n = int(arguments.get("n_states", 200))
        way = self.transport
        if isinstance(way, Independent):
            factor = 0.1
        elif isinstance(way, Exact):
            factor = 1.5
        else:
            factor = 6.0 ** (getattr(way, "reg", 1.0) < 0.5) * getattr(way, "p", 1.0)
        if float(arguments.get("mixing", 0.0)) > 0.0:
            factor *= 4.0 * n / 60.0
        alpha = self.step_size(50, gamma=0.9, sweeps=self.sweeps, p=1.0)
        started_anew = 1.0 if self.warm and self.potentials else 2.0
        return self.steps * (n / 60.0) ** 2 * factor * started_anew * (0.3 + alpha) * min(self.sweeps, 14) / 14

    def run(self, device: str) -> Arrays:
        return self.work(device).result()

    def work(self, device: str) -> Work[Arrays]:
        """The run, in parts."""
        settings = PolicySettings(
            transport=self.transport,
            aggregation=self.aggregation,
            step_size=self.step_size,
            sweeps=self.sweeps,
            restart_metric=not self.warm,
            greedy_noise=self.noise,
            ties=self.ties,
            steps=self.steps,
            seed=self.seed,
            early_stop=EARLY_STOP,
            settle=False,
            lump=False,
            remember=self.potentials,
            device=device,
        )
        return _PolicyJobWork(self, self.problem.build(), settings)


class _PolicyJobWork:
    """A run with its probes, which observe it."""

    def __init__(self, job: PolicyJob, mdp: MDP, settings: PolicySettings) -> None:
        self._job, self._mdp = job, mdp
        self._boxes: list[Floats] = []
        self._agreement: list[float] = []
        self._run = PolicyWork(mdp, settings, observers=(self._probe,))

    def _probe(self, step: Step, state: LoopState) -> None:
        if step.k in self._job.probes:
            self._boxes.append(_slack(state))
        if self._job.medoids:
            self._agreement.append(_agreement(self._mdp, state, self._job.medoids, self._job.seed))

    def go_on(self) -> bool:
        return self._run.go_on()

    def interrupt(self) -> None:
        self._run.interrupt()

    def result(self) -> Arrays:
        final = self._run.result()
        curves = {
            name: np.array([np.nan if (x := getattr(step, name)) is None else x for step in final.history], np.float64)
            for name in CURVES
        }
        assert final.optimal_value is not None
        return {
            **curves,
            "boxes": np.array(self._boxes).reshape(-1, len(QUANTILES) + 1),
            "metric_nmi": np.array(self._agreement),
            "optimal_value": final.optimal_value,
            "value": final.value,
            "abstract_value": final.abstract_value,
        }


@dataclass(frozen=True)
class TimedJob(PolicyJob):
    """A run whose seconds count, on a device of its own choice: "cpu" or "cuda"."""

    alone: ClassVar[bool] = True
    device: str = "cpu"

    @property
    def on(self) -> str:  # type: ignore[override]
        return self.device


def _slack(state: LoopState) -> Floats:
    """Quantiles of d̂ − |ΔV^π| over pairs of different states, and the share that is not negative [8]."""
    d, V = state.distance.near(), state.value
    upper = np.triu_indices(len(V), 1)
    slack = (d - np.abs(V[:, None] - V[None, :]))[upper]
    return np.append(np.quantile(slack, QUANTILES), np.mean(slack >= -1e-9))


def _agreement(mdp: MDP, state: LoopState, medoids: int, seed: int) -> float:
    """NMI of the true classes with those that k-medoids finds under d̂."""
    assert mdp.classes is not None
    return KMedoids(medoids, seed)(state.distance.near()).nmi(mdp.classes)


@dataclass(frozen=True)
class SharpnessJob:
    """How far W^λ is above W^λ' (λ' = 0.02) on points of a sphere, over pairs of distributions.

    The first distribution has the given entropy (in bits), the second ones cover evenly what lies above it.
    """

    dimension: int
    reg: float
    entropy: float
    pairs: tuple[int, int]
    seed: int
    points: int = 32
    radius: float = 0.5
    reference: float = 0.02
    alone: ClassVar[bool] = False
    on: ClassVar[str | None] = "cpu"
    cost: ClassVar[float] = 30.0

    @property
    def words(self) -> str:
        return f"sharpness-{self.dimension}d-{self.reg:g}-{self.entropy:g}bits-s{self.seed}"

    def work(self, device: str) -> Work[Arrays]:
        """The run, as one part."""
        return Whole(self, device)

    def run(self, device: str) -> Arrays:
        del device  # it is the host's
        rng = np.random.default_rng([self.seed, self.dimension, round(100 * self.entropy)])
        x = rng.standard_normal((self.points, self.dimension))
        x *= self.radius / np.linalg.norm(x, axis=1, keepdims=True)
        d = np.sqrt(np.maximum(((x[:, None] - x[None, :]) ** 2).sum(axis=2), 0.0))
        low, high = self.pairs
        largest = np.log2(self.points)
        targets = self.entropy + (largest - self.entropy) * np.arange(high) / high
        rows = [with_entropy(rng, self.points, self.entropy) for _ in range(low)]
        rows += [with_entropy(rng, self.points, target) for target in targets]
        weak: Transport = Independent(1.0) if np.isinf(self.reg) else Sinkhorn(self.reg)
        blunt, sharp = (transport_between(way, rows, low, d) for way in (weak, Sinkhorn(self.reference)))
        exact = transport_between(Exact(), rows, low, d)
        return {"relative_error": _relative(blunt, sharp), "reference_error": _relative(sharp, exact)}


class InOnePart(Protocol):
    """A run without parts."""

    def run(self, device: str) -> Arrays: ...


class Whole:
    """A run that is done when its result is wanted."""

    def __init__(self, job: InOnePart, device: str) -> None:
        self._job, self._device = job, device

    def go_on(self) -> bool:
        return True

    def interrupt(self) -> None:
        """Nothing was begun."""

    def result(self) -> Arrays:
        return self._job.run(self._device)


def _relative(value: Floats, reference: Floats) -> Floats:
    """(value − reference)/reference, and 0 where both are 0 (twice the same point mass)."""
    gap = value - reference
    return np.divide(gap, reference, out=gap.copy(), where=reference > 1e-12)


def with_entropy(rng: np.random.Generator, size: int, bits: float) -> Floats:
    """A random point of the simplex with the given entropy: a power of a uniform one, by bisection."""
    base = np.log(rng.dirichlet(np.ones(size)))
    if bits <= 0.0:
        return np.asarray(np.eye(size)[int(np.argmax(base))])
    low, high = 0.0, 1.0
    while _entropy(_power(base, high)) > bits:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _entropy(_power(base, middle)) > bits else (low, middle)
    return _power(base, 0.5 * (low + high))


def _power(logs: Floats, exponent: float) -> Floats:
    p = np.exp(exponent * (logs - logs.max()))
    return np.asarray(p / p.sum())


def _entropy(p: Floats) -> float:
    q = p[p > 0.0]
    return float(-(q * np.log2(q)).sum())


def transport_between(transport: Transport, rows: list[Floats], first: int, d: Floats) -> Floats:
    """Transport of each of the first distributions to each of the others, under d [first, rest]."""
    dense = np.array(rows)
    dense[dense < 1e-15] = 0.0  # far below what any transport here can see
    dense /= dense.sum(axis=1, keepdims=True)
    solver = host().solver(Distributions.from_matrix(dense), (np.arange(len(rows)),), transport, False)
    solver.prepare(d, 1e-9)
    out = np.zeros((first, len(rows)))
    solver.fill(0, 0, first, out, host().tally())
    return solver.unit * out[:, first:]


def can_run(job: Job, device: str) -> bool:
    """Whether a job runs where this device was asked for: jobs for the CPU run everywhere."""
    return job.on in (None, "cpu", device)


def job_id(job: Job) -> str:
    """A name for the run: readable, and different for different settings."""
    return f"{job.words}-{hashlib.sha256(repr(job).encode()).hexdigest()[:12]}"


def _word(settings: object) -> str:
    numbers = re.findall(r"[-\d.]+(?:e-?\d+)?", repr(settings))
    return "".join([type(settings).__name__.lower(), *(numbers[:1])])
