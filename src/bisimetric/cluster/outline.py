"""What is known here of a model that workers read in parts.

States are of one *kind* where they have the same labels and, if choices are matched by their actions, the same actions:
all that F asks of a state beside its rows and rewards. So a small stand-in, with a state for each kind that stays where
it is, answers every question about the model that is not about its rows: which states are apart, which rows are
compared with which of another model, how large distances may be. `scanning` has how workers find the kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..backends.comparison import Comparison, groups_of_rows
from ..kinds import Array, Ints
from ..model import MDP, Chain
from ..model.parts import ModelParts

Kind = tuple[tuple[int, ...], tuple[bool, ...]]  # (actions, which labels hold)


class Numbering(NamedTuple):
    """How rows are numbered for a comparison with another model.

    Attributes: kinds; apart (a number for each kind); groups (of rows, by kind and action; one column where actions do
    not matter); by_actions (whether they do).
    """

    kinds: tuple[Kind, ...]
    apart: Ints
    groups: Ints
    by_actions: bool


@dataclass(frozen=True, eq=False)
class Outline:
    """A model that is read in parts, as far as it is known here.

    Attributes: parts; by_actions (whether choices are matched by their actions); stand_in (a state for each kind);
    kinds, counts (how many states are of each kind), of_state (the kind of each state; None where there is one), widest
    (most successors of a row).
    """

    parts: ModelParts
    by_actions: bool
    stand_in: Chain | MDP
    kinds: tuple[Kind, ...]
    counts: Ints
    of_state: Array | None
    widest: int

    def numbering(self, square: Comparison) -> Numbering:
        """The numbers that states and rows of each kind have in a comparison of the stand-in with another model."""
        groups, pointers = groups_of_rows(square), square.row_pointers
        if not self.by_actions:
            table = groups[pointers[: len(self.kinds)]][:, None]
        else:
            table = np.full((len(self.kinds), len(self.parts.action_labels)), -1, np.int64)
            for kind, (actions, _) in enumerate(self.kinds):
                table[kind, list(actions)] = groups[pointers[kind] : pointers[kind] + len(actions)]
        return Numbering(self.kinds, square.apart[: len(self.kinds)], table, self.by_actions)

    def comparison(self, square: Comparison) -> Comparison:
        """The comparison with another model, from that of the stand-in: of its rows, only their sizes are true."""
        apart = np.broadcast_to(square.apart[0], self.parts.n_states)
        if self.of_state is not None:
            apart = square.apart[: len(self.kinds)][self.of_state]
        rows = square.rows
        sizes = rows.sizes.copy()
        sizes[0] = self.widest
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        probs = np.repeat(1.0 / sizes, sizes)
        like = replace(rows, indptr=indptr, indices=np.zeros(len(probs), np.int32), probs=probs)
        return replace(square, rows=like, apart=apart)
