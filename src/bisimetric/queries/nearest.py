"""The nearest states of one state, by bounds that are refined where it matters.

Let l be the k-th smallest lower bound of all candidates: the true k-th nearest is at least that far. The k states of
the least upper bounds are therefore at most max(upper) − l farther than it, whatever the others are. While that is too
much, the bounds of a state among the k least lower ones are too far apart; the widest of them is asked for next.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ..kinds import Floats, Ints
from ..status import Status
from .answers import Answer, Budget, Nearest

Ask = Callable[[int, float, Budget], Answer]


def find_nearest(states: Ints, lower: Floats, upper: Floats, k: int, tol: float, budget: Budget, ask: Ask) -> Nearest:
    """The k nearest of some states up to tol, from first bounds on their distances and a way to improve them.

    Args:
        states: numbers of the candidates [C]. lower, upper: first bounds on their distances [C]; they are changed.
        k, tol, budget: as in `Query.nearest`. ask: bounds of a candidate within a tolerance and a budget.
    """
    began, opened, status = time.perf_counter(), 0, Status.CONVERGED
    notes: tuple[str, ...] = ()
    given_up = np.zeros(len(states), np.bool_)
    while True:
        kth_upper = np.partition(upper, k - 1)[k - 1]
        relevant = lower <= kth_upper  # the others are farther than k states, whatever comes
        if not relevant.all():
            states, lower, upper, given_up = (array[relevant] for array in (states, lower, upper, given_up))
        first = np.argpartition(lower, k - 1)[:k] if k < len(states) else np.arange(len(states))
        eta = float(max(kth_upper - lower[first].max(), 0.0))
        if eta <= tol:
            break
        gaps = np.where(given_up[first], -1.0, upper[first] - lower[first])
        chosen = int(first[np.argmax(gaps)])
        if gaps.max() <= 0.0:
            status = Status.ROUNDING
            break
        left = _left(budget, opened, time.perf_counter() - began)
        if left is None:
            status = Status.BUDGET
            break
        answer = ask(int(states[chosen]), 0.5 * tol, left)
        lower[chosen], upper[chosen] = max(lower[chosen], answer.lower), min(upper[chosen], answer.upper)
        opened, notes = opened + answer.opened, answer.notes or notes
        given_up[chosen] = not answer.converged
        if answer.status is Status.INTERRUPTED:
            status = Status.INTERRUPTED
            break
    order = np.lexsort((states, upper))[:k]
    eta = float(max(upper[order].max() - np.sort(lower)[k - 1], 0.0))
    return Nearest(states[order], lower[order], upper[order], eta, status, opened, time.perf_counter() - began, notes)


def _left(budget: Budget, opened: int, seconds: float) -> Budget | None:
    """What is left of a budget; None where it is spent."""
    pairs = None if budget.pairs is None else budget.pairs - opened
    time_left = None if budget.seconds is None else budget.seconds - seconds
    if (pairs is not None and pairs <= 0) or (time_left is not None and time_left <= 0.0):
        return None
    return Budget(pairs=pairs, memory=budget.memory, seconds=time_left)
