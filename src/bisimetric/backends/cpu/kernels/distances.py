"""Passes over all entries of distances, in stretches."""

import numpy as np

from .jit import kernel


@kernel
def inner_product(x, y):
    """Σ x·y in double precision (Numba's float() would leave float32 as it is); four sums side by side."""
    by_four = len(x) - len(x) % 4
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for i in range(0, by_four, 4):
        s0 += np.float64(x[i]) * np.float64(y[i])
        s1 += np.float64(x[i + 1]) * np.float64(y[i + 1])
        s2 += np.float64(x[i + 2]) * np.float64(y[i + 2])
        s3 += np.float64(x[i + 3]) * np.float64(y[i + 3])
    for i in range(by_four, len(x)):
        s0 += np.float64(x[i]) * np.float64(y[i])
    return (s0 + s1) + (s2 + s3)


@kernel
def add_scaled(x, weight, y):
    """x += weight·y."""
    for i in range(len(x)):
        x[i] += weight * y[i]


@kernel
def largest_gap(x, y):
    """max |x − y|."""
    most = 0.0
    for i in range(len(x)):
        most = max(most, abs(np.float64(x[i]) - np.float64(y[i])))
    return most


@kernel
def shift_positive(x, by):
    """x += by where it is positive, and 0 where that is negative."""
    for i in range(len(x)):
        if x[i] > 0.0:
            x[i] = max(x[i] + by, 0.0)
