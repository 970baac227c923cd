"""The truth to compare learned metrics with: what a loss converges to, and how far an encoder is from d_π.

Both are for finite models. `fixed_point` iterates the loss's own operator; `score` measures an encoder against the
π-bisimulation metric, which `solve_metric` gives with a certified error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..aggregation import EpsilonCover
from ..certificates import Certificate
from ..checks import check_type
from ..kinds import Floats, Ints
from ..metric import MetricSolution, solve_metric
from ..model import MDP, Chain
from ..values import policy_values
from .heads import Head
from .loss import MetricLoss
from .operators import NO_THEOREM, operator_of, published_dbc, reward_distances
from .published import PublishedDBC


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
        sweeps: how often the operator was applied.
        notes: what one should know.
    """

    values: Floats
    distance: Floats
    certificate: Certificate
    gap: float
    sweeps: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Score:
    """How an encoder's distances d̂ stand to the certified d_π; all numbers in units of d_π, none rescaled.

    Attributes:
        sup, mean: largest and mean |d̂ − d_π| over pairs of different states.
        correlation: Pearson's, over these pairs; NaN where all distances are equal.
        lipschitz: by how much c_R |V^π(s) − V^π(t)| exceeds d̂(s, t) at most; d_π has 0.
        agreement: adjusted Rand index of the classes of d̂ and those of d_π, both by `EpsilonCover(eps)`; 1 is the
        same. eps: that of the classes.
        diameter: the largest distance by d_π.
        error: certified error of d_π; `sup` is off by no more.
        distance: d̂ [S, S].
    """

    sup: float
    mean: float
    correlation: float
    lipschitz: float
    agreement: float
    eps: float
    diameter: float
    error: float
    distance: Floats = field(repr=False)

    @property
    def share(self) -> float:
        """The largest error as a share of the diameter."""
        return self.sup / self.diameter if self.diameter > 0.0 else self.sup


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
    draws: int = 16,
    seed: int = 0,
) -> FixedPoint:
    """Solve U = c_R G + c_T T(U) for a loss on a finite model.

    G and T are the means of what the loss sees: with `SampledRewards` E|r − r'| over the actions of the policy, with
    `Particles` the mean transport between particles. A head that puts a state at 0 from itself (`Norm`, `Cosine`) makes
    the diagonal 0 in every step. Terminal states are those of the model (absorbing ones).

    Guarantee: c_T·change/(1 − c_T) bounds the error where T is non-expansive (`Independent`, `Categorical` but for the
    sharp Sinkhorn cost). `GaussianW2` and `PublishedDBC` have no theorem: iterates may depend on where they start (at
    0) and stop at `max_sweeps`; with them U is exact where embeddings lie on a line. `Particles` has the error of
    finitely many draws. Penalties other than `Square` have the same fixed point where targets have no noise.

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
    chain, weights = chain_of(model, policy)
    c_R, c_T = loss.reward_weight, loss.transition_weight
    zero_diagonal = loss.head.zero_diagonal
    if isinstance(loss, PublishedDBC):
        return _published(loss, chain, c_R * _sampled(model, weights), tol, max_sweeps)
    G = c_R * reward_distances(loss.rewards, model, weights)
    T = operator_of(loss.coupling, chain.rows, draws, seed)

    def step(d: Floats) -> Floats:
        return np.asarray(G + c_T * T.apply(d))

    def with_zeros(d: Floats) -> Floats:
        new = step(d)
        np.fill_diagonal(new, 0.0)
        return new

    values, change, sweeps = _iterate(with_zeros if zero_diagonal else step, len(G), c_T, tol, max_sweeps)
    on_all = values  # where a state's distance from itself is not 0, zeros on the diagonal change the others
    if zero_diagonal and float(np.diag(step(values)).max()) > tol:
        on_all = _iterate(step, len(G), c_T, tol, max_sweeps)[0]
    own = np.diag(values)
    distance = values if zero_diagonal else values - 0.5 * (own[:, None] + own[None, :])
    error = (c_T * change + T.error * float(np.abs(values).max())) / (1.0 - c_T)
    return FixedPoint(
        values,
        distance,
        Certificate(error, T.rigorous, T.source),
        _gap(loss.head, on_all),
        sweeps,
        _notes(loss, distance, change, c_T, tol),
    )


def _sampled(model: MDP | Chain, weights: Floats | None) -> Floats:
    """|R_i − R_j| of mean rewards: the code's h of sampled rewards has no simple mean."""
    chain = model if isinstance(model, Chain) else model.under_checked(np.asarray(weights))
    return np.asarray(np.abs(chain.rewards[:, None] - chain.rewards[None, :]))


def _published(loss: PublishedDBC, chain: Chain, delta: Floats, tol: float, max_sweeps: int) -> FixedPoint:
    """One coordinate of the public code's DBC."""
    step = published_dbc(np.asarray(chain.rows.matrix().toarray()), delta, loss.transition_weight)

    def off_diagonal(x: Floats) -> Floats:
        new = step(x)
        np.fill_diagonal(new, 0.0)
        return new

    c_T = loss.transition_weight
    values, change, sweeps = _iterate(off_diagonal, len(delta), c_T, tol, max_sweeps)
    notes = [
        "distances of one coordinate; all have the same equation, and the L1 norm is their number times this",
        "mean rewards are used, and the mean of h(r − r') is larger where rewards are random",
    ]
    if not change * c_T / (1.0 - c_T) <= tol:
        notes.append(f"iterates still changed by {change:.3g} after {sweeps} sweeps")
    return FixedPoint(values, values, Certificate(change / (1.0 - c_T), False, NO_THEOREM), 0.0, sweeps, tuple(notes))


