"""Truth to many digits: transports and metrics of tiny models in rational and 60-digit arithmetic.

Rows are normalised exactly: the distribution that a row of floating-point numbers stands for is itself over its sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import numpy as np

DIGITS = 60
getcontext().prec = DIGITS


def rational_row(row: Sequence[float] | np.ndarray) -> list[Fraction]:
    """The distribution that a row of numbers stands for."""
    exact = [Fraction(float(x)) for x in row]
    total = sum(exact)
    return [x / total for x in exact]


def decimal(x: Fraction | float) -> Decimal:
    exact = Fraction(x)
    with localcontext() as context:
        context.prec = DIGITS
        return Decimal(exact.numerator) / Decimal(exact.denominator)


def least_cost(a: list[Fraction], b: list[Fraction], C: list[list[Fraction]]) -> Fraction:
    """min ⟨ω, C⟩ over couplings, exactly, by successive shortest paths."""
    n, m = len(a), len(b)
    left, open_columns = list(a), list(b)
    flow = [[Fraction(0)] * m for _ in range(n)]
    while any(x > 0 for x in left):
        # Bellman and Ford over rows (0 … n−1) and columns (n …), from all rows that have mass left.
        dist: list[Fraction | None] = [Fraction(0) if x > 0 else None for x in left] + [None] * m
        before = [-1] * (n + m)
        changed = True
        while changed:
            changed = False
            for i in range(n):
                for j in range(m):
                    here, there = dist[i], dist[n + j]
                    if here is not None and (there is None or here + C[i][j] < there):
                        dist[n + j], before[n + j], changed = here + C[i][j], i, True
                    here, there = dist[n + j], dist[i]
                    if flow[i][j] > 0 and here is not None and (there is None or here - C[i][j] < there):
                        dist[i], before[i], changed = here - C[i][j], n + j, True
        target = min((n + j for j in range(m) if open_columns[j] > 0), key=lambda v: dist[v])
        path, v = [], target
        while before[v] >= 0:
            path.append((before[v], v))
            v = before[v]
        amount = min(left[v], open_columns[target - n], *(flow[y][x - n] for x, y in path if x >= n))
        for x, y in path:
            if x < n:
                flow[x][y - n] += amount
            else:
                flow[y][x - n] -= amount
        left[v] -= amount
        open_columns[target - n] -= amount
    return sum((flow[i][j] * C[i][j] for i in range(n) for j in range(m)), Fraction(0))


def root(value: Fraction, p: int) -> Decimal:
    """value^(1/p)."""
    if value <= 0:
        return Decimal(0)
    with localcontext() as context:
        context.prec = DIGITS + 10
        return (decimal(value).ln() / p).exp() if p > 1 else decimal(value)


def transport(kind: str, d: list[list[Fraction]], mu: list[Fraction], nu: list[Fraction], p: int) -> Decimal:
    """W_p ("exact") or the cost of the product plan ("independent") under a ground distance."""
    i = [k for k, x in enumerate(mu) if x > 0]
    j = [k for k, x in enumerate(nu) if x > 0]
    C = [[d[s][t] ** p for t in j] for s in i]
    a, b = [mu[k] for k in i], [nu[k] for k in j]
    if kind == "independent":
        return root(sum(a[x] * b[y] * C[x][y] for x in range(len(i)) for y in range(len(j))), p)
    return root(least_cost(a, b, C), p)


def metric(
    kind: str, P: np.ndarray, R: np.ndarray, gamma: float, p: int = 1, sweeps: int = 80, *, zero_diagonal: bool = True
) -> np.ndarray:
    """The fixed point of the π-metric [S, S], by sweeps from 0, as floating-point numbers."""
    rows, rewards, c = [rational_row(row) for row in P], [Fraction(float(r)) for r in R], Fraction(gamma)
    n = len(rows)
    d = [[Fraction(0)] * n for _ in range(n)]
    for _ in range(sweeps):
        new = [[Fraction(0)] * n for _ in range(n)]
        for s in range(n):
            for t in range(s + (1 if zero_diagonal else 0), n):
                W = transport(kind, d, rows[s], rows[t], p)
                # to some digits, so that fractions stay short
                new[s][t] = new[t][s] = Fraction(decimal(abs(rewards[s] - rewards[t])) + decimal(c) * W)
        d = new
    return np.array([[float(x) for x in row] for row in d])


def values(P: np.ndarray, R: np.ndarray, gamma: float) -> list[Fraction]:
    """V of a chain, exactly, by elimination."""
    n, c = len(R), Fraction(gamma)
    rows = [rational_row(row) for row in P]
    A = [[(1 if s == t else 0) - c * rows[s][t] for t in range(n)] + [Fraction(float(R[s]))] for s in range(n)]
    for k in range(n):
        pivot = next(r for r in range(k, n) if A[r][k] != 0)
        A[k], A[pivot] = A[pivot], A[k]
        for r in range(n):
            if r != k and A[r][k] != 0:
                factor = A[r][k] / A[k][k]
                A[r] = [x - factor * y for x, y in zip(A[r], A[k], strict=True)]
    return [A[k][n] / A[k][k] for k in range(n)]


def entropic_value(d: np.ndarray, mu: np.ndarray, nu: np.ndarray, reg: float, p: int = 1) -> tuple[Decimal, Decimal]:
    """Bounds around min ⟨ω, d^p⟩ + λ KL(ω ‖ μ⊗ν): the dual value, and that of the plan made feasible."""
    i, j = np.flatnonzero(mu), np.flatnonzero(nu)
    a = [decimal(x) for x in rational_row(mu[i])]
    b = [decimal(x) for x in rational_row(nu[j])]
    lam = decimal(reg)
    C = [[decimal(Fraction(float(d[s, t])) ** p) for t in j] for s in i]
    K = [[(-c / lam).exp() for c in row] for row in C]
    n, m = len(a), len(b)
    y = list(b)
    for _ in range(4000):
        x = [a[s] / sum(K[s][t] * y[t] for t in range(m)) for s in range(n)]
        q = [sum(x[s] * K[s][t] for s in range(n)) for t in range(m)]
        off = sum(abs(q[t] * y[t] - b[t]) for t in range(m))
        if off < Decimal(10) ** -30:
            break
        y = [b[t] / q[t] for t in range(m)]
    dual = lam * (sum(a[s] * (x[s] / a[s]).ln() for s in range(n)) + sum(b[t] * (1 / q[t]).ln() for t in range(m)))
    return dual, dual + off * max(max(row) for row in C)
