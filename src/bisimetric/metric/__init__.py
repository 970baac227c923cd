"""Bisimulation metrics: fixed points of the operators in `operators`, with their errors."""

from .solution import MetricSolution, Progress
from .solve import solve_metric

__all__ = ["MetricSolution", "Progress", "solve_metric"]
