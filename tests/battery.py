"""A battery of answers as hashes: distances, errors, policies, histories, classes. The same code gives the same bits.

`python tests/battery.py --record` writes tests/battery.json for this machine; test_battery.py compares with it. Bits
depend on the processor and on the versions of NumPy, SciPy, Numba and BLAS, so they are compared where these are the
recorded ones; elsewhere the figures beside them are, which are rounded.

`python tests/battery.py --device cuda` prints the answers of a device, to compare two versions of the code on it.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).with_suffix(".json")
TIMES = ("seconds", "metric_seconds")


def fingerprint(device: str) -> dict[str, str]:
    """What bits depend on beside the code."""
    import llvmlite.binding
    import numba
    import scipy
    from threadpoolctl import threadpool_info

    found = {
        "processor": str(llvmlite.binding.get_host_cpu_name()),
        "libc": "-".join(platform.libc_ver()),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "blas": ",".join(sorted({f"{x['version']} {x.get('architecture')}" for x in threadpool_info()})),
    }
    if device == "emulated":
        import subprocess

        import emulated_cuda

        shown = subprocess.run([str(emulated_cuda.COMPILER), "--version"], capture_output=True, text=True, check=True)
        found["compiler"] = shown.stdout.split("\n")[0]
    return found


def digest(*parts: Any) -> str:
    """A hash of arrays and plain values."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype.str} {part.shape}".encode())
            found.update(np.ascontiguousarray(part).tobytes())
        else:
            found.update(repr(part).encode())
    return found.hexdigest()[:20]


def steps_of(history: Any) -> list[Any]:
    """What a history says, but for times."""
    steps = [step if isinstance(step, dict) else dataclasses.asdict(step) for step in history]
    return [{name: x for name, x in step.items() if name not in TIMES} for step in steps]


Case = tuple[str, Callable[[], tuple[str, list[float]]]]


def metrics(device: str) -> Iterator[Case]:
    """Metrics of chains and MDPs: all transports, both matches, both precisions, lumped or not, warm starts."""
    from random_models import random_chain, random_mdp
    from transports import EVERY_TRANSPORT, name

    import bisimetric as bm

    rng = np.random.default_rng(7)
    dense = bm.Chain.from_arrays(rng.dirichlet(np.ones(36), size=36), rng.random(36), 0.8)
    first = bm.problems.chain(n_states=24, n_classes=4, seed=1)
    wide = bm.problems.garnet(n_states=40, n_actions=2, branching=8, seed=2)
    grid = bm.problems.gridworld(copies=2)
    models: dict[str, tuple[Any, str | None]] = {
        "sparse": (random_chain(5, 14), None),
        "first": (first.under(first.uniform_policy()), None),
        "wide": (wide.under(wide.uniform_policy()), None),
        "dense": (dense, None),
        "labels": (random_mdp(3, 9), "labels"),
        "hausdorff": (random_mdp(4, 8), "hausdorff"),
        "respected": (random_mdp(6, 9).with_labels({"odd": np.arange(9) % 2 == 1}), "labels"),
        "grid": (grid, "labels"),
    }
    transports = [
        *EVERY_TRANSPORT,
        bm.Sinkhorn(1.0, 2.0, diagonal="zero"),
        bm.Sinkhorn(0.05, 1.5, cost="value"),
        bm.KLBall(3.0),
        bm.Exact(1.5),
    ]

    def solved(model: Any, way: Any, settings: dict[str, Any]) -> tuple[str, list[float]]:
        sol = bm.solve_metric(model, way, device="cpu" if device == "cpu" else "cuda", **settings)
        lower, upper = sol.bracket()
        bits = digest(
            sol.distance,
            sol.error,
            sol.sweeps,
            sol.iterations,
            sol.status.name,
            sol.notes,
            sol.kept_bytes,
            lower,
            upper,
        )
        return bits, [float(sol.distance.sum()), float(lower.sum()), float(upper.sum())]

    def warm(way: Any) -> tuple[str, list[float]]:
        where = "cpu" if device == "cpu" else "cuda"
        other = wide.under(bm.greedy(wide, wide.rewards.reshape(40, 2).max(axis=1)))
        sol = bm.solve_metric(models["wide"][0], way, tol=1e-2, device=where)
        for model in (models["wide"][0], other):
            sol = bm.solve_metric(model, way, tol=1e-4, start=sol, device=where)
        return digest(sol.distance, sol.error, sol.sweeps, sol.iterations), [float(sol.distance.sum())]

    for key, (model, match) in models.items():
        for way in transports:
            slow = isinstance(way, bm.KLBall)
            if slow and key in ("grid", "dense"):
                continue
            for dtype, tol in (("float64", 1e-2 if slow else 1e-5), ("float32", 1e-2)):
                if dtype == "float32" and key in ("wide", "grid") and (slow or device == "emulated"):
                    continue
                settings: dict[str, Any] = {"match": match, "dtype": dtype, "tol": tol}
                yield (
                    f"metric {key} {name(way)} {dtype}",
                    lambda m=model, w=way, s=settings: solved(m, w, s),  # type: ignore[misc]
                )
    for key in ("first", "grid"):
        model, match = models[key]
        options = {"match": match, "lump": False, "tol": 1e-5, "remember": False, "transition_weight": 0.7}
        yield f"metric {key} not lumped", lambda m=model, s=options: solved(m, bm.Exact(), s)  # type: ignore[misc]
    for way in transports:
        if isinstance(way, bm.KLBall) and way.p != 1.0:
            continue
        yield f"warm {name(way)}", lambda w=way: warm(w)  # type: ignore[misc]


