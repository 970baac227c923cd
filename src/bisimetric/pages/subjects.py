"""What a page is about: a metric, a lumping or a run, in one form.

Distances are those of points, which are states, or classes that stand for bisimilar ones (`of_state`): a model of many
states with few classes has a page of its own size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from ..certificates import Certificate, optimal_value_error, policy_value_error
from ..kinds import Array, Facts, Floats, Ints
from ..lumping import Lumping
from ..metric.settings import Question
from ..metric.solution import MetricSolution
from ..metric.solve import solve_metric
from ..model import MDP, Chain
from ..policy.run import PolicyRun, Step
from ..values import choice_values, optimal_values, policy_values

_MOST_VALUES = 200_000  # states up to which values are worked out for a page


@dataclass(frozen=True)
class Subject:
    """A page's data before it is packed.

    Attributes: kind ("metric", "lumping", "run"); d [n, n] and of_state [S] (the point of each state; None: the states
    themselves); question, certificate (of d); model; names; columns (by name, what states can be coloured by: numbers
    or words [S]); facts (what is said at the top); history (of a run); notes; distinctions ((class, class): lines).
    """

    kind: str
    d: Array
    of_state: Ints | None
    n_states: int
    facts: Mapping[str, str]
    question: Question | None = None
    certificate: Certificate | None = None
    model: Chain | MDP | None = None
    names: Sequence[str] | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)
    history: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    distinctions: Mapping[str, list[str]] = field(default_factory=dict)

    def loss(self, diameter: float) -> Certificate:
        """How far values on classes of such a diameter may be from the true ones (eqs. 4 and 6)."""
        if self.question is None or self.certificate is None:
            return Certificate(np.nan, False, "no question is known", ("needs the settings of the metric",))
        if self.certificate.failed:
            return self.certificate
        bound = policy_value_error if self.question.match == "chain" else optimal_value_error
        axioms = self.question.transport.axioms
        c_R, c_T = self.question.weights
        return bound(
            0.5 * diameter,
            gamma=self.question.gamma,
            c_R=c_R,
            c_T=c_T,
            metric_error=self.certificate.error,
            certified_metric=axioms.upper_bound and self.certificate.rigorous,
        )


def of_metric(
    solution: MetricSolution, model: Chain | MDP | None = None, names: Sequence[str] | None = None
) -> Subject:
    """The page of a metric; `model` and `names` for a solution that comes from a file."""
    restart, asked = solution.restart, solution.question
    if model is None and restart.has_model:
        model = restart.reduction.full
    reduced = restart.has_model and restart.reduction.of_state is not None
    way = {"chain": "of a policy", "labels": "actions by label", "hausdorff": "choices as sets"}[asked.match]
    facts = {
        "metric": f"{asked.transport}, {way}",
        "weights": f"c_R = {asked.reward_weight:g}, c_T = {asked.transition_weight:g}, discount {asked.gamma:g}",
        "error": str(solution.certificate),
        "status": solution.status.value,
    }
    return Subject(
        "metric",
        restart.distance.to_host(),
        restart.reduction.of_state if reduced else None,
        solution.n_states,
        facts,
        asked,
        solution.certificate,
        model,
        names if model is None or model.state_names is None else model.state_names,
        columns_of(model),
        notes=solution.notes,
    )


def of_lumping(lumping: Lumping) -> Subject:
    """The page of an exact lumping: distances are those of its quotient, to 1 % of the largest possible one."""
    mdp, small = lumping.model, lumping.quotient
    respected = [name for name in lumping.respected if name in small.state_labels]
    rough = solve_metric(small, match=lumping.match, respect=respected, tol=1e300, max_sweeps=1)
    solution = solve_metric(small, match=lumping.match, respect=respected, tol=0.01 * max(rough.largest, 1e-290))
    facts = {
        "lumping": f"{lumping.n_states} states in {lumping.n_classes} classes, match {lumping.match}",
        "distances": f"of the quotient: {solution.question.transport}, {solution.certificate}",
    }
    columns = {"class": lumping.class_of.astype(str), **columns_of(mdp)}
    return Subject(
        "lumping",
        solution.distance,
        lumping.class_of,
        lumping.n_states,
        facts,
        solution.question,
        solution.certificate,
        mdp,
        mdp.state_names,
        columns,
        distinctions=_distinctions(lumping),
    )


_MOST_DISTINCT = 40  # classes up to which all formulas are on the page


def _distinctions(lumping: Lumping) -> dict[str, list[str]]:
    """Formulas for all pairs of classes, where there are few."""
    if lumping.n_classes > _MOST_DISTINCT:
        return {}
    found = {}
    for k in range(lumping.n_classes):
        for m in range(k):
            why = lumping.explain(int(lumping.medoids[k]), int(lumping.medoids[m]))
            assert why.formula is not None
            found[f"{k},{m}"] = why.formula.lines()
    return found


def check_square(distance: Array) -> None:
    """Refuse distances to a small model, as runs with `SmallModel` have them."""
    if distance.shape[0] != distance.shape[1]:
        raise ValueError(
            f"this run has distances to a small model {list(distance.shape)}, and a page needs those of all pairs."
        )


def of_run(run: PolicyRun, mdp: MDP, question: Question | None = None) -> Subject:
    """The page of a policy run."""
    check_square(run.distance)
    named = {} if run.optimal_value is None else {"loss of the policy": run.optimal_value - run.value}
    return of_steps(
        mdp,
        run.distance,
        None,
        question,
        {
            "class": run.partition.class_of.astype(str),
            "value of the policy": run.value,
            "action": np.array(run.actions, dtype=str),
            **named,
        },
        run.history,
        {
            "certified bound": f"{run.certificate.error:.4g} ({run.certificate.source})",
            "ended because": run.status.value,
        },
    )


def of_steps(
    mdp: MDP,
    d: Array,
    of_state: Ints | None,
    question: Question | None,
    columns: Mapping[str, Array],
    history: Sequence[Step],
    facts: Mapping[str, str],
) -> Subject:
    """The page of a run, from its parts."""
    error = Certificate(
        np.nan, False, "distances of a step", ("needs a fixed point, and these are the distances of a step",)
    )
    more = {name: values for name, values in columns_of(mdp).items() if name not in columns}
    about = {"run": f"{len(history)} steps", **facts}
    return Subject(
        "run",
        d,
        of_state,
        mdp.n_states,
        about,
        question,
        error,
        mdp,
        mdp.state_names,
        {**columns, **more},
        tuple(history),
    )


def columns_of(model: Chain | MDP | None) -> dict[str, Array]:
    """What the states of a model can be coloured by: values, actions, rewards, labels, known classes."""
    if model is None:
        return {}
    columns: dict[str, Array] = {}
    if model.n_states <= _MOST_VALUES:
        if isinstance(model, MDP):
            V: Floats = optimal_values(model).value
            columns["best value"] = V
            columns["best action"] = _best_actions(model, V)
        else:
            columns["value"] = policy_values(model, np.zeros(model.n_states))[0]
    if isinstance(model, Chain):
        columns["reward"] = model.rewards
    for name, holds in model.state_labels.items():
        columns[f"label {name[:60]}"] = np.where(holds, "holds", "does not hold")
    if model.classes is not None:
        columns["known class"] = model.classes.astype(str)
    return columns


def _best_actions(mdp: MDP, V: Floats) -> Array:
    Q = choice_values(mdp, V)
    first = [int(Q[a:b].argmax()) + a for a, b in zip(mdp.choice_ptr[:-1], mdp.choice_ptr[1:], strict=True)]
    return np.array([mdp.action_name(c)[:60] for c in first], dtype=str)


def curves_of(history: Sequence[Step]) -> Facts:
    """The steps of a run as columns; what a step has not is None."""
    wanted = {f.name for f in fields(Step)} - {"seconds", "metric_seconds"}

    def finite(x: float | None) -> float | None:
        return x if x is not None and np.isfinite(x) else None

    return {name: [finite(getattr(step, name)) for step in history] for name in sorted(wanted)}
