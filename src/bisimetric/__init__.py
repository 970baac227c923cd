"""bisimetric: bisimulation metrics of finite MDPs, with their errors."""

from . import problems
from .formats import read, write
from .kernels.select import set_threads
from .metric import Certificate, MetricSolution, Progress, Status, solve_metric
from .model import MDP, Chain, ModelError
from .transport import Exact, Independent, KLBall, Sinkhorn, Transport

__version__ = "0.1.0"

__all__ = [
    "MDP",
    "Certificate",
    "Chain",
    "Exact",
    "Independent",
    "KLBall",
    "MetricSolution",
    "ModelError",
    "Progress",
    "Sinkhorn",
    "Status",
    "Transport",
    "problems",
    "read",
    "set_threads",
    "solve_metric",
    "write",
]