def run_of(run: Any) -> tuple[str, list[float]]:
    """What a policy run gave."""
    best = np.zeros(0) if run.optimal_value is None else run.optimal_value
    classes = getattr(run.partition, "class_of", None)
    if classes is None:
        classes = run.partition.labels
    bits = digest(
        run.policy,
        run.value,
        run.choices,
        run.actions,
        classes,
        run.partition.medoids,
        run.partition.radius,
        run.partition.diameter,
        run.distance,
        run.abstract_value,
        json.dumps(steps_of(run.history), sort_keys=True),
        str(run.certificate),
        [str(x) for x in run.theorems],
        run.status.name,
        best,
    )
    return bits, [float(run.certificate.error), float(run.value.sum())]


def policies(device: str) -> Iterator[Case]:
    """Policy runs: schedules, noise, ties, naive and warm, lumped, by budget, in batches."""
    import bisimetric as bm

    where = "cpu" if device == "cpu" else "cuda"
    first = bm.problems.chain(n_states=24, n_classes=4, seed=3)
    garnet = bm.problems.garnet(n_states=20, n_actions=3, branching=3, seed=1)
    grid = bm.problems.gridworld(copies=2)
    large = bm.problems.garnet(n_states=520, n_actions=2, branching=2, seed=5)
    noisy: dict[str, Any] = {"greedy_noise": (0.05, 0.1), "ties": "random"}
    entropic = bm.Sinkhorn(1.0, diagonal="zero")
    runs: dict[str, tuple[Any, dict[str, Any]]] = {
        "naive": (first, {"transport": entropic, "restart_metric": True, "sweeps": 7, **noisy}),
        "warm": (first, {"transport": entropic, "step_size": bm.PowerDecay(0.8, floor=2**-6), **noisy}),
        "small": (first, {"transport": bm.Sinkhorn(0.1, diagonal="zero"), "step_size": bm.Constant(0.25), **noisy}),
        "exact": (garnet, {"step_size": bm.Constant(0.5), "lump": False}),
        "lumped": (grid, {"aggregation": bm.EpsilonCover(0.05, "diameter")}),
        "budget": (first, {"transport": bm.Independent(diagonal="zero"), "aggregation": bm.KMedoids(6, 2), **noisy}),
        "theory": (garnet, {"step_size": bm.Theoretical(), "transport": bm.Sinkhorn(0.5, cost="value")}),
        "ball": (garnet, {"transport": bm.KLBall(0.2, diagonal="zero"), "target": 1e-3}),
        "single": (garnet, {"transport": entropic, "dtype": "float32", "optimum": False}),
        "large": (large, {"transport": bm.Exact(), "steps": 2, "sweeps": 2}),
    }
    for key, (mdp, settings) in runs.items():
        given = {"steps": 6, "seed": 4, **settings, "device": where}
        yield f"policy {key}", lambda m=mdp, s=given: run_of(bm.solve_policy(m, **s))  # type: ignore[misc]

    def batch() -> tuple[str, list[float]]:
        found = [
            run_of(run)
            for run in bm.solve_policies(
                first,
                [{"seed": s, "sweeps": 3 + s} for s in range(5)],
                transport=entropic,
                side_by_side=3,
                steps=4,
                device=where,
                **noisy,
            )
        ]
        return digest([bits for bits, _ in found]), [x for _, numbers in found for x in numbers]

    yield "policy batch", batch


