"""What is said of a whole run: the actions of its policy, and the paper's bounds. Everything here only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from .. import certificates
from ..aggregation import SmallModel
from ..certificates import Certificate
from ..kinds import Floats, Ints
from ..model import MDP
from ..transport import Exact
from ..values import first_choices
from .run import Step
from .settings import PolicySettings


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
