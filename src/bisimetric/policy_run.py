"""What a policy run is made of: its settings, what is recorded of a step, the state of the loop, and the result."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from .aggregation import Aggregation, EpsilonCover, Partition
from .archives import read_arrays, save_arrays
from .certificates import Certificate
from .checks import check_number, check_type, check_whole
from .damage import DamagedFileError, reading
from .model import MDP
from .operators import MetricOperator
from .schedules import Constant, StepSize
from .status import Status
from .transport import Exact, Transport

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORMAT, VERSION = "bisimetric-policy-run", 1
_SHARE_OF_RANGE = 0.01  # ε in units of the largest possible distance, where none is given
_STOP_OF_RANGE = 1e-4  # and the change at which sweeps end


class PolicyChanges(TypedDict, total=False):
    """Settings by name, for functions that take some of them beside a `PolicySettings`."""

    transport: Transport
    aggregation: Aggregation
    step_size: StepSize
    sweeps: int
    restart_metric: bool
    greedy_noise: tuple[float, float] | None
    ties: Literal["first", "random"]
    steps: int
    seed: int
    target: float | None
    early_stop: float | None
    optimum: bool
    lump: bool | None
    device: str
    dtype: str


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """Settings of approximate policy iteration.

    Attributes:
        transport: of the π-metric. The paper's runs use Sinkhorn(1.0, diagonal="zero").
        aggregation: `EpsilonCover` (by default with ε = 1 % of the largest possible distance), `KMedoids`, or any rule
            of distances.
        step_size: `Constant` (1 replaces the policy at each step), `PowerDecay`, `Theoretical`.
        sweeps: n, most sweeps of the metric in a step.
        early_stop: the change at which sweeps end sooner; None for 1e-4 of the largest possible distance.
        restart_metric: start the metric from 0 at every policy (naive API), not from the last one (API(α)).
        greedy_noise: band for δ_k = ‖T_{π_g} V − T V‖∞, or None for exact greedy policies.
        ties: which of several best actions a greedy policy takes: the "first", or one at "random" from the seed.
        steps, target: stop after this many steps, or where the certified bound is at most target.
        seed: of noise and random ties, which are drawn per choice of the model worked on (so not the same with and
            without lumping).
        optimum: also compute V*, and the true error at each step.
        lump: merge bisimilar states first, and lift the result back to all states. None: where that is exact
            (`Exact` transport) and the first policy does not tell merged states apart.
        device, dtype: "cpu" or "cuda" (one GPU, with the extra `gpu`); "float64" or "float32".
    """

    transport: Transport = field(default_factory=Exact)
    aggregation: Aggregation = field(default_factory=EpsilonCover)
    step_size: StepSize = field(default_factory=lambda: Constant(1.0))
    sweeps: int = 28
    restart_metric: bool = False
    greedy_noise: tuple[float, float] | None = None
    ties: Literal["first", "random"] = "first"
    steps: int = 500
    seed: int = 0
    target: float | None = None
    early_stop: float | None = None
    optimum: bool = True
    lump: bool | None = None
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        check_type("transport", self.transport, Transport, words="a transport such as Exact() or Sinkhorn(1.0)")
        for name in ("sweeps", "steps"):
            if check_whole(name, getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if check_whole("seed", self.seed) < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}.")
        if self.early_stop is not None and not check_number("early_stop", self.early_stop) >= 0.0:
            raise ValueError(f"early_stop must not be negative; got {self.early_stop}.")
        if self.target is not None and not 0.0 < check_number("target", self.target) < math.inf:
            raise ValueError(f"target must be positive; got {self.target}.")
        if self.ties not in ("first", "random"):
            raise ValueError(f'ties must be "first" or "random"; got {self.ties!r}.')
        for name in ("aggregation", "step_size"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be a rule that can be called; got {type(getattr(self, name)).__name__}.")
        if self.greedy_noise is not None:
            low, high = (check_number("greedy_noise", x) for x in self.greedy_noise)
            if not 0.0 <= low < high < math.inf:
                raise ValueError(f"greedy_noise must be (low, high) with 0 ≤ low < high; got {self.greedy_noise}.")

    @classmethod
    def merged(cls, settings: PolicySettings | None, changes: PolicyChanges) -> PolicySettings:
        """Settings with some of them changed; refuses names that are none."""
        base = cls() if settings is None else settings
        check_type("settings", base, PolicySettings)
        known = {f.name for f in dataclasses.fields(cls)}
        for name in changes:
            if name not in known:
                raise TypeError(f"there is no setting {name!r}; there are {', '.join(sorted(known))}.")
        return replace(base, **changes)

    def for_model(self, mdp: MDP) -> Self:
        """The same settings, with what was left to the model filled in from its largest possible distance."""
        largest = (mdp.reward_span or 1.0) / (1.0 - mdp.gamma)
        rule = self.aggregation
        if isinstance(rule, EpsilonCover) and rule.eps is None:
            rule = replace(rule, eps=_SHARE_OF_RANGE * largest)
        stop = _STOP_OF_RANGE * largest if self.early_stop is None else self.early_stop
        return replace(self, aggregation=rule, early_stop=stop)


@dataclass(frozen=True)
class Step:
    """What happened in one step; all about π_k and the metric used in it."""

    k: int
    error: float | None  # ‖V* − V^π‖∞
    bound: float  # certified: ≥ error
    metric_gap: float  # max |d̂ − |ΔV^π||
    n_classes: int
    diameter: float  # largest d̂ inside a class
    delta: float  # ‖T_{π_g} Ṽ_Φ − T Ṽ_Φ‖∞
    alpha: float
    sweeps: int
    change: float  # of the last sweep
    transport_error: float  # largest error of a computed transport
    iterations: int  # pivots or scalings over all pairs
    abstract_error: float  # certified bound on ‖V^π − Ṽ_Φ‖∞
    nmi: float | None  # against the known classes
    purity: float | None
    seconds: float
    metric_seconds: float


@dataclass
class LoopState:
    """Everything that the next step depends on. Belongs to one run."""

    k: int
    policy: Floats  # [N], π_k
    measured: Floats  # [N], the policy whose chain the operator is on
    distance: NDArray[Any]  # [S, S]
    operator: MetricOperator
    rng: np.random.Generator
    noise: float  # σ
    value: Floats  # [S], V^π_k or a start for it
    partition: Partition
    abstract_value: Floats  # [S], Ṽ_Φ of the last step
    settled: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class PolicyRun:
    """The result of a run. It can be pickled, copied, saved and loaded.

    Attributes:
        policy: per choice [N]. value: V^π [S].
        choices: the most probable choice of each state [S]. actions: its name [S].
        partition, distance, abstract_value: of the last step.
        history: one `Step` per step.
        certificate: the best rigorous bound on ‖V* − V^π‖∞ and its source.
        theorems: the paper's bounds for this run, with the conditions that fail.
        optimal_value: V* [S], where wanted. status: how it ended; status.advice says what to do.
    """

    policy: Floats
    value: Floats
    choices: Ints
    actions: tuple[str, ...]
    partition: Partition
    distance: NDArray[Any]
    abstract_value: Floats
    history: tuple[Step, ...]
    certificate: Certificate
    theorems: tuple[Certificate, ...]
    status: Status
    optimal_value: Floats | None

    @property
    def error(self) -> float | None:
        """‖V* − V^π‖∞, where V* was wanted."""
        return None if self.optimal_value is None else float(np.abs(self.optimal_value - self.value).max())

    def curve(self, name: str) -> Floats:
        """One quantity of the history as an array, such as curve("error")."""
        return np.array([getattr(step, name) for step in self.history], dtype=np.float64)

    def __repr__(self) -> str:
        return (
            f"PolicyRun({len(self.value)} states in {self.partition.n_classes} classes, certified bound "
            f"{self.certificate.error:.3g}, {self.status.name} after {len(self.history)} steps)"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the run to an .npz file, whole or not at all."""
        about = {
            "status": self.status.name,
            "certificate": dataclasses.asdict(self.certificate),
            "theorems": [dataclasses.asdict(theorem) for theorem in self.theorems],
            "history": [dataclasses.asdict(step) for step in self.history],
            "extents": [self.partition.radius, self.partition.diameter],
        }
        best = {} if self.optimal_value is None else {"optimal_value": self.optimal_value}
        save_arrays(Path(path), {
            "format": FORMAT, "version": VERSION, "about": json.dumps(about), "policy": self.policy,
            "value": self.value, "choices": self.choices, "actions": np.array(self.actions, dtype=str),
            "labels": self.partition.labels, "medoids": self.partition.medoids, "distance": self.distance,
            "abstract_value": self.abstract_value, **best,
        })  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PolicyRun:
        """A run from a file that `save` wrote."""
        path = Path(path)
        with reading(path, "a saved run"):
            data = read_arrays(path)
            if str(data.get("format")) != FORMAT or int(data["version"]) != VERSION:
                raise DamagedFileError(f"{path}: not a saved run of this version (format {FORMAT!r}, {VERSION}).")
            about = json.loads(str(data["about"]))
            certificates = [
                Certificate(float(c["error"]), bool(c["rigorous"]), str(c["source"]), tuple(map(str, c["failed"])))
                for c in (about["certificate"], *about["theorems"])
            ]
            radius, diameter = (float(x) for x in about["extents"])
            return cls(
                data["policy"], data["value"], data["choices"], tuple(map(str, data["actions"])),
                Partition(data["labels"], data["medoids"], radius, diameter), data["distance"], data["abstract_value"],
                tuple(Step(**step) for step in about["history"]), certificates[0], tuple(certificates[1:]),
                Status[about["status"]], data.get("optimal_value"),
            )  # fmt: skip
