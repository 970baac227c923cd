"""bisimetric: bisimulation metrics of finite MDPs, with their errors."""

import typing as _typing
from importlib import import_module as _import_module

from . import certificates, plot, problems
from .abstraction import Abstraction, Cross, NoCoverError, abstract, cross
from .aggregation import EpsilonCover, KMedoids, Partition, lift_policy, quotient
from .backends.errors import DeviceError
from .backends.threads import set_threads
from .bars import Bar
from .certificates import Certificate
from .cluster import ClusterError, ClusterPlan
from .estimate import Counts, Grid, KMeans
from .formats import (
    from_gymnasium,
    from_mdptoolbox,
    from_quantecon,
    read,
    read_parts,
    to_mdptoolbox,
    to_quantecon,
    write,
)
from .lumping import Lumping, lump
from .metric import (
    Carried,
    CrossMetric,
    Explanation,
    MetricSettings,
    MetricSolution,
    Progress,
    cluster_plan,
    compare,
    solve_metric,
)
from .model import MDP, Chain, ModelError
from .pages import view
from .policy import PolicyRun, PolicySettings, Step, solve_policies, solve_policy
from .queries import Answer, Budget, Nearest, Query
from .schedules import Constant, PowerDecay, Theoretical
from .status import Status
from .transport import Exact, Independent, KLBall, Sinkhorn, Transport
from .values import Values, evaluate, greedy, optimal_values

if _typing.TYPE_CHECKING:
    from . import learn as learn

__version__ = "0.1.0"

__all__ = [
    "MDP",
    "Abstraction",
    "Answer",
    "Bar",
    "Budget",
    "Carried",
    "Certificate",
    "Chain",
    "ClusterError",
    "ClusterPlan",
    "Constant",
    "Counts",
    "Cross",
    "CrossMetric",
    "DeviceError",
    "EpsilonCover",
    "Exact",
    "Explanation",
    "Grid",
    "Independent",
    "KLBall",
    "KMeans",
    "KMedoids",
    "Lumping",
    "MetricSettings",
    "MetricSolution",
    "ModelError",
    "Nearest",
    "NoCoverError",
    "Partition",
    "PolicyRun",
    "PolicySettings",
    "PowerDecay",
    "Progress",
    "Query",
    "Sinkhorn",
    "Status",
    "Step",
    "Theoretical",
    "Transport",
    "Values",
    "abstract",
    "certificates",
    "cluster_plan",
    "compare",
    "cross",
    "evaluate",
    "from_gymnasium",
    "from_mdptoolbox",
    "from_quantecon",
    "greedy",
    "lift_policy",
    "lump",
    "optimal_values",
    "plot",
    "problems",
    "quotient",
    "read",
    "read_parts",
    "set_threads",
    "solve_metric",
    "solve_policies",
    "solve_policy",
    "to_mdptoolbox",
    "to_quantecon",
    "view",
    "write",
]


if not _typing.TYPE_CHECKING:  # for a type checker every other name would be a module, too

    def __getattr__(name):
        """`bisimetric.learn`, loaded when it is first used: it needs PyTorch, which nothing else here does."""
        if name == "learn":
            return _import_module(".learn", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
