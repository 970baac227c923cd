"""Speed against public tools, in one run, on checked results.

    python benchmarks/peers.py [--only WORD]

Each peer is measured where it is installed (extra `peers`). First the answers are compared; a speed is printed
only where they agree. Peers that are slow are timed on a sample of pairs or rows and scaled to the same sweeps.
All times are wall-clock on all cores; ours are the median of three solves after compilation.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bisimetric as bm
from bisimetric.backends.protocol import Sweeper
from bisimetric.backends.threads import threads
from bisimetric.metric.operator import sweeper_of

ROWS: list[tuple[str, str, float, float, float, str]] = []


def have(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Median wall-clock seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def report(work: str, peer: str, ours: float, theirs: float, goal: float, how: str) -> None:
    ROWS.append((work, peer, ours, theirs, goal, how))
    print(
        f"{work} | {peer}: ours {ours:.4g} s, peer {theirs:.4g} s, ratio {theirs / ours:.1f} (goal {goal:g})",
        flush=True,
    )


def sweeper_for(chain: bm.Chain, transport: bm.Transport, **settings: Any) -> Sweeper:
    return sweeper_of(chain, bm.MetricSettings(transport=transport, **settings).for_model(chain))


def sweeps_of(chain: bm.Chain, transport: bm.Transport, change: float = 1e-3) -> list[np.ndarray]:
    """The distances before each sweep, from 0 until a sweep changes nothing by more than `change`."""
    sweeper = sweeper_for(chain, transport)
    d = sweeper.backend.zeros((chain.n_states, chain.n_states))
    before = []
    while True:
        before.append(d.to_host().copy())
        if sweeper.sweep(d).change <= change:
            return before


def our_seconds(chain: bm.Chain, transport: bm.Transport, count: int) -> float:
    def solve() -> None:
        sweeper = sweeper_for(chain, transport)
        d = sweeper.backend.zeros((chain.n_states, chain.n_states))
        for _ in range(count):
            sweeper.sweep(d)

    solve()
    return seconds(solve)


def swept(chain: bm.Chain, transport: bm.Transport, d: np.ndarray) -> np.ndarray:
    """The transport distances of all pairs under d."""
    sweeper = sweeper_for(chain, transport, reward_weight=0.0)
    out = sweeper.backend.distances(d)
    sweeper.sweep(out)
    return out.to_host() / chain.gamma


def exact_against_pot(name: str, chain: bm.Chain, goal: float) -> None:
    import ot

    before = sweeps_of(chain, bm.Exact())
    rng = np.random.default_rng(0)
    rows, sample = chain.rows, 2400
    pairs = chain.n_states * (chain.n_states - 1) / 2
    spent = 0.0
    picked = [before[k] for k in np.linspace(1, len(before) - 1, 4).astype(int)]
    for d in picked:
        ours = swept(chain, bm.Exact(), d)
        for _ in range(sample // len(picked)):
            s, t = sorted(rng.choice(chain.n_states, 2, replace=False))
            x, y = slice(rows.indptr[s], rows.indptr[s + 1]), slice(rows.indptr[t], rows.indptr[t + 1])
            cost = np.ascontiguousarray(d[np.ix_(rows.indices[x], rows.indices[y])])
            a, b = rows.probs[x] / rows.probs[x].sum(), rows.probs[y] / rows.probs[y].sum()
            start = time.perf_counter()
            value = ot.emd2(a, b, cost)
            spent += time.perf_counter() - start
            assert abs(value - ours[s, t]) < 1e-9, (s, t, value, ours[s, t])
    theirs = spent / sample * pairs * len(before)
    how = f"{len(before)} sweeps; POT: {sample} pairs sampled over the sweeps, {1e6 * spent / sample:.0f} µs a call"
    report(name, "POT emd2 per pair", our_seconds(chain, bm.Exact(), len(before)), theirs, goal, how)


def sinkhorn_against_pot(name: str, chain: bm.Chain, reg: float, goal: float) -> None:
    """The paper's way: one row against the rows after it, dense, potentials kept from sweep to sweep.

    POT divides by the first marginal, so its zeros are replaced by 1e-30.
    """
    import ot

    transport = bm.Sinkhorn(reg)
    before = sweeps_of(chain, transport)
    P = chain.rows.matrix().toarray()
    chosen = [0, 40, 90, 140, 180]
    warm: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    spent = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for d in before:
            ours = swept(chain, transport, d)
            for s in chosen:
                start = time.perf_counter()
                _, log = ot.sinkhorn(
                    P[s] + 1e-30,
                    P[s:].T,
                    d,
                    reg,
                    stopThr=1e-6,
                    numItermax=10_000,
                    log=True,
                    warmstart=warm.get(s),
                    warn=False,
                )
                spent += time.perf_counter() - start
                warm[s] = (np.log(log["u"]), np.log(log["v"]))
                plan_cost = np.einsum("ik,ij,jk->k", log["u"], np.exp(-d / reg) * d, log["v"])
                assert np.abs(plan_cost - ours[s, s:]).max() < 1e-4, np.abs(plan_cost - ours[s, s:]).max()
    timed = sum(chain.n_states - s for s in chosen)
    theirs = spent * chain.n_states * (chain.n_states + 1) / 2 / timed
    how = f"{len(before)} sweeps, each pair once; POT: {len(chosen)} rows of {chain.n_states} timed"
    report(name, "POT sinkhorn on rows, warm", our_seconds(chain, transport, len(before)), theirs, goal, how)


def sinkhorn_against_ott(name: str, chain: bm.Chain, reg: float, goal: float) -> None:
    """OTT-JAX, jitted and vmapped over pairs, on compressed supports, in kernel mode, with kept potentials."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from ott.geometry import geometry
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    transport = bm.Sinkhorn(reg)
    before = sweeps_of(chain, transport)
    sizes = chain.rows.sizes
    width = int(sizes.max())
    assert sizes.min() == width, "equal supports, so that nothing is padded"
    index = jnp.asarray(chain.rows.indices.reshape(-1, width))
    probs = jnp.asarray(chain.rows.probs.reshape(-1, width))
    first, second = (jnp.asarray(k) for k in np.triu_indices(chain.n_states))
    best = np.inf
    for lse in (False, True):
        solver = sinkhorn.Sinkhorn(lse_mode=lse, threshold=1e-6, max_iterations=10_000, inner_iterations=5)

        def one(d, s, t, f, g, solver=solver):
            cost = d[index[s][:, None], index[t][None, :]]
            geom = geometry.Geometry(cost_matrix=cost, epsilon=reg)
            out = solver(linear_problem.LinearProblem(geom, probs[s], probs[t]), init=(f, g))
            return jnp.sum(out.matrix * cost), out.f, out.g

        batched = jax.jit(jax.vmap(one, in_axes=(None, 0, 0, 0, 0)))
        start_value = jnp.zeros if lse else jnp.ones

        def solve(batched=batched, start_value=start_value, lse=lse, chunk=2010):
            f, g = start_value((len(first), width)), start_value((len(first), width))
            values = []
            for d in before:
                ground = jnp.asarray(d)
                cuts = [slice(k, k + chunk) for k in range(0, len(first), chunk)]
                parts = [batched(ground, first[cut], second[cut], f[cut], g[cut]) for cut in cuts]
                cost, f, g = (jnp.concatenate(items) for items in zip(*parts, strict=True))
                if not lse:  # kernel mode starts from scalings
                    f, g = jnp.exp(f / reg), jnp.exp(g / reg)
                values.append(cost)
            return jax.block_until_ready(values)

        try:
            values = solve()
        except Exception as error:
            print(f"  OTT lse_mode={lse}: {type(error).__name__}: {error}")
            continue
        ours = swept(chain, transport, before[-1])[np.triu_indices(chain.n_states)]
        off = float(np.nanmax(np.abs(np.asarray(values[-1]) - ours)))
        if not off < 1e-4:
            print(f"  OTT lse_mode={lse} is off by {off:.2g}: not counted")
            continue
        took = seconds(solve, 1)
        print(f"  OTT lse_mode={lse}: {took:.3g} s, agrees to {off:.1e}")
        best = min(best, took)
    how = f"{len(before)} sweeps, {len(first)} pairs, supports of {width}, its faster mode, float64"
    report(name, "OTT-JAX jit(vmap)", our_seconds(chain, transport, len(before)), best, goal, how)


