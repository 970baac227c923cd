"""The cross metric of a large and a small model, and what it says about the large one.

For any small model N with K states the distances D(s, k) between the states of both are a fixed point on S·K pairs
alone (`metric.compare`). The metric of both side by side has the triangle inequality, so with errors of at most e

    max_k |D(s, k) − D(t, k)| − 2e  ≤  d(s, t)  ≤  min_k D(s, k) + D(t, k) + 2e,

and |V(s) − V'(k)| ≤ (D(s, k) + e)/c_R where c_T is at least the discount. N may be anything: a poor one gives wide
bounds, never wrong ones. Where states are apart by definition (other labels, other actions) they are at the largest
distance of both models together. That must then be the large model's own, so the rewards of N must lie within the range
of the large model's, and where these are all equal, must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from ..certificates import Certificate
from ..checks import check_whole, merged
from ..cluster.outline import Outline
from ..kinds import Array, Floats, Ints
from ..lumping import NOT_RESPECTED
from ..metric.compare import CrossMetric, compare
from ..metric.driver import Progress
from ..metric.operator import comparison_groups, largest_distance
from ..metric.remote import outlined
from ..metric.settings import MetricChanges, MetricSettings, check_match
from ..model import MDP, Chain, ModelError
from ..model.parts import ModelParts
from ..queries import Nearest
from ..queries.query import asked_state
from ..status import Status
from ..transport import Exact, Transport
from ..values import Values

_SHARE = 1e-3  # of the largest distance: the error that is asked for where none is given
_SLACK = 1e-12  # share of rewards by which those of a small model may be out of range: what rounding does to means
_STRIP = 1 << 16  # states at a time where numbers of all states are worked out


def cross(
    model: Chain | MDP | ModelParts | Outline,
    small: Chain | MDP,
    *,
    transport: Transport | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cluster: object = None,
    store: Path | str | None = None,
    **changes: Unpack[MetricChanges],
) -> Cross:
    """Compute the distances between all states of a large model and those of a small one.

    Args:
        model: the large model; on a cluster it may be one that is read in parts (`read_parts`). small: the small one,
            of the same kind and discount.
        transport: `Exact(p)`, by default with p = 1.
        on_progress: called after each sweep; reads only.
        cluster, store: workers of Dask that do the sweeps, and a folder that they share; see `compare`.
        changes: settings by name, as in `MetricSettings`; tol is 1e-3 of the largest distance where it is not given.

    Returns:
        A `Cross`. Cost: that of `compare`; memory about 2·S·K numbers and what solvers keep of each pair.
    """
    settings = merged(MetricSettings, None, changes if transport is None else {**changes, "transport": transport})
    model = outlined(model, cluster, settings.match)
    known = model.stand_in if isinstance(model, Outline) else model
    _refuse_early(known, small, settings)
    if "tol" not in changes:
        c_T = known.gamma if settings.transition_weight is None else settings.transition_weight
        settings = replace(settings, tol=_SHARE * largest_distance(known, settings.reward_weight, c_T) or settings.tol)
    found = compare(model, small, settings=settings, on_progress=on_progress, cluster=cluster, store=store)
    return Cross(found, model.parts if isinstance(model, Outline) else model, small, _moved(known, found))


def _refuse_early(model: Chain | MDP, small: object, settings: MetricSettings) -> None:
    """Refuse transports without a triangle inequality, and rewards that move the distance of states that are apart.

    What is wrong with the models otherwise is said by `compare`.
    """
    if not isinstance(settings.transport, Exact):
        raise ValueError(f"cross needs Exact transport, for its triangle inequality; got {settings.transport}.")
    if not isinstance(small, (Chain, MDP)) or isinstance(small, Chain) is not isinstance(model, Chain):
        return
    sets, _ = comparison_groups(model, check_match(model, settings.match))
    labels = (
        {*model.state_labels, *small.state_labels} - {*NOT_RESPECTED} if settings.respect is None else settings.respect
    )
    if not (labels or sets.any()):
        return
    (low, high), (least, most) = model.reward_range, small.reward_range
    room = _SLACK * max(abs(low), abs(high)) if low < high else 0.0
    if low - room <= least <= most <= high + room:
        return
    theirs = f"{least:g} to {most:g}"
    if low == high:
        raise ModelError(
            f"the large model's rewards are all {low:g}, so those of the small one must be too, as some states are "
            f"apart by definition (by as much as if rewards differed by 1, where they do not); they are {theirs}."
        )
    raise ModelError(
        f"the small model's rewards must lie within those of the large one, {low:g} to {high:g}, as some states are "
        f"apart by definition; they are {theirs}."
    )


def _moved(model: Chain | MDP, found: CrossMetric) -> float:
    """How far D is from what it would be with the model's own largest distance for states that are apart.

    The small model's rewards may be out of range by rounding, which moves the largest distance of both. Where none are
    apart by definition nothing depends on it.
    """
    q = found.question
    sets, _ = comparison_groups(model, q.match)
    if not (q.respected or sets.any()):
        return 0.0
    return abs(found.largest - largest_distance(model, q.reward_weight, q.transition_weight))


@dataclass(frozen=True, eq=False, repr=False)
class Cross:
    """Distances from all states of a model to those of a small one, and bounds that follow.

    Attributes: metric (the `CrossMetric`: distances, certificate, work done), model, small, moved (by how much the
    small model's rewards move the distances of states that are apart by definition: rounding).
    """

    metric: CrossMetric
    model: Chain | MDP | ModelParts = field(repr=False)
    small: Chain | MDP = field(repr=False)
    moved: float = 0.0

    @property
    def distance(self) -> Array:
        """D [S, K], read-only."""
        return self.metric.distance

    @property
    def error(self) -> float:
        """The largest error of an entry of D."""
        return self.metric.error

    @property
    def certificate(self) -> Certificate:
        return self.metric.certificate

    @property
    def status(self) -> Status:
        return self.metric.status

    @cached_property
    def class_of(self) -> Ints:
        """The nearest state of the small model for each state [S]."""
        near: Ints = np.argmin(self.distance, axis=1)
        return near

    @cached_property
    def radius(self) -> Floats:
        """How far each state is from the nearest state of the small model, at most [S]."""
        nearest = np.min(self.distance, axis=1).astype(np.float64)
        return np.asarray(np.minimum(nearest + self.error + self.moved, self.largest))

    @property
    def largest(self) -> float:
        """The largest possible distance, with what rounding may add to it."""
        return (self.metric.largest + self.moved) * (1.0 + 1e-15)

    def bracket(self, s: int | str, t: int | str | ArrayLike) -> tuple[Floats, Floats]:
        """Rigorous bounds (lower, upper) on d(s, t) inside the large model; t may be several states."""
        row = asked_state("s", s, self.model)
        several = np.asarray(asked_state("t", t, self.model) if isinstance(t, str) else t)
        if several.size and several.dtype.kind not in "iu":
            raise ValueError(f"t must be a state, or numbers of states; got {several.dtype}.")
        if several.size and not 0 <= several.min() <= several.max() < self.model.n_states:
            raise ValueError(f"t must be states between 0 and {self.model.n_states - 1}.")
        lower, upper = self._bounds(row, several.ravel().astype(np.int64))
        return lower.reshape(several.shape), upper.reshape(several.shape)

    def _bounds(self, s: int, t: Ints) -> tuple[Floats, Floats]:
        own, others = self.distance[s].astype(np.float64), self.distance
        lower, upper = np.empty(len(t)), np.empty(len(t))
        slack = 2.0 * (self.error + self.moved) + 8.0 * float(np.finfo(np.float64).eps) * self.largest
        for at in range(0, len(t), _STRIP):
            part = others[t[at : at + _STRIP]].astype(np.float64)
            lower[at : at + _STRIP] = np.abs(part - own).max(axis=1) - slack
            upper[at : at + _STRIP] = (part + own).min(axis=1) + slack
        np.clip(lower, 0.0, None, out=lower)
        np.clip(upper, None, self.largest, out=upper)
        lower[t == s] = upper[t == s] = 0.0
        return lower, upper

    def nearest(self, s: int | str, k: int = 1) -> Nearest:
        """The k states of the model that are nearest to s by upper bounds; `eta` says how near that is to the truth.

        The true k-th nearest is at least as far as the k-th smallest lower bound. Cost: O(S·K).
        """
        number, n = asked_state("s", s, self.model), self.model.n_states
        if not 1 <= check_whole("k", k) <= n - 1:
            raise ValueError(f"k must be between 1 and the number of other states, {n - 1}; got {k}.")
        states = np.delete(np.arange(n), number)
        lower, upper = self._bounds(number, states)
        order = np.lexsort((states, upper))[:k]
        eta = float(max(upper[order].max() - np.partition(lower, k - 1)[k - 1], 0.0))
        return Nearest(states[order], lower[order], upper[order], eta, self.status, 0, 0.0)

    def values(self, small_values: ArrayLike | Values) -> tuple[Floats, Floats]:
        """(Values [S] of the nearest states of the small model, how far each may be from the truth [S]).

        For the values of chains, and for best values of MDPs; the discount must be at most c_T. What `Values` are off
        by is counted; an array counts as exact.
        """
        off = small_values.error if isinstance(small_values, Values) else 0.0
        q, given = self.metric.question, np.asarray(small_values, np.float64)
        if given.shape != (self.small.n_states,):
            raise ValueError(f"values need one entry per state ({self.small.n_states}); got shape {given.shape}.")
        if not np.isfinite(given).all():
            raise ValueError("values must be finite.")
        if q.reward_weight == 0.0 or q.transition_weight < self.model.gamma:
            raise ValueError(
                "distances bound values only where rewards have a weight and c_T is at least the discount."
            )
        return given[self.class_of], (self.radius / q.reward_weight + off) * (1.0 + 1e-12)

    def __repr__(self) -> str:
        return (
            f"Cross({self.model.n_states} × {self.small.n_states} states, radius {float(self.radius.max()):.4g}, "
            f"error {self.error:.3g}, {self.status.name})"
        )
