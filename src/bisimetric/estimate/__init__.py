"""From data to metrics and policies: counts of transitions, the models that they allow, and what is certain then.

`counts` counts (`tally`, `sources`, `discretise`: where data come from), `confidence` says which models the data allow
(by the inequalities of `intervals`), `bracket` bounds the metric of the true one, `policies` the loss of a policy in
it, and `pooling` lets states of a class share their samples.
"""

from .counts import Counts
from .discretise import Grid, KMeans

__all__ = ["Counts", "Grid", "KMeans"]