def _iterate(
    step: Callable[[Floats], Floats], n_states: int, c_T: float, tol: float, max_sweeps: int
) -> tuple[Floats, float, int]:
    """(the last iterate from 0, its change, sweeps)."""
    d, change = np.zeros((n_states, n_states)), np.inf
    for sweep in range(1, max_sweeps + 1):
        new = step(d)
        change = float(np.abs(new - d).max())
        d = new
        if change * c_T <= 0.5 * tol * (1.0 - c_T):
            return d, change, sweep
    return d, change, max_sweeps


def _gap(head: Head, values: Floats) -> float:
    """How far every embedding stays from a solution of the equation on all pairs, at least."""
    own = np.diag(values)
    if head.zero_diagonal:
        return max(float(own.max()), float(values.max()) - head.ceiling, 0.0)
    reduced = values - 0.5 * (own[:, None] + own[None, :])
    return 0.5 * max(float(reduced.max()) - head.ceiling, 0.0)  # a distance is off by at most twice an error of values


def _notes(loss: MetricLoss, distance: Floats, change: float, c_T: float, tol: float) -> tuple[str, ...]:
    notes = []
    if change * c_T > 0.5 * tol * (1.0 - c_T):
        notes.append(f"not within tol: the last sweep changed values by {change:.3g}")
    top = float(distance.max())
    if top > loss.head.ceiling:
        notes.append(f"the head represents distances up to {loss.head.ceiling:.4g}; the fixed point has {top:.4g}")
    return tuple(notes)


def score(
    encoder: nn.Module | Callable[[Tensor], Tensor] | Tensor | ArrayLike,
    model: MDP | Chain,
    policy: ArrayLike | None = None,
    *,
    head: Head,
    observations: Tensor | None = None,
    truth: MetricSolution | None = None,
    eps: float | None = None,
) -> Score:
    """Compare an encoder's distances with the certified π-bisimulation metric of a finite model.

    Args:
        encoder: maps observations [S, …] to embeddings [S, D]; or these embeddings.
        model: an MDP with a policy, or a Chain. policy: as for `mdp.under`.
        head: what distances are by.
        observations: of all states, in their order; by default one-hot vectors [S, S].
        truth: a `solve_metric` of the same chain, where there is one already; with it come the weights c_R and c_T, by
            default 1 and the discount.
        eps: of the classes; by default 1 % of the largest possible distance.

    Returns:
        A `Score`. Cost: that of `solve_metric`, unless `truth` is given.
    """
    chain, _ = chain_of(model, policy)
    if truth is None:
        span = chain.reward_span or 1.0
        truth = solve_metric(chain, tol=1e-6 * span / (1.0 - chain.gamma))
    if truth.n_states != chain.n_states:
        raise ValueError(f"truth: has {truth.n_states} states, the model {chain.n_states}.")
    z = embeddings(encoder, chain.n_states, observations)
    with torch.no_grad():
        guess = np.asarray(head.distances(z, z).double().cpu().numpy())
    exact = np.asarray(truth.distance, np.float64)
    different = ~np.eye(chain.n_states, dtype=bool)
    gaps = np.abs(guess - exact)[different]
    V, _ = policy_values(chain, np.zeros(chain.n_states))
    steps = truth.question.reward_weight * np.abs(V[:, None] - V[None, :])
    reach = 0.01 * truth.largest if eps is None else eps
    cover = EpsilonCover(reach)
    return Score(
        sup=float(gaps.max(initial=0.0)),
        mean=float(gaps.mean()) if gaps.size else 0.0,
        correlation=correlation(guess[different], exact[different]),
        lipschitz=max(float((steps - guess).max()), 0.0),
        agreement=rand_index(cover(guess).class_of, cover(exact).class_of),
        eps=reach,
        diameter=float(exact.max()),
        error=truth.error,
        distance=guess,
    )


def embeddings(
    encoder: nn.Module | Callable[[Tensor], Tensor] | Tensor | ArrayLike, n_states: int, observations: Tensor | None
) -> Tensor:
    """Embeddings of all states [S, D], without gradients."""
    if isinstance(encoder, nn.Module) or callable(encoder):
        if observations is None:
            like = next(iter(encoder.parameters()), None) if isinstance(encoder, nn.Module) else None
            observations = (
                torch.eye(n_states) if like is None else torch.eye(n_states, dtype=like.dtype).to(like.device)
            )
        with torch.no_grad():
            z = encoder(observations)
    else:
        z = torch.as_tensor(encoder).detach()
    if z.ndim != 2 or len(z) != n_states:
        raise ValueError(f"encoder: needs embeddings of all {n_states} states [S, D]; got {list(z.shape)}.")
    if not bool(torch.isfinite(z).all()):
        raise ValueError("encoder: embeddings must be finite; it may have diverged.")
    return z


def correlation(x: Floats, y: Floats) -> float:
    """Pearson's correlation; NaN where one of them does not vary."""
    if x.size < 2 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def rand_index(first: Ints, second: Ints) -> float:
    """The adjusted Rand index of two partitions: 1 for equal ones, about 0 for unrelated ones (Hubert and Arabie)."""
    table = np.zeros((int(first.max()) + 1, int(second.max()) + 1))
    np.add.at(table, (first, second), 1.0)
    pairs = [float((count * (count - 1.0) / 2.0).sum()) for count in (table, table.sum(axis=1), table.sum(axis=0))]
    together, left, right = pairs
    everything = len(first) * (len(first) - 1.0) / 2.0
    expected = left * right / everything if everything > 0.0 else 0.0
    most = 0.5 * (left + right)
    return 1.0 if most == expected else (together - expected) / (most - expected)
