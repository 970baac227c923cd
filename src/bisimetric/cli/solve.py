"""bisimetric solve and aggregate."""

from __future__ import annotations

import hashlib
import sys
import time
import zipfile
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
    Reward,
    check_output,
    load_model,
    load_policy,
    parse_transport,
    print_json,
    say,
)

if TYPE_CHECKING:
    from ..aggregation import Aggregation
    from ..model import MDP
    from ..policy_run import PolicyRun, Settings, Step
    from ..schedules import StepSize

# Settings of a run as text, with the values used where none are given.
_DEFAULTS: dict[str, Any] = {
    "model": "problem:chain",
    "gamma": None,
    "reward": None,
    "costs": False,
    "constants": None,
    "transport": "exact",
    "eps": 0.1,
    "rule": "radius",
    "k": None,
    "alpha": "decay:0.8,0.015625",
    "sweeps": 28,
    "naive": False,
    "noise": "none",
    "steps": 500,
    "target": None,
    "seed": 0,
    "policy": "uniform",
    "optimum": True,
    "lump": None,
    "device": "cpu",
    "dtype": "float64",
}


def parse_step_size(text: str) -> StepSize:
    """A number, decay:POWER,FLOOR, or theory[:ALPHA_BAR]."""
    from ..schedules import Constant, PowerDecay, Theoretical

    kind, _, rest = text.partition(":")
    try:
        if kind == "decay":
            return PowerDecay(*(float(part) for part in rest.split(","))) if rest else PowerDecay()
        if kind == "theory":
            return Theoretical(float(rest)) if rest else Theoretical()
        number = float(text)
    except (TypeError, ValueError) as error:
        if "must be" in str(error):
            raise BadInputError(f"--alpha {text}: {error}") from None
        raise BadInputError(
            f"--alpha {text}: give a number in (0, 1], decay:POWER,FLOOR or theory[:ALPHA_BAR]."
        ) from None
    return Constant(number)


def parse_band(text: str) -> tuple[float, float] | None:
    """None, or LOW,HIGH."""
    if text == "none":
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise BadInputError(f"--noise {text}: give LOW,HIGH or none.") from None
    return low, high


def make_settings(chosen: dict[str, Any]) -> Settings:
    """Settings from their texts."""
    from ..policy_run import Settings

    return Settings(
        parse_transport(chosen["transport"]), _aggregation(chosen), parse_step_size(chosen["alpha"]), chosen["sweeps"],
        not chosen["naive"], parse_band(chosen["noise"]), chosen["steps"], chosen["seed"], chosen["target"],
        optimum=chosen["optimum"], lump=chosen["lump"], device=chosen["device"], dtype=chosen["dtype"],
    )  # fmt: skip


def _aggregation(chosen: dict[str, Any]) -> Aggregation:
    from ..aggregation import EpsilonCover, KMedoids

    if chosen["k"] is not None:
        return KMedoids(chosen["k"], chosen.get("seed") or 0)
    return EpsilonCover(chosen["eps"], chosen["rule"])


