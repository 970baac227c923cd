"""How a solve ends: statuses with valid errors, progress, Ctrl-C, and what is refused."""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from random_models import random_mdp
from solved_metrics import garnet_chain, miss
from sweepers import sweeper_for
from transports import EVERY_TRANSPORT, name

import bisimetric as bm
from bisimetric.backends import threads
from bisimetric.backends.cpu.sweeper import CpuSweeper, units_of_work

pytestmark = pytest.mark.usefixtures("one_thread")
every_transport = pytest.mark.parametrize("transport", EVERY_TRANSPORT, ids=name)


def test_sweep_limit():
    truth = bm.solve_metric(garnet_chain(), tol=1e-9)
    seen = []
    for sweeps in (1, 2, 5):
        solution = bm.solve_metric(garnet_chain(), tol=1e-6, max_sweeps=sweeps)
        assert solution.status is bm.Status.SWEEP_LIMIT
        assert not solution.converged
        assert solution.sweeps == sweeps
        assert solution.error > 1e-6
        assert miss(solution, truth) <= solution.error
        assert "max_sweeps" in solution.status.advice
        seen.append(solution.error)
    assert seen == sorted(seen, reverse=True)
    on = bm.solve_metric(garnet_chain(), tol=1e-6, start=solution)
    assert on.converged


@every_transport
@pytest.mark.parametrize(("dtype", "tol"), [("float32", 1e-12), ("float64", 1e-18)])
def test_rounding_ends_the_solve(transport, dtype, tol):
    """A tolerance finer than the arithmetic ends the solve soon, with a true error and a remedy."""
    chain = garnet_chain(8)
    solution = bm.solve_metric(chain, transport, tol=tol, dtype=dtype, max_sweeps=2000)
    assert solution.status in (bm.Status.ROUNDING, bm.Status.TRANSPORT_LIMIT)
    if not isinstance(transport, bm.Sinkhorn | bm.KLBall):
        assert solution.status is bm.Status.ROUNDING  # nothing was limited but the arithmetic
    assert solution.sweeps < 2000
    assert tol < solution.error < 1e-2
    if transport.axioms.nonexpansive:
        truth = bm.solve_metric(chain, transport, tol=1e-8)
        assert miss(solution, truth) <= solution.error + truth.error


def test_rounding_where_nothing_moves():
    """The fixed point is hit exactly after one sweep; the solve must still end."""
    chain = bm.Chain.from_arrays(np.full((2, 2), 0.5), [0.0, 1.0], 0.9)
    solution = bm.solve_metric(chain, tol=1e-18, max_sweeps=500)
    assert solution.status is bm.Status.ROUNDING
    assert solution.sweeps < 20


@every_transport
@pytest.mark.parametrize("after", [1, 3])
def test_interrupts_leave_a_valid_error(transport, after):
    chain = garnet_chain()

    def stop(progress):
        if progress.sweep == after:
            raise KeyboardInterrupt

    solution = bm.solve_metric(chain, transport, tol=1e-7, on_progress=stop)
    assert solution.status is bm.Status.INTERRUPTED
    assert solution.sweeps == after
    truth = bm.solve_metric(chain, transport, tol=1e-7)
    if transport.axioms.nonexpansive:
        assert miss(solution, truth) <= solution.error + truth.error
    on = bm.solve_metric(chain, transport, tol=1e-7, start=solution)
    assert on.converged
    np.testing.assert_allclose(on.distance, truth.distance, atol=3e-7)


@pytest.mark.parametrize("after", [0, 2])
def test_interrupts_within_a_sweep(after, monkeypatch):
    """Some rows are new and some are old: the error covers both, also before the first sweep is done."""
    chain = garnet_chain()
    monkeypatch.setattr("bisimetric.backends.cpu.sweeper._FEWEST", 1.0)
    original, calls = CpuSweeper._sweep_unit, [0]
    per_sweep = len(units_of_work(sweeper_for(chain, bm.Exact()).comparison, threads.threads()))
    assert per_sweep > 3

    def interrupted(self, unit, d):
        calls[0] += 1
        if calls[0] == after * per_sweep + 3:
            raise KeyboardInterrupt
        return original(self, unit, d)

    truth = bm.solve_metric(chain, tol=1e-9)
    monkeypatch.setattr(CpuSweeper, "_sweep_unit", interrupted)
    solution = bm.solve_metric(chain, tol=1e-9)
    assert solution.status is bm.Status.INTERRUPTED
    assert solution.sweeps == after
    assert miss(solution, truth) <= solution.error
    np.testing.assert_array_equal(solution.distance, solution.distance.T)
    monkeypatch.undo()
    on = bm.solve_metric(chain, tol=1e-9, start=solution)
    assert miss(on, truth) <= 2e-9


