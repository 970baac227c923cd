"""How much wider than the actual error are the bounds on a metric from data? S = 20, δ = 0.05, γ = 0.9.

    python benchmarks/data_tightness.py

For chains of 20 states with 20 and with 4 random successors, and 100 and 10⁴ samples a row: the error of the estimated
metric, both forms of the paper's decomposition, and the slack of the bracket, the largest distance of a side from the
truth. Medians over 10 seeds; the bracket for a fixed number of samples, for adaptive data, and with the number of
successors known.
"""

from __future__ import annotations

import numpy as np

import bisimetric as bm


def figures(branching: int, samples: int, seed: int) -> tuple[float, ...]:
    mdp = bm.problems.garnet(n_states=20, n_actions=1, branching=branching, seed=seed)
    d = bm.solve_metric(mdp.under(mdp.uniform_policy()), tol=1e-8).distance
    counts = bm.Counts.from_simulator(mdp, n_states=20, n_actions=1, samples=samples, seed=seed)
    given = {"gamma": 0.9, "policy": "uniform", "exact_rewards": True, "reward_range": (0.0, 1.0)}
    split = counts.decomposition(0.05, **given)
    found = [float(np.abs(split.distance - d).max()), split.bound_a_priori, split.bound]
    for more in ({}, {"design": "adaptive"}, {"successors": branching}):
        lower, upper = counts.bracket(0.05, **given, **more)
        found.append(float(max((upper - d).max(), (d - lower).max())))
    return tuple(found)


def main() -> None:
    bm.set_threads(1)
    columns = (
        "successors",
        "samples a row",
        "actual error",
        "lemma, a priori",
        "lemma, computed",
        "bracket",
        "adaptive",
    )
    print("| " + " | ".join((*columns, "successors known", "bracket / error")) + " |")
    print("|" + "---|" * 9)
    for branching in (20, 4):
        for samples in (100, 10_000):
            table = np.array([figures(branching, samples, seed) for seed in range(10)])
            middle = np.median(table, axis=0)
            ratio = np.median(table[:, 3] / table[:, 0])
            print(
                f"| {branching} | {samples} | " + " | ".join(f"{x:.3g}" for x in middle) + f" | {ratio:.3g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
