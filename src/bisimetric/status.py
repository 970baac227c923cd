"""How work ended, and what to do about it."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """How a solve or a run ended. `advice` says what to do, for those who call functions; `command` for the shell."""

    CONVERGED = "converged: the error is within the tolerance"
    SWEEP_LIMIT = "sweep limit reached"
    ROUNDING = "rounding limit reached: the tolerance is finer than the arithmetic"
    TRANSPORT_LIMIT = "transport iteration limit reached"
    TARGET = "the certified bound reached the target"
    SETTLED = "nothing changes any more"
    STALLED = "nothing changes any more, short of the target"
    STEPS = "all steps done"
    DATA = "the data do not allow the target"
    BUDGET = "the budget is spent"
    INTERRUPTED = "interrupted"

    @property
    def advice(self) -> str:
        return _ADVICE.get(self, ("", ""))[0]

    @property
    def command(self) -> str:
        return _ADVICE.get(self, ("", ""))[1]


_ADVICE = {
    Status.SWEEP_LIMIT: (
        "raise max_sweeps; solve_metric goes on with start=solution",
        "raise --max-sweeps, or go on with --resume",
    ),
    Status.ROUNDING: (
        'use a larger tol, or dtype="float64" if it is float32; orders p > 1 and small λ magnify rounding',
        "use a larger --tol, or --dtype float64 if it is float32; orders p > 1 and small λ magnify rounding",
    ),
    Status.TRANSPORT_LIMIT: ("use a larger reg, or Exact()", "use a larger λ, or --transport exact"),
    Status.STALLED: (
        "the classes are too coarse for the target: use a smaller ε, or more sweeps a step where ε is 0",
        "the classes are too coarse for the target: use a smaller --eps, or more --sweeps where that is 0",
    ),
    Status.DATA: (
        "gather more transitions, say more of them (successors, exact_rewards), or use a larger delta",
        "gather more transitions, say more of them (--successors, --exact-rewards), or use a larger --delta",
    ),
    Status.STEPS: ("give more steps: with the same seed they begin with these", "give more --steps to go on"),
    Status.BUDGET: ("give a larger budget, and ask again: what is known is kept", "give a larger budget"),
    Status.INTERRUPTED: (
        "what is certified of the answer holds; solve_metric goes on with start=solution",
        "go on with --resume",
    ),
}
