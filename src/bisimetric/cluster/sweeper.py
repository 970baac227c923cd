"""F at work on a cluster: each sweep is one task for each tile, from one whole version of the distances to the next."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ..backends.comparison import Comparison
from ..backends.protocol import Pending, Sweep, Sweeper
from ..kinds import Floats
from ..transport import Transport
from .distances import ClusterDistances
from .paths import Paths
from .tasks import Report, Task, Work, sweep_tile
from .tiles import Frame
from .versions import Version

if TYPE_CHECKING:
    from ..backends.select import Kind
    from .engine import ClusterBackend

_WORDS = {"full": "sweep", "rough": "sweep with independent plans", "kept": "sweep with kept plans"}
_SAMPLE = 1 << 24  # entries, as in `protocol.mean_difference`


class ClusterSweeper(Sweeper):
    """F by tasks.

    Attributes: memory, notes (versions of what solvers remember, and of what decides distances; −1 for none); reports
    (of the tiles in the last sweep).
    """

    def __init__(
        self,
        backend: ClusterBackend,
        comparison: Comparison,
        transport: Transport,
        remember: bool,
        *,
        in_parts: bool = False,
    ) -> None:
        """`in_parts`: the comparison is that of an outline, which knows nothing of rows but their sizes."""
        super().__init__(backend, comparison, transport, remember)
        self.engine, self.in_parts = backend, in_parts
        self.memory = self.notes = -1
        self.reports: list[Report] = []
        self._choices = False
        self._paths: Paths | None = None
        self._before = Version()  # what the last sweep was of
        self._holders: dict[tuple[int, int], str] = {}  # workers that may still hold what is remembered of a tile
        store, frame = backend.store, Frame.of(comparison)
        self.work = Work(
            str(store.folder),
            store.passing,
            backend.run,
            backend.grid,
            frame,
            transport,
            backend.dtype.name,
            remember,
        )

    def sweep(self, d: ClusterDistances, accuracy: float = np.inf) -> Sweep:
        reports = self._stage("full", d, accuracy)
        change = max(report.change for report in reports)
        error = max(report.transport_error for report in reports)
        return Sweep(change, error, self.solver.rounding(d.largest()), sum(report.iterations for report in reports))

    def sweep_roughly(self, d: ClusterDistances) -> float:
        return max(report.change for report in self._stage("rough", d))

    def keep_choices(self) -> bool:
        self._choices = bool(self.solver.keeps_plans)
        return self._choices

    def sweep_kept(self, d: ClusterDistances) -> float:
        return max(report.change for report in self._stage("kept", d))

    def sweep_frozen(self, d: ClusterDistances) -> float:
        return max(report.change for report in self._stage("frozen", d))

    def mean_change(self, d: ClusterDistances) -> float:
        step = -(-d.shape[0] * d.shape[1] // _SAMPLE)
        after, before = (self.engine.sample(version, d.shape, step) for version in (d.version(), self._before))
        return float((after - before).mean(dtype=np.float64))

    @property
    def path_share(self) -> float:
        return 0.0 if self.in_parts else float(np.mean(self.comparison.rows.sizes == 1)) ** 2

    def find_paths(self) -> None:
        if self._paths is None:
            self._paths = Paths(self.comparison, self.transport, self.engine.dtype.name)
        self._paths.find(self.engine.store, self.work.grid, self.notes)

    def follow_paths(self, d: ClusterDistances) -> None:
        assert self._paths is not None
        d.change(self._paths.follow)

    def start(self, d: ClusterDistances, count: int, stop: float) -> Pending:
        raise NotImplementedError("runs of solve_policy do not sweep on a cluster.")

    def bounds(self, d: ClusterDistances, accuracy: float) -> tuple[Floats, Floats]:
        raise NotImplementedError("results are brought home before they are asked for bounds.")

    def _stage(self, kind: Kind, d: ClusterDistances, accuracy: float = np.inf) -> list[Report]:
        """One sweep of all tiles; d is then the version that they made."""
        source, target = d.version(), self.engine.new_version()
        tiles = self.work.grid.tiles
        tasks = [self._task(kind, tile, source, target, accuracy) for tile in tiles]
        words = f"bisimetric {_WORDS.get(kind, 'sweep with frozen choices')}"
        prefer = [self._holders.get(tile, "") for tile in tiles]
        found: dict[int, Report] = {}
        for number, report in self.engine.crew.run(words, partial(sweep_tile, self.work), tasks, _names(tiles), prefer):
            found[number] = report
            self._holders[report.tile] = report.worker
        self.reports = [found[number] for number in range(len(tiles))]
        self._before = source
        d.become(Version(target, (), max(report.largest for report in self.reports)))
        if kind == "full" and self.remember:
            self.memory = target
        if kind == "kept" and not self.comparison.plain:
            self.notes = target
        self.engine.tidy({"m": {self.memory}, "n": {self.notes}, "d": {self._before.number}})
        return self.reports

    def _task(self, kind: Kind, tile: tuple[int, int], source: Version, target: int, accuracy: float = np.inf) -> Task:
        return Task(kind, tile, source, target, accuracy, self.memory, self.notes, self._choices)


def _names(tiles: list[tuple[int, int]]) -> list[str]:
    return [f"{i}.{j}" for i, j in tiles]
