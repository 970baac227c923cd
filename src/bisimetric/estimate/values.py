"""Values over all models that the data allow: of a policy, and the best ones.

Bounds are iterated from the trivial ones, (least and largest reward)/(1 − γ). One backup over the sets keeps them
bounds, and so does taking the better of old and new, so one may stop at any time.

For the best values V* there is more: V* does not depend on the data, so |p̂V* − pV*| is small with high probability for
this one function, by Bernstein's inequality, without a union over functions. Its variance under p is bounded over the
confidence set from the band that V* is known to lie in, and the band narrows from iteration to iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..kinds import Floats, Ints
from ..model import ModelError
from .confidence import Confidence
from .intervals import Design, bernstein

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_EPS = float(np.finfo(np.float64).eps)
_SHARE = 1e-4  # of the range of values: what is left to gain when iterations end
_MOST = 100_000  # iterations for one bound, and for all rounds of a band together
_STRIDE = 8  # iterations between looks ahead
Backup = Callable[[Floats], Floats]


class Band(NamedTuple):
    """Bounds on a value function [S], and on what each row earns with it from then on, r + γ pV [N]."""

    lower: Floats
    upper: Floats
    row_lower: Floats
    row_upper: Floats


def _trivial(sets: Confidence, gamma: float) -> tuple[float, float]:
    least, most = sets.reward_range
    return least / (1.0 - gamma), most / (1.0 - gamma)


def _pad(sets: Confidence, gamma: float) -> float:
    """What rounding may add to an entry of a backup."""
    size = max(abs(x) for x in sets.reward_range) / (1.0 - gamma)
    return (4 * int(sets.rows.sizes.max()) + 16) * _EPS * size


def _limit(sets: Confidence, gamma: float) -> float:
    low, high = _trivial(sets, gamma)
    return _SHARE * (high - low) * (1.0 - gamma)


def _ahead(backup: Backup, V: Floats, step: Floats, gamma: float, above: bool) -> Floats:
    """A bound on the fixed point of a backup T from where its iterates are heading, X = V + step γ/(1 − γ).

    T is monotone, and T(X + c) = TX + γc. So where TX ≤ X + c, X + c/(1 − γ) ≥ T(X + c/(1 − γ)) is above the fixed
    point, and so is TX + cγ/(1 − γ); the same below. X may be anything.
    """
    more = gamma / (1.0 - gamma)
    X = V + more * step
    TX = backup(X)
    gap = TX - X
    return np.asarray(TX + more * float(gap.max() if above else gap.min()))


def _iterated(
    backup: Backup, V: Floats, gamma: float, limit: float, above: bool, most: int = _MOST
) -> tuple[Floats, int]:
    """(The fixed point of a backup, from above or from below, up to what is left to gain; iterations done)."""
    better = np.minimum if above else np.maximum
    change, done, before = np.inf, 0, V
    while change > limit and done < most:
        new = better(V, backup(V))
        if done % _STRIDE == _STRIDE - 1:
            # The last step says where a steady iteration is heading, the mean of several where one goes to and fro.
            for step in (new - V, (new - before) / _STRIDE):
                new = better(new, _ahead(backup, new, step, gamma, above))
            before = new
        change, V, done = float(np.abs(new - V).max()), new, done + 1
    return V, done


def policy_band(sets: Confidence, weights: Floats, gamma: float) -> Band:
    """Bounds on the values of a policy [S, A] over all models in the sets (robust and optimistic evaluation).

    They hold for every policy at once, also for one that was chosen by looking at the data.
    """
    low, high = _trivial(sets, gamma)
    n, pad, limit = sets.n_states, _pad(sets, gamma), _limit(sets, gamma)

    def rows_low(V: Floats) -> Floats:
        return np.asarray(sets.reward_low + gamma * sets.lowest(V) - pad)

    def rows_high(V: Floats) -> Floats:
        return np.asarray(sets.reward_high + gamma * sets.highest(V) + pad)

    def average(rows: Floats) -> Floats:
        return np.asarray((weights * rows.reshape(n, -1)).sum(axis=1))

    lower = _iterated(lambda V: average(rows_low(V)), np.full(n, low), gamma, limit, above=False)[0]
    upper = _iterated(lambda V: average(rows_high(V)), np.full(n, high), gamma, limit, above=True)[0]
    return Band(lower, upper, rows_low(lower), rows_high(upper))


class Pooled(NamedTuple):
    """Rows that share their samples, as a further source of bounds on γ pV* (see `pooling`)."""

    group: Ints  # of each row [N], or −1
    rows: csr_array  # frequencies of the groups [G, S]
    visits: Floats  # [G]
    share: csr_array  # of each row in its group's visits [G, N]
    bias: Floats  # how far γ pV* of a row may be from that of its group's mixture [N]
    log_price: Floats  # of each group [G]: log of how many groups it was chosen from
    alpha: float


def value_band(
    sets: Confidence, gamma: float, alpha: float, *, worst: bool = False, pooled: Pooled | None = None
) -> Band:
    """Bounds on the best values V* (or the worst ones, of a policy that minimises) of the true MDP.

    Args:
        sets: hold with probability 1 − their δ. gamma: discount.
        alpha: a further probability, for Bernstein's inequality at V*; 0 for what the sets alone allow.
        worst: of the policy that minimises. pooled: rows that share samples, with a probability of their own.
    """
    choose = np.minimum if worst else np.maximum
    low, high = _trivial(sets, gamma)
    n, limit = sets.n_states, _limit(sets, gamma)

    def best(rows: Floats) -> Floats:
        return np.asarray(choose.reduce(rows.reshape(n, -1), axis=1))

    lower, upper, width, left = np.full(n, low), np.full(n, high), np.inf, 2 * _MOST
    while True:  # a narrower band, smaller variances, a narrower band
        rows_low, rows_high = _row_backups(
            sets, gamma, alpha if high > low else 0.0, Band(lower, upper, lower, upper), pooled
        )
        lower, one = _iterated(lambda V: best(rows_low(V)), lower, gamma, limit, False, left // 2)  # noqa: B023 (at once)
        upper, other = _iterated(lambda V: best(rows_high(V)), upper, gamma, limit, True, left // 2)  # noqa: B023 (at once)
        last, width, left = width, float((upper - lower).max()), left - one - other
        # Bounds that cross contradict each other, which who asked for them finds; narrower ones would say no more.
        if alpha == 0.0 or left < 2 or (lower > upper).any() or not width < 0.98 * last:
            return Band(lower, upper, rows_low(lower), rows_high(upper))


def _row_backups(
    sets: Confidence, gamma: float, alpha: float, band: Band, pooled: Pooled | None
) -> tuple[Backup, Backup]:
    """What each row earns at least and at most with V from then on [N], for V* within a band."""
    pad, (low, high) = _pad(sets, gamma), _trivial(sets, gamma)
    unit = high - low
    if alpha == 0.0:
        return (
            lambda V: sets.reward_low + gamma * sets.lowest(V) - pad,
            lambda V: sets.reward_high + gamma * sets.highest(V) + pad,
        )
    v = _variance(sets, band.lower, band.upper)
    off = _deviation(sets, v, band.lower, band.upper, alpha, unit)
    shared = None if pooled is None or gamma == 0.0 else _pooled_deviation(pooled, sets.design, v, band, unit)

    def rows_low(V: Floats) -> Floats:
        least = np.maximum(sets.lowest(V), sets.mean(V) - off)
        if pooled is not None and shared is not None:
            least = np.maximum(least, _of_group(pooled, pooled.rows @ V - shared, -np.inf) - pooled.bias / gamma)
        return np.asarray(sets.reward_low + gamma * least - pad)

    def rows_high(V: Floats) -> Floats:
        most = np.minimum(sets.highest(V), sets.mean(V) + off)
        if pooled is not None and shared is not None:
            most = np.minimum(most, _of_group(pooled, pooled.rows @ V + shared, np.inf) + pooled.bias / gamma)
        return np.asarray(sets.reward_high + gamma * most + pad)

    return rows_low, rows_high


def _variance(sets: Confidence, lower: Floats, upper: Floats) -> Floats:
    """A bound on Var_p V of each row [N], over its set, for V within a band.

    Var V ≤ p(V − c)², and (V − c)² is at most the larger of (upper − c)² and (lower − c)². Its mean under p exceeds
    that under p̂ by what may move.
    """
    rows, owner = sets.rows, sets.rows.row_of_entry
    middle = sets.mean(0.5 * (lower + upper))
    c = middle[owner]
    square = np.maximum((upper[rows.indices] - c) ** 2, (lower[rows.indices] - c) ** 2)
    mean = np.bincount(owner, weights=rows.probs * square, minlength=len(rows))
    observed = np.maximum.reduceat(square, rows.indptr[:-1])
    anywhere = np.maximum((upper.max() - middle) ** 2, (middle - lower.min()) ** 2)
    beyond = np.minimum(sets.unseen, sets.spread) * np.maximum(anywhere - observed, 0.0)
    most = 0.25 * float(upper.max() - lower.min()) ** 2
    return np.asarray(np.minimum(mean + sets.spread * observed + beyond, most))


def _deviation(sets: Confidence, variance: Floats, lower: Floats, upper: Floats, alpha: float, unit: float) -> Floats:
    """A bound on |p̂V − pV| of each row [N] for a fixed V within a band."""
    open_rows = max(int(np.isfinite(sets.visits).sum()), 1)
    reach = np.full(len(variance), float(upper.max() - lower.min()))
    visits = np.where(np.isfinite(sets.visits), sets.visits, 0.0)
    off = bernstein(variance, reach, visits, np.log(open_rows / alpha), sets.design, unit)
    return np.where(np.isfinite(sets.visits), off, 0.0)


def _pooled_deviation(pooled: Pooled, design: Design, variance: Floats, band: Band, unit: float) -> Floats:
    """A bound on |p̂V − p̄V| of each group [G] for a fixed V within a band; infinite where a group has no visits."""
    shared = np.asarray(pooled.share @ variance)
    reach = np.full(len(shared), float(band.upper.max() - band.lower.min()))
    return bernstein(shared, reach, pooled.visits, pooled.log_price - np.log(pooled.alpha), design, unit)


def _of_group(pooled: Pooled, bounds: Floats, otherwise: float) -> Floats:
    """Bounds of each row's group [N]."""
    return np.where(pooled.group >= 0, bounds[pooled.group], otherwise)