def solve(
    model: Annotated[
        str | None, Parameter(help="A model file, or problem:NAME?… (default: the paper's first MDP)")
    ] = None,
    *,
    gamma: Gamma = None,
    reward: Reward = None,
    costs: Costs = None,
    constants: Constants = None,
    out: Path | None = None,
    resume: Path | None = None,
    transport: str | None = None,
    eps: float | None = None,
    rule: str | None = None,
    k: Annotated[int | None, Parameter(name="--k")] = None,
    alpha: str | None = None,
    sweeps: int | None = None,
    naive: Annotated[bool | None, Parameter(negative="")] = None,
    noise: str | None = None,
    steps: int | None = None,
    target: float | None = None,
    seed: int | None = None,
    policy: str | None = None,
    optimum: bool | None = None,
    lump: bool | None = None,
    device: str | None = None,
    dtype: str | None = None,
    checkpoint_every: float = 15.0,
    pictures: bool = True,
    json: Json = False,
) -> int:
    """Find a policy by approximate policy iteration on aggregated states.

    Everything goes into a run folder, which can be resumed after any kind of stop.

    Args:
        out: run folder to make (default: the first free one of bisimetric-run, bisimetric-run-2, …).
        resume: go on with the run in this folder; only --steps may differ from what it was begun with.
        transport: exact[:p], sinkhorn:REG, kl:RADIUS, independent; settings as ,name=value (default exact).
        eps: ε of the aggregation (default 0.1).
        rule: radius (the paper's Algorithm 1) or diameter (all pairs within 2ε).
        k: aggregate into this many classes by k-medoids instead.
        alpha: step size: a number, decay:POWER,FLOOR or theory[:ALPHA_BAR] (default decay:0.8,0.015625).
        sweeps: most sweeps of the metric in a step (default 28).
        naive: start the metric from 0 at every policy.
        noise: band LOW,HIGH for the error of greedy policies, or none (default).
        steps: most steps (default 500).
        target: stop where the certified bound is at most this.
        seed: of noise and first medoids (default 0).
        policy: first policy: uniform (default) or a file.
        optimum: compute V* and the true error too (default).
        lump: merge bisimilar states first (default: where that is exact).
        device: cpu, or cuda for one NVIDIA GPU.
        dtype: float64 or float32.
        checkpoint_every: seconds between checkpoints; 0 for one after every step.
        pictures: draw the run, where matplotlib is installed.
    """
    given = {key: value for key, value in locals().items() if key in _DEFAULTS and value is not None}
    if eps is not None and k is not None:
        raise BadInputError("give --eps or --k, not both.")
    if not checkpoint_every >= 0.0:
        raise BadInputError(f"--checkpoint-every must be a number of seconds, at least 0; got {checkpoint_every}.")
    if resume is not None:
        if out is not None:
            raise BadInputError("give --out (a new run) or --resume (an old one), not both.")
        folder, chosen = resume, _resumed(resume, given)
    else:
        folder, chosen = out or _free_folder(), {**_DEFAULTS, **given}
    settings = make_settings(chosen)
    mdp = load_model(*(chosen[key] for key in ("model", "gamma", "reward", "costs", "constants")))
    start = load_policy(chosen["policy"], mdp)
    if chosen["k"] is not None and chosen["k"] > mdp.n_states:
        raise BadInputError(f"--k {chosen['k']}: the model has only {mdp.n_states} states.")
    from .. import policy_iteration, runs

    small, _, first = policy_iteration.reduced(mdp, settings, start)
    policy_iteration.first_state(small, settings, first)  # refuses what cannot be run, before a folder is made
    if resume is None:
        chosen["policy_hash"] = hashlib.sha256(start.tobytes()).hexdigest()
        try:
            runs.begin(folder, chosen, mdp)
        except OSError as error:
            raise BadInputError(f"{folder}: cannot be written ({error.strerror}).") from None
    else:
        runs.check_model(folder, mdp)
        if hashlib.sha256(start.tobytes()).hexdigest() != chosen["policy_hash"]:
            raise BadInputError(f"{chosen['policy']}: the first policy is not the one that this run began with.")
    if not json:
        say(f"{mdp!r}; run folder {folder}")
    with _Display(settings, quiet=json) as display:
        result = runs.run(
            mdp, settings, folder, policy=start, description=chosen, checkpoint_every=checkpoint_every,
            observers=(display,),
        )  # fmt: skip
    return _report(mdp, result, folder, pictures, json)


