"""Fewer sweeps: what is done to the distances between two of them.

**Policy iteration over couplings** (`CouplingIteration`), where solvers keep their plans. F is a game for each pair of
states: one player chooses plans (and under Hausdorff matching the partner of each choice) to make distances small, the
other the label, or the choice to be matched, to make them large. A sweep finds the best plans for d. With these fixed
F becomes F_ω ≥ F, whose fixed point is found by cheap products with the kept plans, and the next sweep chooses anew:
the policy iteration of Howard (chains) and of Hoffman and Karp (games). All maps are monotone contractions, so each
fixed point is above the metric, each is below the one before, and they reach it (Puterman, 1994, chapter 6; for p > 1
the maps are not affine, and the argument is the same). For chains it is the expected discounted difference of rewards
under a coupling of the two walks.

**Extrapolation** (`Extrapolation`) of full sweeps elsewhere: after some plain sweeps, the combination of them whose
change is least in mean square (reduced rank extrapolation, after Eddy and Mešina; GMRES where F is affine).

**Shifts** (`Shifts`) of full sweeps that are too large for that: what falls slowest is the mean of all distances, so
they are shifted to where it is going.

Nothing here is trusted: errors come from full sweeps, whose contraction bound holds for any d. When to accelerate, and
when plain sweeps do better, is a matter of `pace`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from ..backends.comparison import Comparison
from ..backends.protocol import Distances, Sweep, Sweeper
from .evaluation import AndersonMixing, Evaluation, Secants, has_secants, least_combination, mixes
from .pace import WEAK, Pace

_ROUGH, _NARROW = 5, 8  # sweeps of independent plans to begin with, and the widest supports for which that pays
_FEW = 1 << 15  # bytes of d up to which there is no such beginning, and plain sweeps may do if they are not many
_NOT_MANY = 18
_PRODUCTS = 2400  # sweeps with kept plans of one policy iteration
_CYCLE = 5  # sweeps that an extrapolation combines
_IN_PLACE, _ENOUGH = 12, 4  # of one without room for iterates: at most, and where half of the change is gone
_CLOSER = 0.1  # an evaluation leaves this share of the last change


class Acceleration(ABC):
    """What is done between sweeps.

    Attributes: pace; products (frozen sweeps so far); moved (how far the last `improve` may have moved the distances,
    also where Ctrl-C ended it; infinite where that is not known).
    """

    def __init__(self, sweeper: Sweeper, pace: Pace) -> None:
        self.sweeper, self.pace = sweeper, pace
        self.products, self.moved = 0, 0.0

    @property
    def at_rest(self) -> bool:
        """Whether distances and pace are all that the sweeps to come depend on."""
        return True

    def begin(self, d: Distances) -> bool:
        """Bring d, which is 0, some way towards the fixed point before the first sweep; returns whether it moved."""
        del d
        return False

    @abstractmethod
    def improve(self, d: Distances, report: Sweep, goal: float) -> None:
        """Bring d, which a sweep has just replaced, nearer to the fixed point.

        Sweeps end at changes up to `goal`, so nothing much finer is of use.
        """


class CouplingIteration(Acceleration):
    """Solves for the distances of the plans of the last sweep.

    Plans that are best for differences of rewards alone are soon given up, and finding them costs as much as finding
    good ones. So it begins with sweeps of independent plans, which need no search. (Wide supports of states that behave
    alike are another matter: their distances of 0 are best seen by exact plans from the start.)
    """

    def begin(self, d: Distances) -> bool:
        c = self.sweeper.comparison
        if self._few(d) or _nothing_differs(c) or int(c.rows.sizes.max()) > _NARROW:
            return False
        for _ in range(_ROUGH):
            self.sweeper.sweep_roughly(d)
        return True

    def improve(self, d: Distances, report: Sweep, goal: float) -> None:
        c, self.moved = self.sweeper.comparison, 0.0
        soon_there = self._few(d) and self.pace.to_come(report.change, goal) <= _NOT_MANY  # cheaper than what follows
        good = self.pace.judge(report.change, c.c_T)
        swinging, due = not good and self.pace.weak >= WEAK, self.pace.due()
        if (not due and not (swinging and mixes(d.nbytes))) or soon_there:
            return
        self.pace.last = 0.0
        if not due:
            self._move(d, lambda: self._average(d))
            return
        self.pace.before = report.change
        goal = max(0.1 * goal, _CLOSER * report.change, 4.0 * report.rounding)
        if mixes(d.nbytes):
            self._move(d, lambda: self._respond(d, goal, AndersonMixing(self.sweeper)))
        elif has_secants(self.sweeper, d.nbytes):
            self._follow_secants(d, goal)
        else:
            self._evaluate_in_place(d, report, goal)

    def _move(self, d: Distances, how: Callable[[], None]) -> None:
        """Move the distances, and take note of how far; where Ctrl-C comes between, they are what they were."""
        start = d.copy()
        self.moved = np.inf
        try:
            how()
        except KeyboardInterrupt:
            d.take(start)
            self.moved = 0.0
            raise
        self.moved = d.gap(start)

    def _average(self, d: Distances) -> None:
        """Go half the way of a sweep, which ends swings to and fro: near c_T = 1 rounding may keep them up for ever."""
        before = d.copy()
        self.sweeper.sweep_frozen(d)
        self.products += 1
        d.blend([0.5, 0.5], [before, d.copy()])

    @staticmethod
    def _few(d: Distances) -> bool:
        """Whether sweeps cost next to nothing, whatever their plans."""
        return d.nbytes <= _FEW

    def _respond(self, d: Distances, goal: float, way: Evaluation) -> None:
        """The fixed point of F with the plans of the last sweep: who maximises improves until nothing changes."""
        try:
            if self.sweeper.comparison.plain:
                way.evaluate(d, goal)
                return
            while way.products < _PRODUCTS and (change := way.respond(d)) > goal:
                way.evaluate(d, max(goal, _CLOSER * change))
        finally:
            self.products += way.products

    def _follow_secants(self, d: Distances, goal: float) -> None:
        secants = Secants(self.sweeper, d)
        try:
            self._respond(d, goal, secants)
        finally:
            self.moved = secants.moved

    def _evaluate_in_place(self, d: Distances, report: Sweep, goal: float) -> None:
        """Some frozen sweeps of distances that are too many to be copied.

        With ‖F(d) − d‖ ≤ change, the fixed point of F_ω, and so all its iterates from F(d), are within
        c_T change/(1 − c_T) of F(d), and within twice that of each other. What falls slowest is the mean (all pairs
        that have not met go on alike): where two sweeps change it by m and ρm, what is to come is ρ/(1 − ρ) ρm, and all
        distances go there at once (a rank-one correction, after Bertsekas, 1995). A shift by x moves the iterates
        that follow by at most x. One after which changes are larger than before is the last.
        """
        c_T, mean, before = self.sweeper.comparison.c_T, 0.0, np.inf
        self.moved = 2.0 * (c_T * report.change + 4.0 * report.rounding) / (1.0 - c_T)
        goal = max(goal, 2.0 * _CLOSER * report.change)
        if not self.sweeper.comparison.plain:  # a chain has nothing to choose but plans
            self.sweeper.sweep_kept(d)
        for products in range(1, _IN_PLACE + 1):
            change = self.sweeper.sweep_frozen(d)
            self.products += 1
            if change <= goal or (products >= _ENOUGH and change <= 0.5 * report.change):
                return
            if self.sweeper.transport.order != 1.0 or change > before:
                continue
            last, mean = mean, self.sweeper.mean_change(d)
            if last * mean > 0.0:
                by, mean, before = _to_come(last, mean, c_T), 0.0, change
                self.moved += abs(by)
                d.shift(by)


def _nothing_differs(c: Comparison) -> bool:
    """Whether all rewards are equal and no states are kept apart, so that all distances are 0."""
    alike = c.apart[0]
    return bool((c.rewards == c.rewards[0]).all() and (c.apart == alike).all() and (c.columns_apart == alike).all())


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
        self.moved = np.inf
        d.blend(least_combination(gram, len(steps) - 1), self._swept[1:])
        d.clip()
        self.pace.most, self._extrapolated = report.change, True
        self._swept = self._swept[-1:]
        self.moved = d.gap(self._swept[0])


class Shifts(Acceleration):
    """Moves all distances at once, where plans are not kept and distances are too many to be copied.

    As in `CouplingIteration._evaluate_in_place`: where two sweeps change the mean by m and ρm, ρ/(1 − ρ) ρm is to come.
    Only where no distance changes by more than twice the mean, so that none is thrown farther than it had to go.
    """

    def __init__(self, sweeper: Sweeper, pace: Pace) -> None:
        super().__init__(sweeper, pace)
        self._mean = 0.0  # by how much the last sweep changed it, where nothing was moved since

    @property
    def at_rest(self) -> bool:
        return self._mean == 0.0

    def improve(self, d: Distances, report: Sweep, goal: float) -> None:
        del goal
        c_T, self.moved = self.sweeper.comparison.c_T, 0.0
        good = self.pace.judge(report.change, c_T)
        last, self._mean = self._mean, 0.0
        if not self.pace.due() or not good:
            return
        mean = self.sweeper.mean_change(d)
        if abs(mean) < 0.5 * report.change:
            return
        if last * mean > 0.0:
            by = _to_come(last, mean, c_T)
            self.moved, self.pace.most = abs(by), report.change
            d.shift(by)
        else:
            self._mean = mean


def _to_come(last: float, mean: float, most: float) -> float:
    """By how much a mean that changed by these two will still change; their ratio is at most `most`."""
    rho = min(mean / last, most)
    return rho / (1.0 - rho) * mean


def acceleration_of(sweeper: Sweeper, d: Distances, pace: Pace) -> Acceleration | None:
    """The way that suits a sweeper and the size of its distances, if there is one."""
    if sweeper.comparison.c_T == 0.0:
        return None
    if sweeper.keep_choices():
        return CouplingIteration(sweeper, pace)
    if mixes(d.nbytes):
        return Extrapolation(sweeper, pace)
    return Shifts(sweeper, pace) if sweeper.transport.order == 1.0 else None
