"""The nearest states of one state, by bounds that are refined where it matters.

Let l be the k-th smallest lower bound of all candidates: the true k-th nearest is at least that far. The k states of
the least upper bounds are therefore at most max(upper) − l farther than it, whatever the others are. While that is too
much, the bounds of a state among the k least lower ones are too far apart; the widest of them is asked for next, once
and to half of what is granted. Where all of these have been, either it is not too much, or some could not be answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..kinds import Bools, Floats, Ints
from ..status import Status
from .answers import Answer, Budget, Nearest

Ask = Callable[[int, float, Budget], Answer]


def find_nearest(states: Ints, lower: Floats, upper: Floats, k: int, tol: float, budget: Budget, ask: Ask) -> Nearest:
    """The k nearest of some states up to tol, from first bounds on their distances and a way to improve them.

    Args:
        states: numbers of the candidates [C]. lower, upper: first bounds on their distances [C]; they are changed.
        k, tol, budget: as in `Query.nearest`. ask: bounds of a candidate within a tolerance and a budget.
    """
    began = time.perf_counter()
    search = _Nearest(_Candidates(states, lower, upper, np.zeros(len(states), np.bool_)), k)
    try:
        status = search.run(tol, budget, ask, began)
    except KeyboardInterrupt:  # between two questions; within one it ends that
        status = Status.INTERRUPTED
    states, lower, upper, _ = search.candidates
    order = np.lexsort((states, upper))[:k]
    eta = float(max(upper[order].max() - np.sort(lower)[k - 1], 0.0))
    seconds = time.perf_counter() - began
    return Nearest(states[order], lower[order], upper[order], eta, status, search.opened, seconds, search.notes)


class _Candidates(NamedTuple):
    """Those that may be among the nearest, replaced all at once, so that Ctrl-C finds them whole."""

    states: Ints
    lower: Floats
    upper: Floats
    asked: Bools


class _Nearest:
    """A search under way."""

    def __init__(self, candidates: _Candidates, k: int) -> None:
        self.candidates, self.k = candidates, k
        self.opened = 0
        self.notes: tuple[str, ...] = ()

    def run(self, tol: float, budget: Budget, ask: Ask, began: float) -> Status:
        k, short = self.k, Status.ROUNDING
        while True:
            kth_upper = np.partition(self.candidates.upper, k - 1)[k - 1]
            relevant = self.candidates.lower <= kth_upper  # the others are farther than k states, whatever comes
            if not relevant.all():
                self.candidates = _Candidates(*(array[relevant] for array in self.candidates))
            states, lower, upper, asked = self.candidates
            first = np.argpartition(lower, k - 1)[:k] if k < len(states) else np.arange(len(states))
            if max(kth_upper - lower[first].max(), 0.0) <= tol:
                return Status.CONVERGED
            gaps = np.where(asked[first], -1.0, upper[first] - lower[first])
            chosen = int(first[np.argmax(gaps)])
            if gaps.max() <= 0.0:
                return short
            left = _left(budget, self.opened, time.perf_counter() - began)
            if left is None:
                return Status.BUDGET
            answer = ask(int(states[chosen]), 0.5 * tol, left)
            lower[chosen], upper[chosen] = max(lower[chosen], answer.lower), min(upper[chosen], answer.upper)
            self.opened, self.notes = self.opened + answer.opened, answer.notes or self.notes
            asked[chosen] = True  # once: it is within half of tol now, or cannot be
            if answer.status is Status.INTERRUPTED:
                return Status.INTERRUPTED
            if answer.status is Status.BUDGET:
                short = Status.BUDGET


def _left(budget: Budget, opened: int, seconds: float) -> Budget | None:
    """What is left of a budget; None where it is spent."""
    pairs = None if budget.pairs is None else budget.pairs - opened
    time_left = None if budget.seconds is None else budget.seconds - seconds
    if (pairs is not None and pairs <= 0) or (time_left is not None and time_left <= 0.0):
        return None
    return Budget(pairs=pairs, memory=budget.memory, seconds=time_left)
