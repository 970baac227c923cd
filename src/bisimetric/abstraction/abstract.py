"""A small model that stands for a large one, with its radius and the loss of its policy certified.

    bisimilar states are merged                                  exact
    coordinates of states: distances from landmarks              one value iteration each
    medoids far apart in these, their rows pushed onto classes   a proposal
    D, its cross metric with the model                           the certificate
    again, with D as coordinates                                 a better proposal

How many states it takes. Let states s, t be drawn at random. Where every state is within ε of one of K states of some
small model, two of them are nearest to the same one with probability at least 1/K (Cauchy and Schwarz), and then
d(s, t) ≤ 2ε. So if among n independent pairs h may be within 2ε (their lower bounds do not exclude it), K is at least
1/q, with q the upper confidence limit of Clopper and Pearson for h out of n. This is asked first. Where it does not
decide, as bounds from a brief search may be too low for it, sizes are doubled only as long as the radius falls fast
enough to reach ε in time; that it does not is a heuristic answer, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..aggregation import Partition, partition_within
from ..certificates import Certificate
from ..checks import InputError, check_engine, check_number, check_type, check_whole
from ..kinds import Floats, Ints
from ..metric.driver import Progress
from ..metric.settings import Match
from ..model import MDP, Chain
from ..model.parts import ModelParts
from ..status import Status
from .cross import Cross, cross
from .policies import TURNS, carried, carried_in_parts, loss_of
from .proposals import Medoids, farthest_points, small_model
from .rooms import Rooms
from .subjects import Subject, subject_of

_FIRST_SIZE, _MOST = 8, 512  # states of a small model that is looked for by its radius
_PAIRS, _CONFIDENCE = 1200, 0.99  # that are drawn to see how many states are needed
_ROUNDS, _MOST_ROUNDS = 2, 8  # proposals for a size, and where the last one had room for more states
_PROPOSALS, _PATIENCE = 3, 2.0  # sizes from which a rate is taken, and doublings beyond the last that are granted


class NoCoverError(InputError):
    """There is no small model of the wanted radius; the message says how many states it would have at least."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(
            message, python="Use a larger eps, or give size=.", command="Use a larger --eps, or give --size."
        )
        self.needed = needed


class _StoppedError(Exception):
    """Ctrl-C came; what was found is as true as it would have been."""

    def __init__(self, best: Cross) -> None:
        super().__init__()
        self.best = best


@dataclass(frozen=True, eq=False, repr=False)
class Abstraction:
    """A small model, and what is certain about it.

    Attributes:
        small: the small model [K states].
        class_of: the nearest of its states for each state of the model [S].
        partition: the same as classes, numbered by first appearance; its radius and diameter are certified.
        cross: distances of (merged) states to the small model's states.
        radii: how far each state is from the nearest state of the small model, at most [S].
        policy: of the model, per choice: the small model's best policy, played by all states of a class; None where
            there are no actions to play.
        certificate: how far the values of `policy` are from the best, at most, after the fact.
        notes: what one should know.
        status: CONVERGED, or INTERRUPTED where Ctrl-C ended the search; the certificates are true all the same.
    """

    small: Chain | MDP
    class_of: Ints = field(repr=False)
    partition: Partition
    cross: Cross = field(repr=False)
    radii: Floats = field(repr=False)
    policy: Floats | None = field(repr=False)
    certificate: Certificate | None
    notes: tuple[str, ...] = ()
    status: Status = Status.CONVERGED

    @property
    def radius(self) -> float:
        """The largest distance of a state from the nearest state of the small model, certified."""
        return float(self.radii.max())

    def __repr__(self) -> str:
        loss = "" if self.certificate is None else f", loss of its policy at most {self.certificate.error:.4g}"
        return (
            f"Abstraction({len(self.radii)} states by {self.small.n_states}, radius {self.radius:.4g} (mean "
            f"{float(self.radii.mean()):.4g}){loss})"
        )


