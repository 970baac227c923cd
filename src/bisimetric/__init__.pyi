"""The public API at a glance: each name, and where it comes from.

Type checkers read this file, and so does the package itself, which loads a name when it is first used.
"""

from . import certificates as certificates
from . import learn as learn
from . import plot as plot
from . import problems as problems
from .abstraction import Abstraction as Abstraction
from .abstraction import Cross as Cross
from .abstraction import NoCoverError as NoCoverError
from .abstraction import abstract as abstract
from .abstraction import cross as cross
from .aggregation import EpsilonCover as EpsilonCover
from .aggregation import KMedoids as KMedoids
from .aggregation import Partition as Partition
from .aggregation import SmallModel as SmallModel
from .aggregation import lift_policy as lift_policy
from .aggregation import quotient as quotient
from .backends.errors import DeviceError as DeviceError
from .backends.threads import set_threads as set_threads
from .bars import Bar as Bar
from .certificates import Certificate as Certificate
from .cluster.costs import ClusterPlan as ClusterPlan
from .cluster.errors import ClusterError as ClusterError
from .estimate import Counts as Counts
from .estimate import Grid as Grid
from .estimate import KMeans as KMeans
from .formats import from_gymnasium as from_gymnasium
from .formats import from_mdptoolbox as from_mdptoolbox
from .formats import from_quantecon as from_quantecon
from .formats import read as read
from .formats import read_parts as read_parts
from .formats import to_mdptoolbox as to_mdptoolbox
from .formats import to_quantecon as to_quantecon
from .formats import write as write
from .lumping import Lumping as Lumping
from .lumping import lump as lump
from .metric.cluster_plan import cluster_plan as cluster_plan
from .metric.compare import Carried as Carried
from .metric.compare import CrossMetric as CrossMetric
from .metric.compare import compare as compare
from .metric.driver import Progress as Progress
from .metric.explanation import Explanation as Explanation
from .metric.settings import MetricSettings as MetricSettings
from .metric.solution import MetricSolution as MetricSolution
from .metric.solve import solve_metric as solve_metric
from .model import MDP as MDP
from .model import Chain as Chain
from .model import ModelError as ModelError
from .pages import view as view
from .policy.batch import solve_policies as solve_policies
from .policy.run import PolicyRun as PolicyRun
from .policy.run import Step as Step
from .policy.settings import PolicySettings as PolicySettings
from .policy.solve import solve_policy as solve_policy
from .queries import Answer as Answer
from .queries import Budget as Budget
from .queries import Nearest as Nearest
from .queries import Query as Query
from .queries import QuerySeen as QuerySeen
from .schedules import Constant as Constant
from .schedules import PowerDecay as PowerDecay
from .schedules import Theoretical as Theoretical
from .status import Status as Status
from .transport import Exact as Exact
from .transport import Independent as Independent
from .transport import KLBall as KLBall
from .transport import Sinkhorn as Sinkhorn
from .transport import Transport as Transport
from .values import Values as Values
from .values import evaluate as evaluate
from .values import greedy as greedy
from .values import optimal_values as optimal_values

__version__: str
