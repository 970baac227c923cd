"""Several policy runs as one batch: other seeds, other settings, other models."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import ArrayLike

from .model import MDP
from .parts import Batch
from .policy_iteration import Observers, run_in_parts
from .policy_run import PolicyRun, RunStatus, Settings


def solve_policies(
    mdp: MDP,
    variants: Iterable[Mapping[str, Any]],
    *,
    side_by_side: int = 8,
    device: str = "cpu",
    **common: Any,
) -> list[PolicyRun]:
    """Run `solve_policy` several times, as one batch: other seeds, other settings, other models.

    On a GPU the runs go on side by side: the host works for one while the device sweeps for the others. On the CPU they
    go on in turn, step by step, as each uses all threads. Results are those of single runs; only the seconds in their
    histories include the time of others.

    Args:
        mdp: the model.
        variants: for each run, what is different from `common`: arguments of `solve_policy` by name, such as
            [{"seed": s} for s in range(10)]; "mdp" for another model.
        side_by_side: how many runs go on at a time. Each needs its own memory.
        device: "cpu" or "cuda", for all. common: arguments of `solve_policy` for all.

    Returns:
        One `PolicyRun` per variant. Ctrl-C ends all that have begun with status INTERRUPTED and what was done; the
        others, which are the last ones, are left out. An error of one ends all.
    """
    if side_by_side < 1:
        raise ValueError(f"side_by_side must be at least 1; got {side_by_side}.")
    runs = [_arguments(device=device, **{"mdp": mdp, **common, **changes}) for changes in variants]
    waiting = deque(enumerate(runs))
    found: dict[int, PolicyRun] = {}
    batch: Batch[PolicyRun] = Batch(side_by_side, device)
    stop: type[BaseException] | None = None
    while waiting or len(batch):
        try:
            while waiting and not batch.full:
                number, arguments = waiting[0]
                batch.add(str(number), run_in_parts(*arguments))
                waiting.popleft()
            for name, outcome in batch.go_on(stop):
                if isinstance(outcome, Exception):
                    raise outcome
                found[int(name)] = outcome
                if outcome.status is RunStatus.INTERRUPTED:
                    stop = KeyboardInterrupt
        except KeyboardInterrupt:
            if stop is not None:  # a second one
                raise
            stop = KeyboardInterrupt
        if stop is not None:
            waiting.clear()
    return [found[number] for number in sorted(found)]


def _arguments(
    mdp: MDP, *, policy: ArrayLike | None = None, observers: Observers = (), **settings: Any
) -> tuple[MDP, Settings, ArrayLike | None, Observers]:
    """Arguments of `run_in_parts` from those of `solve_policy`; refuses what cannot be run."""
    given = {name: value for name, value in settings.items() if value is not None}
    if policy is not None:
        mdp.check_policy(policy)
    return mdp, Settings(**given), policy, observers
