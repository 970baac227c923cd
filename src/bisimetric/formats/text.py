"""What text formats share: reading lines with their numbers, and errors that name them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..damage import Budget
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
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of each line, one at a time."""
    for number_of_line, line in enumerate(io.StringIO(text, newline="\n"), 1):
        yield number_of_line, line.rstrip("\n")


def shown(text: str, most: int = 40) -> str:
    """A piece of a file for a message."""
    return repr(text if len(text) <= most else text[:most] + "…")


def check_names(names: Iterable[str], forbidden: str, what: str, path: Path) -> None:
    """Refuse to write names that are empty or hold what the format has no way to write."""
    for name in names:
        if not name or any(c in forbidden or c in "\r\n" or (c.isspace() and " " in forbidden) for c in name):
            raise ModelError(f"{path}: {what} {shown(name)} cannot be written in this format; rename it, or use .npz.")


def rewards_to_write(mdp: MDP) -> dict[str, Floats]:
    """The reward models, that in use first: under its own name, or as "reward" where it is none of them."""
    models = dict(mdp.reward_models)
    used = mdp.reward_name if mdp.reward_name in models else None
    if used is None or not np.array_equal(models[used], mdp.rewards):
        used = next((name for name, values in models.items() if np.array_equal(values, mdp.rewards)), None)
    if used is None and len(models) > 1 and not mdp.rewards.any():
        return models  # none of them is in use, and whoever reads them must choose
    if used is None:
        used = mdp.reward_name or "reward"
        while used in models:
            used += "_"
    return {used: mdp.rewards, **models}


def number(text: str, path: Path, line: int, what: str) -> float:
    """A finite number, also written as a fraction."""
    try:
        if "_" in text or len(text) > 1000:
            raise ValueError
        top, slash, bottom = text.partition("/")
        value = float(top) / float(bottom) if slash else float(text)
    except (ValueError, ZeroDivisionError):
        raise ParseError(path, line, f"{what} must be a number; got {shown(text)}.") from None
    if not math.isfinite(value):
        raise ParseError(path, line, f"{what} must be finite; got {shown(text)}.")
    return value


def index(text: str, path: Path, line: int, what: str) -> int:
    """A number of a state or choice, from 0."""
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise ParseError(path, line, f"{what} must be a number from 0; got {shown(text)}.")
    return int(text)


def dense_labels(members: dict[str, Iterable[int]], n_states: int, budget: Budget) -> dict[str, np.ndarray]:
    """One boolean per state for each label, from the states that have it."""
    budget.take(len(members) * n_states, f"{len(members)} labels of {n_states} states")
    labels = {}
    for name, states in members.items():
        labels[name] = np.zeros(n_states, np.bool_)
        labels[name][np.asarray(states, np.int64)] = True
    return labels
