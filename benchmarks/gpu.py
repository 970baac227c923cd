"""The CUDA path in one command: correctness first, then speed, and what bounds each kernel.

    python benchmarks/gpu.py [--quick] [--parts sweeps …] > docs/gpu-h200.md

Every speed comes after a check of the same work against float64 on the CPU or against the plain reference; where a
check fails, its speed is not printed and the exit status is 1. Times are medians of whole sweeps or steps, launches
included, measured on the host with the device synchronised. Pairs are counted once: S (S ± 1) / 2 a sweep.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from walks import random_chain

import bisimetric as bm
from bisimetric.backends import reference
from bisimetric.backends.protocol import Sweeper
from bisimetric.backends.threads import threads
from bisimetric.metric.operator import sweeper_of

FAILED: list[str] = []


def wait() -> None:
    import cupy

    cupy.cuda.Device().synchronize()


def timed(work: Callable[[], Any], repeats: int) -> float:
    """Median seconds of `work` on the device."""
    seconds = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def check(what: str, miss: float, allowed: float) -> bool:
    good = bool(miss <= allowed)  # False for NaN
    print(f"- check, {what}: off by {miss:.1e} (allowed {allowed:.0e}){'' if good else ' **FAILED**'}", flush=True)
    if not good:
        FAILED.append(what)
    return good


def row(work: str, goal: str, measured: str) -> None:
    print(f"\n**{work}** (goal: {goal}): {measured}\n", flush=True)


def garnet(n: int, branching: int) -> bm.Chain:
    mdp = bm.problems.garnet(n_states=n, n_actions=1, branching=branching, seed=0)
    return mdp.under(mdp.uniform_policy())


def sweeper_for(chain: bm.Chain, transport: bm.Transport, **settings: Any) -> Sweeper:
    return sweeper_of(chain, bm.MetricSettings(transport=transport, **settings).for_model(chain))


def limits() -> tuple[float, dict[str, float]]:
    """Copy bandwidth (bytes read and written a second) and rates of matrix products of the card."""
    import cupy

    device = cupy.cuda.runtime.getDeviceProperties(0)
    a = cupy.random.rand(1 << 28, dtype=np.float32)
    b = cupy.empty_like(a)
    bandwidth = 2 * a.nbytes / timed(lambda: cupy.copyto(b, a), 10)
    rates = {}
    for kind in ("float64", "float32"):
        x = cupy.random.rand(8192, 8192, dtype=np.float32).astype(kind)
        y = cupy.empty_like(x)
        cupy.matmul(x, x, out=y)
        rates[kind] = 2 * 8192**3 / timed(partial(cupy.matmul, x, x, out=y), 3)
    print(
        f"Card: {device['name'].decode()}, {device['multiProcessorCount']} multiprocessors; CuPy {cupy.__version__}. "
        f"Measured limits: copy {1e-12 * bandwidth:.2f} TB/s, matrix products {1e-12 * rates['float64']:.0f} TFLOP/s "
        f"in float64, {1e-12 * rates['float32']:.0f} in float32.\n"
    )
    return bandwidth, rates


def policy_steps() -> None:
    """The step of API(1/4) on the paper's first MDP, and small regularisation."""
    mdp = bm.problems.chain()

    def run(reg: float, alpha: float, steps: int, **engine: Any) -> bm.PolicyRun:
        return bm.solve_policy(
            mdp,
            transport=bm.Sinkhorn(reg, diagonal="zero"),
            aggregation=bm.EpsilonCover(0.1),
            step_size=bm.Constant(alpha),
            greedy_noise=(0.05, 0.1),
            steps=steps,
            seed=0,
            early_stop=1e-3,
            **engine,
        )

    for reg, alpha, steps in ((1.0, 0.25, 12), (0.1, 1.0, 8), (0.01, 1.0, 8)):
        cpu, gpu = run(reg, alpha, steps), run(reg, alpha, steps, device="cuda")
        check(
            f"λ = {reg:g}, α = {alpha:g}, {steps} steps, distances against the CPU in float64",
            float(np.abs(gpu.distance - cpu.distance).max()),
            1e-4,
        )
        check("classes of every step", float(np.abs(gpu.curve("n_classes") - cpu.curve("n_classes")).max()), 0.0)
    for dtype in ("float64", "float32"):
        runs = [run(1.0, 0.25, 12, device="cuda", dtype=dtype) for _ in range(5)]
        mean = statistics.median(float(np.mean(r.curve("seconds"))) for r in runs)
        metric = statistics.median(float(np.mean(r.curve("metric_seconds"))) for r in runs)
        row(
            f"API(1/4) step, first MDP, S = 200, λ = 1, marginal error 1e-6, {dtype}, mean of 12 steps",
            "under 5 ms",
            f"{1e3 * mean:.2f} ms, of which {1e3 * metric:.2f} ms wait for sweeps",
        )


