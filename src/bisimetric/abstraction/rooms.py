"""Where the sweeps of one call are done, and the part of the store that each of its cross metrics has."""

from __future__ import annotations

from pathlib import Path


class Rooms:
    """A cluster, or none, and rooms in its store: one after the other, so that the same call finds them again."""

    def __init__(self, cluster: object, store: Path | str | None) -> None:
        self.cluster, self._store, self._count = cluster, None if store is None else Path(store).absolute(), 0

    @property
    def folder(self) -> Path | None:
        """A folder that workers see; None for one of this machine's own."""
        return self._store

    def next(self) -> Path | None:
        if self._store is None:
            return None
        self._count += 1
        return self._store / f"proposal-{self._count}"
