"""CSV tables of transitions: idstatefrom, idaction, idstateto, probability, reward."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from .. import atomic
from ..model import MDP, Distributions, ModelError
from .text import ParseError, index, number, read_text, shown

COLUMNS = ("idstatefrom", "idaction", "idstateto", "probability", "reward")


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, entries) of each row."""
    reader = csv.reader(io.StringIO(read_text(path)))
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ParseError(path, reader.line_num, f"cannot be read as CSV ({error}).") from None


def read_csv(path: Path, gamma: float) -> MDP:
    """Read a table; rewards of transitions become expected rewards of choices. Actions are the labels."""
    lines = _rows(path)
    header = [word.strip().lower() for word in next(lines)[1]]
    if sorted(header) != sorted(COLUMNS):
        raise ParseError(path, 1, f"the columns must be {','.join(COLUMNS)}; got {shown(','.join(header), 80)}.")
    places = [header.index(name) for name in COLUMNS]
    source, action, target = array("q"), array("q"), array("q")
    probs, rewards = array("d"), array("d")
    for line, row in lines:
        if not row or row[0].lstrip().startswith("#"):
            continue
        if len(row) != len(COLUMNS):
            raise ParseError(path, line, f"{len(row)} entries instead of {len(COLUMNS)}.")
        words = [row[k].strip() for k in places]
        for column, word, what in zip(
            (source, action, target), words, ("a state", "an action", "a state"), strict=False
        ):
            column.append(index(word, path, line, what))
        probs.append(number(words[3], path, line, "a probability"))
        rewards.append(number(words[4], path, line, "a reward"))
    if not source:
        raise ParseError(path, 0, "has no transitions.")
    n_states = 1 + max(max(column) for column in (source, target))
    if n_states > 2 * len(source):
        raise ParseError(path, 0, f"state {n_states - 1} is out of range for {len(source)} transitions.")
    from scipy.sparse import csr_array

    names, ids = np.unique(np.array(action), return_inverse=True)  # numbers of actions may be large
    keys, row_of = np.unique(np.array(source) * len(names) + ids.reshape(-1), return_inverse=True)
    owner, labels = keys // len(names), keys % len(names)
    choice_ptr = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n_states))]).astype(np.int64)
    p = np.array(probs)
    matrix = csr_array((p, (row_of.reshape(-1), np.array(target))), shape=(len(keys), n_states))
    expected = np.zeros(len(keys))
    np.add.at(expected, row_of.reshape(-1), p * np.array(rewards))
    return MDP(
        Distributions.from_matrix(matrix),
        np.zeros(len(keys)),
        choice_ptr,
        gamma,
        labels.astype(np.int64),
        tuple(str(name) for name in names),
        None,
        None,
        {},
        {"reward": expected},
    )


def write_csv(mdp: MDP, path: Path) -> None:
    """Write a table; actions are numbered by their labels."""
    owner, rows, numbers = mdp.state_of_choice, mdp.rows, action_numbers(mdp, path)

    def fill(stream: IO[bytes]) -> None:
        out = [",".join(COLUMNS)]
        for c in range(mdp.n_choices):
            head = f"{owner[c]},{numbers[mdp.action_of_choice[c]]}"
            for k in range(rows.indptr[c], rows.indptr[c + 1]):
                out.append(f"{head},{rows.indices[k]},{float(rows.probs[k])!r},{float(mdp.rewards[c])!r}")
        stream.write(("\n".join(out) + "\n").encode())

    atomic.write(path, fill)


def action_numbers(mdp: MDP, path: Path) -> list[int]:
    """The number of each action label in a table: the label itself where all are numbers."""
    pairs = np.unique(np.stack([mdp.state_of_choice, mdp.action_of_choice]), axis=1)
    if pairs.shape[1] < mdp.n_choices:
        raise ModelError(f"{path}: a state has two choices of one label, which a table cannot tell apart; use .npz.")
    numbers = [int(name) if name.isascii() and name.isdigit() and len(name) <= 12 else -1 for name in mdp.action_labels]
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        return list(range(len(mdp.action_labels)))
    return numbers
