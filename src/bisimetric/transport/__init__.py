"""Ways to compare two next-state distributions under a ground distance."""

from .base import Axioms, Evaluator, Family, Transport
from .exact import Exact
from .independent import Independent
from .sinkhorn import KLBall, Sinkhorn

__all__ = ["Axioms", "Evaluator", "Exact", "Family", "Independent", "KLBall", "Sinkhorn", "Transport"]
