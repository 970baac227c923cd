"""The engine of a cluster, behind the seam of `backends.protocol`: its tiles are those of the host's engine."""

from __future__ import annotations

import hashlib
import uuid
import weakref
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..backends.comparison import Comparison, groups_of_rows, matrix_like
from ..backends.protocol import Backend, Distances, PairSolver
from ..backends.select import backend
from ..kinds import Array, Floats, Ints
from ..model import Chain, Distributions
from ..room import available_memory
from ..transport import Sinkhorn, Transport
from .costs import BASE, How, Whole, fitting, too_large
from .crew import Crew, crew_of
from .distances import ClusterDistances
from .errors import ClusterError
from .outline import Numbering, Outline
from .scanning import ranges_for, ranges_of
from .store import Store
from .sweeper import ClusterSweeper
from .tasks import Writing, forget, write_block
from .tiles import Frame, TileGrid, block_of, shift
from .versions import Version

_SMALL = 1 << 26  # bytes of distances that are always brought home
_TILES_PER_THREAD = 1  # few large ones: each reads the distances of all its successors


class ClusterBackend:
    """The workers of a cluster, in one precision.

    Attributes: crew, store, grid (once there is a sweeper), run (a name for what workers hold), alive (distances that
    are in use).
    """

    device: ClassVar[str] = "cluster"
    on_host: ClassVar[bool] = False

    def __init__(self, crew: Crew, store: Store, dtype: str, asked: Mapping[str, object]) -> None:
        self.crew, self.store, self._asked = crew, store, asked
        self.state: dict[str, Any] | None = None  # to go on from
        self._host: Backend = backend("cpu", dtype)
        self.dtype = self._host.dtype
        self.run, self.grid = uuid.uuid4().hex, TileGrid((0,), (0,), False)
        self.alive: weakref.WeakSet[ClusterDistances] = weakref.WeakSet()
        self.spare: list[Array] = []  # arrays that distances gave up
        self.kept: dict[str, set[int]] = {"d": set(), "m": set(), "n": set()}  # versions that state.json names
        self._next = 0
        self._sums: dict[str, int] | None = None  # of the model's blocks, once there is something to go on from

    def describe(self) -> str:
        return f"{self.crew.threads} threads of {self.crew.workers} workers at {self.crew.address}"

    def zeros(self, shape: tuple[int, int]) -> ClusterDistances:
        return ClusterDistances(self, shape)

    def distances(self, given: Array | Distances) -> ClusterDistances:
        array = np.array(given if isinstance(given, np.ndarray) else given.to_host(), self.dtype)
        found = ClusterDistances(self, array.shape)
        found.become(self.publish(array))
        return found

    def solver(self, rows: Distributions, groups: tuple[Ints, ...], transport: Transport, remember: bool) -> PairSolver:
        """One that answers for all tiles, and has no pairs itself."""
        del groups
        return self._host.solver(rows, (), transport, remember)

    def sweeper(self, comparison: Comparison, transport: Transport, remember: bool) -> ClusterSweeper:
        """F by tasks; the model is put into the store, block by block."""
        if isinstance(transport, Sinkhorn) and comparison.square and matrix_like(comparison.rows):
            raise ValueError(
                "Sinkhorn transport between rows that reach most states is done by matrix products, which need whole "
                "rows: it is not for a cluster."
            )
        self._check_home(comparison.shape)
        whole = Whole(comparison, transport, self.dtype.name, remember)
        grid = fitting(whole, _TILES_PER_THREAD * max(self.crew.threads, 1), self.crew.memory)
        what = {**self._asked, "model": _digest(comparison)}
        self.grid, self.state = self.store.begin(what, grid)
        if self.state is None:
            self._write_blocks(comparison)
        return ClusterSweeper(self, comparison, transport, remember)

    def sweeper_in_parts(
        self, outline: Outline, between: Comparison, transport: Transport, remember: bool
    ) -> ClusterSweeper:
        """The same for a model that workers read in parts, from what is between its stand-in and another model."""
        what = {**self._asked, "model": outline.parts.source, "other": _digest(between)}
        comparison, numbering = outline.comparison(between), outline.numbering(between)
        self._check_home(comparison.shape)
        known = self.store.known(what)
        if known is not None:
            self.grid, self.state = known
        else:
            self.grid, self.state = self._begin_in_parts(what, outline, numbering, between, transport, remember)
        return ClusterSweeper(self, comparison, transport, remember, in_parts=True)

    def _check_home(self, shape: tuple[int, int]) -> None:
        """Refuse distances that would not fit here at the end, where the store ends with the work."""
        if self.store.passing and not self._fits_here(shape):
            size = shape[0] * shape[1] * self.dtype.itemsize
            raise ClusterError(
                f"the distances take {1e-9 * size:.3g} GB, and this process has {1e-9 * available_memory():.3g} GB of "
                "memory: give a store (store=, --store), a folder, and they are left in a file there (distance.npy)."
            )

    def _begin_in_parts(
        self,
        what: Mapping[str, object],
        outline: Outline,
        numbering: Numbering,
        between: Comparison,
        transport: Transport,
        remember: bool,
    ) -> tuple[TileGrid, None]:
        """Let workers put their parts into the store, more and smaller ones until they fit."""
        store, n = self.store, outline.parts.n_states
        store.prepare()
        groups = groups_of_rows(between)
        columns = 0, between.shape[1]
        store.write(store.block("C", columns), block_of(between, groups, "C", *columns))
        count, before = max(_TILES_PER_THREAD * self.crew.threads, len(ranges_for(self.crew, outline.parts))), 0
        while True:
            ranges = ranges_of(n, count)
            how = How(Frame.of(between), transport, self.dtype.name, remember)
            work = partial(write_block, Writing(str(store.folder), outline.parts, numbering, how, columns))
            names = [str(first) for first, _ in ranges]
            held = BASE + max(one.held for _, one in self.crew.run("bisimetric read the model", work, ranges, names))
            if held <= self.crew.memory:
                break
            if len(ranges) == before:
                raise too_large(held, self.crew.memory)
            before, count = len(ranges), 2 * len(ranges)
        grid = TileGrid((0, *(last for _, last in ranges)), columns, False)
        return store.begin(what, grid)[0], None

    def averaged_values(
        self, chain: Chain, class_of: Ints, shares: Floats, start: Floats, limit: float
    ) -> tuple[Floats, float]:
        return self._host.averaged_values(chain, class_of, shares, start, limit)

    def stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def guard(self, squares: int, shape: tuple[int, int]) -> AbstractContextManager[object]:
        del squares, shape
        return nullcontext()

    def _write_blocks(self, comparison: Comparison) -> None:
        groups = groups_of_rows(comparison)
        sides = {"R": self.grid.rows} if self.grid.square else {"R": self.grid.rows, "C": self.grid.columns}
        for side, cuts in sides.items():
            for k in range(len(cuts) - 1):
                block = block_of(comparison, groups, side, cuts[k], cuts[k + 1])
                self.store.write(self.store.block(side, cuts[k : k + 2]), block)

    def new_version(self) -> int:
        self._next += 1
        return self._next

    def publish(self, array: Array) -> Version:
        """Write an array as a new version."""
        number = self.new_version()
        for i, j in self.grid.tiles:
            part = array[self.grid.rows[i] : self.grid.rows[i + 1], self.grid.columns[j] : self.grid.columns[j + 1]]
            self.store.write(self.store.place("d", number, (i, j)), [part])
        return Version(number, (), float(array.max()))

    def fetch(self, version: Version, shape: tuple[int, int], out: Array | None = None) -> Array:
        """A version as an array, perhaps a given one."""
        out = self.room(shape) if out is None else out
        if version.number < 0:
            out[:] = 0.0
            return out
        for i, j in self.grid.tiles:
            rows, columns = slice(*self.grid.rows[i : i + 2]), slice(*self.grid.columns[j : j + 2])
            part = self.store.tile(version.number, (i, j))
            out[rows, columns] = part
            if self.grid.square and i < j:
                out[columns, rows] = part.T
        shift(out, version.shifts)
        return out

    def home(self, version: Version, shape: tuple[int, int]) -> Array:
        """A version as an array of this process; as a file of the store where that would take most of its memory."""
        if self._fits_here(shape):
            return self.fetch(version, shape)
        place = self.store.folder / "distance.npy"
        self.fetch(version, shape, np.lib.format.open_memmap(place, "w+", self.dtype, shape))
        found: Array = np.load(place, mmap_mode="r")
        return found

    def _fits_here(self, shape: tuple[int, int]) -> bool:
        """Whether distances fit into the memory of this process, with as much again left for others."""
        return 2 * shape[0] * shape[1] * self.dtype.itemsize <= max(available_memory(), _SMALL)

    def room(self, shape: tuple[int, int]) -> Array:
        """An array of any numbers; memory that distances gave up is used again, as new memory takes its time."""
        while self.spare:
            array = self.spare.pop()
            if array.shape == shape:
                return array
        return np.empty(shape, self.dtype)

    def sample(self, version: Version, shape: tuple[int, int], step: int) -> Array:
        """Every so many rows of a version."""
        out = np.zeros((-(-shape[0] // step), shape[1]), self.dtype)
        for i, j in self.grid.tiles if version.number >= 0 else ():
            part = self.store.tile(version.number, (i, j))
            self._put_rows(out, part, i, j, step)
            if self.grid.square and i < j:
                self._put_rows(out, part.T, j, i, step)
        shift(out, version.shifts)
        return out

    def _put_rows(self, out: Array, part: Array, i: int, j: int, step: int) -> None:
        first = -self.grid.rows[i] % step
        taken = part[first::step]
        begin = (self.grid.rows[i] + first) // step
        out[begin : begin + len(taken), self.grid.columns[j] : self.grid.columns[j + 1]] = taken

    def tidy(self, wanted: Mapping[str, set[int]]) -> None:
        """Remove versions that neither distances in use, nor the kept state, nor the caller needs."""
        distances = set().union(*(d.versions for d in self.alive))
        both = {kind: wanted.get(kind, set()) | self.kept[kind] for kind in self.kept}
        self.store.remove_all_but({**both, "d": both["d"] | distances})

    def keep(self, state: Mapping[str, object], sweeper: ClusterSweeper, d: ClusterDistances) -> None:
        """Make this the state to go on from, should all be lost but the store."""
        if self.store.passing:
            return
        version = d.version()
        if self._sums is None:
            self._sums = self.store.sums()
        kept = {"d": {version.number}, "m": {sweeper.memory}, "n": {sweeper.notes}}
        self.store.settle(self._files(kept))
        self.store.keep(
            {
                "version": version,
                "memory": sweeper.memory,
                "notes": sweeper.notes,
                "next": self._next,
                "blocks": self._sums,
                **state,
            }
        )
        self.kept = kept
        self.tidy({})

    def _files(self, versions: Mapping[str, set[int]]) -> list[Path]:
        """All files of some versions, by kind; none of negative ones."""
        there = [(kind, k) for kind, numbers in versions.items() for k in numbers if k >= 0]
        return [self.store.place(kind, k, tile) for kind, k in there for tile in self.grid.tiles]

    def restore(self, sweeper: ClusterSweeper, d: ClusterDistances) -> None:
        """Go on from the kept state."""
        assert self.state is not None
        number, shifts, largest = self.state["version"]
        sweeper.memory, sweeper.notes, self._next = (self.state[name] for name in ("memory", "notes", "next"))
        self.kept = {"d": {number}, "m": {sweeper.memory}, "n": {sweeper.notes}}
        self._sums = dict(self.state["blocks"])
        self.store.check_blocks(self._sums)
        self.store.check(self._files(self.kept))
        d.become(Version(number, tuple(shifts), largest))


def _digest(comparison: Comparison) -> str:
    """A name for all that F depends on but its transport."""
    c = comparison
    arrays = (c.rows.indptr, c.rows.indices, c.rows.probs, c.rewards, c.row_pointers, c.column_pointers)
    found = hashlib.blake2b(repr((c.combine, c.c_R, c.c_T, c.largest, c.rows.split)).encode(), digest_size=16)
    for array in (*arrays, c.apart, c.columns_apart, *c.groups):
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


@contextmanager
def cluster_engine(
    cluster: object, store: Path | str | None, dtype: str, asked: Mapping[str, object]
) -> Iterator[ClusterBackend]:
    """The engine of a cluster, for one metric.

    Args:
        cluster: a Client of Dask, a cluster object, or an address.
        store: a folder that all workers and this process share, where work can be gone on with; by default one that is
            removed at the end, which is enough where all workers are on this machine.
        dtype: of the distances. asked: what the metric is of, beside its model.
    """
    own = Store.temporary() if store is None else Store(store)
    try:
        with crew_of(cluster) as crew, own.held():
            crew.check(own)
            engine = ClusterBackend(crew, own, dtype, asked)
            try:
                yield engine
            finally:
                crew.everywhere(forget, engine.run)
    finally:
        if store is None:
            own.remove()
