"""What a transport is: a way to compare two next-state distributions under a ground distance.

A transport is a frozen dataclass that holds settings and states which properties it keeps. Its
`evaluator` does the work for one family of rows: all pairs of rows inside each group of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..checks import check_number
from ..kernels.select import Engine
from . import accuracy

Array = NDArray[Any]


@dataclass(frozen=True)
class Axioms:
    """Which properties a transport W(d)(μ, ν) has, for every ground distance d ≥ 0.

    zero_diagonal: the metric has d(s, s) = 0. triangle: W(d) obeys the triangle
    inequality where d does. monotone: d ≤ d' implies W(d) ≤ W(d'). nonexpansive: |W(d) − W(d')| ≤
    ‖d − d'‖∞; with c_T < 1 this gives one fixed point and an error bound. upper_bound: W_p ≤ W.
    All transports are symmetric.
    """

    zero_diagonal: bool
    triangle: bool
    monotone: bool
    nonexpansive: bool
    upper_bound: bool = True


@dataclass(frozen=True)
class Family:
    """Rows to be compared: CSR arrays with rows that sum to 1 and have no zeros, and groups.

    Every group is an increasing array of row numbers; all pairs inside a group are compared.
    """

    indptr: Array  # [N+1] int64
    indices: Array  # [nnz] uint32
    probs: Array  # [nnz] float64
    groups: tuple[Array, ...]  # int64
    n_states: int

    @property
    def sizes(self) -> Array:
        return np.diff(self.indptr)

    def dense(self) -> bool:
        """Whether matrix products over all states beat gathered supports."""
        return self.n_states >= 32 and self.probs.size >= 0.5 * (len(self.indptr) - 1) * self.n_states


class Report(NamedTuple):
    """What a block of pairs cost and how far an entry may be from the true transport."""

    iterations: int
    error: float


class Kept:
    """Per-pair state of a solver (trees, scalings), one flat array per group.

    A pair (a, b) without a closed form keeps shared·(n_a − 1) + per_pair + max(shared, 1)·n_b entries.
    """

    def __init__(self, engine: Engine, family: Family, *, first: int, per_pair: int, shared: int, cold: Any,
                 dtype: Any, keep: bool) -> None:  # fmt: skip
        self.engine, self.family = engine, family
        self.first, self.per_pair, self.shared, self.cold = first, per_pair, shared, cold
        self.arrays: list[Array] = []
        self.bases: list[Array] = []
        for members in family.groups:
            if not keep:
                self.arrays.append(np.empty(0, dtype))
                self.bases.append(np.empty(0, np.int64))
                continue
            base = np.empty(len(members) + 1, np.int64)
            engine.kernels.kept_layout(family.sizes[members], first, per_pair, shared, base)
            self.arrays.append(np.full(base[-1], cold, dtype))
            self.bases.append(base)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def follow(self, family: Family) -> None:
        """Go on with rows of the same supports."""
        self.family = family

    def state(self, prefix: str) -> dict[str, Array]:
        return {f"{prefix}{g}": array for g, array in enumerate(self.arrays)}

    def load(self, state: Mapping[str, Array], prefix: str) -> None:
        for g in range(len(self.arrays)):
            self.arrays[g][:] = state[f"{prefix}{g}"]

    def take_from(self, old: Kept) -> None:
        """Copy what an earlier solver kept, for pairs whose supports did not change."""
        layout = (self.first, self.per_pair, self.shared)
        if layout != (old.first, old.per_pair, old.shared) or len(self.arrays) != len(old.arrays):
            return
        same = same_supports(self.family, old.family)
        for g, members in enumerate(self.family.groups):
            before = old.family.groups[g]
            if len(members) != len(before) or len(self.bases[g]) == 0 or len(old.bases[g]) == 0:
                continue
            if self.arrays[g].dtype != old.arrays[g].dtype or not np.array_equal(members, before):
                continue
            if same.all():
                self.arrays[g][:] = old.arrays[g]
                continue
            self.engine.kernels.carry_over(
                old.arrays[g], old.bases[g], old.family.sizes[members], self.arrays[g], self.bases[g],
                self.family.sizes[members], same[members], *layout, self.cold,
            )  # fmt: skip


def same_supports(new: Family, old: Family) -> Array:
    """For each row, whether its successors are those it had before [N]."""
    n = len(new.indptr) - 1
    if len(old.indptr) != len(new.indptr):
        return np.zeros(n, bool)
    if np.array_equal(new.indptr, old.indptr) and np.array_equal(new.indices, old.indices):
        return np.ones(n, bool)
    same: Array = new.sizes == old.sizes
    for row in np.flatnonzero(same):
        x, y = new.indptr[row], old.indptr[row]
        same[row] = np.array_equal(new.indices[x : x + new.sizes[row]], old.indices[y : y + new.sizes[row]])
    return same


class Evaluator(ABC):
    """A transport at work on one family of rows.

    `prepare` is called once per sweep with the ground distance; `block` may then be called from several
    threads for disjoint rows. `first` is 0 where pairs (a, a) are evaluated and 1 where they are 0.
    """

    first: int = 1
    top: float = 0.0  # largest ground cost of the sweep
    unit: float = 1.0  # costs are (d/unit)^p

    def __init__(self, engine: Engine, family: Family, p: float) -> None:
        self.engine, self.family, self.p = engine, family, p
        self.cost: Array = engine.xp.empty((family.n_states, family.n_states), engine.dtype)
        self.halt = np.zeros(1, np.uint8)  # set to stop kernels at their next pair

    def prepare(self, d: Array, wanted: float) -> None:
        """Take the ground distance d [S, S]; entries should be within `wanted` of the truth."""
        self.top, self.unit = self.engine.kernels.power(d, self.p, self.cost)
        self.accuracy = wanted / self.unit

    def block(self, group: int, a0: int, a1: int, out: Array) -> Report:
        """Fill out[a − a0, b] for rows a0 ≤ a < a1 of the group and all b ≥ a + first."""
        if self.top == 0.0:
            out[:] = 0.0
            return Report(0, 0.0)
        report = self._block(group, a0, a1, out)
        if self.unit != 1.0:
            out *= self.unit
        return Report(report.iterations, self.unit * report.error + self._lost())

    def bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        """Fill lower ≤ W_p ≤ upper for a0 ≤ a < a1, b > a; needs `prepare`."""
        if self.top == 0.0:
            lower[:] = 0.0
            upper[:] = 0.0
            return
        self._bounds(group, a0, a1, lower, upper)
        if self.unit != 1.0:
            lower *= self.unit
            upper *= self.unit
            self.engine.xp.maximum(lower - self._lost(), 0.0, out=lower)
            upper += self._lost()

    def _lost(self) -> float:
        """What costs below the smallest number may add to an entry."""
        return accuracy.underflow(self.p, self.unit, float(np.finfo(self.engine.dtype).tiny))

    @abstractmethod
    def _block(self, group: int, a0: int, a1: int, out: Array) -> Report: ...

    @abstractmethod
    def _bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None: ...

    @property
    def kept_bytes(self) -> int:
        """Memory of the state kept between sweeps."""
        return 0

    def take_from(self, old: Evaluator) -> None:
        """Start from the state that another evaluator kept, as far as it fits. Copies."""
        del old

    def follow(self, family: Family) -> None:
        """Go on with rows of the same supports and other probabilities, keeping everything."""
        self.family = family

    def state(self) -> dict[str, Array]:
        """What is kept, as named arrays, for a checkpoint."""
        return {}

    def load(self, state: Mapping[str, Array]) -> None:
        """Take back what `state` gave, for the same family."""
        del state

    def finish(self) -> None:
        """Free the arrays of the sweep; what is kept between sweeps stays."""
        self.cost = self.engine.xp.empty((0, 0), self.engine.dtype)

    def restart(self) -> None:
        """Undo `finish`."""
        n = self.family.n_states
        if self.cost.shape != (n, n):
            self.cost = self.engine.xp.empty((n, n), self.engine.dtype)


@dataclass(frozen=True)
class Transport(ABC):
    """Settings of a transport."""

    iterative = False  # whether an iteration limit can end it before its accuracy is reached

    @property
    @abstractmethod
    def axioms(self) -> Axioms: ...

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """The theorem behind an error bound for the fixed point, or why there is none."""

    @abstractmethod
    def evaluator(self, engine: Engine, family: Family, keep: bool) -> Evaluator: ...

    @abstractmethod
    def kept_size(self, family: Family) -> int:
        """Bytes that would be kept between sweeps, before anything is allocated."""


def check_order(p: float) -> None:
    if not (1.0 <= check_number("p", p) < np.inf):
        raise ValueError(f"p must be at least 1 and finite; got {p}.")


def pair_entries(family: Family, *, first: int, per_pair: int, shared: int) -> int:
    """How many entries `Kept` would hold."""
    total = 0
    for members in family.groups:
        sizes, counts = np.unique(family.sizes[members], return_counts=True)
        n, m = sizes[:, None], sizes[None, :]
        closed = (n == 1) | (m == 1) | (n + m == 4)
        entries = np.where(closed, 0.0, shared * (n - 1) + per_pair + max(shared, 1) * m)
        pairs = counts[:, None] * counts[None, :] / 2.0
        total += int(np.sum(entries * pairs))
    return total
