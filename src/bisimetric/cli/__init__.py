"""The command line: parse, call, print.

Exit status: 0 where the answer meets its tolerance, 1 where it does not, 2 for bad input, 130 after Ctrl-C.
"""

from __future__ import annotations

import ast
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import InspectLoader
from importlib.util import find_spec
from typing import cast

from cyclopts import App, CycloptsError

from .. import __version__
from ..backends.errors import DeviceError
from .examples import epilogue
from .interrupts import watched
from .words import BadInputError, complain, say

# The module and the function of each command, which are loaded when it is used, and commands that have commands.
COMMANDS = {
    "solve": "solve:solve",
    "estimate": "data:estimate",
    "metric": "metric:metric",
    "query": "query:query",
    "compare": "compare:compare",
    "abstract": "abstract:abstract",
    "explain": "explain:explain",
    "view": "view:view",
    "lump": "lump:lump",
    "aggregate": "aggregate:aggregate",
    "convert": "lump:convert",
    "info": "info:info",
    "cluster-plan": "cluster_plan:cluster_plan",
    "bench": "info:bench",
}
_LISTING = {(), ("--help",), ("-h",)}
STUDIES = {"paper": "paper:paper", "truth": "truth:truth"}


def _app(*, listing: bool = False) -> App:
    """The command line. For a mere list of commands, none of them is loaded."""
    app = App(
        name="bisimetric",
        help="Bisimulation metrics of finite MDPs, with their errors, and policies from them.",
        help_epilogue=epilogue("solve") + "\nMore examples: bisimetric COMMAND --help\n",
        version=__version__,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
    )
    for name, place in (COMMANDS | STUDIES).items():
        own = {"help_epilogue": epilogue(name)} if name in COMMANDS else {}
        if listing and (line := first_line(place)) is not None:
            app.command(lambda: None, name=name, help=line)
        else:
            app.command(f"{__package__}.{place}", name=name, **own)
    return app


def first_line(place: str) -> str | None:
    """What a command does, in a line: from the source of its function or, of a study, of its module."""
    module, function = place.split(":")
    spec = find_spec(f"{__package__}.{module}")
    source = spec and spec.loader and cast(InspectLoader, spec.loader).get_source(spec.name)
    if not source:
        return None
    tree = ast.parse(source)
    found = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    return (ast.get_docstring(next(found, tree)) or "").partition("\n")[0]


app = _app()


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    try:
        with warnings.catch_warnings(), watched():
            warnings.showwarning = _say_warning  # type: ignore[assignment]
            asked = _app(listing=True) if tuple(arguments) in _LISTING else app
            result = asked(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
            if sys.stdout is not None:
                sys.stdout.flush()
        return int(result or 0)
    except BrokenPipeError:  # whoever read the results has seen enough
        _no_more_output()
        return 141
    except (CycloptsError, BadInputError, ValueError, TypeError, OSError, DeviceError) as error:
        complain(error)
    except KeyboardInterrupt:
        say("bisimetric: interrupted")
        return 130
    except MemoryError:
        say(
            "bisimetric: out of memory; see bisimetric info MODEL, and try --low-memory, --no-remember or "
            "--dtype float32"
        )
    return 2


def _say_warning(message: Warning | str, *_: object) -> None:
    """Warnings are lines for people."""
    say(f"bisimetric: {message}")


def _no_more_output() -> None:
    """Nothing may be flushed into a closed pipe when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main() -> None:
    """Entry point."""
    sys.exit(run(sys.argv[1:]))
