"""The one-step operators of bisimulation metrics.

For a chain (a policy π), with a transport W:

    F(d)(s, t) = c_R |R(s) − R(t)| + c_T W(d)(P(s), P(t))                              (eqs. 5 and 11)

For an MDP, F(d)(s, t) compares choices by c_R |r − r'| + c_T W(d)(P, P') and combines them:

    match="labels"     the maximum over actions of the same label (eqs. 3 and 10). Where one state has
                       an action that the other has not, the distance is the largest possible one.
    match="hausdorff"  the Hausdorff distance of the two sets of choices (probabilistic automata).

States whose respected labels (atomic propositions) differ are at the largest possible distance. All distances are at
most c_R · span / (1 − c_T), where span is the range of the rewards (1 where all rewards are equal, so that
states with different actions are still apart).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.select import Engine
from ..model import MDP, Chain
from ..transport import Transport
from ..transport.base import same_supports
from .matching import (
    apart,
    check_match,
    check_reward_weight,
    check_transition_weight,
    choices_of,
    comparison_groups,
    family_of,
    respected_labels,
)

Units = list[tuple[int, int]]


class Sweep(NamedTuple):
    """What one sweep did."""

    rise: float  # largest increase of an entry
    fall: float  # largest decrease
    transport_error: float
    iterations: int

    @property
    def change(self) -> float:
        return max(self.rise, self.fall)


class Swept(NamedTuple):
    """What several sweeps did."""

    distance: Any
    sweeps: int
    change: float  # of the last one
    iterations: int
    transport_error: float  # largest of all


class MetricOperator(ABC):
    """F for one model, transport and matching, with the state that its transport keeps.

    Made by `metric_operator`, for the host or for a device.
    """

    def __init__(
        self,
        engine: Engine,
        model: Chain | MDP,
        transport: Transport,
        *,
        match: str | None = None,
        reward_weight: float = 1.0,
        transition_weight: float | None = None,
        respect: Sequence[str] | None = None,
        remember: bool = True,
    ) -> None:
        self.engine, self.model, self.transport, self.match = engine, model, transport, check_match(model, match)
        self.c_R = check_reward_weight(reward_weight)
        self.c_T = check_transition_weight(model.gamma if transition_weight is None else transition_weight)
        self.remember, self.respect = remember, respected_labels(model, respect)
        self.n_states = model.n_states
        self._states, self._pointers = choices_of(model)
        label_sets, groups = comparison_groups(model, self.match)
        self._label_sets = apart(model, label_sets, self.respect)
        _check_range(self.largest, engine)
        self.family = family_of(model, groups)
        self.evaluator: Any = transport.evaluator(engine, self.family, remember)

    def follow(self, model: Chain) -> None:
        """Go on with the chain of another policy; what the transport kept is kept where it fits."""
        if model.n_states != self.n_states or self.match != "chain":
            raise ValueError("follow needs a chain with the same states.")
        family = family_of(model, self.family.groups)
        if same_supports(family, self.family).all():
            self.evaluator.follow(family)
        else:
            evaluator = self.transport.evaluator(self.engine, family, self.remember)
            if self.remember:
                evaluator.take_from(self.evaluator)
            self.evaluator = evaluator
        self.model, self.family = model, family

    @property
    def largest(self) -> float:
        """The largest possible distance, c_R · span / (1 − c_T)."""
        return self.c_R * (self.model.reward_span or 1.0) / (1.0 - self.c_T)

    def recipe(self) -> dict[str, Any]:
        """Arguments of `metric_operator` that make the same operator anew."""
        return {
            "model": self.model, "transport": self.transport, "match": None if self.match == "chain" else self.match,
            "reward_weight": self.c_R, "transition_weight": self.c_T, "respect": self.respect,
            "remember": self.remember, "device": "cuda" if self.engine.on_device else "cpu",
            "dtype": self.engine.dtype.name,
        }  # fmt: skip

    def accuracy_for(self, tol: float) -> float:
        """How exact a transport must be for half of the tolerance."""
        return 0.5 * tol * (1.0 - self.c_T) / self.c_T if self.c_T > 0.0 else np.inf

    @abstractmethod
    def sweep(self, d: NDArray[Any], accuracy: float = np.inf) -> Sweep:
        """Replace d [S, S] by F(d); transports are within `accuracy` where they can be."""

    @abstractmethod
    def sweeps(self, start: Any, count: int, stop: float) -> Generator[None, None, Swept]:
        """Sweep a copy of `start` up to `count` times, until a sweep changes nothing by more than `stop`.

        Stops at least once, and wherever it would wait for a device, which works meanwhile.
        """

    @abstractmethod
    def bounds(self, d: NDArray[Any], tol: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bounds lower ≤ F_exact(d) ≤ upper [S, S] for a d with zero diagonal, on the host."""

    def memory_errors(self) -> AbstractContextManager[Any]:
        """In this context, running out of a device's memory, or a device that fails, is a clear error."""
        return nullcontext()

    @abstractmethod
    def for_classes(self, d: Any, stays: bool) -> Any:
        """Distances where classes are found soonest: on the host unless they may stay, until the next call."""

    def _blocks_of_labels(self, s0: int, s1: int, fill: Callable[..., None], dtype: Any) -> Any:
        """(group, its first and last row, block of transports) of the actions of states s0 … s1−1, label by label."""
        for group, members in enumerate(self.family.groups):
            a0, a1 = (int(k) for k in np.searchsorted(self._states[members], (s0, s1)))
            if a0 < a1:
                block = self.engine.xp.zeros((a1 - a0, len(members)), dtype)
                fill(group, a0, a1, block)
                yield group, a0, a1, block

    def _block_of_choices(self, s0: int, s1: int, fill: Callable[..., None], dtype: Any) -> Any:
        """The block of transports from the choices of states s0 … s1−1 to all choices."""
        a0, a1 = int(self._pointers[s0]), int(self._pointers[s1])
        block = self.engine.xp.zeros((a1 - a0, int(self._pointers[-1])), dtype)
        fill(0, a0, a1, block)
        return block


def _check_range(largest: float, engine: Engine) -> None:
    """Refuse distances that the numbers of the engine cannot hold."""
    if not largest < 1e-8 * float(np.finfo(engine.dtype).max):
        raise ValueError(
            f"distances may reach {largest:.3g}, which is too large for {engine.dtype.name}; scale the rewards down"
            + (", or use float64." if engine.dtype == np.float32 else ".")
        )