def batches(count: int, steps: int) -> None:
    """Many runs of the first MDP in one process: alone, and side by side."""
    mdp = bm.problems.chain()
    variants = [{"seed": seed} for seed in range(count)]

    def run(side_by_side: int) -> list[bm.PolicyRun]:
        return bm.solve_policies(
            mdp,
            variants,
            side_by_side=side_by_side,
            transport=bm.Sinkhorn(1.0, diagonal="zero"),
            steps=steps,
            step_size=bm.Constant(0.25),
            greedy_noise=(0.05, 0.1),
            device="cuda",
        )

    rates, alone = {}, run(1)
    for side_by_side in (1, 4, 16):
        start = time.perf_counter()
        runs = run(side_by_side)
        rates[side_by_side] = count * steps / (time.perf_counter() - start)
        miss = max(float(np.abs(a.distance - b.distance).max()) for a, b in zip(runs, alone, strict=True))
        check(f"{count} runs, {side_by_side} at a time, against each alone", miss, 0.0)
    row(
        f"{count} runs of {steps} steps of API(1/4), first MDP, S = 200, λ = 1, in one process",
        "none",
        ", ".join(f"{rate:.0f} steps/s with {k} at a time" for k, rate in rates.items()),
    )


def large_steps(n: int) -> None:
    """Steps of a policy run on a large Garnet: how much of them is not sweeps."""
    mdp = bm.problems.garnet(n_states=n, n_actions=2, branching=4, seed=0)
    run = bm.solve_policy(
        mdp,
        transport=bm.Sinkhorn(1.0, diagonal="zero"),
        aggregation=bm.EpsilonCover(0.2),
        step_size=bm.Constant(0.25),
        steps=4,
        sweeps=10,
        early_stop=1e-3,
        device="cuda",
        dtype="float32",
    )
    seconds, metric = (run.curve(name)[1:] for name in ("seconds", "metric_seconds"))
    row(
        f"API(1/4) step, Garnet S = {n:,}, A = 2, b = 4, λ = 1, float32, steps 2 to 4",
        "none",
        f"{1e3 * seconds.mean():.0f} ms with {run.curve('sweeps')[1:].mean():.1f} sweeps and "
        f"{run.curve('n_classes')[1:].mean():.0f} classes a step, of which {1e3 * (seconds - metric).mean():.0f} ms "
        "are not sweeps (classes and values on the device, improvement on the host)",
    )


def sampled(chain: bm.Chain, transport: bm.Transport, d: Any, after: Any, count: int) -> float:
    """Largest difference of entries after a sweep from the plain reference, at sampled pairs."""
    return max(abs(float(after[s, t]) - x) for s, t, x in expected_at_sample(chain, transport, d, count))


