"""One page to explore a result: a map of the states, their distances, classes, curves, and explanations.

A page is one HTML file that fetches nothing: scripts, styles and data are in it, and its content security policy allows
no others. Drawing is our own canvas code, because thousands of states have to follow a slider without delay; curves are
uPlot (MIT), a well-kept library of 50 KB that draws to a canvas too. Whatever names hold, they are shown as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from importlib.resources import files
from pathlib import Path

from .. import atomic
from ..kinds import Facts
from ..lumping import Lumping
from ..metric.solution import MetricSolution
from ..model import MDP, Chain
from ..policy.run import PolicyRun
from . import subjects
from .packing import MOST_DRAWN, packed
from .subjects import Subject

__all__ = ["MOST_DRAWN", "page_of", "view"]

_SCRIPTS = ("vendor/uPlot.iife.min.js", "data.js", "explain.js", "draw.js", "page.js")
_STYLES = ("vendor/uPlot.min.css", "page.css")


def view(
    result: MetricSolution | Lumping | PolicyRun,
    path: str | os.PathLike[str],
    *,
    model: Chain | MDP | None = None,
    title: str = "bisimetric",
    board: object = None,
) -> Path:
    """Write a page to explore a result; it opens in any browser, without a server.

    Args:
        result: a metric, a lumping, or a policy run.
        path: of the page to write (.html).
        model: the model; needed for a run, and for a metric from a file whose distances shall be explained.
        title: of the page.
        board: (rows, columns) where states are numbered row by row, or the row and column of each state [S, 2] (−1 for
            none). By default names such as "row 1 column 2" or "x=2 & y=1" say it.

    Returns:
        The path. Cost: O(S K + K³) for K landmarks (all states up to 1,200); pages are below 10 MB.
    """
    target = Path(path)
    if isinstance(result, Lumping):
        subject = subjects.of_lumping(result)
    elif isinstance(result, PolicyRun):
        if not isinstance(model, MDP):
            raise TypeError("view of a run needs model=, the MDP that was solved.")
        subject = subjects.of_run(result, model)
    elif isinstance(result, MetricSolution):
        if model is not None and model.n_states != result.n_states:
            raise ValueError(f"model: it has {model.n_states} states, the distances are of {result.n_states}.")
        subject = subjects.of_metric(result, model)
    else:
        raise TypeError(f"view shows a MetricSolution, a Lumping or a PolicyRun; got {type(result).__name__}.")
    atomic.write_text(target, page_of(subject, title, board))
    return target


def page_of(subject: Subject, title: str, board: object = None) -> str:
    """The page of a subject."""
    data = packed(subject, board)
    data["title"] = title
    return _assembled(title, data)


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", *name.split("/")).read_text(encoding="utf-8")


def _assembled(title: str, data: Facts) -> str:
    """The template with scripts, styles and data in it."""
    scripts = [_asset(name) for name in _SCRIPTS]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    # In a script element only "</" and "<!--" mean anything: without "<" data is data.
    text = json.dumps(data, allow_nan=False, ensure_ascii=True).replace("<", "\\u003c")
    parts = {
        "TITLE": html.escape(title),
        "POLICY": policy,
        "STYLES": "\n".join(_asset(name) for name in _STYLES),
        "DATA": text,
        "SCRIPTS": "".join(f"<script>{script}</script>\n" for script in scripts),
    }
    return re.sub("@(TITLE|POLICY|STYLES|DATA|SCRIPTS)@", lambda mark: parts[mark[1]], _asset("page.html"))
