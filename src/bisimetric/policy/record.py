"""What is recorded of a step, and certified of a policy. Everything here only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict

import numpy as np

from .. import certificates
from ..aggregation import Partition
from ..certificates import Certificate
from ..kinds import Floats, Ints
from ..model import MDP, Chain
from ..reduction import Reduction
from ..transport import Exact
from ..values import first_choices, optimal_backup
from .run import Step
from .settings import PolicySettings


class Clock:
    """Seconds since it was made, and those that the metric took of them."""

    def __init__(self) -> None:
        self._began, self.metric_seconds = time.perf_counter(), 0.0

    @contextmanager
    def metric(self) -> Iterator[None]:
        """What is done in this context is the metric's."""
        began = time.perf_counter()
        yield
        self.metric_seconds += time.perf_counter() - began

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


def certify(mdp: MDP, V: Floats, value_error: float) -> Certificate:
    """The best rigorous bound on ‖V* − V^π‖∞ for V = V^π, known up to value_error."""
    residual = certificates.bellman_residual(V, optimal_backup(mdp, V), gamma=mdp.gamma, value_error=value_error)
    anything = certificates.trivial(gamma=mdp.gamma, scale=mdp.reward_span, value_error=2.0 * value_error)
    return certificates.best(residual, anything)


def abstract_error(chain: Chain, V_abstract: Floats) -> float:
    """A certified bound on ‖V^π − Ṽ_Φ‖∞."""
    backup = chain.rewards + chain.gamma * (chain.rows.matrix() @ V_abstract)
    return certificates.evaluation_residual(V_abstract, backup, gamma=chain.gamma).error


def agreement(reduction: Reduction[MDP], partition: Partition) -> tuple[float | None, float | None]:
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
    if not history:
        return ()
    eps = max(step.diameter for step in history) / 2.0
    delta = max(step.delta for step in history)
    transport, alpha = settings.transport, settings.alpha(len(history), mdp.gamma)
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
