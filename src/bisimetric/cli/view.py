"""bisimetric view."""

from __future__ import annotations

import json as formats_json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from cyclopts import Parameter

from ..kinds import Keywords
from .inputs import check_output, load_policy
from .models import NO_OPTIONS, ModelOptions, load
from .solve import Asked
from .words import BadInputError, readable_bytes, say

if TYPE_CHECKING:
    from ..kinds import Array, Facts
    from ..metric.solution import MetricSolution
    from ..model import MDP, Chain
    from ..pages.subjects import Subject


def view(
    result: Annotated[
        Path, Parameter(help="A file of bisimetric metric -o, a run folder, or classes of bisimetric lump --map.")
    ],
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    model: str | None = None,
    options: ModelOptions = NO_OPTIONS,
    policy: str | None = None,
    board: str | None = None,
    title: str | None = None,
) -> int:
    """Write a page to explore a result: one HTML file that opens in any browser, without a server.

    It has a map of the states, their distances, classes that merge as a slider moves, curves, explanations of
    distances, and a board where states have coordinates.

    Args:
        output: the page to write (.html).
        model: the model of the result, where it is not the one that the result names, or names none.
        policy: of the chain whose metric it is, with --model (default uniform).
        board: ROWSxCOLUMNS, for states that are numbered row by row; by default names such as "row 1 column 2" say it.
        title: of the page (default: the model).
    """
    check_output(output, result, model, policy)
    squares = _board(board)
    if not result.exists():
        raise BadInputError(f"{result}: no such file or run folder.")
    if result.is_dir():
        subject, name = _of_folder(result)
    elif result.suffix == ".csv":
        subject, name = _of_classes(result, model, options)
    else:
        subject, name = _of_metric(result, model, options, policy)
    from .. import atomic
    from ..pages import page_of

    page = page_of(subject, title or name, squares)
    atomic.write_text(output, page)
    print(f"written {output} ({readable_bytes(len(page.encode()))})")
    return 0


def _board(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    rows, _, columns = text.lower().partition("x")
    if not (rows.isdigit() and columns.isdigit()):
        raise BadInputError(f"--board {text[:30]}: write ROWSxCOLUMNS, as in 4x4.")
    return int(rows), int(columns)


def _of_metric(path: Path, model: str | None, options: ModelOptions, policy: str | None) -> tuple[Subject, str]:
    from ..archives import read_arrays
    from ..damage import reading
    from ..metric.solution import MetricSolution
    from ..pages import subjects

    solution = MetricSolution.load(path)
    with reading(path, "a metric file"):
        extra = read_arrays(path)
    names = tuple(map(str, extra["state_names"])) if "state_names" in extra else None
    subject = _model_of(solution, extra, model, options, policy)
    if subject is not None and subject[0].n_states != solution.n_states:
        raise BadInputError(f"{path}: is of {solution.n_states} states, the model has {subject[0].n_states}.")
    found, name = subject if subject is not None else (None, path.name)
    if found is not None:
        _check_model(solution, found, path)
    return subjects.of_metric(solution, found, names), name


def _model_of(
    solution: MetricSolution, extra: dict[str, Array], model: str | None, options: ModelOptions, policy: str | None
) -> tuple[MDP | Chain, str] | None:
    """The model of a metric file: the one given, or the one that the file names; None where it is not to be had."""
    asked: Facts = {"model": model, "policy": policy or "uniform"}
    if model is None:
        if "asked_of" not in extra:
            return None
        asked = formats_json.loads(str(extra["asked_of"]))
        known: Keywords = {
            name: tuple(x) if isinstance(x, list) else x
            for name, x in asked.items()
            if name in ModelOptions.__dataclass_fields__
        }
        options = replace(options, **known)
        policy = policy or str(asked["policy"])
    spec = str(asked["model"])
    try:
        mdp = load(spec, options).mdp
        chain = solution.question.match == "chain"
        return (mdp.under(load_policy(policy or "uniform", mdp)) if chain else mdp), spec
    except (BadInputError, ValueError, OSError) as error:
        if model is not None:
            raise
        say(f"bisimetric: the page has no explanations, as its model cannot be read: {error}")
        return None


def _check_model(solution: MetricSolution, model: MDP | Chain, path: Path) -> None:
    """Refuse a model that the distances are not of."""
    far = np.unravel_index(int(solution.distance.argmax()), solution.distance.shape)
    for pair in {(0, solution.n_states - 1), (int(far[0]), int(far[1]))}:
        try:
            solution.explain(*pair, depth=1, remainder=1.0, model=model)
        except ValueError as error:
            raise BadInputError(f"{path}: {error}") from None


def _of_classes(path: Path, model: str | None, options: ModelOptions) -> tuple[Subject, str]:
    """Classes that bisimetric lump --map wrote, of a model that has to be given."""
    from ..lumping import lump
    from ..pages import subjects

    if model is None:
        raise BadInputError(f"{path}: classes need their model: give --model.")
    lines = path.read_text(encoding="utf-8").split("\n")
    if lines[0] != "state,name,class,representative":
        raise BadInputError(f"{path}: not a table of classes that bisimetric lump --map wrote.")
    import csv

    mdp = load(model, options).mdp
    classes = [int(row["class"]) for row in csv.DictReader(lines)]
    matches: tuple[Literal["labels", "hausdorff"], ...] = ("labels", "hausdorff")
    for match in matches:
        found = lump(mdp, match)
        if found.class_of.tolist() == classes:
            return subjects.of_lumping(found), model
    raise BadInputError(f"{path}: these are not the bisimulation classes of {model} by labels or as sets of choices.")


def _of_folder(folder: Path) -> tuple[Subject, str]:
    from ..pages import subjects
    from ..policy import folder as runs
    from ..policy.checkpoint import restore
    from ..policy.record import likely_actions
    from ..policy.settings import PolicySettings
    from ..policy.solve import first_on_reduced
    from .options import settings_from

    asked = Asked.of(runs.read_settings(folder), folder)
    mdp = load(asked.model, asked.reading).mdp
    runs.check_model(folder, mdp)
    settings: PolicySettings = settings_from(PolicySettings, asked.options).for_model(mdp)
    reduction, _ = first_on_reduced(mdp, settings, load_policy(asked.policy, mdp))
    state = restore(folder, reduction.model, settings)
    if state is None:
        raise BadInputError(f"{folder}: the run has no checkpoint yet; go on with bisimetric solve --resume {folder}.")
    policy = reduction.lift_policy(state.policy)
    chain = mdp.under(reduction.lift_policy(state.measured))
    history = runs.read_history(folder / "history.jsonl")[: state.k]
    done = (folder / "summary.json").exists()
    facts = {"state of the run": "done, or stopped by Ctrl-C" if done else "not finished: as of its last checkpoint"}
    columns: dict[str, Array] = {
        "class": reduction.lift_partition(state.partition).class_of.astype(str),
        "value of the policy": reduction.lift(state.value),
        "action": np.array(likely_actions(mdp, policy)[1], dtype=str),
    }
    question = settings.metric.for_model(chain)
    subjects.check_square(state.distance.to_host())
    subject = subjects.of_steps(mdp, state.distance.to_host(), reduction.of_state, question, columns, history, facts)
    return replace(subject, model=chain), f"{asked.model} ({folder.name})"
