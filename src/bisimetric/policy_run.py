"""What a policy run is made of: its settings, what is recorded of a step, the state of the loop, and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .aggregation import Aggregation, EpsilonCover, Partition
from .certificates import Certificate
from .operators import MetricOperator
from .schedules import Constant, StepSize
from .transport import Exact, Transport

Floats = NDArray[np.float64]


class RunStatus(Enum):
    """How a run ended; the text says what to do."""

    STEPS = "all steps done: give more steps to go on"
    TARGET = "the certified bound reached the target"
    SETTLED = "nothing changes any more"
    INTERRUPTED = "interrupted: the policy so far is returned; a run folder can be resumed"


@dataclass(frozen=True)
class Settings:
    """Settings of a run; see `solve_policy`."""

    transport: Transport = field(default_factory=Exact)
    aggregation: Aggregation = field(default_factory=lambda: EpsilonCover(0.1))
    step_size: StepSize = field(default_factory=lambda: Constant(1.0))
    sweeps: int = 28
    warm: bool = True
    greedy_noise: tuple[float, float] | None = None
    steps: int = 500
    seed: int = 0
    target: float | None = None
    early_stop: float = 1e-3
    optimum: bool = True
    lump: bool | None = None
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        if self.sweeps < 1:
            raise ValueError(f"sweeps (n) must be at least 1; got {self.sweeps}.")
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}.")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}.")
        if self.early_stop < 0.0:
            raise ValueError(f"early_stop must not be negative; got {self.early_stop}.")
        if self.target is not None and not self.target > 0.0:
            raise ValueError(f"target must be positive; got {self.target}.")
        if self.greedy_noise is not None:
            low, high = self.greedy_noise
            if not 0.0 <= low < high:
                raise ValueError(f"greedy_noise must be (low, high) with 0 ≤ low < high; got {self.greedy_noise}.")


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


@dataclass(frozen=True, eq=False)
class PolicyRun:
    """The result of a run.

    Attributes:
        policy: per choice [N]. value: V^π [S].
        partition, distance, abstract_value: of the last step.
        history: one `Step` per step.
        certificate: the best rigorous bound on ‖V* − V^π‖∞ and its source.
        theorems: the paper's bounds for this run, with the conditions that fail.
        optimal_value: V* [S], where wanted. status: how it ended.
    """

    policy: Floats
    value: Floats
    partition: Partition
    distance: NDArray[Any]
    abstract_value: Floats
    history: tuple[Step, ...]
    certificate: Certificate
    theorems: tuple[Certificate, ...]
    status: RunStatus
    optimal_value: Floats | None

    @property
    def error(self) -> float | None:
        """‖V* − V^π‖∞, where V* was wanted."""
        return None if self.optimal_value is None else float(np.abs(self.optimal_value - self.value).max())

    def curve(self, name: str) -> Floats:
        """One quantity of the history as an array, such as curve("error")."""
        return np.array([getattr(step, name) for step in self.history], dtype=np.float64)
