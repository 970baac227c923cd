"""The one-step operators of bisimulation metrics: what they are (`base`), and their sweeps on CPU and device."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.select import engine
from ..model import MDP, Chain
from ..transport import Transport
from .base import MetricOperator, Sweep, Swept, value_gap
from .device import DeviceOperator
from .host import HostOperator
from .matching import check_match, check_reward_weight, check_transition_weight, comparison_groups

__all__ = [
    "DeviceOperator",
    "HostOperator",
    "MetricOperator",
    "Sweep",
    "Swept",
    "check_match",
    "check_reward_weight",
    "check_transition_weight",
    "comparison_groups",
    "metric_operator",
    "value_gap",
]


def metric_operator(
    model: Chain | MDP,
    transport: Transport,
    *,
    match: str | None = None,
    reward_weight: float = 1.0,
    transition_weight: float | None = None,
    keep: Sequence[str] | None = None,
    warm_state: bool = True,
    device: str = "cpu",
    dtype: str = "float64",
) -> MetricOperator:
    """The operator of a model for a transport, on a device; arguments are those of `solve_metric`."""
    chosen = engine(device, dtype)
    return (DeviceOperator if chosen.on_device else HostOperator)(
        chosen, model, transport, match=match, reward_weight=reward_weight, transition_weight=transition_weight,
        keep=keep, warm_state=warm_state,
    )  # fmt: skip
