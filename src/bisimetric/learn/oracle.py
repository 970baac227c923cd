"""The truth to compare learned metrics with: what a loss converges to, and how far an encoder is from d_π.

Both are for finite models. `fixed_point` iterates the loss's own operator; `score` measures an encoder against the
π-bisimulation metric, which `solve_metric` gives with a certified error.
"""

from .fixed_points import FixedPoint, fixed_point
from .scores import Score, score

__all__ = ["FixedPoint", "Score", "fixed_point", "score"]
