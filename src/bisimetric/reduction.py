"""Work on a smaller model in place of a larger one: none (`Reduction`), or its bisimulation classes (`Lumped`).

Metrics and policies use it the same way: they work on `model`, and give back what they found through `expand` (pairs of
states), `lift` (states) and `lift_policy`. What is known of the larger model comes in through `restrict`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, Literal, TypeVar, cast

import numpy as np

from .aggregation import Partition
from .kinds import Array, Floats, Ints
from .lumping import Lumping, lump
from .model import MDP, Chain

Model_co = TypeVar("Model_co", bound=Chain | MDP, covariant=True)
Model = TypeVar("Model", bound=Chain | MDP)

LUMP_TOL = 1e-12  # masses that differ by less are taken as equal when states are merged


class Reduction(Generic[Model_co]):
    """The model itself: nothing is reduced.

    Attributes: full (the model), model (the one to work on), error (what the reduction may add to a distance), sizes
    (how many states each of the smaller model stands for, None for one each), true_classes (known ones of the full
    model's states, if any).
    """

    def __init__(self, full: Model_co, model: Model_co | None = None, error: float = 0.0) -> None:
        self.full: Model_co = full
        self.model: Model_co = full if model is None else model
        self.error = error
        self.sizes: Ints | None = None
        self.true_classes = full.classes

    @property
    def of_state(self) -> Ints | None:
        """The smaller model's state for each state of the full one [S]; None where they are the same."""
        return None

    @property
    def n_states(self) -> int:
        """States of the full model."""
        return self.full.n_states

    def __eq__(self, other: object) -> bool:
        return type(other) is Reduction

    __hash__ = None  # type: ignore[assignment]

    def expand(self, d: Array) -> Array:
        """Numbers of pairs of the smaller model's states as numbers of pairs of the full one's."""
        return d

    def restrict(self, d: Array) -> Array:
        """The other way: those of the states that stand for others."""
        return d

    def lift(self, values: Floats) -> Floats:
        """Values of the smaller model's states for those of the full one."""
        return values

    def lift_policy(self, policy: Floats) -> Floats:
        """A policy of the smaller model as one of the full one, per choice."""
        return policy

    def lift_partition(self, partition: Partition) -> Partition:
        """Classes of the smaller model's states as classes of the full one's."""
        return partition


class Lumped(Reduction[Model_co]):
    """Bisimulation classes in place of states."""

    def __init__(self, full: Model_co, lumping: Lumping, error: float = 0.0) -> None:
        super().__init__(full, cast(Model_co, _quotient(full, lumping)), error)
        self.lumping, self.sizes = lumping, lumping.sizes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lumped) and self.lumping == other.lumping

    __hash__ = None

    @property
    def of_state(self) -> Ints | None:
        return self.lumping.class_of

    def expand(self, d: Array) -> Array:
        return d[np.ix_(self.lumping.class_of, self.lumping.class_of)]

    def restrict(self, d: Array) -> Array:
        return d[np.ix_(self.lumping.medoids, self.lumping.medoids)]

    def lift(self, values: Floats) -> Floats:
        return self.lumping.lift(values)

    def lift_policy(self, policy: Floats) -> Floats:
        return self.lumping.lift_policy(policy)

    def restrict_policy(self, policy: Floats) -> Floats | None:
        """A policy of the full model as one of the classes; None where it tells bisimilar states apart."""
        choice_of, small, full = self.lumping.choice_of, self.lumping.quotient, self.lumping.model
        # A state may have several choices for one of the quotient's; together they have its probability.
        _, group = np.unique(full.state_of_choice * small.n_choices + choice_of, return_inverse=True)
        shares = np.bincount(group.reshape(-1), policy)[group.reshape(-1)]
        found = np.zeros(small.n_choices)
        at_medoid = np.isin(full.state_of_choice, self.lumping.medoids)
        found[choice_of[at_medoid]] = shares[at_medoid]
        return found if np.array_equal(found[choice_of], shares) else None

    def lift_partition(self, partition: Partition) -> Partition:
        medoids = self.lumping.medoids[partition.medoids]
        outer = Partition.from_classes(partition.class_of[self.lumping.class_of], medoids)
        return replace(outer, radius=partition.radius, diameter=partition.diameter)


def lumped(
    model: Model, match: Literal["labels", "hausdorff"], respect: tuple[str, ...], error: float = 0.0
) -> Reduction[Model]:
    """Bisimulation classes in place of states, or the model itself where no two states are bisimilar."""
    classes = lump(_as_mdp(model), match, respect=respect, tol=LUMP_TOL)
    return Reduction(model) if classes.n_classes == classes.n_states else Lumped(model, classes, error)


def _as_mdp(model: Chain | MDP) -> MDP:
    """A chain as an MDP with one choice per state."""
    if isinstance(model, MDP):
        return model
    n = model.n_states
    return MDP(
        model.rows,
        model.rewards,
        np.arange(n + 1),
        model.gamma,
        np.zeros(n, np.int64),
        ("0",),
        state_labels=model.state_labels,
    )


def _quotient(model: Chain | MDP, lumping: Lumping) -> Chain | MDP:
    """The model of the classes, of the same kind as the model."""
    small = lumping.quotient
    if isinstance(model, MDP):
        return small
    labels = {name: small.state_labels[name] for name in model.state_labels if name in small.state_labels}
    return Chain(
        small.rows,
        small.rewards,
        model.gamma,
        reward_range=model.reward_range,
        state_labels=labels,
        reward_name=model.reward_name,
    )
