"""The true metric, bracketed from data; and the paper's decomposition of errors.

Let d be the metric of the true MDP (of a policy, or the maximum over actions), p̂ the estimated rows, and let all true
rows and rewards lie in their confidence sets. Where L ≤ d ≤ U, for each pair of rows,

    W_d(p_i, p_j) ≤ W_d(p̂_i, p̂_j) + W_d(p̂_i, p_i) + W_d(p̂_j, p_j) ≤ W_U(p̂_i, p̂_j) + w_i(U) + w_j(U)
    W_d(p_i, p_j) ≥ W_L(p̂_i, p̂_j) − w_i(U) − w_j(U)

by the triangle inequality of W_d (d is a metric; L and U need not be), where w(U) bounds W_d(p̂, p) over the set of a
row for every d ≤ U. So one application of F to the bounds gives bounds again, the smaller and the larger of old and new
ones are bounds too, and one may stop at any time. Both start from the decomposition of errors (below), the upper one
also from the largest possible distance, the lower one from differences of values: d(s, t) ≥ c_R |V(s) − V(t)|, for the
values of the policy, or the best ones.

w is what the sets allow (`Confidence.reach`). Where the metric is fixed beforehand, the law of the samples under it
allows less (`steady`), for which half of δ is put aside: for each row alone, and for the two rows of a pair together.
It is fixed for the MDP itself, and for a policy that was not chosen by looking at these data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ..backends.comparison import Comparison
from ..backends.protocol import Sweeper
from ..backends.select import backend
from ..certificates import Certificate, value_error_with_models
from ..checks import check_number
from ..kinds import Floats
from ..metric.settings import Match
from ..metric.solve import solve_metric
from ..model import MDP, Chain, Distributions
from ..model.chain import check_discount
from ..transport import Exact
from .choices import SetChoices
from .confidence import Confidence
from .counts import Counts, check_delta
from .steady import Law, PairQuestion, steady_margins, steady_reach, usable
from .values import Band, contradiction, policy_band, policy_weights, value_band

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_EPS = float(np.finfo(np.float64).eps)
_EVERY = 5  # iterations for which bounds by the law of the samples are kept


@dataclass(frozen=True, eq=False, repr=False)
class Bracket:
    """Bounds on the true metric. `lower, upper = bracket` unpacks them.

    Attributes:
        lower, upper: [S, S], with the end as the last state where there is one.
        delta: the bounds hold with probability 1 − δ.
        iterations: done. settled: whether more iterations would bring next to nothing.
        notes: what the bounds rest on.
    """

    lower: Floats
    upper: Floats
    delta: float
    iterations: int
    settled: bool
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Floats]:
        return iter((self.lower, self.upper))

    @property
    def width(self) -> float:
        """The largest difference of the two."""
        return float((self.upper - self.lower).max())

    def __repr__(self) -> str:
        return (
            f"Bracket({len(self.lower)} states, width {self.width:.4g}, probability {1.0 - self.delta:g}, "
            f"{self.iterations} iterations)"
        )


@dataclass(frozen=True, eq=False)
class _Family:
    """Rows that are compared with each other: one for each state, mixtures of the rows of the sets."""

    mixing: csr_array  # [S, N]
    rows: Distributions  # [S]
    low: Floats  # rewards [S]
    high: Floats
    sweeper: Sweeper = field(repr=False)

    @classmethod
    def of(cls, sets: Confidence, mixing: csr_array) -> _Family:
        rows = Distributions.from_matrix(mixing @ sets.rows.matrix()).normalised()
        return cls(mixing, rows, mixing @ sets.reward_low, mixing @ sets.reward_high, _sweeper(rows))

    def transports(self, d: Floats) -> tuple[Floats, float]:
        """(W_d between all pairs of rows [S, S], how far an entry may be off)."""
        distances = self.sweeper.backend.distances(d)
        report = self.sweeper.sweep(distances)
        return np.array(distances.to_host()), report.transport_error + report.rounding


def _sweeper(rows: Distributions) -> Sweeper:
    """W between all pairs of rows, on the engine of the host."""
    n = len(rows)
    each, pointers, zeros = np.arange(n), np.arange(n + 1), np.zeros(n, np.int64)
    comparison = Comparison(
        rows=rows,
        groups=(each,),
        state_of_row=each,
        row_pointers=pointers,
        column_pointers=pointers,
        rewards=np.zeros(n),
        apart=zeros,
        columns_apart=zeros,
        combine="chain",
        c_R=0.0,
        c_T=1.0,
        largest=1.0,
    )
    return backend("cpu", "float64").sweeper(comparison, Exact(), True)


def _mixtures(sets: Confidence, weights: Floats | None) -> list[csr_array]:
    """[S, N] weights of rows: those of a policy [S, A], or one for each action."""
    from scipy.sparse import csr_array

    n, A = sets.n_states, sets.n_actions
    if weights is None:
        each = np.arange(n)
        return [csr_array((np.ones(n), (each, each * A + a)), shape=(n, n * A)) for a in range(A)]
    # a copy, as dropping its zeros moves the others
    made = csr_array((weights.flatten(), np.arange(n * A), np.arange(n + 1) * A), shape=(n, n * A))
    made.eliminate_zeros()
    return [made]


def bracket_of(  # noqa: PLR0913 (each is a part of the question, by its name)
    counts: Counts,
    delta: float,
    *,
    gamma: float,
    policy: ArrayLike | None = None,
    fixed_policy: bool = False,
    reward_weight: float = 1.0,
    tol: float = 1e-3,
    max_iterations: int = 2000,
    on_progress: Callable[[int, float], None] | None = None,
    **sets: Unpack[SetChoices],
) -> Bracket:
    """Bounds lower ≤ d ≤ upper on the metric of the true MDP, with probability 1 − δ.

    d has exact transport, c_T = γ and c_R as given: `solve_metric(mdp, match="labels")`, or of `mdp.under(policy)`.

    Args:
        counts: the data. delta: δ in (0, 1). gamma: discount.
        policy: None for the metric of the MDP (the maximum over actions of the same name; all states have all
            actions), "uniform", one action for each state [S], or probabilities [S, A].
        fixed_policy: the policy was chosen without looking at these data, which narrows the bounds; "uniform" was.
        reward_weight: c_R.
        tol: iterations end when one changes nothing by more than this share of the largest possible distance times
            1 − γ. Bounds hold wherever they end.
        on_progress: called after each iteration with its number and its change; reads only. Ctrl-C ends the iteration.
        sets: as for `Counts.confidence`: reward_range or exact_rewards, successors, design.

    Cost: a sweep of exact transports for each action, and S² numbers for each, an iteration; some log(tol)/log(γ)
    iterations.
    """
    check_delta(delta)
    c_T, c_R = check_discount(gamma), check_number("reward_weight", reward_weight)
    if not 0.0 <= c_R < np.inf:
        raise ValueError(f"reward_weight must be finite and not negative; got {reward_weight}.")
    steady = policy is None or fixed_policy or isinstance(policy, str) or counts.n_actions == 1
    found = counts.confidence(0.5 * delta if steady else delta, **sets)
    weights = None if policy is None else policy_weights(found, policy)
    ending = Ending(tol, max_iterations, on_progress)
    return bracket_over(found, weights, (c_R, c_T), 0.5 * delta if steady else None, ending)


class Ending(NamedTuple):
    """When iterations end, and who is told of them."""

    tol: float = 1e-3
    most: int = 2000
    on_progress: Callable[[int, float], None] | None = None


def bracket_over(
    sets: Confidence, weights: Floats | None, c: tuple[float, float], steady: float | None, ending: Ending
) -> Bracket:
    """Bounds on the metric of a policy [S, A], or of the MDP (None), from sets that hold.

    Args:
        c: (c_R, c_T). steady: a further probability with which the law of the samples under the true metric may fail to
            hold; None where that metric depends on the data.
    """
    families = [_Family.of(sets, mixing) for mixing in _mixtures(sets, weights)]
    work = _Work(sets, families, *c, steady if steady is not None and usable(sets) else None)
    work.start(_estimated(sets, weights, families, c[1]))
    if weights is None:
        bands = [value_band(sets, c[1], 0.0), value_band(sets, c[1], 0.0, worst=True)]
    else:
        bands = [policy_band(sets, weights, c[1])]
    iterations, settled = work.run(bands, ending)
    delta = sets.delta + (steady or 0.0)
    return Bracket(work.lower, work.upper, delta, iterations, settled, (*sets.notes, *work.notes()))


def _estimated(sets: Confidence, weights: Floats | None, families: list[_Family], gamma: float) -> Chain | MDP:
    """The model with the middle of all rewards."""
    middle = 0.5 * (sets.reward_low + sets.reward_high)
    if weights is not None:
        (one,) = families
        chain = Chain.from_arrays(one.rows.matrix(), one.mixing @ middle, gamma)
        return replace(chain, reward_range=sets.reward_range)
    n, A = sets.n_states, sets.n_actions
    labels = tuple(str(a) for a in range(A))
    pointers = (np.arange(n + 1) * A).astype(np.int64)
    return MDP(sets.rows, middle, pointers, gamma, np.tile(np.arange(A, dtype=np.int64), n), labels)


class _Work:
    """Bounds under way."""

    def __init__(self, sets: Confidence, families: list[_Family], c_R: float, c_T: float, steady: float | None) -> None:
        self.sets, self.families, self.c_R, self.c_T = sets, families, c_R, c_T
        least, most = sets.reward_range
        self.largest = c_R * (most - least) / (1.0 - c_T) * (1.0 + 8.0 * _EPS)
        self.steady = steady if self.largest > 0.0 else None  # all distances are 0 otherwise
        n = sets.n_states
        self.upper, self.lower = np.full((n, n), self.largest), np.zeros((n, n))
        np.fill_diagonal(self.upper, 0.0)
        unknown = np.full((n, n), np.inf)
        self._asked, self._kept = 0, np.full(len(sets.rows), np.inf)
        self._margins = [(unknown, unknown) for _ in families]  # above and below, of each family

    def start(self, model: Chain | MDP) -> None:
        """Begin from the decomposition of errors, ‖d − d̂‖ ≤ B with the model error under d̂ (see `Decomposition`).

        For the MDP itself it holds as it does for a policy, with the largest errors over all rows: maxima over actions
        differ by at most the largest difference.
        """
        if not self.largest > 0.0 or not self.sets.observed.all():
            return
        match: Match | None = None if isinstance(model, Chain) else "labels"
        found = solve_metric(model, Exact(), match=match, tol=1e-4 * self.largest, reward_weight=self.c_R)
        guess = np.array(found.distance)
        U = guess + found.error
        np.fill_diagonal(U, 0.0)
        rows = max(float((one.mixing @ self.sets.reach(U)).max()) for one in self.families)
        rewards = max(float((0.5 * (one.high - one.low)).max()) for one in self.families)
        bound = found.error + 2.0 * (self.c_R * rewards + self.c_T * rows) / (1.0 - self.c_T)
        bound *= 1.0 + 1e-12
        np.minimum(self.upper, guess + bound, out=self.upper)
        np.maximum(self.lower, guess - bound, out=self.lower)
        for side in (self.lower, self.upper):
            np.fill_diagonal(side, 0.0)

    def notes(self) -> tuple[str, ...]:
        bare = int((~self.sets.observed).sum())
        return (f"{bare} rows were never visited, and can be anything",) if bare else ()

    def margins(self) -> list[tuple[Floats, Floats]]:
        """For each family, by how much W_d of true rows can exceed that of the estimated ones, or fall short [S, S]."""
        w = self.sets.reach(self.upper)
        if self.steady is not None:
            if self._asked % _EVERY == 0:  # they fall with U, so older ones are bounds too
                self._ask(self.steady)
            self._asked += 1
            w = np.minimum(w, self._kept)
        found = []
        for one, margins in zip(self.families, self._margins, strict=True):
            own = one.mixing @ w
            both = own[:, None] + own[None, :]
            above, below = (np.minimum(both, margin) * (1.0 + 1e-12) for margin in margins)
            found.append((above, below))
        return found

    def _ask(self, alpha: float) -> None:
        """Bounds by the law of the samples: a third of α for rows alone, the rest for pairs."""
        law = Law.of(self.sets, self.upper)
        self._kept = steady_reach(self.sets, law, alpha / 3.0)
        questions = [
            PairQuestion(one.mixing, one.rows.sizes, len(self.families), self.largest) for one in self.families
        ]
        self._margins = [steady_margins(self.sets, law, question, 2.0 * alpha / 3.0) for question in questions]

    def run(self, bands: list[Band], ending: Ending) -> tuple[int, bool]:
        """(iterations done, whether they settled)."""
        for band in bands:
            gap = band.lower[:, None] - band.upper[None, :]
            np.maximum(self.lower, self.c_R * np.maximum(gap, gap.T), out=self.lower)
        self._agree()
        limit = ending.tol * self.largest * (1.0 - self.c_T)
        done = 0
        try:
            for side in (self._lower_upper, self._raise_lower):
                change, self._asked = np.inf, 0
                while change > limit and done < ending.most:
                    change = side()
                    done += 1
                    if ending.on_progress is not None:
                        ending.on_progress(done, change)
        except KeyboardInterrupt:
            change = np.inf
        self._agree()
        return done, change <= limit

    def _agree(self) -> None:
        """Refuse bounds that cross by more than rounding."""
        if (self.lower > self.upper + 1e-9 * self.largest).any():
            raise contradiction()
        np.minimum(self.lower, self.upper, out=self.lower)

    def _lower_upper(self) -> float:
        new, cap = np.zeros_like(self.upper), float(self.upper.max())
        for one, (above, _) in zip(self.families, self.margins(), strict=True):
            W, off = one.transports(self.upper)
            W += above + off
            np.minimum(W, cap, out=W)
            apart = one.high[:, None] - one.low[None, :]
            np.maximum(new, self.c_R * np.maximum(apart, apart.T) + self.c_T * W, out=new)
        np.fill_diagonal(new, 0.0)
        new *= 1.0 + 8.0 * _EPS
        return self._take(self.upper, np.minimum(self.upper, new))

    def _raise_lower(self) -> float:
        new = np.zeros_like(self.lower)
        for one, (_, below) in zip(self.families, self.margins(), strict=True):
            W, off = one.transports(self.lower)
            W -= below + off
            np.maximum(W, 0.0, out=W)
            apart = one.low[:, None] - one.high[None, :]
            np.maximum(new, self.c_R * np.maximum(np.maximum(apart, apart.T), 0.0) + self.c_T * W, out=new)
        np.fill_diagonal(new, 0.0)
        new *= 1.0 - 8.0 * _EPS
        return self._take(self.lower, np.maximum(self.lower, new))

    @staticmethod
    def _take(old: Floats, new: Floats) -> float:
        change = float(np.abs(new - old).max())
        old[:] = new
        return change


# ---- the paper's decomposition ----


@dataclass(frozen=True, eq=False, repr=False)
class Decomposition:
    """The lemma that splits the error of an estimated model into its sources, filled in from data.

    With d̂ the metric of the estimated chain, d that of the true one, ‖d − d̂‖ ≤ (2 c_R E_R + 2 c_T E_P)/(1 − c_T), where
    E_R bounds errors of rewards and E_P those of rows, in the transport distance

        of the true metric d, as in the paper: it is not known, so its largest possible value stands for it (a priori);
        of the computed metric d̂ (docs/data.md has the proof).

    Attributes:
        distance: d̂ [S, S], as computed. metric_error: E_m, its error as a fixed point.
        reward_error: E_R. model_error_a_priori, model_error: E_P in both forms.
        c_R, c_T: weights. delta: all of it holds with probability 1 − δ.
    """

    distance: Floats
    metric_error: float
    reward_error: float
    model_error_a_priori: float
    model_error: float
    c_R: float
    c_T: float
    delta: float

    def _bound(self, model_error: float) -> float:
        apart = 2.0 * (self.c_R * self.reward_error + self.c_T * model_error) / (1.0 - self.c_T)
        return self.metric_error + apart

    @property
    def bound_a_priori(self) -> float:
        """‖d − d̂‖∞ at most, in the paper's own form."""
        return self._bound(self.model_error_a_priori)

    @property
    def bound(self) -> float:
        """‖d − d̂‖∞ at most, with the model error under the computed metric."""
        return self._bound(self.model_error)

    def value_error(self, eps: float) -> Certificate:
        """‖V^π − Ṽ^π_Φ‖∞ after ε-aggregation under d̂, by the lemma with the model error under d̂."""
        return value_error_with_models(
            eps,
            gamma=self.c_T,
            metric_error=self.metric_error,
            reward_error=self.reward_error,
            model_error=self.model_error,
            c_R=self.c_R,
        )

    def __repr__(self) -> str:
        return (
            f"Decomposition(metric {self.metric_error:.3g}, rewards {self.reward_error:.3g}, model "
            f"{self.model_error:.3g} (a priori {self.model_error_a_priori:.3g}): {self.bound:.4g} "
            f"(a priori {self.bound_a_priori:.4g}) with probability {1.0 - self.delta:g})"
        )


