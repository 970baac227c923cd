"""What a local query costs: pairs opened, their share of all pairs of merged states and of S², and seconds.

    python benchmarks/queries.py [--models FOLDER] [--states 1000000] [--pairs 30] [--seconds 10]

FOLDER has coin4_k4.umb, csma3_2.umb, nand_perr_0.020.umb and nand_perr_0.022.umb; without it they are left out. The
time of a question is told apart from that of the start (partition refinement and landmarks). A question that takes more
than `--seconds` is broken off; how many were is in the last column.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from walks import walk

import bisimetric as bm


def row(name: str, query: bm.Query, pairs: list[tuple[int | None, int | None]], start: float, seconds: float) -> None:
    """Ask for all pairs, and print what that cost."""
    times, opened, late = [], [], 0
    for s, t in pairs:
        answer = query.distance(s, t, tol=1e-3, budget=bm.Budget(seconds=seconds))
        times.append(answer.seconds)
        opened.append(answer.opened)
        late += not answer.converged
    n = [model.n_states for model in (query.model, query.other or query.model)]
    share = max(opened) / max(query.reduced.n_states * (query.reduced.n_states - 1) / 2, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1048576
    print(
        f"{name:44} {query.model.n_states:8d} {query.reduced.n_states:8d} {start:7.1f} {np.median(times):9.4f} "
        f"{max(times):8.2f} {int(np.median(opened)):7d} {max(opened):7d} {share:9.2%} "
        f"{max(opened) / (n[0] * n[1]):8.4%} {peak:5.1f} "
        f"{late:3d}/{len(pairs)}",
        flush=True,
    )


def measure(
    name: str, count: int, seconds: float, *models: bm.MDP | bm.Chain, near: int = 0, **settings: object
) -> None:
    """A query of one model, or of two, about random pairs or about the initial states of two models."""
    began = time.perf_counter()
    query = bm.Query(*models, **settings)  # type: ignore[arg-type]
    start = time.perf_counter() - began
    if len(models) == 2:
        row(name, query, [(None, None)], start, seconds)
        return
    rng, n = np.random.default_rng(0), models[0].n_states
    first = rng.integers(0, n, count)
    second = np.clip(first + rng.integers(1, near, count), 0, n - 1) if near else rng.integers(0, n, count)
    row(name, query, [(int(s), int(t)) for s, t in zip(first, second, strict=True)], start, seconds)


def check() -> None:
    """Brackets hold what the full solver finds, or nothing is measured."""
    line = walk(60)
    whole, query = bm.solve_metric(line, tol=1e-9), bm.Query(line, lump=False)
    for s, t in ((0, 59), (7, 9), (30, 41), (12, 50)):
        answer = query.distance(s, t, tol=1e-4)
        if not answer.lower - 1e-9 <= whole.distance[s, t] <= answer.upper + 1e-9:
            raise SystemExit(f"the bracket of states {s} and {t} does not hold the distance")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path)
    parser.add_argument("--states", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    check()  # and compile
    print(
        f"{'model':44} {'states':>8} {'merged':>8} {'start s':>7} {'median s':>9} {'most s':>8} {'opened':>7} "
        f"{'most':>7}"
        f" {'of merged':>9} {'of S²':>8} {'GiB':>5} late"
    )
    line = walk(given.states)
    measure("random walk, random pairs", given.pairs, given.seconds, line, lump=False)
    measure("random walk, pairs at most 50 apart", given.pairs, given.seconds, line, lump=False, near=50)
    del line
    if given.models is not None:
        for name, reward in (("coin4_k4", "steps"), ("csma3_2", "time")):
            mdp = bm.read(given.models / f"{name}.umb", gamma=0.95, reward=reward)
            for match in ("labels", "hausdorff"):
                measure(f"{name}, {match}", given.pairs, given.seconds, mdp, match=match)
        both = [bm.read(given.models / f"nand_perr_0.0{k}.umb", gamma=0.95) for k in ("20", "22")]
        measure("nand, perr 0.020 against 0.022", 1, given.seconds, *both, match="labels")
    grid = bm.problems.gridworld(width=45, height=45)
    measure("grid of 45 by 45, four actions", min(given.pairs, 8), given.seconds, grid, match="labels")
    garnet = bm.problems.garnet(n_states=200, n_actions=2, branching=4, gamma=0.95, seed=0)
    measure("Garnet, 200 states, b = 4", min(given.pairs, 4), given.seconds, garnet, match="labels")


if __name__ == "__main__":
    main()
