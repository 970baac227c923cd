"""Counting: from chunks of transitions to a table of distinct ones.

Transitions have keys, (state · A + action) · (S + 1) + next + 1, with 0 in place of next + 1 for the end, so that
equal transitions are equal numbers. Few possible keys are counted in an array of all of them, many by sorting. Where a
larger state or action turns up than was thought possible, keys are written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..checks import check_whole
from ..kinds import Array, Bools, Floats, Ints
from ..model import ModelError

if TYPE_CHECKING:
    from .counts import Counts

LARGEST = 2**62  # keys are 64-bit numbers
_BLOCK = 1 << 17  # transitions worked on at once: what they need stays in a processor's cache
_DENSE = 1 << 22  # possible keys up to which all have a place in an array
_PATIENCE = 1 << 21  # keys that wait before they are sorted


class Chunk(NamedTuple):
    """Some transitions: arrays of one length; `done` may be None for never."""

    s: Any
    a: Any
    r: Any
    s_next: Any
    done: Any = None


class Shape(NamedTuple):
    """How many states and actions there are."""

    n_states: int
    n_actions: int

    @property
    def n_keys(self) -> int:
        return self.n_states * self.n_actions * (self.n_states + 1)


class _Rewards(NamedTuple):
    """Rows with the number, the sum and the range of their rewards."""

    row: Ints
    visits: Ints
    sums: Floats
    low: Floats
    high: Floats


class Names:
    """Numbers of states or actions: as given, or of names in the order in which they come."""

    def __init__(self, what: str, most: int | None, known: tuple[str, ...] | None = None) -> None:
        self.what, self.most = what, most
        self.place: dict[str, int] = {name: k for k, name in enumerate(known or ())}
        self.named: bool | None = True if known is not None else None

    def numbers(self, given: Array, column: str) -> Ints:
        """Numbers of a column; refuses what is neither whole numbers from 0 nor names."""
        if given.dtype.kind == "O":
            given = np.asarray([x.decode() if isinstance(x, bytes) else x for x in given.tolist()])
        if given.dtype.kind in "US":
            self._be(True, column)
            return self._of_names(given.astype(str), column)
        if given.dtype.kind == "f":
            whole = np.isfinite(given) & (given == np.floor(given))
            if not whole.all():
                k = int(np.flatnonzero(~whole)[0])
                raise ModelError(f"{column}: entry {k} is {given[k]}, neither a whole number nor a name.")
        elif given.dtype.kind not in "iu":
            raise ModelError(f"{column}: needs whole numbers from 0, or names; got an array of dtype {given.dtype}.")
        if given.dtype.kind in "fu" and given.size and given.max() >= LARGEST:
            raise ModelError(f"{column}: entry {int(given.argmax())} is {given.max()}, more than can be told apart.")
        self._be(False, column)
        return given if given.dtype == np.int64 else given.astype(np.int64)

    def _be(self, named: bool, column: str) -> None:
        if self.named is not None and self.named != named:
            words = ("numbers", "names")
            raise ModelError(
                f"{column}: {self.what}s are {words[named]} here and {words[not named]} elsewhere; use one of the two."
            )
        self.named = named

    def _of_names(self, given: Array, column: str) -> Ints:
        unique, inverse = np.unique(given, return_inverse=True)
        if unique.size and not unique[0]:
            raise ModelError(f"{column}: entry {int(np.flatnonzero(inverse == 0)[0])} is empty.")
        numbers = [self.place.setdefault(str(name), len(self.place)) for name in unique]
        if self.most is not None and len(self.place) > self.most:
            extra = list(self.place)[self.most]
            raise ModelError(f"{column}: {extra!r} is one {self.what} more than the {self.most} that were declared.")
        return np.array(numbers, np.int64)[inverse.reshape(-1)] if numbers else np.empty(0, np.int64)

    def listed(self, count: int) -> tuple[str, ...] | None:
        """Names of all; those declared but never seen have made-up ones. None where numbers were given."""
        if not self.named:
            return None
        names = list(self.place)
        taken = set(names)
        extra = (f"{self.what} {k}" for k in range(len(names), len(names) + 2 * count))
        names += [name for name in extra if name not in taken][: count - len(names)]
        return tuple(names)


class Tally:
    """Counts under way. `add` takes chunks; `transitions`, `rewards` and `names` give what was counted."""

    def __init__(
        self,
        n_states: int | None,
        n_actions: int | None,
        discretiser: Callable[[Array], Ints] | None,
        names: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None),
    ) -> None:
        self.states, self.actions = Names("state", n_states, names[0]), Names("action", n_actions, names[1])
        self.discretiser = discretiser
        self.notes: tuple[str, ...] = ()
        if discretiser is not None:
            cells = getattr(discretiser, "n_states", None)
            self.states.most = check_whole("n_states of the discretiser", cells) if cells is not None else n_states
            kind = getattr(discretiser, "__name__", None) or repr(discretiser)
            self.notes = (f"states are cells of {kind}: heuristic, what is certified is the discretised process",)
        self.shape = Shape(self.states.most or 1, self.actions.most or 1)
        self._check_shape()
        self._keys, self._number = np.empty(0, np.int64), np.empty(0, np.int64)
        self._dense: Ints | None = None
        self._waiting: list[Ints] = []
        none, nothing = np.empty(0, np.int64), np.empty(0)
        self._rewards = _Rewards(none, none, nothing, nothing, nothing)
        self._all_rewards: _Rewards | None = None
        self._waiting_rewards: list[tuple[Ints, Floats]] = []
        self._count = 0
        self.episodic = False  # whether episodes may end

    def _check_shape(self) -> None:
        if self.shape.n_keys >= LARGEST:
            raise ModelError(
                f"{self.shape.n_states} states and {self.shape.n_actions} actions are more than can be told apart "
                "(states² · actions must be below 2⁶²)."
            )

    # ---- chunks in ----

    def add(self, chunk: Chunk) -> None:
        """Count the transitions of a chunk; nothing is counted where one of them is wrong."""
        s, a, r, t, done = self._checked(chunk)
        for begin in range(0, len(s), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            self._count_block(s[part], a[part], r[part], t[part], None if done is None else done[part])
        self._count += len(s)
        self.episodic |= done is not None

    def _checked(self, chunk: Chunk) -> tuple[Ints, Ints, Floats, Ints, Bools | None]:
        given = {name: np.asarray(column) for name, column in zip(Chunk._fields, chunk, strict=True)}
        done = None if chunk.done is None else given["done"]
        columns = {name: x for name, x in given.items() if name != "done" or done is not None}
        lengths = {name: len(x) if x.ndim else -1 for name, x in columns.items()}
        if len(set(lengths.values())) > 1 or -1 in lengths.values():
            raise ModelError(f"columns must be as long as each other; got {_listed(lengths)}.")
        flat = ("a", "r", "done") if self.discretiser is not None else tuple(columns)
        for name in flat:
            if name in columns and columns[name].ndim != 1:
                raise ModelError(
                    f"{name}: needs one entry a transition; got shape {columns[name].shape}.",
                    python="Continuous observations need discretiser=Grid(…) or KMeans(…).",
                )
        ended = _ended(done)
        r = _rewards_of(given["r"])
        states = {
            name: self._states(given[name], name, ended if name == "s_next" else None) for name in ("s", "s_next")
        }
        a = self.actions.numbers(given["a"], "a") if len(r) else np.empty(0, np.int64)
        sizes = [(states["s"], states["s_next"], self.states), (a, a, self.actions)]
        grown = [self._room(axis, *pair) for *pair, axis in sizes]
        self._grow(Shape(grown[0], grown[1]))
        return states["s"], a, r, states["s_next"], ended

    def _states(self, given: Array, column: str, ended: Bools | None) -> Ints:
        if not len(given):
            return np.empty(0, np.int64)
        if ended is not None and ended.any():  # whatever stands there: the episode is over
            if ended.all():
                return np.zeros(len(given), np.int64)
            given = given.copy()
            given[ended] = given[int(np.argmin(ended))]
        if self.discretiser is not None:
            cells = np.asarray(self.discretiser(given))
            if cells.shape != (len(given),):
                raise ModelError(f"the discretiser gave shape {cells.shape} for {len(given)} observations.")
            return self.states.numbers(cells, column)
        return self.states.numbers(given, column)

    def _room(self, axis: Names, first: Ints, second: Ints) -> int:
        """How many states or actions there are now; refuses negative ones, and more than were declared."""
        now = self.shape.n_states if axis is self.states else self.shape.n_actions
        if not first.size:
            return now
        low, high = min(int(first.min()), int(second.min())), max(int(first.max()), int(second.max()))
        if low < 0:
            raise ModelError(f"{axis.what}s are numbered from 0; got {low}.")
        if axis.most is not None and high >= axis.most:
            raise ModelError(f"{axis.what} {high} is out of range: {axis.most} {axis.what}s were declared.")
        return max(now, high + 1, len(axis.place))

    def _grow(self, shape: Shape) -> None:
        """Make room for more states or actions: keys are written anew."""
        if shape == self.shape:
            return
        self._settle()
        s, a, t = self._decoded(self._keys)
        rows = self._rewards.row
        rs, ra = np.divmod(rows, self.shape.n_actions)
        self.shape = shape
        self._check_shape()
        A, S = shape.n_actions, shape.n_states
        self._keys = (s * A + a) * (S + 1) + t
        self._rewards = self._rewards._replace(row=rs * A + ra)

    def _decoded(self, keys: Ints) -> tuple[Ints, Ints, Ints]:
        row, t = np.divmod(keys, self.shape.n_states + 1)
        s, a = np.divmod(row, self.shape.n_actions)
        return s, a, t

    def _count_block(self, s: Ints, a: Ints, r: Floats, t: Ints, done: Bools | None) -> None:
        S, A = self.shape
        row = s * A
        row += a
        key = row * (S + 1)
        key += (t + 1) if done is None else np.where(done, 0, t + 1)
        if self.shape.n_keys <= _DENSE:
            if self._dense is None:
                self._dense = np.zeros(self.shape.n_keys, np.int64)
            self._dense += np.bincount(key, minlength=len(self._dense)) if len(self._dense) <= len(key) else 0
            if len(self._dense) > len(key):
                seen, number = np.unique(key, return_counts=True)
                self._dense[seen] += number
        else:
            self._waiting.append(key)
            if sum(map(len, self._waiting)) > max(_PATIENCE, 2 * len(self._keys)):
                self._settle()
        if S * A > _DENSE:
            self._waiting_rewards.append((row, r))
            if sum(len(x) for x, _ in self._waiting_rewards) > max(_PATIENCE, 2 * len(self._rewards.row)):
                self._settle()
        elif len(row) >= S * A:
            self._add_rewards(_reward_table(row, r, S * A))
        else:
            self._scatter_rewards(row, r)

    def _scatter_rewards(self, row: Ints, r: Floats) -> None:
        """Add rewards in arrays of all rows, where there are more of these than transitions in a block."""
        if self._all_rewards is None:
            n = self.shape.n_states * self.shape.n_actions
            empty = (np.zeros(n, np.int64), np.zeros(n), np.full(n, np.inf), np.full(n, -np.inf))
            self._all_rewards = _Rewards(np.empty(0, np.int64), *empty)
        _, visits, sums, low, high = self._all_rewards
        np.add.at(visits, row, 1)
        np.add.at(sums, row, r)
        np.minimum.at(low, row, r)
        np.maximum.at(high, row, r)

    def _settle(self) -> None:
        """Bring what waits into the sorted table."""
        if self._dense is not None:
            found = np.flatnonzero(self._dense)
            self._merge_keys(found, self._dense[found])
            self._dense = None
        if self._all_rewards is not None:
            _, visits, *numbers = self._all_rewards
            self._all_rewards = None
            seen = np.flatnonzero(visits)
            self._add_rewards(_Rewards(seen, visits[seen], *(x[seen] for x in numbers)))
        if self._waiting_rewards:
            row, r = (np.concatenate(column) for column in zip(*self._waiting_rewards, strict=True))
            self._waiting_rewards = []
            self._add_rewards(_reward_table(row, r, self.shape.n_states * self.shape.n_actions))
        if self._waiting:
            keys, number = np.unique(np.concatenate(self._waiting), return_counts=True)
            self._waiting = []
            self._merge_keys(keys, number)

    def _merge_keys(self, keys: Ints, number: Ints) -> None:
        if not self._keys.size:
            self._keys, self._number = keys, number.astype(np.int64)
            return
        both, place = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        total = np.zeros(len(both), np.int64)
        total[place[: len(self._keys)]] = self._number
        total[place[len(self._keys) :]] += number
        self._keys, self._number = both, total

    def _add_rewards(self, new: _Rewards) -> None:
        old = self._rewards
        if np.array_equal(old.row, new.row):
            with np.errstate(over="ignore"):  # `rewards` looks at it
                total = old.sums + new.sums
            self._rewards = _Rewards(
                old.row,
                old.visits + new.visits,
                total,
                np.minimum(old.low, new.low),
                np.maximum(old.high, new.high),
            )
            return
        row = np.union1d(old.row, new.row)
        visits, sums = np.zeros(len(row), np.int64), np.zeros(len(row))
        low, high = np.full(len(row), np.inf), np.full(len(row), -np.inf)
        for part in (old, new):
            place = np.searchsorted(row, part.row)
            visits[place] += part.visits
            sums[place] += part.sums
            low[place], high[place] = np.minimum(low[place], part.low), np.maximum(high[place], part.high)
        self._rewards = _Rewards(row, visits, sums, low, high)

    # ---- other counts in ----

    def merge(self, other: Counts) -> None:
        """Add other counts, by names where they have names."""
        self.episodic |= other.episodic
        met = _met(other)
        state = self._translation(self.states, other.state_names, other.n_states, (met[0], other.declared[0]))
        action = self._translation(self.actions, other.action_names, other.n_actions, (met[1], other.declared[1]))
        sizes = [
            max(now, axis.most or 0, int(numbers.max(initial=-1)) + 1)
            for now, axis, numbers in zip(self.shape, (self.states, self.actions), (state, action), strict=True)
        ]
        self._grow(Shape(*sizes))
        self._settle()
        s, a = np.divmod(other.source, other.n_actions)
        ends = other.target == other.n_states
        t = np.where(ends, 0, state[np.where(ends, 0, other.target)] + 1)
        A, S = self.shape.n_actions, self.shape.n_states
        keys = (state[s] * A + action[a]) * (S + 1) + t
        order = np.argsort(keys)
        self._merge_keys(keys[order], other.number[order])
        s, a = np.divmod(other.row, other.n_actions)
        row = state[s] * A + action[a]
        order = np.argsort(row)
        sums, low, high = other.reward_sum[order], other.reward_low[order], other.reward_high[order]
        self._add_rewards(_Rewards(row[order], other.visits[order], sums, low, high))

    def _translation(self, axis: Names, names: tuple[str, ...] | None, count: int, other: tuple[Bools, bool]) -> Ints:
        """Numbers here of the other's states or actions [count]; −1 for those that only its declaration knows.

        Args:
            other: which of them were met [count], and whether `count` was declared.
        """
        met, declared = other
        if names is None:
            if axis.named and count and axis.place:
                raise ModelError(f"one of the counts has names of {axis.what}s and the other has not.")
            numbers, total = np.arange(count), max(count, self._size(axis))
        else:
            if axis.named is False or (axis.named is None and self._rewards.row.size):
                raise ModelError(f"one of the counts has names of {axis.what}s and the other has not.")
            axis.named = True
            pairs = zip(names, met, strict=True)
            numbers = np.array(
                [axis.place.setdefault(name, len(axis.place)) if seen else -1 for name, seen in pairs], np.int64
            )
            total = len(axis.place)
        if declared:
            axis.most = max(count, axis.most or 0)
        if axis.most is not None and total > axis.most:
            raise ModelError(f"there are {total} {axis.what}s in all, more than the {axis.most} that were declared.")
        return numbers

    def _size(self, axis: Names) -> int:
        """How many states or actions were met, or may have been."""
        return (self.shape.n_states if axis is self.states else self.shape.n_actions) if self._keys.size else 0

    # ---- results out ----

    def transitions(self) -> tuple[Shape, Ints, Ints, Ints]:
        """(shape, rows, next states, numbers) of distinct transitions, in order; the end is state S."""
        self._settle()
        row, t = np.divmod(self._keys, self.shape.n_states + 1)
        target = np.where(t == 0, self.shape.n_states, t - 1)
        order = np.lexsort((target, row))
        return self.shape, row[order], target[order], self._number[order].copy()

    def rewards(self) -> _Rewards:
        """Rewards of the rows that were visited."""
        self._settle()
        row, visits, sums, low, high = self._rewards
        if not np.isfinite(sums).all():
            raise ModelError("r: rewards are so large that their sum overflows; count them in a larger unit.")
        return _Rewards(row.copy(), visits.copy(), sums.copy(), low.copy(), high.copy())

    def declared(self) -> tuple[bool, bool]:
        """Whether it was said how many states and actions there are."""
        return self.states.most is not None, self.actions.most is not None

    def names(self) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Names of states and of actions, where there are any."""
        return self.states.listed(self.shape.n_states), self.actions.listed(self.shape.n_actions)


