"""How far an encoder is from the certified metric of a finite model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..aggregation import EpsilonCover
from ..kinds import Floats, Ints
from ..metric.solution import MetricSolution
from ..metric.solve import solve_metric
from ..model import MDP, Chain
from ..values import policy_values
from .fixed_points import chain_of
from .heads import Head


@dataclass(frozen=True, eq=False)
class Score:
    """How an encoder's distances d̂ stand to the certified d_π; all numbers in units of d_π, none rescaled.

    Attributes:
        sup, mean: largest and mean |d̂ − d_π| over pairs of different states.
        correlation: Pearson's, over these pairs; NaN where all distances are equal.
        lipschitz: by how much c_R |V^π(s) − V^π(t)| exceeds d̂(s, t) at most; d_π has 0. Where c_T is below the
            discount that is no theorem, so V^π is then that of the discount c_T.
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
    _refuse_another(truth, chain)
    z = embeddings(encoder, chain.n_states, observations)
    with torch.no_grad():
        guess = np.asarray(head.distances(z, z).double().cpu().numpy())
    exact = np.asarray(truth.distance, np.float64)
    different = ~np.eye(chain.n_states, dtype=bool)
    gaps = np.abs(guess - exact)[different]
    gamma = min(chain.gamma, truth.question.transition_weight)
    V, _ = policy_values(replace(chain, gamma=gamma), np.zeros(chain.n_states))
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


def _refuse_another(truth: MetricSolution, chain: Chain) -> None:
    """Refuse the metric of another chain; one that was loaded from a file does not know which it is of."""
    if truth.n_states != chain.n_states:
        raise ValueError(f"truth: has {truth.n_states} states, the model {chain.n_states}.")
    if not truth.restart.has_model:
        return
    of = truth.restart.reduction.full
    same = isinstance(of, Chain) and np.array_equal(of.rewards, chain.rewards)
    if not same or abs(of.rows.matrix() - chain.rows.matrix()).sum() > 0.0:
        raise ValueError("truth: is the metric of another model; it must be that of this policy's chain.")


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
    if not z.dtype.is_floating_point:
        z = z.double()
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
