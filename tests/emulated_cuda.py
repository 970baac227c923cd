"""A stand-in for CuPy on the host: arrays are NumPy's, and the CUDA sources are compiled as plain C++.

A launch is a loop over its blocks and threads, and a warp has one lane. This runs the arithmetic of the kernels and all
of the code around them, but no parallelism: races, shared memory and shuffles are seen on a device only.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

COMPILER = shutil.which("g++") or shutil.which("clang++")
_CTYPES = {np.int64: ctypes.c_int64, np.float64: ctypes.c_double, np.uint8: ctypes.c_uint8}
_FOLDER = Path(tempfile.gettempdir()) / "bisimetric-emulated"


def _kind_of(parameter: str) -> type:
    if "*" in parameter:
        return np.ndarray
    return np.float64 if "double" in parameter else np.uint8 if "char" in parameter else np.int64


class HostModule:
    """A CUDA source compiled for the host."""

    def __init__(self, code: str, options: tuple[str, ...]) -> None:
        import hashlib

        flags = [option for option in options if option.startswith(("-D", "-std"))]
        name = hashlib.sha256((code + " ".join(flags)).encode()).hexdigest()[:24]
        _FOLDER.mkdir(exist_ok=True)
        library = _FOLDER / f"{name}.so"
        if not library.exists():
            mine = f"{name}-{os.getpid()}"  # several processes may build the same one
            source, part = _FOLDER / f"{mine}.cpp", _FOLDER / f"{mine}.part"
            source.write_text(code)
            assert COMPILER is not None
            command = [COMPILER, "-O2", "-shared", "-fPIC", *flags, "-o", str(part), str(source)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            expanded = [COMPILER, "-E", "-P", *flags, str(source)]
            seen = subprocess.run(expanded, check=True, capture_output=True, text=True).stdout
            words = _FOLDER / f"{mine}.words"
            words.write_text(seen)
            words.rename(library.with_suffix(".txt"))
            part.rename(library)
        self.library = ctypes.CDLL(str(library))
        self.expanded = library.with_suffix(".txt").read_text()

    def parameters(self, name: str) -> list[type]:
        """What a kernel takes, by its source: arrays, whole numbers or others."""
        (listed,) = re.findall(rf"\bvoid\s+{name}\s*\(([^)]*)\)", self.expanded)
        return [_kind_of(parameter) for parameter in listed.split(",")]

    def compile(self) -> None:
        """Done already."""

    def get_function(self, name: str) -> Any:
        function, kinds = getattr(self.library, name), self.parameters(name)

        def call(
            grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], shared_mem: int = 0
        ) -> None:
            del shared_mem
            self.library.launch_shape(grid[0], grid[1] if len(grid) > 1 else 1, block[0])
            given = [np.ndarray if isinstance(argument, np.ndarray) else type(argument) for argument in arguments]
            assert given == kinds, (name, given, kinds)
            values = []
            for argument in arguments:
                if isinstance(argument, np.ndarray):
                    assert argument.flags.c_contiguous, name
                    values.append(ctypes.c_void_p(argument.ctypes.data))
                else:
                    values.append(_CTYPES[type(argument)](argument))
            function(*values)

        call.max_dynamic_shared_size_bytes = 0  # type: ignore[attr-defined]
        return call


class OnDevice(np.ndarray):
    """An array that says that it is on a device."""

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.__array_interface__


def fake_cupy() -> Any:
    """A module that looks like CuPy as far as the package uses it."""
    names = {name: getattr(np, name) for name in dir(np) if not name.startswith("_")}
    runtime = SimpleNamespace(
        CUDARuntimeError=RuntimeError,
        driverGetVersion=lambda: 13000,
        getDeviceCount=lambda: 1,
        memGetInfo=lambda: (1 << 30, 1 << 30),
    )
    cuda = SimpleNamespace(runtime=runtime, Device=lambda: SimpleNamespace(attributes={"MultiProcessorCount": 1}))
    names |= {
        "asnumpy": np.array,
        "RawModule": HostModule,
        "cuda": cuda,
        "lanes_of_a_warp": 1,
        "get_default_memory_pool": lambda: SimpleNamespace(free_bytes=lambda: 0),
    }
    return SimpleNamespace(**names)
