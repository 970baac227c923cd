"""What kernels take, bundled: pairs, costs, settings."""

from __future__ import annotations

from typing import NamedTuple

from ....kinds import Array


class PairBlock(NamedTuple):
    """Pairs (a, b) of a group of rows: a0 ≤ a < a1 and b ≥ a + first, or b ≥ corner between two models."""

    group: int
    a0: int
    a1: int
    first: int
    corner: int  # where members of the second model begin; 0 where there is one


class Ground(NamedTuple):
    """Ground costs d^p [S, S] or [S, T], and 1/p."""

    cost: Array
    inv_p: float


class Weights(NamedTuple):
    """What reward differences and transports are multiplied by."""

    c_R: float
    c_T: float


class Choices(NamedTuple):
    """Rows of each state on both sides, their rewards, and which states are apart, at the largest distance."""

    pointers: Array  # [S+1]
    column_pointers: Array  # [T+1]
    rewards: Array  # [N]
    apart: Array  # [S]
    columns_apart: Array  # [T]
    largest: float


class Members(NamedTuple):
    """Rows of one label, with the states and rewards of all rows."""

    members: Array
    states: Array  # [N]
    rewards: Array  # [N]


class Scalings(NamedTuple):
    """Sinkhorn's λ, whether the value is wanted, exp(−C/λ), and the largest C/λ for which that is used."""

    reg: float
    as_value: bool
    gibbs: Array | None
    safe: float


class Limits(NamedTuple):
    """Accuracy of an entry, the smallest and largest error of a marginal, most scalings."""

    accuracy: float
    tightest: float
    loosest: float
    iterations: int


class Products(NamedTuple):
    """Scaling by matrix products: exp(−C/λ), that times C, λ, what is wanted, the error of marginals, most rounds."""

    kernel: Array
    weighted: Array
    reg: float
    as_value: bool
    tol: float
    rounds: int


class Ball(NamedTuple):
    """A KL ball, the entropies of the rows [N], the error of marginals, most scalings, and the accuracy of an entry."""

    radius: float
    entropies: Array
    tol: float
    iterations: int
    accuracy: float


class Potentials(NamedTuple):
    """Where bounds come from: λ, or each pair's own, and how far its scalings go."""

    reg: float
    own_reg: bool
    tol: float
    iterations: int
