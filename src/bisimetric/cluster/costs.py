"""What a metric costs on a cluster, before anything is started: bytes are counted, seconds calibrated on this machine.

A sweep of tile (I, J) reads d[successors of I, successors of J] and its own distances, and writes these anew; a full
sweep also writes what solvers remember. A worker reads what it remembers only where it has not made it itself. So bytes
follow from the model and the grid alone. Core-seconds are those of the pairs, at the speed at which this machine sweeps
a sample of them, and those of moving bytes, at the speed at which it reads and writes files that it has just written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..backends.comparison import Comparison, groups_of_rows
from ..backends.select import host, tile_sweeper
from ..kinds import Array, Floats, Ints
from ..transport import Transport
from .errors import ClusterError
from .store import Store
from .tiles import Block, Frame, TileGrid, block_of, cut, local_comparison

BASE = 256 << 20  # bytes of a worker before it has any tile: the interpreter, libraries, kernels
_SAMPLE = 2000  # states whose pairs are timed
_PAIRS = 250_000  # of them
_MOVED = 32 << 20  # bytes that are read and written to see how fast that is
_VALUES = (8, 10, 12)  # steps of the value iterations that distances in the sweeps of the sample are taken from


class Whole(NamedTuple):
    """A metric as a whole: F, its transport, the precision, and whether pairs are remembered."""

    comparison: Comparison
    transport: Transport
    dtype: str
    remember: bool

    @property
    def frame(self) -> Frame:
        """What all tiles share."""
        return Frame.of(self.comparison)


class How(NamedTuple):
    """How all tiles of a metric are swept."""

    frame: Frame
    transport: Transport
    dtype: str
    remember: bool


class TileCosts(NamedTuple):
    """Bytes of one tile: read and written in a sweep, written more in a full one, and held by its worker."""

    read: int
    written: int
    remembered: int
    held: int


def costs_of_tiles(whole: Whole, grid: TileGrid) -> list[TileCosts]:
    """Of all tiles of a grid. Cost: O(entries of the rows) for a block of columns."""
    how = How(whole.frame, whole.transport, whole.dtype, whole.remember)
    return [
        costs_of(how, left, right, diagonal=grid.square and tile[0] == tile[1])
        for tile, left, right in _blocks(whole, grid)
    ]


def _blocks(whole: Whole, grid: TileGrid) -> list[tuple[tuple[int, int], Block, Block]]:
    groups = groups_of_rows(whole.comparison)

    def block(side: str, cuts: tuple[int, ...], k: int) -> Block:
        return block_of(whole.comparison, groups, side, cuts[k], cuts[k + 1])

    side = "R" if grid.square else "C"
    return [(tile, block("R", grid.rows, tile[0]), block(side, grid.columns, tile[1])) for tile in grid.tiles]


def costs_of(how: How, left: Block, right: Block, *, diagonal: bool) -> TileCosts:
    """Of the tile of two blocks."""
    size = np.dtype(how.dtype).itemsize
    comparison, needed = local_comparison(how.frame, left, right, diagonal=diagonal)
    ground, own = len(needed.rows) * len(needed.columns) * size, comparison.shape[0] * comparison.shape[1] * size
    kept = host().bytes_to_remember(comparison.rows, comparison.groups, how.transport) if how.remember else 0
    partners = _bytes_of_partners(comparison) if kept and comparison.combine == "hausdorff" else 0
    choices = 0 if comparison.plain else comparison.shape[0] * comparison.shape[1] * 4
    rows = sum(array.nbytes for array in (*left, *right))
    arrays = how.transport.squares - int(how.transport.order == 1.0)  # for p = 1 distances are costs
    held = arrays * ground + 2 * own + kept + choices + 2 * partners + rows
    return TileCosts(ground + own, own, kept + partners, held)


def _bytes_of_partners(comparison: Comparison) -> int:
    """The nearest choice of each state to each row, in the numbers that hold it."""
    widest = max(int(np.diff(pointers).max()) for pointers in (comparison.row_pointers, comparison.column_pointers))
    size = 2 if widest < 1 << 15 else 4
    if comparison.square:
        return len(comparison.rows) * max(comparison.shape) * size
    split = comparison.rows.split
    return (split * comparison.shape[1] + (len(comparison.rows) - split) * comparison.shape[0]) * size


def fitting(whole: Whole, count: int, memory: int) -> TileGrid:
    """So many tiles, or more where a thread has less memory than such a tile needs; refused where none fits."""
    best = None
    while True:
        grid = cut(whole.comparison, count)
        held = BASE + max(tile.held for tile in costs_of_tiles(whole, grid))
        if held <= memory:
            return grid
        if best is not None and held >= best[0] and len(grid.tiles) == best[1]:
            raise too_large(held, memory)
        best, count = (held, len(grid.tiles)), 2 * count


def too_large(held: int, memory: int) -> ClusterError:
    """That the least tile takes more than a worker's thread has."""
    return ClusterError(
        f"the model is too large for the workers: the least tile needs {1e-9 * held:.3g} GB, and a thread has "
        f"{1e-9 * memory:.3g} GB. Give workers more memory or fewer threads, or use float32."
    )


