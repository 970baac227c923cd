"""Runs in processes of their own: those that die are tried once more, those that fail are reported, none is lost."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from bisimetric.backends.errors import DeviceError
from bisimetric.paper import pool, store
from bisimetric.paper.jobs import SharpnessJob, job_id
from bisimetric.paper.settings import FULL, QUICK, TEXT


@dataclass(frozen=True)
class Task(SharpnessJob):
    """A run that does as it is told; it notes each try in a folder of its own."""

    what: str = "work"
    notes: str = ""

    def run(self, device):
        name = f"{self.what}-{self.seed}-{os.getpid()}"
        notes = Path(self.notes)
        tries = len(list(notes.glob(f"{self.what}-{self.seed}-*")))
        (notes / f"{name}-{tries}").write_text(device)
        if self.what == "raise":
            raise ArithmeticError("two\nlines")
        if self.what == "device" or (self.what == "device once" and tries == 0):
            raise DeviceError("out of device memory")
        if self.what == "exit" or (self.what == "exit once" and tries == 0):
            os._exit(7)
        if self.what == "kill" or (self.what == "kill once" and tries == 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return {"seed": np.array(self.seed), "process": np.array(os.getpid())}


@dataclass(frozen=True)
class Alone(Task):
    """A timed one."""

    alone = True


class Crew:
    """Runs tasks, and keeps what the pool says."""

    def __init__(self, tmp_path):
        self.folder, self.notes = tmp_path / "results", tmp_path / "notes"
        self.notes.mkdir()
        store.begin(self.folder, QUICK, TEXT, "1.0")
        self.said, self.done = [], []

    def task(self, seed, what="work", kind=Task):
        return kind(2, 0.1, 1.0, (1, 1), seed, what=what, notes=str(self.notes))

    def run(self, tasks, workers=2):
        return pool.run_jobs(
            tasks,
            self.folder,
            workers=workers,
            device="cpu",
            version="1.0",
            done=self.done.append,
            say=self.said.append,
        )

    def run_together(self, tasks, workers=1):
        """As on a GPU: three runs of a process side by side."""
        place = pool._Place(str(self.folder), "cpu", "1.0")
        return pool._Crew(place, workers, 3, 1, self.done.append, self.said.append).run(tasks, math.inf)

    def tries(self, task):
        return len(list(self.notes.glob(f"{task.what}-{task.seed}-*")))


@pytest.fixture
def crew(tmp_path):
    return Crew(tmp_path)


def test_runs_are_done_in_other_processes(crew):
    tasks = [crew.task(seed) for seed in range(6)]
    assert crew.run(tasks) == []
    assert crew.said == []
    assert sorted(crew.done, key=lambda task: task.seed) == tasks
    found = [store.load(crew.folder, task) for task in tasks]
    assert [int(arrays["seed"]) for arrays in found] == list(range(6))
    processes = {int(arrays["process"]) for arrays in found}
    assert os.getpid() not in processes
    assert len(processes) <= 2
    for process in processes:  # all of them are gone
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_those_that_die_and_those_that_fail(crew):
    """One of each kind among others, on two processes."""
    work = [crew.task(seed) for seed in range(3)]
    once = [crew.task(10, "exit once"), crew.task(11, "kill once")]
    dead = [crew.task(20, "exit"), crew.task(21, "kill")]
    wrong = crew.task(30, "raise")
    tasks = [dead[0], work[0], once[0], wrong, work[1], dead[1], once[1], work[2]]
    failures = crew.run(tasks)
    assert {f.run for f in failures} == {job_id(task) for task in (*dead, wrong)}
    assert len(failures) == 3
    reasons = {f.run: f.reason for f in failures}
    assert "died" in reasons[job_id(dead[0])]
    assert "7" in reasons[job_id(dead[0])]
    assert "twice" in reasons[job_id(dead[0])]
    assert "-9" in reasons[job_id(dead[1])]
    assert reasons[job_id(wrong)] == "ArithmeticError: two lines"
    assert [crew.tries(task) for task in (*work, *once, *dead, wrong)] == [1, 1, 1, 2, 2, 2, 2, 1]
    for task in (*work, *once):
        assert int(store.load(crew.folder, task)["seed"]) == task.seed
    for task in (*dead, wrong):
        assert store.load(crew.folder, task) is None
    assert sorted(map(job_id, crew.done)) == sorted(map(job_id, tasks))  # each is counted once
    assert len(crew.said) == 4
    for task in (*once, *dead):
        assert sum(job_id(task) in line for line in crew.said) == 1
    assert all("once more" in line for line in crew.said)


def test_one_process_goes_on_after_deaths(crew):
    tasks = [crew.task(0, "kill"), crew.task(1, "raise"), crew.task(2), crew.task(3, kind=Alone)]
    failures = crew.run(tasks, workers=1)
    assert {f.run for f in failures} == {job_id(task) for task in tasks[:2]}
    assert [int(store.load(crew.folder, task)["seed"]) for task in tasks[2:]] == [2, 3]
    assert len(crew.done) == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_deaths_in_company_are_tried_again_alone(crew, workers):
    work = [crew.task(seed) for seed in range(5)]
    once, dead, wrong = crew.task(10, "kill once"), crew.task(20, "exit"), crew.task(30, "raise")
    tasks = [work[0], once, work[1], work[2], dead, wrong, work[3], work[4]]
    failures = crew.run_together(tasks, workers)
    assert {f.run for f in failures} == {job_id(dead), job_id(wrong)}
    assert sorted(map(job_id, crew.done)) == sorted(map(job_id, tasks))  # each is counted once
    assert all(int(store.load(crew.folder, task)["seed"]) == task.seed for task in (*work, once))
    assert crew.tries(dead) == 3  # in company, and twice alone
    assert crew.tries(wrong) <= 2


def test_bystanders_keep_their_tries(crew):
    """One that dies in company by another's fault may still die once by its own."""
    killers = [crew.task(20, "kill"), crew.task(21, "kill once")]
    (failure,) = crew.run_together(killers)
    assert failure.run == job_id(killers[0])
    assert store.load(crew.folder, killers[1]) is not None


