"""Bisimulation metrics: F (`operator`), its fixed point to a stated error (`solve`), and what one gets (`solution`)."""

from .compare import Carried, CrossMetric, compare
from .driver import Progress
from .settings import MetricSettings
from .solution import MetricSolution
from .solve import solve_metric

__all__ = ["Carried", "CrossMetric", "MetricSettings", "MetricSolution", "Progress", "compare", "solve_metric"]