def expected_at_sample(chain: bm.Chain, transport: bm.Transport, d: Any, count: int) -> list[tuple[int, int, float]]:
    """(s, t, what a sweep of d makes of that entry by the plain reference) for sampled pairs."""
    rng = np.random.default_rng(1)
    rows, found = chain.rows, []
    for _ in range(count):
        s, t = (int(x) for x in np.sort(rng.choice(chain.n_states, 2, replace=False)))
        a, b = (slice(rows.indptr[k], rows.indptr[k + 1]) for k in (s, t))
        i, j = rows.indices[a].astype(np.int64), rows.indices[b].astype(np.int64)
        both = np.concatenate([i, j])
        places = type(d)(both.shape, both.dtype)
        places.set(both)
        ground = np.asarray(d[places[:, None], places[None, :]].get(), np.float64)
        mu, nu = np.zeros(len(both)), np.zeros(len(both))
        mu[: len(i)], nu[len(i) :] = rows.probs[a], rows.probs[b]
        mu[mu > 0] /= mu.sum()
        nu[nu > 0] /= nu.sum()
        value = reference.transport(transport, ground, mu, nu)
        expected = abs(chain.rewards[s] - chain.rewards[t]) + chain.gamma * value
        found.append((s, t, expected))
    return found


def always_five(solver: Any) -> None:
    """Make Sinkhorn's solver scale every pair five times, however exact it is before."""
    budget = solver._budget
    solver._budget = lambda top: budget(top)._replace(tightest=0.0, loosest=1e-30, iterations=5)


def sweeps(n: int, branching: int, bandwidth: float, warm: int) -> None:
    """Warm sweeps of Garnets in float32."""
    import cupy

    chain = garnet(n, branching)
    for transport, goal in ((bm.Sinkhorn(1.0), 3e9), (bm.Exact(), 1e9)):
        kind = type(transport).__name__
        sweeper = sweeper_for(chain, transport, device="cuda", dtype="float32")
        d: Any = sweeper.backend.zeros((n, n))
        for _ in range(warm):
            sweeper.sweep(d)
        before = d.copy()
        sweeper.sweep(d)
        good = check(
            f"{kind}, S = {n:,}, b = {branching}, one sweep at 12 sampled pairs",
            sampled(chain, transport, before.array, d.array, 12),
            2e-4 if kind == "Sinkhorn" else 2e-5,
        )
        del before
        if kind == "Sinkhorn":
            always_five(sweeper.solver)
        report = sweeper.sweep(d)
        seconds = timed(partial(sweeper.sweep, d), 7)
        pairs = n * (n + 1) // 2 - (0 if sweeper.solver.with_diagonal else n)
        work = report.iterations / pairs
        kept = sweeper.solver.remembered_bytes / pairs
        traffic = pairs * ((2 if kind == "Sinkhorn" else 1) * kept + 12) + 3 * d.array.nbytes
        gathers = pairs * branching * 4 * branching * (2 if kind == "Sinkhorn" else 1)
        detail = f"{work:.1f} iterations a pair" if kind == "Sinkhorn" else f"{work:.3f} pivots a pair"
        if good:
            row(
                f"{kind} sweep, Garnet S = {n:,}, A = 1, b = {branching}, float32, warm",
                f"{goal:.0e} pairs a second",
                f"{1e3 * seconds:.1f} ms, {pairs / seconds:.2e} pairs a second ({detail}); device memory "
                f"{1e-12 * traffic / seconds:.2f} TB/s ({100 * traffic / seconds / bandwidth:.0f} % of a copy), costs "
                f"gathered from the second-level cache {1e-12 * gathers / seconds:.2f} TB/s",
            )
        del sweeper, d
        cupy.get_default_memory_pool().free_all_blocks()


def widths(n: int) -> None:
    """Sweeps of Garnets by the number of successors, float32: the first with costs, and one that starts warm."""
    import cupy

    count = n * (n - 1) // 2
    for transport, allowed in ((bm.Exact(), 2e-5), (bm.Sinkhorn(1.0), 2e-4)):
        kind = type(transport).__name__
        for branching in (8, 12, 20, 32):
            chain = garnet(n, branching)
            sweeper = sweeper_for(chain, transport, device="cuda", dtype="float32")
            d: Any = sweeper.backend.zeros((n, n))
            seconds, before = [], d
            for _ in range(8):
                before = d.copy()
                seconds.append(timed(partial(sweeper.sweep, d), 1))
            miss = sampled(chain, transport, before.array, d.array, 6)
            if check(f"{kind}, S = {n:,}, b = {branching}, the eighth sweep at 6 sampled pairs", miss, allowed):
                row(
                    f"{kind}, Garnet S = {n:,}, A = 1, b = {branching}, float32",
                    "none",
                    f"{count / seconds[1]:.2e} pairs a second in the second sweep, {count / seconds[7]:.2e} in the "
                    f"eighth; {sweeper.solver.remembered_bytes / count:.0f} bytes kept of a pair",
                )
            del sweeper, d, before
            cupy.get_default_memory_pool().free_all_blocks()


