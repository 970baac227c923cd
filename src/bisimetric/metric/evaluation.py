"""The fixed point of sweeps with kept plans: how it is found, by the size of the distances.

**Mixing** (`AndersonMixing`), where there is room for many iterates: each new one is the combination of the last ones,
all after some frozen sweeps, whose change is least in mean square (Anderson). **Secants** (`Secants`), between two
models where there is room for two: the same with two iterates, in cycles. All other distances are moved in place, see
`acceleration`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..backends.protocol import Distances, Sweeper
from ..backends.threads import single_thread
from ..kinds import Floats

# Bytes of d up to which: iterates that are mixed, frozen sweeps before each.
_WINDOWS = ((4 << 20, 20, 2), (32 << 20, 10, 4), (128 << 20, 3, 4))
_SECANT_BYTES = 1 << 30  # up to which there are secants
_REPEAT = 4  # frozen sweeps before each iterate of theirs
_MOST_CYCLES, _FALLS = 24, 0.9  # of secants; one that leaves more than this share of the change is the last
_PRODUCTS = 600  # of one evaluation by mixing
_PATIENCE = 4  # windows without progress after which it ends
_PATHS = 0.4  # share of the pairs with one successor a row from which on their paths are followed


def mixes(nbytes: int) -> bool:
    """Whether there is room to mix iterates of that size."""
    return _window(nbytes)[0] > 0


def has_secants(sweeper: Sweeper, nbytes: int) -> bool:
    """Whether two more arrays of that size are worth their memory.

    Between two models they are, as rows are the states of a large one. All pairs of one model get there as soon by
    sweeps in place, which need no further array: `low_memory` promises that.
    """
    return nbytes <= _SECANT_BYTES and not sweeper.comparison.square


def _window(nbytes: int) -> tuple[int, int]:
    """(Iterates that are mixed, frozen sweeps before each), for distances of that size."""
    return next(((window, repeat) for most, window, repeat in _WINDOWS if nbytes <= most), (0, 1))


def room_for_iterates(nbytes: int) -> int:
    """Bytes for mixing beside distances of that size: iterates, their changes, copies, paths."""
    window, _ = _window(nbytes)
    return (2 * (window + 1) + 6) * nbytes if window else 0


class Evaluation(Protocol):
    """A way to the fixed point. Attributes: products (frozen and kept sweeps so far)."""

    products: int

    def respond(self, d: Distances) -> float:
        """One sweep in which who maximises chooses again; returns the largest change."""
        ...

    def evaluate(self, d: Distances, goal: float) -> None:
        """Bring d to the fixed point of `sweep_frozen`, until that changes it by at most `goal`."""
        ...


class AndersonMixing:
    """Anderson's mixing; where many pairs lead to one other, frozen sweeps go on to the ends of their paths."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper, self.products = sweeper, 0

    def respond(self, d: Distances) -> float:
        self.products += 1
        return self._sweeper.sweep_kept(d)

    def evaluate(self, d: Distances, goal: float) -> None:
        sweeper = self._sweeper
        if sweeper.path_share >= _PATHS:
            sweeper.find_paths()
            sweeper.follow_paths(d)
        if sweeper.path_share < 1.0:
            self.products += _mixed(sweeper, d, goal)


def _mixed(sweeper: Sweeper, d: Distances, goal: float) -> int:
    """Sweep and mix; returns how many frozen sweeps it took."""
    window, repeat = _window(d.nbytes)
    paths = sweeper.path_share >= _PATHS
    iterates, start = _Iterates(window), d.copy()
    least, idle, products, first = np.inf, 0, 0, 0.0
    while products < _PRODUCTS:
        if products % repeat == 0:
            iterates.begin(d)
        change = sweeper.sweep_frozen(d)
        products += 1
        first = first or change
        if change <= goal or idle > _PATIENCE * window:
            break
        if paths:
            sweeper.follow_paths(d)
        if products % repeat == 0:
            energy = iterates.mix(d)
            if sweeper.transport.order != 1.0:  # powers of distances need them to be positive
                d.clip()
            idle = 0 if energy < 0.9 * least else idle + 1
            least = min(least, energy)
    if not change <= first:
        d.take(start)
    d.clip()
    return products


