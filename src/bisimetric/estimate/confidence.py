"""Sets of rows and intervals of rewards that contain the truth, and the best and worst that can be in them.

For each row (state s, action a), n visits and m observed successors, the set is

    { p :  TV(p, p̂) ≤ spread,   p(states not observed) ≤ unseen }

Both numbers come from bounds on kl(p̂(A), p(A)) (see `intervals`) for sets A of successors. Only sets of observed
successors matter, for TV(p, p̂) = max p̂(A) − p(A) is reached at one. They are not known beforehand, so all sets are
paid for, in the cheaper of two ways, each with half of the row's share of δ: all 2^K − 2 sets alike (Weissman et al.,
2003), or each size alike, so that a set of k costs log((K−1)·C(K, k)), little where few of many states were observed.
The second sees A = all observed successors, whose p̂(A) = 1 leaves p(A) ≥ exp(−β/n): mass elsewhere falls like 1/n.

K is the number of possible successors, all states unless `successors` says fewer, or which. A row that was never
visited has the whole simplex. δ is shared by all declared rows, visited or not, since which ones are visited is random.
Shares: δ for rows where rewards are exact, else δ/2 for rows and δ/2 for rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..certificates import CertificateError
from ..kinds import Bools, Floats, Ints
from ..model import Distributions
from .intervals import (
    Design,
    kl_lower,
    largest_redundancy,
    log_all_subsets,
    log_subsets,
    mean_interval,
    redundancy,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from .frame import Frame
    from .support import Support

_ENUMERATED = 8  # observed successors up to which all sets of them are looked at
_BLOCK = 1 << 22  # numbers that a block of work may hold


@dataclass(frozen=True, eq=False, repr=False)
class Confidence:
    """Sets that contain all true rows and rewards with probability 1 − δ.

    Rows are those of all states and actions, state by state, with those of the end last; they lead to all states.

    Attributes:
        rows: estimated distributions [N]; a row that was never visited stands at its own state.
        spread: largest total variation of a true row from its estimate [N].
        unseen: largest mass of a true row on states that it was not seen to lead to [N].
        reward_low, reward_high: bounds on expected rewards [N].
        visits: of each row [N], infinite for rows that are known.
        observed: whether a row was visited, or is known [N].
        successors: K, the most states that each row can lead to [N].
        n_actions: of each state. delta, design: see `intervals`. notes: what the sets rest on.
        reward_range: (lowest, highest) possible reward.
        possible: which states each row can lead to [N, S], or None where that is not known.
    """

    rows: Distributions
    spread: Floats
    unseen: Floats
    reward_low: Floats
    reward_high: Floats
    visits: Floats
    observed: Bools
    successors: Ints
    n_actions: int
    delta: float
    design: Design
    reward_range: tuple[float, float]
    notes: tuple[str, ...] = ()
    possible: csr_array | None = None

    @property
    def n_states(self) -> int:
        return self.rows.n_states

    def __repr__(self) -> str:
        seen = int(np.isfinite(self.visits[self.observed]).sum())
        known = int((~np.isfinite(self.visits)).sum())
        middle = float(np.median(self.spread[self.observed])) if self.observed.any() else 1.0
        return (
            f"Confidence(1 − {self.delta:g}, {self.design}, {seen} of {len(self.rows) - known} rows visited, "
            f"median spread {middle:.3g})"
        )

    def contains(self, rows: Floats, rewards: Floats) -> bool:
        """Whether dense rows [N, S] and rewards [N] lie in all the sets; for tests and simulations."""
        mine = self.rows.matrix().toarray()
        tolerance = 1e-12
        apart = 0.5 * np.abs(rows - mine).sum(axis=1)
        new = np.where(mine > 0.0, 0.0, rows).sum(axis=1)
        far = (apart > self.spread + tolerance) | (new > self.unseen + tolerance)
        if self.possible is not None:
            far |= np.where(self.possible.toarray(), 0.0, rows).sum(axis=1) > tolerance
        size = max(abs(x) for x in self.reward_range) * tolerance
        off = (rewards < self.reward_low - size) | (rewards > self.reward_high + size)
        return not bool((far & self.observed).any() or off.any())

    # ---- expectations over the sets ----

    def mean(self, V: Floats) -> Floats:
        """p̂·V of each row [N]."""
        return np.asarray(self.rows.matrix() @ V)

    def lowest(self, V: Floats) -> Floats:
        """The least p·V over the set of each row [N].

        Mass is taken from the highest observed values; up to `unseen` of it goes to the least possible value, the rest
        to the least observed one.
        """
        result = np.empty(len(self.rows))
        lowest = self._least_possible(V)
        for chosen, places in self.blocks():
            values = V[self.rows.indices[places]]  # [rows, m]
            least = values.min(axis=1)
            mean = (self.rows.probs[places] * values).sum(axis=1)
            fall = self._greedy(places, values - least[:, None], self.spread[chosen])
            result[chosen] = mean - fall - self._elsewhere[chosen] * (least - lowest[chosen])
        return result

    def highest(self, V: Floats) -> Floats:
        """The largest p·V over the set of each row [N]."""
        return -self.lowest(-V)

    # ---- transport over the sets ----

    def reach(self, U: Floats) -> Floats:
        """A bound on W_d(p̂, p) over the set of each row [N], for every metric d ≤ U [S, S].

        To turn p̂ into p, at most `spread` moves: each piece from an observed state to the farthest observed one, but
        for `unseen` of it, which may go to the farthest possible. Taken greedily, the farthest first. Increases with U.
        """
        result = np.empty(len(self.rows))
        for chosen, places in self.blocks():
            states = self.rows.indices[places]  # [rows, m]
            inside = U[states[:, :, None], states[:, None, :]].max(axis=2)
            beyond = self._elsewhere[chosen]
            result[chosen] = self._greedy(places, inside, self.spread[chosen] - beyond)
            result[chosen] += self._greedy(places, self._farthest(U, chosen, states), beyond)
        return result

    def _greedy(self, places: Ints, worth: Floats, budget: Floats) -> Floats:
        """Σ worth·mass of each row for its worthiest mass, up to a budget [rows]."""
        order = np.argsort(-worth, axis=1)
        mass = np.take_along_axis(self.rows.probs[places], order, axis=1)
        taken = np.clip(budget[:, None] - (np.cumsum(mass, axis=1) - mass), 0.0, mass)
        return np.asarray((taken * np.take_along_axis(worth, order, axis=1)).sum(axis=1))

    @cached_property
    def _elsewhere(self) -> Floats:
        return np.minimum(self.unseen, self.spread)

    def _least_possible(self, V: Floats) -> Floats:
        """The least value of a state that each row can lead to [N]."""
        if self.possible is None:
            return np.full(len(self.rows), V.min())
        return np.asarray(np.minimum.reduceat(V[self.possible.indices], self.possible.indptr[:-1]))

    def _farthest(self, U: Floats, chosen: Ints, states: NDArray[np.int32]) -> Floats:
        """The distance of observed successors [rows, m] from the farthest state that their row can lead to."""
        if self.possible is None:
            return np.asarray(U.max(axis=1)[states])
        ptr, indices = self.possible.indptr, self.possible.indices
        each = zip(chosen, states, strict=True)
        return np.array([U[np.ix_(own, indices[ptr[k] : ptr[k + 1]])].max(axis=1) for k, own in each])

    def blocks(self, entries: int = 1) -> list[tuple[Ints, Ints]]:
        """(rows of one size m, places of their entries [rows, m]), in blocks of bounded work, m² or `entries` a row."""
        return [part for m in self._places for part in _parts(*self._places[m], max(m * m, entries))]

    @cached_property
    def _places(self) -> dict[int, tuple[Ints, Ints]]:
        """By their size m: rows, and places of their entries [rows, m]."""
        same = {int(m): np.flatnonzero(self.rows.sizes == m) for m in np.unique(self.rows.sizes)}
        return {m: (rows, self.rows.indptr[rows][:, None] + np.arange(m)) for m, rows in same.items()}


def _parts(rows: Ints, places: Ints, work: int) -> list[tuple[Ints, Ints]]:
    step = max(1, _BLOCK // work)
    return [(rows[k : k + step], places[k : k + step]) for k in range(0, len(rows), step)]


def sets_of(frame: Frame, delta: float, design: Design, support: Support, exact: bool) -> Confidence:
    """The sets of a frame (see `Counts.confidence`, which checks the arguments).

    Args:
        frame: estimated rows and what was seen of them. support: what is known of their successors.
        exact: whether rewards are a function of state and action, so that one visit shows them.
    """
    known = ~np.isfinite(frame.visits)
    open_rows = max(int((~known).sum()), 1)
    share = (delta if exact else 0.5 * delta) / open_rows
    spread, unseen = np.where(frame.observed, 0.0, 1.0), np.where(frame.observed, 0.0, 1.0)
    counted = np.flatnonzero(frame.observed & ~known)
    spread[counted], unseen[counted] = _row_sets(frame, counted, share, design, support.most[counted])
    low, high = _reward_sets(frame, share, design, exact)
    if (low > high).any():
        raise CertificateError("an interval of rewards is empty.")
    return Confidence(
        frame.rows,
        spread,
        unseen,
        low,
        high,
        frame.visits,
        frame.observed,
        support.most,
        frame.n_actions,
        delta,
        design,
        frame.reward_range,
        frame.notes,
        support.possible,
    )


def _reward_sets(frame: Frame, share: float, design: Design, exact: bool) -> tuple[Floats, Floats]:
    """Bounds on the expected reward of each row."""
    least, most = frame.reward_range
    mean = frame.rewards
    if exact:
        return np.where(frame.observed, mean, least), np.where(frame.observed, mean, most)
    known = ~np.isfinite(frame.visits)
    span = most - least
    if span == 0.0:
        return np.full(len(mean), least), np.full(len(mean), most)
    n = np.where(known, 0.0, frame.visits)
    low, high = mean_interval(n * (mean - least) / span, n, share, design)
    pad = 4.0 * np.finfo(np.float64).eps * max(abs(least), abs(most))
    low, high = np.maximum(least + span * low - pad, least), np.minimum(least + span * high + pad, most)
    return np.where(known, mean, low), np.where(known, mean, high)


def _row_sets(frame: Frame, chosen: Ints, share: float, design: Design, K: Ints) -> tuple[Floats, Floats]:
    """(spread, unseen) of some rows that were visited."""
    n, m = frame.visits[chosen], frame.rows.sizes[chosen]
    K = np.maximum(K, m)
    universe = K.astype(np.float64)
    price = np.log(2.0 / share)  # half of the share for each way of paying
    alike = price + (log_all_subsets(universe) if design == "fixed" else log_all_subsets(universe) - np.log(2.0))
    sized = price + log_subsets(universe, m.astype(np.float64))
    extra = redundancy(n, n) if design == "adaptive" else np.zeros_like(n)
    unseen = np.where(m < K, -np.expm1(-(np.minimum(sized, alike) + extra) / n), 0.0)
    half = np.minimum(m, np.maximum(K // 2, 1)).astype(np.float64)
    worst = np.minimum(alike, price + log_subsets(universe, half))
    worst = worst + (largest_redundancy(n) if design == "adaptive" else 0.0)
    spread = np.sqrt(worst / (2.0 * n))  # Pinsker
    spread = np.where((K == 1) | ((m == 1) & (K > 1)), unseen, spread)
    for size in range(2, _ENUMERATED + 1):
        here = np.flatnonzero(m == size)
        step = max(1, _BLOCK >> size)
        for begin in range(0, len(here), step):
            some = here[begin : begin + step]
            found = _all_sets(frame, chosen[some], price, alike[some], universe[some], design)
            spread[some] = np.minimum(spread[some], np.maximum(found, unseen[some]))
    return np.minimum(spread, 1.0), np.minimum(unseen, 1.0)


def _all_sets(frame: Frame, some: Ints, price: float, alike: Floats, universe: Floats, design: Design) -> Floats:
    """max over sets A of observed successors of p̂(A) less the least p(A) that kl allows, for rows of one size m."""
    rows, n = frame.rows, frame.visits[some]
    m = int(rows.sizes[some[0]])
    probs = rows.probs[rows.indptr[some][:, None] + np.arange(m)]  # [rows, m]
    members = (np.arange(1, 2**m - 1)[:, None] >> np.arange(m) & 1).astype(np.float64)  # [sets, m]
    q = np.minimum(probs @ members.T, 1.0)  # [rows, sets]
    sizes = members.sum(axis=1)
    beta = np.minimum(alike[:, None], price + log_subsets(universe[:, None], sizes[None, :]))
    if design == "adaptive":
        beta = beta + redundancy(q * n[:, None], np.broadcast_to(n[:, None], q.shape))
    return np.asarray((q - kl_lower(q, beta / n[:, None])).max(axis=1))
