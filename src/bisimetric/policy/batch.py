"""Several policy runs as one batch: other seeds, other settings, other models.

One run with a few hundred states leaves a large device idle while the host works, and the host idle while the device
does. A `Batch` goes round its members, each on a stream of its own: their kernels run side by side, and the host's part
of one is done while the device sweeps for the others. Results are those of each alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar, Unpack

from numpy.typing import ArrayLike

from ..backends.select import backend
from ..checks import check_type, merged
from ..model import MDP
from ..status import Status
from .run import PolicyRun, Step
from .settings import PolicyChanges, PolicySettings
from .solve import PolicyWork, progress

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """Work in parts, each of which ends where it would wait for a device."""

    def go_on(self) -> bool:
        """Do the next part; returns whether all is done."""
        ...

    def interrupt(self) -> None:
        """End with what was done."""
        ...

    def result(self) -> T_co: ...


class Batch(Generic[T]):
    """Up to `size` works, side by side on one device.

    Args:
        size: how many.
        device: "cpu" (each part is whole, so works go on in turn) or "cuda".
    """

    def __init__(self, size: int, device: str) -> None:
        self._size, self._device = size, device
        self._idle: list[AbstractContextManager[object]] = []  # streams that are used again, with the memory of each
        self._members: dict[str, tuple[Work[T], AbstractContextManager[object]]] = {}
        self._ended: list[tuple[str, T | Exception]] = []  # kept here, so that Ctrl-C in a round loses none

    def __len__(self) -> int:
        return len(self._members)

    @property
    def full(self) -> bool:
        return len(self._members) >= self._size

    def add(self, key: str, make: Callable[[], Work[T]]) -> None:
        """Take in a work that is made on its stream; results come with its key. The batch must not be full."""
        if not self._idle:
            self._idle.append(backend(self._device, "float64").stream())
        with self._idle[-1]:
            work = make()
        self._members[key] = work, self._idle.pop()

    def go_on(self, *, interrupt: bool = False) -> list[tuple[str, T | Exception]]:
        """One part of each, or the end of each; returns those that ended, with their results or errors."""
        for key, (work, own_stream) in list(self._members.items()):
            try:
                with own_stream:
                    if interrupt:
                        work.interrupt()
                    elif not work.go_on():
                        continue
                    self._ended.append((key, work.result()))
            except Exception as failure:
                self._ended.append((key, failure))
            self._idle.append(self._members.pop(key)[1])
        ended, self._ended = self._ended, []
        return ended


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
    cluster: object = None,
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
        cluster: a Client of Dask, or the address of a scheduler, whose workers do the runs, each on one thread.
        common: settings by name for all.

    Returns:
        One `PolicyRun` per variant. Ctrl-C ends all that have begun with status INTERRUPTED and what was done; the
        others, which are the last ones, are left out. An error of one ends all.
    """
    if side_by_side < 1:
        raise ValueError(f"side_by_side must be at least 1; got {side_by_side}.")
    if cluster is not None:
        return _on_cluster(cluster, [_piece(settings, mdp, {**common, **changes}) for changes in variants])
    runs = [_checked(settings, mdp, {**common, **changes}) for changes in variants]
    devices = {device for device, _ in runs}
    if len(devices) > 1:
        raise ValueError(f"all runs of a batch need the same device; got {', '.join(sorted(devices))}.")
    waiting = deque(enumerate(runs))
    found: dict[int, PolicyRun] = {}
    batch: Batch[PolicyRun] = Batch(side_by_side, next(iter(devices), "cpu"))
    stop = False
    while waiting or len(batch):
        try:
            while waiting and not batch.full:
                number, (_, make) = waiting[0]
                batch.add(str(number), make)
                waiting.popleft()
            for name, outcome in batch.go_on(interrupt=stop):
                if isinstance(outcome, Exception):
                    raise outcome
                found[int(name)] = outcome
                if outcome.status is Status.INTERRUPTED:
                    stop = True
        except KeyboardInterrupt:
            if stop:  # a second one
                raise
            stop = True
        if stop:
            waiting.clear()
    return [found[number] for number in sorted(found)]


class _Piece(NamedTuple):
    """A run that a worker does."""

    mdp: MDP
    settings: PolicySettings
    policy: ArrayLike | None


def _piece(settings: PolicySettings | None, mdp: MDP, given: Variant) -> _Piece:
    """A run for a cluster; refuses what cannot be run there."""
    mdp, policy, observer = given.pop("mdp", mdp), given.pop("policy", None), given.pop("on_progress", None)
    check_type("mdp", mdp, MDP, words="an MDP")
    if observer is not None:
        raise ValueError("on_progress is not for a cluster: steps are done elsewhere.")
    if policy is not None:
        mdp.check_policy(policy)
    chosen = merged(PolicySettings, settings, given)
    if chosen.device != "cpu":
        raise ValueError(f'workers of a cluster use their CPUs; device must be "cpu", got {chosen.device!r}.')
    return _Piece(mdp, chosen, policy)


def _run_piece(piece: _Piece) -> PolicyRun:
    return PolicyWork(piece.mdp, piece.settings, piece.policy).result()


def _on_cluster(cluster: object, given: list[_Piece]) -> list[PolicyRun]:
    """All runs, by workers of Dask; Ctrl-C leaves out those that have not ended."""
    from ..cluster.crew import crew_of
    from ..cluster.pieces import Broken, pieces

    found: dict[int, PolicyRun] = {}
    with crew_of(cluster) as crew:
        crew.check()
        try:
            for number, run in pieces(crew, "bisimetric policy run", _run_piece, given):
                if isinstance(run, Broken):
                    raise run.error
                found[number] = run
        except KeyboardInterrupt:
            if not found:
                raise
    return [found[number] for number in sorted(found)]


def _checked(settings: PolicySettings | None, mdp: MDP, given: Variant) -> tuple[str, Callable[[], PolicyWork]]:
    """(the device of a run, what makes it); refuses what cannot be run."""
    mdp, policy, observer = given.pop("mdp", mdp), given.pop("policy", None), given.pop("on_progress", None)
    check_type("mdp", mdp, MDP, words="an MDP")
    if policy is not None:
        mdp.check_policy(policy)
    chosen = merged(PolicySettings, settings, given)
    return chosen.device, partial(PolicyWork, mdp, chosen, policy, observers=progress(observer))
