"""The command line: parse, call, print.

Exit status: 0 where the answer meets its tolerance, 1 where it does not, 2 for bad input, 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from . import __version__

if TYPE_CHECKING:
    from .metric import MetricSolution, Progress
    from .model import MDP
    from .transport import Transport

_EPILOGUE = """
Examples:

  bisimetric metric problem:chain --policy uniform -o d.npz
  bisimetric metric problem:garnet?n_states=300 --match labels --transport sinkhorn:0.5,cost=value
  bisimetric info problem:gridworld?copies=3
"""

app = App(
    name="bisimetric",
    help="Bisimulation metrics of finite MDPs, with their errors.",
    help_epilogue=_EPILOGUE,
    version=__version__,
    help_format="plaintext",
)

Model = Annotated[str, Parameter(help="A model file (.npz), or problem:NAME?argument=value&…")]
Json = Annotated[bool, Parameter(negative="", help="Print one machine-readable object.")]


class BadInputError(Exception):
    """A mistake in what the user gave: one line, exit status 2."""


def load_model(spec: str) -> MDP:
    """The model behind a MODEL argument."""
    if spec.startswith("problem:"):
        from . import problems

        return problems.from_spec(spec.removeprefix("problem:"))
    from . import formats

    if not Path(spec).exists():
        raise BadInputError(f"{spec}: no such file (a generated model is written problem:NAME).")
    return formats.read(spec)


def parse_transport(text: str) -> Transport:
    """exact, exact:2, sinkhorn:REG, kl:RADIUS, independent; then ,name=value for other settings."""
    from . import transport

    kinds: dict[str, tuple[type[Transport], str]] = {
        "exact": (transport.Exact, "p"),
        "sinkhorn": (transport.Sinkhorn, "reg"),
        "kl": (transport.KLBall, "radius"),
        "independent": (transport.Independent, "p"),
    }
    head, *options = text.split(",")
    name, colon, value = head.partition(":")
    if name not in kinds:
        raise BadInputError(f"unknown transport {name!r}; known: {', '.join(kinds)}.")
    kind, main = kinds[name]
    settings: dict[str, Any] = {main: value} if colon else {}
    for option in options:
        key, equals, setting = option.partition("=")
        if not equals:
            raise BadInputError(f"transport {text!r}: write settings as name=value; got {option!r}.")
        settings[key] = setting
    known = {field: kind.__dataclass_fields__[field].type for field in kind.__dataclass_fields__}
    for key, setting in settings.items():
        if key not in known:
            raise BadInputError(f"transport {name!r} has no setting {key!r}; known: {', '.join(known)}.")
        if known[key] == "float":
            try:
                settings[key] = float(setting)
            except ValueError:
                raise BadInputError(f"transport {name!r}: {key} must be a number; got {setting!r}.") from None
    try:
        return kind(**settings)
    except TypeError:
        raise BadInputError(f"transport {name!r} needs a value, as in {name}:0.5.") from None


def load_policy(text: str, mdp: MDP) -> Any:
    """A policy per choice: the word uniform, or a .npy, .npz (entry policy) or text file."""
    import numpy as np

    if text == "uniform":
        return mdp.uniform_policy()
    try:
        if text.endswith((".npy", ".npz")):
            loaded = np.load(text, allow_pickle=False)
            return mdp.check_policy(loaded["policy"] if text.endswith(".npz") else loaded)
        return mdp.check_policy(np.loadtxt(text, delimiter="," if text.endswith(".csv") else None))
    except KeyError:
        raise BadInputError(f"{text}: has no entry 'policy'.") from None
    except OSError as error:
        raise BadInputError(f"{text}: {error.strerror or error}.") from None


def check_output(path: Path) -> None:
    """Refuse an output that cannot be written before any work is done."""
    import tempfile

    if path.is_dir():
        raise BadInputError(f"{path}: is a folder.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written ({error.strerror}).") from None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
        if self.bar is None:
            return
        from math import log

        self.first = max(self.first, progress.error)
        total = log(max(self.first / self.tol, 1.0 + 1e-9))
        share = log(max(self.first / max(progress.error, self.tol), 1.0)) / total
        self.bar.update(self.task, completed=share, description=f"sweep {progress.sweep}, error {progress.error:.1e}")


@app.command
def metric(
    model: Model,
    *,
    transport: str = "exact",
    policy: str | None = None,
    match: str | None = None,
    tol: float = 1e-6,
    reward_weight: float = 1.0,
    transition_weight: float | None = None,
    max_sweeps: int = 100_000,
    dtype: str = "float64",
    device: str = "cpu",
    keep: bool = True,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Compute a bisimulation metric.

    Give --policy for the metric of a policy, or --match for the metric of the MDP itself. Without either, the
    metric of the uniform policy is computed.

    Parameters
    ----------
    transport: exact[:p], sinkhorn:REG, kl:RADIUS or independent[:p]; more settings as ,name=value.
    policy: "uniform", or a file with one probability per choice (.npy, .npz entry "policy", .csv, .txt).
    match: labels (actions of the same name) or hausdorff (choices as sets).
    tol: largest error of the answer.
    reward_weight: c_R, the weight of reward differences.
    transition_weight: c_T in [0, 1), the weight of the next states (default: the discount).
    max_sweeps: give up after this many sweeps.
    dtype: float64 or float32.
    device: where to compute.
    keep: keep the solver's state of each pair between sweeps (faster, more memory).
    output: write distance, error and settings to this .npz file.
    """
    if policy is not None and match is not None:
        raise BadInputError("give --policy (metric of a policy) or --match (metric of the MDP), not both.")
    way = parse_transport(transport)
    mdp = load_model(model)
    subject = mdp if match is not None else mdp.under(load_policy(policy or "uniform", mdp))
    if output is not None:
        check_output(output)
    from .metric import solve_metric

    with _Bar(tol) as bar:
        solution = solve_metric(
            subject, way, match=match, reward_weight=reward_weight, transition_weight=transition_weight, tol=tol,
            max_sweeps=max_sweeps, dtype=dtype, device=device, keep=keep, progress=bar,
        )  # fmt: skip
    settings = {
        "model": model, "transport": repr(way), "match": match or "chain", "policy": policy if match is None else None,
        "tol": tol, "reward_weight": reward_weight, "transition_weight": solution.warm.operator.c_T, "dtype": dtype,
    }  # fmt: skip
    if output is not None:
        _save_metric(output, solution, settings, mdp)
    _report_metric(solution, settings, output, json)
    return _exit_status(solution)