class _Iterates:
    """The last iterates, what changed them, and the inner products of these changes."""

    def __init__(self, window: int) -> None:
        self._room, self._count = window + 1, 0
        self._after: list[Distances] = []
        self._changes: list[Distances] = []
        self._gram = np.zeros((window + 1, window + 1))

    def begin(self, d: Distances) -> None:
        """Remember an iterate before frozen sweeps."""
        if self._count < self._room:
            self._after.append(d.zeros())
            self._changes.append(d.copy())
        else:
            self._changes[self._count % self._room].take(d)

    def mix(self, d: Distances) -> float:
        """Take the iterate after them, and replace it by the best combination; returns how much they changed it."""
        slot = self._count % self._room
        change = self._changes[slot]
        self._after[slot].take(d)
        change.subtract_from(d)
        products = change.inner(self._changes)
        known = len(products)
        self._gram[slot, :known] = self._gram[:known, slot] = products
        self._count += 1
        d.blend(least_combination(self._gram[:known, :known], slot), self._after)
        return float(products[slot])


class Secants:
    """Cycles of two iterates.

    From x come y = F^r(x) and z = F^r(y), and then the point z − w (z − y) on the line through both where r sweeps
    would change least in mean square, if F is affine.

    Attributes: moved (how far d may have been moved since the beginning, also where Ctrl-C ended it).
    """

    def __init__(self, sweeper: Sweeper, d: Distances) -> None:
        self._sweeper, self.products, self.moved = sweeper, 0, 0.0
        self._before, self._middle = d.zeros(), d.zeros()
        self._step = 0.0  # how far the last sweeps moved d

    def respond(self, d: Distances) -> float:
        self._before.take(d)
        try:
            change = self._sweeper.sweep_kept(d)
        except KeyboardInterrupt:
            d.take(self._before)
            raise
        self.products += 1
        self.moved += change
        return change

    def evaluate(self, d: Distances, goal: float) -> None:
        before = np.inf
        for _ in range(_MOST_CYCLES):
            change = self._sweep_from(self._before, d, goal)
            if change <= goal:
                return
            change = self._sweep_from(self._middle, d, goal)
            if change <= goal or not change <= _FALLS * before:
                return
            before = change
            self._go_along(d)

    def _sweep_from(self, start: Distances, d: Distances, goal: float) -> float:
        """Sweep some times, with the start kept; returns the change of the last one."""
        start.take(d)
        try:
            for _ in range(_REPEAT):
                change = self._sweeper.sweep_frozen(d)
                self.products += 1
                if change <= goal:
                    break
            self._step = d.gap(start)
        except KeyboardInterrupt:
            d.take(start)
            raise
        self.moved += self._step
        return change

    def _go_along(self, d: Distances) -> None:
        """From z to the best point; x and y are given up for the changes, and then for that point."""
        x, y = self._before, self._middle
        x.subtract_from(y)
        y.subtract_from(d)
        (xx, xy), yy = x.inner([x, y]), y.inner([y])[0]
        weight = least_combination(np.array([[xx, xy], [xy, yy]]), 1)[0]
        self.moved += abs(weight) * self._step
        x.blend([1.0, -weight], [d, y])
        x.clip()
        d.take(x)


def least_combination(gram: Floats, last: int) -> list[float]:
    """Weights that add up to 1 and make the combination of vectors with these inner products shortest.

    Where they cannot be found in the arithmetic, all weight is on the last.
    """
    lengths = np.sqrt(gram.diagonal())
    if lengths.min() > 0.0 and lengths.max() < np.inf:
        regular = gram / lengths[:, None] / lengths[None, :] + 1e-14 * np.eye(len(gram))
        with single_thread():
            weights = np.linalg.lstsq(regular, lengths.min() / lengths, rcond=None)[0] / (lengths / lengths.min())
        total = float(weights.sum())
        if 0.0 < total < np.inf:
            return [float(weight) / total for weight in weights]
    return [float(k == last) for k in range(len(gram))]
