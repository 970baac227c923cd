"""What F compares: rows, which of them with which, and how their distances are combined; and how this is cut up.

Engines do the work in units, each of which needs no other once the ground distances are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..kinds import Floats, Ints
from ..model import Distributions


@dataclass(frozen=True, eq=False)
class Comparison:
    """What F compares, and how: everything but the transport.

        F(d)(s, t) = combination over pairs (a, b) of rows of s and t of  c_R |r_a − r_b| + c_T W(d)(P_a, P_b)

    Rows are the choices of the states (a chain has one each). Only rows of one group are compared. Where s and t are
    states of two models, rows are those of the first and then those of the second (`Distributions.beside`), and d is a
    rectangle; else t's side is that of s.

    combine="chain" has one pair of rows for each pair of states; "labels" takes the maximum over the groups, one for
    each label; "hausdorff" the Hausdorff distance of the two sets of rows. States with different numbers in `apart` are
    at the largest distance, whatever their rows.
    """

    rows: Distributions  # [N]
    groups: tuple[Ints, ...]  # increasing numbers of rows; all pairs inside a group are compared
    state_of_row: Ints  # [N], in its own model
    row_pointers: Ints  # [S+1]: rows of each state s
    column_pointers: Ints  # [T+1]: rows of each state t
    rewards: Floats  # [N]
    apart: Ints  # [S]
    columns_apart: Ints  # [T]
    combine: Literal["chain", "labels", "hausdorff"]
    c_R: float
    c_T: float
    largest: float  # possible distance

    @property
    def shape(self) -> tuple[int, int]:
        """Of d."""
        return len(self.apart), len(self.columns_apart)

    @property
    def square(self) -> bool:
        """Whether both sides are one model, so that d is symmetric and half of it is computed."""
        return self.rows.split == 0

    @property
    def plain(self) -> bool:
        """Whether F is one transport a pair of states, and nothing else has to be looked at."""
        return self.combine == "chain" and not self.apart.any() and not self.columns_apart.any()


class Unit(NamedTuple):
    """A unit of work: rows s0 … s1−1 of F(d), and the blocks of rows that they need, (group, a0, a1) each."""

    s0: int
    s1: int
    blocks: tuple[tuple[int, int, int], ...]


def corner_of(rows: Distributions, members: Ints) -> int:
    """How many members of a group come from the first of two models; 0 where there is one model."""
    return int(np.searchsorted(members, rows.split))


def groups_of_rows(comparison: Comparison) -> Ints:
    """The number of each row's group; −1 for rows that are compared with none [N]."""
    found = np.full(len(comparison.rows), -1, np.int64)
    for number, members in enumerate(comparison.groups):
        found[members] = number
    return found


def unit_of_work(comparison: Comparison, s0: int, s1: int) -> Unit:
    """The unit of states s0 … s1−1."""
    if comparison.combine == "hausdorff":
        pointers = comparison.row_pointers
        return Unit(s0, s1, ((0, int(pointers[s0]), int(pointers[s1])),))
    return Unit(s0, s1, tuple(_label_blocks(comparison, s0, s1)))


def _label_blocks(comparison: Comparison, s0: int, s1: int) -> list[tuple[int, int, int]]:
    """(group, its first and last row + 1) of the rows of states s0 … s1−1, label by label."""
    found = []
    for group, members in enumerate(comparison.groups):
        own = members if comparison.square else members[: corner_of(comparison.rows, members)]
        a0, a1 = (int(k) for k in np.searchsorted(comparison.state_of_row[own], (s0, s1)))
        if a0 < a1:
            found.append((group, a0, a1))
    return found


def matrix_like(rows: Distributions) -> bool:
    """Whether matrix products over all states beat gathered supports."""
    return rows.split == 0 and rows.n_states >= 32 and rows.probs.size >= 0.5 * len(rows) * rows.n_states
