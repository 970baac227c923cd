"""One step of API(1/4) against the same step with the metric swept in the paper's way, and what else a step costs.

    python benchmarks/policy_step.py [--large]

The paper's way: POT's Sinkhorn on one row against the rows after it, dense, with the potentials of the last sweep,
stopped at a marginal error of 1e-2. It is timed on a few rows over all sweeps of the first twelve steps and scaled to
all rows.
Ours is run at the same marginal error, and at the default of 1e-6.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import bisimetric as bm
from bisimetric.backends.cpu.distances import HostDistances
from bisimetric.backends.cpu.sweeper import CpuSweeper
from bisimetric.backends.protocol import Sweep

STEPS = 12


def run(mdp: bm.MDP, marginal_tol: float, steps: int = STEPS) -> bm.PolicyRun:
    return bm.solve_policy(
        mdp,
        transport=bm.Sinkhorn(1.0, diagonal="zero", marginal_tol=marginal_tol),
        aggregation=bm.EpsilonCover(0.1),
        step_size=bm.Constant(0.25),
        greedy_noise=(0.05, 0.1),
        steps=steps,
        seed=0,
    )


def recorded_sweeps(mdp: bm.MDP) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(P_π, d before, transport distances) of every sweep of the first steps."""
    record = []
    original = CpuSweeper.sweep

    def sweep(self: CpuSweeper, d: HostDistances, accuracy: float = np.inf) -> Sweep:
        before = d.array.copy()
        report = original(self, d, accuracy)
        compared = self.comparison
        gap = np.abs(compared.rewards[:, None] - compared.rewards[None, :])
        record.append((compared.rows.matrix().toarray(), before, (d.array - gap) / compared.c_T))
        return report

    CpuSweeper.sweep = sweep  # type: ignore[method-assign]
    try:
        run(mdp, 1e-2)
    finally:
        CpuSweeper.sweep = original  # type: ignore[method-assign]
    return record


def pot_seconds(mdp: bm.MDP) -> float:
    """Seconds of the metric sweeps of one step in the paper's way, on average over the first steps."""
    import ot

    rows, spent = [5, 75, 155], 0.0
    warm: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    worst = 0.0
    for P, d, ours in recorded_sweeps(mdp):
        kernel = np.exp(-d)
        for s in rows:
            start = time.perf_counter()
            _, log = ot.sinkhorn(
                P[s] + 1e-30,
                P[s + 1 :].T,
                d,
                1.0,
                stopThr=1e-2,
                numItermax=10_000,
                log=True,
                warmstart=warm.get(s),
                warn=False,
            )
            spent += time.perf_counter() - start
            with np.errstate(divide="ignore"):
                warm[s] = (np.log(log["u"]), np.log(log["v"]))
            cost = np.einsum("ik,ij,jk->k", log["u"], kernel * d, log["v"])
            worst = max(worst, float(np.abs(ours[s, s + 1 :] - cost).max()))
    assert worst < 2e-2 * 10.0, worst  # marginal errors of 1e-2 on either side, distances up to 10
    print(f"transport distances of the two ways differ by at most {worst:.2g} (marginal errors of 1e-2)")
    n = mdp.n_states
    return spent * (n * (n - 1) / 2) / sum(n - 1 - s for s in rows) / STEPS


def shares(name: str, result: bm.PolicyRun) -> float:
    """Print the mean step and the share of it that is not metric sweeps."""
    total = sum(step.seconds for step in result.history)
    rest = 1.0 - sum(step.metric_seconds for step in result.history) / total
    print(
        f"{name}: {total / len(result.history):.3f} s a step, {100 * rest:.1f} % of it not metric sweeps (goal < 15 %)"
    )
    return total / len(result.history)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also S = 2000 (some minutes)")
    large = parser.parse_args().large
    mdp = bm.problems.chain()
    run(mdp, 1e-2, 1)
    same = shares("S = 200, marginal error 1e-2", run(mdp, 1e-2))
    default = shares("S = 200, marginal error 1e-6", run(mdp, 1e-6))
    theirs = pot_seconds(mdp)
    print(
        f"the paper's way at 1e-2: {theirs:.1f} s a step: {theirs / same:.0f} times ours at 1e-2 (goal 100), "
        f"{theirs / default:.0f} times ours at 1e-6"
    )
    if large:
        big = bm.problems.chain(n_states=2000, n_classes=200)
        shares("S = 2000, marginal error 1e-6, 3 steps", run(big, 1e-6, 3))


if __name__ == "__main__":
    main()
