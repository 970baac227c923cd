"""Data in place of a model: bisimetric estimate, and what bisimetric solve needs for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..kinds import Keywords
from . import interrupts
from .inputs import Json, check_output
from .models import Loaded, ModelOptions
from .words import BadInputError, print_json, print_rows, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..estimate import Counts
    from ..estimate.tally import Chunk
    from ..kinds import Array, Facts
    from ..policy.data import Evidence


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What is assumed of transitions, where MODEL is a file of them."""

    delta: float | None = None
    """For data: the probability with which what is certified may fail (default 0.05)."""
    reward_range: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """For data: LOW,HIGH, the range of all possible rewards."""
    exact_rewards: Annotated[bool, Parameter(negative="")] = False
    """For data: state and action decide the reward."""
    successors: int | None = None
    """For data: most states that a state and action can lead to (default all)."""
    fixed_design: Annotated[bool, Parameter(negative="")] = False
    """For data: how often each state and action was tried was decided before anything was seen."""
    unseen: str | None = None
    """For data: sink (actions never tried are the worst; the default of solve) or absent (of estimate)."""
    states: int | None = None
    """For data: how many states there are, seen or not; what is certified needs it."""
    actions: int | None = None
    """For data: how many actions there are, seen or not; what is certified needs it."""


NO_DATA = DataOptions()


def is_data(spec: str) -> bool:
    """Whether MODEL is a file of transitions, or saved counts."""
    from ..estimate.sources import is_transitions

    path = Path(spec)
    return ":" not in spec[:8] and path.is_file() and is_transitions(path)


def refuse_data_options(spec: str, options: DataOptions) -> None:
    """Options that would do nothing are mistakes."""
    path = Path(spec)
    if ":" not in spec[:8] and not path.exists():
        raise BadInputError(f"{spec}: no such file (generated models are written problem:NAME or gym:ENV).")
    for field in fields(options):
        if getattr(options, field.name) != field.default:
            name = field.name.replace("_", "-")
            raise BadInputError(f"{spec}: --{name} is for transitions (.csv, .parquet, saved counts), this is a model.")


def evidence_of(options: DataOptions, gamma: float | None) -> Evidence:
    """What is assumed."""
    from ..policy.data import Evidence

    chosen: Keywords = {"gamma": gamma, "exact_rewards": options.exact_rewards, "successors": options.successors}
    if options.delta is not None:
        chosen["delta"] = options.delta
    if options.reward_range is not None:
        chosen["reward_range"] = _range(options.reward_range)
    if options.fixed_design:
        chosen["design"] = "fixed"
    if options.unseen is not None:
        chosen["unseen"] = options.unseen
    return Evidence(**chosen)


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise BadInputError(f"--reward-range {text}: give LOW,HIGH.") from None
    return low, high


def read_data(spec: str, options: DataOptions, quiet: bool) -> Counts:
    """Counts of a file, with a word now and then on how far it is."""
    from ..estimate import Counts
    from ..estimate.sources import naming, read_chunks

    path = Path(spec)
    if path.suffix == ".npz":
        return Counts.load(path).declare(n_states=options.states, n_actions=options.actions)
    with naming(path), _Reading(path, quiet) as bar:
        return Counts.from_stream(bar.watched(read_chunks(path)), n_states=options.states, n_actions=options.actions)


