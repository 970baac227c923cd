"""What is asked of a metric: settings as a user gives them, and the question that they are for one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict, cast

import numpy as np

from .. import transport as transports
from ..checks import InputError, check_number, check_type, check_whole
from ..lumping import respected_labels
from ..model import MDP, Chain
from ..transport import Exact, Transport

Match = Literal["labels", "hausdorff"]
Combine = Literal["chain", "labels", "hausdorff"]


class MetricChanges(TypedDict, total=False):
    """Settings by name, for functions that take some of them beside a `MetricSettings` and a transport."""

    match: Match | None
    reward_weight: float
    transition_weight: float | None
    tol: float
    max_sweeps: int
    respect: Sequence[str] | None
    lump: bool | None
    remember: bool
    accelerate: bool
    device: str
    dtype: str


@dataclass(frozen=True, kw_only=True)
class MetricSettings:
    """Settings of a metric.

    Attributes:
        transport: `Exact`, `Sinkhorn`, `KLBall` or `Independent`.
        match: how an MDP's choices are matched, "labels" (actions of the same name) or "hausdorff" (choices as sets); a
            chain has none.
        reward_weight: c_R ≥ 0, the weight of reward differences.
        transition_weight: c_T in [0, 1), the weight of the next states; None for the discount.
        tol: largest error of the answer (sup-norm), not of a step.
        max_sweeps: give up after this many sweeps; the status says so.
        respect: labels of states that keep states apart; None for all but "init" and "deadlock".
        lump: merge bisimilar states first and give the result for all states; None for where that is exact (`Exact`
            transport) and its rounding is far below tol.
        remember: keep trees or potentials of each pair between sweeps, which is faster and takes memory.
        accelerate: solve between sweeps for the plans that the last one chose, or extrapolate; False for plain sweeps.
        device: "cpu", or "cuda" for one NVIDIA GPU (with the extra `gpu`).
        dtype: "float64" or "float32".
    """

    transport: Transport = field(default_factory=Exact)
    match: Match | None = None
    reward_weight: float = 1.0
    transition_weight: float | None = None
    tol: float = 1e-6
    max_sweeps: int = 100_000
    respect: Sequence[str] | None = None
    lump: bool | None = None
    remember: bool = True
    accelerate: bool = True
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        check_type("transport", self.transport, Transport, words="a transport such as Exact() or Sinkhorn(1.0)")
        if not 0.0 < check_number("tol", self.tol) < np.inf:
            raise ValueError(f"tol must be positive and finite; got {self.tol}.")
        if check_whole("max_sweeps", self.max_sweeps) < 1:
            raise ValueError(f"max_sweeps must be at least 1; got {self.max_sweeps}.")
        if not 0.0 <= check_number("reward_weight", self.reward_weight) < np.inf:
            raise ValueError(f"reward_weight (c_R) must be finite and not negative; got {self.reward_weight}.")
        if self.transition_weight is not None and not (
            0.0 <= check_number("transition_weight", self.transition_weight) < 1.0
        ):
            raise ValueError(f"transition_weight (c_T) must be in [0, 1); got {self.transition_weight}.")

    def for_model(self, model: Chain | MDP) -> Question:
        """The question that these settings are for a model; refuses what does not fit it."""
        match = check_match(model, self.match)
        c_T = model.gamma if self.transition_weight is None else float(self.transition_weight)
        return Question(
            transport=self.transport,
            match=match,
            reward_weight=float(self.reward_weight),
            transition_weight=c_T,
            reward=model.reward_name,
            gamma=model.gamma,
            respected=respected_labels(model, self.respect),
            tol=self.tol,
            device=self.device,
            dtype=self.dtype,
            remember=self.remember,
        )


@dataclass(frozen=True, kw_only=True)
class Question:
    """What was asked of one model: everything that the answer depends on but the model's numbers.

    Attributes: transport; match ("chain", "labels", "hausdorff"); reward_weight, transition_weight (c_R, c_T); reward
    (name of the reward model, if it has one); gamma; respected (labels of states that keep states apart); tol; device,
    dtype; remember (whether solvers keep their state of each pair).
    """

    transport: Transport
    match: Combine
    reward_weight: float
    transition_weight: float
    reward: str | None
    gamma: float
    respected: tuple[str, ...]
    tol: float
    device: str
    dtype: str
    remember: bool

    @property
    def accuracy(self) -> float:
        """How exact a transport must be for half of the tolerance."""
        c_T = self.transition_weight
        return 0.5 * self.tol * (1.0 - c_T) / c_T if c_T > 0.0 else np.inf

    @property
    def weights(self) -> tuple[float, float]:
        """c_R and c_T."""
        return self.reward_weight, self.transition_weight

    def of_reduced(self, model: Chain | MDP) -> Question:
        """The same question of a model in place of another, which may not have all labels."""
        return replace(self, respected=tuple(name for name in self.respected if name in model.state_labels))

    def describe(self) -> dict[str, Any]:
        """The question in plain types."""
        way = self.transport
        plain = {"kind": type(way).__name__, **{f.name: getattr(way, f.name) for f in dataclasses.fields(way)}}
        return {**dataclasses.asdict(self), "transport": plain, "respected": list(self.respected)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Question:
        """The question that `describe` described."""
        settings = dict(plain["transport"])
        kind = getattr(transports, settings.pop("kind"))
        return cls(**{**plain, "transport": kind(**settings), "respected": tuple(plain["respected"])})


def check_match(model: Chain | MDP, match: str | None) -> Combine:
    """How choices are matched; a chain has none."""
    if isinstance(model, Chain):
        if match is not None:
            raise ValueError("match is for an MDP; a chain has no choices to match.")
        return "chain"
    if match not in ("labels", "hausdorff"):
        raise InputError(
            f'match must be "labels" (same action names) or "hausdorff" (choices as sets) for an MDP; got {match!r}.',
            python="For the metric of a policy pass mdp.under(policy).",
            command="For the metric of a policy give --policy.",
        )
    return cast(Combine, match)
