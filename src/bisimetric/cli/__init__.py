"""The command line: parse, call, print.

Exit status: 0 where the answer meets its tolerance, 1 where it does not, 2 for bad input, 130 after Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from .. import __version__
from ..kernels.select import DeviceError
from .inputs import BadInputError, say
from .interrupts import watched
from .lump import convert, lump
from .metric import bench, info, metric
from .paper import paper
from .solve import aggregate, solve

_EPILOGUE = """
Examples:

  bisimetric solve
  bisimetric solve problem:staircase --eps 0.04 --alpha decay:0.8,0.01 --out run
  bisimetric metric problem:chain --policy uniform -o d.npz
  bisimetric solve gym:Taxi-v3 --gamma 0.99 --out taxi
  bisimetric metric problem:gridworld?copies=3 --match labels
  bisimetric lump model.drn --match hausdorff -o quotient.drn --map classes.csv
  bisimetric aggregate d.npz --eps 0.1
  bisimetric paper run all --profile quick
"""

app = App(
    name="bisimetric",
    help="Bisimulation metrics of finite MDPs, with their errors, and policies from them.",
    help_epilogue=_EPILOGUE,
    version=__version__,
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
)
for command in (solve, metric, lump, aggregate, convert, info, bench, paper):
    app.command(command)


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    try:
        with watched():
            result = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
        return int(result or 0)
    except CycloptsError as error:
        say("bisimetric: " + " ".join(str(error).split()))
    except (BadInputError, ValueError, OSError, DeviceError) as error:
        say("bisimetric: " + " ".join(str(error).split()))
    except KeyboardInterrupt:
        say("bisimetric: interrupted")
        return 130
    except MemoryError:
        say("bisimetric: out of memory; see bisimetric info MODEL, and try --no-keep or --dtype float32")
    return 2


def main() -> None:
    """Entry point."""
    sys.exit(run(sys.argv[1:]))
