"""What is recorded of a step, and certified of a policy. Everything here only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import certificates
from ..aggregation import Partition
from ..certificates import Certificate
from ..model import MDP, Chain
from ..reduction import Reduction
from ..transport import Exact
from ..values import first_choices, optimal_backup
from .run import Step
from .settings import PolicySettings

Floats = NDArray[np.float64]


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


def likely_actions(mdp: MDP, policy: Floats) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The most probable choice of each state [S], the first of several, and its name."""
    most = np.maximum.reduceat(policy, mdp.choice_ptr[:-1])
    choices = first_choices(mdp, most[mdp.state_of_choice] <= policy)
    return choices, tuple(mdp.action_name(int(choice)) for choice in choices)


def theorem_bounds(mdp: MDP, settings: PolicySettings, history: Sequence[Step]) -> tuple[Certificate, ...]:
    """The paper's bounds for a run, with its largest δ and the largest distance inside a class."""
    if not history:
        return ()
    eps = max(step.diameter for step in history) / 2.0
    delta = max(step.delta for step in history)
    transport, alpha = settings.transport, settings.alpha(len(history), mdp.gamma)
    certified = transport.axioms.monotone and transport.axioms.nonexpansive
    common: dict[str, Any] = {
        "gamma": mdp.gamma,
        "sweeps": settings.sweeps,
        "scale": mdp.reward_span,
        "early_stop": settings.early_stop,
        "transport_error": max(step.transport_error for step in history),
    }
    naive: dict[str, Any] = {"certified_metric": certified, "from_zero": settings.restart_metric, "alpha": alpha}
    warm: dict[str, Any] = {
        "p": transport.order,
        "exact": isinstance(transport, Exact),
        "warm": not settings.restart_metric,
    }
    return (
        certificates.api_converged(eps, delta, **naive, **common),
        certificates.api_limit(eps, delta, **naive, **common),
        certificates.api_alpha_limit(eps, delta, alpha, **warm, **common),
    )
