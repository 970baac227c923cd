"""What may be said of data beside δ and the discount: arguments that are handed on by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from numpy.typing import ArrayLike

from ..kinds import Sparse
from .intervals import Design


class SetChoices(TypedDict, total=False):
    """What confidence sets rest on; see `Counts.confidence`."""

    reward_range: tuple[float, float] | None
    exact_rewards: bool
    successors: ArrayLike | Sparse | None
    design: Design | None


class BracketChoices(SetChoices, total=False):
    """And how the true metric is bracketed; see `bracket.bracket_of`."""

    fixed_policy: bool
    reward_weight: float
    tol: float
    max_iterations: int
    on_progress: Callable[[int, float], None] | None


class DecompositionChoices(SetChoices, total=False):
    """And how near the metric of the estimated model is; see `bracket.decompose`."""

    tol: float


class PoolChoices(SetChoices, total=False):
    """And what classes are known or looked for; see `pooling.pool`."""

    classes: ArrayLike | None
    bias: float | None
    eps: Sequence[float] | None
    learn_bias: bool
