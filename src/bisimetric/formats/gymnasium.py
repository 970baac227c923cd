"""Gymnasium environments with a transition table `P`, such as the toy-text ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..model import MDP, ModelError

_Branch = tuple[float, int, float, bool]  # probability, next state, reward, terminated


def from_gymnasium(env: object, gamma: float, **options: Any) -> MDP:
    """An MDP from an environment or its name.

    The table P[s][a] lists (probability, next state, reward, terminated). Repeated successors are added up. Ends of
    episodes lead to an absorbing state without rewards, which is the last one and is named "end". States of a board are
    named by row and column.

    Args:
        env: a name such as "FrozenLake-v1", or an environment.
        gamma: discount.
        options: passed to gymnasium.make, such as map_name="8x8".
    """
    if isinstance(env, str):
        try:
            import gymnasium
        except ImportError:
            raise ModelError("gymnasium is not installed; pip install 'bisimetric[gym]'.") from None
        try:
            env = gymnasium.make(env, **options)
        except Exception as error:  # environments raise what they like
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ModelError(f"gymnasium cannot make {env!r}: {reason}") from None
    table = getattr(getattr(env, "unwrapped", env), "P", None)
    if not isinstance(table, dict) or not table:
        raise ModelError("the environment has no transition table P, which only small, tabular environments have.")
    return _from_table(table, gamma, _names(getattr(env, "unwrapped", env), len(table)))


def _names(env: Any, n_states: int) -> list[str]:
    """Names of the states: row and column where the environment has a board, what Taxi decodes, or numbers."""
    parts = ("row", "column", "passenger", "destination")
    if hasattr(env, "decode") and n_states == 500:  # Taxi
        rows = [tuple(int(x) for x in env.decode(s)) for s in range(n_states)]
        if all(len(row) == len(parts) for row in rows):
            return [" & ".join(f"{name}={x}" for name, x in zip(parts, row, strict=True)) for row in rows]
    shape = np.shape(getattr(env, "desc", ())) or getattr(env, "shape", ())
    if len(shape) == 2 and shape[0] * shape[1] == n_states:
        return [f"row={s // shape[1]} & column={s % shape[1]}" for s in range(n_states)]
    return [str(s) for s in range(n_states)]


def _from_table(
    table: Mapping[int, Mapping[int, Iterable[_Branch]]], gamma: float, names: Sequence[str] | None = None
) -> MDP:
    from scipy.sparse import csr_array

    states = sorted(table)
    if states != list(range(len(states))):
        raise ModelError("the states of the table P must be numbered from 0.")
    end = len(states)
    data: list[float] = []
    rewards: list[float] = []
    rows: list[int] = []
    columns: list[int] = []
    labels: list[str] = []
    pointers = [0]
    ends = False
    for s in states:
        for a in sorted(table[s]):
            total = 0.0
            for probability, target, reward, terminated in table[s][a]:
                data.append(float(probability))
                rows.append(len(rewards))
                columns.append(end if terminated else int(target))
                total += float(probability) * float(reward)
                ends |= bool(terminated)
            rewards.append(total)
            labels.append(str(a))
        pointers.append(len(rewards))
    names = [str(s) for s in states] if names is None else list(names)
    if ends:
        for a in sorted(table[0]):
            data.append(1.0)
            rows.append(len(rewards))
            columns.append(end)
            rewards.append(0.0)
            labels.append(str(a))
        pointers.append(len(rewards))
        names.append("end")
    P = csr_array((data, (rows, columns)), shape=(len(rewards), len(names)))
    return MDP.from_choices(MDP.normalised(P, tol=1e-6), np.array(rewards), pointers, gamma, labels, state_names=names)
