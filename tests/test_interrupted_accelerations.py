"""Ctrl-C while distances are moved between two sweeps, and accelerations that do not help: the error stays true, sweeps
make their way."""

from __future__ import annotations

import numpy as np
import pytest
from random_models import random_chain, random_mdp

import bisimetric as bm
from bisimetric.backends.cpu.distances import HostDistances
from bisimetric.metric.pace import Pace

pytestmark = pytest.mark.usefixtures("one_thread")


def walkers(seed, n, gamma):
    """A permutation with 0.9, other states with 0.1: pairs that rarely meet change by the same for long."""
    rng = np.random.default_rng(seed)
    P = np.zeros((n, n))
    P[np.arange(n), rng.permutation(n)] += 0.9
    np.add.at(P, (np.arange(n), rng.integers(0, n, n)), 0.1)
    return bm.Chain.from_arrays(P, rng.random(n), gamma)


def circles(seed):
    """A few states in circles: extrapolations overshoot, in these by more than the error of the sweep before."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    P = np.eye(n)[rng.permutation(n)]
    return bm.Chain.from_arrays(P, rng.random(n), float(rng.choice([0.9, 0.99])))


def interrupted(monkeypatch, name, nth, after, solve):
    """A solve that is broken off before or after the nth call of a method of distances; None where there is none."""
    original, calls = getattr(HostDistances, name), [0]

    def stop(self, *arguments):
        calls[0] += 1
        if calls[0] != nth:
            return original(self, *arguments)
        if after:
            original(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HostDistances, name, stop)
        solution = solve()
    return solution if solution.status is bm.Status.INTERRUPTED else None


@pytest.mark.parametrize(
    ("model", "transport"),
    [
        (walkers(0, 70, 0.99), bm.Exact()),
        (walkers(1, 7, 0.99), bm.KLBall(0.2)),
        (circles(61182), bm.Sinkhorn(0.3, cost="value")),
        (circles(61599), bm.Sinkhorn(0.3, cost="value")),
    ],
)
def test_the_error_is_true_wherever_an_acceleration_is_broken_off(monkeypatch, model, transport):
    def solve():
        return bm.solve_metric(model, transport, tol=1e-6, lump=False, max_sweeps=200)

    broken_off, truth = 0, bm.solve_metric(model, transport, tol=1e-7, lump=False, max_sweeps=2000)
    assert truth.error < 1e-5
    for name in ("copy", "blend", "clip", "gap", "take", "subtract_from", "inner"):
        for after in (False, True):
            for nth in (1, 2):
                found = interrupted(monkeypatch, name, nth, after, solve)
                if found is None:
                    continue
                broken_off += 1
                assert found.certificate.rigorous
                assert np.abs(found.distance - truth.distance).max() <= found.error + truth.error
                assert found.error <= max(found.largest, float(found.distance.max())) * (1.0 + 1e-9)
                assert (found.distance >= 0.0).all()
    assert broken_off > 10


@pytest.mark.parametrize(("seed", "match"), [(12, None), (42, None), (28, "labels")])
def test_accelerations_that_do_not_help_do_not_stop_the_way(seed, match):
    """At γ = 0.999 in float32 rounding keeps distances swinging; without an average, for thousands of sweeps."""
    if match is None:
        large, small = random_chain(seed, 12, 0.999, support=2), random_chain(seed + 1000, 7, 0.999, support=2)
    else:
        large, small = (random_mdp(s, n, 0.999, support=2, ragged=False) for s, n in ((seed, 12), (seed + 1000, 7)))
    found = bm.compare(large, small, match=match, tol=0.5, dtype="float32", lump=False, max_sweeps=60)
    assert found.status in (bm.Status.ROUNDING, bm.Status.CONVERGED)
    assert found.error < 3.0  # values range over a thousand
    truth = bm.compare(large, small, match=match, tol=1e-5, lump=False)
    assert truth.converged
    assert np.abs(found.distance - truth.distance).max() <= found.error + truth.error


def test_accelerations_are_put_off_where_they_leave_nearly_all_of_the_change():
    pace, change, waited = Pace(), 1.0, []
    for _ in range(40):
        good = pace.judge(change, 0.9999)
        if pace.due():
            pace.before = change  # what follows is an acceleration, and leaves this much
        waited.append(pace.before == np.inf)
        assert good or waited[-1]
        change *= 0.97
    runs = [len(run) for run in "".join("x" if plain else " " for plain in waited).split()]
    assert runs[:5] == [1, 2, 4, 8, 16]
    helps = Pace()
    for k in range(40):
        assert helps.judge(0.5**k, 0.9999)
        assert helps.due()
        helps.before = 0.5**k
