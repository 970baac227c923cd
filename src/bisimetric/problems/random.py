"""Garnet MDPs and gridworlds with copied rooms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..kinds import Floats, Ints
from ..model import MDP

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def garnet(n_states: int = 100, n_actions: int = 2, branching: int = 3, gamma: float = 0.9, seed: int = 0) -> MDP:
    """A random sparse MDP: each action leads to `branching` random states with random probabilities.

    Probabilities are uniform on the simplex, rewards uniform in [0, 1] for each state and action.
    """
    if n_states < 1 or n_actions < 1 or not 1 <= branching <= n_states:
        raise ValueError(
            f"needs n_states ≥ 1, n_actions ≥ 1 and 1 ≤ branching ≤ n_states; got {n_states}, {n_actions}, {branching}."
        )
    from scipy.sparse import csr_array

    rng = np.random.default_rng(seed)
    n = n_states * n_actions
    if branching * 8 < n_states:  # draw with replacement and redo the few rows with repeats
        successors = rng.integers(n_states, size=(n, branching))
        while True:
            successors.sort(axis=1)
            repeats = np.flatnonzero((successors[:, 1:] == successors[:, :-1]).any(axis=1))
            if not repeats.size:
                break
            successors[repeats] = rng.integers(n_states, size=(repeats.size, branching))
    else:
        successors = np.sort(rng.random((n, n_states)).argsort(axis=1)[:, :branching], axis=1)
    probs = rng.dirichlet(np.ones(branching), size=n)
    pointers = np.arange(n + 1) * branching
    P = csr_array((probs.reshape(-1), successors.reshape(-1), pointers), shape=(n, n_states))
    return MDP.from_choices(P, rng.random(n), np.arange(n_states + 1) * n_actions, gamma)


_MOVES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}


def gridworld(
    width: int = 5,
    height: int = 5,
    copies: int = 1,
    slip: float = 0.1,
    noise: float = 0.0,
    gamma: float = 0.95,
    seed: int = 0,
) -> MDP:
    """A room with a goal in its last corner, in several copies that a walker cannot tell apart.

    A move goes where it should with probability 1 − slip and in a random direction otherwise; walls stop it.
    Each move ends in a random copy of the room, by odds of its own for each state and action, so that the copies
    of a cell are bisimilar (they are its class). Reaching the goal is worth 1, once: the goal is left for nowhere.

    Args:
        width, height, copies: size of the room, number of copies.
        slip: probability of a random direction.
        noise: largest relative change of the transition probabilities, drawn for each state and action;
            with noise > 0 the copies are alike but no longer bisimilar.
        gamma, seed: discount; seed of odds and noise.
    """
    if min(width, height, copies) < 1:
        raise ValueError(f"width, height and copies must be at least 1; got {width}, {height}, {copies}.")
    if not 0.0 <= slip <= 1.0 or not 0.0 <= noise < 1.0:
        raise ValueError(f"slip must be in [0, 1] and noise in [0, 1); got {slip} and {noise}.")
    rng = np.random.default_rng(seed)
    cells = width * height
    goal = cells - 1
    n_states = cells * copies
    R = np.zeros((n_states, len(_MOVES)))
    rows = [_Rows(n_states) for _ in _MOVES]
    steps = list(_MOVES.values())

    def landing(cell: int, step: tuple[int, int]) -> int:
        row, column = divmod(cell, width)
        return min(max(row + step[0], 0), height - 1) * width + min(max(column + step[1], 0), width - 1)

    by_cell = np.zeros(cells)
    for copy in range(copies):
        for cell in range(cells):
            s = copy * cells + cell
            around = np.unique([landing(cell, step) for step in steps])
            for a, step in enumerate(steps):
                there = np.array([goal]) if cell == goal else around
                if cell == goal:
                    by_cell[goal] = 1.0
                else:
                    by_cell[landing(cell, step)] += 1.0 - slip
                    for other in steps:
                        by_cell[landing(cell, other)] += slip / len(steps)
                if noise > 0.0:
                    by_cell *= 1.0 + noise * rng.uniform(-1.0, 1.0, size=cells)
                    by_cell /= by_cell.sum()
                if cell != goal:
                    R[s, a] = by_cell[goal]
                odds, there = rng.dirichlet(np.ones(copies)), there[by_cell[there] != 0.0]
                states = (cells * np.arange(copies)[:, None] + there[None, :]).reshape(-1)
                rows[a].add(states, (odds[:, None] * by_cell[None, there]).reshape(-1))
                by_cell[there] = 0.0
    P = [one.matrix() for one in rows]
    names = [f"room {k // cells} row {k % cells // width} column {k % width}" for k in range(n_states)]
    return MDP.from_arrays(
        P, R, gamma, axes="ass", labels=list(_MOVES), state_names=names, classes=np.arange(n_states) % cells
    )


class _Rows:
    """Rows of a stochastic matrix, one after the other; memory is that of their entries."""

    def __init__(self, n_states: int) -> None:
        self._row = np.zeros(n_states)  # sums are those of whole rows, zeros and all
        self._states: list[Ints] = []
        self._probs: list[Floats] = []

    def add(self, states: Ints, masses: Floats) -> None:
        """A row with masses at some states, scaled to sum to 1."""
        self._row[states] = masses
        self._states.append(states)
        self._probs.append(masses / self._row.sum())
        self._row[states] = 0.0

    def matrix(self) -> csr_array:
        from scipy.sparse import csr_array

        pointers = np.concatenate([[0], np.cumsum([len(states) for states in self._states])])
        entries = np.concatenate(self._probs), np.concatenate(self._states), pointers
        return csr_array(entries, shape=(len(self._states), len(self._row)))
