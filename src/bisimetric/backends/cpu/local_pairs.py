"""A table of pairs of states with bounds on their distances, which grows where a question needs it.

See `kernels/local_pairs.py` for what a pair is and why its bounds are true.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np

from ...kinds import Array, Floats, Ints
from ..comparison import Comparison
from .kernels import local_pairs as kernels
from .kernels.local_pairs import KIDS, MOVED, OPENED, PAIRS, UPDATES

_MOST_PAIRS = (1 << 31) - 2
_COMBINE = {"chain": kernels.CHAIN, "labels": kernels.LABELS, "hausdorff": kernels.HAUSDORFF}


class LocalModel(NamedTuple):
    """What kernels know of the model. The choices of state s are rows order[pointers[s]:pointers[s + 1]]."""

    indptr: Array
    indices: Array
    probs: Array
    rewards: Array  # [N]
    pointers: Array  # [S + 1]
    order: Array  # [N], in the same order of labels in all states
    apart: Array  # [S]
    combine: int
    c_R: float
    c_T: float
    largest: float
    landmarks: Array  # distances from fictitious states [S, L]
    errors: Array  # of them [L]
    ties: float  # share of the gaps in the costs of plans


class LocalTable(NamedTuple):
    """Pairs by number, where they are by their hash, and what is kept of those that are opened."""

    keys: Array  # [H]; −1: free
    ids: Array  # [H]
    left: Array  # [C]
    right: Array  # [C]
    lower: Array  # [C]
    upper: Array  # [C]
    weight: Array  # [C]; 0 between questions
    listed: Array  # [C]; 0 between questions
    margin: Array  # [C]; 0 between questions
    kids_at: Array  # [C]; −1: not opened
    kids_size: Array  # [C]
    trees_at: Array  # [C]
    plan_at: Array  # [C]
    plan_size: Array  # [C]
    plan_base: Array  # difference of the rewards of the rows that decide [C]
    kids: Array  # numbers of the pairs of successors
    trees: Array  # optimal trees of pairs of rows
    plan_kids: Array  # plans of the rows that decide
    plan_flows: Array
    counts: Array  # pairs, entries of kids, trees and plans, opened pairs, updates, updates that moved bounds


class LocalLists(NamedTuple):
    """Lists of pairs, and room for their bounds."""

    found: Array  # [3, C]: opened pairs that have weight, others that have, a queue
    saved: Array  # [4, C]


class LocalWork(NamedTuple):
    """Room for one transport."""

    part: Array
    real: Array
    link: Array
    low: Array
    high: Array


class PairTable:
    """Bounds on distances of pairs, and what it takes to bring them closer together.

    Memory: about 100 bytes for a pair, and for one that is opened 4 bytes for each pair of successors, 2 (4 where
    supports exceed 128 states) for each node of its trees, and 12 for each arc of a plan.
    """

    def __init__(self, comparison: Comparison, order: Ints) -> None:
        rows, c = comparison.rows, comparison
        self.model = LocalModel(
            rows.indptr,
            rows.indices,
            rows.probs,
            c.rewards,
            c.row_pointers,
            order,
            c.apart,
            _COMBINE[c.combine],
            c.c_R,
            c.c_T,
            c.largest,
            np.empty((len(c.apart), 0)),
            np.empty(0),
            0.0,
        )
        widest = int(rows.sizes.max())
        self.work = LocalWork(*kernels.work_space(widest, int(np.diff(c.row_pointers).max())))
        tree = np.uint8 if 2 * widest <= 256 else np.uint16 if 2 * widest <= 65536 else np.uint32
        self.table = _empty_table(1 << 12, tree)
        self._reserve_fixed()

    def emptied(self) -> PairTable:
        """A table of the same model, with the same landmarks, in which there are no pairs yet."""
        other = copy(self)
        other.model = self.model._replace(ties=0.0)
        other.work = LocalWork(*(np.empty_like(room) for room in self.work))
        other.table = _empty_table(1 << 12, self.table.trees.dtype.type)
        other._reserve_fixed()
        return other

    def _reserve_fixed(self) -> None:
        """Enter the two pairs that stand for many: a state with itself, and states that are apart."""
        self.table.lower[:2] = self.table.upper[:2] = 0.0, self.model.largest
        self.table.kids_at[:2], self.table.weight[:2], self.table.listed[:2] = -1, 0.0, 0
        self.table.counts[PAIRS] = 2

    def add_landmark(self, values: Floats, error: float) -> None:
        """Use distances [S] from a state, known up to an error; before any pair is entered."""
        landmarks = np.ascontiguousarray(np.column_stack([self.model.landmarks, values]))
        self.model = self.model._replace(landmarks=landmarks, errors=np.append(self.model.errors, error))

    def enter(self, s: int, t: int) -> int:
        """The number of a pair."""
        if int(self.table.counts[PAIRS]) >= min(len(self.table.left), len(self.table.keys) // 2):
            self.make_room()
        return int(kernels.enter(s, t, self.model, self.table))

    def bounds(self, pair: int) -> tuple[float, float]:
        return float(self.table.lower[pair]), float(self.table.upper[pair])

    def first_bounds(self, s: int, t: Ints) -> tuple[Floats, Floats]:
        """Bounds on the distances of s to some states from the landmarks alone; the table is not asked."""
        lower, upper = np.zeros(len(t)), np.full(len(t), self.model.largest)
        eps = float(np.finfo(np.float64).eps)
        for k, error in enumerate(self.model.errors):
            column = self.model.landmarks[:, k]
            slack = 2.0 * float(error) + 4.0 * eps * self.model.largest
            np.maximum(lower, np.abs(column[t] - column[s]) - slack, out=lower)
            np.minimum(upper, column[t] + column[s] + slack, out=upper)
        there = self.model.apart[t] == self.model.apart[s]
        lower[~there] = upper[~there] = self.model.largest
        lower[t == s] = upper[t == s] = 0.0
        return lower, upper

    def push(self, root: int, least: float, found: Array) -> tuple[int, int]:
        patience = 64 * (int(self.table.counts[OPENED]) + 64)
        inside, outside = kernels.push_weights(root, least, self.model, self.table, found, patience)
        return int(inside), int(outside)

    def seen(self, outside: int, found: Array) -> Floats:
        """Weight times gap of the pairs found[1, :outside], which are not opened: what the root sees of them."""
        pairs, table = found[1, :outside], self.table
        return np.asarray(table.weight[pairs] * (table.upper[pairs] - table.lower[pairs]))

    def break_ties(self, share: float) -> None:
        """Let upper bounds decide between plans that are alike for lower bounds, by this share of the gaps."""
        self.model = self.model._replace(ties=share)

    def choose(self, outside: int, least: float, found: Array) -> int:
        return int(kernels.choose(outside, least, self.table, found))

    def clear(self, inside: int, found: Array) -> None:
        kernels.clear(inside, self.table, found)

    def open(self, start: int, count: int, found: Array) -> int:
        """Open the pairs found[1, start:count]; returns how far it came before the table was full."""
        return self._advance(kernels.OPEN, start, count, 0.0, found)

    def sweep(self, first: int, last: int, found: Array) -> None:
        """Update found[0, first:last], the last one first."""
        self._advance(kernels.SWEEP, first, last, 0.0, found)

    def leap(self, inside: int, least: float, found: Array) -> None:
        """Policy iteration on the opened pairs found[0, :inside], to about `least`."""
        self._advance(kernels.LEAP, 0, inside, least, found)

    def _advance(self, task: int, first: int, last: int, least: float, found: Array) -> int:
        lists = LocalLists(found, np.empty((4, last if task == kernels.LEAP else 0)))
        return int(kernels.advance(task, first, last, least, self.model, self.table, self.work, lists))

    @property
    def pairs(self) -> int:
        """Pairs that were entered."""
        return int(self.table.counts[PAIRS]) - 2

    @property
    def opened(self) -> int:
        return int(self.table.counts[OPENED])

    @property
    def successors(self) -> int:
        """Pairs of successors of an opened pair, on average."""
        return int(self.table.counts[KIDS]) // max(self.opened, 1)

    @property
    def updates(self) -> int:
        return int(self.table.counts[UPDATES])

    @property
    def moved(self) -> int:
        """Updates that brought bounds closer together."""
        return int(self.table.counts[MOVED])

    @property
    def room(self) -> int:
        """Pairs that can be entered before the table grows."""
        return len(self.table.left)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.table)

    def make_room(self, pair: int | None = None, most: int | None = None) -> bool:
        """Double what is nearly full, and make room to open a pair; False where that takes more than `most` bytes.

        All is replaced at once, so that Ctrl-C finds a whole table.
        """
        sizes = self._sizes(kernels.needs(pair, self.model, self.table) if pair is not None else (1, 0, 0, 0))
        table = self.table._asdict()
        if most is not None and sum(sizes.get(name, len(x)) * x.itemsize for name, x in table.items()) > most:
            return False
        grown = {
            name: np.concatenate([table[name], np.zeros(size - len(table[name]), table[name].dtype)])
            for name, size in sizes.items()
            if name not in _HASHES
        }
        if "keys" in sizes:
            keys, ids = np.full(sizes["keys"], -1, np.int64), np.zeros(sizes["ids"], np.int32)
            kernels.rehash(self.table.keys, self.table.ids, keys, ids)
            grown["keys"], grown["ids"] = keys, ids
        self.table = self.table._replace(**grown)
        return True

    def _sizes(self, wanted: tuple[int, int, int, int]) -> dict[str, int]:
        """New sizes of the arrays that are half full, or have no room for so many more entries of each kind."""
        used = dict(zip(_KINDS, map(int, self.table.counts[: len(_KINDS)]), strict=True))
        more, sizes = dict(zip(_KINDS, map(int, wanted), strict=True)), {}
        if max(used["pairs"] + more["pairs"], more["kids"]) > _MOST_PAIRS:
            raise MemoryError("a table of pairs holds at most 2^31 of them.")
        for name, array in self.table._asdict().items():
            kind, size = _KIND.get(name, "pairs"), len(array)
            if name == "counts":
                continue
            share = 2 if name in _HASHES else 1  # hashes find a place soon where half of all are free
            if 2 * share * used[kind] >= size:
                size *= 2
            while share * (used[kind] + more[kind]) > size:
                size *= 2
            if size > len(array):
                sizes[name] = size
        return sizes

    def landmark_start(self, home: int) -> Floats:
        """Where value iteration for the distances from a landmark begins [S]."""
        return np.where(self.model.apart == home, 0.0, self.model.largest)

    def landmark_sweep(self, r: float, home: int, values: Floats, backward: bool) -> float:
        """One sweep of the distances of all states from one that is never left and has reward r; the largest change."""
        return float(kernels.landmark_sweep(self.model, r, home, values, backward))

    def landmark_error(self, r: float, home: int, values: Floats) -> float:
        """A bound on the error of such distances: their residual ρ in a contraction, ρ/(1 − c_T), with its rounding."""
        model = self.model
        residual = float(kernels.landmark_residual(model, r, home, values))
        rounding = (2 * int(np.diff(model.indptr).max()) + 8) * float(np.finfo(np.float64).eps) * model.largest
        return (residual + rounding) / (1.0 - model.c_T)


_HASHES = ("keys", "ids")
_KINDS = ("pairs", "kids", "trees", "plans")
_KIND = {"kids": "kids", "trees": "trees", "plan_kids": "plans", "plan_flows": "plans"}


def _empty_table(size: int, tree: type[np.unsignedinteger]) -> LocalTable:
    return LocalTable(
        np.full(4 * size, -1, np.int64),
        np.zeros(4 * size, np.int32),
        np.zeros(size, np.int32),
        np.zeros(size, np.int32),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size, np.uint8),
        np.zeros(size),
        np.full(size, -1, np.int64),
        np.zeros(size, np.int32),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int32),
        np.zeros(size),
        np.zeros(4 * size, np.int32),
        np.zeros(4 * size, tree),
        np.zeros(4 * size, np.int32),
        np.zeros(4 * size),
        np.zeros(8, np.int64),
    )
