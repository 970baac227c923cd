"""bisimetric query."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from .bars import SweepBar
from .inputs import Json
from .interrupts import pressed
from .models import NO_OPTIONS, Model, ModelOptions, load
from .words import BadInputError, print_json, print_rows, say

if TYPE_CHECKING:
    from ..kinds import Facts
    from ..model import MDP, Chain
    from ..queries import Answer, Nearest, Query


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a question may cost."""

    pairs: int | None = None
    """Most pairs of states to open (default: no limit)."""
    seconds: float | None = None
    """Most seconds (default: no limit)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Instead:
    """Other questions than how far two states are apart."""

    at_most: float | None = None
    """Only decide whether the distance is at most this."""
    nearest: int | None = None
    """Find so many states that are nearest to s, instead."""
    listed: Annotated[Path | None, Parameter(name="--list")] = None
    """A file of pairs to ask for instead, one s,t a line; answers are lines s,t,lower,upper,status."""
    cluster: str | None = None
    """With --list: address of a Dask scheduler, such as tcp://host:8786, whose workers answer."""

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.at_most, self.nearest, self.listed)) > 1:
            raise BadInputError("give --at-most, --nearest or --list, one of them.")
        if self.at_most is not None and not 0.0 <= self.at_most < math.inf:
            raise BadInputError(f"--at-most must be finite and not negative; got {self.at_most}.")
        if self.nearest is not None and self.nearest < 1:
            raise BadInputError(f"--nearest must be at least 1; got {self.nearest}.")
        if self.cluster is not None and self.listed is None:
            raise BadInputError("--cluster is for many questions; give --list too.")


_NO_LIMITS, _ONE = Limits(), Instead()


def query(  # noqa: PLR0913 (options of a command)
    model: Model,
    s: Annotated[str, Parameter(help="A state, by number or by name; init for the initial state.")] = "init",
    t: Annotated[str, Parameter(help="Another one, of the second model where there is one.")] = "init",
    *,
    options: ModelOptions = NO_OPTIONS,
    other: str | None = None,
    match: Literal["labels", "hausdorff"] | None = None,
    tol: float = 1e-3,
    instead: Instead = _ONE,
    limits: Limits = _NO_LIMITS,
    json: Json = False,
) -> int:
    """Find the distance of two states, without the distances of all pairs.

    Give --match for the metric of the MDP itself; without it, that of the chain of its uniform policy. Exit status 1
    where the budget was spent first; the bounds are true all the same.

    Args:
        other: a second model, whose state t is compared with state s of the first.
        match: labels (actions by name) or hausdorff (choices as sets).
        tol: how far the bounds may be apart.
    """
    from ..queries import Budget, Query
    from ..status import Status

    budget = Budget(pairs=limits.pairs, seconds=limits.seconds)
    if instead.listed is not None and (s, t) != ("init", "init"):
        raise BadInputError("with --list states come from the file; leave out those beside the model.")
    wanted = None if instead.listed is None else _pairs(instead.listed)
    sides = [_side(spec, options, match) for spec in (model, other) if spec is not None]
    bar = SweepBar(json)
    ask = Query(*sides, match=match, on_progress=bar)
    if wanted is not None:
        named = [_numbered(line, sides) for line in wanted]
        answers = ask.distances(named, tol=tol, budget=budget, cluster=instead.cluster)
        return _say_answers([(line.s, line.t) for line in wanted], answers, json)
    if instead.nearest is not None and t != "init":
        raise BadInputError(f"--nearest is about one state; leave out {t!r}.")
    first = _state(s)
    if instead.nearest is not None:
        with bar:
            near = ask.nearest(first, instead.nearest, tol=tol, budget=budget)
        return _say_nearest(near, sides[-1], json)
    second = _state(t)
    if instead.at_most is not None:
        with bar:
            decided = ask.at_most(first, second, instead.at_most, budget=budget)
        answer = ask.distance(first, second, tol=2.0 * ask.largest, budget=budget)  # what is known by now
        if decided is None:
            spent = Status.ROUNDING if limits == _NO_LIMITS else Status.BUDGET
            answer = replace(answer, status=Status.INTERRUPTED if pressed() else spent)
        asked: Facts = {"at_most": instead.at_most, "holds": decided}
        return _say_answer(ask, answer, json, asked, decided is not None)
    with bar:
        answer = ask.distance(first, second, tol=tol, budget=budget)
    return _say_answer(ask, answer, json, {"tol": tol}, answer.converged)


