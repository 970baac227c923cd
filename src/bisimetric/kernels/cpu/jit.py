"""How kernels are compiled: cached on disk, without the interpreter lock, IEEE division."""

from typing import Any

from numba import njit

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
kernel = njit(**OPTIONS)
REASSOCIATE = {"reassoc", "contract", "nsz", "arcp"}  # sums may be vectorised
