"""Places of states on a board, from their names: "row 1 column 2", "row=1 & column=2", "x=3 & y=1", "(1, 2)"."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..kinds import Ints

_FORMS = (
    re.compile(r"\brow\s*=?\s*(\d+)\b.*?\bcol(?:umn)?\s*=?\s*(\d+)\b", re.IGNORECASE),
    re.compile(r"\by\s*=\s*(\d+)\b.*?\bx\s*=\s*(\d+)\b", re.IGNORECASE),
    re.compile(r"^\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)\s*$"),
)
_ACROSS_FIRST = re.compile(r"\bx\s*=\s*(\d+)\b.*?\by\s*=\s*(\d+)\b", re.IGNORECASE)
_ENOUGH, _LARGEST = 0.8, 400  # part of the states that must have a place; rows or columns at most


def board_of(names: Sequence[str] | None, given: ArrayLike | tuple[int, int] | None, n_states: int) -> Ints | None:
    """(row, column) of each state [S, 2], −1 where it has none; None where there is no board.

    Args:
        names: of the states. given: (rows, columns), for states that are numbered row by row; or a place for each state
            [S, 2], −1 for none.
    """
    if given is not None:
        return _given(given, n_states)
    if names is None:
        return None
    places = np.full((n_states, 2), -1, np.int64)
    for s, name in enumerate(names):
        found = _place(name[:400])
        if found is not None:
            places[s] = found
    has = places[:, 0] >= 0
    fits = has.mean() >= _ENOUGH and places.max() < _LARGEST and len(np.unique(places[has], axis=0)) > 1
    return places if fits else None


def _place(name: str) -> tuple[int, int] | None:
    for form in _FORMS:
        match = form.search(name)
        if match:
            return _small(match[1], match[2])
    match = _ACROSS_FIRST.search(name)
    return _small(match[2], match[1]) if match else None


def _small(row: str, column: str) -> tuple[int, int] | None:
    return (int(row), int(column)) if max(len(row), len(column)) <= 6 else None


def _given(given: ArrayLike | tuple[int, int], n_states: int) -> Ints:
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise ValueError("board: give (rows, columns), or whole numbers [S, 2].")
    if array.shape == (2,) and n_states != 1:
        rows, columns = (int(x) for x in array)
        if not (0 < rows <= _LARGEST and 0 < columns <= _LARGEST):
            raise ValueError(f"board: rows and columns must be 1 to {_LARGEST}; got {rows} and {columns}.")
        numbers = np.arange(n_states)
        places = np.stack([numbers // columns, numbers % columns], axis=1)
        places[numbers >= rows * columns] = -1
        return places
    if array.shape != (n_states, 2) or array.max() >= _LARGEST:
        raise ValueError(f"board: needs [S, 2] = [{n_states}, 2] places below {_LARGEST}; got {array.shape}.")
    return array.astype(np.int64)
