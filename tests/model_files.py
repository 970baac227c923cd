"""Models as files: reading back what was written."""

from __future__ import annotations

from pathlib import Path

import bisimetric as bm
from bisimetric import formats


def reread(path: Path | str, gamma: float | None = None) -> bm.MDP:
    """A model as it was written: the first of its reward models is the one that was in use."""
    whole = formats.read_whole(Path(path), gamma)
    return whole if Path(path).suffix == ".npz" else whole.with_reward(next(iter(whole.reward_models), None))