def dense_against_numpy(goal: float) -> None:
    chain = uniform(bm.problems.chain(mixing=0.05))
    transport = bm.Sinkhorn(1.0)
    before = sweeps_of(chain, transport)
    P = chain.rows.matrix().toarray()
    pairs = chain.n_states * (chain.n_states + 1) // 2
    first, second = np.triu_indices(chain.n_states)
    A, B = P[first], P[second]
    K = np.exp(-before[-1])
    V = np.ones_like(B)

    def iterate() -> np.ndarray:
        U = A / (V @ K)
        return B / (U @ K)

    iteration = seconds(iterate, 5)
    count = 5

    def sweep_cold() -> int:
        fresh = sweeper_for(chain, transport)
        return fresh.sweep(fresh.backend.distances(before[-1])).iterations

    sweep_cold()
    its = sweep_cold() / pairs
    ours = seconds(lambda: [sweep_cold() for _ in range(count)], 3) / count
    how = f"a cold sweep with {its:.2f} iterations a pair against as many NumPy iterations of {iteration:.3f} s"
    report("Sinkhorn λ=1, dense supports, S=200", "NumPy matrix products", ours, iteration * its, goal, how)


def against_markov_distances(goal: float) -> None:
    import torch
    from ot_markov_distances import discounted_wl

    chain = uniform(bm.problems.chain())
    transport = bm.Sinkhorn(1.0, cost="value")
    P = torch.tensor(chain.rows.matrix().toarray())[None]
    gap = torch.tensor(np.abs(chain.rewards[:, None] - chain.rewards[None, :]))[None]
    count = 10
    start = time.perf_counter()
    theirs_d = discounted_wl.discounted_wl_infty_cost_matrix(
        P,
        P,
        gap / (1.0 - chain.gamma),
        delta=1.0 - chain.gamma,
        sinkhorn_reg=1.0,
        max_iter=count,
        convergence_threshold_rtol=0.0,
        convergence_threshold_atol=0.0,
        sinkhorn_iter=100,
    )
    theirs = time.perf_counter() - start
    exact = bm.solve_metric(chain, transport, tol=1e-6).distance
    off = float(np.abs(theirs_d[0].numpy() - exact).max())
    assert off < 0.02, off  # ten sweeps are not the fixed point
    report(
        "value metric, first MDP, 10 sweeps, λ=1",
        "ot_markov_distances",
        our_seconds(chain, transport, count),
        theirs,
        goal,
        f"torch, float64, 2 threads; its result is within {off:.2g} of the fixed point",
    )


