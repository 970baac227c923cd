"""bisimetric aggregate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from .inputs import Json, aggregation_rule, check_output
from .words import BadInputError, print_json, print_rows

if TYPE_CHECKING:
    from ..kinds import Facts


def aggregate(
    metric_file: Annotated[Path, Parameter(help="A file written by bisimetric metric -o.")],
    *,
    eps: float | None = None,
    rule: str | None = None,
    k: Annotated[int | None, Parameter(name="--k")] = None,
    seed: int | None = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Make classes from the distances of a metric file.

    Args:
        eps: ε of the aggregation; or give --k.
        rule: radius (the paper's Algorithm 1) or diameter (all pairs within 2ε).
        k: number of classes, by k-medoids.
        seed: of the first medoids, for --k (default 0).
        output: write labels and medoids to this .npz file.
    """
    from ..archives import read_arrays
    from ..damage import reading
    from ..metric.solution import MetricSolution

    if eps is None and k is None:
        raise BadInputError("give --eps or --k.")
    if output is not None:
        check_output(output, metric_file, ending=".npz")
    if seed is not None and k is None:
        raise BadInputError("--seed is for --k: covers by --eps have no chance in them.")
    solution = MetricSolution.load(metric_file)
    with reading(metric_file, "a metric file"):
        extra = read_arrays(metric_file)
    chosen = aggregation_rule(eps, rule, k, seed or 0)
    assert chosen is not None  # as eps or k is given
    partition = chosen(solution.distance)
    asked = solution.question
    facts: Facts = {
        "states": partition.n_states,
        "classes": partition.n_classes,
        "largest_class": int(partition.sizes.max()),
        "radius": partition.radius,
        "diameter": partition.diameter,
        "metric_error": solution.error,
        "rigorous": solution.certificate.rigorous,
        "reward": asked.reward,
        "gamma": asked.gamma,
        "respected": list(asked.respected),
    }
    if "classes" in extra and extra["classes"].shape == (partition.n_states,):
        facts["nmi"], facts["purity"] = partition.agreement(extra["classes"])
    if output is not None:
        partition.save(output)
        facts["output"] = str(output)
    if json:
        print_json(facts)
        return 0
    rows = {name.replace("_", " "): f"{x:.6g}" if isinstance(x, float) else x for name, x in facts.items()}
    rows["respected"] = ", ".join(asked.respected) or "none"
    rows["reward"] = asked.reward or "the model's own, or none"
    print_rows(rows)
    return 0
