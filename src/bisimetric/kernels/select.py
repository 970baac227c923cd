"""Which kernels run where: the only place that looks at the device, the dtype and the threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

_THREADS: int | None = None
_BLAS: Any = None
_POOLS: dict[int, ThreadPoolExecutor] = {}
_THREAD = threading.local()  # whether a thread is one of these


def set_threads(count: int | None) -> None:
    """Set how many threads are used (None: one per available core, or BISIMETRIC_THREADS).

    Results do not depend on it.
    """
    global _THREADS
    if count is not None and count < 1:
        raise ValueError(f"the number of threads must be at least 1; got {count}.")
    _THREADS = count


def threads() -> int:
    """How many threads are used."""
    if _THREADS is not None:
        return _THREADS
    wanted = os.environ.get("BISIMETRIC_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class DeviceError(RuntimeError):
    """A device that cannot be used or has too little memory; the message says what to do."""


def device_failed(error: BaseException) -> bool:
    """Whether an error is the device's, after which a process may not be able to use it any more."""
    return isinstance(error, DeviceError) or type(error).__module__.split(".")[0] in ("cupy", "cupy_backends")


@dataclass(frozen=True)
class Engine:
    """The kernels of one device for one precision, and the library of its arrays."""

    kernels: ModuleType
    dtype: np.dtype[Any]
    xp: Any = np
    on_device: bool = False  # whether arrays live apart from the host's memory

    def to_device(self, array: Any) -> Any:
        """An array of the host for the kernels; on the CPU it is the same one."""
        return self.xp.asarray(array) if self.on_device else array

    def to_host(self, array: Any) -> Any:
        """An array of the kernels as one of NumPy; on the CPU it is the same one."""
        return self.xp.asnumpy(array) if self.on_device and not isinstance(array, np.ndarray) else array

    @property
    def eps(self) -> float:
        """Unit round-off of the stored distances."""
        return float(np.finfo(self.dtype).eps)


def engine(device: str, dtype: str) -> Engine:
    """The engine for device "cpu" or "cuda" and dtype "float64" or "float32"."""
    if device not in ("cpu", "cuda"):
        raise ValueError(f'device must be "cpu" or "cuda"; got {device!r}.')
    if dtype not in ("float64", "float32"):
        raise ValueError(f'dtype must be "float64" or "float32"; got {dtype!r}.')
    if device == "cuda":
        from . import gpu

        gpu.check()
        return Engine(gpu, np.dtype(dtype), gpu.cupy(), True)
    from . import cpu

    return Engine(cpu, np.dtype(dtype))


def where_it_lives(array: Any) -> tuple[Any, ModuleType]:
    """(an array of NumPy or, where it is on a GPU, of CuPy; the kernels for it)."""
    if not hasattr(array, "__cuda_array_interface__"):
        return np.asarray(array), engine("cpu", "float64").kernels
    on_device = engine("cuda", "float64")
    there = on_device.xp.ascontiguousarray(array)
    return there if there.dtype in (np.float64, np.float32) else there.astype(np.float64), on_device.kernels


def stream(device: str) -> Any:
    """A context in which work on a device goes on beside that of others; it can be entered again and again."""
    if device != "cuda":
        return nullcontext()
    from . import gpu

    gpu.check()
    return gpu.stream()


def run_all(
    task: Callable[[Any], Any], units: Iterable[Any], halt: NDArray[np.uint8] | None = None, *, brief: bool = False
) -> list[Any]:
    """Run task(unit) for every unit on the threads; kernels release the interpreter lock.

    Results come in the order of the units. Ctrl-C sets halt[0], at which kernels stop at their next pair, drops what
    has not begun, and is raised again. It is heard by the thread that calls, so this one works itself only where the
    work is `brief` and there is but one thread.
    """
    work = list(units)
    count = min(threads(), len(work))
    if (count <= 1 and brief) or getattr(_THREAD, "serves", False):
        return [task(unit) for unit in work]
    results: list[Any] = [None] * len(work)
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
        return results
    except BaseException:
        left.clear()
        if halt is not None:
            halt[0] = 1
        wait(futures)  # nothing may be at work on the caller's arrays once this is over
        raise
    finally:
        if halt is not None:
            halt[0] = 0


def _pool(count: int) -> ThreadPoolExecutor:
    """So many threads, started once: a sweep of a small model is shorter than their start."""
    if count not in _POOLS:
        _POOLS[count] = ThreadPoolExecutor(count, "bisimetric")
    return _POOLS[count]


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_POOLS.clear)


def single_thread() -> Any:
    """Context in which BLAS and LAPACK use one thread, so that results do not depend on how many there are."""
    global _BLAS
    if _BLAS is None:
        try:
            from threadpoolctl import ThreadpoolController
        except ImportError:  # only rounding may then depend on the threads of BLAS
            return nullcontext()
        _BLAS = ThreadpoolController()  # type: ignore[no-untyped-call]
    return _BLAS.limit(limits=1, user_api="blas")
