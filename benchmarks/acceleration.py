"""Sweeps and seconds to an error of 1e-6, plain and accelerated, as the discount nears 1.

    python benchmarks/acceleration.py                     # the table
    python benchmarks/acceleration.py --picture FILE.png  # and the picture
    python benchmarks/acceleration.py --models DIR        # with csma2_2.umb and zeroconf.umb from there
    python benchmarks/acceleration.py --only taxi         # some models
    python benchmarks/acceleration.py --before OTHER/src  # plain sweeps by another version

Answers of both ways are compared first: they must be within the sum of their errors. Plain sweeps that would take
longer than --patience seconds are broken off, and their time is then a lower bound.
"""

from __future__ import annotations

import argparse
import inspect
import os
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

import bisimetric as bm

DISCOUNTS = (0.9, 0.99, 0.999)
_TIMES, _BRIEF = 10, 0.1  # what takes less seconds is done so many times


def models(gamma: float, folder: Path | None):
    """(name, model, match, transport) of all that is measured."""
    for name, mdp in (
        ("Garnet, S=400, b=4", bm.problems.garnet(400, 1, 4, gamma=gamma)),
        ("Garnet, S=1000, b=8", bm.problems.garnet(1000, 1, 8, gamma=gamma)),
        ("gridworld 5×5", bm.problems.gridworld(5, 5, gamma=gamma)),
        ("first MDP, S=200", bm.problems.chain(200, 20, gamma=gamma)),
    ):
        yield name, mdp.under(mdp.uniform_policy()), None, bm.Exact()
    mdp = bm.problems.garnet(2000, 1, 4, gamma=gamma)
    yield "Independent, Garnet S=2000", mdp.under(mdp.uniform_policy()), None, bm.Independent()
    if find_spec("gymnasium") is not None:
        for name, environment in (("Taxi, labels", "Taxi-v4"), ("FrozenLake 8×8, labels", "FrozenLake8x8-v1")):
            yield name, bm.from_gymnasium(environment, gamma=gamma), "labels", bm.Exact()
    if folder is not None:
        csma = bm.read(folder / "csma2_2.umb", gamma=gamma, reward="time")
        yield "csma2_2, uniform policy", csma.under(csma.uniform_policy()), None, bm.Exact()
        yield "csma2_2, Hausdorff", csma, "hausdorff", bm.Exact()
        zeroconf = bm.read(folder / "zeroconf.umb", gamma=gamma)
        yield "zeroconf, Hausdorff", zeroconf, "hausdorff", bm.Exact()


def timed(model, transport, match, patience, **how):
    """(solution, CPU seconds of all threads), broken off after so many seconds; brief ones are the least of several."""
    began = time.perf_counter()

    def watch(progress):
        del progress
        if time.perf_counter() - began > patience:
            raise KeyboardInterrupt

    least = np.inf
    for _ in range(_TIMES):
        start = time.process_time()
        solution = bm.solve_metric(model, transport, match=match, tol=1e-6, on_progress=watch, **how)
        least = min(least, time.process_time() - start)
        if least > _BRIEF:
            break
    return solution, least


class Plain(NamedTuple):
    """What plain sweeps gave."""

    sweeps: int
    converged: bool
    error: float
    distance: np.ndarray


def plain_elsewhere(source, name, gamma, given):
    """Plain sweeps of another version, in a process of its own: (answer, CPU seconds)."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.npz"
        command = [sys.executable, __file__, "--only", name, "--answer", str(answer), "--gamma", str(gamma)]
        command += ["--patience", str(given.patience), "--threads", str(given.threads)]
        command += ["--models", str(given.models)] if given.models else []
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(source)}, check=True)
        with np.load(answer) as found:
            plain = Plain(int(found["sweeps"]), bool(found["converged"]), float(found["error"]), found["distance"])
            return plain, float(found["seconds"])


def answer_plainly(given):
    """The other side of `plain_elsewhere`, for versions that know nothing but plain sweeps too."""
    knows = "accelerate" in inspect.signature(bm.MetricSettings).parameters
    how = {"accelerate": False} if knows else {}
    ((_, model, match, transport),) = (
        row for row in models(given.gamma, given.models) if row[0].lower() == given.only.lower()
    )
    bm.solve_metric(model, transport, match=match, max_sweeps=3, **how)  # compiled
    plain, seconds = timed(model, transport, match, given.patience, **how)
    found = {"sweeps": plain.sweeps, "converged": plain.converged, "error": plain.error, "distance": plain.distance}
    np.savez(given.answer, seconds=seconds, **found)


def measured(name, model, match, transport, given):
    patience = given.patience
    timed(model, transport, match, patience)  # compiled before anything is timed
    fast, fast_seconds = timed(model, transport, match, patience)
    if given.before is not None:
        plain, plain_seconds = plain_elsewhere(given.before, name, model.gamma, given)
    else:
        solution, plain_seconds = timed(model, transport, match, patience, accelerate=False)
        plain = Plain(solution.sweeps, solution.converged, solution.error, solution.distance)
    off = float(np.abs(np.asarray(fast.distance, np.float64) - plain.distance).max())
    assert off <= fast.error + plain.error, f"{name}: {off} > {fast.error} + {plain.error}"
    return fast, fast_seconds, plain, plain_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--patience", type=float, default=120.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gamma", type=float, help="this discount only")
    parser.add_argument("--before", type=Path, help="the `src` folder of another version, for plain sweeps")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    bm.set_threads(given.threads)
    if given.answer is not None:
        answer_plainly(given)
        return
    rows = []
    print("| model | γ | sweeps, plain | sweeps | CPU s, plain | CPU s | ratio |\n|---|---|---|---|---|---|---|")
    for gamma in DISCOUNTS if given.gamma is None else (given.gamma,):
        for name, model, match, transport in models(gamma, given.models):
            if given.only.lower() not in name.lower():
                continue
            fast, fast_s, plain, plain_s = measured(name, model, match, transport, given)
            more = "" if plain.converged else "> "
            print(
                f"| {name} | {gamma} | {more}{plain.sweeps} | {fast.sweeps} | {more}{plain_s:.3g} | {fast_s:.3g} | "
                f"{more}{plain_s / max(fast_s, 1e-9):.3g}× |",
                flush=True,
            )
            rows.append((name, gamma, plain, plain_s, fast, fast_s))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\npeak memory of the process: {peak:.2f} GiB; {given.threads} thread(s)")
    if given.picture is not None:
        draw(rows, given.picture)


def draw(rows, path: Path) -> None:
    """Sweeps and seconds against 1/(1 − γ), before and after."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row[0] for row in rows))
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), sharex=True, layout="constrained")
    colours = plt.color_sequences["tab10"]
    for k, name in enumerate(names):
        mine = [row for row in rows if row[0] == name]
        x = [1.0 / (1.0 - row[1]) for row in mine]
        for ax, plain, fast in (
            (axes[0], [row[2].sweeps for row in mine], [row[4].sweeps for row in mine]),
            (axes[1], [row[3] for row in mine], [row[5] for row in mine]),
        ):
            ax.plot(x, plain, "--o", color=colours[k % 10], markersize=3, linewidth=1, alpha=0.7)
            ax.plot(x, fast, "-o", color=colours[k % 10], markersize=4, label=name)
    for ax, title in zip(axes, ("full sweeps to an error of 1e-6", "CPU seconds"), strict=True):
        ax.set(xscale="log", yscale="log", xlabel="1/(1 − γ)", title=title)
        ax.grid(alpha=0.3)
    axes[0].plot([], [], "k--", label="plain sweeps")
    axes[0].plot([], [], "k-", label="policy iteration")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