def _exit_status(solution: MetricSolution) -> int:
    from .metric import Status

    return 0 if solution.converged else 130 if solution.status is Status.INTERRUPTED else 1


def _save_metric(path: Path, solution: MetricSolution, settings: dict[str, Any], mdp: MDP) -> None:
    import numpy as np

    from .formats.npz import save_atomically

    arrays: dict[str, Any] = {
        "format": "bisimetric-metric",
        "version": 1,
        "distance": solution.distance,
        "error": solution.error,
        "rigorous": solution.certificate.rigorous,
        "source": solution.certificate.source,
        "status": solution.status.name,
        "settings": json.dumps(settings),
    }
    if mdp.state_names is not None:
        arrays["state_names"] = np.array(mdp.state_names, dtype=str)
    if mdp.classes is not None:
        arrays["classes"] = mdp.classes
    try:
        save_atomically(path, arrays)
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
        print(json.dumps(facts))
        return
    print(f"states    {len(d)}")
    print(f"transport {settings['transport']}")
    print(f"distances up to {d.max():.6g} (largest possible {solution.largest:.6g})")
    print(f"error     {solution.certificate}")
    print(f"work      {solution.sweeps} sweeps, {solution.seconds:.2f} s")
    print(f"status    {solution.status.value}")
    if output is not None:
        print(f"written   {output}")


@app.command
def info(model: Model, *, json: Json = False) -> int:
    """Describe a model: sizes, successors, rewards, and the memory of a metric."""
    from .metric import MetricOperator
    from .transport import Exact

    mdp = load_model(model)
    sizes, counts = mdp.rows.sizes, mdp.choice_ptr[1:] - mdp.choice_ptr[:-1]
    chain = mdp.under(mdp.uniform_policy())
    kept = Exact().kept_size(MetricOperator(chain, Exact(), keep=False).family)
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
    }
    if json:
        _print_json(facts)
        return 0
    print(f"states       {mdp.n_states}")
    print(f"choices      {mdp.n_choices} ({counts.min()} to {counts.max()} a state, {len(mdp.label_names)} labels)")
    print(f"transitions  {mdp.rows.probs.size}")
    print(f"successors   {sizes.min()} to {sizes.max()} a choice, {sizes.mean():.3g} on average")
    print(f"rewards      {mdp.reward_range[0]:g} to {mdp.reward_range[1]:g} (span {mdp.reward_span:g})")
    print(f"gamma        {mdp.gamma:g}")
    if mdp.classes is not None:
        print(f"known classes {facts['known_classes']}")
    print(f"a metric     {pairs} pairs of states; {_bytes(2 * 8 * mdp.n_states**2)} for distances and costs,")
    print(f"             {_bytes(kept)} kept by exact transport under the uniform policy")
    return 0


def _print_json(facts: dict[str, Any]) -> None:
    print(json.dumps(facts))


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


@app.command
def bench(*, quick: Annotated[bool, Parameter(negative="")] = False, json: Json = False) -> int:
    """Measure the kernels on this machine, after checking their results against the reference.

    Parameters
    ----------
    quick: smaller problems.
    """
    from .bench import run_benchmarks

    rows, correct = run_benchmarks(quick=quick)
    if json:
        _print_json({"correct": correct, "rows": rows})
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


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    try:
        result = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
        return int(result or 0)
    except CycloptsError as error:
        _say("bisimetric: " + " ".join(str(error).split()))
    except (BadInputError, ValueError, OSError) as error:
        _say("bisimetric: " + " ".join(str(error).split()))
    except KeyboardInterrupt:
        _say("bisimetric: interrupted")
        return 130
    except MemoryError:
        _say("bisimetric: out of memory; see bisimetric info MODEL, and try --no-keep or --dtype float32")
    return 2


def main() -> None:
    """Entry point."""
    sys.exit(run(sys.argv[1:]))
