"""Bisimulation metrics: F (`operator`), its fixed point to a stated error (`solve`), and what one gets (`solution`)."""

from .cluster_plan import cluster_plan
from .compare import Carried, CrossMetric, compare
from .driver import Progress
from .explanation import Cause, Explanation, Origin
from .settings import MetricSettings
from .solution import MetricSolution
from .solve import solve_metric

__all__ = [
    "Carried",
    "Cause",
    "CrossMetric",
    "Explanation",
    "MetricSettings",
    "MetricSolution",
    "Origin",
    "Progress",
    "cluster_plan",
    "compare",
    "solve_metric",
]
