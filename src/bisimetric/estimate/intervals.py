"""Concentration inequalities: how far empirical frequencies can be from the truth, as pure functions.

The model of the data is a *stack* for each row (state and action): its n-th visit sees the n-th of a sequence of
independent successors, whoever decided to come, and for whatever reason. So what a row's first n visits saw has the
same law for data gathered adaptively, but the number n is random and may depend on what was seen. Hence two designs:

    "adaptive"   bounds that hold for all n at once. For a Bernoulli variable of mean p and k successes among n, the
                 likelihood ratio of the Krichevsky-Trofimov mixture (Beta(1/2, 1/2)) to p is a martingale of mean 1, so
                 with probability 1 − α, for all n: n kl(k/n, p) ≤ log(1/α) + R(k, n)       (Ville's inequality), where
                 R is the redundancy of the mixture, at most log(n)/2 + log 2. It holds for sums of independent [0, 1]
                 variables too, whose exponential moments are at most those of Bernoulli variables.
    "fixed"      n was decided before anything was seen: n kl(k/n, p) ≤ log(1/α), each side (Chernoff).

kl is the divergence of Bernoulli distributions. A bound on all of kl(p̂(A), p(A)) for sets A of successors bounds the
total variation, max over A of p̂(A) − p(A): this is Weissman's argument, with kl in place of Hoeffding's bound.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..kinds import Floats

Design = Literal["adaptive", "fixed"]
DESIGNS = ("adaptive", "fixed")
_HALVINGS = 60
_RATES = 24  # rates of the time-uniform Bernstein bound; the least is 2⁻²³, which is for some 10¹³ samples


def kl_lower(q: Floats, slack: Floats) -> Floats:
    """The least p in [0, q] with kl(q, p) ≤ slack, rounded down; by bisection."""
    low, high = np.zeros_like(q), np.array(q, np.float64)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        outside = _divergence(q, middle) > slack
        low, high = np.where(outside, middle, low), np.where(outside, high, middle)
    return low


def kl_upper(q: Floats, slack: Floats) -> Floats:
    """The largest p in [q, 1] with kl(q, p) ≤ slack, rounded up."""
    return np.asarray(1.0 - kl_lower(1.0 - q, slack))


def _divergence(q: Floats, p: Floats) -> Floats:
    """kl(q, p) of Bernoulli distributions, infinite where p is 0 or 1 and q is not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(q > 0.0, q * np.log(q / p), 0.0)
        second = np.where(q < 1.0, (1.0 - q) * np.log((1.0 - q) / (1.0 - p)), 0.0)
    return np.asarray(first + second)


def redundancy(k: Floats, n: Floats) -> Floats:
    """R(k, n) = log(largest likelihood of k successes among n) less that of the mixture; k may be fractional."""
    from scipy.special import betaln, xlogy

    best = xlogy(k, k / n) + xlogy(n - k, (n - k) / n)
    return np.asarray(best - betaln(k + 0.5, n - k + 0.5) + betaln(0.5, 0.5))


def largest_redundancy(n: Floats) -> Floats:
    """A bound on R(k, n) for all k."""
    return np.asarray(0.5 * np.log(n) + np.log(2.0))


def mean_interval(total: Floats, n: Floats, alpha: float, design: Design) -> tuple[Floats, Floats]:
    """(lower, upper) bounds on the mean of [0, 1] variables from the sum of n of them; [0, 1] where n = 0.

    Both hold with probability 1 − α: for all n at once, or for an n decided beforehand.
    """
    seen = np.maximum(n, 1.0)
    mean = np.clip(total / seen, 0.0, 1.0)
    if design == "fixed":
        slack = np.log(2.0 / alpha) / seen
    else:
        slack = (np.log(1.0 / alpha) + redundancy(mean * seen, seen)) / seen
    low, high = kl_lower(mean, slack), kl_upper(mean, slack)
    return np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0)


def log_subsets(universe: Floats, size: Floats) -> Floats:
    """log(sizes · number of sets of this size): the price of a set when each size has the same share."""
    from scipy.special import gammaln

    ways = gammaln(universe + 1.0) - gammaln(size + 1.0) - gammaln(universe - size + 1.0)
    return np.asarray(ways + np.log(np.maximum(universe - 1.0, 1.0)))


def log_all_subsets(universe: Floats) -> Floats:
    """log(2^K − 2): the price of a set when all have the same share."""
    return np.asarray(universe * np.log(2.0) + np.log1p(-np.exp2(1.0 - np.maximum(universe, 2.0))))


def bernstein(variance: Floats, reach: Floats, n: Floats, price: Floats | float, design: Design, unit: float) -> Floats:
    """A bound on |p̂f − pf| for one function f that does not depend on the data; infinite where n = 0.

    Fixed n: √(2 v L/n) + b L/(3n), L = log(2/α) (Bernstein). For all n at once: e^{λS − nvψ(λ)} with
    ψ(λ) = λ²/(2(1 − bλ/3)) is a supermartingale for each λ < 3/b, so |S| ≤ nvψ(λ)/λ + log(2·J/α)/λ for J rates λ, of
    which the best is taken. Samples need not be alike, v is then their mean variance (Freedman). The rates are
    2^-j/unit, so `unit` must not depend on the data.

    Args:
        variance: v ≥ Var_p f. reach: b ≥ max |f − pf|. n: samples. price: log(1/α), both sides together.
        unit: a scale for f that was fixed beforehand, such as the largest possible value.
    """
    seen = np.maximum(n, 1.0)
    if design == "fixed":
        L = np.log(2.0) + price
        bound = np.sqrt(2.0 * variance * L / seen) + reach * L / (3.0 * seen)
    else:
        L = np.log(2.0 * _RATES) + price
        bound = np.full(np.broadcast(variance, n).shape, np.inf)
        for j in range(_RATES):
            rate = 2.0**-j / unit
            room = 1.0 - reach * rate / 3.0
            with np.errstate(divide="ignore", invalid="ignore"):
                candidate = variance * rate / (2.0 * room) + L / (rate * seen)
            bound = np.where(room > 0.0, np.minimum(bound, candidate), bound)
    return np.where(n > 0, bound, np.inf)
