"""What a worker does with a tile: it reads files of whole versions and writes those of the next one.

A task is a pure function of the files that it names, so it may be done again, anywhere, by anybody: the same bytes.
What a worker still holds of a tile (its rows, what solvers remember) spares it reading, and is used only where it is of
the version that is wanted.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends.select import tile_sweeper
from ..backends.threads import alone
from ..kinds import Array
from ..model.parts import ModelParts
from ..transport import Transport
from .costs import BASE, How, TileCosts, costs_of
from .errors import ClusterError
from .outline import Numbering
from .scanning import numbered_block, read_range
from .store import Store
from .tiles import Block, Frame, TileGrid, fill_ground, ground_like, local_comparison, shift
from .versions import Version

if TYPE_CHECKING:
    from ..backends.select import Kind, TileSweeper


class Work(NamedTuple):
    """What all tasks of a metric share.

    Attributes: folder (of the store), passing (whether it ends with the work), run (a name that no other work has),
    grid, frame, transport, dtype, remember.
    """

    folder: str
    passing: bool
    run: str
    grid: TileGrid
    frame: Frame
    transport: Transport
    dtype: str
    remember: bool


class Task(NamedTuple):
    """A sweep of one tile.

    Attributes: kind (of the sweep), tile, source (distances it is of), target (number of the version it makes),
    accuracy, memory, notes (versions of what solvers remember and of what decides distances; −1 for none), choices
    (whether what decides distances is to be noted).
    """

    kind: Kind
    tile: tuple[int, int]
    source: Version
    target: int
    accuracy: float
    memory: int
    notes: int
    choices: bool


class Report(NamedTuple):
    """What a task did.

    Attributes: tile, change, transport_error, iterations, largest (of the new distances); read, written (bytes);
    seconds (of the processor); worker (its address).
    """

    tile: tuple[int, int]
    change: float
    transport_error: float
    iterations: int
    largest: float
    read: int
    written: int
    seconds: float
    worker: str


class _Held:
    """What a worker holds of a tile, and of which versions."""

    def __init__(self, work: Work, tile: tuple[int, int], store: Store) -> None:
        i, j = tile
        grid, diagonal = work.grid, work.grid.square and i == j
        left = read_block(store, "R", grid.rows[i : i + 2])
        right = left if diagonal else read_block(store, "R" if grid.square else "C", grid.columns[j : j + 2])
        comparison, self.needed = local_comparison(work.frame, left, right, diagonal=diagonal)
        self.sweeper: TileSweeper = tile_sweeper(work.dtype, comparison, work.transport, work.remember)
        self.ground = ground_like(work.grid, self.needed, work.dtype)
        self.memory = self.notes = -1
        self.choices = False
        self.lock = threading.Lock()
        self.rows_read = _bytes(left) + (0 if diagonal else _bytes(right))

    @property
    def nbytes(self) -> int:
        sweeper = self.sweeper
        costs = 0 if sweeper.solver.cost is self.ground else sweeper.solver.cost.nbytes
        arrays = self.ground.nbytes + costs + sweeper.noted.nbytes + sweeper.target.nbytes
        return sweeper.solver.remembered_bytes + arrays + self.rows_read

    def bring(self, store: Store, task: Task) -> int:
        """Be of the versions that a task wants; returns bytes read."""
        read = 0
        if task.choices and not self.choices:
            self.choices = self.sweeper.keep_choices()
        if task.memory != self.memory:
            names = list(self.sweeper.memory())
            if task.memory >= 0:
                arrays = store.read(store.place("m", task.memory, task.tile))
                read += sum(array.nbytes for array in arrays)
                self.sweeper.recall(dict(zip(names, arrays, strict=True)))
            self.memory = task.memory
        if task.notes != self.notes and task.notes >= 0:
            (self.sweeper.noted,) = store.read(store.place("n", task.notes, task.tile))
            read += self.sweeper.noted.nbytes
            self.notes = task.notes
        return read


_ONE_MORE = 1.2  # of the largest tile that is held: what the next one may take
_HELD: OrderedDict[tuple[str, tuple[int, int]], _Held] = OrderedDict()
_COMING: list[int] = []  # one for each thread that is about to hold a tile
_GUARD = threading.Lock()


def read_block(store: Store, side: str, ends: Sequence[int]) -> Block:
    """A block of the model's rows."""
    return Block(*store.read(store.block(side, ends)))


def sweep_tile(work: Work, task: Task) -> Report:
    """Sweep a tile from one version to the next."""
    began, store = time.thread_time(), Store(work.folder, passing=work.passing)
    held = _take(work, task, store)
    with held.lock, alone():
        try:
            report = _swept(work, task, store, held)
        except BaseException:  # whatever it holds now is of no version
            with _GUARD:
                _HELD.pop((work.run, task.tile), None)
            raise
    return report._replace(seconds=time.thread_time() - began)


