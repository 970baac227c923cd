"""bisimetric lump and convert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

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
    print_json,
)

if TYPE_CHECKING:
    from ..lumping import Lumping
    from ..model import MDP


def lump(
    model: Model,
    *,
    match: str = "labels",
    keep: str | None = None,
    tol: float = 1e-9,
    gamma: Gamma = None,
    reward: Annotated[str | None, Parameter(help="Reward model to respect, none, or all (default: the first).")] = None,
    costs: Costs = None,
    constants: Constants = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    map: Path | None = None,
    json: Json = False,
) -> int:
    """Find the exact bisimulation classes of a model.

    Args:
        match: labels (choices by position or name) or hausdorff (choices as sets).
        keep: labels of states to respect, separated by commas (default: all but init and deadlock).
        tol: numbers that round to the same multiple of this are equal.
        output: write the quotient model to this file (.drn, .npz, .tra, .csv).
        map: write the class of each state to this CSV file.
    """
    from .. import formats
    from ..lumping import lump as find_classes

    for path in (output, map):
        if path is not None:
            check_output(path)
    if output is not None and output.suffix not in formats.WRITABLE:
        raise BadInputError(
            f"{output}: cannot write the ending {output.suffix!r}; known: {', '.join(formats.WRITABLE)}."
        )
    # Classes do not depend on the discount, so a model without one needs none.
    mdp = load_model(model, any_discount(model, gamma), None if reward == "all" else reward, costs, constants)
    names = None if keep is None else [name for name in keep.split(",") if name]
    lumping = find_classes(mdp, match, keep=names, rewards="all" if reward == "all" else "current", tol=tol)
    quotient = lumping.quotient
    assert quotient is not None
    if output is not None:
        formats.write(quotient, output)
    if map is not None:
        write_map(map, mdp, lumping)
    facts = {
        "model": model,
        "match": match,
        "states": mdp.n_states,
        "choices": mdp.n_choices,
        "classes": lumping.n_classes,
        "quotient_choices": quotient.n_choices,
        "largest_class": int(lumping.sizes.max()),
        "output": None if output is None else str(output),
        "map": None if map is None else str(map),
    }
    if json:
        print_json(facts)
    else:
        print(f"states   {mdp.n_states}")
        print(f"choices  {mdp.n_choices}")
        print(f"classes  {lumping.n_classes} (the largest has {lumping.sizes.max()} states)")
        for path in (output, map):
            if path is not None:
                print(f"written  {path}")
    return 0


def write_map(path: Path, mdp: MDP, lumping: Lumping) -> None:
    """state, name, class, representative."""
    import csv
    import io

    from .. import atomic

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["state", "name", "class", "representative"])
    for s, k in enumerate(lumping.labels):
        table.writerow([s, mdp.name_of(s), k, lumping.medoids[k]])
    atomic.write_text(path, text.getvalue())


def convert(
    model: Model,
    output: Annotated[Path, Parameter(help="File to write (.npz, .drn, .tra, .csv).")],
    *,
    gamma: Gamma = None,
    reward: Reward = None,
    costs: Costs = None,
    constants: Constants = None,
) -> int:
    """Write a model in another format."""
    from .. import formats

    check_output(output)
    if output.suffix not in formats.WRITABLE:
        raise BadInputError(
            f"{output}: cannot write the ending {output.suffix!r}; known: {', '.join(formats.WRITABLE)}."
        )
    if output.suffix != ".npz":
        gamma = any_discount(model, gamma)  # only .npz files hold one
    mdp = load_model(model, gamma, reward, costs, constants)
    formats.write(mdp, output)
    print(f"{mdp!r}")
    print(f"written {output}")
    return 0
