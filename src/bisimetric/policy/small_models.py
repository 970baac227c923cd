"""The metric of a policy through a small model, where the distances of all pairs do not fit (`SmallModel`).

For each policy π_k a small model of its chain is proposed, from states that are far apart as seen from the last small
model's (at first from landmarks), and its cross metric D is computed with a certificate. The classes are the states
that are nearest to the same state of the small model; two of them are at most D(s, k) + D(t, k) + 2e apart. Nothing of
size S² is made.

To the loop this looks like the sweeps of a metric: `Measure` is what it asks of either, and `ToSmall` the distances.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ..abstraction import Cross, cross
from ..abstraction.proposals import farthest_points, small_model
from ..aggregation import SmallModel, partition_within
from ..backends.protocol import Backend, Pending, Swept
from ..backends.select import backend
from ..kinds import Array, Floats
from ..metric.operator import largest_distance, sweeper_of
from ..model import Chain
from ..model.parts import picked
from ..queries import Query
from ..status import Status
from ..values import policy_values
from .settings import PolicySettings

_ROUNDS = 2  # proposals where the metric is begun anew; else the last distances are coordinates that are good enough
_FINEST = 1e-9  # error of distances, as a share of the largest one, where every change counts
_STRIP = 1 << 16


class Kept(Protocol):
    """What is remembered between steps beside the distances."""

    @property
    def remembered_bytes(self) -> int: ...
    def remembered(self) -> dict[str, Array]: ...
    def recall(self, arrays: Mapping[str, Array]) -> None: ...
    def finish(self) -> None: ...


class Measure(Protocol):
    """What the loop asks of who computes its metric: a `Sweeper` of all pairs, or a `SmallModelMetric`."""

    @property
    def portable(self) -> bool: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def solver(self) -> Kept: ...
    def follow(self, chain: Chain) -> None: ...
    def start(self, d: Any, count: int, stop: float) -> Pending: ...
    def guard(self) -> AbstractContextManager[object]: ...


class ToSmall:
    """Distances from all states to those of a small model [S, K], as far as the loop needs them.

    Attributes: array (D; no columns where there is no small model yet), partition (states nearest to the same one).
    """

    def __init__(self, array: Array, found: Cross | None = None) -> None:
        self.array, self._found = array, found
        self.partition = None if found is None else partition_within(found.class_of, found.radius)

    @classmethod
    def nothing(cls, n_states: int) -> ToSmall:
        return cls(np.zeros((n_states, 0)))

    def zeros(self) -> ToSmall:
        return ToSmall.nothing(len(self.array))

    def to_host(self) -> Array:
        return self.array

    def gap_to(self, V: Floats) -> float:
        """max |D(s, k) − |V(s) − V'(k)||, with the values V' of the small model."""
        assert self._found is not None
        small = self._found.small
        assert isinstance(small, Chain)
        other, _ = policy_values(small, np.zeros(small.n_states))
        strips = (slice(at, at + _STRIP) for at in range(0, len(V), _STRIP))
        return max(float(np.abs(self.array[part] - np.abs(V[part, None] - other[None, :])).max()) for part in strips)


class _NothingKept:
    """Small models are found anew for each policy: the distances are all that the next one begins with."""

    remembered_bytes = 0

    def remembered(self) -> dict[str, Array]:
        return {}

    def recall(self, arrays: Mapping[str, Array]) -> None:
        del arrays

    def finish(self) -> None:
        """Nothing is to be done."""


class SmallModelMetric:
    """The metric of one policy after the other, each through a small model of its chain."""

    portable = True

    def __init__(self, chain: Chain, rule: SmallModel, settings: PolicySettings) -> None:
        self.chain, self._rule, self._settings = chain, rule, settings
        self.backend: Backend = backend(settings.device, settings.dtype)
        self.solver = _NothingKept()

    def follow(self, chain: Chain) -> None:
        self.chain = chain

    def start(self, d: ToSmall, count: int, stop: float) -> Pending:
        return _Later(self, d, count, stop)

    def guard(self) -> AbstractContextManager[object]:
        return self.backend.guard(2, (self.chain.n_states, self._rule.size))

    def measured(self, before: ToSmall, count: int, stop: float) -> Swept:
        """The distances of the chain to a small model of it, from up to `count` sweeps."""
        chain = replace(self.chain, state_labels={})  # labels do not matter for values
        c_T, largest = chain.gamma, largest_distance(chain, 1.0, chain.gamma)
        tol = max(stop * c_T / (1.0 - c_T), _FINEST * largest)
        anew = before.array.shape[1] == 0
        coordinates = Query(chain, lump=False).coordinates if anew else before.array
        alike, size = np.zeros(chain.n_states, np.int64), min(self._rule.size, chain.n_states)
        best, sweeps, iterations = None, 0, 0
        for _ in range(_ROUNDS if anew else 1):
            medoids = farthest_points(coordinates, alike, size)
            small = small_model(chain, picked(chain, medoids.states), medoids)
            found = cross(
                chain,
                small,
                transport=self._settings.transport,
                tol=tol,
                max_sweeps=count,
                lump=False,
                device=self._settings.device,
                dtype=self._settings.dtype,
            )
            if found.status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            sweeps, iterations = sweeps + found.metric.sweeps, iterations + found.metric.iterations
            coordinates = found.distance
            if best is None or found.radius.max() < best.radius.max():
                best = found
        assert best is not None
        change = best.error * (1.0 - c_T) / c_T if c_T > 0.0 else 0.0  # at most, by the contraction bound
        return Swept(ToSmall(np.asarray(best.distance), best), sweeps, change, iterations, 0.0)  # type: ignore[arg-type]


class _Later:
    """Sweeps that are done when their result is wanted."""

    def __init__(self, metric: SmallModelMetric, d: ToSmall, count: int, stop: float) -> None:
        self._metric, self._start, self._count, self._stop = metric, d, count, stop

    def go_on(self) -> bool:
        return True

    def result(self) -> Swept:
        return self._metric.measured(self._start, self._count, self._stop)


def measure_of(chain: Chain, settings: PolicySettings) -> Measure:
    """The metric that settings ask for, at work on a chain."""
    if isinstance(settings.aggregation, SmallModel):
        return SmallModelMetric(chain, settings.aggregation, settings)
    return sweeper_of(chain, settings.metric.for_model(chain))


def distances_like(measure: Measure, given: Array | None, n_states: int) -> Any:
    """The first distances of a metric, or those that a checkpoint has."""
    if isinstance(measure, SmallModelMetric):
        return ToSmall.nothing(n_states) if given is None else ToSmall(given)
    return measure.backend.zeros((n_states, n_states)) if given is None else measure.backend.distances(given)
