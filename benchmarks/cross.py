"""What cross metrics and abstractions cost, on good models and on bad ones.

    python benchmarks/cross.py [--states 100000] [--size 64] [--tol 0.01] [--dtype float32] [--walk 1000000]

The cross metric is that of a random chain (b = 4) with the small model of random states; its time is that of sweeps on
S·K pairs, whatever they mean. Widths of brackets are those of random pairs of states.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from walks import random_chain, walk

import bisimetric as bm
from bisimetric.model.union import union


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1048576


def width(found: bm.Cross, count: int = 2000) -> float:
    """Mean width of the brackets of random pairs."""
    rng, n = np.random.default_rng(0), found.model.n_states
    gaps = []
    for s in rng.integers(0, n, count // 50):
        lower, upper = found.bracket(int(s), rng.integers(0, n, 50))
        gaps.append(upper - lower)
    return float(np.mean(gaps))


def check(dtype: str) -> None:
    """Cross metrics are part of the metric of both models side by side, or nothing is measured."""
    model, small = random_chain(120, 4, 0.9, 0), random_chain(16, 4, 0.9, 1)
    whole = bm.solve_metric(union(model, small), tol=1e-3, dtype=dtype, lump=False)
    found = bm.cross(model, small, tol=1e-3, dtype=dtype, lump=False)
    if np.abs(found.distance - whole.distance[:120, 120:]).max() > found.error + whole.error:
        raise SystemExit("the cross metric is not that of both models side by side")


def cross(states: int, size: int, tol: float, dtype: str) -> None:
    model, small = random_chain(states, 4, 0.9, 0), random_chain(size, 4, 0.9, 1)
    bm.cross(random_chain(200, 4, 0.9, 0), small, tol=tol, dtype=dtype, lump=False)  # compile
    began, cpu = time.perf_counter(), time.process_time()
    found = bm.cross(model, small, tol=tol, dtype=dtype, lump=False)
    print(
        f"cross metric {states} × {size}, b = 4, {dtype}: error {found.error:.2g}, {found.metric.sweeps} sweeps, "
        f"{time.perf_counter() - began:.1f} s ({time.process_time() - cpu:.1f} s of CPU), peak {peak():.2f} GiB",
        flush=True,
    )


def abstraction(name: str, model: bm.Chain | bm.MDP, **settings: object) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    try:
        found = bm.abstract(model, **settings)  # type: ignore[arg-type]
        loss = "" if found.certificate is None else f", loss at most {found.certificate.error:.3g}"
        said = f"{found.small.n_states} states, radius {found.radius:.3g} (mean {found.radii.mean():.3g}){loss}, "
        said += f"mean width {width(found.cross):.3g} of {found.cross.metric.largest:g}"
    except bm.NoCoverError as error:
        said = str(error)
    seconds = time.perf_counter() - began
    print(f"{name}: {said}; {seconds:.1f} s ({time.process_time() - cpu:.1f} s of CPU), {peak():.2f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--tol", type=float, default=0.01)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--walk", type=int, default=1_000_000)
    parser.add_argument("--grid", type=int, default=300)
    given = parser.parse_args()
    check(given.dtype)
    if given.states:
        cross(given.states, given.size, given.tol, given.dtype)
    garnet = bm.problems.garnet(n_states=2000, n_actions=2, branching=4, gamma=0.9, seed=0)
    abstraction("Garnet of 2,000 states, ε = 1", garnet, eps=1.0, match="labels")
    if given.grid:
        grid = bm.problems.gridworld(width=given.grid, height=given.grid)
        abstraction(f"grid of {given.grid} by {given.grid}, K = 60", grid, size=60, match="labels", dtype="float32")
    if given.walk:
        abstraction(f"walk of {given.walk} states, K = 20", walk(given.walk), size=20, dtype="float32")


if __name__ == "__main__":
    main()
