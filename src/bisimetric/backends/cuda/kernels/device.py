"""The CUDA device: CuPy loaded when it is needed, kernels compiled at run time, and errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ....kinds import Array, Precision
from ...errors import DeviceError, device_failed

_HEADERS = ("common.cuh", "simplex.cuh", "scaling.cuh", "strips.cuh")
_OLDEST = (12, 0)  # of the CUDA driver
_PINNED_BYTES = 64 << 20  # the host's paging may not be tied down by more
_CALLS: dict[Any, Any] = {}
PARTS = {  # lanes that share a pair of supports up to 8, 12, 20 and 32: float32 and 64
    "SINKHORN_PARTS": (2, 2),
    "EXACT_PARTS": (2, 4),
    "EXACT_PARTS_12": (4, 4),
    "EXACT_PARTS_20": (8, 8),
    "EXACT_PARTS_32": (16, 16),
}


def cupy() -> Any:
    """CuPy, or a clear error."""
    try:
        import cupy as module
    except ImportError as error:
        raise DeviceError(
            f"a CUDA device needs CuPy, which could not be loaded ({error}). Install it with "
            'pip install "bisimetric[gpu]" (for CUDA 12: "bisimetric[cuda12]"), or use the CPU.'
        ) from None
    return module


@cache
def check() -> None:
    """Raise `DeviceError` unless there is a device to work on."""
    cuda = cupy().cuda
    failed = cuda.runtime.CUDARuntimeError
    try:
        driver = cuda.runtime.driverGetVersion()
    except failed as error:
        raise DeviceError(f"no CUDA driver answers ({error}). Install NVIDIA's driver, or use the CPU.") from None
    version = (driver // 1000, driver % 1000 // 10)
    if driver == 0:
        raise DeviceError("no CUDA driver is installed. Install NVIDIA's driver, or use the CPU.")
    if version < _OLDEST:
        raise DeviceError(
            f"the CUDA driver supports version {version[0]}.{version[1]}; {_OLDEST[0]}.{_OLDEST[1]} or newer is "
            "needed. Update the driver, or use the CPU."
        )
    try:
        count = cuda.runtime.getDeviceCount()
    except failed as error:
        raise DeviceError(
            f"no CUDA device can be used ({error}). Check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the CPU."
        ) from None
    if count == 0:
        raise DeviceError("no CUDA device was found. Check CUDA_VISIBLE_DEVICES, or use the CPU.")


def source(name: str) -> str:
    """The text of a kernel file with what it builds on."""
    folder = Path(__file__).parent
    return "\n".join((folder / part).read_text(encoding="utf-8") for part in (*_HEADERS, name))


def options(dtype: Precision) -> tuple[str, ...]:
    """How kernels are compiled; the fast arithmetic touches single precision only."""
    kind = "double" if dtype == np.float64 else "float"
    shared = (f"-D{name}={lanes[kind == 'double']}" for name, lanes in PARTS.items())
    return ("-std=c++17", f"-DREAL={kind}", *shared, *(("--use_fast_math",) if kind == "float" else ()))


def kernel(file: str, name: str, dtype: Precision) -> Any:
    """A compiled kernel."""
    key = (file, name, dtype.char)
    if key not in _CALLS:
        if (file, dtype.char) not in _CALLS:
            try:
                module = cupy().RawModule(code=source(file), options=options(dtype))
                module.compile()
            except Exception as error:
                raise DeviceError(f"{file} could not be compiled for this device: {error}") from None
            _CALLS[file, dtype.char] = module
        _CALLS[key] = _CALLS[file, dtype.char].get_function(name)
    return _CALLS[key]


@cache
def lanes() -> int:
    """Threads that work on one pair: a warp."""
    return int(getattr(cupy(), "lanes_of_a_warp", 32))


def parts(kind: str, width: int, dtype: Precision) -> int:
    """Lanes that share a pair in the kernel for supports of at most `width` states."""
    if lanes() == 1 or (kind == "sinkhorn" and width == 4):
        return 1
    return 2 if width == 4 else PARTS[f"{kind.upper()}_PARTS{f'_{width}' if width > 8 else ''}"][dtype == np.float64]


@cache
def cache_bytes() -> int:
    """Bytes of the second-level cache."""
    return int(cupy().cuda.Device().attributes.get("L2CacheSize", 32 << 20))


@cache
def processors() -> int:
    """Multiprocessors of the device."""
    return int(cupy().cuda.Device().attributes["MultiProcessorCount"])


def device_name() -> str:
    """What the device calls itself."""
    return str(cupy().cuda.runtime.getDeviceProperties(0)["name"].decode())


def launch(
    file: str,
    name: str,
    dtype: Precision,
    blocks: int | tuple[int, int],
    threads: int,
    arguments: Sequence[object],
    shared: int = 0,
) -> None:
    """Start a kernel on the current stream; whole numbers are handed to it as int64, and others as double."""
    call = kernel(file, name, dtype)
    if shared > 48 << 10 and call.max_dynamic_shared_size_bytes < shared:
        call.max_dynamic_shared_size_bytes = shared
    grid = (blocks,) if isinstance(blocks, int) else blocks
    call(grid, (threads,), tuple(map(_as_parameter, arguments)), shared_mem=shared)


def _as_parameter(argument: object) -> object:
    if isinstance(argument, int):  # truth values, too
        return np.int64(argument)
    return np.float64(argument) if isinstance(argument, float) else argument


def over(count: int) -> tuple[int, int]:
    """(blocks, threads) for a loop over `count` entries."""
    threads = 8 * lanes()
    return max(1, min(-(-count // threads), 16 * processors())), threads


def over_rows(rows: int, width: int, each: int = 1) -> tuple[tuple[int, int], int]:
    """(blocks, threads) for a loop over the entries of each row, at least `each` of them a thread."""
    threads = 8 * lanes()
    return (max(1, min(-(-width // (threads * each)), -(-64 * processors() // rows))), rows), threads


def stream() -> AbstractContextManager[object]:
    """A stream that waits for no other, as a context."""
    streams = getattr(cupy().cuda, "Stream", None)
    apart: AbstractContextManager[object] = nullcontext() if streams is None else streams(non_blocking=True)
    return apart


def captured(work: Callable[[], None]) -> Any:
    """What `work` launches, as one graph that can be launched again; None where graphs cannot be made.

    All arrays must stay where they are as long as the graph is used.
    """
    apart: Any = stream()
    if isinstance(apart, nullcontext):
        return None
    try:
        with apart:
            apart.begin_capture()
            try:
                work()
            finally:
                graph = apart.end_capture()
    except RuntimeError:  # not all that was started can be captured
        return None
    return graph


def put(target: Any, values: Array) -> None:
    """Give an array of the device other values, from one of the host of the same shape."""
    if isinstance(target, np.ndarray):  # emulated
        target[...] = values
    else:
        target.set(np.ascontiguousarray(values, target.dtype))


class HostRoom:
    """Room on the host, out of reach of its paging, in which arrays of the device are read."""

    def __init__(self) -> None:
        self._room: Any = None
        self.guest: object = None  # whose copy is there

    def read(self, array: Any) -> Any:
        """A copy of the array, until the next one is read; large ones get memory of their own."""
        module = cupy()
        pinned = getattr(module.cuda, "alloc_pinned_memory", None)
        if pinned is None or array.nbytes > _PINNED_BYTES:
            return module.asnumpy(array)
        if self._room is None or self._room.nbytes < array.nbytes:
            self._room = np.frombuffer(pinned(array.nbytes), np.uint8, array.nbytes)
        out = self._room[: array.nbytes].view(array.dtype).reshape(array.shape)
        array.get(out=out)
        return out


@contextmanager
def memory_errors(needs: str) -> Iterator[None]:
    """Turn running out of device memory, or a device that fails, into a clear error; `needs` says what is wanted."""
    try:
        yield
    except DeviceError:
        raise
    except RuntimeError as error:  # CuPy's own errors are RuntimeErrors, memory included or as MemoryError
        if not device_failed(error):
            raise
        raise DeviceError(f"the device failed ({error}). {needs} Try again, or use the CPU.") from None
    except MemoryError as error:
        free = 1e-9 * free_bytes()
        raise DeviceError(
            f"out of device memory ({error}); {free:.3g} GB are free. {needs} "
            "Use float32, keep nothing between sweeps, take fewer states, or use the CPU."
        ) from None


def free_bytes() -> int:
    """Device memory that can still be had, what CuPy holds back included."""
    module = cupy()
    free, _ = module.cuda.runtime.memGetInfo()
    return int(free) + int(module.get_default_memory_pool().free_bytes())