def _resumed(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run folder, with --steps as given now; all else must agree."""
    from .. import runs

    chosen = runs.read_settings(folder)
    missing = [key for key in (*_DEFAULTS, "policy_hash") if key not in chosen]
    if missing:
        raise BadInputError(f"{folder / 'settings.json'}: damaged; it has no entry {missing[0]!r}.")
    differ = runs.differences(chosen, {key: value for key, value in given.items() if key != "steps"})
    if differ:
        raise BadInputError(f"{folder}: settings cannot change in a run: {'; '.join(differ)}.")
    return {**chosen, **({"steps": given["steps"]} if "steps" in given else {})}


def _free_folder() -> Path:
    number = 1
    while True:
        folder = Path("bisimetric-run" if number == 1 else f"bisimetric-run-{number}")
        if not folder.exists():
            return folder
        number += 1


class _Display:
    """A live table on a terminal, now and then a plain line elsewhere."""

    def __init__(self, settings: Settings, quiet: bool) -> None:
        self.steps, self.quiet = settings.steps, quiet
        self.live: Any = None
        self.shown = time.monotonic()
        if sys.stderr.isatty() and not quiet:
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), refresh_per_second=8, transient=True)

    def __enter__(self) -> _Display:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, step: Step) -> None:
        interrupts.check()
        if self.live is not None:
            from rich.table import Table

            table = Table("step", "error to optimum", "certified bound", "classes", "sweeps", "step size")
            error = "not wanted" if step.error is None else f"{step.error:.4g}"
            table.add_row(f"{step.k + 1} / {self.steps}", error, f"{step.bound:.4g}", str(step.n_classes),
                          str(step.sweeps), f"{step.alpha:.3g}")  # fmt: skip
            self.live.update(table)
        elif not self.quiet and (time.monotonic() - self.shown > 5.0 or step.k + 1 == self.steps):
            self.shown = time.monotonic()
            error = "" if step.error is None else f"error {step.error:.4g}, "
            say(f"step {step.k + 1}: {error}bound {step.bound:.4g}, {step.n_classes} classes")


def _report(mdp: MDP, result: PolicyRun, folder: Path, pictures: bool, as_json: bool) -> int:
    from .. import runs
    from ..pictures import available, draw
    from ..policy_run import RunStatus

    interrupted = result.status is RunStatus.INTERRUPTED
    drawn = []
    if pictures and available() and result.history and not interrupted:
        drawn = [str(path) for path in draw(mdp, result, folder)]
    facts = runs.summary(mdp, result)
    if as_json:
        print_json({**facts, "folder": str(folder), "pictures": drawn})
    else:
        _print_table(mdp, facts, result, folder, drawn, pictures and not available())
    if interrupted:
        say(f"bisimetric: interrupted; go on with: bisimetric solve --resume {folder}")
        return 130
    return 0 if result.status is not RunStatus.STEPS or not _missed_target(folder, result) else 1


def _missed_target(folder: Path, result: PolicyRun) -> bool:
    from .. import runs

    target = runs.read_settings(folder).get("target")
    return target is not None and result.certificate.error > target


def _print_table(
    mdp: MDP, facts: dict[str, Any], result: PolicyRun, folder: Path, drawn: list[str], no_pictures: bool
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, title="result")
    table.add_row("states", str(mdp.n_states))
    known = "" if mdp.classes is None else f" (the model was made with {len(set(mdp.classes.tolist()))})"
    table.add_row("classes found", f"{facts['classes']}{known}")
    if facts["error"] is not None:
        table.add_row("error to the optimum", f"{facts['error']:.4g}")
    scale = mdp.reward_span / (1.0 - mdp.gamma)
    table.add_row("certified bound on it", f"{facts['bound']:.4g} (values range over {scale:.4g})")
    table.add_row("steps, time", f"{facts['steps']}, {facts['seconds']:.1f} s")
    table.add_row("ended because", result.status.value)
    table.add_row("policy as a table", str(folder / "policy.csv"))
    table.add_row("policy, values, classes", str(folder / "result.npz"))
    table.add_row("pictures", "\n".join(drawn) if drawn else "none (pip install matplotlib)" if no_pictures else "none")
    Console().print(table)


def aggregate(
    metric_file: Annotated[Path, Parameter(help="A file written by bisimetric metric -o.")],
    *,
    eps: float | None = None,
    rule: str = "radius",
    k: Annotated[int | None, Parameter(name="--k")] = None,
    seed: int = 0,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Make classes from the distances of a metric file.

    Args:
        eps: ε of the aggregation; or give --k.
        rule: radius (the paper's Algorithm 1) or diameter (all pairs within 2ε).
        k: number of classes, by k-medoids.
        seed: of the first medoids.
        output: write labels and medoids to this .npz file.
    """
    import numpy as np

    if (eps is None) == (k is None):
        raise BadInputError("give --eps or --k.")
    try:
        with np.load(metric_file, allow_pickle=False) as archive:
            data = {name: archive[name] for name in archive.files}
        distance = data["distance"]
    except FileNotFoundError:
        raise BadInputError(f"{metric_file}: no such file.") from None
    except (zipfile.BadZipFile, ValueError, LookupError, TypeError, AttributeError, EOFError, OSError,
            NotImplementedError, RuntimeError):  # fmt: skip
        raise BadInputError(f"{metric_file}: not a metric file (made by bisimetric metric -o).") from None
    partition = _aggregation({"eps": eps, "rule": rule, "k": k, "seed": seed})(distance)
    facts: dict[str, Any] = {
        "states": partition.n_states,
        "classes": partition.n_classes,
        "largest_class": int(partition.sizes.max()),
        "radius": partition.radius,
        "diameter": partition.diameter,
    }
    if "classes" in data:
        facts["nmi"], facts["purity"] = partition.nmi(data["classes"]), partition.purity(data["classes"])
    if output is not None:
        from ..atomic import save_arrays

        check_output(output)
        save_arrays(output, {"labels": partition.labels, "medoids": partition.medoids})
    if json:
        print_json(facts)
    else:
        for name, value in facts.items():
            print(f"{name.replace('_', ' '):14} {value:.6g}" if isinstance(value, float) else f"{name:14} {value}")
        if output is not None:
            print(f"{'written':14} {output}")
    return 0
