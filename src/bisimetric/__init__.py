"""bisimetric: bisimulation metrics of finite MDPs, with their errors."""

from . import certificates, problems
from .aggregation import EpsilonCover, KMedoids, Partition, lift_policy, quotient
from .backends.errors import DeviceError
from .backends.threads import set_threads
from .certificates import Certificate
from .formats import from_gymnasium, from_mdptoolbox, from_quantecon, read, to_mdptoolbox, to_quantecon, write
from .lumping import Lumping, lump
from .metric import Carried, CrossMetric, MetricSettings, MetricSolution, Progress, compare, solve_metric
from .model import MDP, Chain, ModelError
from .policy import PolicyRun, PolicySettings, Step, solve_policies, solve_policy
from .schedules import Constant, PowerDecay, Theoretical
from .status import Status
from .transport import Exact, Independent, KLBall, Sinkhorn, Transport
from .values import Values, evaluate, greedy, optimal_values

__version__ = "0.1.0"

__all__ = [
    "MDP",
    "Carried",
    "Certificate",
    "Chain",
    "Constant",
    "CrossMetric",
    "DeviceError",
    "EpsilonCover",
    "Exact",
    "Independent",
    "KLBall",
    "KMedoids",
    "Lumping",
    "MetricSettings",
    "MetricSolution",
    "ModelError",
    "Partition",
    "PolicyRun",
    "PolicySettings",
    "PowerDecay",
    "Progress",
    "Sinkhorn",
    "Status",
    "Step",
    "Theoretical",
    "Transport",
    "Values",
    "certificates",
    "compare",
    "evaluate",
    "from_gymnasium",
    "from_mdptoolbox",
    "from_quantecon",
    "greedy",
    "lift_policy",
    "lump",
    "optimal_values",
    "problems",
    "quotient",
    "read",
    "set_threads",
    "solve_metric",
    "solve_policies",
    "solve_policy",
    "to_mdptoolbox",
    "to_quantecon",
    "write",
]
