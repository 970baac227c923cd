"""bisimetric metric, info and bench."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from . import interrupts
from .inputs import (
    BadInputError,
    Constants,
    Costs,
    Gamma,
    Json,
    Model,
    Reward,
    any_discount,
    check_output,
    load_model,
    load_policy,
    parse_transport,
    print_json,
    readable_bytes,
)

if TYPE_CHECKING:
    from ..metric import MetricSolution, Progress
    from ..model import MDP
    from ..operators import MetricOperator


class _Bar:
    """A progress bar on a terminal, silence elsewhere. The error falls by about c_T a sweep."""

    def __init__(self, tol: float) -> None:
        self.tol, self.first = tol, 0.0
        self.bar: Any = None
        self.task: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> _Bar:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("compiling and first sweep", total=1.0)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, progress: Progress) -> None:
        interrupts.check()
        if self.bar is None:
            return
        from math import log

        self.first = max(self.first, progress.error)
        total = log(max(self.first / self.tol, 1.0 + 1e-9))
        share = log(max(self.first / max(progress.error, self.tol), 1.0)) / total
        self.bar.update(self.task, completed=share, description=f"sweep {progress.sweep}, error {progress.error:.1e}")


def metric(
    model: Model,
    *,
    transport: str = "exact",
    policy: str | None = None,
    match: str | None = None,
    gamma: Gamma = None,
    reward: Reward = None,
    costs: Costs = None,
    constants: Constants = None,
    tol: float = 1e-6,
    reward_weight: float = 1.0,
    transition_weight: float | None = None,
    max_sweeps: int = 100_000,
    dtype: str = "float64",
    device: str = "cpu",
    warm_state: bool = True,
    lump: bool | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Compute a bisimulation metric.

    Give --policy for the metric of a policy, or --match for the metric of the MDP itself. Without either, the
    metric of the uniform policy is computed.

    Args:
        transport: exact[:p], sinkhorn:REG, kl:RADIUS or independent[:p]; more settings as ,name=value.
        policy: "uniform", or a file with one probability per choice (.npy, .npz entry "policy", .csv, .txt).
        match: labels (actions of the same name) or hausdorff (choices as sets).
        tol: largest error of the answer.
        reward_weight: c_R, the weight of reward differences.
        transition_weight: c_T in [0, 1), the weight of the next states (default: the discount).
        max_sweeps: give up after this many sweeps.
        dtype: float64 or float32.
        device: cpu, or cuda for one GPU (needs the extra gpu).
        warm_state: keep the solver's state of each pair between sweeps (faster, more memory).
        lump: merge bisimilar states first (default: where that is exact).
        output: write distance, error and settings to this .npz file.
    """
    if policy is not None and match is not None:
        raise BadInputError("give --policy (metric of a policy) or --match (metric of the MDP), not both.")
    way = parse_transport(transport)
    mdp = load_model(model, gamma, reward, costs, constants)
    subject = mdp if match is not None else mdp.under(load_policy(policy or "uniform", mdp))
    if output is not None:
        check_output(output)
    from ..metric import solve_metric

    with _Bar(tol) as bar:
        solution = solve_metric(
            subject, way, match=match, reward_weight=reward_weight, transition_weight=transition_weight, tol=tol,
            max_sweeps=max_sweeps, dtype=dtype, device=device, warm_state=warm_state, lump=lump, progress=bar,
        )  # fmt: skip
    settings = {
        "model": model, "transport": repr(way), "match": match or "chain", "policy": policy if match is None else None,
        "gamma": mdp.gamma,
        "reward": reward,
        "costs": bool(costs),
        "tol": tol, "reward_weight": reward_weight, "transition_weight": solution.warm.operator.c_T, "dtype": dtype,
    }  # fmt: skip
    if output is not None:
        _save_metric(output, solution, settings, mdp)
    _report_metric(solution, settings, output, json)
    return _exit_status(solution)


def _exit_status(solution: MetricSolution) -> int:
    from ..metric import Status

    return 0 if solution.converged else 130 if solution.status is Status.INTERRUPTED else 1


def _save_metric(path: Path, solution: MetricSolution, settings: dict[str, Any], mdp: MDP) -> None:
    import numpy as np

    from ..atomic import save_arrays

    arrays: dict[str, Any] = {
        "format": "bisimetric-metric",
        "version": 1,
        "distance": solution.distance,
        "error": solution.error,
        "rigorous": solution.certificate.rigorous,
        "source": solution.certificate.source,
        "status": solution.status.name,
        "settings": json_format.dumps(settings),
    }
    if mdp.state_names is not None:
        arrays["state_names"] = np.array(mdp.state_names, dtype=str)
    if mdp.classes is not None:
        arrays["classes"] = mdp.classes
    try:
        save_arrays(path, arrays)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written ({error.strerror}).") from None


