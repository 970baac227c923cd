"""What is asked of a metric: settings as a user gives them, and the question that they are for one model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict, cast

import numpy as np

from .. import transport as transports
from ..checks import InputError, check_engine, check_number, check_type, check_whole
from ..kinds import Facts
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
    low_memory: bool | None
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
        transition_weight: c_T in [0, 1), the weight of the next states; None for the discount. 1 is for labelled chains
            without rewards (see `undiscounted`): `lump`, `remember`, `accelerate` and `low_memory` then have no say.
        tol: largest error of the answer (sup-norm), not of a step.
        max_sweeps: give up after this many sweeps; the status says so.
        respect: labels of states that keep states apart; None for all but "init" and "deadlock".
        lump: merge bisimilar states first and give the result for all states; None for where that is exact (`Exact`
            transport) and its rounding is far below tol.
        remember: keep trees or potentials of each pair between sweeps, which is faster and takes memory.
        accelerate: solve between sweeps for the plans that the last one chose, or extrapolate; False for plain sweeps.
        low_memory: hold one array of all pairs in place of two, for the same answer in some more time (`Exact`, and
            `Independent` on sparse rows, of one model on the CPU); None for where two do not fit.
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
    low_memory: bool | None = None
    device: str = "cpu"
    dtype: str = "float64"

    def __post_init__(self) -> None:
        check_type("transport", self.transport, Transport, words="a transport such as Exact() or Sinkhorn(1.0)")
        if self.match is not None:
            check_matching(self.match)
        check_engine(self.device, self.dtype)
        if not 0.0 < check_number("tol", self.tol) < np.inf:
            raise ValueError(f"tol must be positive and finite; got {self.tol}.")
        if check_whole("max_sweeps", self.max_sweeps) < 1:
            raise ValueError(f"max_sweeps must be at least 1; got {self.max_sweeps}.")
        if not 0.0 <= check_number("reward_weight", self.reward_weight) < np.inf:
            raise ValueError(f"reward_weight (c_R) must be finite and not negative; got {self.reward_weight}.")
        if self.transition_weight is not None and not (
            0.0 <= check_number("transition_weight", self.transition_weight) <= 1.0
        ):
            raise ValueError(
                "transition_weight (c_T) must be in [0, 1), or 1 for labelled chains without rewards; "
                f"got {self.transition_weight}."
            )

    def for_model(self, model: Chain | MDP, *, undiscounted: bool = False) -> Question:
        """The question that these settings are for a model; refuses what does not fit it.

        `undiscounted`: whether c_T = 1 may be asked.
        """
        if self.transition_weight == 1.0:
            reason = self._why_not_undiscounted(model) if undiscounted else "only solve_metric can go without discount"
            if reason:
                raise ValueError(
                    f"transition_weight (c_T) must be in [0, 1); got 1, which is for labelled chains: {reason}."
                )
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
            remember=self.remember or c_T == 1.0,  # there is no other way than by kept plans
        )

    def _why_not_undiscounted(self, model: Chain | MDP) -> str:
        """What is in the way of a metric without discount, and what to do; nothing where it has a meaning here."""
        if isinstance(model, MDP):
            return (
                "in an MDP who chooses actions may stay where nothing differs, so that there are several fixed points; "
                "pass a chain, such as mdp.under(policy)"
            )
        if self.transport != Exact():
            return f"the transport must be Exact() with p = 1, for others nothing is proved; got {self.transport}"
        low, high = int(np.argmin(model.rewards)), int(np.argmax(model.rewards))
        if self.reward_weight > 0.0 and model.rewards[low] != model.rewards[high]:
            return (
                f"differences of rewards would add up without end, and states {model.name_of(low)} and "
                f"{model.name_of(high)} have rewards {model.rewards[low]:g} and {model.rewards[high]:g}; "
                "use reward_weight=0, or a transition_weight below 1"
            )
        if not respected_labels(model, self.respect):
            known = ", ".join(model.state_labels) or "none"
            return f"no labels are respected, so nothing tells states apart (the model has: {known}); give some"
        if self.device != "cpu":
            return f'it is computed on the host only; use device="cpu" in place of {self.device!r}'
        return ""


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
        return 0.5 * self.tol * (1.0 - c_T) / c_T if 0.0 < c_T < 1.0 else np.inf

    @property
    def weights(self) -> tuple[float, float]:
        """c_R and c_T."""
        return self.reward_weight, self.transition_weight

    def of_reduced(self, model: Chain | MDP) -> Question:
        """The same question of a model in place of another, which may not have all labels."""
        return replace(self, respected=tuple(name for name in self.respected if name in model.state_labels))

    def describe(self) -> Facts:
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
    check_matching(match)
    return cast(Combine, match)


def check_matching(match: object) -> None:
    """Refuse what is no way to match choices."""
    if match not in ("labels", "hausdorff"):
        raise InputError(
            f'match must be "labels" (same action names) or "hausdorff" (choices as sets) for an MDP; got {match!r}.',
            python="For the metric of a policy pass mdp.under(policy).",
            command="For the metric of a policy give --policy.",
        )
