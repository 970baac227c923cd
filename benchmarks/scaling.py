"""Memory and growth of `solve_metric` on sparse chains.

    python benchmarks/scaling.py

Peak memory is that of a process of its own, less what it had before the solve, in units of 8·S² bytes; time per sweep
is fitted as S^x from S = 500 to 4000 (median of the sweeps after the first ten).
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def memory(n_states: int, transport: str, keep: bool) -> None:
    """Run in a process of its own: print peak memory of a few sweeps beyond what was there before."""
    import bisimetric as bm

    way = bm.Exact() if transport == "exact" else bm.Sinkhorn(1.0)
    small = bm.problems.garnet(60, 1, 4)
    bm.solve_metric(small.under(small.uniform_policy()), way, tol=1.0)  # compiled before memory is read
    mdp = bm.problems.garnet(n_states, 1, 4)
    chain = mdp.under(mdp.uniform_policy())
    with open("/proc/self/statm") as statm:
        before = int(statm.read().split()[1]) * resource.getpagesize() // 1024
    solution = bm.solve_metric(chain, way, tol=1e-9, max_sweeps=3, lump=False, remember=keep)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps({"peak": peak, "kept": solution.kept_bytes}))


def growth() -> None:
    import bisimetric as bm
    from bisimetric.metric.operator import sweeper_of

    sizes, times = [500, 1000, 2000, 4000], []
    for n in sizes:
        mdp = bm.problems.garnet(n, 1, 4)
        chain = mdp.under(mdp.uniform_policy())
        sweeper = sweeper_of(chain, bm.MetricSettings().for_model(chain))
        d = sweeper.backend.zeros((n, n))
        spent = []
        for _ in range(18):
            start = time.perf_counter()
            sweeper.sweep(d)
            spent.append(time.perf_counter() - start)
        times.append(float(np.median(spent[10:])))
        print(
            f"S = {n}: {times[-1] * 1e3:.1f} ms a sweep, {times[-1] / (n * (n - 1) / 2) * 1e9:.0f} ns a pair",
            flush=True,
        )
    print(f"time per sweep grows as S^{np.polyfit(np.log(sizes), np.log(times), 1)[0]:.2f} (goal ≤ 2.2)")


def main() -> None:
    growth()
    n = 5000
    unit = 8 * n * n
    for transport in ("exact", "sinkhorn"):
        for keep in (True, False):
            call = f"import scaling; scaling.memory({n}, {transport!r}, {keep})"
            code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {call}"
            out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
            data = json.loads(out.strip().splitlines()[-1])
            peak, kept = data["peak"] / unit, data["kept"] / unit
            rest = f"rest {peak - kept:.2f} (goal ≤ 3.5)"
            print(f"{transport}, remember={keep}: peak {peak:.2f} × 8·S², kept {kept:.2f}, {rest}", flush=True)


if __name__ == "__main__":
    main()