def loss_bound(sets: Confidence, weights: Floats, gamma: float, best: Band) -> Floats:
    """A bound on V*(s) − V^π(s) of each state [S], for any policy π [S, A].

    The loss G satisfies G = (V* − Q*_π) + γ p_π G, where Q*_π is what the policy's actions earn with V* from then on.
    An action a falls short of the best one by at most the largest upper bound of *another* action less its own lower
    one, and by nothing where that is negative. So where the data tell the best actions from the others, the loss is 0,
    however wide the bounds on values are. Only the last part needs the sets.
    """
    n, pad = sets.n_states, _pad(sets, gamma)
    low, _ = _trivial(sets, gamma)
    start = (weights * _shortfalls(best, n)).sum(axis=1)

    def backup(G: Floats) -> Floats:
        later = (weights * sets.highest(G).reshape(n, -1)).sum(axis=1)
        return np.asarray(start + gamma * later + np.where(later > 0.0, pad, 0.0))

    limit = 1e-3 * _limit(sets, gamma)  # losses may be far smaller than values
    return np.maximum(_iterated(backup, best.upper - low, gamma, limit, above=True)[0], 0.0)


def _shortfalls(best: Band, n_states: int) -> Floats:
    """A bound on V*(s) − Q*(s, a) of each state and action [S, A]."""
    upper, lower = best.row_upper.reshape(n_states, -1), best.row_lower.reshape(n_states, -1)
    if upper.shape[1] == 1:
        return np.zeros_like(upper)
    order = np.argsort(upper, axis=1)
    first, second = (np.take_along_axis(upper, order[:, [k]], axis=1) for k in (-1, -2))
    other = np.where(np.arange(upper.shape[1]) == order[:, [-1]], second, first)
    return np.asarray(np.maximum(np.minimum(other, best.upper[:, None]) - lower, 0.0))


