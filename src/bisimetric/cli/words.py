"""What commands say: results on standard output, everything else beside it, and nothing that can fail."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress

_LONGEST = 600


class BadInputError(Exception):
    """A mistake in what the user gave: one line, exit status 2."""


def say(text: str) -> None:
    """A line to the user beside the results; where nobody can read it, nothing is said."""
    if sys.stderr is None:
        return
    with suppress(OSError, ValueError):  # standard error may be closed
        print(text, file=sys.stderr, flush=True)


def complain(error: BaseException) -> None:
    """One line about what went wrong, in words for the command line."""
    from .options import option_names

    if os.environ.get("BISIMETRIC_TRACEBACKS"):
        traceback.print_exception(error)
    describe = getattr(error, "for_command_line", None)
    text = " ".join((describe() if describe is not None else str(error)).split())
    first, space, rest = text.partition(" ")
    text = option_names().get(first, first) + space + rest
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    say("bisimetric: " + (text if len(text) <= _LONGEST else text[:_LONGEST] + "…"))


def print_json(facts: Mapping[str, object]) -> None:
    """One machine-readable object, as the standard has it: numbers that are not finite are null."""
    print(json.dumps(_finite(facts), allow_nan=False))


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def print_table(rows: Mapping[str, object], title: str | None = None) -> None:
    """Names and values, one below the other; whatever they hold is shown as it is."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, title=title)
    for name, value in rows.items():
        table.add_row(Text(name), Text(str(value)))
    Console().print(table)


def print_rows(rows: Mapping[str, object]) -> None:
    """Names and values in plain lines."""
    width = max(len(name) for name in rows) + 1
    for name, value in rows.items():
        print(f"{name:{width}} {value}")


def readable_bytes(count: float) -> str:
    """A size in the unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def readable_seconds(seconds: float) -> str:
    """A time in the unit that fits."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"
