"""Places that are not as one would like: nothing writable, closed outputs, strange names, Ctrl-C at any time."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from run_folders import MODEL, QUICK

from bisimetric import atomic, locks
from bisimetric.backends.cpu.kernels import cache, jit
from bisimetric.cli import run

PROGRAM = [sys.executable, "-c", "from bisimetric_command import main; main()"]


def test_kernels_run_where_nothing_can_be_kept(monkeypatch):
    monkeypatch.setattr(cache, "_candidates", lambda: [Path("/proc/nowhere"), Path("/dev/null/x")])
    cache.folder.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="BISIMETRIC_CACHE_DIR"):
            twice = jit.kernel(lambda x: 2 * x)
        assert twice(4) == 8
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            assert jit.kernel(lambda x: 3 * x)(4) == 12
    finally:
        cache.folder.cache_clear()


def test_kept_kernels_that_are_damaged_are_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "_candidates", lambda: [tmp_path])
    cache.folder.cache_clear()
    try:
        for damage in (None, b"", b"garbage"):
            if damage is not None:
                for path in cache.folder().iterdir():
                    path.write_bytes(damage)

            def triple(x):
                return 3 * x

            assert jit.kernel(triple)(np.arange(3)).tolist() == [0, 3, 6]
            assert list(cache.folder().glob("*.nbi"))
    finally:
        cache.folder.cache_clear()


def test_a_command_in_a_place_without_any_home(tmp_path):
    environment = {**os.environ, "HOME": "/proc/nowhere", "BISIMETRIC_CACHE_DIR": "/proc/nowhere"}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [*PROGRAM, "info", "problem:chain?n_states=6&n_classes=3", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.3, 0.6, 1.0, 2.0])
def test_ctrl_c_in_the_first_seconds(delay, tmp_path):
    slow = "problem:garnet?n_states=600&gamma=0.9999&branching=8"
    command = [*PROGRAM, "metric", slow, "--tol", "1e-9", "-o", "d.npz"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, cwd=tmp_path) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    # Before the first line of ours, Python's own start ends as it likes; how long that is, the machine decides.
    if process.returncode == -signal.SIGINT or "Fatal Python error: init_" in said:
        return
    assert process.returncode == 130, said
    assert "Traceback" not in said


def test_ctrl_c_stops_long_kernels_on_one_thread(tmp_path):
    """A sweep of many hours, on one thread: it stops at the next pair."""
    code = (
        "import numpy as np, bisimetric as bm\n"
        "bm.set_threads(1)\n"
        "rng = np.random.default_rng(0)\n"
        "small = bm.Chain.from_arrays(rng.dirichlet(np.ones(9), 9), rng.random(9), 0.9)\n"
        "bm.solve_metric(small, bm.KLBall(0.05), tol=1e-3)\n"
        "chain = bm.Chain.from_arrays(rng.dirichlet(np.ones(300), 300), rng.random(300), 0.9)\n"
        "from bisimetric.backends.cpu.sweeper import CpuSweeper\n"
        "sweep = CpuSweeper.sweep\n"
        "CpuSweeper.sweep = lambda *given: print('sweeping', flush=True) or sweep(*given)\n"
        "print(bm.solve_metric(chain, bm.KLBall(0.05), tol=1e-9).status.name)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        # What is laid out before takes as long as the machine likes, and the first sweep, of distances 0, no time.
        assert [process.stdout.readline() for _ in range(2)] == ["sweeping\n"] * 2
        time.sleep(1.5)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=300)
    assert out == "INTERRUPTED\n", said
    assert time.monotonic() - began < 200.0


def test_a_reader_that_has_seen_enough():
    command = f"{sys.executable} -m bisimetric info problem:chain | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("states")
    assert done.stdout.splitlines()[1] in ("0", "141")


def test_closed_standard_error(tmp_path):
    command = f"{sys.executable} -m bisimetric metric problem:nothing 2>&-; echo $?"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "2\n"
    command = f"{sys.executable} -m bisimetric solve '{MODEL}' --steps 2 --no-pictures --out run 2>&-; echo $?"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("name", ["[/red]x", "[bold]", "a b", "ü", "x\\", "%s", "{}"])
def test_strange_names_of_outputs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["solve", MODEL, "--steps", "2", "--no-pictures", "--out", name]) == 0
    assert name in capsys.readouterr().out.replace("\n", "")
    assert (tmp_path / name / "policy.csv").exists()
    assert run(["metric", MODEL, "--tol", "1e-2", "-o", f"{name}.npz"]) == 0


def test_a_full_disk_is_named(tmp_path, monkeypatch, capsys):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert run(["metric", MODEL, "--tol", "1e-2", "-o", str(tmp_path / "d.npz")]) == 2
    said = capsys.readouterr().err
    assert said == f"bisimetric: {tmp_path / 'd.npz'}: No space left on device.\n"
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_are_no_files(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        atomic.write_text(pipe, "hello")
        assert reader.communicate(timeout=20)[0] == b"hello"
    assert pipe.is_fifo()


def test_parts_of_killed_processes_are_removed(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f".d.npz.{dead.pid}-abc.part").write_bytes(b"half")
    (tmp_path / f".d.npz.{os.getpid()}-abc.part").write_bytes(b"of somebody at work")
    (tmp_path / f".other.npz.{dead.pid}-abc.part").write_bytes(b"of another target")
    atomic.write_text(tmp_path / "d.npz", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f".d.npz.{os.getpid()}-abc.part", f".other.npz.{dead.pid}-abc.part", "d.npz"]
    )


def test_all_files_of_a_result_or_none(tmp_path):
    def fail(stream):
        raise OSError(28, "No space left on device")

    (tmp_path / "a").write_text("old")
    with pytest.raises(OSError, match="No space left") as caught:
        atomic.write_all({tmp_path / "a": atomic.text_filler("new"), tmp_path / "b": fail})
    assert caught.value.filename == str(tmp_path / "b")
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize("step", [0, 3])
def test_ctrl_c_inside_a_step_keeps_all_steps(step, tmp_path, monkeypatch, capsys):
    """Also before the first checkpoint: the policy so far is there, and the run goes on to the same bytes."""
    from bisimetric.policy import loop

    monkeypatch.chdir(tmp_path)
    assert run(["solve", MODEL, *QUICK, "--steps", "8", "--out", "whole"]) == 0
    improve = loop.improve

    def watched(*given, k, **more):
        greedy = improve(*given, k=k, **more)  # draws noise
        if k == step:
            raise KeyboardInterrupt
        return greedy

    monkeypatch.setattr(loop, "improve", watched)
    capsys.readouterr()
    assert run(["solve", MODEL, *QUICK[:-1], "--steps", "8", "--out", "broken"]) == 130
    _, said = capsys.readouterr()
    assert "--resume broken" in said
    for file in ("policy.csv", "result.npz", "checkpoint.npz", "summary.json"):
        assert (tmp_path / "broken" / file).exists(), file
    monkeypatch.setattr(loop, "improve", improve)
    assert run(["solve", "--resume", "broken", "--no-pictures", "--json"]) == 0
    for file in ("result.npz", "policy.csv"):
        assert (tmp_path / "broken" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file


@pytest.mark.parametrize(
    "change", [{"distance": np.zeros((3, 3))}, {"distance": np.full((20, 20), np.nan)}, {"k": 5.5}]
)
def test_a_checkpoint_that_was_rewritten_is_refused(change, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["solve", MODEL, *QUICK, "--steps", "3", "--out", "run"]) == 0
    path = tmp_path / "run" / "checkpoint.npz"
    with np.load(path) as data:
        np.savez(path, **{**{key: data[key] for key in data.files}, **change})
    before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()}
    capsys.readouterr()
    assert run(["solve", "--resume", "run", "--steps", "9"]) == 2
    assert "checkpoint.npz: damaged" in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before


def test_blas_has_its_threads_back_after_overlapping_work():
    """Two threads hold BLAS to one thread, and the first that came goes first."""
    threadpoolctl = pytest.importorskip("threadpoolctl")
    from bisimetric.backends.threads import single_thread

    def count():
        return {info["num_threads"] for info in threadpoolctl.threadpool_info() if info["user_api"] == "blas"}

    before, inside, first_gone = count(), threading.Event(), threading.Event()
    if before == {1}:
        pytest.skip("BLAS has but one thread here")

    def first():
        with single_thread():
            inside.wait(10.0)
        first_gone.set()

    thread = threading.Thread(target=first)
    thread.start()
    end = time.monotonic() + 10.0
    while count() != {1} and time.monotonic() < end:
        time.sleep(0.01)
    with single_thread():
        inside.set()
        first_gone.wait(10.0)
        seen = count()
    thread.join()
    assert seen == {1}
    assert count() == before


@pytest.mark.parametrize(("number", "held"), [(errno.EWOULDBLOCK, False), (errno.ENOSYS, True), (errno.ENOLCK, True)])
def test_file_systems_without_locks_are_no_other_process(number, held, tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def flock(handle, how):
        raise OSError(number, "no")

    monkeypatch.setattr(fcntl, "flock", flock)
    with locks.locked(tmp_path) as mine:
        assert mine is held
