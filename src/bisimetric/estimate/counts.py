"""Counts of transitions: what data say of a finite MDP, and nothing more.

A `Counts` holds how often each (state, action) led to each state, and the sum and range of the rewards of each (state,
action). Its memory follows the number of distinct transitions, not the number of samples. It is immutable: `extend` and
`merge` give new ones.

States and actions are numbers from 0, or names, which are kept. Where an episode ended (`done`), the transition leads
to the *end*, an absorbing state without rewards, whatever its next state was said to be; an episode that was cut off
(truncated) has not ended. Where `done` is given at all there is an end, seen or not; leave it out for what never ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ..archives import read_arrays, save_arrays
from ..checks import check_number, check_type, check_whole
from ..damage import DamagedFileError, reading
from ..kinds import Array, Floats, Ints, Sparse
from ..model import MDP, Distributions, ModelError
from .choices import BracketChoices, DecompositionChoices, PoolChoices, SetChoices
from .frame import Frame
from .intervals import DESIGNS, Design
from .tally import LARGEST, Chunk, Tally, names_met

if TYPE_CHECKING:
    from .bracket import Bracket, Decomposition
    from .confidence import Confidence
    from .policies import DataCertificate
    from .pooling import PooledPolicy

FORMAT, VERSION = "bisimetric-counts", 2
UNSEEN = ("absent", "sink")
_MOST_ROWS = 50_000_000  # rows that a model may have: each costs some hundred bytes


@dataclass(frozen=True, eq=False, repr=False)
class Counts:
    """How often each state and action led to which state, with the rewards. Make one with `Counts.from_…`.

    Attributes:
        n_states, n_actions: declared, or one more than the largest number seen. The end is not counted.
        source, target, number: distinct transitions, by row = state · n_actions + action (increasing), next state
            (n_states is the end) and how often they were seen [T].
        row: rows that were visited, increasing [M]. visits, reward_sum, reward_low, reward_high: of these [M].
        state_names, action_names: where names were given.
        design: "adaptive", or "fixed" where the visits of each row were decided before any were seen.
        notes: what one should know of the data: a discretiser, transitions that were left out.
        episodic: whether episodes may end (`done` was given, if only to say never so far): there is an end then.
        declared: whether n_states and n_actions were given, and not only seen. What is certified needs both: a state
            or an action that was never met would otherwise be taken for impossible.
    """

    n_states: int
    n_actions: int
    source: Ints
    target: Ints
    number: Ints
    row: Ints
    visits: Ints
    reward_sum: Floats
    reward_low: Floats
    reward_high: Floats
    state_names: tuple[str, ...] | None = None
    action_names: tuple[str, ...] | None = None
    design: Design = "adaptive"
    notes: tuple[str, ...] = ()
    episodic: bool = False
    declared: tuple[bool, bool] = (False, False)

    # ---- making ----

    @classmethod
    def from_transitions(  # noqa: PLR0913 (columns and what is said of them, by their names)
        cls,
        s: ArrayLike,
        a: ArrayLike,
        r: ArrayLike,
        s_next: ArrayLike,
        done: ArrayLike | None = None,
        *,
        n_states: int | None = None,
        n_actions: int | None = None,
        discretiser: Callable[[Array], Ints] | None = None,
        design: Design = "adaptive",
    ) -> Self:
        """Counts of transitions, one entry of each array a transition.

        Args:
            s, a, s_next: states and actions [n]: numbers from 0, or names. Observations of any shape [n, …] for s and
                s_next where a discretiser is given.
            r: rewards [n]. done: whether the episode ended with this transition [n]; None for what never ends.
            n_states, n_actions: how many there are; None for as many as are seen, which is enough for a model, not
                for a certificate.
            discretiser: from observations [n, …] to numbers [n], such as `Grid` or `KMeans`. What is then certified is
                the discretised process, as if it were a Markov decision process.
            design: "fixed" only where the visits of each row were decided before any were seen.
        """
        chunk = Chunk(s, a, r, s_next, done)
        return cls.from_stream([chunk], n_states=n_states, n_actions=n_actions, discretiser=discretiser, design=design)

    @classmethod
    def from_stream(
        cls,
        chunks: Iterable[Chunk | tuple[Any, ...]],
        *,
        n_states: int | None = None,
        n_actions: int | None = None,
        discretiser: Callable[[Array], Ints] | None = None,
        design: Design = "adaptive",
        notes: tuple[str, ...] = (),
    ) -> Self:
        """Counts of transitions that come in chunks (s, a, r, s_next, done), as for `from_transitions`.

        Memory: the distinct transitions so far, and a chunk.
        """
        if design not in DESIGNS:
            raise ValueError(f'design must be "adaptive" or "fixed"; got {design!r}.')
        tally = Tally(_declared("n_states", n_states), _declared("n_actions", n_actions), discretiser)
        for chunk in chunks:
            tally.add(chunk if isinstance(chunk, Chunk) else Chunk(*chunk))
        return cls._of_tally(tally, design, (*notes, *tally.notes))

    @classmethod
    def _of_tally(cls, tally: Tally, design: Design, notes: tuple[str, ...]) -> Self:
        shape, source, target, number = tally.transitions()
        row, visits, sums, low, high = tally.rewards()
        states, actions = tally.names()
        for array in (source, target, number, row, visits, sums, low, high):
            array.setflags(write=False)
        return cls(
            shape.n_states,
            shape.n_actions,
            source,
            target,
            number,
            row,
            visits,
            sums,
            low,
            high,
            states,
            actions,
            design,
            notes,
            tally.episodic,
            tally.declared(),
        )

    @classmethod
    def from_episodes(cls, episodes: Iterable[Any], **options: Any) -> Self:
        """Counts of episodes (states, actions, rewards, terminated); see `sources.episode_chunks`."""
        from .sources import Notes, episode_chunks

        said = Notes()
        return cls._noted(cls.from_stream(episode_chunks(episodes, said), **options), said)

    @classmethod
    def read(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Counts of a file: .csv or .parquet of transitions (see `sources`), or .npz that `save` wrote."""
        from .sources import naming, read_chunks

        path = Path(path)
        if path.suffix == ".npz":
            if options:
                raise TypeError(f"{path}: saved counts have no options; got {', '.join(options)}.")
            return cls.load(path)
        with naming(path):
            return cls.from_stream(read_chunks(path), **options)

    @classmethod
    def from_env(
        cls, env: Any, policy: Any = None, *, steps: int, seed: int, discretiser: Any = None, **options: Any
    ) -> Self:
        """Counts of a walk through a Gymnasium environment; see `sources.env_chunks`."""
        from .sources import env_chunks

        chunks, sizes = env_chunks(env, policy, steps, seed, discretiser, options)
        return cls.from_stream(chunks, discretiser=discretiser, **sizes)

    @classmethod
    def from_simulator(
        cls, simulator: Any, *, n_states: int, n_actions: int, samples: int, seed: int, design: Design = "fixed"
    ) -> Self:
        """Counts of as many samples of every state and action; see `sources.simulator_chunks`. Its design is fixed."""
        from .sources import simulator_chunks

        chunks = simulator_chunks(simulator, n_states, n_actions, samples, seed)
        return cls.from_stream(chunks, n_states=n_states, n_actions=n_actions, design=design)

    @classmethod
    def from_minari(cls, dataset: Any, *, discretiser: Any = None) -> Self:
        """Counts of a Minari dataset, or of its name, with discrete actions; see `sources.minari_chunks`."""
        from .sources import Notes, minari_chunks

        said = Notes()
        chunks, sizes = minari_chunks(dataset, discretiser, said)
        return cls._noted(cls.from_stream(chunks, discretiser=discretiser, **sizes), said)

    @classmethod
    def _noted(cls, counts: Self, said: Any) -> Self:
        return replace(counts, notes=(*counts.notes, *said.lines()))

    # ---- more data ----

    def extend(
        self, s: ArrayLike, a: ArrayLike, r: ArrayLike, s_next: ArrayLike, done: ArrayLike | None = None
    ) -> Self:
        """These counts and more transitions, by the same names. Whatever the design was, it is adaptive then."""
        tally = self._tally()
        tally.add(Chunk(s, a, r, s_next, done))
        return self._of_tally(tally, "adaptive", self.notes)

    def merge(self, other: Counts) -> Self:
        """The counts of both. The design is adaptive then: that there is a second part may depend on the first."""
        check_type("other", other, Counts)
        tally = self._tally()
        tally.merge(other)
        return self._of_tally(tally, "adaptive", tuple(dict.fromkeys((*self.notes, *other.notes))))

    def __add__(self, other: Counts) -> Self:
        return self.merge(other)

    def declare(self, *, n_states: int | None = None, n_actions: int | None = None) -> Self:
        """These counts with how many states and actions there are, seen or not; None leaves it as it was.

        Where the data are known to show all of them, `counts.declare(n_states=counts.n_states, n_actions=…)`.
        """
        sizes = (("n_states", n_states, self.n_states), ("n_actions", n_actions, self.n_actions))
        for name, given, now in sizes:
            if given is not None and check_whole(name, given) < now:
                raise ValueError(f"{name} must be at least {now}, as many as were counted; got {given}.")
        tally = self._tally(n_states, n_actions)
        return self._of_tally(tally, self.design, self.notes)

    def _tally(self, n_states: int | None = None, n_actions: int | None = None) -> Tally:
        known = [n if declared else None for n, declared in zip(self._sizes, self.declared, strict=True)]
        states, actions = (
            now if given is None else given for given, now in zip((n_states, n_actions), known, strict=True)
        )
        tally = Tally(states, actions, None, names=names_met(self))
        tally.merge(self)
        return tally

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.n_states, self.n_actions

    # ---- looking ----

    @property
    def n_samples(self) -> int:
        return int(self.visits.sum())

    @property
    def ends(self) -> bool:
        """Whether there is an end, which may be where an action leads though none was seen to."""
        return self.episodic

    @property
    def n_rows(self) -> int:
        """States times actions."""
        return self.n_states * self.n_actions

    def state_name(self, state: int) -> str:
        return self.state_names[state] if self.state_names is not None else str(state)

    def row_name(self, row: int) -> str:
        state, action = divmod(int(row), self.n_actions)
        name = self.action_names[action] if self.action_names is not None else str(action)
        return f"state {self.state_name(state)}, action {name}"

    def __repr__(self) -> str:
        return (
            f"Counts({self.n_samples} transitions, {len(self.number)} distinct, {len(self.row)} of {self.n_rows} rows "
            f"visited, {self.n_states} states, {self.n_actions} actions, {self.design})"
        )

    # ---- keeping ----

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts to an .npz file, whole or not at all."""
        about = {
            "n_states": self.n_states,
            "n_actions": self.n_actions,
            "design": self.design,
            "notes": list(self.notes),
            "episodic": self.episodic,
            "declared": list(self.declared),
        }
        names = {
            key: np.array(given, dtype=str)
            for key, given in (("state_names", self.state_names), ("action_names", self.action_names))
            if given is not None
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        save_arrays(Path(path), {"format": FORMAT, "version": VERSION, "about": json.dumps(about), **arrays, **names})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Counts from a file that `save` wrote."""
        path = Path(path)
        with reading(path, "saved counts"):
            data = read_arrays(path)
            if str(data.get("format")) != FORMAT or int(data["version"]) != VERSION:
                raise DamagedFileError(f"{path}: not saved counts of this version (format {FORMAT!r}, {VERSION}).")
            return cls._of_arrays(data, json.loads(str(data["about"])))

    @classmethod
    def _of_arrays(cls, data: Mapping[str, Array], about: Mapping[str, Any]) -> Self:
        arrays: dict[str, Any] = {
            name: data[name].astype(np.float64 if name in _REALS else np.int64, casting="safe") for name in _ARRAYS
        }
        S, A = check_whole("n_states", about["n_states"]), check_whole("n_actions", about["n_actions"])
        arrays |= {key: tuple(map(str, data[key])) for key in ("state_names", "action_names") if key in data}
        made = cls(
            S,
            A,
            **arrays,
            design=about["design"],
            notes=tuple(map(str, about["notes"])),
            episodic=bool(about["episodic"]),
            declared=(bool(about["declared"][0]), bool(about["declared"][1])),
        )
        made._check()
        for name in _ARRAYS:
            arrays[name].setflags(write=False)
        return made

    def _check(self) -> None:
        """Refuse arrays that do not belong together."""
        fits = self.n_states >= 1 and self.n_actions >= 1 and self.design in DESIGNS
        fits = fits and self.n_states * self.n_actions <= LARGEST
        fits = fits and len({array.shape for array in (self.source, self.target, self.number)}) == 1
        ofs = (self.row, self.visits, self.reward_sum, self.reward_low, self.reward_high)
        fits = fits and len({array.shape for array in ofs}) == 1 and self.row.ndim == self.source.ndim == 1
        for names, wanted in ((self.state_names, self.n_states), (self.action_names, self.n_actions)):
            fits = fits and (names is None or len(names) == wanted)
        if not fits:
            raise ValueError("the entries do not fit together.")
        if self.number.size:
            order = np.lexsort((self.target, self.source))
            rising = np.array_equal(order, np.arange(len(order))) and bool((np.diff(self.row) > 0).all())
            inside = self.source[0] >= 0 and self.source[-1] < self.n_rows and self.target.min() >= 0
            inside = inside and self.target.max() < self.n_states + self.episodic and self.number.min() > 0
            rewards = np.isfinite([self.reward_sum, self.reward_low, self.reward_high]).all()
            if not rising or not inside or not rewards or (self.reward_low > self.reward_high).any():
                raise ValueError("counts are negative, not finite, or out of range.")
            rows, first = np.unique(self.source, return_index=True)
            if not np.array_equal(rows, self.row) or (np.add.reduceat(self.number, first) != self.visits).any():
                raise ValueError("visits are not those of the transitions.")

    # ---- using ----

    def reward_range(self, given: tuple[float, float] | None) -> tuple[float, float]:
        """The range of the rewards: as given, checked against what was seen; the end earns 0."""
        if given is None:
            if not self.row.size:
                raise ModelError("there are no samples, so reward_range=(lowest, highest) must be given.")
            low, high = float(self.reward_low.min()), float(self.reward_high.max())
        else:
            if np.shape(given) != (2,):
                raise ValueError(f"reward_range must be (lowest, highest); got {given!r}.")
            low, high = (check_number("reward_range", x) for x in given)
            if not -np.inf < low <= high < np.inf:
                raise ValueError(f"reward_range must be (lowest, highest), finite; got {given}.")
            wrong = np.flatnonzero((self.reward_low < low) | (self.reward_high > high))
            if wrong.size:
                k = int(wrong[0])
                seen = self.reward_low[k] if self.reward_low[k] < low else self.reward_high[k]
                raise ModelError(
                    f"a reward of {seen:g} was seen ({self.row_name(self.row[k])}), outside reward_range = "
                    f"({low:g}, {high:g})."
                )
        return (min(low, 0.0), max(high, 0.0)) if self.ends else (low, high)

    def frame(self, reward_range: tuple[float, float]) -> Frame:
        """What was seen, laid out over all declared states and actions."""
        self._check_size()
        from scipy.sparse import csr_array

        n, A = self.n_states + self.ends, self.n_actions
        visits, rewards = np.zeros(n * A), np.zeros(n * A)
        visits[self.row] = self.visits
        rewards[self.row] = np.clip(self.reward_sum / self.visits, self.reward_low, self.reward_high)
        visits[self.n_rows :] = np.inf
        bare = np.flatnonzero((visits == 0.0) | np.isinf(visits))  # they stand at their own states
        data = np.concatenate([self.number / visits[self.source], np.ones(len(bare))])
        rows = np.concatenate([self.source, bare])
        columns = np.concatenate([self.target, bare // A])
        matrix = csr_array((data, (rows, columns)), shape=(n * A, n))
        estimated = Distributions.from_matrix(matrix).normalised().freeze()
        return Frame(estimated, rewards, visits, visits > 0.0, A, reward_range, self.notes)

    def _check_size(self) -> None:
        if self.n_rows > _MOST_ROWS:
            raise ModelError(
                f"{self.n_states} states and {self.n_actions} actions make {self.n_rows} rows, more than a model can "
                f"have ({_MOST_ROWS}).",
                python="Declare fewer states, or count with a coarser discretiser.",
                command="Declare fewer states.",
            )

    def model(self, gamma: float, *, unseen: str = "absent", worst_reward: float | None = None) -> MDP:
        """The maximum-likelihood MDP.

        Args:
            gamma: discount.
            unseen: what becomes of actions that were never tried: "absent" leaves them out (a state without any that
                was tried is an error); "sink" lets them lead to a state "unseen" that earns the worst reward for ever.
            worst_reward: of the sink; None for the least reward that was seen.
        """
        if unseen not in UNSEEN:
            raise ValueError(f'unseen must be "absent" or "sink"; got {unseen!r}.')
        frame = self.frame(self.reward_range(None) if self.row.size else (0.0, 0.0))
        names = [self.state_name(s) for s in range(self.n_states)] + ["end"] * self.ends
        labels = self.action_names or tuple(str(a) for a in range(self.n_actions))
        if unseen == "absent" or frame.observed.all():
            return self._without_unseen(frame, gamma, names, labels)
        worst = frame.reward_range[0] if worst_reward is None else check_number("worst_reward", worst_reward)
        return self._with_sink(frame, gamma, names, labels, worst)

    def _without_unseen(self, frame: Frame, gamma: float, names: list[str], labels: tuple[str, ...]) -> MDP:
        offered = frame.observed.reshape(frame.n_states, self.n_actions)
        bare = np.flatnonzero(~offered.any(axis=1))
        if bare.size:
            raise ModelError(
                f"state {names[int(bare[0])]} was never left, so nothing is known of its actions ({bare.size} such "
                f"state{'s' if bare.size > 1 else ''}).",
                python='Use unseen="sink" to assume the worst of what was never tried.',
                command="Use --unseen sink to assume the worst of what was never tried.",
            )
        kept = np.flatnonzero(frame.observed)
        return MDP(
            frame.rows.take(kept),
            frame.rewards[kept],
            np.concatenate([[0], np.cumsum(offered.sum(axis=1))]).astype(np.int64),
            _discount(gamma),
            (kept % self.n_actions).astype(np.int64),
            labels,
            tuple(names),
        )

    def _with_sink(self, frame: Frame, gamma: float, names: list[str], labels: tuple[str, ...], worst: float) -> MDP:
        from scipy.sparse import csr_array, diags_array, hstack, vstack

        n, A = frame.n_states, self.n_actions
        seen = frame.observed.astype(np.float64)
        moved = diags_array(seen) @ frame.rows.matrix()
        lost = csr_array((1.0 - seen)[:, None])
        own = csr_array((np.ones(A), (np.arange(A), np.full(A, n))), shape=(A, n + 1))
        matrix = vstack([hstack([moved, lost]), own]).tocsr()
        rewards = np.concatenate([np.where(frame.observed, frame.rewards, worst), np.full(A, worst)])
        return MDP(
            Distributions.from_matrix(matrix),
            rewards,
            (np.arange(n + 2) * A).astype(np.int64),
            _discount(gamma),
            np.tile(np.arange(A, dtype=np.int64), n + 1),
            labels,
            (*names, "unseen"),
        )

    def confidence(
        self,
        delta: float,
        *,
        reward_range: tuple[float, float] | None = None,
        exact_rewards: bool = False,
        successors: ArrayLike | Sparse | None = None,
        design: Design | None = None,
    ) -> Confidence:
        """Sets that contain all true rows and rewards with probability 1 − δ (see `confidence` for how).

        Args:
            delta: δ in (0, 1). The numbers of states and actions must have been declared (see `declare`).
            reward_range: (lowest, highest) possible reward. It must be known beforehand unless rewards are exact; None
                for exact rewards only: then those that were seen, for rows that were not.
            exact_rewards: rewards are a function of state and action, so that one visit shows them.
            successors: most states that a row can lead to, the end among them: one number, or one for each row
                [S·A]; or which states these are, True where one can follow [S·A, states], as an array or a sparse
                matrix. None for all states.
            design: None for that of the counts.
        """
        from .confidence import sets_of
        from .support import support_of

        check_delta(delta)
        chosen = self.design if design is None else design
        if chosen not in DESIGNS:
            raise ValueError(f'design must be "adaptive" or "fixed"; got {design!r}.')
        if exact_rewards:
            self._check_exact()
        elif reward_range is None:
            raise ModelError(
                "confidence needs the range of the rewards: what was seen says nothing of what was not.",
                python="Give reward_range=(lowest, highest), or exact_rewards=True where state and action decide them.",
                command="Give --reward-range LOW,HIGH, or --exact-rewards where state and action decide them.",
            )
        self._check_declared()
        frame = self.frame(self.reward_range(reward_range))
        if reward_range is None and not frame.observed.all():
            guess = "rewards of actions never tried are assumed to lie in the range of those seen"
            frame = frame._replace(notes=(*frame.notes, guess))
        return sets_of(frame, delta, chosen, support_of(self, successors, frame), exact_rewards)

    def _check_declared(self) -> None:
        """Refuse sizes that were only seen: how many there are would then depend on the data."""
        words = [what for what, known in zip(("states", "actions"), self.declared, strict=True) if not known]
        if words:
            sizes = dict(zip(("states", "actions"), self._sizes, strict=True))
            raise ModelError(
                f"how many {' and '.join(words)} there are was not declared, only seen; what was never met would be "
                "taken for impossible.",
                python=f"Count with {', '.join(f'n_{what}=…' for what in words)}, or where the data show all, go on "
                f"from counts.declare({', '.join(f'n_{what}={sizes[what]}' for what in words)}).",
                command=f"Give how many there are; where the data show all, "
                f"{' '.join(f'--{what} {sizes[what]}' for what in words)}.",
            )

    def _check_exact(self) -> None:
        differ = np.flatnonzero(self.reward_low < self.reward_high)
        if differ.size:
            k = int(differ[0])
            raise ModelError(
                f"exact rewards: {self.row_name(self.row[k])} earned {self.reward_low[k]:g} and "
                f"{self.reward_high[k]:g}; state and action do not decide the reward.",
                python="Give reward_range=(lowest, highest) instead.",
                command="Give --reward-range LOW,HIGH instead.",
            )

    def bracket(
        self, delta: float, *, gamma: float, policy: ArrayLike | None = None, **options: Unpack[BracketChoices]
    ) -> Bracket:
        """Bounds lower ≤ d ≤ upper on the true metric with probability 1 − δ; see `bracket.bracket_of`."""
        from .bracket import bracket_of

        return bracket_of(self, delta, gamma=gamma, policy=policy, **options)

    def decomposition(
        self, delta: float, *, gamma: float, policy: ArrayLike = "uniform", **options: Unpack[DecompositionChoices]
    ) -> Decomposition:
        """The paper's decomposition of errors for an estimated model; see `bracket.decompose`."""
        from .bracket import decompose

        return decompose(self, delta, gamma=gamma, policy=policy, **options)

    def certify(
        self, policy: ArrayLike, delta: float, *, gamma: float, **options: Unpack[SetChoices]
    ) -> DataCertificate:
        """A bound on the loss of any policy in the true MDP, with probability 1 − δ; see `policies.certify`."""
        from .policies import certify

        return certify(self, policy, delta, gamma=gamma, **options)

    def pool(self, delta: float, *, gamma: float, **options: Unpack[PoolChoices]) -> PooledPolicy:
        """A policy from classes that share their samples; see `pooling.pool`."""
        from .pooling import pool

        return pool(self, delta, gamma=gamma, **options)


_REALS = ("reward_sum", "reward_low", "reward_high")
_ARRAYS = ("source", "target", "number", "row", "visits", *_REALS)


def check_delta(delta: float) -> float:
    """δ as a number in (0, 1)."""
    if not 0.0 < check_number("delta", delta) < 1.0:
        raise ValueError(f"delta must be in (0, 1), the probability that bounds may fail; got {delta}.")
    return float(delta)


def _discount(gamma: float | None) -> float:
    from ..model.chain import check_discount

    if gamma is None:
        raise ModelError("data have no discount.", python="Give gamma.", command="Give --gamma.")
    return check_discount(gamma)


def _declared(name: str, number: int | None) -> int | None:
    if number is not None and check_whole(name, number) < 1:
        raise ValueError(f"{name} must be at least 1; got {number}.")
    return None if number is None else int(number)
