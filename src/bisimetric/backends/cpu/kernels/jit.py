"""How kernels are compiled: kept on disk, without the interpreter lock, IEEE arithmetic.

Sums are added in the order in which they are written, never in one that the compiler likes better. A kernel's result
would otherwise depend on what was inlined into it, and so on what had been compiled before. Where a sum is to be fast,
its parts are written out.

Compiling is what a first call waits for, so no more is compiled than is used: only kernels that Python calls have a way
in from Python, which takes as long to compile as many a kernel, and constants do not make kernels of their own.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types

from ....kinds import Keywords
from .cache import keep_compiled

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: Keywords = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
_WITHIN: Keywords = {**_OPTIONS, "no_cpython_wrapper": True}
_MINIMA = {"nnan", "ninf", "nsz"}  # lets minima be vectorised; changes no result for finite numbers


def kernel(function: Function) -> Function:
    """Compile a function that Python calls."""
    return cast(Function, _kept(njit(**_OPTIONS)(function)))


def part(function: Function) -> Function:
    """Compile a function that kernels call, and nobody else: Python has no way in, and would find nothing there."""
    return cast(Function, _kept(njit(**_WITHIN)(function)))


def minima_part(function: Function) -> Function:
    """Compile a part that takes minima of finite numbers."""
    return cast(Function, _kept(njit(**_WITHIN, fastmath=_MINIMA)(function)))


def _kept(dispatcher: Any) -> Any:
    """Keep what is compiled; a call with a constant, as in f(x, 0), is compiled for any number."""
    template = dispatcher.get_call_template

    def of_any_number(args: Any, named: Any) -> Any:
        return template(tuple(map(types.unliteral, args)), {name: types.unliteral(one) for name, one in named.items()})

    dispatcher.get_call_template = of_any_number
    return keep_compiled(dispatcher)


def inlined(function: Function) -> Function:
    """Write a part of a kernel out where it is called: references to its arguments are counted less than in a call."""
    return cast(Function, njit(**_OPTIONS, inline="always")(function))