def test_progress_is_reported():
    seen = []
    solution = bm.solve_metric(garnet_chain(), tol=1e-5, on_progress=seen.append)
    assert [p.sweep for p in seen] == list(range(1, solution.sweeps + 1))
    assert seen[-1].error == solution.error <= 1e-5 < seen[-2].error
    assert all(p.tol == 1e-5 for p in seen)
    assert [p.seconds for p in seen] == sorted(p.seconds for p in seen)


def test_a_failing_callback_is_not_swallowed():
    def fail(progress):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        bm.solve_metric(garnet_chain(), on_progress=fail)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failing_unit_is_not_swallowed(threads, monkeypatch):
    bm.set_threads(threads)

    def fail(self, unit, d):
        raise RuntimeError(f"unit {unit}")

    monkeypatch.setattr(CpuSweeper, "_sweep_unit", fail)
    with pytest.raises(RuntimeError, match="unit"):
        bm.solve_metric(garnet_chain())


@pytest.mark.parametrize("count", [2, 5])
def test_units_keep_their_order_and_their_errors(count):
    """Also where a unit raises what the queue itself would; once an error is out, no unit is at work any more."""
    bm.set_threads(count)
    assert threads.run_all(lambda k: k * k, range(40)) == [k * k for k in range(40)]
    at_work = []

    def fail_at_three(k):
        at_work.append(k)
        if k == 3:
            raise IndexError("three")
        time.sleep(0.02)
        at_work.remove(k)

    with pytest.raises(IndexError, match="three"):
        threads.run_all(fail_at_three, range(400))
    assert at_work == [3]
    assert threads.run_all(abs, [-1, -2]) == [1, 2]
    nested = threads.run_all(lambda k: threads.run_all(lambda j: k * j, range(5)), range(6))
    assert nested == [[k * j for j in range(5)] for k in range(6)]


def test_a_stop_while_units_are_handed_out(monkeypatch):
    """No unit begins once the interrupt is out, and none is left at work."""
    bm.set_threads(3)
    at_work, begun = [], []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *arguments):
            if not self._threads:
                return super().submit(*arguments)
            while not begun:
                time.sleep(0.001)
            raise KeyboardInterrupt

    def unit(k):
        begun.append(k)
        at_work.append(k)
        time.sleep(0.02)
        at_work.remove(k)

    monkeypatch.setattr(threads, "_POOLS", {3: Interrupted(3)})
    with pytest.raises(KeyboardInterrupt):
        threads.run_all(unit, range(100))
    assert at_work == []
    count = len(begun)
    time.sleep(0.1)
    assert len(begun) == count < 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_forked_processes_have_threads_of_their_own():
    bm.set_threads(2)
    here = bm.solve_metric(garnet_chain()).distance
    with multiprocessing.get_context("fork").Pool(1) as pool:
        there = pool.apply_async(_solved_there).get(timeout=300)
    np.testing.assert_array_equal(there, here)


def _solved_there():
    return bm.solve_metric(garnet_chain()).distance


