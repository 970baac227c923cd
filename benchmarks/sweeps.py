"""Speed of exact sweeps whose trees are kept, beside that of another tree of sources.

    python benchmarks/sweeps.py OTHER_SRC [--states 2000] [--branching 4] [--dtype float32]

Both are measured on one thread, in turns and in processes of their own, after as many sweeps; times are of the process.
Their distances are compared first.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

OWN = str(Path(__file__).parents[1] / "src")
WARM, TIMED, TURNS = 8, 4, 3


def measure(states: int, branching: int, dtype: str) -> dict[str, Any]:
    """Seconds of a warm sweep and of one with frozen plans, and what came out, of the package that is imported."""
    import bisimetric as bm
    from bisimetric.metric.operator import sweeper_of

    mdp = bm.problems.garnet(n_states=states, n_actions=1, branching=branching)
    chain = mdp.under(mdp.uniform_policy())
    sweeper = sweeper_of(chain, bm.MetricSettings(transport=bm.Exact(), dtype=dtype).for_model(chain))
    d = sweeper.backend.distances(np.zeros((states, states)))
    for _ in range(WARM):
        sweeper.sweep(d)
    seconds: dict[str, list[float]] = {"sweep": [], "frozen": []}
    sample = []
    for name, work in (("sweep", sweeper.sweep), ("frozen", sweeper.sweep_frozen)):
        work(d)  # compiles
        for _ in range(TIMED):
            start = time.process_time()
            work(d)
            seconds[name].append(time.process_time() - start)
        sample += [float(x) for x in d.to_host()[:: max(1, states // 50), -1]]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {**{name: min(times) for name, times in seconds.items()}, "sample": sample, "peak": peak}


def in_a_process(source: str, arguments: list[str]) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": source, "BISIMETRIC_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", source, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="the `src` folder of another version")
    parser.add_argument("--states", type=int, default=2000)
    parser.add_argument("--branching", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.states, given.branching, given.dtype)))
        return
    arguments = ["--states", str(given.states), "--branching", str(given.branching), "--dtype", given.dtype]
    pairs = given.states * (given.states - 1) / 2
    for turn in range(TURNS):
        old, new = (in_a_process(source, arguments) for source in (given.other, OWN))
        apart = float(np.abs(np.subtract(old["sample"], new["sample"])).max())
        assert apart <= 1e-5 * max(old["sample"]), apart
        for name in ("sweep", "frozen"):
            print(
                f"{turn} {name:7s} other {old[name] / pairs * 1e9:6.1f} ns a pair, this {new[name] / pairs * 1e9:.1f}, "
                f"ratio {old[name] / new[name]:.2f}, {pairs / new[name]:.2e} pairs a second and core"
            )
        print(f"  distances apart {apart:.1e}; peak memory {old['peak']:.0f} and {new['peak']:.0f} MiB")


if __name__ == "__main__":
    main()
