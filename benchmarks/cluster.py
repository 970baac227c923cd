"""Two processes of Dask against two threads of one process: a cross metric, with workers killed, and its plan.

    python benchmarks/cluster.py [--states 300000] [--size 64] [--tol 0.01] [--dtype float32] [--store /dev/shm/x]
    python benchmarks/cluster.py --all-pairs 100000 --memory 9 --store FOLDER     # two sweeps of all pairs

Answers are compared first. Seconds of the clock mean something on an idle machine alone, so those of the processors are
given too: of all workers and of this process. The plan's bytes are compared with those that tasks counted, and its
core-seconds with theirs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from walks import random_chain

import bisimetric as bm
from bisimetric.cluster.sweeper import ClusterSweeper


def cpu(client: object) -> float:
    """Seconds of the processors so far, of this process and all workers that are there."""
    return time.process_time() + sum(client.run(time.process_time).values())  # type: ignore[attr-defined]


class Seen:
    """The tasks of all sweeps."""

    def __init__(self) -> None:
        self.sweeps: list[tuple[str, int, int, float]] = []
        stage = ClusterSweeper._stage

        def noting(sweeper: ClusterSweeper, kind: str, *rest: object, **named: object) -> object:
            reports = stage(sweeper, kind, *rest, **named)  # type: ignore[arg-type]
            sums = [sum(getattr(report, name) for report in reports) for name in ("read", "written", "seconds")]
            self.sweeps.append((kind, *sums))
            return reports

        ClusterSweeper._stage = noting  # type: ignore[assignment, method-assign]


class EnoughError(Exception):
    """Two sweeps have been seen."""


def all_pairs(states: int, memory: float, dtype: str, store: Path) -> None:
    """Two sweeps of all pairs in tiles, without kept trees: the first is of zeros, the second searches all plans."""
    from distributed import Client, LocalCluster

    model, seen = random_chain(states, 4, 0.9, 0), Seen()
    settings = {"lump": False, "dtype": dtype, "remember": False, "accelerate": False}
    limit = int(1e9 * memory)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0", silence_logs=50
        ) as here,
        Client(here) as client,
    ):
        small = random_chain(400, 4, 0.9, 0)
        same = bm.solve_metric(small, tol=0.1, **settings).distance.tobytes()
        assert bm.solve_metric(small, tol=0.1, **settings, cluster=client).distance.tobytes() == same
        plan = bm.cluster_plan(model, workers=2, memory=limit, dtype=dtype, remember=False)
        seen.sweeps.clear()
        began, clocks = time.perf_counter(), []

        def stop(progress: bm.Progress) -> None:
            clocks.append(time.perf_counter() - began)
            if progress.sweep == 2:
                raise EnoughError

        with contextlib.suppress(EnoughError):
            bm.solve_metric(model, tol=0.1, **settings, cluster=client, store=store, on_progress=stop)
    (_, _, written, _), (_, read, _, seconds) = seen.sweeps
    pairs = states * (states - 1) / 2
    print(
        f"all pairs of {states} states, {dtype}, {plan.tiles} tiles of at most {1e-9 * plan.held_bytes:.1f} GB: a "
        f"sweep {seconds:.0f} core-seconds ({plan.core_seconds[0]:.0f} planned), {clocks[1] - clocks[0]:.0f} s, "
        f"{pairs / seconds:.3g} pairs a core-second; read {1e-9 * read:.1f} GB ({1e-9 * plan.read_bytes:.1f} planned), "
        f"written {1e-9 * written:.1f} GB ({1e-9 * plan.written_bytes:.1f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--all-pairs", type=int)
    parser.add_argument("--memory", type=float, default=4.0, help="GB of a worker, for --all-pairs")
    parser.add_argument("--states", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--tol", type=float, default=0.01)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--store", type=Path, default=None)
    given = parser.parse_args()
    if given.all_pairs:
        place = Path(tempfile.mkdtemp(prefix="bisimetric-benchmark-", dir=given.store))
        try:
            all_pairs(given.all_pairs, given.memory, given.dtype, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return
    from distributed import Client, LocalCluster

    model, small = random_chain(given.states, 4, 0.9, 0), random_chain(given.size, 4, 0.9, 1)
    settings = {"lump": False, "tol": given.tol, "dtype": given.dtype}
    place = given.store or Path(tempfile.mkdtemp(prefix="bisimetric-benchmark-"))
    bm.set_threads(2)
    seen = Seen()
    try:
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as here,
            Client(here) as client,
        ):
            for compiled in ({}, {"cluster": client}):
                bm.cross(random_chain(2000, 4, 0.9, 0), small, **settings, **compiled)
            plan = bm.cluster_plan(model, small, workers=2, dtype=given.dtype)
            seen.sweeps.clear()
            began, spent = time.perf_counter(), cpu(client)
            there = bm.cross(model, small, **settings, cluster=client)
            clock, spent = time.perf_counter() - began, cpu(client) - spent
            sweeps = list(seen.sweeps)
            began, own = time.perf_counter(), time.process_time()
            alone = bm.cross(model, small, **settings)
            clock_alone, own = time.perf_counter() - began, time.process_time() - own
            assert there.distance.tobytes() == alone.distance.tobytes()
            assert there.error == alone.error
            print(
                f"cross metric {given.states} × {given.size}, {given.dtype}, error {alone.error:.2g}, "
                f"{alone.metric.sweeps} sweeps: threads {clock_alone:.1f} s ({own:.1f} s of CPU), "
                f"two processes {clock:.1f} s ({spent:.1f} s of CPU): {clock_alone / clock:.2f} × the speed by clock, "
                f"{own / spent:.2f} × by CPU",
                flush=True,
            )
            say_plan(plan, sweeps)

            def kill(progress: bm.Progress) -> None:
                if progress.sweep in (1, 2):
                    os.kill(sorted(client.run(os.getpid).values())[0], signal.SIGKILL)

            began = time.perf_counter()
            again = bm.cross(model, small, **settings, cluster=client, store=place, on_progress=kill)
            same = again.distance.tobytes() == alone.distance.tobytes() and again.error == alone.error
            print(
                f"a worker killed twice: {'the same' if same else 'OTHER'} bytes, {time.perf_counter() - began:.1f} s"
            )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def say_plan(plan: bm.ClusterPlan, sweeps: list[tuple[str, int, int, float]]) -> None:
    """What was planned beside what was counted."""
    full = [sweep for sweep in sweeps if sweep[0] == "full"]
    frozen = [sweep for sweep in sweeps if sweep[0] == "frozen"]
    written = plan.written_bytes + plan.remembered_bytes
    print(f"bytes of a full sweep: read {full[-1][1]} (planned {plan.read_bytes}), written {full[-1][2]} ({written})")
    later = sorted(sweep[3] for sweep in full[1:])[len(full[1:]) // 2]
    kept = sorted(sweep[3] for sweep in frozen)[len(frozen) // 2]
    for words, planned, measured in zip(
        ("first sweep", "later ones", "kept plans"), plan.core_seconds, (full[0][3], later, kept), strict=True
    ):
        print(f"core-seconds, {words}: {measured:.2f} measured, {planned:.2f} planned, {planned / measured:.2f} ×")


if __name__ == "__main__":
    main()
