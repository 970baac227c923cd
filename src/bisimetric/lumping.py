"""Exact bisimulation classes by partition refinement.

Two states are bisimilar where they have the same respected labels and their choices correspond: for each choice of one
there is a choice of the other with the same rewards and the same probability of reaching each class
(match="hausdorff"), or the choices of equal label agree in this way (match="labels"). `lump` finds the coarsest such
partition. Exactly the states of one class are at distance 0 in the exact bisimulation metric of the same matching, and
the quotient has the same values.

Numbers are equal where they round to the same multiple of `tol` (rewards: of tol times their largest size). The result
does not depend on the order of the states.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from .aggregation import Partition
from .backends.select import host
from .checks import check_number, check_type
from .kinds import Array, Bools, Floats, Ints
from .model import MDP, Chain, Distributions, ModelError

if TYPE_CHECKING:
    from .distinctions import Distinction

NOT_RESPECTED = ("init", "deadlock")  # labels about the modelling, not about behaviour


@dataclass(frozen=True, eq=False, repr=False)
class Lumping(Partition):
    """A partition into bisimulation classes, with the quotient model and the way back.

    Attributes:
        quotient: the model of the classes; class k stands for its medoid. It has the reward models and labels that the
            classes respect, and no others; a class is initial where one of its states is.
        choice_of: for each choice of the model, the choice of the quotient that it corresponds to [N].
        model: the model.
        match, respected, rewards, tol: what was asked of `lump`.
    """

    quotient: MDP = field(kw_only=True)
    choice_of: Ints = field(kw_only=True)
    model: MDP = field(kw_only=True)
    match: Literal["labels", "hausdorff"] = field(kw_only=True, default="labels")
    respected: tuple[str, ...] = field(kw_only=True, default=())
    rewards: str | Sequence[str] | None = field(kw_only=True, default="current")
    tol: float = field(kw_only=True, default=1e-9)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the partition alone to an .npz file; the quotient is a model, which `bisimetric.write` writes."""
        super().save(path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> NoReturn:
        """A file holds the partition alone: use `Partition.load`, and `lump` for the rest, which takes little time."""
        raise TypeError(f"{path}: a saved lumping holds its partition alone; use Partition.load, or lump(model) again.")

    def explain(self, s: int | str, t: int | str) -> Distinction:
        """Say why two states are in different classes: a formula of least depth that holds in s and not in t.

        Args:
            s, t: states of the model, by number or by name. See `distinctions`.
        """
        from .distinctions import distinguish

        return distinguish(self, s, t)

    def lift_policy(self, policy: ArrayLike) -> Floats:
        """A policy of the quotient, per choice, as a policy of the model, per choice.

        Where a state has several choices for one of the quotient's, the first gets the probability.
        """
        weights = self.quotient.check_policy(policy)
        key = self.model.state_of_choice * self.quotient.n_choices + self.choice_of
        _, first = np.unique(key, return_index=True)
        lifted = np.zeros(self.model.n_choices)
        lifted[first] = weights[self.choice_of[first]]
        return lifted


def respected_labels(model: Chain | MDP, respect: Sequence[str] | None) -> tuple[str, ...]:
    """The labels that keep states apart: those given, or all of the model's but init and deadlock."""
    if respect is None:
        return tuple(name for name in model.state_labels if name not in NOT_RESPECTED)
    if isinstance(respect, str) or not isinstance(respect, Iterable):
        shown = f", such as [{respect!r}]" if isinstance(respect, str) else ""
        raise TypeError(f"respect must be a sequence of labels{shown}; got {type(respect).__name__}.")
    for name in respect:
        if name not in model.state_labels:
            known = ", ".join(model.state_labels) or "none"
            raise ModelError(f"the model has no label {name!r} to respect; it has: {known}.")
    return tuple(respect)


def label_classes(model: Chain | MDP, respect: Sequence[str] | None) -> Ints:
    """Numbers that are equal for states whose respected labels are equal [S]."""
    numbers = np.zeros(model.n_states, np.int64)
    for name in respected_labels(model, respect):
        numbers = numbers * 2 + model.state_labels[name]
        _, inverse = np.unique(numbers, return_inverse=True)
        numbers = inverse.reshape(-1).astype(np.int64)
    return numbers


def lump(
    mdp: MDP,
    match: Literal["labels", "hausdorff"] = "labels",
    *,
    respect: Sequence[str] | None = None,
    rewards: str | Sequence[str] | None = "current",
    tol: float = 1e-9,
) -> Lumping:
    """The coarsest partition into bisimilar states.

    Args:
        mdp: the model.
        match: "labels" (choices of equal label correspond) or "hausdorff" (choices as sets).
        respect: labels of states that keep states apart; by default all but "init" and "deadlock".
        rewards: "current" for mdp.rewards, None for none, "all" for all reward models, or names of some.
        tol: numbers that round to the same multiple of this are equal.

    Returns:
        A `Lumping`. Cost: O(m log S) for short rows.
    """
    check_type("mdp", mdp, MDP, words="an MDP")
    if match not in ("labels", "hausdorff"):
        raise ValueError(f'match must be "labels" or "hausdorff"; got {match!r}.')
    if not 1e-14 <= check_number("tol", tol) < 0.1:
        raise ValueError(f"tol must be in [1e-14, 0.1); got {tol}.")
    first_choices = np.zeros(mdp.n_choices, np.int64)
    for _, values in reward_columns(mdp, rewards):
        size, exponent = np.frexp(float(np.abs(values).max()) or 1.0)  # tol · size may be too small for a number
        scaled = np.ldexp(values, -exponent)
        first_choices = _combined(first_choices, np.floor(scaled / (tol * size) + 0.5).astype(np.int64))
    if match == "labels":
        first_choices = _combined(first_choices, mdp.action_of_choice)
    states, choices = host().refine(mdp, label_classes(mdp, respect), first_choices, tol)
    found = _assemble(mdp, Partition.from_classes(states), choices, tol)
    return replace(found, match=match, respected=respected_labels(mdp, respect), rewards=rewards, tol=tol)


def reward_columns(mdp: MDP, rewards: str | Sequence[str] | None) -> list[tuple[str, Array]]:
    """The rewards that classes respect, by name (none for those in use, where they have none), per choice [N]."""
    if rewards is None or rewards == "none":
        return []
    if rewards == "current" or (rewards == "all" and not mdp.reward_models):
        return [(mdp.reward_name or "", mdp.rewards)]
    if rewards == "all":
        return list(mdp.reward_models.items())
    names = [rewards] if isinstance(rewards, str) else rewards
    return [(name, mdp.with_reward(name).rewards) for name in names]


def _combined(numbers: Ints, more: Ints) -> Ints:
    """Numbers that are equal where both are."""
    _, second = np.unique(more, return_inverse=True)
    _, joint = np.unique(numbers * (int(second.max()) + 1) + second.reshape(-1), return_inverse=True)
    return np.asarray(joint.reshape(-1), np.int64)


def _assemble(mdp: MDP, partition: Partition, choice_block: Ints, tol: float) -> Lumping:
    """The quotient: the medoid's choices, one for each class of choices, with rows over the classes."""
    from scipy.sparse import csr_array

    from .aggregation import membership

    owner = partition.class_of[mdp.state_of_choice]
    key = owner * (int(choice_block.max()) + 1) + choice_block
    # Quotient choices: the medoid's, one for each class of choices, in the medoid's order. Medoids are the first
    # states of their classes, so they come in the order of the classes.
    is_medoid = np.zeros(mdp.n_states, np.bool_)
    is_medoid[partition.medoids] = True
    candidates = np.flatnonzero(is_medoid[mdp.state_of_choice])
    _, first = np.unique(key[candidates], return_index=True)
    picked = candidates[np.sort(first)]
    pointers = np.concatenate([[0], np.cumsum(np.bincount(owner[picked], minlength=partition.n_classes))])
    order = np.argsort(key[picked])
    choice_of = order[np.searchsorted(key[picked], key, sorter=order)]
    P = (mdp.rows.matrix()[picked] @ membership(partition)).tocsr()
    rewards, name = mdp.rewards[picked].copy(), mdp.reward_name
    if not _agree(mdp.rewards, picked, choice_of, tol):  # rewards that the classes ignore
        rewards, name = np.zeros(len(picked)), None
    quotient = MDP(
        Distributions.from_matrix(csr_array(P)),
        rewards,
        pointers.astype(np.int64),
        mdp.gamma,
        mdp.action_of_choice[picked].copy(),
        mdp.action_labels,
        None if mdp.state_names is None else tuple(mdp.state_names[s] for s in partition.medoids),
        _classes(mdp, partition),
        _labels(mdp, partition),
        {key: r[picked].copy() for key, r in mdp.reward_models.items() if _agree(r, picked, choice_of, tol)},
        None if mdp.action_names is None else tuple(mdp.action_names[c] for c in picked),
        name,
    )
    choices = choice_of.astype(np.int64)
    return Lumping(partition.class_of, partition.medoids, 0.0, 0.0, quotient=quotient, choice_of=choices, model=mdp)


def _agree(values: Array, picked: Ints, choice_of: Ints, tol: float) -> bool:
    """Whether rewards are those of the choices that stand for others."""
    size = float(np.abs(values).max()) or 1.0
    return bool(np.all(np.abs(values - values[picked][choice_of]) <= 2.0 * tol * size))


def _labels(mdp: MDP, partition: Partition) -> dict[str, Bools]:
    """Labels that all states of a class share, and which classes are initial."""
    kept = {}
    for name, holds in mdp.state_labels.items():
        of_class = holds[partition.medoids]
        if np.array_equal(of_class[partition.class_of], holds):
            kept[name] = of_class.copy()
        elif name == "init":
            kept[name] = np.bincount(partition.class_of, weights=holds, minlength=partition.n_classes) > 0
    return kept


def _classes(mdp: MDP, partition: Partition) -> Ints | None:
    """Known classes, where all states of a class have the same."""
    if mdp.classes is None or not np.array_equal(mdp.classes[partition.medoids][partition.class_of], mdp.classes):
        return None
    return mdp.classes[partition.medoids].copy()
