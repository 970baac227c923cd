"""Random distributions and ground distances, and transports between all pairs of rows from one block."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from engines import tested_backend
from hypothesis import strategies as st

import bisimetric as bm
from bisimetric.backends.cpu.solver import CpuSolver, PairTally
from bisimetric.model import Distributions

GROUNDS = ("uniform", "ties", "zeros", "line", "paths")
PSEUDO_METRICS = ("line", "paths")
ROWS = ("simplex", "equal", "integers", "points", "tiny")


def ground(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """A symmetric ground distance [n, n] with zero diagonal; "line" and "paths" are pseudo-metrics with ties."""
    if kind == "line":
        x = rng.integers(0, max(2, n // 2), size=n).astype(float)
        return np.abs(x[:, None] - x[None, :])
    d = rng.random((n, n)) if kind == "uniform" else rng.integers(0, 4, size=(n, n)).astype(float)
    if kind == "zeros":
        d *= rng.random((n, n)) < 0.4
    d = np.triu(d, 1)
    d = d + d.T
    if kind == "paths":
        for k in range(n):
            d = np.minimum(d, d[:, k : k + 1] + d[k : k + 1, :])
    return d


def distribution(rng: np.random.Generator, kind: str, n: int, support: int) -> np.ndarray:
    """A distribution over n states with at most `support` of them, zeros elsewhere."""
    if kind == "points":
        support = 1 + int(rng.integers(min(2, support)))
    chosen = rng.choice(n, size=min(support, n), replace=False)
    weights = {
        "simplex": lambda k: rng.dirichlet(np.ones(k)),
        "equal": np.ones,
        "integers": lambda k: rng.integers(0, 4, size=k).astype(float),
        "points": lambda k: rng.random(k) + 0.01,
        "tiny": lambda k: 10.0 ** rng.uniform(-14, 0, size=k),
    }[kind](len(chosen))
    if weights.sum() == 0.0:
        weights[0] = 1.0
    row = np.zeros(n)
    row[chosen] = weights / weights.sum()
    return row / row.sum()


@st.composite
def transport_problems(draw, n_rows=4, max_support=6, grounds=GROUNDS, rows=ROWS, extra_states=3):
    """(rows [N, S], d [S, S]); some rows are equal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    kind = draw(st.sampled_from(rows), label="rows")
    sizes = [draw(st.integers(1, max_support), label="support") for _ in range(n_rows)]
    n = max(sizes) + draw(st.integers(0, extra_states), label="extra states")
    table = np.array([distribution(rng, kind, n, size) for size in sizes])
    if draw(st.booleans(), label="equal rows"):
        table[-1] = table[0]
    return table, ground(rng, draw(st.sampled_from(grounds), label="ground"), n)


def rows_of(rows: np.ndarray) -> Distributions:
    """Dense rows as distributions."""
    return Distributions.from_matrix(rows)


def solver_of(transport: bm.Transport, rows: np.ndarray, *, remember: bool = True, dtype: str = "float64"):
    """A solver for all pairs of the rows, on the engine under test."""
    return tested_backend("cpu", dtype).solver(rows_of(rows), (np.arange(len(rows)),), transport, remember)


class Report(NamedTuple):
    """What a block reported, in true units."""

    iterations: int
    error: float


def filled(solver, d: np.ndarray, accuracy: float, a0: int = 0, a1: int | None = None):
    """(W of rows a0 … a1−1 to all, from one block; its report) in true units. The output starts as NaN."""
    n = len(solver.rows)
    a1 = n if a1 is None else a1
    if isinstance(solver, CpuSolver):
        tally, out = PairTally(), np.full((a1 - a0, n), np.nan)
        solver.prepare(d.astype(solver.dtype), accuracy)
        solver.fill(0, a0, a1, out, tally)
        return solver.unit * out, Report(tally.iterations, solver.true_error(tally))
    xp = sys.modules["cupy"]
    out = xp.full((a1 - a0, n), np.nan, solver.dtype)
    solver.tally.clear()
    solver.prepare(xp.asarray(d.astype(solver.dtype)), accuracy)
    solver.fill(0, a0, a1, out, solver.tally)
    seen = solver.tally.read()
    return solver.unit * xp.asnumpy(out), Report(seen.iterations, solver.true_error(seen.error, seen.top))


def block_of(solver, d: np.ndarray, accuracy: float):
    """(W between all pairs of rows, from one block; its report). Nothing may be left out."""
    out, report = filled(solver, d, accuracy)
    assert np.isfinite(out[np.triu_indices(len(out), solver.first)]).all()
    assert report.error >= 0.0
    return out, report


def table_of(solver, d: np.ndarray, accuracy: float = 1e-11) -> np.ndarray:
    """W between all pairs of rows, symmetric."""
    out, _ = block_of(solver, d, accuracy)
    inside = np.triu_indices(len(out), solver.first)
    table = np.zeros(out.shape)
    table[inside] = out[inside]
    return np.maximum(table, table.T)


def distances(transport: bm.Transport, rows: np.ndarray, d: np.ndarray, **settings_of_solver) -> np.ndarray:
    """W between all pairs of rows, from a cold start."""
    return table_of(solver_of(transport, rows, **settings_of_solver), d)
