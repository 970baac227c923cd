"""Threads of the host: how many, work on them that Ctrl-C can stop, and BLAS held to one."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from threadpoolctl import ThreadpoolController

Unit = TypeVar("Unit")
Result = TypeVar("Result")

_CHOSEN: dict[str, int | None] = {"threads": None}
_POOLS: dict[int, ThreadPoolExecutor] = {}
_WITH_BLAS = ("numpy.linalg", "scipy.linalg", "sklearn", "torch")  # they bring BLAS of their own
_THREAD = threading.local()  # whether a thread is one of these


def set_threads(count: int | None) -> None:
    """Set how many threads are used (None: one per available core, or BISIMETRIC_THREADS).

    Results do not depend on it.
    """
    if count is not None and count < 1:
        raise ValueError(f"the number of threads must be at least 1; got {count}.")
    _CHOSEN["threads"] = count


def threads() -> int:
    """How many threads are used."""
    chosen = _CHOSEN["threads"]
    if chosen is not None:
        return chosen
    wanted = os.environ.get("BISIMETRIC_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    task: Callable[[Unit], Result],
    units: Iterable[Unit],
    halt: NDArray[np.uint8] | None = None,
    *,
    brief: bool = False,
) -> list[Result]:
    """Run task(unit) for every unit on the threads; kernels release the interpreter lock.

    Results come in the order of the units. Ctrl-C sets halt[0], at which kernels stop at their next pair, drops what
    has not begun, and is raised again. It is heard by the thread that calls, so this one works itself only where the
    work is `brief` and there is but one thread.
    """
    work = list(units)
    count = min(threads(), len(work))
    if (count <= 1 and brief) or getattr(_THREAD, "serves", False):
        return [task(unit) for unit in work]
    return _shared(task, work, count, halt)


def _shared(
    task: Callable[[Unit], Result], work: list[Unit], count: int, halt: NDArray[np.uint8] | None
) -> list[Result]:
    """The same with `count` threads, each of which takes what is next."""
    from concurrent.futures import FIRST_EXCEPTION, wait

    results: dict[int, Result] = {}
    left = deque(range(len(work)))

    def serve() -> None:
        _THREAD.serves = True
        while True:
            try:
                k = left.popleft()
            except IndexError:  # none is left
                return
            results[k] = task(work[k])

    futures: list[Future[None]] = []
    try:
        for _ in range(count):
            futures.append(_pool(threads()).submit(serve))  # one by one: Ctrl-C must find those that have begun
        ended, _ = wait(futures, return_when=FIRST_EXCEPTION)
        for future in ended:
            future.result()
        return [results[k] for k in range(len(work))]
    except BaseException:
        left.clear()
        if halt is not None:
            halt[0] = 1
        _wait_for(futures)  # nothing may be at work on the caller's arrays once this is over
        raise
    finally:
        if halt is not None:
            halt[0] = 0


@contextmanager
def alone() -> Iterator[None]:
    """In this context, the thread that calls does all work itself."""
    before, _THREAD.serves = getattr(_THREAD, "serves", False), True
    try:
        yield
    finally:
        _THREAD.serves = before


def _wait_for(futures: list[Future[None]]) -> None:
    """Wait until all have ended, however often Ctrl-C is pressed meanwhile."""
    from concurrent.futures import wait

    while True:
        try:
            wait(futures)
            return
        except KeyboardInterrupt:
            continue


def _pool(count: int) -> ThreadPoolExecutor:
    """So many threads, started once: a sweep of a small model is shorter than their start."""
    from concurrent.futures import ThreadPoolExecutor

    if count not in _POOLS:
        _POOLS[count] = ThreadPoolExecutor(count, "bisimetric")
    return _POOLS[count]


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_POOLS.clear)


@contextmanager
def single_thread() -> Iterator[None]:
    """Context in which BLAS and LAPACK use one thread, so that results do not depend on how many there are.

    How many they use is a matter of the whole process. So the first thread that comes sets it, and the last that goes
    sets it back: else two that overlap would leave behind what the one saw of the other.
    """
    blas = _blas(tuple(name in sys.modules for name in _WITH_BLAS))
    if blas is None:  # only rounding may then depend on the threads of BLAS
        yield
        return
    with _HOLDERS.lock:
        if _HOLDERS.count == 0:
            _HOLDERS.limit.enter_context(blas.limit(limits=1, user_api="blas"))
        _HOLDERS.count += 1
    try:
        yield
    finally:
        with _HOLDERS.lock:
            _HOLDERS.count -= 1
            if _HOLDERS.count == 0:
                _HOLDERS.limit.close()


class _Holders:
    """Those who hold BLAS to one thread now."""

    def __init__(self) -> None:
        self.lock, self.count, self.limit = threading.RLock(), 0, ExitStack()


_HOLDERS = _Holders()


@cache
def _blas(loaded: tuple[bool, ...]) -> ThreadpoolController | None:
    """What controls the threads of BLAS, if that is there: of each one that is loaded by now."""
    del loaded
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()  # type: ignore[no-untyped-call]
