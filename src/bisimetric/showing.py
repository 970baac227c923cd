"""Names and numbers as people read them: short names, states by name or number, small tables in HTML.

Whatever a name holds, it is text: in HTML it is escaped and kept from turning its neighbours around (`<bdi>`), in plain
text control characters are written out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LONGEST = 60  # characters of a name that are shown


def short(name: str, most: int = LONGEST) -> str:
    """A name in one line of at most so many characters."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"


def escaped(text: str) -> str:
    """Text as HTML."""
    from html import escape

    return escape(text)


def name_html(name: str, most: int = LONGEST) -> str:
    """A name as HTML: escaped, shortened, and of its own direction."""
    return f"<bdi>{escaped(short(name, most))}</bdi>"


def number(x: float) -> str:
    """Four digits."""
    return f"{x:.4g}"


def percent(share: float) -> str:
    return f"{100.0 * share:.3g} %" if 0.0 < share < 0.1 else f"{100.0 * share:.0f} %"


def state_number(given: int | str, n_states: int, names: Sequence[str] | None, what: str = "") -> int:
    """The state that somebody means: a number, a name, or "#12" for the number 12 where names are numbers too.

    Errors begin with `what`, the argument that it was given as.
    """
    try:
        return _state_number(given, n_states, names)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}" if what else str(error)) from None


def _state_number(given: int | str, n_states: int, names: Sequence[str] | None) -> int:
    if isinstance(given, str):
        if names is not None:
            found = [s for s, name in enumerate(names) if name == given]
            if len(found) > 1:
                listed = ", ".join(f"#{s}" for s in found[:8])
                raise ValueError(f"{len(found)} states are called {short(given)!r}; say which by number: {listed}.")
            if found:
                return found[0]
        digits = given.removeprefix("#")
        if not (digits.isascii() and digits.isdigit()):
            known = "it has no names; give a number" if names is None else f"such as {short(names[0])!r}"
            raise ValueError(f"there is no state {short(given)!r} ({known}).")
        given = int(digits)
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"a state is a number or a name; got {type(given).__name__}.")
    state = int(given)
    if not 0 <= state < n_states:
        raise ValueError(f"there is no state {state}; states are numbered 0 to {n_states - 1}.")
    return state


def table_html(title: str, rows: Mapping[str, object]) -> str:
    """A small table for notebooks: names and values, in the notebook's own colours."""
    body = "".join(
        f"<tr><th style='text-align:left'>{escaped(name)}</th>"
        f"<td style='text-align:left'>{escaped(short(str(value), 400))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption style='text-align:left'><b>{escaped(title)}</b></caption><tbody>{body}</tbody></table>"
