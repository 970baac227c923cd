"""bisimetric abstract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from .bars import SweepBar
from .clusters import HERE, ClusterOptions, subject
from .inputs import Json, check_output
from .models import NO_OPTIONS, Model, ModelOptions
from .words import BadInputError, print_json, print_rows, say

if TYPE_CHECKING:
    from ..abstraction import Abstraction


def abstract(  # noqa: PLR0913 (options of a command)
    model: Model,
    *,
    options: ModelOptions = NO_OPTIONS,
    match: Literal["labels", "hausdorff"] | None = None,
    eps: float | None = None,
    size: int | None = None,
    device: str = "cpu",
    dtype: str = "float64",
    on: ClusterOptions = HERE,
    in_parts: Annotated[bool, Parameter(negative="")] = False,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Make a small model that stands for a large one, with its radius and the loss of its policy certified.

    Give --match for an MDP; without it, the chain of its uniform policy is made small. Exit status 1 where there is no
    small model of the radius that was asked for.

    Args:
        eps: wanted radius: every state shall be so near to one of the small model.
        size: or wanted number of states.
        match: labels (actions by name) or hausdorff (choices as sets; gives no policy).
        device: where sweeps are done, cpu or cuda.
        dtype: of the distances, float64 or float32.
        in_parts: with --cluster: workers read the model in parts, so that it need not fit into memory (.npz, .umb or
            .parquet; nothing is merged first).
        output: write each state's class and radius, and the policy, to this .npz file.
    """
    from ..abstraction import NoCoverError
    from ..abstraction import abstract as make

    if output is not None:
        check_output(output, model, ending=".npz")
    if (eps is None) is (size is None):
        raise BadInputError("give --eps or --size, one of them.")
    where = on.where
    source = subject(model, options, match, in_parts=in_parts, cluster=on.cluster)
    try:
        with SweepBar(json) as bar:
            found = make(source, eps=eps, size=size, match=match, device=device, dtype=dtype, on_progress=bar, **where)
    except NoCoverError as error:
        if json:
            print_json({"model": model, "eps": eps, "needed": error.needed, "radius": None})
        say(f"bisimetric: {error.for_command_line()}")
        return 1
    if output is not None:
        _write(found, output)
    loss = found.certificate
    if json:
        print_json(
            {
                "model": model,
                "states": len(found.radii),
                "small_states": found.small.n_states,
                "radius": found.radius,
                "mean_radius": float(found.radii.mean()),
                "loss": None if loss is None else loss.error,
                "error": found.cross.error,
                "status": found.status.name,
                "output": None if output is None else str(output),
            }
        )
        return _status(found)
    rows: dict[str, object] = {
        "states": f"{len(found.radii)}, by {found.small.n_states}",
        "radius": f"{found.radius:.6g} (mean {found.radii.mean():.6g}), certified",
    }
    if loss is not None:
        rows["loss of policy"] = f"at most {loss.error:.6g}: {loss.source}"
    for k, note in enumerate(found.notes):
        rows[f"note{k + 1}"] = note
    if output is not None:
        rows["written"] = str(output)
    print_rows(rows)
    return _status(found)


def _status(found: Abstraction) -> int:
    if found.status.name == "INTERRUPTED":
        say("bisimetric: interrupted; the small model above is the best so far, and what is certified of it is true")
        return 130
    return 0


def _write(found: Abstraction, output: Path) -> None:
    from ..archives import save_arrays

    arrays = {"class_of": found.class_of, "radii": found.radii, "error": found.cross.error}
    if found.policy is not None:
        arrays["policy"] = found.policy
    save_arrays(output, {"format": "bisimetric-abstraction", "version": 1, **arrays})