def dense() -> None:
    """One Sinkhorn iteration of all pairs by matrix products, against the bare products."""
    import cupy

    from bisimetric.backends.cuda.kernels import PairBlock
    from bisimetric.backends.cuda.kernels import dense as kernels

    mdp = bm.problems.chain(mixing=0.1)
    chain = mdp.under(mdp.uniform_policy())
    ours, theirs = (bm.solve_metric(chain, bm.Sinkhorn(1.0), tol=1e-4, max_sweeps=4, device=x) for x in ("cuda", "cpu"))
    good = check("dense rows, S = 200, 4 sweeps", float(np.abs(ours.distance - theirs.distance).max()), 1e-6)
    for dtype in ("float64", "float32"):
        solver: Any = sweeper_for(chain, bm.Sinkhorn(1.0, diagonal="zero"), device="cuda", dtype=dtype).solver
        solver.prepare(cupy.asarray(ours.distance.astype(dtype)), np.inf)
        rows, columns, _ = kernels.dense_pairs(np.arange(200), PairBlock(0, 0, 200, 1, 0))
        y = solver.matrix[columns].copy()
        x, q = cupy.empty_like(y), cupy.empty_like(y)

        def products(x: Any = x, y: Any = y, q: Any = q, kernel: Any = solver.kernel) -> None:
            cupy.matmul(y, kernel, out=x)
            cupy.matmul(x, kernel, out=q)

        products()
        bare = timed(products, 20)

        def scalings(count: int, given: Any = (solver, rows, columns, y)) -> None:
            solver, rows, columns, y = given
            kernels.scale(solver.matrix, rows, columns, solver.kernel, y.copy(), 0.0, count, count)

        five, one = timed(partial(scalings, 6), 10), timed(partial(scalings, 1), 10)
        each = (five - one) / 5
        rate = 4 * len(y) * 200 * 200 / bare
        if good:
            row(
                f"dense supports, S = 200, all pairs, one Sinkhorn iteration, {dtype}",
                "within 2× of the products",
                f"{1e6 * each:.0f} µs, {each / bare:.2f}× the {1e6 * bare:.0f} µs of the two products "
                f"({1e-12 * rate:.0f} TFLOP/s)",
            )


def against_cpu(n: int) -> None:
    """Warm sweeps on the device and on all cores."""
    chain = garnet(n, 8)
    for transport in (bm.Exact(), bm.Sinkhorn(1.0)):
        kind = type(transport).__name__
        cpu = sweeper_for(chain, transport)
        small = cpu.backend.zeros((n, n))
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            cpu.sweep(small)
            seconds.append(time.perf_counter() - start)
        for dtype in ("float64", "float32"):
            gpu = sweeper_for(chain, transport, device="cuda", dtype=dtype)
            d = gpu.backend.zeros((n, n))
            theirs = []
            for _ in range(5):
                theirs.append(timed(partial(gpu.sweep, d), 1))
            miss = float(np.abs(d.to_host() - small.to_host()).max())
            allowed = 1e-5 if dtype == "float64" else 1e-4
            if check(f"{kind}, S = {n:,}, 5 sweeps against the CPU, {dtype}", miss, allowed):
                row(
                    f"{kind}, S = {n:,}, b = 8, {dtype}, sweeps 2 to 5, against float64 on {threads()} cores",
                    "50×",
                    f"{1e3 * sum(theirs[1:]):.1f} ms against {1e3 * sum(seconds[1:]):.0f} ms: "
                    f"{sum(seconds[1:]) / sum(theirs[1:]):.0f}×",
                )
            del gpu, d


