"""bisimetric lump and convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from cyclopts import Parameter

from .inputs import Json, check_output
from .models import NO_OPTIONS, Model, ModelOptions, load
from .words import BadInputError, print_json, print_rows, say

if TYPE_CHECKING:
    from ..kinds import Facts
    from ..lumping import Lumping
    from ..model import MDP

Match = Literal["labels", "hausdorff"]


def lump(
    model: Model,
    *,
    options: ModelOptions = NO_OPTIONS,
    match: str = "labels",
    respect: str | None = None,
    tol: float = 1e-9,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    map: Path | None = None,
    json: Json = False,
) -> int:
    """Find the exact bisimulation classes of a model.

    The quotient keeps the reward models and labels that its classes respect, and no others. --reward all respects all
    reward models.

    Args:
        match: labels (choices by position or name) or hausdorff (choices as sets).
        respect: labels of states to respect, separated by commas (default: all but init and deadlock).
        tol: numbers that round to the same multiple of this are equal.
        output: write the quotient model to this file (.drn, .npz, .tra, .csv).
        map: write the class of each state to this CSV file.
    """
    from dataclasses import replace

    from .. import atomic, formats
    from ..lumping import lump as find_classes
    from ..lumping import respected_labels

    for path in (output, map):
        if path is not None:
            check_output(path, model)
    if output is not None:
        check_ending(output)
    every = options.reward == "all"
    # Classes do not depend on the discount, so a model without one needs none, unless the quotient is to have it.
    wanted = output is not None and output.suffix == ".npz"
    loaded = load(model, replace(options, reward=None) if every else options, whole=every, discount=wanted)
    mdp = loaded.mdp
    names = None if respect is None else [name for name in respect.split(",") if name]
    lumping = find_classes(mdp, cast("Match", match), respect=names, rewards="all" if every else "current", tol=tol)
    files: dict[Path, atomic.Fill] = {}
    if map is not None:
        files[map] = atomic.text_filler(class_table(mdp, lumping))
    atomic.write_all(files)
    if output is not None:
        formats.write(lumping.quotient, output)
    facts = {
        "model": model,
        "match": match,
        "reward": "all" if every else loaded.reward,
        "gamma": loaded.gamma,
        "respected": list(respected_labels(mdp, names)),
        "states": mdp.n_states,
        "choices": mdp.n_choices,
        "classes": lumping.n_classes,
        "quotient_choices": lumping.quotient.n_choices,
        "quotient_reward_models": list(lumping.quotient.reward_models),
        "quotient_labels": list(lumping.quotient.state_labels),
        "largest_class": int(lumping.sizes.max()),
        "output": None if output is None else str(output),
        "map": None if map is None else str(map),
    }
    if json:
        print_json(facts)
        return 0
    rows: Facts = {
        "states": mdp.n_states,
        "choices": mdp.n_choices,
        "reward": facts["reward"] or "none",
        "labels": ", ".join(respected_labels(mdp, names)) or "none respected",
        "classes": f"{lumping.n_classes} (the largest has {lumping.sizes.max()} states)",
    }
    if output is not None:
        rows["written"] = output
    if map is not None:
        rows["map"] = map
    print_rows(rows)
    return 0


def check_ending(output: Path) -> None:
    """Refuse a model file whose ending is of no format that can be written."""
    from .. import formats

    if output.suffix not in formats.WRITABLE:
        raise BadInputError(
            f"{output}: cannot write the ending {output.suffix!r}; known: {', '.join(formats.WRITABLE)}."
        )


def class_table(mdp: MDP, lumping: Lumping) -> str:
    """state, name, class, representative."""
    import csv
    import io

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["state", "name", "class", "representative"])
    for s, k in enumerate(lumping.class_of):
        table.writerow([s, mdp.name_of(s), k, lumping.medoids[k]])
    return text.getvalue()


def convert(
    model: Model,
    output: Annotated[Path, Parameter(help="File to write (.npz, .drn, .tra, .csv).")],
    *,
    options: ModelOptions = NO_OPTIONS,
) -> int:
    """Write a model in another format, with all its reward models and labels where that has them.

    Tables (.csv, .parquet) have one reward model, without its name, and no labels; what is left out is said.
    """
    from dataclasses import replace

    from .. import formats

    check_output(output, model)
    check_ending(output)
    # Only .npz files hold a discount; tables hold one reward.
    loaded = load(model, options, whole=output.suffix != ".csv", discount=output.suffix == ".npz")
    mdp = replace(loaded.mdp, reward_models={}) if options.reward == "none" else loaded.mdp
    formats.write(mdp, output)
    print(f"{loaded.mdp.n_states} states, {loaded.mdp.n_choices} choices, reward {loaded.reward or 'none chosen'}")
    print(f"written {output}")
    if output.suffix in (".csv", ".parquet"):
        _say_left_out(mdp, output)
    return 0


def _say_left_out(mdp: MDP, output: Path) -> None:
    """Say what a table has no place for."""
    others = [name for name in mdp.reward_models if name != mdp.reward_name]
    left = [f"labels {', '.join(mdp.state_labels)}"] if mdp.state_labels else []
    left += [f"reward models {', '.join(others)}"] if others else []
    left += ["names of states"] if mdp.state_names is not None else []
    if left:
        say(f"bisimetric: {output} has no place for, and so is without: {'; '.join(left)}")