CHAIN, MDP = bm.Chain.from_arrays(np.eye(2), [0.0, 1.0], 0.9), random_mdp(0, 3)
BAD_SOLVES = [
    (CHAIN, {"tol": 0.0}, "tol must be positive"),
    (CHAIN, {"tol": -1.0}, "got -1"),
    (CHAIN, {"tol": float("nan")}, "got nan"),
    (CHAIN, {"max_sweeps": 0}, "max_sweeps must be at least 1; got 0"),
    (CHAIN, {"transition_weight": 1.0}, "transition_weight (c_T) must be in [0, 1); got 1"),
    (CHAIN, {"transition_weight": -0.1}, "got -0.1"),
    (CHAIN, {"transition_weight": float("nan")}, "got nan"),
    (CHAIN, {"reward_weight": -1.0}, "reward_weight (c_R) must be finite and not negative; got -1"),
    (CHAIN, {"reward_weight": float("inf")}, "got inf"),
    (CHAIN, {"match": "labels"}, "a chain has no choices"),
    (CHAIN, {"device": "tpu"}, "'tpu'"),
    (CHAIN, {"dtype": "float16"}, '"float64" or "float32"; got \'float16\''),
    (CHAIN, {"start": bm.solve_metric(bm.Chain.from_arrays(np.eye(3), [0, 1, 2], 0.5))}, "3 states, the model has 2"),
    (MDP, {}, "mdp.under(policy)"),
    (MDP, {"match": "names"}, "got 'names'"),
]


@pytest.mark.parametrize(("model", "arguments", "words"), BAD_SOLVES, ids=[case[2][:30] for case in BAD_SOLVES])
def test_bad_arguments(model, arguments, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        bm.solve_metric(model, bm.Exact(), **arguments)


def test_repeated_labels_are_refused():
    mdp = bm.MDP.from_choices(np.eye(3)[[0, 0, 1, 2]], np.zeros(4), [0, 2, 3, 4], 0.5, ["a", "a", "a", "b"])
    with pytest.raises(ValueError, match=r'state 0 has action a more than once\. Use match="hausdorff"'):
        bm.solve_metric(mdp, match="labels")
    assert bm.solve_metric(mdp, match="hausdorff").converged


BAD_TRANSPORTS = [
    (bm.Exact, {"p": 0.5}, "p must be at least 1 and finite; got 0.5"),
    (bm.Exact, {"p": float("nan")}, "got nan"),
    (bm.Exact, {"p": float("inf")}, "got inf"),
    (bm.Independent, {"p": 0.0}, "p must be at least 1"),
    (bm.Independent, {"diagonal": "none"}, "got 'none'"),
    (bm.Sinkhorn, {"reg": 0.0}, "Exact transport is the limit 0"),
    (bm.Sinkhorn, {"reg": -1.0}, "reg must be positive and finite; got -1"),
    (bm.Sinkhorn, {"reg": float("inf")}, "independent coupling that of infinity"),
    (bm.Sinkhorn, {"reg": float("nan")}, "got nan"),
    (bm.Sinkhorn, {"cost": "dual"}, "got 'dual'"),
    (bm.Sinkhorn, {"p": 0.9}, "p must be at least 1"),
    (bm.Sinkhorn, {"marginal_tol": 0.0}, "marginal_tol must be in (0, 1)"),
    (bm.Sinkhorn, {"diagonal": "Zero"}, "got 'Zero'"),
    (bm.KLBall, {"radius": -0.1}, "radius must be finite and not negative; got -0.1"),
    (bm.KLBall, {"radius": float("inf")}, "Use Exact for no limit"),
    (bm.KLBall, {"radius": 1.0, "p": 0.0}, "p must be at least 1"),
]


@pytest.mark.parametrize(("kind", "settings", "words"), BAD_TRANSPORTS, ids=[case[2][:30] for case in BAD_TRANSPORTS])
def test_bad_transports(kind, settings, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        kind(**settings)


def test_bad_threads():
    for count in (0, -2):
        with pytest.raises(ValueError, match=f"got {count}"):
            bm.set_threads(count)


def test_transports_are_frozen_values():
    assert bm.Sinkhorn(1.0) == bm.Sinkhorn(1.0) != bm.Sinkhorn(2.0)
    assert len({bm.Exact(), bm.Exact(), bm.Exact(2.0)}) == 2
    with pytest.raises(AttributeError):
        bm.Exact().p = 2.0  # type: ignore[misc]


def test_the_certificate_names_its_source():
    for transport in EVERY_TRANSPORT:
        certificate = bm.solve_metric(CHAIN, transport, tol=1e-3).certificate
        assert certificate.rigorous == transport.axioms.nonexpansive
        assert certificate.source == transport.guarantee
        assert ("contraction" in certificate.source) == certificate.rigorous