def fixed_point(n: int, goal: str) -> None:
    """A whole fixed point of a large Garnet, the second time, so that all kernels are compiled."""
    import cupy

    chain, seconds = garnet(n, 4), 0.0
    for _ in range(2):
        solution = None  # makes room
        start = time.perf_counter()
        solution = bm.solve_metric(chain, bm.Exact(), tol=1e-2, device="cuda", dtype="float32", lump=False)
        wait()
        seconds = time.perf_counter() - start
    assert solution is not None
    d: Any = solution.restart.distance
    used = cupy.get_default_memory_pool().total_bytes()
    expected = expected_at_sample(chain, bm.Exact(), d.array, 12)
    solution.restart.sweeper.sweep(d)  # in place: there may be no room for a copy
    miss = max(abs(float(d.array[s, t]) - x) for s, t, x in expected)
    if check(f"S = {n:,}: one more sweep at 12 sampled pairs", miss, 2e-5) and solution.converged:
        row(
            f"Garnet S = {n:,}, A = 1, b = 4, exact, γ = 0.9, error ≤ 1e-2, float32",
            goal,
            f"{seconds:.1f} s, {solution.sweeps} sweeps, error {solution.error:.1e}, "
            f"{1e-9 * used:.0f} GB of device memory at most",
        )


def rectangle(n: int, size: int, goal: str) -> None:
    """Cross metrics of a random chain with a small one on device and host: a short one compiles, then the whole one."""
    for states in (n // 50, n):
        model, small = random_chain(states, 4, 0.9, 0), random_chain(size, 4, 0.9, 1)
        seconds, found = {}, {}
        for device in ("cuda", "cpu"):
            wait()
            start = time.perf_counter()
            found[device] = bm.cross(model, small, tol=1e-2, device=device, dtype="float32", lump=False)
            wait()
            seconds[device] = time.perf_counter() - start
        there, here = found["cuda"], found["cpu"]
        miss = float(np.abs(there.distance - here.distance).max())
        if not check(f"cross metric {states:,} × {size} against the CPU", miss, there.error + here.error):
            return
    row(
        f"cross metric, random chain {n:,} × {size}, b = 4, γ = 0.9, error ≤ 1e-2, float32",
        goal,
        f"{seconds['cuda']:.2f} s, {there.metric.sweeps} sweeps, error {there.error:.1e}; {threads()} threads of the "
        f"host: {seconds['cpu']:.1f} s, {here.metric.sweeps} sweeps, error {here.error:.1e}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument(
        "--parts", nargs="*", help="steps batches large dense sweeps widths fixed larger rectangle cpu (all)"
    )
    given = parser.parse_args()
    quick = given.quick
    print("# The CUDA path, measured\n\nOutput of `python benchmarks/gpu.py`.\n")
    bandwidth, _ = limits()
    parts: dict[str, Callable[[], None]] = {
        "steps": policy_steps,
        "batches": lambda: batches(16, 5 if quick else 40),
        "large": lambda: large_steps(1_000 if quick else 20_000),
        "dense": dense,
        "sweeps": lambda: sweeps(2_000 if quick else 20_000, 8, bandwidth, 25),
        "widths": lambda: widths(1_000 if quick else 5_000),
        "fixed": lambda: fixed_point(2_000 if quick else 50_000, "under 5 minutes"),
        "larger": lambda: fixed_point(2_500 if quick else 100_000, "under 15 s"),
        "rectangle": lambda: rectangle(20_000 if quick else 1_000_000, 64, "5 s at 10⁶"),
        "cpu": lambda: against_cpu(1_000 if quick else 5_000),
    }
    for name, part in parts.items():
        if not given.parts or name in given.parts:
            part()
    print("all checks passed" if not FAILED else f"FAILED: {FAILED}")
    sys.exit(bool(FAILED))


if __name__ == "__main__":
    main()
