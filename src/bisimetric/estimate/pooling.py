"""Classes share their samples: estimate, measure, aggregate, pool the counts of a class, estimate again.

States that behave alike tell of each other. The counts of a class C of states, added up, estimate the mixture of their
rows with less noise, and a policy found on the pooled model is the same in all states of a class.

The policy is then certified like any other. Certificates hold for all policies at once, so trying several ε and keeping
the best certificate uses the data as often as one likes. Pooled counts may narrow the bounds themselves, too: for s
in C,

    γ |p_s V* − p̄ V*| ≤ max over t in C of d(s, t) =: bias,        p̄ = Σ_t (n_t/n_C) p_t,

as c_R |r_s − r_t| + c_T W_d(p_s, p_t) ≤ d(s, t), c_T = γ, and V*/c_R is 1-Lipschitz for d. And p̂_C V* is near p̄ V* by
Bernstein's inequality (Freedman's, as samples of different rows are not alike) with all visits n_C. Classes are made
from the same data: so each of the C(S, k) sets of k states, for each k and each action, has its share of δ, and the
bound holds whichever was chosen. d is not known: its upper bracket stands for it, or a bias that the user vouches for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from ..aggregation import EpsilonCover, Partition
from ..checks import check_number
from ..kinds import Floats, Ints
from ..metric.solve import solve_metric
from ..model import MDP, Distributions
from ..model.chain import check_discount
from ..values import greedy, optimal_values
from .bracket import Ending, bracket_over
from .choices import SetChoices
from .confidence import Confidence
from .counts import Counts, check_delta
from .intervals import log_subsets
from .policies import DataCertificate, certified
from .values import Band, Pooled, value_band

_SHARES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # of the largest possible distance: ε to try


@dataclass(frozen=True)
class Trial:
    """One ε: how many classes it gave, and what was certified of the policy found with them."""

    eps: float
    n_classes: int
    bound: float


@dataclass(frozen=True, eq=False, repr=False)
class PooledPolicy:
    """A policy from pooled counts, with its certificate.

    Attributes:
        policy: probabilities [S, A]. partition: of the states, the end among them.
        data: what is certain of it in the true MDP. eps: the ε that was chosen, by the certificate.
        trials: all that were tried. bias: largest bias of a state in its class that was counted with.
    """

    policy: Floats
    partition: Partition
    data: DataCertificate
    eps: float
    trials: tuple[Trial, ...]
    bias: float

    def __repr__(self) -> str:
        return (
            f"PooledPolicy({self.partition.n_states} states in {self.partition.n_classes} classes, ε = {self.eps:.4g}, "
            f"loss at most {self.data.certificate.error:.4g} with probability {1.0 - self.data.delta:g})"
        )


def pool(
    counts: Counts,
    delta: float,
    *,
    gamma: float,
    classes: ArrayLike | None = None,
    bias: float | None = None,
    eps: Sequence[float] | None = None,
    learn_bias: bool = True,
    **sets: Unpack[SetChoices],
) -> PooledPolicy:
    """A policy from classes that share their samples, certified for the true MDP with probability 1 − δ.

    Args:
        counts: the data. delta: δ. gamma: discount. sets: as for `Counts.confidence`.
        classes: known beforehand [S] (numbers; the end is one of its own), instead of those found by ε-aggregation
            under the metric of the estimated model (rule "diameter").
        bias: how far apart, in the true metric, states of one given class can be; only where that is known, as 0 for
            classes that are known to be bisimilar. None for the upper bracket of the metric.
        eps: values of ε to try; by default 0 to 20 % of the largest possible distance. ε = 0 pools nothing.
        learn_bias: without a given bias, bracket the true metric for it. False saves the time that takes; pooled counts
            then choose the policy but do not narrow its bounds.

    Cost: one metric of the estimated model, a bracket where wanted, and a small MDP and a certificate for each ε.
    """
    quarter = 0.25 * check_delta(delta)
    check_discount(gamma)
    found = counts.confidence(quarter, **sets)
    if bias is not None and not 0.0 <= check_number("bias", bias) < np.inf:
        raise ValueError(f"bias must be finite and not negative; got {bias}.")
    if bias is not None and classes is None:
        raise ValueError("bias is what is known of given classes, so classes must be given too.")
    if eps is not None and not len(eps):
        raise ValueError("eps must have at least one value to try.")
    apart = None
    if bias is None and learn_bias:
        apart = bracket_over(found, None, (1.0, gamma), quarter, Ending()).upper
    plain = value_band(found, gamma, quarter)
    best: PooledPolicy | None = None
    trials = []
    for value, partition in _partitions(counts, found, gamma, classes, eps):
        weights = pooled_policy(counts, found, partition, gamma)
        far = _biases(partition, apart, bias, found)
        band = plain if far is None else _meet(plain, found, partition, far, (gamma, quarter), classes is not None)
        data = certified(found, band, weights, gamma, delta)
        bound = data.certificate.error
        trials.append(Trial(value, partition.n_classes, bound))
        if best is None or bound < best.data.certificate.error * (1.0 - 1e-9):
            used = float("nan") if far is None else float(far.max())
            best = PooledPolicy(weights, partition, data, value, (), used)
    assert best is not None
    return PooledPolicy(best.policy, best.partition, best.data, best.eps, tuple(trials), best.bias)


def _partitions(
    counts: Counts, sets: Confidence, gamma: float, classes: ArrayLike | None, eps: Sequence[float] | None
) -> list[tuple[float, Partition]]:
    """(ε, classes) to try, the finest first; equal ones once."""
    n = sets.n_states
    if classes is not None:
        given = np.asarray(classes)
        if given.shape != (counts.n_states,):
            raise ValueError(f"classes need one entry per state ({counts.n_states}); got shape {given.shape}.")
        numbers = np.unique(given, return_inverse=True)[1].reshape(-1)
        return [(np.nan, Partition.from_classes(np.append(numbers, [numbers.max() + 1] * (n - len(numbers)))))]
    least, most = sets.reward_range
    largest = ((most - least) or 1.0) / (1.0 - gamma)
    wanted = [share * largest for share in _SHARES] if eps is None else [check_number("eps", x) for x in eps]
    distance = np.array(solve_metric(_estimated(sets, gamma), match="labels", tol=1e-3 * largest).distance)
    if counts.ends:  # the end is known: nothing is pooled with it
        distance[-1, :-1] = distance[:-1, -1] = largest + 3.0 * max(wanted)
    made: list[tuple[float, Partition]] = []
    for value in sorted(wanted):
        partition = Partition.from_classes(np.arange(n)) if value == 0.0 else EpsilonCover(value, "diameter")(distance)
        if not made or partition.n_classes < made[-1][1].n_classes:
            made.append((value, partition))
    return made


def _estimated(sets: Confidence, gamma: float) -> MDP:
    """The estimated model over all states and actions; rows that were never visited stay and earn the least."""
    rewards = np.where(sets.observed, 0.5 * (sets.reward_low + sets.reward_high), sets.reward_range[0])
    return _model(sets.rows, rewards, sets.n_actions, gamma)


def _model(rows: Distributions, rewards: Floats, n_actions: int, gamma: float) -> MDP:
    n = rows.n_states
    labels = tuple(str(a) for a in range(n_actions))
    pointers = (np.arange(n + 1) * n_actions).astype(np.int64)
    return MDP(rows, rewards, pointers, gamma, np.tile(np.arange(n_actions, dtype=np.int64), n), labels)


def _groups(sets: Confidence, partition: Partition) -> tuple[Ints, csr_array]:
    """(group of each row [N], share of each row in the visits of its group [G, N]); groups are class · A + action."""
    A, N = sets.n_actions, len(sets.rows)
    group = np.repeat(partition.class_of, A) * A + np.tile(np.arange(A), sets.n_states)
    visits = np.where(np.isfinite(sets.visits), sets.visits, 1.0)
    total = np.bincount(group, weights=visits, minlength=partition.n_classes * A)
    weight = visits / np.where(total > 0.0, total, 1.0)[group]
    return group, csr_array((weight, (group, np.arange(N))), shape=(len(total), N))


def pooled_policy(counts: Counts, sets: Confidence, partition: Partition, gamma: float) -> Floats:
    """The best policy of the model of pooled counts, the same in all states of a class [S, A].

    Actions that were never tried in a class stay there and earn the least reward.
    """
    group, share = _groups(sets, partition)
    A, K = sets.n_actions, partition.n_classes
    n = sets.n_states
    to_class = csr_array((np.ones(n), (np.arange(n), partition.class_of)), shape=(n, K))
    middle = np.where(sets.observed, 0.5 * (sets.reward_low + sets.reward_high), sets.reward_range[0])
    matrix = share @ (sets.rows.matrix() @ to_class)
    rewards = np.asarray(share @ middle)
    bare = np.flatnonzero(np.bincount(group, weights=sets.visits, minlength=K * A) == 0.0)
    if bare.size:
        kept = np.ones(K * A)
        kept[bare] = 0.0
        from scipy.sparse import diags_array

        stays = csr_array((np.ones(len(bare)), (bare, bare // A)), shape=(K * A, K))
        matrix, rewards = diags_array(kept) @ matrix + stays, np.where(kept > 0.0, rewards, sets.reward_range[0])
    small = _model(Distributions.from_matrix(matrix).normalised(), rewards, A, gamma)
    chosen = greedy(small, optimal_values(small)).reshape(K, A)
    return np.asarray(chosen[partition.class_of])


def _biases(partition: Partition, apart: Floats | None, bias: float | None, sets: Confidence) -> Floats | None:
    """How far γ pV* of each state may be from that of its class [S]; None where nothing is known of it."""
    if bias is not None:
        return np.where(partition.sizes[partition.class_of] > 1, bias, 0.0)
    if apart is None:
        return None
    far = np.zeros(sets.n_states)
    for k in range(partition.n_classes):
        members = np.flatnonzero(partition.class_of == k)
        far[members] = apart[np.ix_(members, members)].max(axis=1)
    return far


def _meet(
    plain: Band, sets: Confidence, partition: Partition, far: Floats, how: tuple[float, float], known: bool
) -> Band:
    """The band of V* where rows are also bounded by those of their classes.

    Args:
        far: bias of each state [S]. how: (γ, probability). known: whether the classes do not depend on the data.
    """
    gamma, alpha = how
    group, share = _groups(sets, partition)
    A = sets.n_actions
    sizes = np.repeat(partition.sizes, A).astype(np.float64)
    finite = np.where(np.isfinite(sets.visits), sets.visits, 0.0)
    visits = np.bincount(group, weights=finite, minlength=len(sizes)).astype(np.float64)
    alone = (sizes[group] < 2.0) | ~np.isfinite(sets.visits)
    # each size has the same share, each set of that size, each action
    n = float(sets.n_states)
    price = log_subsets(np.full(len(sizes), n), sizes) + np.log(A * n / max(n - 1.0, 1.0))  # of n sizes, not n − 1
    price = np.full(len(sizes), np.log(float(len(sizes)))) if known else price
    pooled = Pooled(
        np.where(alone, -1, group),
        share @ sets.rows.matrix(),
        visits,
        share,
        np.repeat(far, A),
        price,
        alpha,
    )
    band = value_band(sets, gamma, alpha, pooled=pooled)
    return Band(
        np.maximum(plain.lower, band.lower),
        np.minimum(plain.upper, band.upper),
        np.maximum(plain.row_lower, band.row_lower),
        np.minimum(plain.row_upper, band.row_upper),
    )