@dataclass(frozen=True)
class ClusterPlan:
    """What a metric costs on a cluster.

    Attributes:
        threads: that work. tiles: pieces of the distances, each a task of every sweep.
        model_bytes: of the model's rows, written once and read once by each worker that works on them.
        read_bytes, written_bytes: in each sweep. remembered_bytes: written in a full sweep beside these.
        held_bytes: by a worker for one tile, at most, beside the 256 MiB that it needs for itself.
        share: of all distances, that a tile reads in the mean: near 1 is a broadcast, near 1/tiles an exchange among
            neighbours.
        seconds: of a core for the pairs of the first full sweep, of later ones, and of a sweep with kept plans.
        seconds_a_byte: of a core, to read or write.
    """

    threads: int
    tiles: int
    model_bytes: int
    read_bytes: int
    written_bytes: int
    remembered_bytes: int
    held_bytes: int
    share: float
    seconds: tuple[float, float, float]
    seconds_a_byte: float

    @property
    def core_seconds(self) -> tuple[float, float, float]:
        """Of the first full sweep, a later one, and one with kept plans, with all that is moved."""
        moved = self.seconds_a_byte * (self.read_bytes + self.written_bytes)
        more = self.seconds_a_byte * self.remembered_bytes
        first, later, kept = self.seconds
        return first + moved + more, later + moved + more, kept + moved


def costs_of_cluster(whole: Whole, threads: int, memory: int) -> ClusterPlan:
    """The costs for so many threads, with so much memory for each."""
    grid = fitting(whole, threads, memory)
    tiles = costs_of_tiles(whole, grid)
    size = np.dtype(whole.dtype).itemsize * whole.comparison.shape[0] * whole.comparison.shape[1]
    rows = whole.comparison.rows
    return ClusterPlan(
        threads,
        len(tiles),
        rows.indptr.nbytes + rows.indices.nbytes + rows.probs.nbytes + whole.comparison.rewards.nbytes,
        sum(tile.read for tile in tiles),
        sum(tile.written for tile in tiles),
        sum(tile.remembered for tile in tiles),
        max(tile.held for tile in tiles),
        float(np.mean([(tile.read - tile.written) / size for tile in tiles])),
        _Sample(whole).seconds,
        seconds_a_byte(),
    )


def seconds_a_byte() -> float:
    """How long a core takes to write a byte to a file of this machine, or to read it back, in the mean."""
    store, array = Store.temporary(), np.ones((_MOVED >> 9, 64))
    rows, columns = np.random.default_rng(0).permutation(len(array)), np.arange(array.shape[1])
    out = np.empty_like(array)
    try:
        found = []
        for k in range(5):
            began = time.thread_time()
            store.write(store.place("d", k, (0, 0)), [array])
            host().gather(store.tile(k, (0, 0)), rows, columns, out)
            found.append((time.thread_time() - began) / (2 * array.nbytes))
        return float(np.median(found))
    finally:
        store.remove()


