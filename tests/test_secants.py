"""Cycles of two iterates, for distances between two models that are too many to be mixed: same answers, true errors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_chain, random_mdp

import bisimetric as bm
from bisimetric.backends.cpu.distances import HostDistances
from bisimetric.backends.cpu.sweeper import CpuSweeper
from bisimetric.metric import acceleration, evaluation
from bisimetric.model import Distributions

pytestmark = pytest.mark.usefixtures("one_thread")
MATCHES = (None, "labels", "hausdorff")


@pytest.fixture
def no_windows(monkeypatch):
    """No distances are few enough to be mixed."""
    monkeypatch.setattr(evaluation, "_WINDOWS", ())
    monkeypatch.setattr(acceleration, "_FEW", 0)


def walk(n, gamma=0.95):
    """A walk on a line: distances are smooth, and what is slow to fall is not their mean."""
    i = np.arange(n)
    P = np.zeros((n, n))
    for to, mass in ((np.minimum(i + 1, n - 1), 0.4), (np.maximum(i - 1, 0), 0.2), (i, 0.4)):
        np.add.at(P, (i, to), mass)
    return bm.Chain.from_arrays(P, 0.5 + 0.5 * np.sin(9.0 * i / n), gamma)


def two_models(match, seed):
    if match is None:
        return random_chain(seed, 14), random_chain(seed + 1, 5)
    return random_mdp(seed, 9), random_mdp(seed + 1, 4)


@pytest.mark.usefixtures("no_windows")
@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), p=st.sampled_from([1.0, 1.0, 2.0]), dtype=st.sampled_from(["float64", "float32"]))
def test_answers_are_those_of_plain_sweeps(match, seed, p, dtype):
    model, small = two_models(match, seed)
    tol = 1e-6 if dtype == "float64" else 1e-2
    fast = bm.compare(model, small, bm.Exact(p), match=match, tol=tol, dtype=dtype, lump=False)
    slow = bm.compare(model, small, bm.Exact(p), match=match, tol=1e-7, lump=False, accelerate=False)
    assert fast.converged
    assert np.abs(fast.distance - slow.distance).max() <= fast.error + slow.error


@pytest.mark.usefixtures("no_windows")
def test_a_walk_needs_few_sweeps(monkeypatch):
    model, small = walk(300), walk(20)
    frozen = [0]
    sweep = CpuSweeper.sweep_frozen

    def counted(self, d):
        frozen[0] += 1
        return sweep(self, d)

    monkeypatch.setattr(CpuSweeper, "sweep_frozen", counted)
    found = bm.compare(model, small, tol=1e-4, lump=False)
    assert found.converged
    assert found.sweeps <= 6
    by_secants, frozen[0] = frozen[0], 0
    monkeypatch.setattr(evaluation, "_SECANT_BYTES", 0)
    assert bm.compare(model, small, tol=1e-4, lump=False).sweeps > 1.5 * found.sweeps
    assert frozen[0] > by_secants


@pytest.mark.usefixtures("no_windows")
@pytest.mark.parametrize("match", MATCHES)
def test_the_error_is_true_wherever_they_are_broken_off(monkeypatch, match):
    grids = [bm.problems.gridworld(width=w, height=3, gamma=0.95) for w in (6, 3)]
    model, small = (walk(60), walk(9)) if match is None else grids

    def solve():
        return bm.compare(model, small, match=match, tol=1e-6, lump=False)

    truth, broken_off = solve(), 0
    for owner, name in (
        *((HostDistances, word) for word in ("take", "gap", "subtract_from", "inner", "blend", "clip")),
        *((CpuSweeper, word) for word in ("sweep_frozen", "sweep_kept")),
    ):
        original = getattr(owner, name)
        for after in (False, True):
            for nth in (1, 2, 3, 6):
                calls = [0]

                def stop(self, *given, original=original, calls=calls, nth=nth, after=after):
                    calls[0] += 1
                    if calls[0] != nth:
                        return original(self, *given)
                    if after:
                        original(self, *given)
                    raise KeyboardInterrupt

                with monkeypatch.context() as patch:
                    patch.setattr(owner, name, stop)
                    found = solve()
                if found.status is not bm.Status.INTERRUPTED:
                    continue
                broken_off += 1
                assert np.abs(found.distance - truth.distance).max() <= found.error + truth.error
                assert found.error < np.inf
    assert broken_off > 20


@pytest.mark.usefixtures("no_windows")
def test_memory_is_two_more_arrays(monkeypatch):
    rows = 40_000
    rng = np.random.default_rng(0)
    there = np.arange(rows)
    probs = rng.dirichlet(np.ones(3), rows).ravel()
    columns = np.stack([np.maximum(there - 1, 0), there, np.minimum(there + 1, rows - 1)], axis=1)
    columns[0], columns[-1] = (0, 1, 2), (rows - 3, rows - 2, rows - 1)
    model = bm.Chain(
        Distributions(3 * np.arange(rows + 1), columns.ravel().astype(np.int32), probs, rows), rng.random(rows), 0.9
    )
    small, peaks = walk(24, 0.9), []
    for most in (1 << 30, 0):
        monkeypatch.setattr(evaluation, "_SECANT_BYTES", most)
        tracemalloc.start()
        bm.compare(model, small, tol=1e-2, max_sweeps=2, lump=False)
        peaks.append(tracemalloc.get_traced_memory()[1] / (8 * rows * 24))
        tracemalloc.stop()
    assert 1.0 < peaks[0] - peaks[1] < 2.5
