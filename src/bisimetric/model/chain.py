"""A Markov chain with rewards: what is left of an MDP when a policy has made the choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from ..checks import check_number
from ..frames import frame
from ..kinds import Bools, Floats, Ints, Matrix
from ..showing import table_html
from .distributions import Distributions, ModelError, floats, freeze

if TYPE_CHECKING:
    import pandas as pd

_LARGEST_REWARD = 1e280  # values are sums of many of them


@dataclass(frozen=True, eq=False)
class Chain:
    """A Markov chain with rewards. Build one with `Chain.from_arrays` or `MDP.under`.

    Attributes: rows (P, [S] rows), rewards [S], gamma, state_names, classes (known equivalence
    classes of the states, if any, [S]), reward_range (of the model it comes from), state_labels (atomic propositions by
    name, [S] booleans), reward_name (of the reward model in use, if it has a name).
    """

    rows: Distributions
    rewards: Floats
    gamma: float
    state_names: tuple[str, ...] | None = None
    classes: Ints | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    state_labels: Mapping[str, Bools] = field(default_factory=dict)
    reward_name: str | None = None

    @classmethod
    def from_arrays(
        cls, P: Matrix, R: ArrayLike, gamma: float, *, state_labels: Mapping[str, ArrayLike] | None = None
    ) -> Self:
        """A chain from a dense or sparse matrix P [S, S] and rewards R [S].

        Args:
            P: probabilities, rows that sum to 1.
            R: rewards. gamma: discount in [0, 1).
            state_labels: atomic propositions by name, one boolean per state [S].
        """
        rows = Distributions.from_matrix(P).normalised()
        rewards = floats(R, "R: rewards")
        if len(rows) != rows.n_states or rewards.shape != (len(rows),):
            raise ModelError(
                f"a chain needs P [S, S] and R [S]; got P [{len(rows)}, {rows.n_states}] and R {list(rewards.shape)}."
            )
        if len(rows) == 0:
            raise ModelError("a chain needs at least one state.")
        rows.check(lambda row: f"state {row}")
        check_rewards(rewards, lambda row: f"state {row}")
        freeze(rewards)
        labels = {name: checked_label(name, holds, len(rows)) for name, holds in (state_labels or {}).items()}
        return cls(
            rows.freeze(),
            rewards,
            check_discount(gamma),
            state_labels=labels,
            reward_range=(float(rewards.min()), float(rewards.max())),
        )

    @property
    def n_states(self) -> int:
        return self.rows.n_states

    @property
    def reward_span(self) -> float:
        """Largest minus smallest reward of the model."""
        return self.reward_range[1] - self.reward_range[0]

    def name_of(self, state: int) -> str:
        return self.state_names[state] if self.state_names is not None else str(state)

    def to_frame(self) -> pd.DataFrame:
        """All transitions as a data frame of pandas: state, reward, next state, probability."""
        state = self.rows.row_of_entry
        names = np.array([self.name_of(s) for s in range(self.n_states)], dtype=object)
        return frame(
            {
                "state": names[state],
                "reward": self.rewards[state],
                "next_state": names[self.rows.indices],
                "probability": self.rows.probs,
            }
        )

    def _repr_html_(self) -> str:
        low, high = (float(x) for x in (self.rewards.min(), self.rewards.max()))
        facts = {
            "states": self.n_states,
            "transitions": self.rows.probs.size,
            "discount": f"{self.gamma:g}",
            "rewards": f"{low:.4g} to {high:.4g}",
            "labels of states": ", ".join(self.state_labels) or "none",
        }
        return table_html("Chain", facts)

    def __repr__(self) -> str:
        return f"Chain({self.n_states} states, {self.rows.probs.size} transitions, gamma={self.gamma:g})"


def check_discount(gamma: float) -> float:
    """A discount as a number; refuses what is none."""
    gamma = check_number("gamma", gamma)
    if not 0.0 <= gamma < 1.0:
        raise ModelError(f"gamma must be in [0, 1); got {gamma}.")
    return gamma


def check_rewards(rewards: Floats, name_of_row: Callable[[int], str]) -> None:
    """Refuse rewards that are not finite, or so large that values are not."""
    bad = np.flatnonzero(~(np.abs(rewards) <= _LARGEST_REWARD))
    if bad.size:
        raise ModelError(
            f"rewards must be finite (at most {_LARGEST_REWARD:g}); {name_of_row(int(bad[0]))} has {rewards[bad[0]]}."
        )


def checked_label(name: str, holds: ArrayLike, n_states: int) -> Bools:
    """A label as one boolean per state, read-only."""
    array = np.array(holds)
    if array.shape != (n_states,) or array.dtype != np.bool_:
        raise ModelError(f"label {name!r} needs one boolean per state ({n_states}); got {array.dtype} {array.shape}.")
    freeze(array)
    return array
