"""Checks of arguments that everybody shares: wrong types are named, with the argument."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")


class InputError(ValueError):
    """Input that cannot be used. The message names the offender; what to do about it depends on where it is said.

    Attributes: message, python (the remedy for those who call functions, part of the text), command (that for the
    command line).
    """

    def __init__(self, message: str, *, python: str = "", command: str = "") -> None:
        super().__init__(f"{message} {python}" if python else message)
        self.message, self.python, self.command = message, python, command

    def for_command_line(self) -> str:
        """The text for the command line."""
        return f"{self.message} {self.command}" if self.command else self.message


def check_type(name: str, value: object, *kinds: type, words: str = "") -> None:
    """Raise a TypeError that names the argument unless the value is of one of these kinds."""
    if not isinstance(value, kinds):
        wanted = words or " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be {wanted}; got {type(value).__name__}.")


def check_number(name: str, value: object) -> float:
    """A real number as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number; got {type(value).__name__}.")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for a number; it is above 1.8e308.") from None


def check_whole(name: str, value: object) -> int:
    """A whole number as an int."""
    number = check_number(name, value)
    if not math.isfinite(number) or number != round(number):
        raise TypeError(f"{name} must be a whole number; got {value!r}.")
    return round(number)


def check_word(name: str, value: object, *words: str | None) -> None:
    """Raise a ValueError that names the argument unless the value is one of these words (or None, if it is there)."""
    if value not in words or isinstance(value, (bool, int, float)):
        known = " or ".join("None" if word is None else f'"{word}"' for word in words)
        raise ValueError(f"{name} must be {known}; got {value!r}.")


def check_engine(device: object, dtype: object) -> None:
    """Refuse devices and precisions that there are none of."""
    check_word("device", device, "cpu", "cuda")
    check_word("dtype", dtype, "float64", "float32")


def merged(kind: type[Settings], settings: Settings | None, changes: Mapping[str, object]) -> Settings:
    """Settings (a dataclass with defaults) with some of them changed; refuses names that are none."""
    base = kind() if settings is None else settings
    check_type("settings", base, kind)
    known = {field.name for field in dataclasses.fields(base)}
    for name in changes:
        if name not in known:
            raise TypeError(f"there is no setting {name!r}; there are {', '.join(sorted(known))}.")
    return dataclasses.replace(base, **changes)
