"""Work in parts: generators that stop wherever they would wait for a device, so that others can go on meanwhile.

One run with a few hundred states leaves a large device idle while the host works, and the host idle while the device
does. A `Batch` goes round its members, each on a stream of its own: their kernels run side by side, and the host's part
of one is done while the device sweeps for the others. Results are those of each alone.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from .kernels.select import stream

T = TypeVar("T")
Parts = Generator[None, None, T]


def finished(parts: Parts[T]) -> T:
    """Do all parts at once; returns what they make."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: T = end.value
            return result


class Batch(Generic[T]):
    """Up to `size` works in parts, side by side on one device.

    Args:
        size: how many.
        device: "cpu" (each part is whole, so works go on in turn) or "cuda".
    """

    def __init__(self, size: int, device: str) -> None:
        self._size, self._device = size, device
        self._idle: list[Any] = []  # streams that are used again, with the memory that CuPy holds for each
        self._members: dict[str, tuple[Parts[T], Any]] = {}
        self._ended: list[tuple[str, T | Exception]] = []  # kept here, so that Ctrl-C in a round loses none

    def __len__(self) -> int:
        return len(self._members)

    @property
    def full(self) -> bool:
        return len(self._members) >= self._size

    def add(self, key: str, parts: Parts[T]) -> None:
        """Take in a work and do its first part; results come with its key. The batch must not be full."""
        if not self._idle:
            self._idle.append(stream(self._device))
        with self._idle[-1]:
            next(parts)
        self._members[key] = parts, self._idle.pop()

    def go_on(self, error: type[BaseException] | None = None) -> list[tuple[str, T | Exception]]:
        """One part of each; returns those that ended, with their results or errors.

        With an `error`, it is raised in each of them instead, where they stopped.
        """
        for key, (parts, own_stream) in list(self._members.items()):
            try:
                with own_stream:
                    if error is None:
                        next(parts)
                    else:
                        parts.throw(error)
            except StopIteration as end:
                self._ended.append((key, end.value))
            except Exception as failure:
                self._ended.append((key, failure))
            else:
                continue
            self._idle.append(self._members.pop(key)[1])
        ended, self._ended = self._ended, []
        return ended
