"""How kernels are compiled: cached on disk, without the interpreter lock, IEEE division."""

from numba import njit

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
kernel = njit(**OPTIONS)
