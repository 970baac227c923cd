"""The seam between mathematics and engines: what is asked of an engine, as types.

Above the seam, `metric` says *what* F compares (a `Comparison`) and when sweeps end; below it, an engine says *how*.
An engine is a `Backend`: it makes `Distances` (a matrix that may live anywhere), `PairSolver`s (one transport on many
pairs of rows) and a `Sweeper`, which applies F by combining what the solver gives for pairs of rows. Arrays cross the
seam only as `Distances`, or as arrays of NumPy. Nothing above it knows where an engine works: it asks for `on_host`
where the host's memory is at stake, and settings that name a device are checked where they are given.

CPU and CUDA implement these types in files of the same names: `sweeper`, `solver`, `exact`, `sinkhorn`, `ball`,
`independent`, `memory`, `distances`, with their kernels below them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from ..kinds import Array, Floats, Ints, Precision
from ..model import Chain, Distributions
from ..transport import Transport
from .comparison import Comparison

Solver = TypeVar("Solver")


class Sweep(NamedTuple):
    """What one sweep did."""

    change: float  # largest one of an entry
    transport_error: float  # how far an entry may be from the true transport
    rounding: float  # what rounding may have added to an entry beside the error of its transport
    iterations: int  # pivots or scalings over all pairs


class Swept(NamedTuple):
    """What several sweeps did."""

    distance: Distances
    sweeps: int
    change: float  # of the last one
    iterations: int
    transport_error: float


class Distances(Protocol):
    """A matrix of distances [S, S], or [S, T] between two models, wherever it lives."""

    @property
    def n_states(self) -> int: ...
    def copy(self) -> Self: ...
    @property
    def nbytes(self) -> int: ...
    def take(self, other: Self) -> None:
        """Become a copy of another."""
        ...

    def gap(self, other: Self) -> float:
        """The largest difference of an entry."""
        ...

    def inner(self, others: Sequence[Self]) -> Floats:
        """Σ d·x for each x of the others, in double precision."""
        ...

    def blend(self, weights: Sequence[float], others: Sequence[Self]) -> None:
        """Become Σ weight·x over the others, none of which is this one."""
        ...

    def shift(self, by: float) -> None:
        """Become d + by where it is positive, and 0 where that is negative."""
        ...

    def clip(self) -> None:
        """Become 0 where it is negative."""
        ...

    def subtract_from(self, other: Self) -> None:
        """Become the difference, other less this one."""
        ...

    def zeros(self) -> Self:
        """As many zeros, in the same place."""
        ...

    def to_host(self) -> Array:
        """As an array of NumPy, to be read only: on the CPU it is the same memory."""
        ...

    def near(self) -> Array:
        """The same, for passing use: it holds until the distances change."""
        ...

    def freeze(self) -> None:
        """Nobody writes to it any more."""
        ...

    def clear_diagonal(self) -> None: ...
    def largest(self) -> float: ...
    def gap_to(self, V: Floats) -> float:
        """max |d(s, t) − |V(s) − V(t)||."""
        ...

    def epsilon_classes(self, reach: float, weights: Floats | None, by_diameter: bool) -> tuple[Ints, Ints, bool]:
        """(label of each state, medoids, whether all distances are finite): the greedy cover of `EpsilonCover`."""
        ...

    def extents(self, labels: Ints, medoids: Ints) -> tuple[float, float]:
        """(largest distance of a state from its medoid, largest one inside a class); states themselves are left out."""
        ...


class Tally(Protocol):
    """Where solvers report what they did: iterations, and the largest error of an entry in the unit of the sweep."""

    def add(self, iterations: int, error: float) -> None: ...


class PairSolver(Protocol):
    """One transport on the pairs of one family of rows, with what it remembers of them.

    `prepare` is called once a sweep with the ground distances; then `fill` or `bounds` may be called for disjoint rows,
    from several threads. Values are in the `unit` of the sweep (see `transport.budget`), so an entry is unit times a
    value; `bounds` are around the *exact* W_p, whatever the transport. What is remembered of a pair is a start only:
    answers do not depend on it beyond their errors. Work that Ctrl-C stops may leave blocks half filled.
    """

    with_diagonal: bool  # whether pairs (a, a) are evaluated; else they are 0
    unit: float

    @property
    def keeps_plans(self) -> bool:
        """Whether `fill_kept` can be asked for: plans are remembered, or there is but one."""
        ...

    def prepare(self, d: Array, accuracy: float) -> None:
        """Take the ground distances; entries should be within `accuracy` of the truth."""
        ...

    def fill(self, group: int, a0: int, a1: int, out: Array, tally: Tally) -> None:
        """out[a − a0, b] = W between rows a and b of a group, for a0 ≤ a < a1 and b ≥ a (+ 1 without diagonal).

        Between two models, a are rows of the first, b those of the second, and out[a − a0, b − corner] is filled, where
        the corner is the first member of the group that is one of the second.
        """
        ...

    def fill_kept(self, group: int, a0: int, a1: int, out: Array, wanted: Array | None) -> None:
        """The same with the plan that the last `fill` found for each pair, optimal or not any more.

        Only where `wanted` (of the shape of `out`), if it is given; what is elsewhere has no meaning.
        """
        ...

    def fill_roughly(self, group: int, a0: int, a1: int, out: Array) -> None:
        """The same with the independent plan of each pair, which needs no search. Nothing is remembered."""
        ...

    def bounds(self, group: int, a0: int, a1: int, lower: Array, upper: Array) -> None:
        """Fill lower ≤ W_p ≤ upper, in true units, for a0 ≤ a < a1 and b > a."""
        ...

    def follow(self, rows: Distributions) -> None:
        """Go on with other probabilities on the same successors, remembering everything."""
        ...

    def take_from(self, old: PairSolver) -> None:
        """Remember what another solver did of the same pairs, as far as it fits. Copies."""
        ...

    def rounding(self, largest: float) -> float:
        """What rounding may add to an entry of a sweep beside its transport, for distances up to `largest`."""
        ...

    def finish(self) -> None:
        """Free what only sweeps need; what is remembered stays."""
        ...

    @property
    def remembered_bytes(self) -> int: ...
    def remembered(self) -> dict[str, Array]:
        """What is remembered of each pair (trees, scalings) as named arrays of the host."""
        ...

    def recall(self, arrays: Mapping[str, Array]) -> None:
        """Take back what `remembered` gave, for the same rows."""
        ...


class Pending(Protocol):
    """Sweeps under way. A device works meanwhile; the CPU does its part when it is asked for the result."""

    def go_on(self) -> bool:
        """Wait for what was started, and start more if that is needed; returns whether all is done."""
        ...

    def result(self) -> Swept:
        """Do what is left. To be asked for once."""
        ...


_SAMPLE = 1 << 24  # entries


def sampled(matrix: Array) -> Array:
    """Every so many rows of a matrix, so that no more than a sample of large ones is read."""
    return matrix[:: -(-matrix.size // _SAMPLE)]


def mean_difference(after: Array, before: Array) -> float:
    """The mean of after − before over a sample of rows."""
    return float((sampled(after) - sampled(before)).mean(dtype=np.float64))


class Sweeper(ABC):
    """F at work: a comparison, a transport, and the solver of its pairs.

    Engines implement `sweep`, `start`, `bounds`, and what is done between sweeps, policy iteration over couplings:
    `sweep_roughly`, `keep_choices`, `sweep_kept`, `sweep_frozen`, `mean_change`, `find_paths`, `follow_paths`. Each
    takes distances that its own engine made (a `Distances` of another one is refused by no type checker).
    """

    portable: ClassVar[bool] = True  # whether what is remembered is good on another machine

    def __init__(self, backend: Backend, comparison: Comparison, transport: Transport, remember: bool) -> None:
        self.backend, self.comparison = backend, comparison
        self.transport, self.remember = transport, remember
        self.shape = comparison.shape  # of the distances
        self.solver = backend.solver(comparison.rows, comparison.groups, transport, remember)

    def follow(self, chain: Chain) -> None:
        """Go on with the chain of another policy, on the same states; what is remembered of a pair stays if it fits."""
        old = self.comparison
        if old.combine != "chain" or len(chain.rows) != len(old.rows):
            raise ValueError("follow needs a chain with the same states.")
        if chain.rows.same_supports(old.rows).all():
            self.solver.follow(chain.rows)
        else:
            solver = self.backend.solver(chain.rows, old.groups, self.transport, self.remember)
            if self.remember:
                solver.take_from(self.solver)
            self.solver = solver
        self.comparison = replace(old, rows=chain.rows, rewards=chain.rewards)

    def spare_memory(self) -> bool:
        """From now on hold one array of all pairs in place of two, for the same bytes; returns whether that can be."""
        return False

    @abstractmethod
    def sweep(self, d: Any, accuracy: float = np.inf) -> Sweep:
        """Replace d by F(d) in place; transports are within `accuracy` where they can be."""

    @abstractmethod
    def sweep_roughly(self, d: Any) -> float:
        """Replace d by F(d) with independent plans, and return the largest change: a cheap way to near distances."""

    @abstractmethod
    def keep_choices(self) -> bool:
        """Make room for what the sweeps below need beside kept plans; returns whether they can be asked for.

        They can after a sweep of distances that are not all 0.
        """

    @abstractmethod
    def sweep_kept(self, d: Any) -> float:
        """Replace d by F(d) with kept plans, and return the largest change.

        Who minimises plays as in the last sweep (plans, and under Hausdorff matching the partner of each choice); who
        maximises is free (labels, choices), and what decides each distance is noted.
        """

    @abstractmethod
    def sweep_frozen(self, d: Any) -> float:
        """The same with what the last `sweep_kept` noted: both players are bound, and for p = 1 this is an affine map.

        An engine may leave who maximises free (CUDA does, under matched choices); its fixed point is then not above
        that of `sweep_kept`, and both are iterates, which nothing rests on.
        """

    @abstractmethod
    def mean_change(self, d: Any) -> float:
        """By how much the last frozen sweep changed a distance in the mean of a sample of rows, for p = 1."""

    @property
    @abstractmethod
    def path_share(self) -> float:
        """How many of all pairs of rows have one successor each, if `follow_paths` can follow them; else 0."""

    @abstractmethod
    def find_paths(self) -> None:
        """Find where such pairs lead to, with what the last `sweep_kept` noted."""

    @abstractmethod
    def follow_paths(self, d: Any) -> None:
        """Put the fixed point of `sweep_frozen` into d for such pairs, with the other distances as they are."""

    @abstractmethod
    def start(self, d: Any, count: int, stop: float) -> Pending:
        """Sweep a copy of d up to `count` times, until a sweep changes nothing by more than `stop`."""

    @abstractmethod
    def bounds(self, d: Any, accuracy: float) -> tuple[Floats, Floats]:
        """Bounds lower ≤ F_exact(d) ≤ upper [S, S] for a d with zero diagonal, on the host."""

    def guard(self) -> AbstractContextManager[object]:
        """In this context, running out of a device's memory, or a device that fails, is a clear error."""
        return self.backend.guard(self.transport.squares, self.shape)