def policy_weights(sets: Confidence, policy: ArrayLike) -> Floats:
    """A policy as weights of all rows [S, A]: the word "uniform", numbers of actions [S], or probabilities [S, A]."""
    n, A = sets.n_states, sets.n_actions
    if isinstance(policy, str):
        if policy != "uniform":
            raise ValueError(f'the only policy with a name is "uniform"; got {policy!r}.')
        return np.full((n, A), 1.0 / A)
    given = np.asarray(policy)
    if given.dtype.kind in "iu" and given.ndim == 1:
        if len(given) < n and len(given) == n - int(np.isinf(sets.visits).any()):
            given = np.append(given, 0)  # what is done at the end does not matter
        if given.shape != (n,) or (given < 0).any() or (given >= A).any():
            raise ValueError(f"a policy needs one action from 0 to {A - 1} for each of {n} states; got {policy!r}.")
        return np.asarray(np.eye(A)[given])
    weights = given.astype(np.float64)
    if weights.ndim == 2 and len(weights) == n - int(np.isinf(sets.visits).any()) < n:
        weights = np.vstack([weights, np.full((1, A), 1.0 / A)])
    if weights.size == n * A:
        weights = weights.reshape(n, A)
    fits = weights.shape == (n, A) and bool((weights >= 0.0).all())
    if not fits or not np.allclose(weights.sum(axis=1), 1.0, atol=1e-8):
        raise ValueError(
            f'a policy is "uniform", one action for each state [{n}], or probabilities [{n}, {A}] that sum to 1 for '
            f"each state; got shape {given.shape}."
        )
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def contradiction() -> ModelError:
    """Bounds that cross: the sets do not contain any model."""
    return ModelError(
        "the bounds contradict each other: an event of probability δ happened, or the data are not from one Markov "
        "decision process with these rewards and successors (a discretiser may hide what matters)."
    )
