"""Settings of approximate policy iteration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Self, TypedDict

from numpy.typing import ArrayLike

from ..aggregation import Aggregation, EpsilonCover, SmallModel
from ..checks import check_engine, check_number, check_type, check_whole, check_word
from ..estimate.intervals import Design
from ..metric.settings import MetricSettings
from ..model import MDP
from ..schedules import Constant, StepSize
from ..transport import Exact, Transport

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
    settle: bool
    optimum: bool
    lump: bool | None
    remember: bool
    device: str
    dtype: str


class DataChanges(PolicyChanges, total=False):
    """These, and what is assumed of data (see `Evidence`)."""

    gamma: float
    delta: float
    reward_range: tuple[float, float] | None
    exact_rewards: bool
    successors: ArrayLike | None
    design: Design | None
    unseen: str


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """Settings of approximate policy iteration.

    Attributes:
        transport: of the π-metric. The paper's runs use Sinkhorn(1.0, diagonal="zero").
        aggregation: `EpsilonCover` (by default with ε = 1 % of the largest possible distance), `KMedoids`, any rule of
            distances, or `SmallModel` where the distances of all pairs do not fit (with `Exact` transport).
        step_size: `Constant` (1 replaces the policy at each step), `PowerDecay`, `Theoretical`.
        sweeps: n, most sweeps of the metric in a step.
        early_stop: the change at which sweeps end sooner; None for 1e-4 of the largest possible distance.
        restart_metric: start the metric from 0 at every policy (naive API), not from the last one (API(α)).
        greedy_noise: band for δ_k = ‖T_{π_g} V − T V‖∞, or None for exact greedy policies.
        ties: which of several best actions a greedy policy takes: the "first", or one at "random" from the seed.
        steps: most steps.
        target: stop where the certified bound is at most this.
        seed: of noise, random ties and first medoids. Noise and ties are drawn per choice of the model worked on, so
            they are not the same with and without lumping.
        settle: end where nothing changes any more, before the last step.
        optimum: also compute V*, and the true error at each step.
        lump: merge bisimilar states first, and lift the result back to all states; None for where that is exact
            (`Exact` transport) and the first policy does not tell merged states apart.
        remember: keep trees or potentials of each pair between sweeps and steps, which is faster and takes memory.
        device: "cpu", or "cuda" for one NVIDIA GPU (with the extra `gpu`).
        dtype: "float64" or "float32".
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
    settle: bool = True
    optimum: bool = True
    lump: bool | None = None
    remember: bool = True
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        check_type("transport", self.transport, Transport, words="a transport such as Exact() or Sinkhorn(1.0)")
        check_engine(self.device, self.dtype)
        check_word("ties", self.ties, "first", "random")
        for name in ("sweeps", "steps"):
            if check_whole(name, getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if check_whole("seed", self.seed) < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}.")
        if self.early_stop is not None and not check_number("early_stop", self.early_stop) >= 0.0:
            raise ValueError(f"early_stop must not be negative; got {self.early_stop}.")
        if self.target is not None and not 0.0 < check_number("target", self.target) < math.inf:
            raise ValueError(f"target must be positive; got {self.target}.")
        for name in ("aggregation", "step_size"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be a rule that can be called; got {type(getattr(self, name)).__name__}.")
        if isinstance(self.aggregation, SmallModel) and not isinstance(self.transport, Exact):
            raise ValueError(f"SmallModel needs Exact transport, for its triangle inequality; got {self.transport}.")
        if self.greedy_noise is not None:
            low, high = (check_number("greedy_noise", x) for x in self.greedy_noise)
            if not 0.0 <= low < high < math.inf:
                raise ValueError(f"greedy_noise must be (low, high) with 0 ≤ low < high; got {self.greedy_noise}.")

    def for_model(self, mdp: MDP) -> Self:
        """The same settings, with what was left to the model filled in from its largest possible distance."""
        largest = (mdp.reward_span or 1.0) / (1.0 - mdp.gamma)
        rule = self.aggregation
        if isinstance(rule, EpsilonCover) and rule.eps is None:
            rule = replace(rule, eps=_SHARE_OF_RANGE * largest)
        stop = _STOP_OF_RANGE * largest if self.early_stop is None else self.early_stop
        return replace(self, aggregation=rule, early_stop=stop)

    @property
    def metric(self) -> MetricSettings:
        """Settings of the metric. Labels of states do not matter for values, so they need not keep states apart."""
        return MetricSettings(
            transport=self.transport, respect=(), remember=self.remember, device=self.device, dtype=self.dtype
        )

    def alphas(self, gamma: float) -> Callable[[int], float]:
        """α of each step, counted from 1."""
        return partial(self.step_size, gamma=gamma, sweeps=self.sweeps, p=self.transport.order)
