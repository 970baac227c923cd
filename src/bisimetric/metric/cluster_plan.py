"""What a metric will cost on a cluster, before it is begun."""

from __future__ import annotations

from typing import Unpack

from ..checks import check_type, check_whole, merged
from ..cluster.costs import ClusterPlan, Whole, costs_of_cluster
from ..model import MDP, Chain
from ..transport import Transport
from .compare import rectangle, side_by_side
from .operator import comparison_of
from .settings import MetricChanges, MetricSettings


def cluster_plan(
    model: Chain | MDP,
    other: Chain | MDP | None = None,
    transport: Transport | None = None,
    *,
    workers: int,
    threads: int = 1,
    memory: int | None = None,
    **changes: Unpack[MetricChanges],
) -> ClusterPlan:
    """Count what a metric costs on a cluster, before anything is started.

    Bytes are counted; core-seconds come from a sample of pairs that is swept here, and from files written here.

    Args:
        model: whose distances, or those to another one. other: that one; None for all pairs of states.
        transport: `Exact()` (default), `Sinkhorn`, `KLBall` or `Independent`.
        workers, threads: processes, and threads of each. memory: bytes of each worker; by default, there is enough.
        changes: settings by name, as in `MetricSettings`. Nothing is merged first.

    Returns:
        A `ClusterPlan`. Cost: O(entries of P) for each block of columns, and a second or two.

    Raises:
        ClusterError: where no tile is small enough for the memory.
    """
    check_type("model", model, Chain, MDP, words="a Chain or an MDP")
    for name, count in {"workers": workers, "threads": threads, "memory": 1 if memory is None else memory}.items():
        if check_whole(name, count) < 1:
            raise ValueError(f"{name} must be at least 1; got {count}.")
    chosen = merged(MetricSettings, None, dict(changes) if transport is None else {**changes, "transport": transport})
    if chosen.device != "cpu":
        raise ValueError(f'workers of a cluster use their CPUs; device must be "cpu", got {chosen.device!r}.')
    whole = model if other is None else side_by_side(model, other)
    comparison = comparison_of(whole, chosen.for_model(whole))
    if other is not None:
        comparison = rectangle(comparison, model.n_states)
    each = (1 << 62) if memory is None else memory // threads
    return costs_of_cluster(Whole(comparison, chosen.transport, chosen.dtype, chosen.remember), workers * threads, each)
