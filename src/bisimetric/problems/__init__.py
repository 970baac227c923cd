"""Generators of MDPs: the paper's three families, Garnet MDPs, gridworlds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from urllib.parse import parse_qsl

from ..model import MDP
from .families import chain, detours, staircase
from .random import garnet, gridworld

_GENERATORS: dict[str, Callable[..., MDP]] = {
    "chain": chain,
    "staircase": staircase,
    "detours": detours,
    "garnet": garnet,
    "gridworld": gridworld,
}
NAMES = tuple(_GENERATORS)


def _hint(word: str, known: list[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}."


def from_spec(spec: str) -> MDP:
    """A problem from text such as "chain?n_states=100&seed=1".

    Raises ValueError for an unknown name or argument, with the nearest known one.
    """
    name, _, query = spec.partition("?")
    if name not in NAMES:
        raise ValueError(f"unknown problem {name!r}.{_hint(name, list(NAMES))}")
    generator = _GENERATORS[name]
    defaults = {key: p.default for key, p in inspect.signature(generator).parameters.items()}
    arguments: dict[str, float | str] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in defaults:
            raise ValueError(f"problem {name!r} has no argument {key!r}.{_hint(key, list(defaults))}")
        kind = type(defaults[key])
        try:
            arguments[key] = kind(text)
        except ValueError:
            raise ValueError(f"problem {name!r}: {key} must be {kind.__name__}; got {text!r}.") from None
    if query and not arguments:
        raise ValueError(f"problem {name!r}: cannot read {query!r}; write arguments as name=value&name=value.")
    try:
        return generator(**arguments)
    except ValueError as error:
        raise ValueError(f"problem {name!r}: {error}") from None


__all__ = ["NAMES", "chain", "detours", "from_spec", "garnet", "gridworld", "staircase"]
