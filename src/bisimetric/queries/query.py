"""Questions about single pairs of states of a model, or of two.

A `Query` keeps a table of the pairs that it has seen, each with lower ≤ d ≤ upper, and goes on from it with each
question. Nothing of size S² is made: memory is that of the model, of a few numbers for each state (`landmarks`), and of
the pairs that were opened (`search`).

Exact transport with p = 1 only. Where most pairs of the model matter for one distance, as in random graphs, the full
solver is cheaper; answers say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..backends.select import host
from ..checks import check_number, check_type, check_whole
from ..kinds import Floats, Ints
from ..metric.compare import side_by_side
from ..metric.operator import comparison_of, largest_distance
from ..metric.settings import Match, MetricSettings
from ..metric.solve import metric_notes, reduced
from ..model import MDP, Chain
from ..model.parts import ModelParts
from ..showing import state_number
from .answers import Answer, Budget, Nearest, QuerySeen
from .asking import Asking, answers, within
from .landmarks import add_landmarks, landmarks_for
from .nearest import find_nearest

_NO_LIMIT = Budget()


class Query:
    """Distances of single pairs of states, with rigorous bounds.

    Args:
        model: a `Chain`, or an `MDP` with match="labels" or match="hausdorff".
        other: a second model of the same kind and discount; states t of a question are then its states.
        match, reward_weight, transition_weight, respect: as in `MetricSettings`.
        lump: merge bisimilar states first; None for where that is exact up to rounding. States of two models that are
            bisimilar are merged too.
        on_progress: told of the bounds so far, now and then, where questions are asked one by one (a `Bar` will do); it
            reads only.

    Cost: at the start, partition refinement and one value iteration for each landmark (at most 8 numbers a state are
    kept). Each question opens the pairs that it needs; later ones use what is known.

    Attributes: question, largest (possible distance), notes; reduced (the model with bisimilar states merged), of_state
    (its state for each state, None where they are the same), merging (what that may add to a distance).
    """

    def __init__(
        self,
        model: Chain | MDP,
        other: Chain | MDP | None = None,
        *,
        match: Match | None = None,
        reward_weight: float = 1.0,
        transition_weight: float | None = None,
        respect: Sequence[str] | None = None,
        lump: bool | None = None,
        on_progress: Callable[[QuerySeen], None] | None = None,
    ) -> None:
        check_type("model", model, Chain, MDP, words="a Chain or an MDP")
        self.model, self.other = model, other
        both = model if other is None else side_by_side(model, other)
        settings = MetricSettings(
            match=match,
            reward_weight=reward_weight,
            transition_weight=transition_weight,
            respect=respect,
            lump=lump,
        )
        question = settings.for_model(both)
        largest = largest_distance(both, *question.weights)
        reduction = reduced(both, question, lump, largest)
        small = reduction.model
        comparison = comparison_of(small, question.of_reduced(small))
        self.question, self.largest, self.notes = question, largest, metric_notes(both, question)
        self.reduced, self.of_state = small, reduction.of_state
        self.merging = 0.0 if reduction.of_state is None else reduction.error
        self._table = host().pair_table(comparison, _order_of_rows(small, question.match))
        pairs = len(comparison.apart) * (len(comparison.apart) - 1) // 2
        self._asking = Asking(self._table, largest, self.merging, pairs, on_progress)
        add_landmarks(self._table, landmarks_for(comparison), largest)

    def distance(
        self,
        s: int | str | None = None,
        t: int | str | None = None,
        *,
        tol: float = 1e-3,
        budget: Budget = _NO_LIMIT,
    ) -> Answer:
        """Bounds on d(s, t) that are at most `tol` apart.

        Args:
            s, t: states, by number or by name; None for the initial state. With two models t is one of the second.
            tol: how far the bounds may be apart.
            budget: where to end without that.
        """
        if not 0.0 < check_number("tol", tol) < np.inf:
            raise ValueError(f"tol must be positive and finite; got {tol}.")
        return self._asking.ask(self._left(s), self._right(t), within(tol), budget)

    def distances(
        self,
        pairs: Iterable[tuple[int | str | None, int | str | None]],
        *,
        tol: float = 1e-3,
        budget: Budget = _NO_LIMIT,
        cluster: object = None,
    ) -> list[Answer]:
        """Bounds on the distances of many pairs, by all threads or by the workers of a cluster.

        Each 16 pairs share a table of their own, so answers do not depend on what was asked before, on threads, or on
        the cluster. Ctrl-C leaves the pairs that were not reached with the bounds that are known at once.

        Args:
            pairs: (s, t), as for `distance`. tol: how far the bounds may be apart. budget: of each pair.
            cluster: a Client of Dask, or the address of a scheduler. The model goes to each worker once.

        Returns:
            One `Answer` for each pair, in their order.
        """
        if not 0.0 < check_number("tol", tol) < np.inf:
            raise ValueError(f"tol must be positive and finite; got {tol}.")
        check_type("budget", budget, Budget)
        merged = [self._merged_pair(number, pair) for number, pair in enumerate(pairs)]
        return answers(self._asking, merged, tol, budget, cluster)

    def at_most(
        self,
        s: int | str | None,
        t: int | str | None,
        threshold: float,
        *,
        budget: Budget = _NO_LIMIT,
    ) -> bool | None:
        """Whether d(s, t) ≤ threshold: True, False, or None where the budget did not decide it.

        A distance that is the threshold up to rounding cannot be decided, so give a budget where that may be.
        """
        if not 0.0 <= check_number("threshold", threshold) < np.inf:
            raise ValueError(f"threshold must be finite and not negative; got {threshold}.")

        def decided(low: float, high: float) -> bool:
            return low > threshold or high <= threshold

        answer = self._asking.ask(self._left(s), self._right(t), decided, budget)
        if answer.upper <= threshold:
            return True
        return False if answer.lower > threshold else None

    def nearest(self, s: int | str | None, k: int = 1, *, tol: float = 1e-3, budget: Budget = _NO_LIMIT) -> Nearest:
        """The k states that are nearest to s (of the other model, where there is one), up to `tol`.

        Bounds from the landmarks put all states into order; the one whose lower bound is least is asked for next, until
        k states are known to be nearer than all others, up to tol.

        Args:
            s: a state of the model, by number or by name. k: how many. tol: how much farther than the true k-th nearest
                they may be. budget: of the whole search.
        """
        if not 0.0 < check_number("tol", tol) < np.inf:
            raise ValueError(f"tol must be positive and finite; got {tol}.")
        check_type("budget", budget, Budget)
        number = asked_state("s", s, self.model)
        root, two = self._merged(number), self.other is not None
        first, count = (
            (self.model.n_states, self.other.n_states) if self.other is not None else (0, self.model.n_states)
        )
        states = np.arange(count) if two else np.delete(np.arange(count), number)
        if not 1 <= check_whole("k", k) <= len(states):
            raise ValueError(f"k must be between 1 and the number of candidates, {len(states)}; got {k}.")
        merged = first + states if self.of_state is None else self.of_state[first + states]
        lower, upper = self._asking.outward(*self._table.first_bounds(root, merged))

        def ask(state: int, near: float, left: Budget) -> Answer:
            return self._asking.ask(root, self._merged(first + state), within(near), left)

        return find_nearest(states, lower, upper, k, tol, budget, ask)

    def may_be_within(self, s: int, t: int, threshold: float, budget: Budget) -> bool:
        """Whether the distance of two states of the reduced model is not known to be above a threshold."""

        def decided(low: float, high: float) -> bool:
            return low > threshold or high <= threshold

        return self._asking.ask(s, t, decided, budget).lower <= threshold

    @property
    def coordinates(self) -> Floats:
        """Distances of the states of the reduced model from the landmarks [S', L]."""
        return np.asarray(self._table.model.landmarks)

    @property
    def apart(self) -> Ints:
        """Numbers of the states of the reduced model; those with different ones are apart by definition [S']."""
        return np.asarray(self._table.model.apart)

    @property
    def known(self) -> int:
        """Pairs in the table."""
        return self._table.pairs

    @property
    def opened(self) -> int:
        """Pairs that were opened so far."""
        return self._table.opened

    @property
    def nbytes(self) -> int:
        """Memory of the table, and of the landmarks."""
        return self._table.nbytes + self._table.model.landmarks.nbytes

    def __repr__(self) -> str:
        beside = "" if self.other is None else f" against {self.other.n_states}"
        return f"Query({self.model.n_states} states{beside}, {self.known} pairs known, {self.opened} opened)"

    def _merged_pair(self, number: int, pair: tuple[int | str | None, int | str | None]) -> tuple[int, int]:
        """A listed pair; what is wrong with it is said with its number."""
        try:
            s, t = pair
        except (TypeError, ValueError):
            raise ValueError(f"pairs: number {number} must be two states; got {pair!r}.") from None
        try:
            return self._left(s), self._right(t)
        except (TypeError, ValueError) as error:
            raise type(error)(f"pairs: number {number}: {error}") from None

    def _left(self, state: int | str | None) -> int:
        return self._merged(asked_state("s", state, self.model))

    def _right(self, state: int | str | None) -> int:
        if self.other is None:
            return self._merged(asked_state("t", state, self.model))
        return self._merged(self.model.n_states + asked_state("t", state, self.other))

    def _merged(self, state: int) -> int:
        return state if self.of_state is None else int(self.of_state[state])


def asked_state(name: str, state: int | str | None, model: Chain | MDP | ModelParts) -> int:
    """A state by its number or name (see `state_number`), or the one that is labelled "init" (None)."""
    n = model.n_states
    if state is None:
        initial = np.flatnonzero(model.state_labels.get("init", np.zeros(n, np.bool_)))
        if len(initial) != 1:
            found = "no state" if not len(initial) else f"{len(initial)} states"
            raise ValueError(f'{name} must be given: the model has {found} labelled "init".')
        return int(initial[0])
    return state_number(state, n, model.state_names, name)


def _order_of_rows(model: Chain | MDP, match: str) -> Ints:
    """Rows of the states one after the other, in the same order of labels in all of them [N]."""
    if isinstance(model, Chain) or match == "hausdorff":
        return np.arange(len(model.rows))
    return np.lexsort((model.action_of_choice, model.state_of_choice))
