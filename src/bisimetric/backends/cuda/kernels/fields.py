"""Passes over the distances on the device, and the tally of what sweeps report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....kinds import Array, Floats, Precision
from .arguments import Choices, Members, PairBlock, Weights
from .device import HostRoom, cupy, launch, over, over_rows

_EACH = 8  # entries that a thread writes, so that fewer of them report what changed
_PLACES = 32  # where iterations are counted
_COUNTS = ("iterations", "left", "done", "sweeps", "slow", "next")


class Reading(NamedTuple):
    """A tally as read on the host; see `Tally` in common.cuh."""

    top: float
    rise: float
    fall: float
    error: float
    iterations: int
    left: int
    done: int
    sweeps: int
    last_top: float
    last_error: float
    change: float
    slow: int
    next: int
    last_rise: float
    last_fall: float


class Tally:
    """What sweeps report, on the device."""

    def __init__(self) -> None:
        self.array = cupy().zeros(len(Reading._fields) + _PLACES, np.int64)
        self._room = HostRoom()

    def clear(self) -> None:
        self.array.fill(0)

    def add(self, iterations: int, error: float) -> None:
        """Report from the host."""
        xp = cupy()
        self.array[4] += iterations
        self.array[3] = xp.maximum(self.array[3], int(np.float64(error).view(np.int64)))  # numbers ≥ 0 by their bits

    def set_left(self, count: int) -> None:
        """Say how many pairs are listed."""
        self.array[5] = count

    def read(self) -> Reading:
        """Wait for the device and read all of it."""
        counts = self._room.read(self.array)
        numbers = counts.view(np.float64)
        fields = {
            name: int(counts[k]) if name in _COUNTS else float(numbers[k]) for k, name in enumerate(Reading._fields)
        }
        fields["iterations"] += int(counts[len(Reading._fields) :].sum())
        return Reading(**fields)  # type: ignore[arg-type]


def power(
    tally: Tally, d: Array, p: float, unit: float, cost: Array, reg: float = 0.0, gibbs: Array | None = None
) -> None:
    """cost = (d/unit)^p, its largest entry goes into the tally; where reg > 0 also gibbs = exp(−cost/reg)."""
    arguments = (tally.array, d, d.size, float(p), unit, float(reg), cost, cost if gibbs is None else gibbs)
    launch("fields.cu", "power_max", d.dtype, *over(d.size), arguments)


def unit_of(d: Array, p: float) -> float:
    """What distances are divided by before they are raised to the power p; see `power` of the CPU. Waits for p ≠ 1."""
    largest = float(d.max()) if p != 1.0 else 0.0
    return math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0.0 else 1.0


def write_chain(tally: Tally, transports: Array, block: PairBlock, rewards: Array, weights: Weights, d: Array) -> None:
    """d = c_R |Δr| + c_T W for the rows of a block of a chain, to the right of the diagonal; see `mirror`."""
    rows, n = transports.shape
    arguments = (tally.array, transports, block.a0, n, block.first, block.corner, rewards, *weights, d)
    launch("fields.cu", "write_chain", d.dtype, *over_rows(rows, n, _EACH), arguments)


def mirror(tally: Tally, d: Array) -> None:
    """Make d symmetric from what is to the right of its diagonal."""
    n = len(d)
    tiles = -(-n // 32)
    launch("fields.cu", "mirror", d.dtype, (tiles, tiles), 256, (tally.array, n, d))


def start_rows(choices: Choices, s0: int, acc: Array) -> None:
    """acc[s − s0, t] = the largest distance where s and t are apart by actions or labels, else 0."""
    rows, n = acc.shape
    arguments = (choices.apart, choices.columns_apart, choices.largest, s0, rows, n, acc)
    launch("fields.cu", "start_rows", acc.dtype, *over(acc.size), arguments)


def raise_to(
    tally: Tally, transports: Array, label: Members, block: PairBlock, s0: int, weights: Weights, acc: Array
) -> None:
    """acc = max(acc, c_R |Δr| + c_T W) for the pairs of one label."""
    members = (label.members, len(label.members), block.first, block.corner, label.states, label.rewards)
    places = (block.a0, len(transports), s0)
    arguments = (tally.array, transports, *members, *places, *weights, acc.shape[1], acc)
    launch("fields.cu", "raise_to", acc.dtype, *over(transports.size), arguments)


def hausdorff(
    tally: Tally, transports: Array, choices: Choices, block: PairBlock, s0: int, weights: Weights, acc: Array
) -> None:
    """acc = Hausdorff distance of the choices of two states; the largest one where they are apart."""
    rows, n = acc.shape
    states = (choices.pointers, choices.column_pointers, choices.rewards, choices.apart, choices.columns_apart)
    places = (s0, rows, block.first, block.corner)
    arguments = (tally.array, transports, *states, choices.largest, *places, *weights, n, transports.shape[1], acc)
    launch("fields.cu", "hausdorff", acc.dtype, *over(acc.size), arguments)


def write_rows(tally: Tally, acc: Array, s0: int, first: int, square: bool, d: Array) -> None:
    """Put acc into d; where that is square for t ≥ s + first, with 0 before that, see `mirror`.

    Rise and fall go into the tally.
    """
    rows, n = acc.shape
    arguments = (tally.array, acc, s0, n, first, square, d)
    launch("fields.cu", "write_rows", d.dtype, *over_rows(rows, n, _EACH), arguments)


def end_sweep(tally: Tally, stop: float, dtype: Precision) -> None:
    """Close a sweep; where nothing changed by more than `stop`, later sweeps do nothing."""
    launch("fields.cu", "end_sweep", dtype, 1, 1, (tally.array, float(stop)))


def forget(kept: Array, first: int, corner: int, same: Array, cold: int) -> None:
    """Make pairs cold of which one row has other successors than before; kept is [pairs, …], same [members]."""
    count, width = len(same), kept[0].nbytes if len(kept) else 0
    arguments = (count, first, corner, same, len(kept), width, kept, np.uint8(cold))
    launch("fields.cu", "forget", np.dtype(np.float64), *over((corner or count) * (count - corner)), arguments)


def shift_positive(d: Array, by: float) -> None:
    """d += by where it is positive, and 0 where that is negative."""
    launch("fields.cu", "shift_positive", d.dtype, *over(d.size), (d.size, float(by), d))


def inner_products(x: Array, others: Sequence[Array]) -> Floats:
    """Σ x·y for each y, in double precision, by stretches, so that nothing of the size of x is made."""
    module, flat, step = cupy(), x.reshape(-1), 1 << 22
    sums = []
    for y in others:
        other = y.reshape(-1)
        for k in range(0, flat.size, step):
            part = slice(k, k + step)
            sums.append(module.dot(flat[part].astype(np.float64), other[part].astype(np.float64)))
    found: Floats = module.asnumpy(module.stack(sums)).reshape(len(others), -1).sum(axis=1)
    return found


def blend(weights: Sequence[float], arrays: Sequence[Array], out: Array) -> None:
    """out = Σ weight·array."""
    out[...] = 0.0
    for weight, array in zip(weights, arrays, strict=True):
        out += array * float(weight)


def largest_gap(x: Array, y: Array) -> float:
    """max |x − y|, row by row of the larger dimension, so that nothing of their size is made."""
    module, step = cupy(), max(1, (1 << 24) // max(x.shape[1], 1))
    gaps = [module.abs(x[k : k + step] - y[k : k + step]).max() for k in range(0, len(x), step)]
    return float(module.stack(gaps).max())
