"""What a metric costs with one array of all pairs in place of two: memory, and time by sweep.

    python benchmarks/low_memory.py [--ratio 3000] [--states 50000] [--sweeps 2]

Bytes are compared first, on a small model. Then CPU time of sweeps with one array and with two, in one process, of a
Garnet with four successors in float32: cold, with kept trees, and with frozen plans. Then, where --states is given,
some sweeps of a large one in a process of its own, without trees, with the peak of that process. The first sweep is of
distances that are 0, and no more than writing; the second is the first that does transport.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import bisimetric as bm
from bisimetric.metric.driver import Progress
from bisimetric.metric.operator import sweeper_of


def garnet(n_states: int) -> bm.Chain:
    mdp = bm.problems.garnet(n_states=n_states, n_actions=1, branching=4, gamma=0.9, seed=0)
    return mdp.under(mdp.uniform_policy())


def check() -> None:
    """One array and two give the same bytes, or nothing is measured."""
    chain = garnet(200)
    for remember in (True, False):
        one, two = (
            bm.solve_metric(chain, tol=1e-4, dtype="float32", remember=remember, low_memory=spare)
            for spare in (True, False)
        )
        if one.distance.tobytes() != two.distance.tobytes():
            raise SystemExit("one array and two give different distances")


def ratio(n_states: int) -> None:
    """Nanoseconds of CPU a pair and sweep."""
    chain, pairs = garnet(n_states), n_states * (n_states - 1) / 2
    found: dict[bool, list[float]] = {}
    for spare in (False, True):
        sweeper = sweeper_of(chain, bm.MetricSettings(dtype="float32").for_model(chain))
        if spare:
            sweeper.spare_memory()
        d, spent = sweeper.backend.zeros((n_states, n_states)), []
        sweeper.sweep_roughly(d)
        for sweep in (sweeper.sweep, sweeper.sweep, sweeper.sweep, sweeper.sweep_frozen):
            began = time.process_time()
            sweep(d)
            spent.append(1e9 * (time.process_time() - began) / pairs)
        found[spare] = spent
    for k, name in ((0, "cold"), (2, "from kept trees"), (3, "frozen plans")):
        one, two = found[True][k], found[False][k]
        both = f"{two:.0f} ns of CPU a pair with two arrays, {one:.0f} with one"
        print(f"S = {n_states}, {name}: {both}, {one / two:.2f} times")


def large(n_states: int, sweeps: int) -> None:
    bm.solve_metric(garnet(60), tol=0.1, dtype="float32", remember=False, low_memory=True)  # compile
    chain = garnet(n_states)
    began, cpu = time.perf_counter(), time.process_time()

    def seen(progress: Progress) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1048576
        spent = f"{time.perf_counter() - began:.0f} s ({time.process_time() - cpu:.0f} s of CPU)"
        done = f"sweep {progress.sweep}: error {progress.error:.4g} after {spent}"
        print(f"S = {n_states}, {done}, peak {peak:.2f} GiB", flush=True)

    bm.solve_metric(
        chain, tol=0.01, dtype="float32", remember=False, low_memory=True, max_sweeps=sweeps, on_progress=seen
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ratio", type=int, default=3000)
    parser.add_argument("--states", type=int, default=0)
    parser.add_argument("--sweeps", type=int, default=2)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        large(given.states, given.sweeps)
        return
    check()
    ratio(given.ratio)
    if given.states:
        own = [sys.executable, __file__, "--here", "--states", str(given.states), "--sweeps", str(given.sweeps)]
        subprocess.run(own, check=True)


if __name__ == "__main__":
    main()