def test_a_failed_device_is_left_by_its_process(crew):
    once, broken = crew.task(1, "device once"), crew.task(2, "device")
    others = [crew.task(seed) for seed in range(10, 14)]
    (failure,) = crew.run_together([others[0], once, others[1], broken, others[2], others[3]])
    assert failure.run == job_id(broken)
    assert failure.reason == "DeviceError: out of device memory"
    assert all(store.load(crew.folder, task) is not None for task in (once, *others))
    assert any("exit status 3" in line for line in crew.said)
    crew.said.clear()
    first, last = crew.task(3, "device"), crew.task(15)
    (failure,) = crew.run([first, last], workers=1)
    assert failure.run == job_id(first)
    assert crew.said == []
    used = {path.name.split("-")[2] for path in crew.notes.glob("*-3-*")}
    assert str(int(store.load(crew.folder, last)["process"])) not in used


def test_nothing_to_do_starts_nothing(crew):
    assert crew.run([]) == []
    assert crew.done == []


def test_results_that_cannot_be_kept_are_reported(crew):
    """Here the place of the result is taken by a folder."""
    task, other = crew.task(0), crew.task(1)
    path = store.path_of(crew.folder, task)
    path.mkdir()
    (path / "full").write_text("x")
    (failure,) = crew.run([task, other])
    assert failure.run == job_id(task)
    assert store.load(crew.folder, other) is not None


def test_an_interrupt_stops_the_processes(crew):
    """As from the callback after a run: what is done stays, and no process is left."""

    def stop(task):
        raise KeyboardInterrupt

    tasks = [crew.task(seed) for seed in range(4)]
    with pytest.raises(KeyboardInterrupt):
        pool.run_jobs(tasks, crew.folder, workers=2, device="cpu", version="1.0", done=stop, say=crew.said.append)
    kept = [arrays for task in tasks if (arrays := store.load(crew.folder, task)) is not None]
    assert kept
    for arrays in kept:
        with pytest.raises(ProcessLookupError):
            os.kill(int(arrays["process"]), 0)
    assert crew.run([task for task in tasks if store.load(crew.folder, task) is None], workers=1) == []
    assert all(store.load(crew.folder, task) is not None for task in tasks)


def test_costs_are_positive():
    from bisimetric.paper import FIGURES, experiments

    for profile in (QUICK, FULL):
        assert all(job.cost > 0.0 for job in experiments.jobs_of(FIGURES, profile, TEXT))
