"""The fixed-point operators of losses on finite models: U ← c_R G + c_T T(U), as plain NumPy.

G [S, S] is the reward distance that a loss sees in the mean, T the mean of what its coupling gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..kinds import Floats
from ..model import MDP, Chain, Distributions
from ..transport import Independent as IndependentTransport
from . import couplings
from .couplings import Coupling
from .gaussian import GaussianW2
from .nexts import Transports
from .particles import Particles, extrapolated
from .rewards import MeanRewards, RewardDistance, SampledRewards, VarianceCorrected

_EPS = float(np.finfo(np.float64).eps)
NO_THEOREM = "none: this operator need not contract"
SAMPLED = "none: the mean over particles was taken over finitely many draws"
CONTRACTION = "contraction: fixed couplings, so non-expansive in d"
UNCOUNTED = "a fixed point of this transport, but errors of single transports are not counted"


@dataclass(frozen=True)
class Operator:
    """T of a loss on the states of a model [S, S] → [S, S], and whether that bounds the error of its fixed point.

    error is what one application may be off by, as a share of the largest entry.
    """

    apply: Callable[[Floats], Floats]
    rigorous: bool
    source: str
    error: float = 0.0


def reward_distances(
    rewards: RewardDistance,
    model: MDP | Chain,
    policy: Floats | None,
    of: Callable[[Floats], Floats] = np.asarray,
) -> Floats:
    """G [S, S]: the mean of ΔR, each state's action drawn by the policy and independently of the other's.

    Rewards of a chain, and those of a choice, count as certain. `of` is applied to differences before the mean.
    """
    if isinstance(model, Chain) or policy is None:
        R = model.rewards
        return of(np.abs(R[:, None] - R[None, :]))
    weights, R, starts = policy, model.rewards, model.choice_ptr[:-1]
    means = np.add.reduceat(weights * R, starts)
    if isinstance(rewards, MeanRewards):
        return of(np.abs(means[:, None] - means[None, :]))
    gaps = np.abs(R[:, None] - R[None, :])
    if isinstance(rewards, VarianceCorrected):
        spread = np.add.reduceat(weights * (R - means[model.state_of_choice]) ** 2, starts)[model.state_of_choice]
        gaps = np.sqrt(np.maximum(gaps**2 - spread[:, None] - spread[None, :], 0.0))
    elif not isinstance(rewards, SampledRewards):
        raise TypeError(f"rewards: there is no mean of {type(rewards).__name__}.")
    summed = np.add.reduceat(weights[:, None] * of(gaps), starts, axis=0)
    return np.asarray(np.add.reduceat(weights[None, :] * summed, starts, axis=1))


def operator_of(coupling: Coupling, rows: Distributions, draws: int, seed: int, *, zero_diagonal: bool) -> Operator:
    """T for a coupling, next states of all states known; whether the head puts a state at 0 from itself."""
    P = np.asarray(rows.matrix().toarray())
    if isinstance(coupling, couplings.Categorical) and coupling.transport != IndependentTransport():
        transport = coupling.transport
        transports = Transports(rows, transport)
        return Operator(lambda d: transports(_ground(d, transport.with_diagonal))[0], False, UNCOUNTED)
    if isinstance(coupling, (couplings.Independent, couplings.Categorical)):
        return Operator(lambda d: np.asarray(P @ d @ P.T), True, CONTRACTION, 4.0 * len(P) * _EPS)
    if isinstance(coupling, GaussianW2):
        return Operator(lambda d: gaussian_w2(P, d), False, NO_THEOREM)
    if isinstance(coupling, Particles):
        mean = _particle_mean if zero_diagonal else _particle_mean_apart
        return Operator(mean(coupling, P, draws, seed), False, SAMPLED)
    raise TypeError(f"coupling: there is no operator for {type(coupling).__name__}.")


def _ground(d: Floats, with_diagonal: bool) -> Floats:
    ground = np.maximum(d, 0.0)
    if not with_diagonal:
        np.fill_diagonal(ground, 0.0)
    return ground


def gaussian_w2(P: Floats, d: Floats) -> Floats:
    """W₂ of Gaussians with the moments of points at Euclidean distances d [S, S], from d alone [B, B].

    ‖μ_i − μ_j‖² = E d²(X, Y) − V_i − V_j with V_i = E d²(X, X')/2 the total variance, and ‖σ_i − σ_j‖² at least
    (√V_i − √V_j)², with equality on a line, or where standard deviations of coordinates are proportional.
    """
    means = P @ (d * d) @ P.T
    total = 0.5 * np.diag(means)
    between = np.maximum(means - total[:, None] - total[None, :], 0.0)
    deviations = np.sqrt(total)
    W = np.sqrt(between + (deviations[:, None] - deviations[None, :]) ** 2)
    np.fill_diagonal(W, 0.0)
    return np.asarray(W)


def _particle_mean(coupling: Particles, P: Floats, draws: int, seed: int) -> Callable[[Floats], Floats]:
    """The mean of T over draws of particles, the same ones whenever it is applied, where D(x, x) = 0."""
    S, rng, excess = len(P), np.random.default_rng(seed), coupling.excess if coupling.debias else 0.0
    with_diagonal = coupling.transport.with_diagonal
    drawn = []
    for _ in range(draws):
        parts = _shares(coupling, P, excess, rng)
        rows = Distributions.from_matrix(np.concatenate(parts)).normalised()
        drawn.append(Transports(rows, coupling.transport, parts=len(parts)))

    def apply(d: Floats) -> Floats:
        ground = _ground(d, with_diagonal)
        return np.asarray(sum((extrapolated(each(ground), excess) for each in drawn), np.zeros((S, S))) / draws)

    return apply


def _particle_mean_apart(coupling: Particles, P: Floats, draws: int, seed: int) -> Callable[[Floats], Floats]:
    """The same where D(x, x) is not 0: then two particles at one state are apart, too.

    Each state has two sets of particles, drawn by themselves, and the second ones count as other points: so a state is
    compared with itself as with any other, and with n = 1 this is P D Pᵀ in the mean.
    """
    S, rng, excess = len(P), np.random.default_rng(seed), coupling.excess if coupling.debias else 0.0
    drawn = []
    for _ in range(draws):
        sides = [_shares(coupling, P, excess, rng) for _ in range(2)]
        parts = [
            np.block([[mine, np.zeros_like(mine)], [np.zeros_like(theirs), theirs]])
            for mine, theirs in zip(*sides, strict=True)
        ]
        rows = Distributions.from_matrix(np.concatenate(parts)).normalised()
        drawn.append(Transports(rows, coupling.transport, parts=len(parts)))

    def apply(d: Floats) -> Floats:
        low = min(float(d.min()), 0.0)  # both transports have p = 1, so that lifting costs adds the same to all of them
        ground = np.tile(d - low, (2, 2))
        np.fill_diagonal(ground, 0.0)  # a point with itself, which no two sides share
        total = sum((extrapolated(each(ground)[:, :S, S:], excess) for each in drawn), np.zeros((S, S))) / draws + low
        return np.asarray(0.5 * (total + total.T))

    return apply


def _shares(coupling: Particles, P: Floats, excess: float, rng: np.random.Generator) -> list[Floats]:
    """What all particles drawn from P, and where needed each half of them, come to as distributions [S, S]."""
    half = coupling.n // 2
    first = rng.multinomial(half, P)  # as counts over the states: equal samples are one point
    rest = rng.multinomial(coupling.n - half, P)
    parts = [first + rest] if excess == 0.0 else [first + rest, first, rest]
    return [counts / counts[0].sum() for counts in parts]


def published_dbc(P: Floats, first: Floats, c_T: float) -> Callable[[Floats], Floats]:
    """|z_ik − z_jk| of one coordinate from the last one: h⁻¹(E h(ΔR) + γ W₂), `first` being E h(ΔR), h smooth L1."""

    def apply(x: Floats) -> Floats:
        wanted = first + c_T * gaussian_w2(P, x)
        return np.asarray(np.where(wanted < 0.5, np.sqrt(2.0 * wanted), wanted + 0.5))

    return apply


def smooth(x: Floats) -> Floats:
    """h(x) for x ≥ 0: x²/2 below 1, x − 1/2 above."""
    return np.asarray(np.where(x < 1.0, 0.5 * x * x, x - 0.5))