def jobs(device: str) -> Iterator[Case]:
    """Runs of the paper: probes, medoids, potentials that are not kept, sharpness."""
    import bisimetric as bm
    from bisimetric.paper.jobs import PolicyJob, Problem, SharpnessJob

    where = "cpu" if device == "cpu" else "cuda"
    problem = Problem.of("chain", n_states=24, n_classes=4, seed=3)
    common: Any = {
        "problem": problem,
        "transport": bm.Sinkhorn(1.0, diagonal="zero"),
        "aggregation": bm.EpsilonCover(0.1),
        "step_size": bm.Constant(0.5),
        "seed": 2,
        "steps": 6,
    }
    made = {
        "probes": PolicyJob(**common, probes=(1, 4), medoids=5),
        "potentials": PolicyJob(**common, potentials=False),
        "settles": PolicyJob(**{**common, "transport": bm.Exact(), "steps": 12}, noise=None, ties="first"),
    }

    def done(job: Any, on: str) -> tuple[str, list[float]]:
        arrays = job.run(on)
        kept = {key: arrays[key] for key in sorted(arrays) if key not in TIMES}
        sums = [float(np.nansum(x)) for x in kept.values()]
        return digest(*(part for pair in kept.items() for part in pair)), sums

    for key, job in made.items():
        yield f"job {key}", lambda j=job: done(j, where)  # type: ignore[misc]
    if device == "cpu":
        yield "job sharpness", lambda: done(SharpnessJob(2, 0.1, 1.0, (3, 4), 0), "cpu")


def folders(device: str) -> Iterator[Case]:
    """Runs in folders, resumed by the command line."""
    where = "cpu" if device == "cpu" else "cuda"

    def command(*words: str) -> None:
        import contextlib
        import io

        from bisimetric.cli import run

        with contextlib.redirect_stdout(io.StringIO()):
            assert run([*words, "--json"]) == 0, words

    def resumed(*options: str) -> tuple[str, list[float]]:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            common = ("--no-pictures", "--checkpoint-every", "0")
            command(
                "solve",
                "problem:chain?n_states=20&n_classes=4",
                *options,
                "--steps",
                "3",
                "--device",
                where,
                "--out",
                str(folder),
                *common,
            )
            command("solve", "--resume", str(folder), "--steps", "6", *common)
            with np.load(folder / "result.npz") as data:
                arrays = {key: data[key] for key in sorted(data.files)}
            lines = (folder / "history.jsonl").read_text().splitlines()
            history = json.dumps(steps_of(json.loads(line) for line in lines), sort_keys=True)
            table = (folder / "policy.csv").read_text()
        parts = [arrays[key] for key in ("policy", "value", "abstract_value", "medoids", "optimal_value")]
        return digest(*parts, history, table), [float(arrays["value"].sum())]

    noisy = ("--transport", "sinkhorn:1,diagonal=zero", "--alpha", "decay:0.8,0.02", "--noise", "0.05,0.1")
    yield "folder noisy", lambda: resumed(*noisy)
    yield "folder exact", lambda: resumed("--alpha", "0.5", "--no-lump", "--eps", "0.02")
    yield "folder lumped", lambda: resumed("--eps", "0.01", "--rule", "diameter")


def classes(device: str) -> Iterator[Case]:
    """Classes, values, exact lumping."""
    import bisimetric as bm

    grid = bm.problems.gridworld(copies=3)
    garnet = bm.problems.garnet(n_states=600, n_actions=2, branching=3, seed=5)

    def lumped(match: Any) -> tuple[str, list[float]]:
        found = bm.lump(grid, match)
        classes = found.class_of if hasattr(found, "class_of") else found.labels
        small = found.quotient
        return digest(classes, found.medoids, found.choice_of, small.rows.probs, small.rewards), [float(len(found))]

    def valued() -> tuple[str, list[float]]:
        best = bm.optimal_values(garnet)
        uniform = bm.evaluate(garnet, garnet.uniform_policy())
        return digest(best.value, best.error, uniform.value, uniform.error), [float(best.value.sum())]

    if device == "cpu":
        yield "lump labels", lambda: lumped("labels")
        yield "lump hausdorff", lambda: lumped("hausdorff")
        yield "values", valued


def cases(device: str) -> Iterator[Case]:
    """All cases, by name."""
    for part in (metrics, policies, jobs, folders, classes):
        yield from part(device)


def answers(device: str) -> dict[str, Any]:
    """{name: [hash, figures]} of all cases."""
    found: dict[str, Any] = {}
    for key, case in cases(device):
        try:
            bits, figures = case()
        except Exception as error:  # what is refused stays refused
            bits, figures = f"{type(error).__name__}: {error}"[:80], []
        found[key] = [bits, figures]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the answers of this machine")
    parser.add_argument("--device", default="cpu", choices=("cpu", "emulated", "cuda"))
    parser.add_argument("--out", help="write the answers to this file")
    given = parser.parse_args()
    if given.device == "emulated":
        import emulated_cuda

        sys.modules["cupy"] = emulated_cuda.fake_cupy()
    found = {"fingerprint": fingerprint(given.device), "answers": answers(given.device)}
    if given.record:
        kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        kept[given.device] = found
        RECORD.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n")
    elif given.out:
        Path(given.out).write_text(json.dumps(found))
    else:
        print(json.dumps(found, indent=0))


if __name__ == "__main__":
    main()