def _report_metric(solution: MetricSolution, settings: dict[str, Any], output: Path | None, as_json: bool) -> None:
    d = solution.distance
    facts = {
        **settings,
        "states": len(d),
        "status": solution.status.name,
        "error": solution.error,
        "rigorous": solution.certificate.rigorous,
        "source": solution.certificate.source,
        "sweeps": solution.sweeps,
        "seconds": solution.seconds,
        "largest_distance": float(d.max()),
        "output": None if output is None else str(output),
    }
    if as_json:
        print_json(facts)
        return
    print(f"states    {len(d)}")
    print(f"transport {settings['transport']}")
    print(f"distances up to {d.max():.6g} (largest possible {solution.largest:.6g})")
    print(f"error     {solution.certificate}")
    print(f"work      {solution.sweeps} sweeps, {solution.seconds:.2f} s")
    print(f"status    {solution.status.value}")
    if output is not None:
        print(f"written   {output}")


def info(
    model: Model,
    *,
    gamma: Gamma = None,
    reward: Reward = None,
    costs: Costs = None,
    constants: Constants = None,
    json: Json = False,
) -> int:
    """Describe a model: sizes, successors, rewards, and what a metric would cost in time and memory."""
    from ..operators import metric_operator
    from ..transport import Exact

    mdp = load_model(model, any_discount(model, gamma), reward, costs, constants)
    sizes, counts = mdp.rows.sizes, mdp.choice_ptr[1:] - mdp.choice_ptr[:-1]
    chain = mdp.under(mdp.uniform_policy())
    operator = metric_operator(chain, Exact(), warm_state=False)
    kept = Exact().kept_size(operator.family)
    sweep_seconds = _sample_sweep(operator)
    pairs = mdp.n_states * (mdp.n_states - 1) // 2
    facts = {
        "model": model,
        "states": mdp.n_states,
        "choices": mdp.n_choices,
        "choices_per_state": [int(counts.min()), int(counts.max())],
        "transitions": int(mdp.rows.probs.size),
        "successors_per_choice": [int(sizes.min()), round(float(sizes.mean()), 3), int(sizes.max())],
        "single_successor_choices": int((sizes == 1).sum()),
        "gamma": mdp.gamma,
        "reward_range": list(mdp.reward_range),
        "reward_span": mdp.reward_span,
        "actions": len(mdp.label_names),
        "known_classes": None if mdp.classes is None else len(set(mdp.classes.tolist())),
        "pairs": pairs,
        "metric_bytes": 2 * 8 * mdp.n_states**2,
        "kept_bytes_uniform_policy": kept,
        "seconds_a_cold_sweep_uniform_policy": sweep_seconds,
    }
    if json:
        print_json(facts)
        return 0
    print(f"states       {mdp.n_states}")
    print(f"choices      {mdp.n_choices} ({counts.min()} to {counts.max()} a state, {len(mdp.label_names)} labels)")
    print(f"transitions  {mdp.rows.probs.size}")
    print(f"successors   {sizes.min()} to {sizes.max()} a choice, {sizes.mean():.3g} on average")
    print(f"rewards      {mdp.reward_range[0]:g} to {mdp.reward_range[1]:g} (span {mdp.reward_span:g})")
    print(f"gamma        {mdp.gamma:g}")
    if mdp.classes is not None:
        print(f"known classes {facts['known_classes']}")
    print(f"a metric     {pairs} pairs of states; {readable_bytes(2 * 8 * mdp.n_states**2)} for distances and costs,")
    print(f"             {readable_bytes(kept)} kept by exact transport under the uniform policy,")
    print(f"             about {sweep_seconds:.2g} s for its first sweeps on this machine, less for later ones")
    return 0


def _sample_sweep(operator: MetricOperator) -> float:
    """Seconds of a cold sweep over all pairs, from a sample of rows timed on this machine."""
    import time

    import numpy as np

    from ..kernels.select import threads

    n = operator.n_states
    d = np.abs(np.subtract.outer(operator.model.rewards, operator.model.rewards)) + 1.0
    np.fill_diagonal(d, 0.0)
    operator.evaluator.prepare(d, 1.0)
    operator.evaluator.block(0, n - 1, n, np.zeros((1, n)))  # compiled before anything is timed
    rng = np.random.default_rng(0)
    pairs, spent = 0, 0.0
    for row in rng.permutation(n):
        began = time.perf_counter()
        operator.evaluator.block(0, int(row), int(row) + 1, np.zeros((1, n)))
        spent += time.perf_counter() - began
        pairs += n - 1 - int(row)
        if spent > 0.3:
            break
    return spent / max(pairs, 1) * (n * (n - 1) / 2) / threads()


def bench(*, quick: Annotated[bool, Parameter(negative="")] = False, json: Json = False) -> int:
    """Measure the kernels on this machine, after checking their results against the reference.

    Args:
        quick: smaller problems.
    """
    from ..bench import run_benchmarks

    rows, correct = run_benchmarks(quick=quick)
    if json:
        print_json({"correct": correct, "rows": rows})
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table(
            "work", "states", "sweeps", "seconds", "µs a pair and sweep", "kept MiB", title="bisimetric bench"
        )
        for row in rows:
            table.add_row(row["work"], str(row["states"]), str(row["sweeps"]), f"{row['seconds']:.3f}",
                          f"{row['us_per_pair']:.3f}", f"{row['kept_mib']:.1f}")  # fmt: skip
        Console().print(table)
        print("results agree with the reference" if correct else "results DO NOT agree with the reference")
    return 0 if correct else 1
