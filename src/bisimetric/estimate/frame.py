"""What was seen, laid out over all states and actions: the rows that models and confidence sets are made of."""

from __future__ import annotations

from typing import NamedTuple

from ..kinds import Bools, Floats
from ..model import Distributions


class Frame(NamedTuple):
    """Estimated rows of all declared states and actions, state by state; where episodes end, the end is the last state.

    A row that was never visited stands at its own state, with reward 0, and `observed` is false. Rows of the end are
    known: they stay there and earn nothing, and their visits are infinite.
    """

    rows: Distributions  # [N], over n_states
    rewards: Floats  # [N]: mean of what was earned
    visits: Floats  # [N]
    observed: Bools  # [N]
    n_actions: int
    reward_range: tuple[float, float]
    notes: tuple[str, ...]

    @property
    def n_states(self) -> int:
        return self.rows.n_states
