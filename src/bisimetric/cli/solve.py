"""bisimetric solve."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..kinds import Keywords
from ..policy.settings import PolicySettings
from . import interrupts
from .data import NO_DATA, DataOptions, is_data, load_data, refuse_data_options
from .inputs import Json, load_policy
from .models import NO_OPTIONS, Loaded, ModelOptions, given_options, load
from .options import PolicyOptions, settings_from
from .words import BadInputError, print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance
    from rich.live import Live

    from ..kinds import Facts, Floats
    from ..policy.run import PolicyRun, Step

_DEFAULT_MODEL = "problem:chain"
_NOTHING = PolicyOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run is kept, and how."""

    out: Path | None = None
    """Run folder to make (default: the first free one of bisimetric-run, bisimetric-run-2, …)."""
    resume: Path | None = None
    """Go on with the run in this folder; only --steps may differ from what it was begun with."""
    checkpoint_every: float = 15.0
    """Seconds between checkpoints; 0 for one after every step."""
    pictures: bool = True
    """Draw the run, where matplotlib is installed."""


_NEW = RunOptions()


@dataclass(frozen=True)
class Asked:
    """All that a run depends on, as it is kept in its folder."""

    model: str
    policy: str
    reading: ModelOptions
    options: Any  # PolicyOptions
    data: DataOptions

    def describe(self) -> Facts:
        """Plain types; options that were not given are left out."""
        return {
            "model": self.model,
            "policy": self.policy,
            **given_options(self.reading),
            **given_options(self.options),
            **given_options(self.data),
        }

    @classmethod
    def of(cls, plain: Facts, folder: Path) -> Asked:
        """What was asked, from its description; raises unless every entry has its type."""
        kinds = {"model": "str", "policy": "str", "policy_hash": "str"}
        kinds |= {f.name: str(f.type) for part in (ModelOptions, PolicyOptions, DataOptions) for f in fields(part)}
        for name, value in plain.items():
            if name not in kinds or not _fits(value, kinds[name]):
                raise BadInputError(f"{folder / 'settings.json'}: damaged; the entry {name!r} cannot be used.")
        if "model" not in plain or "policy" not in plain or "policy_hash" not in plain:
            raise BadInputError(f"{folder / 'settings.json'}: damaged; an entry is missing.")
        values = {name: tuple(x) if isinstance(x, list) else x for name, x in plain.items()}

        def of_part(part: type[DataclassInstance]) -> Keywords:
            return {f.name: values[f.name] for f in fields(part) if f.name in values}

        reading, options = ModelOptions(**of_part(ModelOptions)), PolicyOptions(**of_part(PolicyOptions))
        return cls(str(plain["model"]), str(plain["policy"]), reading, options, DataOptions(**of_part(DataOptions)))

    def load(self, quiet: bool) -> tuple[Loaded, Callable[[PolicyRun], PolicyRun] | None]:
        """(the model; for data, what makes a certificate for the true one of a run on the estimated one)."""
        if not is_data(self.model):
            refuse_data_options(self.model, self.data)
            return load(self.model, self.reading), None
        loaded, counts, evidence = load_data(self.model, self.reading, self.data, quiet)
        target = settings_from(PolicySettings, self.options).target
        return loaded, lambda run: evidence.certified(counts, loaded.mdp, run, target)


def _fits(value: object, kind: str) -> bool:
    """Whether a value from JSON is of the kind that an annotation says."""
    if "tuple" in kind:
        return isinstance(value, list) and all(isinstance(x, str) for x in value)
    if isinstance(value, bool):
        return "bool" in kind
    if isinstance(value, int):
        return "int" in kind or "float" in kind
    return (isinstance(value, float) and "float" in kind) or (isinstance(value, str) and "str" in kind)


