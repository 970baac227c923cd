"""bisimetric explain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ..metric.settings import MetricSettings
from .bars import SweepBar
from .inputs import Json, check_output, load_policy
from .models import NO_OPTIONS, Model, ModelOptions, load
from .options import MetricOptions, settings_from
from .words import BadInputError, print_json, say

if TYPE_CHECKING:
    from ..metric.solution import MetricSolution
    from ..model import MDP, Chain

_NOTHING = MetricOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """How much is explained, and from what."""

    policy: str | None = None
    """Explain the metric of this policy: uniform, or a file with one probability per choice or one action per state."""
    metric: Path | None = None
    """A file of bisimetric metric -o of the same model (and policy), in place of a new solve."""
    classes: Annotated[bool, Parameter(negative="")] = False
    """Say why the two are in different classes of the exact lumping (with --match, default labels)."""
    depth: int = 3
    """How many steps ahead causes are looked into."""
    remainder: float = 0.01
    """Go on until less than this part of the distance is left; smaller shares are summed up."""
    width: int = 6
    """How many next pairs of each are listed at most."""


_PLAIN = ExplainOptions()
State = Annotated[str, Parameter(help="A state: its name, or its number (#12 where names are numbers too).")]


def explain(
    model: Model,
    s: State,
    t: State,
    *,
    options: ModelOptions = NO_OPTIONS,
    what: MetricOptions = _NOTHING,
    how: ExplainOptions = _PLAIN,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Explain the distance of two states, or why they are in different classes.

    The distance is split into the difference of rewards, the action that decides, and the plan that couples next
    states, recursively, the largest shares first. Give --policy or --match as for bisimetric metric, or --metric for a
    file that it wrote. With --classes a formula is given that holds in one of the states and not in the other, where
    they are not bisimilar.

    Args:
        output: write the explanation to this file (.html, .json or .txt).
    """
    settings: MetricSettings = settings_from(MetricSettings, what)
    if how.policy is not None and settings.match is not None:
        raise BadInputError("give --policy (metric of a policy) or --match (metric of the MDP), not both.")
    if output is not None:
        check_output(output, model, how.metric)
        if output.suffix not in (".html", ".json", ".txt"):
            raise BadInputError(f"{output}: write to a file that ends in .html, .json or .txt.")
    loaded = load(model, options, discount=not how.classes)
    if how.classes:
        match: Literal["labels", "hausdorff"] = settings.match or "labels"
        from ..lumping import lump

        found = lump(loaded.mdp, match, respect=settings.respect).explain(s, t)
        return _give(found.text(), found.to_dict(), found.html(), output, json)
    solution = None if how.metric is None else _loaded(how.metric)
    match_of = settings.match if solution is None else None if solution.question.match == "chain" else "some"
    subject: MDP | Chain = loaded.mdp
    if match_of is None:
        subject = loaded.mdp.under(load_policy(how.policy or "uniform", loaded.mdp))
    if solution is None:
        solution = _solved(subject, settings, json)
    explanation = solution.explain(s, t, depth=how.depth, remainder=how.remainder, width=how.width, model=subject)
    _give(explanation.text(), explanation.to_dict(), explanation.html(), output, json)
    if solution.status.name == "INTERRUPTED":
        say("bisimetric: interrupted; the distances so far are within the error above")
        return 130
    return 0 if solution.converged else 1


def _loaded(path: Path) -> MetricSolution:
    from ..metric.solution import MetricSolution

    return MetricSolution.load(path)


def _solved(subject: MDP | Chain, settings: MetricSettings, json: bool) -> MetricSolution:
    from ..metric.plan import check_fits
    from ..metric.solve import solve_metric

    check_fits(subject, settings)
    with SweepBar(json) as bar:
        return solve_metric(subject, settings=settings, on_progress=bar)


def _give(text: str, facts: dict[str, object], html: str, output: Path | None, json: bool) -> int:
    """Print the explanation, and write it where that is wanted."""
    from .. import atomic

    if output is not None:
        if output.suffix == ".json":
            atomic.save_json(output, facts)
        else:
            atomic.write_text(output, _page(html) if output.suffix == ".html" else text + "\n")
    if json:
        print_json(facts)
    else:
        print(text)
    return 0


def _page(html: str) -> str:
    """A piece of HTML as a page of its own."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'><title>bisimetric explain</title>"
        "<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:1rem auto;"
        "padding:0 1rem;overflow-wrap:anywhere}summary{cursor:pointer}</style>"
        f"</head><body>{html}</body></html>\n"
    )
