"""How kernels are compiled: cached on disk, without the interpreter lock, IEEE arithmetic.

Sums are added in the order in which they are written, never in one that the compiler likes better. A kernel's result
would otherwise depend on what was inlined into it, and so on what had been compiled before. Where a sum is to be fast,
its parts are written out.
"""

from typing import Any

from numba import njit

OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}
kernel = njit(**OPTIONS)