def solve(
    model: Annotated[
        str | None,
        Parameter(
            help="A model file, problem:NAME?…, gym:ENV, or transitions: a .csv file with columns s, a, r, s_next "
            "(one with a column probability is a model), .parquet or counts (default: the paper's first MDP)."
        ),
    ] = None,
    *,
    reading: ModelOptions = NO_OPTIONS,
    options: PolicyOptions = _NOTHING,
    data: DataOptions = NO_DATA,
    place: RunOptions = _NEW,
    policy: Annotated[str | None, Parameter(help="First policy: uniform (default) or a file.")] = None,
    json: Json = False,
) -> int:
    """Find a policy by approximate policy iteration on aggregated states.

    Everything goes into a run folder, which can be resumed after any kind of stop. From transitions, the estimated
    model is solved, and the bound is one on the loss in the true one, with probability 1 − δ.
    """
    from ..policy import folder as runs
    from ..policy.data import loop_settings

    out, resume, checkpoint_every = place.out, place.resume, place.checkpoint_every
    if not checkpoint_every >= 0.0:
        raise BadInputError(f"--checkpoint-every must be a number of seconds, at least 0; got {checkpoint_every}.")
    asked = Asked(model or _DEFAULT_MODEL, policy or "uniform", reading, options, data)
    stored: Facts = {}
    if resume is not None:
        if out is not None:
            raise BadInputError("give --out (a new run) or --resume (an old one), not both.")
        folder = resume
        stored, asked = _resumed(folder, model, policy, asked)
    else:
        folder = out or _free_folder()
    settings: PolicySettings = settings_from(PolicySettings, asked.options)
    loaded, finish = asked.load(json)
    mdp = loaded.mdp
    start = load_policy(asked.policy, mdp)
    if asked.options.k is not None and asked.options.k > mdp.n_states:
        raise BadInputError(f"--k {asked.options.k}: the model has only {mdp.n_states} states.")
    _check_run(loaded, settings, start)
    description = {**asked.describe(), "policy_hash": hashlib.sha256(start.tobytes()).hexdigest()}
    if resume is None:
        try:
            runs.begin(folder, description, mdp)
        except OSError as error:
            raise BadInputError(f"{folder}: cannot be written ({error.strerror}).") from None
    else:
        runs.check_model(folder, mdp)
        if description["policy_hash"] != stored["policy_hash"]:
            raise BadInputError(f"{asked.policy}: the first policy is not the one that this run began with.")
    with _Display(settings, f"{mdp!r}; run folder {folder}", quiet=json) as display:
        result = runs.run(
            mdp,
            settings if finish is None else loop_settings(settings),
            folder,
            policy=start,
            description=description,
            checkpoint_every=checkpoint_every,
            observers=(display,),
            finish=finish,
        )
    return _report(loaded, settings, result, folder, place.pictures, json)


def _check_run(loaded: Loaded, settings: PolicySettings, start: Floats) -> None:
    """Refuse what cannot be run, or does not fit, before a folder is made."""
    from ..aggregation import SmallModel
    from ..metric.plan import check_fits
    from ..policy.loop import LoopState
    from ..policy.solve import first_on_reduced

    reduction, first = first_on_reduced(loaded.mdp, settings.for_model(loaded.mdp), start)
    if not isinstance(settings.aggregation, SmallModel):  # which needs no distances of all pairs
        check_fits(reduction.model.under(first), settings.metric)
    LoopState.first(reduction.model, settings, first)


def _resumed(folder: Path, model: str | None, policy: str | None, given: Asked) -> tuple[Facts, Asked]:
    """(the settings of a run folder, what they ask with --steps as given now); all else must agree."""
    from dataclasses import replace

    from ..policy import folder as runs

    stored = runs.read_settings(folder)
    asked = Asked.of(stored, folder)
    now = {**given_options(given.reading), **given_options(given.options), **given_options(given.data)}
    now |= ({} if model is None else {"model": model}) | ({} if policy is None else {"policy": policy})
    steps = now.pop("steps", None)
    differ = runs.differences(stored, now)
    if differ:
        raise BadInputError(f"{folder}: settings cannot change in a run: {'; '.join(differ)}.")
    return stored, asked if steps is None else replace(asked, options=replace(asked.options, steps=steps))


def _free_folder() -> Path:
    number = 1
    while True:
        folder = Path("bisimetric-run" if number == 1 else f"bisimetric-run-{number}")
        if not folder.exists():
            return folder
        number += 1


