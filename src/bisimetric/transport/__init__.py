"""Ways to compare two next-state distributions under a ground distance."""

from .base import Axioms, Transport
from .exact import Exact
from .independent import Independent
from .sinkhorn import KLBall, Sinkhorn

__all__ = ["Axioms", "Exact", "Independent", "KLBall", "Sinkhorn", "Transport"]