def _take(work: Work, task: Task, store: Store) -> _Held:
    """What is held of a tile; if it has gone on to other versions of what is remembered, it is read anew."""
    key = (work.run, task.tile)
    with _GUARD:
        held = _HELD.get(key)
        if held is not None and task.memory < 0 <= held.memory:
            held = None
    if held is None:
        with _GUARD:
            _HELD.pop(key, None)
        with _room():
            held = _Held(work, task.tile, store)
    with _GUARD:
        _HELD[key] = held
        _HELD.move_to_end(key)
    return held


def _swept(work: Work, task: Task, store: Store, held: _Held) -> Report:
    sweeper = held.sweeper
    read = held.bring(store, task) + _distances(work, task, store, held)
    report = sweeper.apply(task.kind, held.ground, task.accuracy)
    if not all(store.holds(*version) for version in (("d", task.source.number), ("m", task.memory), ("n", task.notes))):
        raise ClusterError("this sweep is over: another worker did it, and what it was made of was written over.")
    written = store.write(store.place("d", task.target, task.tile), [sweeper.target])
    if task.kind == "full" and work.remember:
        held.memory = task.target
        written += store.write(store.place("m", task.target, task.tile), map(np.asarray, sweeper.memory().values()))
    if task.kind == "kept" and sweeper.noted.size:
        held.notes = task.target
        written += store.write(store.place("n", task.target, task.tile), [sweeper.noted])
    return Report(
        task.tile,
        report.change,
        report.transport_error,
        report.iterations,
        sweeper.largest,
        read,
        written,
        0.0,
        own_address(),
    )


def _distances(work: Work, task: Task, store: Store, held: _Held) -> int:
    """Read the ground distances and those of the tile itself; returns how many bytes they are."""
    number, target = task.source.number, held.sweeper.target

    def read(tile: tuple[int, int]) -> Array:
        """One file at a time: what is looked at of it counts as memory of the worker until it is given up."""
        return store.tile(number, tile)

    fill_ground(held.ground, read, work.grid, held.needed, task.source)
    if number < 0:
        target[:] = 0.0
        return 0
    target[:] = read(task.tile)
    shift(target, task.source.shifts)
    return len(held.needed.rows) * len(held.needed.columns) * target.itemsize + target.nbytes


class Writing(NamedTuple):
    """What workers need to put parts of a model into the store.

    Attributes: folder (of the store), parts, numbering, how (tiles will be swept), columns (the range of states of the
    other model).
    """

    folder: str
    parts: ModelParts
    numbering: Numbering
    how: How
    columns: tuple[int, int]


def write_block(writing: Writing, ends: tuple[int, int]) -> TileCosts:
    """Read a range of states of a model, and write it as a block; returns what its tile will cost."""
    store, part = Store(writing.folder), read_range(writing.parts, ends)
    block = numbered_block(part, writing.parts.label_names, writing.numbering)
    store.write(store.block("R", ends), block)
    return costs_of(writing.how, block, read_block(store, "C", writing.columns), diagonal=False)


@contextmanager
def _room() -> Iterator[None]:
    """Let go of tiles that were not asked for lately, where all of them and those to come take too much memory."""
    with _GUARD:
        _COMING.append(1)
        sizes = {key: held.nbytes for key, held in _HELD.items()}
        most = memory_limit() - BASE - len(_COMING) * _ONE_MORE * max(sizes.values(), default=0)
        free = [key for key in _HELD if not _HELD[key].lock.locked()]
        while free and sum(sizes.values()) > most:
            del _HELD[free[0]], sizes[free.pop(0)]
    gc.collect()  # what was let go of is wanted now, and may refer to itself
    try:
        yield
    finally:
        with _GUARD:
            _COMING.pop()


def forget(run: str) -> None:
    """Let go of all that belongs to some work."""
    with _GUARD:
        for key in [key for key in _HELD if key[0] == run]:
            del _HELD[key]


def own_address() -> str:
    """Of the worker that this runs on."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return ""


def memory_limit(worker: Any = None) -> int:
    """Bytes that a worker may have: the given one, or that of the task that this is called in."""
    from distributed import get_worker

    try:
        limit = (worker or get_worker()).memory_manager.memory_limit
    except (ValueError, AttributeError):
        limit = None
    return int(limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def describe(folder: str | None = None, token: str = "", dask_worker: Any = None) -> dict[str, Any]:
    """What a client asks of each worker, which Dask hands in: version, memory, threads, whether it sees the store."""
    from .. import __version__

    return {
        "version": __version__,
        "memory": memory_limit(dask_worker),
        "threads": 1 if dask_worker is None else int(dask_worker.state.nthreads),
        "sees": folder is None or Store(folder).sees(token),
    }


def _bytes(block: Block) -> int:
    return sum(array.nbytes for array in block)