class _Line(NamedTuple):
    """A pair of a file, as it is written there, and where."""

    s: str
    t: str
    place: str


def _pairs(listed: Path) -> list[_Line]:
    """The pairs of a file: two states a line, by number or by name; a first line "s,t" is a heading."""
    found = []
    try:
        with open(listed, encoding="utf-8-sig", newline="") as stream:
            for number, row in enumerate(csv.reader(stream), 1):
                words, place = [word.strip() for word in row], f"{listed}: line {number}"
                if not words or (number == 1 and words == ["s", "t"]):
                    continue
                if len(words) != 2 or not all(words):
                    raise BadInputError(f"{place}: two states are wanted, as in 3,17.")
                found.append(_Line(words[0], words[1], place))
    except UnicodeDecodeError:
        raise BadInputError(f"{listed}: is not in UTF-8.") from None
    except csv.Error as error:
        raise BadInputError(f"{listed}: is no CSV file ({error}).") from None
    if not found:
        raise BadInputError(f"{listed}: has no pairs of states.")
    return found


def _numbered(line: _Line, sides: Sequence[Chain | MDP]) -> tuple[int, int]:
    """The states of a line; what is wrong with them is said with its place."""
    from ..queries.query import asked_state

    try:
        return asked_state("s", _state(line.s), sides[0]), asked_state("t", _state(line.t), sides[-1])
    except ValueError as error:
        raise BadInputError(f"{line.place}: {error}") from None


def _say_answers(pairs: list[tuple[str, str]], answers: list[Answer], json: bool) -> int:
    if json:
        rows = [
            {"s": s, "t": t, "lower": a.lower, "upper": a.upper, "status": a.status.name, "opened": a.opened}
            for (s, t), a in zip(pairs, answers, strict=True)
        ]
        print_json({"answers": rows})
    else:
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerow(["s", "t", "lower", "upper", "status"])
        for (s, t), a in zip(pairs, answers, strict=True):
            out.writerow([s, t, repr(a.lower), repr(a.upper), a.status.name])
    interrupted = any(answer.status.name == "INTERRUPTED" for answer in answers)
    return _status("INTERRUPTED" if interrupted else "", all(answer.converged for answer in answers))


def _side(spec: str, options: ModelOptions, match: str | None) -> Chain | MDP:
    mdp = load(spec, options).mdp
    return mdp if match else mdp.under(mdp.uniform_policy())


def _state(text: str) -> int | str | None:
    if text == "init":
        return None
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() else text


def _say_answer(ask: Query, answer: Answer, json: bool, asked: Facts, met: bool) -> int:
    facts: Facts = {
        "lower": answer.lower,
        "upper": answer.upper,
        **asked,
        "status": answer.status.name,
        "opened": answer.opened,
        "known": answer.known,
        "seconds": answer.seconds,
        "largest_possible": ask.largest,
        "notes": [*ask.notes, *answer.notes],
    }
    if json:
        print_json(facts)
    else:
        rows: dict[str, object] = {
            "distance": f"{answer.lower:.6g} to {answer.upper:.6g} (largest possible {ask.largest:.6g})"
        }
        if "holds" in asked:
            word = {"True": "yes", "False": "no"}.get(str(asked["holds"]), "undecided")
            rows[f"at most {asked['at_most']:g}"] = word
        rows["work"] = f"{ask.opened} pairs opened, {answer.known} known, {answer.seconds:.2f} s"
        rows["status"] = answer.status.value
        for k, note in enumerate([*ask.notes, *answer.notes]):
            rows[f"note{k + 1}"] = note
        print_rows(rows)
    return _status(answer.status.name, met)


def _say_nearest(near: Nearest, model: Chain | MDP, json: bool) -> int:
    if json:
        print_json(
            {
                "states": near.states.tolist(),
                "lower": near.lower.tolist(),
                "upper": near.upper.tolist(),
                "eta": near.eta,
                "status": near.status.name,
                "opened": near.opened,
                "seconds": near.seconds,
            }
        )
    else:
        rows: dict[str, object] = {
            model.name_of(int(state)): f"{low:.6g} to {high:.6g}"
            for state, low, high in zip(near.states, near.lower, near.upper, strict=True)
        }
        rows["eta"] = f"{near.eta:.3g}: none of them is farther than the true nearest by more"
        rows["status"] = near.status.value
        print_rows(rows)
    return _status(near.status.name, near.converged)


def _status(name: str, met: bool) -> int:
    if name == "INTERRUPTED":
        say("bisimetric: interrupted; the bounds above are true")
        return 130
    return 0 if met else 1
