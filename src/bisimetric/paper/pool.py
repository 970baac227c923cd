"""Runs in parallel processes: each writes its own result, and the parent only keeps count.

Processes are spawned, not forked, so that nothing compiled or threaded is copied into them. On a GPU each has a batch
of runs. Runs whose process dies, or whose device fails in company, are tried again, each in a process of its own. Timed
runs come last, one at a time.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from ..backends.errors import device_failed
from ..backends.threads import set_threads
from ..policy.batch import Batch
from . import store
from .jobs import Arrays, Job, job_id

_TRIES = 2
_DEVICE_FAILED = 3  # exit status of a process whose device failed
_SIDE_BY_SIDE = 4  # runs of a process on a GPU: while the host works for one, the others sweep


@dataclass(frozen=True)
class Failure:
    """A run that could not be done."""

    run: str
    reason: str


def run_jobs(
    jobs: Iterable[Job],
    folder: Path,
    *,
    workers: int,
    device: str,
    version: str,
    done: Callable[[Job], None],
    say: Callable[[str], None],
    seconds: float | None = None,
) -> list[Failure]:
    """Do all jobs and keep their results in the folder; returns those that failed. Ctrl-C stops the processes.

    The longest runs come first, so that all processes end about together. With a limit in seconds the shortest do,
    so that many are done when the time is up; those under way are then stopped, and TimeoutError is raised.
    """
    together: list[Job] = []
    alone: list[Job] = []
    for job in sorted(jobs, key=attrgetter("cost"), reverse=seconds is None):
        (alone if job.alone else together).append(job)
    end = math.inf if seconds is None else time.monotonic() + seconds
    side_by_side = _SIDE_BY_SIDE if device == "cuda" else 1
    place = _Place(str(folder), device, version)
    failures = _Crew(place, workers, side_by_side, 1, done, say).run(together, end)
    return failures + _Crew(place, 1, 1, None, done, say).run(alone, end)


class _Place(NamedTuple):
    """Where runs are kept, and what made them."""

    folder: str
    device: str
    version: str


class _Worker:
    def __init__(self, threads: int | None, together: int, place: _Place) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, threads, together, place), daemon=True)
        self.process.start()
        other.close()
        self.jobs: dict[str, Job] = {}

    def give(self, job: Job) -> None:
        self.jobs[job_id(job)] = job
        with suppress(OSError):  # it died just now, as the next look at it will show
            self.pipe.send(job)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(5.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


class _Crew:
    """Processes at work on a list of jobs: `together` in each, up to `workers` of them."""

    def __init__(
        self,
        place: _Place,
        workers: int,
        together: int,
        threads: int | None,
        done: Callable[[Job], None],
        say: Callable[[str], None],
    ) -> None:
        self._place, self._most, self._together, self._threads = place, workers, together, threads
        self._done, self._say = done, say
        self._waiting: deque[Job] = deque()
        self._tries: dict[str, int] = {}  # deaths of a process that had this run only
        self._suspects: set[str] = set()  # runs whose process died: they are tried again alone
        self._failures: list[Failure] = []
        self._workers: list[_Worker] = []

    def run(self, jobs: list[Job], end: float) -> list[Failure]:
        """Do all jobs, until a time of the monotonic clock."""
        self._waiting.extend(jobs)
        try:
            while self._waiting or any(worker.jobs for worker in self._workers):
                for worker in [w for w in self._workers if not w.jobs and not w.process.is_alive()]:
                    self._workers.remove(worker)
                self._hand_out()
                if time.monotonic() > end:
                    raise TimeoutError
                ready = wait([worker.pipe for worker in self._workers if worker.jobs], timeout=1.0)
                for worker in [w for w in self._workers if w.pipe in ready]:
                    self._hear(worker)
        finally:
            for worker in self._workers:
                worker.stop()
        return self._failures

    def _room(self, worker: _Worker, job: Job) -> bool:
        """Whether it can take a job; a suspect must be alone."""
        careful = job_id(job) in self._suspects or any(name in self._suspects for name in worker.jobs)
        return len(worker.jobs) < (1 if careful else self._together)

    def _hand_out(self) -> None:
        while self._waiting:
            able = [worker for worker in self._workers if self._room(worker, self._waiting[0])]
            chosen = min(able, key=lambda worker: len(worker.jobs), default=None)
            if (chosen is None or chosen.jobs) and len(self._workers) < self._most:
                self._workers.append(_Worker(self._threads, self._together, self._place))
                chosen = self._workers[-1]
            if chosen is None:
                return
            chosen.give(self._waiting.popleft())

    def _hear(self, worker: _Worker) -> None:
        """Take in what a process says of a run, or that it is gone."""
        try:
            name, error, leaves = worker.pipe.recv()
        except (EOFError, OSError):
            self._died(worker)
            return
        if error is not None:
            self._failures.append(Failure(name, error))
        job = worker.jobs.pop(name)
        if leaves:  # its device failed: the next run gets a fresh process
            self._workers.remove(worker)
            worker.stop()
        self._done(job)

    def _died(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.process.join()
        self._suspects.update(worker.jobs)
        for name, job in worker.jobs.items():
            if len(worker.jobs) == 1:
                self._tries[name] = self._tries.get(name, 0) + 1
            reason = f"its process died (exit status {worker.process.exitcode})"
            if self._tries.get(name, 0) < _TRIES:
                self._say(f"{name}: {reason}; trying once more.")
                self._waiting.append(job)
            else:
                self._failures.append(Failure(name, reason + " twice"))
                self._done(job)


def _serve(
    pipe: Connection[tuple[str, str | None, bool], Job], threads: int | None, together: int, place: _Place
) -> None:
    """What a process does: runs, up to so many side by side, until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    set_threads(threads)
    device = place.device
    batch: Batch[Arrays] = Batch(together, device)
    jobs: dict[str, Job] = {}
    broken = False
    try:
        while not broken:
            outcomes: list[tuple[str, Arrays | Exception]] = []
            while not batch.full and (not jobs or pipe.poll()):
                job = pipe.recv()
                jobs[job_id(job)] = job
                try:
                    batch.add(job_id(job), partial(job.work, job.on or device))
                except Exception as error:
                    outcomes.append((job_id(job), error))
            for name, outcome in outcomes + batch.go_on():
                broken = isinstance(outcome, Exception) and device_failed(outcome)
                if broken and len(jobs) > 1:  # it may have been another's: all are tried again, each alone
                    os._exit(_DEVICE_FAILED)
                job = jobs.pop(name)
                pipe.send((name, _kept(Path(place.folder), job, outcome, job.on or device, place.version), broken))
    except (EOFError, OSError):  # the parent is gone
        return


def _kept(folder: Path, job: Job, outcome: Arrays | Exception, device: str, version: str) -> str | None:
    """Keep what a run made; why that cannot be done, or nothing."""
    try:
        if isinstance(outcome, Exception):
            raise outcome
        store.save(folder, job, outcome, device, version)
    except Exception as error:
        if os.environ.get("BISIMETRIC_TRACEBACKS"):
            traceback.print_exception(error)
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None