class _Sample:
    """Sweeps of some random states with some others, on distances as far apart as their values."""

    def __init__(self, whole: Whole, seed: int = 0) -> None:
        self._whole, self._rng = whole, np.random.default_rng(seed)
        c = whole.comparison
        across = min(c.shape[1], _SAMPLE)
        down = min(c.shape[0], max(_PAIRS // max(across, 1), 1))
        groups = groups_of_rows(c)
        left = self._states(groups, "R", c.shape[0], down)
        right = self._states(groups, "R" if c.square else "C", c.shape[1], across)
        frame = whole.frame._replace(columns=c.shape[1], square=True)  # both sides need the distances of some alone
        comparison, needed = local_comparison(frame, left, right, diagonal=False)
        self._pairs_of_rows = sum(
            int(np.searchsorted(g, comparison.rows.split)) * int(len(g) - np.searchsorted(g, comparison.rows.split))
            for g in comparison.groups
        )
        self._sweeper = tile_sweeper(whole.dtype, comparison, whole.transport, whole.remember)
        self._needed = needed

    def _states(self, groups: Ints, side: str, n: int, count: int) -> Block:
        """A block of random states."""
        c = self._whole.comparison
        whole = block_of(c, groups, side, 0, n)
        if count == n:
            return whole
        states = np.sort(self._rng.choice(n, count, replace=False))
        counts = np.diff(whole.pointers)[states]
        pointers = np.concatenate([[0], np.cumsum(counts)])
        rows = np.repeat(whole.pointers[states] - pointers[:-1], counts) + np.arange(pointers[-1])
        sizes = np.diff(whole.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        entries = np.repeat(whole.indptr[rows] - indptr[:-1], sizes) + np.arange(indptr[-1])
        return Block(
            indptr,
            whole.indices[entries],
            whole.probs[entries],
            whole.rewards[rows],
            whole.group[rows],
            pointers,
            whole.apart[states],
        )

    def _ground(self, steps: int) -> Array:
        """How far rewards and next values of both sides are apart, if all choices are equally likely.

        As distances are: sums of two differences. Those of one number have more than one optimal plan for each pair.
        """
        c = self._whole.comparison
        rows, split = c.rows, c.rows.split or len(c.rows)
        left = _value_steps(c, np.arange(split), c.row_pointers, steps)
        if not c.square:
            pointers = c.column_pointers
            right = _value_steps(c, np.arange(split, len(rows)), pointers - pointers[0], steps)
        else:
            right = left
        rows_needed, columns_needed = self._needed
        ground = np.zeros((len(rows_needed) + 1, len(columns_needed) + 1), self._whole.dtype)
        for one, other in zip(left, right, strict=True):
            ground[:-1, :-1] += np.abs(one[rows_needed][:, None] - other[columns_needed][None, :])
        ground[-1, -1] = max(float(ground.max()), 1e-3)
        return ground

    @cached_property
    def seconds(self) -> tuple[float, float, float]:
        """Seconds of a core for all pairs: a cold sweep, one after it, one with kept plans."""
        c = self._whole.comparison
        kinds = ("full", "full", "frozen" if self._whole.remember and self._sweeper.solver.keeps_plans else "rough")
        self._sweeper.keep_choices()
        self._timed("full", self._ground(_VALUES[0]))  # compiled, before anything is timed
        self._sweeper.solver.recall(self._cold())
        found = []
        for kind, steps in zip(kinds, _VALUES, strict=True):
            ground = self._ground(steps)
            if kind == "frozen" and not self._sweeper.comparison.plain:
                self._timed("kept", ground)
            if kind != "full":
                self._timed(kind, ground)
            found.append(self._timed(kind, ground))
        scale = _pairs(c) / max(self._pairs_of_rows, 1)
        return found[0] * scale, found[1] * scale, found[2] * scale

    def _cold(self) -> dict[str, Array]:
        c = self._sweeper.comparison
        return tile_sweeper(self._whole.dtype, c, self._whole.transport, self._whole.remember).solver.remembered()

    def _timed(self, kind: str, ground: Array) -> float:
        began = time.thread_time()
        self._sweeper.apply(kind, ground, np.inf)  # type: ignore[arg-type]
        return time.thread_time() - began


def _value_steps(c: Comparison, rows: Ints, pointers: Ints, steps: int) -> tuple[Floats, Floats]:
    """(rewards, c_T times the mean value of the next state) of states after some steps of value iteration.

    On some of the rows, whose successors are the states that `pointers` are of.
    """
    from scipy.sparse import csr_array

    first, last = int(c.rows.indptr[rows[0]]), int(c.rows.indptr[rows[-1] + 1])
    indptr = c.rows.indptr[rows[0] : rows[-1] + 2] - first
    n = len(pointers) - 1
    P = csr_array((c.rows.probs[first:last], c.rows.indices[first:last], indptr), shape=(len(rows), n))
    rewards, counts = c.rewards[rows[0] : rows[-1] + 1], np.diff(pointers)
    own: Floats = np.add.reduceat(rewards, pointers[:-1]) / counts
    later: Floats = np.zeros(n)
    for _ in range(steps):
        later = c.c_T * np.add.reduceat(np.asarray(P @ (own + later)), pointers[:-1]) / counts
    return own, later


def _pairs(c: Comparison) -> float:
    """Pairs of rows that are compared."""
    if c.square:
        return sum(len(group) * (len(group) + 1) / 2.0 for group in c.groups)
    split = c.rows.split
    return float(sum(np.searchsorted(g, split) * (len(g) - np.searchsorted(g, split)) for g in c.groups))
