"""Parquet tables of transitions, sorted by the state that they lead from: the columns of CSV tables, read in parts.

Which groups of rows hold a state follows from the statistics that Parquet files keep of each group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..kinds import Array, Ints
from ..model import MDP, ModelError
from ..model.parts import Part, checked_part
from .csv_table import COLUMNS
from .parts import FileParts, chosen_reward, stamp_of

_STATE, _ACTION, _NEXT, _PROBABILITY, _REWARD = COLUMNS
_STRETCH = 1 << 20  # transitions at a time
_ROW = 40  # bytes of a transition


def _opened(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ModelError(f"{path}: .parquet files need pyarrow; pip install 'bisimetric[data]'.") from None
    library: Any = pyarrow.parquet
    return library.ParquetFile(path)


def _column(table: Any, name: str, path: Path) -> Array:
    given = table.column(name)
    if given.null_count:
        raise ModelError(f"{path}: column {name} has empty places.")
    found: Array = given.to_numpy()
    kinds, words = ("iu", "whole numbers") if name in (_STATE, _ACTION, _NEXT) else ("iuf", "numbers")
    if found.dtype.kind not in kinds:
        raise ModelError(f"{path}: column {name} must be {words}; got {found.dtype}.")
    return found


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ParquetParts(FileParts):
    """A table of transitions; actions are the labels.

    Attributes: actions (their numbers in the table, increasing), groups (first and last state of each group of rows).
    """

    actions: Ints
    groups: Ints  # [G, 2]

    def _load(self, first: int, last: int) -> Part:
        found = self._transitions(first, last)
        source, action, target, probability, reward = found
        numbers = np.searchsorted(self.actions, action)
        keys, row = np.unique((source - first) * len(self.actions) + numbers, return_inverse=True)
        order = np.argsort(row, kind="stable")
        sizes = np.bincount(row, minlength=len(keys))
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        counts = np.bincount(keys // len(self.actions), minlength=last - first)
        expected = np.zeros(len(keys))
        if self.reward_name is not None:
            np.add.at(expected, row, probability * reward)
        return checked_part(
            first,
            self.n_states,
            (indptr, target[order], probability[order]),
            np.concatenate([[0], np.cumsum(counts)]),
            expected,
            keys % len(self.actions),
            {},
        )

    def _transitions(self, first: int, last: int) -> tuple[Array, ...]:
        """The columns of all transitions of some states."""
        wanted = np.flatnonzero((self.groups[:, 0] < last) & (self.groups[:, 1] >= first))
        parts: list[tuple[Array, ...]] = []
        with _opened(self.path) as file:
            for group in wanted:
                table = file.read_row_group(int(group), columns=list(COLUMNS))
                columns = [_column(table, name, self.path) for name in COLUMNS]
                there = (columns[0] >= first) & (columns[0] < last)
                parts.append(tuple(column[there] for column in columns))
        if not parts:
            raise ModelError(f"state {first} has no transitions; give it a self-loop if the process ends there.")
        source, action, target, probability, reward = (np.concatenate(each) for each in zip(*parts, strict=True))
        whole = [each.astype(np.int64) for each in (source, action, target)]
        return (*whole, probability.astype(np.float64), reward.astype(np.float64))


def open_parquet(path: Path, gamma: float, reward: str | None) -> ParquetParts:
    """Open a table. Cost: one pass over the columns of states and actions."""
    stamp = stamp_of(path)
    with _opened(path) as file:
        names = list(file.schema_arrow.names)
        if sorted(names) != sorted(COLUMNS):
            raise ModelError(f"{path}: the columns must be {', '.join(COLUMNS)}; got {', '.join(names)[:80]}.")
        groups, actions, states = _facts(file, path)
        nbytes = _ROW * int(file.metadata.num_rows)
    return ParquetParts(
        path=path,
        stamp=stamp,
        actions=actions,
        groups=groups,
        nbytes=nbytes,
        n_states=states,
        gamma=gamma,
        action_labels=tuple(str(number) for number in actions),
        reward_name=chosen_reward(path, ["reward"], reward),
    )


def _facts(file: Any, path: Path) -> tuple[Ints, Ints, int]:
    """(first and last state of each group of rows, the numbers of actions, how many states there are)."""
    groups, actions, largest, before = [], np.empty(0, np.int64), -1, 0
    for number in range(file.num_row_groups):
        table = file.read_row_group(number, columns=[_STATE, _ACTION, _NEXT])
        source, action, target = (_column(table, name, path) for name in (_STATE, _ACTION, _NEXT))
        if not len(source):
            continue
        if source[0] < before or not bool(np.all(source[:-1] <= source[1:])):
            raise ModelError(f"{path}: the table must be sorted by {_STATE}.")
        if min(int(source[0]), int(target.min())) < 0:
            raise ModelError(f"{path}: states must be numbers from 0 on.")
        before = int(source[-1])
        groups.append((int(source[0]), before))
        actions = np.union1d(actions, action.astype(np.int64))
        largest = max(largest, before, int(target.max()))
    if largest < 0:
        raise ModelError(f"{path}: has no transitions.")
    if before < largest:
        raise ModelError(f"{path}: state {largest} has no transitions; give it a self-loop if the process ends there.")
    return np.array(groups, np.int64).reshape(-1, 2), actions, largest + 1


def read_parquet(path: Path, gamma: float) -> MDP:
    """Read a table of transitions whole; rewards of transitions become expected rewards of choices."""
    parts = open_parquet(path, gamma, "reward")
    whole = parts.read(0, parts.n_states)
    return MDP(
        whole.rows,
        np.zeros(len(whole.rewards)),
        whole.choice_ptr,
        gamma,
        whole.actions,
        parts.action_labels,
        reward_models={"reward": whole.rewards},
    )


def write_parquet(mdp: MDP, path: Path) -> None:
    """Write a model as a table of transitions, some 10⁶ of them in a group of rows."""
    import pyarrow

    from .. import atomic
    from .csv_table import action_numbers

    numbers = action_numbers(mdp, path)
    choice = mdp.rows.row_of_entry
    columns = {
        _STATE: mdp.state_of_choice[choice],
        _ACTION: np.array(numbers)[mdp.action_of_choice[choice]],
        _NEXT: mdp.rows.indices.astype(np.int64),
        _PROBABILITY: mdp.rows.probs,
        _REWARD: mdp.rewards[choice],
    }
    library: Any = pyarrow

    def fill(stream: Any) -> None:
        import pyarrow.parquet

        tables: Any = pyarrow.parquet
        tables.write_table(library.table(columns), stream, row_group_size=_STRETCH)

    atomic.write(path, fill)