def _met(counts: Counts) -> tuple[Bools, Bools]:
    """Which states [S] and actions [A] the data have met, other than by being declared."""
    states, actions = np.zeros(counts.n_states, np.bool_), np.zeros(counts.n_actions, np.bool_)
    s, a = np.divmod(counts.row, counts.n_actions)
    states[s], actions[a] = True, True
    states[counts.target[counts.target < counts.n_states]] = True
    return states, actions


def names_met(counts: Counts) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Names that were given, in their order; those made up for what was only declared come after them."""
    listed = (counts.state_names, counts.action_names)
    return tuple(  # type: ignore[return-value]
        None if names is None else names[: int(np.flatnonzero(met).max(initial=-1)) + 1]
        for names, met in zip(listed, _met(counts), strict=True)
    )


def _reward_table(row: Ints, r: Floats, n_rows: int) -> _Rewards:
    """Number, sum and range of the rewards of each row that is among these."""
    if n_rows <= len(row):
        visits = np.bincount(row, minlength=n_rows)
        seen = np.flatnonzero(visits)
        sums = np.bincount(row, weights=r, minlength=n_rows)[seen].astype(np.float64)
        place, size = row, n_rows
    else:
        seen, place, visits = np.unique(row, return_inverse=True, return_counts=True)
        sums = np.bincount(place, weights=r, minlength=len(seen)).astype(np.float64)
        size = len(seen)
    last = np.empty(size)
    last[place] = r  # one reward of each row: mostly they are all alike, and then this is all
    if np.array_equal(last[place], r):
        low = high = last[seen] if size == n_rows else last
    else:
        low, high = last.copy(), last
        np.minimum.at(low, place, r)
        np.maximum.at(high, place, r)
        if size == n_rows:
            low, high = low[seen], high[seen]
    counted = visits[seen] if size == n_rows else visits
    return _Rewards(seen.astype(np.int64), counted.astype(np.int64), sums, low, high)


def _ended(done: Array | None) -> Bools | None:
    """Whether each transition ended its episode."""
    if done is None:
        return None
    if done.dtype.kind == "b":
        return done
    if done.dtype.kind not in "iuf" or not np.isin(done, (0, 1)).all():
        raise ModelError("done: needs true or false (or 1 and 0) for each transition.")
    return np.asarray(done == 1)


def _rewards_of(given: Array) -> Floats:
    if given.dtype.kind not in "fiub":
        first = next((x for x in given.tolist() if not _is_number(x)), given.dtype)
        raise ModelError(f"r: rewards must be numbers; got {str(first)[:40]!r}.")
    r = given if given.dtype == np.float64 else given.astype(np.float64)
    with np.errstate(over="ignore"):
        total = float(r.sum())  # one pass; a look at each entry only where something is wrong
    if not np.isfinite(total):
        wrong = np.flatnonzero(~np.isfinite(r))
        if wrong.size:
            raise ModelError(f"r: rewards must be finite; entry {int(wrong[0])} is {r[wrong[0]]}.")
    return r


def _is_number(word: object) -> bool:
    try:
        float(str(word))
    except ValueError:
        return False
    return True


def _listed(lengths: dict[str, int]) -> str:
    return ", ".join(f"{name}: {n if n >= 0 else 'one value'}" for name, n in lengths.items())
