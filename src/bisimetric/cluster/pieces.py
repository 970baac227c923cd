"""Independent pieces of work on a cluster: each is done whole by one thread of a worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ..backends.threads import alone
from .crew import Crew

T = TypeVar("T")
Given = TypeVar("Given")


class Broken(NamedTuple):
    """A piece that ended in an error, with what it was and the words it came with."""

    error: Exception


def pieces(
    crew: Crew, words: str, work: Callable[[Given], T], given: Sequence[Given], *, end: float = math.inf
) -> Iterator[tuple[int, T | Broken]]:
    """Do work on all that is given; yields (number, result, or what went wrong) as they come.

    Args:
        crew: who works. words: what it is, for Dask's dashboard.
        work: a pure function, as it may be called again where a worker is lost.
        end: time of the monotonic clock at which TimeoutError is raised.
    """
    return crew.run(words, partial(_done, work), given, [str(k) for k in range(len(given))], end=end)


def _done(work: Callable[[Any], Any], piece: Any) -> Any:
    try:
        with alone():
            return work(piece)
    except Exception as error:
        return Broken(error)
