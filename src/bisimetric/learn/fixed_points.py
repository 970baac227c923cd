"""What a loss converges to on a finite model: the fixed point of its own operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..certificates import Certificate
from ..checks import check_number, check_type, check_whole
from ..kinds import Floats
from ..metric.solve import solve_metric
from ..model import MDP, Chain
from ..transport import Independent, KLBall, Sinkhorn
from .couplings import Categorical
from .heads import Head
from .loss import MetricLoss
from .operators import NO_THEOREM, operator_of, published_dbc, reward_distances, smooth
from .published import PublishedDBC
from .rewards import MeanRewards, SampledRewards


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """What a loss would converge to, with a head that can represent it and targets without noise.

    Attributes:
        values: U [S, S], what the head's `values` become.
        distance: how far apart states are then [S, S], what the head's `distances` become.
        certificate: the error of `values`.
        gap: how far any embedding with this head stays from the solution of the equation on all pairs, at least:
            because that is above its ceiling, or because the head puts every state at 0 from itself and the solution
            does not. 0 where neither is so; then the head may still be unable.
        largest: the largest value of that solution.
        sweeps: how often the operator was applied.
        notes: what one should know.
    """

    values: Floats
    distance: Floats
    certificate: Certificate
    gap: float
    largest: float
    sweeps: int
    notes: tuple[str, ...] = ()


def chain_of(model: MDP | Chain, policy: ArrayLike | None) -> tuple[Chain, Floats | None]:
    """(the chain of a policy, its probabilities per choice; None for a chain)."""
    check_type("model", model, MDP, Chain, words="an MDP or a Chain")
    if isinstance(model, Chain):
        if policy is not None:
            raise TypeError("policy: a Chain has no choices; give None, or the MDP.")
        return model, None
    if policy is None:
        raise TypeError("policy: an MDP needs one; mdp.uniform_policy() is the uniform one.")
    weights = model.check_policy(policy)
    return model.under_checked(weights), weights


def fixed_point(
    loss: MetricLoss | PublishedDBC,
    model: MDP | Chain,
    policy: ArrayLike | None = None,
    *,
    tol: float = 1e-6,
    max_sweeps: int = 100_000,
    draws: int = 64,
    seed: int = 0,
) -> FixedPoint:
    """Solve U = c_R G + c_T T(U) for a loss on a finite model.

    G and T are the means of what the loss sees: with `SampledRewards` E|r − r'| over the actions of the policy, with
    `Particles` the mean transport between particles. A head that puts a state at 0 from itself (`Norm`, `Cosine`) makes
    the diagonal 0 in every step. Terminal states are those of the model (absorbing ones).

    Guarantee: `Categorical` with mean rewards has the certificate of `solve_metric`; `Independent` that of a
    contraction, c_T·change/(1 − c_T) and rounding. `GaussianW2` and `PublishedDBC` have no theorem: iterates may depend
    on where they start (at 0) and stop at `max_sweeps`; with them U is exact where embeddings lie on a line.
    `Particles` has the error of finitely many draws. Penalties other than `Square` have the same fixed point where
    targets have no noise.

    Args:
        loss: a `MetricLoss`, or `dbc(…, as_published=True)`.
        model: an MDP with a policy, or a Chain.
        policy: as for `mdp.under`.
        tol: error to stop at.
        max_sweeps: give up after so many.
        draws, seed: of particles, each of n samples a state.

    Returns:
        A `FixedPoint`. Cost: about log(tol)/log(c_T) applications of T, each S² transports.
    """
    check_type("loss", loss, MetricLoss, PublishedDBC)
    if not 0.0 < check_number("tol", tol) < np.inf:
        raise ValueError(f"tol must be positive and finite; got {tol}.")
    for name, value in (("max_sweeps", max_sweeps), ("draws", draws)):
        if check_whole(name, value) < 1:
            raise ValueError(f"{name} must be at least 1; got {value}.")
    chain, weights = chain_of(model, policy)
    c_R = loss.reward_weight
    if isinstance(loss, PublishedDBC):
        first = reward_distances(SampledRewards(), model, weights, lambda gaps: smooth(c_R * gaps))
        return _published(loss, chain, first, Effort(tol, max_sweeps, draws, seed))
    G = c_R * reward_distances(loss.rewards, model, weights)
    solve = _certified if _is_metric(loss, weights) else _iterated
    found = solve(loss, chain, G, Effort(tol, max_sweeps, draws, seed))
    on_all = found.values  # where a state's distance from itself is not 0, zeros on the diagonal change the others
    if loss.head.zero_diagonal and found.own > tol:
        on_all = solve(loss, chain, G, Effort(tol, max_sweeps, draws, seed, keep_diagonal=True)).values
    values = found.values
    own = np.diag(values)
    distance = values if loss.head.zero_diagonal else values - 0.5 * (own[:, None] + own[None, :])
    notes = (*found.notes, *_notes(loss.head, distance))
    gap, largest = _gap(loss.head, on_all), float(on_all.max())
    return FixedPoint(values, distance, found.certificate, gap, largest, found.sweeps, notes)


class Effort(NamedTuple):
    """How much to do for a fixed point, and whether its diagonal is kept where the head would make it 0."""

    tol: float
    max_sweeps: int
    draws: int
    seed: int
    keep_diagonal: bool = False


class Solved(NamedTuple):
    """A fixed point U [S, S] with its error, sweeps, notes, and the largest U(s, s), also where it is made 0."""

    values: Floats
    certificate: Certificate
    sweeps: int
    notes: tuple[str, ...]
    own: float


def _is_metric(loss: MetricLoss, weights: Floats | None) -> bool:
    """Whether the operator is one that `solve_metric` has: a transport's, on mean rewards."""
    means = weights is None or isinstance(loss.rewards, MeanRewards)
    return means and isinstance(loss.coupling, Categorical)


