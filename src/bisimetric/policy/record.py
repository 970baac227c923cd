"""What is said of a step and of a whole run: figures, actions, the paper's bounds. Everything here only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from .. import certificates
from ..aggregation import Partition, SmallModel
from ..certificates import Certificate
from ..kinds import Floats, Ints
from ..model import MDP, Chain
from ..reduction import Reduction
from ..transport import Exact
from ..values import first_choices
from .run import Step
from .settings import PolicySettings

if TYPE_CHECKING:
    from .loop import Begun, Found, Given, LoopState


def recorded(given: Given, state: LoopState, begun: Begun, found: Found) -> Step:
    """What is said of the step; reads only."""
    swept, partition, best_value = found.swept, found.partition, given.best_value
    nmi, purity = _agreement(given.reduction, partition)
    return Step(
        k=state.k,
        error=None if best_value is None else float(np.abs(best_value - begun.V).max()),
        bound=begun.bound.error,
        metric_gap=swept.distance.gap_to(begun.V),
        n_classes=partition.n_classes,
        diameter=partition.diameter,
        delta=found.greedy.delta,
        alpha=found.alpha,
        sweeps=swept.sweeps,
        change=swept.change,
        transport_error=swept.transport_error,
        iterations=swept.iterations,
        abstract_error=_abstract_error(begun.chain, found.V_abstract),
        nmi=nmi,
        purity=purity,
        seconds=begun.clock.seconds,
        metric_seconds=begun.clock.metric_seconds,
    )


def _abstract_error(chain: Chain, V_abstract: Floats) -> float:
    """A certified bound on ‖V^π − Ṽ_Φ‖∞."""
    backup = chain.rewards + chain.gamma * (chain.rows.matrix() @ V_abstract)
    return certificates.evaluation_residual(V_abstract, backup, gamma=chain.gamma).error


def _agreement(reduction: Reduction[MDP], partition: Partition) -> tuple[float | None, float | None]:
    """NMI and purity against the known classes of all states, where there are any."""
    if reduction.true_classes is None:
        return None, None
    found = partition if reduction.model is reduction.full else reduction.lift_partition(partition)
    return found.agreement(reduction.true_classes)


def likely_actions(mdp: MDP, policy: Floats) -> tuple[Ints, tuple[str, ...]]:
    """The most probable choice of each state [S], the first of several, and its name."""
    most = np.maximum.reduceat(policy, mdp.choice_ptr[:-1])
    choices = first_choices(mdp, most[mdp.state_of_choice] <= policy)
    return choices, tuple(mdp.action_name(int(choice)) for choice in choices)


class _Common(TypedDict):
    """What all bounds on runs need."""

    gamma: float
    sweeps: int
    scale: float
    early_stop: float
    transport_error: float


class _Naive(TypedDict):
    """What those of the naive algorithm need beside that."""

    certified_metric: bool
    from_zero: bool
    alpha: float


def theorem_bounds(mdp: MDP, settings: PolicySettings, history: Sequence[Step]) -> tuple[Certificate, ...]:
    """The paper's bounds for a run, with its largest δ and the largest distance inside a class."""
    if not history or isinstance(settings.aggregation, SmallModel):
        return ()  # they are about distances of all pairs, that are gone on with
    eps = max(step.diameter for step in history) / 2.0
    delta = max(step.delta for step in history)
    transport, alpha = settings.transport, settings.alphas(mdp.gamma)(len(history))
    certified = transport.axioms.monotone and transport.axioms.nonexpansive
    assert settings.early_stop is not None  # filled in by `for_model`
    common = _Common(
        gamma=mdp.gamma,
        sweeps=settings.sweeps,
        scale=mdp.reward_span,
        early_stop=settings.early_stop,
        transport_error=max(step.transport_error for step in history),
    )
    naive = _Naive(certified_metric=certified, from_zero=settings.restart_metric, alpha=alpha)
    exact, warm = isinstance(transport, Exact), not settings.restart_metric
    return (
        certificates.api_converged(eps, delta, **naive, **common),
        certificates.api_limit(eps, delta, **naive, **common),
        certificates.api_alpha_limit(eps, delta, alpha, p=transport.order, exact=exact, warm=warm, **common),
    )