class _Reading:
    """Transitions read so far, on a terminal."""

    def __init__(self, path: Path, quiet: bool) -> None:
        self.path, self.count = path, 0
        self.bar: Progress | None = None
        if not quiet and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> _Reading:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task(f"reading {self.path.name}", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def watched(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            interrupts.check()
            yield chunk
            self.count += len(chunk.r)
            if self.bar is not None:
                self.bar.update(self.task, description=f"reading {self.path.name}: {self.count:,} transitions")


def load_data(spec: str, reading: ModelOptions, options: DataOptions, quiet: bool) -> tuple[Loaded, Counts, Evidence]:
    """(the estimated model, the counts, what is assumed of them)."""
    for name in ("reward", "costs", "constants", "label", "absorb"):
        if getattr(reading, name) != getattr(ModelOptions(), name):
            raise BadInputError(f"{spec}: --{name} is for models; this is a file of transitions.")
    evidence = evidence_of(options, reading.gamma)
    gamma = evidence.discount
    counts = read_data(spec, options, quiet)
    for note in counts.notes:
        say(f"bisimetric: {note}")
    return Loaded(evidence.model(counts), gamma, False), counts, evidence


def estimate(
    data: Annotated[str, Parameter(help="Transitions (.csv, .parquet with columns s, a, r, s_next, done) or counts.")],
    *,
    gamma: float | None = None,
    options: DataOptions = NO_DATA,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    counts: Path | None = None,
    json: Json = False,
) -> int:
    """Count transitions, and estimate a model from them.

    A CSV file is read as transitions where its header names the columns s, a, r, s_next and perhaps done (or state,
    action, reward, next_state, terminated); with idstatefrom, idaction, idstateto and probability it is a model, which
    the other commands read. States and actions are numbers from 0, or names. Where done is true the episode ended.

    With --reward-range or --exact-rewards it also says how far the truth may be from the estimate.

    Args:
        gamma: discount of the model.
        output: write the maximum-likelihood model to this file (.npz, .drn, .tra, .csv).
        counts: write the counts to this .npz file, which estimate and solve read in place of the transitions.
    """
    from .. import formats
    from .lump import check_ending

    for path in (output, counts):
        if path is not None:
            check_output(path, data)
    if output is not None:
        check_ending(output)
        if gamma is None and output.suffix == ".npz":
            raise BadInputError(f"{output}: a model in .npz has a discount; give --gamma.")
    if counts is not None and counts.suffix != ".npz":
        raise BadInputError(f"{counts}: counts are kept in .npz files.")
    if not Path(data).exists():
        raise BadInputError(f"{data}: no such file.")
    if Path(data).suffix == ".npz" and not is_data(data):
        raise BadInputError(f"{data}: holds no counts.")
    evidence = evidence_of(options, gamma)
    found = read_data(data, options, json)
    facts: Facts = {
        "data": data,
        "transitions": found.n_samples,
        "distinct": len(found.number),
        "states": found.n_states,
        "actions": found.n_actions,
        "rows_visited": len(found.row),
        "rows": found.n_rows,
        "ends": found.ends,
        "notes": list(found.notes),
    }
    if options.reward_range is not None or options.exact_rewards:
        sets = found.confidence(
            evidence.delta,
            reward_range=evidence.reward_range,
            exact_rewards=evidence.exact_rewards,
            successors=evidence.successors,
            design=evidence.design,
        )
        seen = sets.observed & (sets.visits < float("inf"))
        facts |= {
            "delta": evidence.delta,
            "largest_spread": float(sets.spread[seen].max(initial=0.0)),
            "median_spread": _median(sets.spread[seen]),
        }
    if output is not None:
        model = found.model(0.0 if gamma is None else gamma, unseen=options.unseen or "absent")
        formats.write(model, output)
        facts |= {"output": str(output), "model_states": model.n_states, "model_choices": model.n_choices}
    if counts is not None:
        found.save(counts)
        facts["counts"] = str(counts)
    if json:
        print_json(facts)
    else:
        print_rows(_rows(facts))
    return 0


def _median(numbers: Array) -> float | None:
    import numpy as np

    return float(np.median(numbers)) if len(numbers) else None


def _rows(facts: Facts) -> dict[str, object]:
    rows: dict[str, object] = {
        "transitions": f"{facts['transitions']} ({facts['distinct']} distinct)",
        "states": f"{facts['states']}{' and the end' if facts['ends'] else ''}",
        "actions": facts["actions"],
        "rows": f"{facts['rows_visited']} of {facts['rows']} visited",
    }
    if "delta" in facts:
        median = facts["median_spread"]
        middle = "none" if median is None else f"{median:.4g}"
        rows["confidence"] = (
            f"with probability {1.0 - float(str(facts['delta'])):g} every row that was visited is within "
            f"{facts['largest_spread']:.4g} of its estimate in total variation (median {middle})"
        )
    if "output" in facts:
        rows["model"] = f"{facts['model_states']} states, {facts['model_choices']} choices"
        rows["written"] = facts["output"]
    if "counts" in facts:
        rows["counts"] = facts["counts"]
    for k, note in enumerate(facts["notes"]):  # type: ignore[arg-type, var-annotated]
        rows[f"note {k + 1}"] = note
    return rows