def uniform(mdp: bm.MDP) -> bm.Chain:
    return mdp.under(mdp.uniform_policy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run only the comparisons whose name has this word")
    only = parser.parse_args().only
    first = uniform(bm.problems.chain())
    garnet = uniform(bm.problems.garnet(n_states=1000, n_actions=1, branching=8))
    work: list[tuple[str, str, Callable[[], None]]] = [
        ("exact-first", "ot", lambda: exact_against_pot("Exact, first MDP, S=200", first, 150)),
        ("exact-garnet", "ot", lambda: exact_against_pot("Exact, Garnet S=1000, b=8", garnet, 50)),
        ("sinkhorn-pot-1", "ot", lambda: sinkhorn_against_pot("Sinkhorn λ=1, first MDP", first, 1.0, 100)),
        ("sinkhorn-pot-0.1", "ot", lambda: sinkhorn_against_pot("Sinkhorn λ=0.1, first MDP", first, 0.1, 100)),
        ("sinkhorn-ott-1", "ott", lambda: sinkhorn_against_ott("Sinkhorn λ=1, first MDP", first, 1.0, 5)),
        ("sinkhorn-ott-0.1", "ott", lambda: sinkhorn_against_ott("Sinkhorn λ=0.1, first MDP", first, 0.1, 5)),
        ("dense-numpy", "numpy", lambda: dense_against_numpy(0.7)),
        ("markov-distances", "ot_markov_distances", lambda: against_markov_distances(100)),
    ]
    for name, module, measure in work:
        if only not in name:
            continue
        if have(module):
            measure()
        else:
            print(f"{name}: not measured, {module} is not installed")
    print(f"\nthreads {threads()}, peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB\n")
    print("| work | against | ours (s) | peer (s) | ratio | goal | how |\n|---|---|---|---|---|---|---|")
    for name, peer, ours, theirs, goal, how in ROWS:
        print(f"| {name} | {peer} | {ours:.3g} | {theirs:.3g} | {theirs / ours:.3g}× | {goal:g}× | {how} |")


if __name__ == "__main__":
    main()
