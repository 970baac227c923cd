"""The command line: parse, call, print.

Exit status: 0 where the answer meets its tolerance, 1 where it does not, 2 for bad input, 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from .. import __version__
from ..backends.errors import DeviceError
from .abstract import abstract
from .aggregate import aggregate
from .cluster_plan import cluster_plan
from .compare import compare
from .data import estimate
from .examples import epilogue
from .explain import explain
from .info import bench, info
from .interrupts import watched
from .lump import convert, lump
from .metric import metric
from .paper import paper
from .query import query
from .solve import solve
from .truth import truth
from .view import view
from .words import BadInputError, complain, say

app = App(
    name="bisimetric",
    help="Bisimulation metrics of finite MDPs, with their errors, and policies from them.",
    help_epilogue=epilogue("solve") + "\nMore examples: bisimetric COMMAND --help\n",
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
COMMANDS = (
    solve,
    estimate,
    metric,
    query,
    compare,
    abstract,
    explain,
    view,
    lump,
    aggregate,
    convert,
    info,
    cluster_plan,
    bench,
)
for command in COMMANDS:
    app.command(command, help_epilogue=epilogue(command.__name__.replace("_", "-")))
app.command(paper)
app.command(truth)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    try:
        with warnings.catch_warnings(), watched():
            warnings.showwarning = _say_warning  # type: ignore[assignment]
            result = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
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
