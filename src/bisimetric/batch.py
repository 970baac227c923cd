"""Several policy runs as one batch: other seeds, other settings, other models."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Unpack

from numpy.typing import ArrayLike

from .checks import check_type
from .model import MDP
from .parts import Batch
from .policy_iteration import run_in_parts
from .policy_run import PolicyChanges, PolicyRun, PolicySettings, Step
from .status import Status


class Variant(PolicyChanges, total=False):
    """What is different in one run of a batch: settings by name, and the model, the first policy, the observer."""

    mdp: MDP
    policy: ArrayLike | None
    on_progress: Callable[[Step], None] | None


def solve_policies(
    mdp: MDP,
    variants: Iterable[Variant],
    settings: PolicySettings | None = None,
    *,
    side_by_side: int = 8,
    **common: Unpack[PolicyChanges],
) -> list[PolicyRun]:
    """Run `solve_policy` several times, as one batch: other seeds, other settings, other models.

    On a GPU the runs go on side by side: the host works for one while the device sweeps for the others. On the CPU they
    go on in turn, step by step, as each uses all threads. Results are those of single runs; only the seconds in their
    histories include the time of others.

    Args:
        mdp: the model.
        variants: for each run, what is different: settings by name, such as [{"seed": s} for s in range(10)]; "mdp" for
            another model, "policy", "on_progress".
        settings: of all runs; by default `PolicySettings()`. The device must be the same for all.
        side_by_side: how many runs go on at a time. Each needs its own memory.
        common: settings by name for all.

    Returns:
        One `PolicyRun` per variant. Ctrl-C ends all that have begun with status INTERRUPTED and what was done; the
        others, which are the last ones, are left out. An error of one ends all.
    """
    if side_by_side < 1:
        raise ValueError(f"side_by_side must be at least 1; got {side_by_side}.")
    runs = [_arguments(settings, mdp, {**common, **changes}) for changes in variants]
    devices = {chosen.device for _, chosen, _, _ in runs}
    if len(devices) > 1:
        raise ValueError(f"all runs of a batch need the same device; got {', '.join(sorted(devices))}.")
    waiting = deque(enumerate(runs))
    found: dict[int, PolicyRun] = {}
    batch: Batch[PolicyRun] = Batch(side_by_side, next(iter(devices), "cpu"))
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
                if outcome.status is Status.INTERRUPTED:
                    stop = KeyboardInterrupt
        except KeyboardInterrupt:
            if stop is not None:  # a second one
                raise
            stop = KeyboardInterrupt
        if stop is not None:
            waiting.clear()
    return [found[number] for number in sorted(found)]


def _arguments(
    settings: PolicySettings | None, mdp: MDP, given: dict[str, Any]
) -> tuple[MDP, PolicySettings, ArrayLike | None, tuple[Callable[[Step], None], ...]]:
    """Arguments of `run_in_parts`; refuses what cannot be run."""
    rest: Any = dict(given)
    mdp, policy, observer = rest.pop("mdp", mdp), rest.pop("policy", None), rest.pop("on_progress", None)
    check_type("mdp", mdp, MDP, words="an MDP")
    if policy is not None:
        mdp.check_policy(policy)
    return mdp, PolicySettings.merged(settings, rest), policy, () if observer is None else (observer,)
