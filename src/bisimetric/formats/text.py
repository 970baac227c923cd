"""What text formats share: reading lines with their numbers, and errors that name them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..model import MDP, Floats, ModelError


class ParseError(ModelError):
    """A file that is not what its format says; the message has file and line."""

    def __init__(self, path: Path | str, line: int, text: str) -> None:
        super().__init__(f"{path}: line {line}: {text}" if line else f"{path}: {text}")


def read_text(path: Path) -> str:
    """The whole file as text; refuses binary files and empty ones. Line ends of all systems are accepted."""
    raw = path.read_bytes()
    if b"\0" in raw[:65536]:
        raise ParseError(path, 0, "is a binary file, not text.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(path, raw[: error.start].count(b"\n") + 1, "is not UTF-8 text.") from None
    if not text.strip():
        raise ParseError(path, 0, "is empty.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_names(names: Iterable[str], forbidden: str, what: str, path: Path) -> None:
    """Refuse to write names that are empty or hold what the format has no way to write."""
    for name in names:
        if not name or any(c in forbidden or c in "\r\n" or (c.isspace() and " " in forbidden) for c in name):
            raise ModelError(f"{path}: {what} {name!r} cannot be written in this format; rename it, or use .npz.")


def rewards_to_write(mdp: MDP) -> dict[str, Floats]:
    """The reward models, that in use first: under its own name, or as "reward" where it is none of them."""
    models = dict(mdp.reward_models)
    used = next((name for name, values in models.items() if np.array_equal(values, mdp.rewards)), None)
    if used is None:
        used = "reward"
        while used in models:
            used += "_"
    return {used: mdp.rewards, **models}


def number(text: str, path: Path, line: int, what: str) -> float:
    """A finite number, also written as a fraction."""
    try:
        top, slash, bottom = text.partition("/")
        value = float(top) / float(bottom) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        raise ParseError(path, line, f"{what} must be a number; got {text!r}.") from None
    if not math.isfinite(value):
        raise ParseError(path, line, f"{what} must be finite; got {text!r}.")
    return value


def index(text: str, path: Path, line: int, what: str) -> int:
    """A number of a state or choice, from 0."""
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise ParseError(path, line, f"{what} must be a number from 0; got {text!r}.")
    return int(text)
