"""The fixed-point driver: sweep, certify, accelerate, until the error is small enough.

Where the transport is non-expansive in d, F is a c_T-contraction and has one fixed point d~. Let d' be one computed
sweep from d, ρ = ‖d' − d‖∞, and let e bound the error of a computed transport. Then

    ‖d' − d~‖∞ ≤ c_T (ρ + e) / (1 − c_T).

This is the stopping rule: `tol` is an error on the answer, and sweeps go on until the right side (with what rounding
and lumping may add) is at most tol. Between sweeps distances may be moved (`acceleration`); what is returned is always
what a sweep left, or where it was broken off, and then its error counts how far it was moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ..backends.protocol import Distances, Sweep, Sweeper
from ..status import Status
from .acceleration import Acceleration, acceleration_of
from .pace import STUCK, Pace


class Progress(NamedTuple):
    """What a progress callback sees after each sweep."""

    sweep: int
    error: float
    tol: float
    change: float
    seconds: float


class Aim(NamedTuple):
    """How exact an answer is to be: its error, what it has before any sweep, and how exact transports must be."""

    tol: float
    floor: float
    accuracy: float


class Watch(NamedTuple):
    """Who is told of a solve: of each sweep, and every so many seconds, so that work can be kept. They read only.

    on_checkpoint is told where a whole turn is done, on_swept also between a sweep and what follows it (`pending`).
    """

    on_progress: Callable[[Progress], None] | None
    on_checkpoint: Callable[[FixedPoint], None] | None = None
    checkpoint_every: float = 60.0
    on_swept: Callable[[FixedPoint], None] | None = None


class FixedPoint:
    """A solve under way: the distances, and what is known of their error.

    Attributes: d; error (‖d − d~‖∞ at most); sweeps, iterations (of transports); seconds; pace, acceleration (what is
    done between sweeps; None for sweeps alone, as theorems count them), pending (the last sweep, until what follows it
    is done).
    """

    def __init__(self, sweeper: Sweeper, d: Distances, aim: Aim, *, fresh: bool, accelerate: bool, pace: Pace) -> None:
        """`fresh`: d is 0, so that the first sweep chooses no plans."""
        self.sweeper, self.d, self.aim, self._fresh = sweeper, d, aim, fresh
        self.error = max(sweeper.comparison.largest, d.largest())
        self.sweeps, self.iterations, self._began = 0, 0, time.perf_counter()
        self.pace = pace
        self.pending: Sweep | None = None
        self.acceleration = acceleration_of(sweeper, d, pace) if accelerate else None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def run(self, max_sweeps: int, watch: Watch) -> Status:
        """Sweep until the error is small enough, or something else ends it; says what."""
        try:
            status = self._run(max_sweeps, watch)
        except KeyboardInterrupt:
            # Each entry is of the sweep that was broken off or of the one before; a sweep brings d no farther from the
            # fixed point, so the error of the one before covers both.
            status = Status.INTERRUPTED
            self._bound_by_size()
        self.sweeper.solver.finish()
        self.d.freeze()
        return status

    def _bound_by_size(self) -> None:
        """Bound the error of what was broken off on its way: it and the metric are between 0 and their largest."""
        self.d.clip()
        self.error = min(self.error, max(self.sweeper.comparison.largest * (1.0 + 1e-12), self.d.largest()))

    def _run(self, max_sweeps: int, watch: Watch) -> Status:
        saved = time.perf_counter()
        if self._fresh and self.acceleration is not None:
            self._fresh = not self.acceleration.begin(self.d)
        if self.pending is not None and self.acceleration is not None and self.sweeps < max_sweeps:
            self._accelerate(self.acceleration, self.pending)
        while self.sweeps < max_sweeps:
            report = self._sweep(watch)
            if self.error <= self.aim.tol:
                return Status.CONVERGED
            # No progress over several sweeps: what is left is round-off or unfinished transports.
            self.pace.progress(report.change)
            if self.pace.stuck >= STUCK and report.change <= report.transport_error + 4.0 * report.rounding:
                reached = report.transport_error <= max(self.aim.accuracy, report.rounding)
                limited = self.sweeper.transport.iterative and not reached
                return Status.TRANSPORT_LIMIT if limited else Status.ROUNDING
            if self.acceleration is not None and self.sweeps < max_sweeps:  # the last sweep is that of the certificate
                self.pending = report
                if watch.on_swept is not None and not self._fresh and self.acceleration.at_rest:
                    watch.on_swept(self)
                self._accelerate(self.acceleration, report)
            due = time.perf_counter() - saved >= watch.checkpoint_every
            at_rest = self.acceleration is None or self.acceleration.at_rest
            if watch.on_checkpoint is not None and due and at_rest:
                watch.on_checkpoint(self)
                saved = time.perf_counter()
        return Status.SWEEP_LIMIT

    def _sweep(self, watch: Watch) -> Sweep:
        c_T = self.sweeper.comparison.c_T
        report = self.sweeper.sweep(self.d, self.aim.accuracy)
        self.sweeps, self.iterations = self.sweeps + 1, self.iterations + report.iterations
        step_error = c_T * (report.change + report.transport_error) + report.rounding
        self.error = step_error / (1.0 - c_T) + self.aim.floor
        if watch.on_progress is not None:
            watch.on_progress(Progress(self.sweeps, self.error, self.aim.tol, report.change, self.seconds))
        return report

    def _accelerate(self, acceleration: Acceleration, report: Sweep) -> None:
        """Bring d nearer to the fixed point; its error is then that of the sweep, and how far d moved since."""
        c_T, swept, self.pending = self.sweeper.comparison.c_T, self.error, None
        if self._fresh:
            self._fresh = False
            return
        goal = ((self.aim.tol - self.aim.floor) * (1.0 - c_T) - report.rounding) / c_T - report.transport_error
        try:
            acceleration.improve(self.d, report, max(goal, 0.0))
        finally:
            self.error = swept + acceleration.moved
