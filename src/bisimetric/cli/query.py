"""bisimetric query."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from .inputs import Json
from .interrupts import pressed
from .models import NO_OPTIONS, Model, ModelOptions, load
from .words import BadInputError, print_json, print_rows, say

if TYPE_CHECKING:
    from ..kinds import Facts
    from ..model import MDP, Chain
    from ..queries import Answer, Nearest, Query


def query(  # noqa: PLR0913 (options of a command)
    model: Model,
    s: Annotated[str, Parameter(help="A state, by number or by name; init for the initial state.")] = "init",
    t: Annotated[str, Parameter(help="Another one, of the second model where there is one.")] = "init",
    *,
    options: ModelOptions = NO_OPTIONS,
    other: str | None = None,
    match: Literal["labels", "hausdorff"] | None = None,
    tol: float = 1e-3,
    at_most: float | None = None,
    nearest: int | None = None,
    pairs: int | None = None,
    seconds: float | None = None,
    listed: Annotated[Path | None, Parameter(name="--list")] = None,
    cluster: str | None = None,
    json: Json = False,
) -> int:
    """Find the distance of two states, without the distances of all pairs.

    Give --match for the metric of the MDP itself; without it, that of the chain of its uniform policy. Exit status 1
    where the budget was spent first; the bounds are true all the same.

    Args:
        other: a second model, whose state t is compared with state s of the first.
        match: labels (actions by name) or hausdorff (choices as sets).
        tol: how far the bounds may be apart.
        at_most: only decide whether the distance is at most this.
        nearest: find so many states that are nearest to s, instead.
        pairs: most pairs of states to open (default: no limit).
        seconds: most seconds (default: no limit).
        listed: a file of pairs to ask for instead, one s,t a line; answers are lines s,t,lower,upper,status.
        cluster: with --list: address of a Dask scheduler, such as tcp://host:8786, whose workers answer.
    """
    from ..queries import Budget, Query
    from ..status import Status

    if at_most is not None and nearest is not None:
        raise BadInputError("give --at-most or --nearest, not both.")
    if listed is not None and (at_most is not None or nearest is not None):
        raise BadInputError("give --list, --at-most or --nearest, one of them.")
    if cluster is not None and listed is None:
        raise BadInputError("--cluster is for many questions; give --list too.")
    limits = Budget(pairs=pairs, seconds=seconds)
    wanted = None if listed is None else _pairs(listed)
    sides = [_side(spec, options, match) for spec in (model, other) if spec is not None]
    ask = Query(*sides, match=match)
    if wanted is not None:
        answers = ask.distances([(_state(a), _state(b)) for a, b in wanted], tol=tol, budget=limits, cluster=cluster)
        return _say_answers(wanted, answers, json)
    first = _state(s)
    if nearest is not None:
        near = ask.nearest(first, nearest, tol=tol, budget=limits)
        return _say_nearest(near, sides[-1], json)
    second = _state(t)
    if at_most is not None:
        decided = ask.at_most(first, second, at_most, budget=limits)
        answer = ask.distance(first, second, tol=2.0 * ask.largest, budget=limits)  # what is known by now
        if decided is None:
            spent = Status.ROUNDING if pairs is seconds is None else Status.BUDGET
            answer = replace(answer, status=Status.INTERRUPTED if pressed() else spent)
        return _say_answer(ask, answer, json, {"at_most": at_most, "holds": decided}, decided is not None)
    answer = ask.distance(first, second, tol=tol, budget=limits)
    return _say_answer(ask, answer, json, {"tol": tol}, answer.converged)


def _pairs(listed: Path) -> list[tuple[str, str]]:
    """The pairs of a file: two states a line, by number or by name; a first line "s,t" is a heading."""
    found = []
    with open(listed, encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.reader(stream), 1):
            words = [word.strip() for word in row]
            if not words or (number == 1 and words == ["s", "t"]):
                continue
            if len(words) != 2 or not all(words):
                raise BadInputError(f"{listed}: line {number}: two states are wanted, as in 3,17.")
            found.append((words[0], words[1]))
    if not found:
        raise BadInputError(f"{listed}: has no pairs of states.")
    return found


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
    return int(text) if text.lstrip("-").isdigit() else text


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