def decompose(
    counts: Counts,
    delta: float,
    *,
    gamma: float,
    policy: ArrayLike = "uniform",
    tol: float = 1e-6,
    **sets: Unpack[SetChoices],
) -> Decomposition:
    """The paper's decomposition for the metric of a policy: see `Decomposition`.

    Args:
        counts, delta, gamma, sets: as for `bracket_of`. policy: "uniform", one action for each state, or [S, A].
        tol: error of the computed metric.
    """
    found = counts.confidence(check_delta(delta), **sets)
    c_T = check_discount(gamma)
    (mixing,) = _mixtures(found, policy_weights(found, policy))
    middle = 0.5 * (found.reward_low + found.reward_high)
    chain = Chain.from_arrays(mixing @ found.rows.matrix(), mixing @ middle, c_T)
    solution = solve_metric(chain, Exact(), tol=tol)
    rewards = float((mixing @ (0.5 * (found.reward_high - found.reward_low))).max())
    U = np.array(solution.distance) + solution.error
    np.fill_diagonal(U, 0.0)
    least, most = found.reward_range
    return Decomposition(
        solution.distance,
        solution.error,
        rewards,
        float((mixing @ found.spread).max()) * (most - least) / (1.0 - c_T),
        float((mixing @ found.reach(U)).max()),
        1.0,
        c_T,
        delta,
    )
