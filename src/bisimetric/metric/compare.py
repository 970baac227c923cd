"""Distances between the states of two models.

With rows P of the first and Q of the second model, D(s, t) is the fixed point of

    D(s, t) = c_R |R(s) − R'(t)| + c_T W(D)(P(s), Q(t)),

or of its maximum or Hausdorff distance over choices, on the rectangle of all pairs (s, t). It is the part between the
two models of the metric of both side by side, and needs no other part of it: successors of such a pair are such pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from ..backends.comparison import Comparison, corner_of
from ..backends.protocol import Backend, Sweeper
from ..backends.select import host
from ..certificates import Certificate, CertificateError
from ..checks import check_type, merged
from ..cluster.outline import Outline
from ..frames import frame
from ..kinds import Array, Floats, Ints
from ..model import MDP, Chain, Distributions, ModelError
from ..model.parts import ModelParts
from ..model.policies import as_weights
from ..model.union import union
from ..reduction import Reduction
from ..showing import table_html
from ..status import Status
from ..transport import Transport
from ..values import best_values, choice_values, value_ranges
from . import remote
from .driver import Aim, FixedPoint, Progress
from .operator import check_range, comparison_of
from .settings import MetricChanges, MetricSettings, Question
from .solve import metric_notes, reduced

if TYPE_CHECKING:
    import pandas as pd


def compare(
    model: Chain | MDP | ModelParts | Outline,
    other: Chain | MDP,
    transport: Transport | None = None,
    *,
    settings: MetricSettings | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cluster: object = None,
    store: Path | str | None = None,
    **changes: Unpack[MetricChanges],
) -> CrossMetric:
    """Compute the distances between the states of two models to a given error.

    Args:
        model, other: two chains, or two MDPs (with match="labels", where actions of the same name correspond, or
            match="hausdorff"), with the same discount. They may have different states, labels and actions; a label that
            one of them does not have holds nowhere in it. On a cluster the first may be one that is read in parts
            (`read_parts`).
        transport: `Exact()` (default), `Sinkhorn`, `KLBall` or `Independent`.
        settings: what else to do; by default `MetricSettings()`, which lists all settings.
        on_progress: called after each sweep; reads only.
        cluster: a Client of Dask, or the address of a scheduler, whose workers do the sweeps: the same bytes as here.
        store: a folder that workers and this process share, with which work that was broken off is gone on with; by
            default a temporary one, which does where workers are on this machine.
        changes: settings by name that differ from `settings`, such as match="labels" or tol=1e-3.

    Returns:
        A `CrossMetric`. Ctrl-C ends it with status INTERRUPTED and a valid error (before the first sweep: raised).
    """
    given = dict(changes) if transport is None else {**changes, "transport": transport}
    chosen = merged(MetricSettings, settings, given)
    model = remote.outlined(model, cluster, chosen.match)
    # What is asked of a model beside its rows is answered by the stand-in of one that is read in parts.
    first = model.stand_in if isinstance(model, Outline) else model
    both = side_by_side(first, other)
    question = chosen.for_model(both)
    if isinstance(model, Outline) and chosen.lump:
        raise ValueError("lump=True needs the whole model; of one that is read in parts no states are merged.")
    if chosen.low_memory:
        raise ValueError("low_memory is for one model, where d(s, t) = d(t, s); between two models leave it out.")
    if getattr(question.transport, "diagonal", "kept") == "zero":
        raise ValueError('diagonal="zero" is for the distances of one model: between two there is no diagonal.')
    largest = comparison_of(both, question).largest
    # Each side is reduced by itself; a bound that counts both states of a pair counts each side by half.
    left = _unreduced(model) if isinstance(model, Outline) else reduced(model, question, chosen.lump, largest)
    right = reduced(other, question, chosen.lump, largest)
    floor = 0.5 * (left.error + right.error)
    notes = metric_notes(both, question, _counts(model, other) if isinstance(model, Outline) else None)
    with remote.engine_of(question, cluster, store) as engine:
        sweeper = _sweeper(model if isinstance(model, Outline) else left.model, right.model, question, engine)
        with sweeper.guard():
            aim = Aim(question.tol, floor, question.accuracy)
            work = remote.fixed_point(sweeper, aim, accelerate=chosen.accelerate, engine=engine)
            status = work.run(chosen.max_sweeps, remote.watch(engine, on_progress))
            if cluster is not None:
                remote.bring_home(work, question)
    guarantee = question.transport.guarantee
    certificate = Certificate(work.error, question.transport.axioms.nonexpansive, guarantee)
    return CrossMetric(
        status,
        certificate,
        work.sweeps,
        work.iterations,
        work.seconds,
        largest,
        notes,
        question,
        left,
        right,
        work,
    )


def side_by_side(model: Chain | MDP, other: object) -> Chain | MDP:
    """Two models as one; refuses those that cannot be compared."""
    check_type("other", other, Chain, MDP, words="a Chain or an MDP")
    if isinstance(model, Chain) is not isinstance(other, Chain):
        raise ModelError("a Chain is compared with a Chain, and an MDP with an MDP; take .under(policy) of an MDP.")
    assert isinstance(other, (Chain, MDP))
    if model.gamma != other.gamma:
        raise ModelError(f"the models have different discounts, gamma = {model.gamma} and {other.gamma}.")
    return union(model, other)


def _unreduced(outline: Outline) -> Reduction[Chain | MDP]:
    """A model that is read in parts as it is; what a `CrossMetric` asks of a model beside its rows, it has too."""
    return Reduction(cast(Chain, outline.parts))


def _counts(outline: Outline, other: Chain | MDP) -> Ints:
    """How many states each state of the stand-in, and of the other model, is there for."""
    return np.concatenate([outline.counts, [0], np.ones(other.n_states, np.int64)])


def _sweeper(model: Chain | MDP | Outline, other: Chain | MDP, question: Question, engine: Backend) -> Sweeper:
    """F on the rectangle of two models."""
    first = model.stand_in if isinstance(model, Outline) else model
    both = union(first, other)
    whole = comparison_of(both, question.of_reduced(both))
    check_range(whole.largest, engine)
    comparison = rectangle(whole, first.n_states)
    if isinstance(model, Outline):
        assert remote.resumable(engine)
        return engine.sweeper_in_parts(model, comparison, question.transport, question.remember)
    with engine.guard(question.transport.squares, comparison.shape):
        return engine.sweeper(comparison, question.transport, question.remember)


def rectangle(whole: Comparison, n_states: int) -> Comparison:
    """The part of a comparison of two models side by side that is between them; the first has so many states."""
    rows, split = whole.rows, int(whole.row_pointers[n_states])
    indices, states = rows.indices.copy(), whole.state_of_row.copy()
    indices[rows.indptr[split] :] -= np.int32(n_states)
    states[split:] -= n_states
    sides = (n_states, rows.n_states - n_states)
    between = Distributions(rows.indptr, indices, rows.probs, max(sides), rows.moved, split, sides)
    groups = tuple(group for group in whole.groups if 0 < corner_of(between, group) < len(group))
    return replace(
        whole,
        rows=between,
        groups=groups,
        state_of_row=states,
        row_pointers=whole.row_pointers[: n_states + 1],
        column_pointers=whole.row_pointers[n_states:],
        apart=whole.apart[:n_states],
        columns_apart=whole.apart[n_states:],
    )


class Carried(NamedTuple):
    """A policy carried to another model.

    Attributes: policy (per choice of the other model), counterparts (the state of the first model whose actions each
    state plays), certificate (how far its values are from the best, at most).
    """

    policy: Floats
    counterparts: Ints
    certificate: Certificate


@dataclass(frozen=True, eq=False, repr=False)
class CrossMetric:
    """Distances between the states of two models, with their error.

    Attributes:
        distance: D [S, T], read-only.
        status: how the work ended; status.value says so in words, status.advice what to do.
        certificate: the error of `distance` as a fixed point, and the theorem that gives it.
        sweeps, iterations, seconds: work done.
        largest: the largest possible distance.
        notes: what one should know about the answer, if anything.
        question: what was asked.
    """

    status: Status
    certificate: Certificate
    sweeps: int
    iterations: int
    seconds: float
    largest: float
    notes: tuple[str, ...]
    question: Question
    _left: Reduction[Chain | MDP] = field(repr=False)
    _right: Reduction[Chain | MDP] = field(repr=False)
    _work: FixedPoint = field(repr=False)

    @cached_property
    def distance(self) -> Array:
        """D [S, T] as an array of NumPy."""
        full = self._of_states(self._work.d.to_host()).view()
        full.setflags(write=False)
        return full

    @property
    def error(self) -> float:
        """The error of the certificate."""
        return self.certificate.error

    @property
    def tol(self) -> float:
        """The error that was asked for."""
        return self.question.tol

    @property
    def converged(self) -> bool:
        return self.status is Status.CONVERGED

    def to_frame(self) -> pd.DataFrame:
        """The distances as a data frame of pandas, states of the first model in rows, of the second in columns."""
        names = [[side.full.name_of(s) for s in range(side.n_states)] for side in (self._left, self._right)]
        return frame(self.distance, names[0], names[1])

    def _repr_html_(self) -> str:
        facts = {
            "states": f"{self._left.n_states} and {self._right.n_states}",
            "transport": f"{self.question.transport}, {self.question.match}",
            "error": self.certificate,
            "status": self.status.value,
        }
        return table_html("Distances between two models", facts)

    def __repr__(self) -> str:
        word = "rigorous" if self.certificate.rigorous else "heuristic"
        return (
            f"CrossMetric({self._left.n_states} × {self._right.n_states} states, {self.question.transport}, {word} "
            f"error {self.error:.3g}, {self.status.name} after {self.sweeps} sweeps)"
        )

    def _of_states(self, d: Array) -> Array:
        """Numbers of pairs of reduced states as numbers of pairs of states."""
        if self._left.of_state is not None:
            d = d[self._left.of_state]
        return d if self._right.of_state is None else d[:, self._right.of_state]

    @cached_property
    def _bounds(self) -> tuple[Floats, Floats]:
        self._refuse_parts("these bounds need")
        sweeper, question = self._work.sweeper, self.question
        c_R, c_T = question.reward_weight, question.transition_weight
        with sweeper.guard():
            lower, upper = sweeper.bounds(self._work.d, question.accuracy)
        d = self._work.d.to_host()
        slack = sweeper.solver.rounding(max(float(d.max()), self.largest))
        rise = max(float((upper - d).max()), 0.0) + slack
        fall = max(float((d - lower).max()), 0.0) + slack
        lower, upper = self._of_states(lower), self._of_states(upper)
        floor = self._work.aim.floor
        upper = np.minimum(upper + slack + c_T * rise / (1.0 - c_T) + floor, self.largest * (1.0 + 1e-15))
        lower = np.maximum(lower - slack - c_T * fall / (1.0 - c_T) - floor, 0.0)
        for mine, theirs in zip(value_ranges(self._left.full, c_T), value_ranges(self._right.full, c_T), strict=True):
            gap = np.abs(mine[0][:, None] - theirs[0][None, :]) - mine[1] - theirs[1]
            np.maximum(lower, c_R * gap, out=lower)
        crossed = float((lower - upper).max())
        if crossed > 0.0:
            raise CertificateError(f"bounds around the exact distances cross by {crossed:.3g}.")
        return lower, upper

    def _refuse_parts(self, words: str) -> None:
        if isinstance(self._left.full, ModelParts):
            raise ModelError(
                f"{words} the rows of the model, which was read in parts; distances are within `error`, and "
                "cross(…).bracket bounds distances inside the model."
            )

    def bracket(self) -> tuple[Floats, Floats]:
        """Rigorous bounds (lower, upper) around the exact distances (λ = 0, same p) [S, T]; see `MetricSolution`."""
        lower, upper = self._bounds
        return lower.copy(), upper.copy()

    def nearest(self) -> Ints:
        """The nearest state of the other model for each state; the first of several [S]."""
        near: Ints = np.argmin(self.distance, axis=1)
        return near

    def between(self, initial: ArrayLike | None = None, other_initial: ArrayLike | None = None) -> tuple[float, float]:
        """(Distance between two distributions over the states of the models, its error).

        Args:
            initial, other_initial: probabilities [S] and [T]; by default equal ones on the states labelled "init".
        """
        rows = [
            _initial("initial", initial, self._left.full),
            _initial("other_initial", other_initial, self._right.full),
        ]
        solver = host().solver(rows[0].beside(rows[1]), (np.arange(2),), self.question.transport, False)
        tally, out = host().tally(), np.zeros((1, 1))
        solver.prepare(np.ascontiguousarray(self.distance, np.float64), self.question.accuracy)
        solver.fill(0, 0, 1, out, tally)
        value = solver.unit * float(out[0, 0])
        return value, self.error + solver.true_error(tally) + solver.rounding(max(value, self.largest))

    def carry(self, policy: ArrayLike) -> Carried:
        """Carry a policy of the first model to the other: each state plays what its nearest counterpart plays.

        For match="labels". With Q* of both models, |Q*(s, a) − Q'*(t, a)| ≤ D(s, t)/c_R where c_T is at least the
        discount γ. So an action that is δ(s) from the best in s is at most δ(s) + 2 D(s, t)/c_R from it in t, and a
        policy that plays such actions everywhere loses at most 1/(1−γ) times the largest of these (Castro and Precup,
        *Using bisimulation for policy transfer in MDPs*, AAAI 2010; Ferns, Panangaden and Precup, UAI 2004).

        Args:
            policy: of the first model: probabilities per choice, action numbers or names.
        """
        self._refuse_parts("to carry a policy needs")
        model, other, q = self._left.full, self._right.full, self.question
        if q.match != "labels" or not isinstance(model, MDP) or not isinstance(other, MDP):
            raise ValueError('policies are carried by the labels of actions: compare two MDPs with match="labels".')
        weights, (_, upper) = as_weights(model, policy), self._bounds
        counterparts = np.argmin(upper, axis=0)
        names = [np.asarray(side.action_labels)[side.action_of_choice] for side in (model, other)]
        of_label = {(int(s), str(a)): k for k, (s, a) in enumerate(zip(model.state_of_choice, names[0], strict=True))}
        found = [
            of_label.get((int(counterparts[t]), str(a))) for t, a in zip(other.state_of_choice, names[1], strict=True)
        ]
        alone = [int(t) for t, k in zip(other.state_of_choice, found, strict=True) if k is None]
        if alone:
            raise ModelError(f"no state of the first model has the actions of state {other.name_of(alone[0])}.")
        carried = weights[np.array(found)]
        return Carried(carried, counterparts, self._loss(model, weights, upper, counterparts))

    def _loss(self, model: MDP, weights: Floats, upper: Floats, counterparts: Ints) -> Certificate:
        q, gamma = self.question, model.gamma
        failed = []
        if q.reward_weight == 0.0:
            failed.append("rewards have no weight, so distances do not bound values")
        if q.transition_weight < gamma:
            failed.append(f"c_T = {q.transition_weight:g} is below the discount {gamma:g}")
        source = "policies carried along a bisimulation metric (Castro and Precup, 2010)"
        if failed:
            return Certificate(np.inf, False, source, tuple(failed))
        best, error = best_values(model)
        short = best[model.state_of_choice] - choice_values(model, best)
        delta = np.maximum.reduceat(np.where(weights > 0.0, short, 0.0), model.choice_ptr[:-1]) + 2.0 * error
        gaps = upper[counterparts, np.arange(upper.shape[1])] / q.reward_weight
        loss = float(np.max(np.maximum(delta, 0.0)[counterparts] + 2.0 * gaps)) / (1.0 - gamma)
        return Certificate(loss * (1.0 + 1e-12), True, source)


def _initial(name: str, given: ArrayLike | None, model: Chain | MDP) -> Distributions:
    """A distribution over the states of a model, checked, as one row."""
    n = model.n_states
    if given is None:
        if isinstance(model, ModelParts):
            raise ModelError(f"{name} must be given: labels of a model that is read in parts are not here.")
        if "init" not in model.state_labels or not model.state_labels["init"].any():
            raise ValueError(f'{name} must be given: the model has no states labelled "init".')
        given = model.state_labels["init"] / model.state_labels["init"].sum()
    mass = np.asarray(given, np.float64)
    if mass.shape != (n,):
        raise ValueError(f"{name} needs one probability per state ({n}); got shape {mass.shape}.")
    row = Distributions.from_matrix(mass[None, :]).normalised()
    row.check(lambda _: name)
    return row
