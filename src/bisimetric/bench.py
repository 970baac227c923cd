"""A short measurement of the kernels on the machine at hand, on checked results."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from . import problems
from .backends import reference
from .backends.select import host
from .metric.operator import sweeper_of
from .metric.settings import MetricSettings
from .metric.solve import solve_metric
from .model import MDP
from .transport import Exact, Independent, KLBall, Sinkhorn, Transport


def _agrees(mdp: MDP, transport: Transport, rng: np.random.Generator) -> bool:
    """Whether one sweep from a random distance agrees with the reference on some pairs."""
    chain = mdp.under(mdp.uniform_policy())
    d = rng.random((chain.n_states, chain.n_states))
    d = d + d.T
    np.fill_diagonal(d, 0.0)
    P = chain.rows.matrix().toarray()
    distances = host().distances(d)
    sweeper_of(chain, MetricSettings(transport=transport).for_model(chain)).sweep(distances, 1e-9)
    swept = distances.to_host()
    for _ in range(5):
        s, t = sorted(rng.choice(chain.n_states, 2, replace=False))
        W = reference.transport(transport, d, P[s], P[t])
        expected = abs(chain.rewards[s] - chain.rewards[t]) + chain.gamma * W
        if abs(expected - swept[s, t]) > 1e-6:
            return False
    return True


class Measured(TypedDict):
    """One line of measurements."""

    work: str
    states: int
    sweeps: int
    seconds: float
    us_per_pair: float
    kept_mib: float


def run_benchmarks(*, quick: bool = False) -> tuple[list[Measured], bool]:
    """Rows of measurements, and whether all results agree with the reference."""
    size = 100 if quick else 200
    first = problems.chain(n_states=size, n_classes=20)
    wide = problems.garnet(n_states=5 * size, n_actions=1, branching=8)
    work: list[tuple[str, MDP, Transport]] = [
        ("exact, first MDP", first, Exact()),
        ("exact, Garnet b=8", wide, Exact()),
        ("Sinkhorn λ=1, first MDP", first, Sinkhorn(1.0)),
        ("Sinkhorn λ=0.1, first MDP", first, Sinkhorn(0.1)),
        ("Sinkhorn λ=1, value, first MDP", first, Sinkhorn(1.0, cost="value")),
        ("Sinkhorn λ=1, dense", problems.chain(n_states=size, n_classes=20, mixing=0.05), Sinkhorn(1.0)),
        ("KL ball 0.5, first MDP", first, KLBall(0.5)),
        ("independent, first MDP", first, Independent()),
    ]
    rng = np.random.default_rng(0)
    rows: list[Measured] = []
    correct = True
    for name, mdp, transport in work:
        correct &= _agrees(mdp if mdp.n_states <= size else problems.garnet(60, 1, 8), transport, rng)
        chain = mdp.under(mdp.uniform_policy())
        solution = solve_metric(chain, transport, tol=1e-2)
        pairs = chain.n_states * (chain.n_states - 1) / 2
        rows.append(
            {
                "work": name,
                "states": chain.n_states,
                "sweeps": solution.sweeps,
                "seconds": solution.seconds,
                "us_per_pair": 1e6 * solution.seconds / solution.sweeps / pairs,
                "kept_mib": solution.kept_bytes / 2**20,
            }
        )
    return rows, correct
