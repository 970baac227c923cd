"""Fewer sweeps: what is done to the distances between two of them.

**Policy iteration over couplings** (`PolicyIteration`), where solvers keep their plans. F is a game for each pair of
states: one player chooses plans (and under Hausdorff matching the partner of each choice) to make distances small, the
other the label, or the choice to be matched, to make them large. A sweep finds the best plans for d. With these fixed
F becomes F_ω ≥ F, whose fixed point is found by cheap products with the kept plans, and the next sweep chooses anew:
the policy iteration of Howard (chains) and of Hoffman and Karp (games). All maps are monotone contractions, so each
fixed point is above the metric, each is below the one before, and they reach it (Puterman, 1994, chapter 6; for p > 1
the maps are not affine, and the argument is the same). For chains it is the expected discounted difference of rewards
under a coupling of the two walks.

**Extrapolation** (`Extrapolation`) of full sweeps elsewhere: after some plain sweeps, the combination of them whose
change is least in mean square (reduced rank extrapolation, after Eddy and Mešina; GMRES where F is affine).

Nothing here is trusted: errors come from full sweeps, whose contraction bound holds for any d. Where changes do not
fall as those of plain sweeps would, there are plain sweeps for a while, twice as many each time, so that the
contraction wins in the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends.protocol import Distances, Floats, Sweep, Sweeper
from ..backends.threads import single_thread

# Bytes of d up to which: iterates that are mixed, frozen sweeps before each. Larger ones have no room for iterates.
_WINDOWS = ((4 << 20, 20, 2), (32 << 20, 10, 4), (128 << 20, 3, 4))
_CYCLE = 5  # sweeps that an extrapolation combines
_PRODUCTS = 600  # of one evaluation
_IN_PLACE = 30  # of one without room for iterates
_CLOSER = 0.1  # an evaluation leaves this share of the last change
_PATIENCE = 4  # windows without progress after which it ends
_SLACK = 10.0  # changes may exceed those of a contraction by this factor at first


@dataclass
class Pace:
    """When accelerations are put off: changes must stay below those of a contraction, or plain sweeps follow.

    Attributes: wait (plain sweeps to come), next_wait (and after the next failure), most (the largest change that the
    next sweep may make).
    """

    wait: int = 0
    next_wait: int = 1
    most: float = np.inf

    def judge(self, change: float, contraction: float) -> bool:
        """Take note of the change of a sweep; returns whether it is as small as it should be."""
        good = change <= self.most
        if not good:
            self.wait, self.next_wait = self.next_wait, 2 * self.next_wait
        self.most = contraction * (self.most if good and self.most < np.inf else _SLACK * change)
        return good

    def due(self) -> bool:
        """Whether to accelerate now."""
        self.wait -= 1
        return self.wait < 0


class Acceleration:
    """What is done between sweeps: nothing, here. Sweeps alone, as theorems count them.

    Attributes: pace; products (frozen sweeps so far); moved (how far the last `improve` may have moved the distances,
    also where Ctrl-C ended it).
    """

    def __init__(self, sweeper: Sweeper, pace: Pace) -> None:
        self.sweeper, self.pace = sweeper, pace
        self.products, self.moved = 0, 0.0

    @property
    def at_rest(self) -> bool:
        """Whether distances and pace are all that the sweeps to come depend on."""
        return True

    def improve(self, d: Distances, report: Sweep, goal: float) -> None:
        """Bring d, which a sweep has just replaced, nearer to the fixed point.

        Sweeps end at changes up to `goal`, so nothing much finer is of use.
        """


class PolicyIteration(Acceleration):
    """Solves for the distances of the plans of the last sweep."""

    def improve(self, d: Distances, report: Sweep, goal: float) -> None:
        c, self.moved = self.sweeper.comparison, 0.0
        self.pace.judge(report.change, c.c_T)
        if not self.pace.due():
            return
        goal = max(0.1 * goal, _CLOSER * report.change, 2.0 * report.rounding)
        if not _window(d.nbytes)[0]:
            self._evaluate_in_place(d, report, goal)
            return
        start = d.copy()
        try:
            self._respond(d, goal)
        except KeyboardInterrupt:
            d.take(start)
            raise
        self.moved = d.gap(start)

    def _respond(self, d: Distances, goal: float) -> None:
        """The fixed point of F with the plans of the last sweep: who maximises improves until nothing changes."""
        if self.sweeper.comparison.plain:
            self._evaluate(d, goal)
            return
        most = self.products + 4 * _PRODUCTS
        while self.products < most:
            change = self.sweeper.sweep_kept(d)
            self.products += 1
            if change <= goal:
                return
            self._evaluate(d, max(goal, _CLOSER * change))

    def _evaluate_in_place(self, d: Distances, report: Sweep, goal: float) -> None:
        """Frozen sweeps of distances that are too many to be copied.

        With ‖F(d) − d‖ ≤ change, the fixed point of F_ω, and so all its iterates from F(d), are within
        c_T change/(1 − c_T) of F(d), and within twice that of each other. Where changes fall by a steady factor ρ, what
        is to come is ρ/(1 − ρ) times the last one, and d goes there at once.
        """
        c_T, before, ratio = self.sweeper.comparison.c_T, np.inf, np.inf
        self.moved = 2.0 * (c_T * report.change + 4.0 * report.rounding) / (1.0 - c_T)
        self.sweeper.sweep_kept(d)
        for products in range(1, _IN_PLACE + 1):
            change = self.sweeper.sweep_frozen(d)
            self.products += 1
            if change <= goal:
                return
            last, ratio = ratio, change / before
            before = change
            if products % 3 == 0 and self.sweeper.transport.order == 1.0 and abs(ratio - last) < 0.05 and ratio < 1.0:
                factor = min(ratio / (1.0 - ratio), c_T / (1.0 - c_T))
                self.moved += factor * change
                self.sweeper.overshoot(d, factor)
                before = ratio = np.inf

    def _evaluate(self, d: Distances, goal: float) -> None:
        if not self.sweeper.follow_paths(d):
            self.products += evaluate(self.sweeper, d, goal)


def _window(nbytes: int) -> tuple[int, int]:
    """(Iterates that are mixed, frozen sweeps before each), for distances of that size."""
    return next(((window, repeat) for most, window, repeat in _WINDOWS if nbytes <= most), (0, 1))


def room_for_iterates(nbytes: int) -> int:
    """Bytes that are needed between sweeps beside distances of that size: iterates, their changes, and two copies."""
    window, _ = _window(nbytes)
    return (2 * (window + 1) + 2) * nbytes if window else 0


def evaluate(sweeper: Sweeper, d: Distances, goal: float) -> int:
    """Bring d to the fixed point of `sweep_frozen`, until that changes it by at most `goal`; returns how many it took.

    Anderson's mixing: each new iterate is the combination of the last ones, all after some frozen sweeps, whose change
    is least in mean square.
    """
    window, repeat = _window(d.nbytes)
    mixing, start = _Mixing(window), d.copy()
    least, idle, products, first = np.inf, 0, 0, 0.0
    while products < _PRODUCTS:
        if products % repeat == 0:
            mixing.begin(d)
        change = sweeper.sweep_frozen(d)
        products += 1
        first = first or change
        if change <= goal or idle > _PATIENCE * window:
            break
        if products % repeat == 0:
            energy = mixing.mix(d)
            if sweeper.transport.order != 1.0:  # powers of distances need them to be positive
                d.clip()
            idle = 0 if energy < 0.9 * least else idle + 1
            least = min(least, energy)
    if not change <= first:
        d.take(start)
    d.clip()
    return products


class _Mixing:
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


def least_combination(gram: Floats, last: int) -> list[float]:
    """Weights that add up to 1 and make the combination of vectors with these inner products shortest.

    Where they cannot be found in the arithmetic, all weight is on the last.
    """
    scale = float(np.trace(gram))
    if 0.0 < scale < np.inf:
        regular = gram / scale + 1e-14 * np.eye(len(gram))
        with single_thread():
            weights = np.linalg.lstsq(regular, np.ones(len(gram)), rcond=None)[0]
        total = float(weights.sum())
        if 0.0 < total < np.inf:
            return [float(weight) / total for weight in weights]
    return [float(k == last) for k in range(len(gram))]


class Extrapolation(Acceleration):
    """Combines the last sweeps, where plans are not kept."""

    def __init__(self, sweeper: Sweeper, pace: Pace) -> None:
        super().__init__(sweeper, pace)
        self._swept: list[Distances] = []
        self._extrapolated = False  # whether the next sweep shows what an extrapolation was worth

    @property
    def at_rest(self) -> bool:
        return not self._swept

    def improve(self, d: Distances, report: Sweep, goal: float) -> None:
        del goal
        self.moved = 0.0
        if self._extrapolated:
            last, self._swept, self._extrapolated = self._swept[-1], [], False
            if not self.pace.judge(report.change, self.sweeper.comparison.c_T):
                self.moved = d.gap(last)
                d.take(last)
            return
        if not self.pace.due():
            return
        self._swept.append(d.copy())
        if len(self._swept) <= _CYCLE:
            return
        steps = [before.copy() for before in self._swept[:-1]]
        for step, after in zip(steps, self._swept[1:], strict=True):
            step.subtract_from(after)
        gram = np.array([x.inner(steps) for x in steps])
        d.blend(least_combination(gram, len(steps) - 1), self._swept[1:])
        d.clip()
        self.pace.most, self._extrapolated = report.change, True
        self._swept = self._swept[-1:]
        self.moved = d.gap(self._swept[0])


def acceleration_of(sweeper: Sweeper, d: Distances, wanted: bool, pace: Pace) -> Acceleration:
    """The way that suits a sweeper and the size of its distances."""
    if not wanted or sweeper.comparison.c_T == 0.0:
        return Acceleration(sweeper, pace)
    if sweeper.keep_choices():
        return PolicyIteration(sweeper, pace)
    return Extrapolation(sweeper, pace) if _window(d.nbytes)[0] else Acceleration(sweeper, pace)