class _Display:
    """A live table on a terminal, now and then a plain line elsewhere."""

    def __init__(self, settings: PolicySettings, heading: str, quiet: bool) -> None:
        self.steps, self.heading, self.quiet = settings.steps, heading, quiet
        self.live: Live | None = None
        self.shown = time.monotonic()
        if not quiet and sys.stderr is not None and sys.stderr.isatty():
            from rich import live
            from rich.console import Console

            self.live = live.Live(console=Console(stderr=True), refresh_per_second=8, transient=True)

    def __enter__(self) -> _Display:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, step: Step) -> None:
        interrupts.check()
        if self.heading and not self.quiet:  # not before the folder has been looked through: errors are one line
            say(self.heading)
            self.heading = ""
        if self.live is not None:
            from rich.table import Table

            table = Table("step", "error to optimum", "certified bound", "classes", "sweeps", "step size")
            error = "not wanted" if step.error is None else f"{step.error:.4g}"
            table.add_row(
                f"{step.k + 1} / {self.steps}",
                error,
                f"{step.bound:.4g}",
                str(step.n_classes),
                str(step.sweeps),
                f"{step.alpha:.3g}",
            )
            self.live.update(table)
        elif not self.quiet and (time.monotonic() - self.shown > 5.0 or step.k + 1 == self.steps):
            self.shown = time.monotonic()
            error = "" if step.error is None else f"error {step.error:.4g}, "
            say(f"step {step.k + 1}: {error}bound {step.bound:.4g}, {step.n_classes} classes")


def _report(
    loaded: Loaded, settings: PolicySettings, result: PolicyRun, folder: Path, pictures: bool, as_json: bool
) -> int:
    from ..pictures import available, draw
    from ..policy import folder as runs
    from ..status import Status

    mdp = loaded.mdp
    interrupted = result.status is Status.INTERRUPTED
    drawn = []
    if pictures and available() and result.history and not interrupted:
        drawn = [str(path) for path in draw(mdp, result, folder)]
    met = _meets_target(settings, result)
    rule = settings.for_model(mdp).aggregation
    facts: Facts = {
        **runs.summary(mdp, result),
        **loaded.facts(),
        "target": settings.target,
        "target_met": met,
        "aggregation": repr(rule),
        "folder": str(folder),
        "pictures": drawn,
        "delta": None if result.data is None else result.data.delta,
    }
    if as_json:
        print_json(facts)
    else:
        _print_result(loaded, settings.for_model(mdp), result, folder, drawn, pictures and not available())
    if interrupted:
        say(f"bisimetric: interrupted; the policy so far is kept. Go on with: bisimetric solve --resume {folder}")
        return 130
    return 0 if met else 1


def _meets_target(settings: PolicySettings, result: PolicyRun) -> bool:
    return settings.target is None or result.certificate.error <= settings.target


def _print_result(
    loaded: Loaded, settings: PolicySettings, result: PolicyRun, folder: Path, drawn: list[str], bare: bool
) -> None:
    mdp, rule = loaded.mdp, settings.aggregation
    known = "" if mdp.classes is None else f" (the model was made with {len(set(mdp.classes.tolist()))})"
    eps = f", ε = {rule.eps:.4g}" if hasattr(rule, "eps") else ""
    rows: Facts = {
        "states": mdp.n_states,
        "reward, discount": f"{loaded.reward or 'none'}, {mdp.gamma:g}",
        "classes found": f"{result.partition.n_classes}{known}{eps}",
    }
    if result.error is not None:
        where = "" if result.data is None else ", in the estimate"
        rows[f"error to the optimum{where}"] = f"{result.error:.4g}"
    scale = mdp.reward_span / (1.0 - mdp.gamma)
    if result.data is None:
        rows["certified bound on it"] = f"{result.certificate.error:.4g} (values range over {scale:.4g})"
    else:
        sure = f"with probability {1.0 - result.data.delta:g}"
        rows["loss in the true model"] = (
            f"at most {result.certificate.error:.4g}, {sure} (values range over {scale:.4g})"
        )
        rows["resting on"] = result.certificate.source
    met = _meets_target(settings, result)
    if settings.target is not None:
        rows["target"] = f"{settings.target:.4g}, {'met' if met else 'missed'}"
    rows["steps, time"] = f"{len(result.history)}, {math.fsum(step.seconds for step in result.history):.1f} s"
    advice = "" if met else result.status.command
    rows["ended because"] = result.status.value + (f"; {advice}" if advice else "")
    rows["policy as a table"] = folder / "policy.csv"
    rows["policy, values, classes"] = folder / "result.npz"
    rows["pictures"] = "\n".join(drawn) if drawn else "none (pip install matplotlib)" if bare else "none"
    print_table(rows, title="result")