def abstract(  # noqa: PLR0913 (settings of a solve, by their names)
    model: Chain | MDP | ModelParts,
    *,
    eps: float | None = None,
    size: int | None = None,
    match: Match | None = None,
    tol: float | None = None,
    device: str = "cpu",
    dtype: str = "float64",
    most: int = _MOST,
    on_progress: Callable[[Progress], None] | None = None,
    cluster: object = None,
    store: Path | str | None = None,
) -> Abstraction:
    """Propose a small model for a large one, and certify it.

    Args:
        model: a `Chain`, or an `MDP` with match="labels" (match="hausdorff" gives no policy); on a cluster, one that is
            read in parts (`read_parts`), of which no states are merged.
        eps: wanted radius: the size is doubled until it is reached. size: or wanted number of states.
        tol: error of the cross metric; 1e-3 of the largest distance, or a tenth of eps.
        device: where its sweeps are done, "cpu" or "cuda" (landmarks and medoids are the host's). dtype: of its
            distances. most: largest size that is tried for an eps.
        on_progress: called after each sweep of a cross metric; reads only.
        cluster, store: workers of Dask that do the sweeps, and a folder that they share; see `compare`.

    Raises:
        NoCoverError: where an eps needs more than `most` states.
    """
    check_type("model", model, Chain, MDP, ModelParts, words="a Chain or an MDP, or one that is read in parts")
    if store is not None and cluster is None:
        raise ValueError("store is for work on a cluster; give cluster (cluster=, --cluster) too.")
    if (eps is None) is (size is None):
        raise ValueError("give eps (the radius) or size (the number of states), one of them.")
    if eps is not None and not 0.0 < check_number("eps", eps) < np.inf:
        raise ValueError(f"eps must be positive and finite; got {eps}.")
    if size is not None and check_whole("size", size) < 1:
        raise ValueError(f"size must be at least 1; got {size}.")
    check_engine(device, dtype)
    if cluster is not None and device != "cpu":
        raise ValueError(f'workers of a cluster use their CPUs; device must be "cpu", got {device!r}.')
    if check_whole("most", most) < 1:
        raise ValueError(f"most must be at least 1; got {most}.")
    rooms = Rooms(cluster, store)
    subject = subject_of(model, match, rooms, dtype)
    within = tol if tol is not None else min(1e-3 * subject.largest, 0.1 * (eps or np.inf))
    work, stopped = _Work(subject, match, within, (device, dtype), on_progress, rooms), False
    try:
        if size is not None:
            best = work.best_of(min(size, subject.n_states))
        else:
            assert eps is not None
            # A model that cannot be halved has no cover; one that merging has made smaller stands for itself.
            n = subject.n_states
            best = _by_radius(work, eps, min(most, n if n < model.n_states else max(n // 2, 1)))
    except _StoppedError as error:
        best, stopped = error.best, True
    return _assembled(model, subject, best, rooms, size=size, stopped=stopped)


def _by_radius(work: _Work, eps: float, most: int) -> Cross:
    needed = states_needed(work.subject, eps)
    n = work.subject.n_states
    if needed > most:
        raise NoCoverError(
            f"no small model: a radius of {eps:g} needs at least {needed} states of {n} ({_CONFIDENCE:.0%} confidence, "
            f"from {_PAIRS} pairs drawn at random), and at most {most} are tried.",
            needed,
        )
    size, radii = min(max(_FIRST_SIZE, needed), most), []
    while True:
        best = work.best_of(size)
        radii.append(float(best.radius.max()) + work.subject.merging)
        if radii[-1] <= eps:
            return best
        if size >= most or (most < n and _hopeless(radii, eps, most / size)):
            raise NoCoverError(
                f"no small model of radius {eps:g} was found with {size} states of {n}, where the radius is "
                f"{radii[-1]:.4g}; at the rate at which it falls, {most} states are not enough (heuristic).",
                size,
            )
        size = min(2 * size, most)


def _hopeless(radii: list[float], eps: float, room: float) -> bool:
    """Whether a radius that falls as in the last doublings of the size stays above eps until there is no room."""
    if len(radii) < _PROPOSALS:
        return False
    rate = (radii[-1] / radii[0]) ** (1.0 / (len(radii) - 1))  # per doubling
    return bool(rate ** (_PATIENCE + np.log2(room)) * radii[-1] > eps)


def states_needed(subject: Subject, eps: float, seed: int = 0) -> int:
    """How many states a small model of radius eps has at least, with 99 % confidence; no more than there are.

    States are those of the model with bisimilar ones merged, all equally likely: one small model state for each is one.
    """
    from scipy.stats import beta

    n = subject.n_states
    if n == 1:
        return 1
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n, (_PAIRS, 2))
    hits = sum(subject.may_be_within(int(s), int(t), 2.0 * eps) for s, t in pairs)
    limit = 1.0 if hits == _PAIRS else float(beta.ppf(_CONFIDENCE, hits + 1, _PAIRS - hits))
    return min(int(np.ceil(1.0 / limit)), n)


@dataclass(frozen=True)
class _Work:
    """What all proposals of one call share."""

    subject: Subject
    match: Match | None
    tol: float
    engine: tuple[str, str]  # device and precision
    on_progress: Callable[[Progress], None] | None
    rooms: Rooms

    def best_of(self, size: int) -> Cross:
        """The proposal of least radius: from landmarks first, then from the distances to the last proposal.

        States that coordinates do not tell apart are told apart by later ones, as long as there is room for more.
        """
        subject = self.subject
        if size >= subject.n_states:  # there is a state for each
            return self._proposed(Medoids(np.arange(subject.n_states), np.arange(subject.n_states), 0.0), None)
        coordinates, best, states = subject.coordinates, None, 0
        for turn in range(_MOST_ROUNDS):
            medoids = farthest_points(coordinates, subject.apart, size)
            if turn >= _ROUNDS and len(medoids.states) <= states:
                break
            states = len(medoids.states)
            found = self._proposed(medoids, best)
            if best is None or _better(found, best):
                best = found
            if turn + 1 >= _ROUNDS and states == size:
                break
            coordinates = found.distance
        assert best is not None
        return best

    def _proposed(self, medoids: Medoids, best: Cross | None) -> Cross:
        """The cross metric of a proposal; where Ctrl-C comes, the better of it and the best so far is the answer."""
        subject, (device, dtype) = self.subject, self.engine
        found = cross(
            subject.model,
            small_model(subject.like, subject.take(medoids.states), medoids),
            tol=self.tol,
            match=self.match,
            device=device,
            dtype=dtype,
            lump=False,
            on_progress=self.on_progress,
            cluster=self.rooms.cluster,
            store=self.rooms.next(),
        )
        if found.status is Status.INTERRUPTED:
            raise _StoppedError(found if best is None or _better(found, best) else best)
        return found


def _better(one: Cross, other: Cross) -> bool:
    """Whether a proposal has a smaller radius, or one that differs by errors only and is smaller in the mean."""
    ahead = float(other.radius.max() - one.radius.max())
    if abs(ahead) > one.error + other.error:
        return ahead > 0.0
    return bool(one.radius.mean() < other.radius.mean())


def _assembled(
    model: Chain | MDP | ModelParts, subject: Subject, best: Cross, rooms: Rooms, *, size: int | None, stopped: bool
) -> Abstraction:
    """The answer for all states of the model."""
    of_state = subject.of_state
    class_of, radii = best.class_of, best.radius
    if of_state is not None:
        class_of, radii = class_of[of_state], np.minimum(radii[of_state] + subject.merging, best.largest)
    notes, found = list(subject.notes), best.small.n_states
    if size is not None and found < min(size, subject.n_states):
        notes.append(f"{found} states, not {size}: what is left was not told apart by their distances to these")
    if best.small.n_states == subject.n_states:
        notes.append("the small model has as many states as the model with bisimilar states merged")
    policy = certificate = None
    if isinstance(best.small, MDP) and best.metric.question.match == "labels":
        if isinstance(model, MDP):
            policy, alone = carried(model, best.small, class_of)
            certificate = loss_of(model, policy)
        else:
            assert isinstance(model, ModelParts)
            turns = 1 if stopped else TURNS
            policy, alone, certificate = carried_in_parts(model, best.small, class_of, rooms, turns)
        if alone:
            notes.append(
                f"states with none of the actions that their class plays, which play all of theirs alike: {alone}"
            )
    partition = partition_within(class_of, radii)
    status = Status.INTERRUPTED if stopped else best.status
    return Abstraction(best.small, class_of, partition, best, radii, policy, certificate, tuple(notes), status)
