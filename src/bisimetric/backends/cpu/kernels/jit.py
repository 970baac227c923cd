"""How kernels are compiled: kept on disk, without the interpreter lock, IEEE arithmetic.

Sums are added in the order in which they are written, never in one that the compiler likes better. A kernel's result
would otherwise depend on what was inlined into it, and so on what had been compiled before. Where a sum is to be fast,
its parts are written out.
"""

from typing import Any

from numba import njit

from .cache import keep_compiled

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_MINIMA = {"nnan", "ninf", "nsz"}  # lets minima be vectorised; changes no result for finite numbers


def kernel(function: Any) -> Any:
    """Compile a function."""
    return keep_compiled(njit(**_OPTIONS)(function))


def minima_kernel(function: Any) -> Any:
    """Compile a function that takes minima of finite numbers."""
    return keep_compiled(njit(**_OPTIONS, fastmath=_MINIMA)(function))


def inlined(function: Any) -> Any:
    """Write a part of a kernel out where it is called: references to its arguments are counted less than in a call."""
    return njit(**_OPTIONS, inline="always")(function)
