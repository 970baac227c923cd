"""How workers look through a model that they read in parts: its kinds of states, and its rows numbered by them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..kinds import Array, Ints
from ..model import MDP, Chain, Distributions
from ..model.parts import ModelParts, Part
from .costs import BASE
from .errors import ClusterError
from .outline import Kind, Numbering, Outline
from .tiles import Block

if TYPE_CHECKING:
    from .crew import Crew

_STATES = 1 << 20  # states that are read at a time, at most
_COPIES = 6  # of its arrays while a part is read, checked and averaged


class Scan(NamedTuple):
    """What was found in a part.

    Attributes: kinds, of_state (which of them each state is; None where there is one), counts (states of each kind),
    examples (a state of each), reward_range, moved (see `Distributions`), widest (most successors of a row).
    """

    kinds: tuple[Kind, ...]
    of_state: Array | None
    counts: Ints
    examples: Ints
    reward_range: tuple[float, float]
    moved: float
    widest: int


def scanned(crew: Crew, parts: ModelParts, *, by_actions: bool) -> Outline:
    """Let the workers look through a model, once, and compare the check sums of its file, where it has some."""
    if parts.checkable:
        for _ in crew.run("bisimetric check the file", partial(check, parts), parts.checkable, parts.checkable):
            pass
    ranges = ranges_for(crew, parts)
    names = [str(first) for first, _ in ranges]
    work = partial(scan, parts, by_actions)
    found: dict[int, Scan] = dict(crew.run("bisimetric look through the model", work, ranges, names))
    scans = [found[number] for number in range(len(ranges))]
    kinds = tuple(sorted({kind for one in scans for kind in one.kinds}))
    place = {kind: number for number, kind in enumerate(kinds)}
    counts, examples = np.zeros(len(kinds), np.int64), np.full(len(kinds), -1, np.int64)
    of_state = None if len(kinds) == 1 else np.empty(parts.n_states, _whole(len(kinds)))
    for (first, last), one in zip(ranges, scans, strict=True):
        numbers = np.array([place[kind] for kind in one.kinds])
        counts[numbers] += one.counts
        new = numbers[examples[numbers] < 0]
        examples[new] = first + one.examples[examples[numbers] < 0]
        if of_state is not None:
            of_state[first:last] = numbers[0] if one.of_state is None else numbers[one.of_state]
    lows, highs = zip(*(one.reward_range for one in scans), strict=True)
    moved = max(one.moved for one in scans)
    return Outline(
        parts,
        by_actions,
        _stand_in(parts, by_actions, kinds, examples, (min(lows), max(highs)), moved),
        kinds,
        counts,
        of_state,
        max(one.widest for one in scans),
    )


def ranges_for(crew: Crew, parts: ModelParts) -> list[tuple[int, int]]:
    """Ranges of states, one for each thread at least, that are read within the memory of a thread."""
    room = max(crew.memory - BASE, crew.memory // 4, 1)
    return ranges_of(parts.n_states, max(crew.threads, -(-_COPIES * parts.nbytes // room), 1))


def ranges_of(n: int, count: int) -> list[tuple[int, int]]:
    """Ranges of about as many states, so many at least if there are so many, none too large to be read at once."""
    count = min(max(count, -(-n // _STATES)), n)
    cuts = [n * k // count for k in range(count + 1)]
    return list(pairwise(cuts))


def read_range(parts: ModelParts, ends: tuple[int, int]) -> Part:
    """A range of states, as a worker reads it."""
    try:
        return parts.read(*ends)
    except OSError as error:
        raise _unreadable(error) from None


def check(parts: ModelParts, member: str) -> None:
    """Compare a check sum of the file."""
    try:
        parts.check(member)
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError) -> ClusterError:
    return ClusterError(
        f"a worker cannot read the model: {error}. Workers read their parts themselves, so the file must have the "
        "same path for all of them."
    )


def scan(parts: ModelParts, by_actions: bool, ends: tuple[int, int]) -> Scan:
    """Look through some states."""
    part = read_range(parts, ends)
    kinds, examples, of_state = kinds_of(part, parts.label_names, by_actions=by_actions)
    counts = np.bincount(of_state, minlength=len(kinds))
    return Scan(
        kinds,
        of_state.astype(_whole(len(kinds))) if len(kinds) > 1 else None,
        counts,
        examples,
        part.reward_range,
        part.rows.moved,
        int(part.rows.sizes.max()),
    )


def kinds_of(part: Part, labels: Sequence[str], *, by_actions: bool) -> tuple[tuple[Kind, ...], Ints, Ints]:
    """(The kinds in a part, a state of each, the kind of each state)."""
    n, counts = part.n_states, np.diff(part.choice_ptr)
    columns: list[Ints] = [part.labels[name].astype(np.int64) for name in labels]
    if by_actions:
        widest = int(counts.max())
        padded = np.full((n, widest), -1, np.int64)
        states = part.states
        order = np.lexsort((part.actions, states))
        padded[states, np.arange(len(states)) - part.choice_ptr[states]] = part.actions[order]
        columns += list(padded.T)
    if not columns:
        return (((), ()),), np.zeros(1, np.int64), np.zeros(n, np.int64)
    table, first, of_state = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    count = len(labels)
    kinds = tuple(
        (tuple(int(a) for a in line[count:] if a >= 0), tuple(bool(x) for x in line[:count])) for line in table
    )
    return kinds, first, of_state.reshape(-1)


def numbered_block(part: Part, labels: Sequence[str], numbering: Numbering) -> Block:
    """A part as a block of rows of the comparison."""
    kinds, _, of_state = kinds_of(part, labels, by_actions=numbering.by_actions)
    place = {kind: number for number, kind in enumerate(numbering.kinds)}
    kind = np.array([place[one] for one in kinds])[of_state]
    actions = part.actions if numbering.by_actions else np.zeros(len(part.rewards), np.int64)
    rows = part.rows
    return Block(
        np.ascontiguousarray(rows.indptr),
        rows.indices,
        rows.probs,
        part.rewards,
        numbering.groups[kind[part.states], actions],
        part.choice_ptr,
        numbering.apart[kind],
    )


def _whole(count: int) -> type[np.unsignedinteger[Any]]:
    return np.uint8 if count <= 1 << 8 else np.uint16 if count <= 1 << 16 else np.uint32


def _stand_in(
    parts: ModelParts,
    by_actions: bool,
    kinds: tuple[Kind, ...],
    examples: Ints,
    reward_range: tuple[float, float],
    moved: float,
) -> Chain | MDP:
    """A state for each kind, and one more, so that the least and the largest reward are there."""
    kinds, names = (*kinds, kinds[-1]), tuple(str(state) for state in (*examples, examples[-1]))
    n = len(kinds)
    labels = {name: np.array([holds[k] for _, holds in kinds]) for k, name in enumerate(parts.label_names)}
    low, high = reward_range
    if parts.uniform:
        rewards = np.append(np.full(n - 1, low), high)
        rows = _loops(np.arange(n), n, moved)
        return Chain(rows, rewards, parts.gamma, names, None, reward_range, labels, parts.reward_name)
    sets = [actions if by_actions else (0,) for actions, _ in kinds]
    counts = np.array([len(actions) for actions in sets])
    rewards = np.full(int(counts.sum()), low)
    rewards[-1] = high
    return MDP(
        _loops(np.repeat(np.arange(n), counts), n, moved),
        rewards,
        np.concatenate([[0], np.cumsum(counts)]),
        parts.gamma,
        np.concatenate([np.array(actions, np.int64) for actions in sets]),
        parts.action_labels,
        names,
        state_labels=labels,
        reward_name=parts.reward_name,
    )


def _loops(states: Ints, n: int, moved: float) -> Distributions:
    """Rows that lead to one state each."""
    return Distributions(np.arange(len(states) + 1), states.astype(np.int32), np.ones(len(states)), n, moved)