def _certified(loss: MetricLoss, chain: Chain, G: Floats, effort: Effort) -> Solved:
    """By `solve_metric`, with its certificate."""
    del G
    assert isinstance(loss.coupling, Categorical)
    transport = loss.coupling.transport
    kept = transport.with_diagonal
    zeros = loss.head.zero_diagonal and not effort.keep_diagonal
    if zeros and isinstance(transport, (Sinkhorn, KLBall, Independent)):
        transport = replace(transport, diagonal="zero")
    solution = solve_metric(
        chain,
        transport,
        reward_weight=loss.reward_weight,
        transition_weight=loss.transition_weight,
        tol=effort.tol,
        max_sweeps=effort.max_sweeps,
    )
    notes = () if solution.converged else (f"not within tol: {solution.status.value}",)
    return Solved(
        np.asarray(solution.distance, np.float64),
        solution.certificate,
        solution.sweeps,
        notes,
        np.inf if kept else 0.0,
    )


def _iterated(loss: MetricLoss, chain: Chain, G: Floats, effort: Effort) -> Solved:
    """By plain sweeps from 0."""
    c_T = loss.transition_weight
    alone = loss.head.zero_diagonal
    T = operator_of(loss.coupling, chain.rows, effort.draws, effort.seed, zero_diagonal=alone)
    zeros = alone and not effort.keep_diagonal

    def step(d: Floats) -> Floats:
        new = np.asarray(G + c_T * T.apply(d))
        if zeros:
            np.fill_diagonal(new, 0.0)
        return new

    values, change, sweeps = _sweeps(step, len(G), c_T, effort)
    error = (c_T * change + T.error * float(np.abs(values).max())) / (1.0 - c_T)
    late = change * c_T > 0.5 * effort.tol * (1.0 - c_T)
    notes = (f"not within tol: the last sweep changed values by {change:.3g}",) if late else ()
    own = float(np.diag(G + c_T * T.apply(values)).max())
    return Solved(values, Certificate(error, T.rigorous, T.source), sweeps, notes, own)


def _published(loss: PublishedDBC, chain: Chain, first: Floats, effort: Effort) -> FixedPoint:
    """One coordinate of the public code's DBC."""
    step = published_dbc(np.asarray(chain.rows.matrix().toarray()), first, loss.transition_weight)

    def off_diagonal(x: Floats) -> Floats:
        new = step(x)
        np.fill_diagonal(new, 0.0)
        return new

    c_T = loss.transition_weight
    values, change, sweeps = _sweeps(off_diagonal, len(first), c_T, effort)
    notes = [
        "distances of one coordinate; all have the same equation, and the L1 norm is their number times this",
    ]
    if change * c_T / (1.0 - c_T) > effort.tol:
        notes.append(f"iterates still changed by {change:.3g} after {sweeps} sweeps")
    certificate, largest = Certificate(change / (1.0 - c_T), False, NO_THEOREM), float(values.max())
    return FixedPoint(values, values, certificate, 0.0, largest, sweeps, tuple(notes))


def _sweeps(step: Callable[[Floats], Floats], n_states: int, c_T: float, effort: Effort) -> tuple[Floats, float, int]:
    """(the last iterate from 0, its change, sweeps)."""
    d, change = np.zeros((n_states, n_states)), np.inf
    for sweep in range(1, effort.max_sweeps + 1):
        new = step(d)
        change = float(np.abs(new - d).max())
        d = new
        if change * c_T <= 0.5 * effort.tol * (1.0 - c_T):
            return d, change, sweep
    return d, change, effort.max_sweeps


def _gap(head: Head, values: Floats) -> float:
    """How far every embedding stays from a solution of the equation on all pairs, at least."""
    own = np.diag(values)
    if head.zero_diagonal:
        return max(float(own.max()), float(values.max()) - head.ceiling, 0.0)
    reduced = values - 0.5 * (own[:, None] + own[None, :])
    return 0.5 * max(float(reduced.max()) - head.ceiling, 0.0)  # a distance is off by at most twice an error of values


def _notes(head: Head, distance: Floats) -> tuple[str, ...]:
    top = float(distance.max())
    if top <= head.ceiling:
        return ()
    return (f"the head represents distances up to {head.ceiling:.4g}; the fixed point has {top:.4g}",)
