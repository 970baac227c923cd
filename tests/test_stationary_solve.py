"""A solve whose tolerance is finer than the arithmetic ends once nothing changes, and says so."""

from __future__ import annotations

import numpy as np
import pytest

import bisimetric as bm


@pytest.mark.parametrize("tol", [1e-12, 1e-13])
def test_a_stationary_metric_ends_the_solve(tol):
    """The distances reach a point where a sweep changes no bit; more sweeps cannot help."""
    chain = bm.Chain.from_arrays(np.array([[1.0, 0.0], [0.5, 0.5]]), [0.0, 100.0], 0.95)
    changes = []
    solution = bm.solve_metric(
        chain, bm.Exact(), tol=tol, max_sweeps=2000, on_progress=lambda progress: changes.append(progress.change)
    )
    assert changes.count(0.0) <= 10
    assert solution.status is bm.Status.ROUNDING


def test_the_advice_for_exact_transport_is_not_to_use_exact_transport():
    """Rounding inside exact transport is rounding, not an iteration limit."""
    P = np.array([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3], [0.1, 0.8, 0.1]])
    for seed in range(20):
        R = 100.0 * np.random.default_rng(seed).random(3)
        solution = bm.solve_metric(bm.Chain.from_arrays(P, R, 0.95), bm.Exact(2.0), tol=1e-13, max_sweeps=2000)
        assert solution.status is not bm.Status.TRANSPORT_LIMIT