class Backend(Protocol):
    """An engine: a device and a precision."""

    device: ClassVar[str]  # its name, for people and fingerprints
    on_host: ClassVar[bool]  # whether distances lie in the memory of this process
    dtype: Precision

    def describe(self) -> str:
        """What the device is, in words."""
        ...

    def zeros(self, shape: tuple[int, int]) -> Distances: ...
    def distances(self, given: Array | Distances) -> Distances:
        """A copy of an array of the host, or of distances that live anywhere."""
        ...

    def solver(self, rows: Distributions, groups: tuple[Ints, ...], transport: Transport, remember: bool) -> PairSolver:
        """A solver for all pairs of rows inside each group."""
        ...

    def sweeper(self, comparison: Comparison, transport: Transport, remember: bool) -> Sweeper: ...
    def averaged_values(
        self, chain: Chain, class_of: Ints, shares: Floats, start: Floats, limit: float
    ) -> tuple[Floats, float]:
        """(values of the chain averaged over classes [K], last change), by iteration to a change ≤ limit."""
        ...

    def stream(self) -> AbstractContextManager[object]:
        """A context in which work goes on beside that of others; it can be entered again and again."""
        ...

    def guard(self, squares: int, shape: tuple[int, int]) -> AbstractContextManager[object]:
        """See `Sweeper.guard`; for so many arrays of all pairs of states."""
        ...


def known(solvers: Mapping[type[Transport], type[Solver]], transport: Transport) -> type[Solver]:
    """The solver of an engine for a transport; refuses what it has none for."""
    for kind in type(transport).__mro__:
        if kind in solvers:
            return solvers[kind]
    names = ", ".join(kind.__name__ for kind in solvers)
    raise TypeError(f"transport: there is no solver for {type(transport).__name__}; there are solvers for {names}.")
