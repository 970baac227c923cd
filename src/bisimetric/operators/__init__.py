"""The one-step operators of bisimulation metrics: what they are (`base`), and their sweeps on CPU and device."""

from __future__ import annotations

from typing import Any

from ..kernels.select import engine
from ..model import MDP, Chain
from ..transport import Transport
from .base import MetricOperator, Sweep, Swept
from .device import DeviceOperator
from .host import HostOperator
from .matching import check_match, check_reward_weight, check_transition_weight, comparison_groups, respected_labels

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
    "respected_labels",
]


def metric_operator(
    model: Chain | MDP, transport: Transport, *, device: str = "cpu", dtype: str = "float64", **settings: Any
) -> MetricOperator:
    """The operator of a model for a transport, on a device; settings are those of `MetricOperator`."""
    chosen = engine(device, dtype)
    return (DeviceOperator if chosen.on_device else HostOperator)(chosen, model, transport, **settings)
