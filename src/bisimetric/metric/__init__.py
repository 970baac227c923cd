"""Bisimulation metrics: F (`operator`), its fixed point to a stated error (`solve`), and what one gets (`solution`)."""

from .driver import Progress
from .settings import MetricSettings
from .solution import MetricSolution
from .solve import solve_metric

__all__ = ["MetricSettings", "MetricSolution", "Progress", "solve_metric"]
