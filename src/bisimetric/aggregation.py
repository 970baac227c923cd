"""Aggregation: from distances between states to classes, and from an MDP to a smaller one.

A rule is called with a distance matrix d [S, S] and gives a `Partition`. It sees distances only, not how they
came about. Class numbers follow the smallest state of each class, so equal partitions have equal labels.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from .archives import read_arrays, save_arrays
from .backends.protocol import Distances
from .backends.select import distances_of, host
from .checks import check_number, check_type, check_whole
from .damage import DamagedFileError, reading
from .frames import frame
from .kinds import Array, Floats, Ints
from .model import MDP, Distributions, ModelError
from .showing import table_html

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_array


_FORMAT, _VERSION = "bisimetric-partition", 1


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """A partition of the states into classes. It can be pickled, copied, saved and loaded.

    Attributes:
        class_of: class of each state [S], numbered by first appearance.
        medoids: the state that stands for each class [K].
        radius: largest distance of a state from its medoid.
        diameter: largest distance of two states in a class; eps = diameter/2 is what the bounds may use.
    """

    class_of: Ints
    medoids: Ints
    radius: float = 0.0
    diameter: float = 0.0

    @classmethod
    def from_classes(
        cls, classes: ArrayLike, medoids: ArrayLike | None = None, distance: ArrayLike | Distances | None = None
    ) -> Partition:
        """A partition from anything that tells classes apart; medoids default to the first state of each class."""
        given = np.asarray(classes)
        if given.ndim != 1 or given.size == 0:
            raise ValueError(f"classes must be a vector with one entry per state; got shape {given.shape}.")
        _, first, inverse = np.unique(given, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        new = rank[inverse.reshape(-1)].astype(np.int64)
        chosen = first[order].astype(np.int64)
        if medoids is not None:
            given = np.asarray(medoids, dtype=np.int64)
            chosen[new[given]] = given
        radius = diameter = 0.0
        if distance is not None:
            radius, diameter = _distances(distance).extents(new, chosen)
        for array in (new, chosen):
            array.setflags(write=False)
        return cls(new, chosen, radius, diameter)

    @property
    def n_states(self) -> int:
        return len(self.class_of)

    @property
    def n_classes(self) -> int:
        return len(self.medoids)

    @property
    def sizes(self) -> Ints:
        """Number of states in each class [K]."""
        return np.bincount(self.class_of, minlength=self.n_classes)

    def __len__(self) -> int:
        return self.n_classes

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_states} states in {self.n_classes} classes, diameter {self.diameter:.4g})"
        )

    def to_frame(self, names: Sequence[str] | None = None) -> pd.DataFrame:
        """One row per state, as a data frame of pandas: its class, and the state that stands for it.

        Args:
            names: of the states, for the index.
        """
        index = range(self.n_states) if names is None else list(names)
        return frame({"class": self.class_of, "medoid": self.medoids[self.class_of]}, index)

    def _repr_html_(self) -> str:
        facts = {
            "states": self.n_states,
            "classes": f"{self.n_classes}, the largest has {int(self.sizes.max())} states",
            "radius, diameter": f"{self.radius:.4g}, {self.diameter:.4g}",
        }
        return table_html(type(self).__name__, facts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write classes, medoids and extents to an .npz file, whole or not at all."""
        arrays = {"class_of": self.class_of, "medoids": self.medoids, "extents": [self.radius, self.diameter]}
        save_arrays(Path(path), {"format": _FORMAT, "version": _VERSION, **arrays})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Partition:
        """A partition from a file that `save` wrote."""
        path = Path(path)
        with reading(path, "a saved partition"):
            data = read_arrays(path)
            if str(data.get("format")) != _FORMAT or int(data["version"]) != _VERSION:
                raise DamagedFileError(f"{path}: not a saved partition of this version ({_FORMAT!r}, {_VERSION}).")
            class_of, medoids = data["class_of"].astype(np.int64), data["medoids"].astype(np.int64)
            radius, diameter = (float(x) for x in data["extents"])
            inside = class_of.ndim == medoids.ndim == 1 and class_of.min() >= 0 and class_of.max() < len(medoids)
            inside = inside and medoids.min() >= 0 and medoids.max() < len(class_of)
            if not inside or (class_of[medoids] != np.arange(len(medoids))).any():
                raise DamagedFileError(f"{path}: damaged (its classes do not fit the states).")
            return Partition(class_of, medoids, radius, diameter)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and np.array_equal(self.class_of, other.class_of)

    __hash__ = None  # type: ignore[assignment]

    def lift(self, values: ArrayLike) -> Array:
        """Values, policies or Q per class [K, …] to one per state [S, …]."""
        array = np.asarray(values)
        if array.ndim == 0 or len(array) != self.n_classes:
            raise ValueError(f"lift needs one entry per class ({self.n_classes}); got shape {array.shape}.")
        return np.asarray(array[self.class_of])

    def purity(self, truth: ArrayLike) -> float:
        """Share of states whose true class is the most frequent one of their class."""
        return self.agreement(truth)[1]

    def nmi(self, truth: ArrayLike) -> float:
        """Normalised mutual information with true classes, 2 I/(H + H'); 1 where both have one class."""
        return self.agreement(truth)[0]

    def agreement(self, truth: ArrayLike) -> tuple[float, float]:
        """(NMI, purity) with true classes."""
        _, true = np.unique(np.asarray(truth), return_inverse=True)
        if true.shape != self.class_of.shape:
            raise ValueError(f"true classes need one entry per state ({self.n_states}); got shape {true.shape}.")
        pairs, counts = np.unique(self.class_of * (int(true.max()) + 1) + true, return_counts=True)
        mine, theirs = np.divmod(pairs, int(true.max()) + 1)
        top = np.zeros(self.n_classes, np.int64)
        np.maximum.at(top, mine, counts)
        joint, a, b = counts / self.n_states, self.sizes / self.n_states, np.bincount(true) / self.n_states
        entropies = -float(np.sum(a * np.log(a))) - float(np.sum(b * np.log(b)))
        nmi = 1.0
        if entropies > 0.0:
            information = float(np.sum(joint * np.log(joint / (a[mine] * b[theirs]))))
            nmi = max(0.0, min(1.0, 2.0 * information / entropies))
        return nmi, float(top.sum() / self.n_states)


class Aggregation(Protocol):
    """A rule that makes a partition from distances [S, S].

    Rules with an attribute `takes_distances` that is true are given `Distances`, wherever they live; others get an
    array of NumPy, which is theirs until the next step.
    """

    def __call__(self, distance: Array, /) -> Partition: ...


@dataclass(frozen=True)
class SmallModel:
    """The classes of a small model that is found anew for each policy: for `solve_policy`, where S² does not fit.

    States are in the class of the state of the small model that they are nearest to; how far two of a class are apart
    at most is certified. Distances are those to the small model [S, K], with `Exact` transport.

    Args:
        size: states of the small model, at most.
    """

    size: int
    takes_distances: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if check_whole("size", self.size) < 1:
            raise ValueError(f"SmallModel: size must be at least 1; got {self.size}.")

    def __call__(self, distance: Array | Distances, /) -> Partition:
        found = getattr(distance, "partition", None)
        if not isinstance(found, Partition):
            raise ValueError("SmallModel is for solve_policy; for one model there is bm.abstract.")
        return found


def partition_within(class_of: Ints, radii: Floats) -> Partition:
    """Classes of states that are each within a radius [S] of something that a class has in common.

    The state of least radius stands for its class. Radius and diameter follow by the triangle inequality.
    """
    order = np.lexsort((radii, class_of))
    first = np.flatnonzero(np.diff(class_of[order], prepend=-1))
    found = Partition.from_classes(class_of, order[first])
    last = np.append(first[1:], len(order)) - 1
    most, second = radii[order[last]], radii[order[np.maximum(last - 1, first)]]
    several = last > first
    radius = float(np.max(np.where(several, most + radii[order[first]], 0.0)))
    return Partition(found.class_of, found.medoids, radius, float(np.max(np.where(several, most + second, 0.0))))


def classes_of(rule: Aggregation, distance: Distances, sizes: Ints | None = None) -> Partition:
    """The classes that a rule makes of distances; `sizes` says how many states each row of them stands for."""
    if sizes is not None:
        assert isinstance(rule, EpsilonCover)  # others do not count
        return rule(distance, sizes)
    return rule(distance if getattr(rule, "takes_distances", False) else distance.near())  # type: ignore[arg-type]


def _distances(given: ArrayLike | Distances) -> Distances:
    """Distances as they are, or those of an array."""
    if hasattr(given, "epsilon_classes"):
        return given  # type: ignore[return-value]
    _check_square(np.shape(given))
    return distances_of(given)


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise ValueError(f"distances must be a square matrix; got shape {shape}.")


def _check_finite(finite: bool) -> None:
    if not finite:
        raise ValueError("distances must be finite.")


@dataclass(frozen=True)
class EpsilonCover:
    """ε-aggregation: classes around greedily chosen medoids.

    rule="radius" is the paper's Algorithm 1: states are taken as medoids by their number of ε-neighbours (ties
    by index), and each takes the ε-neighbours that are still free. The diameter is at most 2ε only where d obeys
    the triangle inequality.

    rule="diameter" takes free states, nearest first, as long as all pairs of the class stay within 2ε. It needs no
    triangle inequality, so it is the rule for certified use.

    Cost: O(S²). Distances on a GPU (symmetric ones) stay there, but for few states, where a copy is sooner made.

    Args:
        eps: ε ≥ 0, in units of the distances. None is for `solve_policy`, which takes 1 % of the largest possible one.
        rule: "radius" or "diameter".
    """

    eps: float | None = None
    rule: str = "radius"
    takes_distances: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.eps is not None and not 0.0 <= check_number("eps", self.eps) < np.inf:
            raise ValueError(f"eps must be finite and not negative; got {self.eps}.")
        if self.rule not in ("radius", "diameter"):
            raise ValueError(f'rule must be "radius" or "diameter"; got {self.rule!r}.')

    def __call__(self, distance: ArrayLike | Distances, weights: ArrayLike | None = None) -> Partition:
        """Make the partition; `weights` counts how many states each row of the distances stands for."""
        if self.eps is None:
            raise ValueError("EpsilonCover needs an eps, in units of the distances.")
        d = _distances(distance)
        reach = self.eps if self.rule == "radius" else 2.0 * self.eps
        counts = None if weights is None else check_weights(weights, d.n_states)
        labels, medoids, finite = d.epsilon_classes(reach, counts, self.rule == "diameter")
        _check_finite(finite)
        return Partition.from_classes(labels, medoids, d)


@dataclass(frozen=True)
class KMedoids:
    """k classes of least total distance to their medoids, by FasterPAM (Schubert and Rousseeuw).

    Args:
        k: number of classes.
        seed: of the first medoids.
    """

    k: int
    seed: int = 0

    def __post_init__(self) -> None:
        if check_whole("k", self.k) < 1:
            raise ValueError(f"k must be at least 1; got {self.k}.")
        if check_whole("seed", self.seed) < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}.")

    def __call__(self, distance: Array) -> Partition:
        import kmedoids

        d = np.asarray(distance)
        _check_square(d.shape)
        _check_finite(host().all_finite(d))
        if self.k > len(d):
            raise ValueError(f"k = {self.k} classes cannot be made of {len(d)} states.")
        if self.k == len(d):
            return Partition.from_classes(np.arange(len(d)), distance=d)
        ground = np.array(d)
        np.fill_diagonal(ground, 0.0)
        start = np.random.default_rng(self.seed).choice(len(d), self.k, replace=False).astype(np.uint64)
        found = kmedoids.fasterpam(ground, start, n_cpu=1)  # type: ignore[no-untyped-call]
        return Partition.from_classes(found.labels.astype(np.int64), found.medoids.astype(np.int64), d)


def check_weights(weights: ArrayLike | None, n_states: int) -> Floats:
    """The measure ξ [S]: uniform where None; all weights must be positive."""
    if weights is None:
        return np.ones(n_states)
    xi = np.array(weights, dtype=np.float64)
    if xi.shape != (n_states,):
        raise ValueError(f"weights need one entry per state ({n_states}); got shape {xi.shape}.")
    bad = np.flatnonzero(~(xi > 0.0) | ~np.isfinite(xi))
    if bad.size:
        raise ValueError(f"weights must be positive and finite; state {bad[0]} has {xi[bad[0]]}.")
    return xi


def class_shares(partition: Partition, weights: ArrayLike | None = None) -> Floats:
    """ξ(s) over the ξ of its class [S], so that Σ shares·f over a class is the ξ-weighted average of f."""
    xi = check_weights(weights, partition.n_states)
    return np.asarray(
        xi / np.bincount(partition.class_of, weights=xi, minlength=partition.n_classes)[partition.class_of]
    )


def membership(partition: Partition) -> csr_array:
    """The matrix [S, K] of zeros and ones that says in which class each state is."""
    from scipy.sparse import csr_array

    n = partition.n_states
    return csr_array((np.ones(n), partition.class_of, np.arange(n + 1)), shape=(n, partition.n_classes))


def quotient(
    mdp: MDP,
    partition: Partition,
    weights: ArrayLike | None = None,
    *,
    match: Literal["labels", "hausdorff"] = "labels",
) -> MDP:
    """The aggregated MDP.

    match="labels" (eq. 2): rewards and transitions averaged over each class with weights ξ. All states of a class must
    have the same action labels, each once.

    match="hausdorff": a class has the choices of its medoid. `lift_policy` finds the choice of another state that is
    most like each of them. States of a class may have different actions.

    Args:
        mdp: the model. partition: of its states. weights: ξ > 0 [S], uniform by default.
    """
    check_type("mdp", mdp, MDP, words="an MDP")
    check_type("partition", partition, Partition)
    if partition.n_states != mdp.n_states:
        raise ValueError(f"the partition is of {partition.n_states} states, the model has {mdp.n_states}.")
    if match == "hausdorff":
        return _quotient_of_medoids(mdp, partition)
    if match != "labels":
        raise ValueError(f'match must be "labels" or "hausdorff"; got {match!r}.')
    shares = class_shares(partition, weights)
    table = label_table(mdp)
    offered = table >= 0
    differs = np.flatnonzero((offered != offered[partition.medoids][partition.class_of]).any(axis=1))
    if differs.size:
        s = int(differs[0])
        raise ModelError(
            f"quotient: all states of a class need the same actions; states {mdp.name_of(s)} and "
            f"{mdp.name_of(int(partition.medoids[partition.class_of[s]]))} differ.",
            python='Classes of the Hausdorff metric need match="hausdorff".',
        )
    from scipy.sparse import csr_array, vstack

    to_class = mdp.rows.matrix() @ membership(partition)  # [N, K]
    rows, rewards, labels, owners = [], [], [], []
    for a in np.flatnonzero(offered.any(axis=0)):
        states = np.flatnonzero(offered[:, a])
        classes = partition.class_of[states]
        mix = csr_array((shares[states], (classes, table[states, a])), shape=(partition.n_classes, mdp.n_choices))
        present = np.unique(classes)
        rows.append((mix @ to_class)[present])
        rewards.append((mix @ mdp.rewards)[present])
        labels.append(np.full(len(present), a))
        owners.append(present)
    owner, label = np.concatenate(owners), np.concatenate(labels)
    order = np.lexsort((label, owner))
    pointers = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=partition.n_classes))])
    P = MDP.normalised(vstack(rows).tocsr()[order], tol=1e-6)
    return MDP(
        Distributions.from_matrix(P),
        np.concatenate(rewards)[order],
        pointers.astype(np.int64),
        mdp.gamma,
        label[order].astype(np.int64),
        mdp.action_labels,
        _medoid_names(mdp, partition),
        reward_name=mdp.reward_name,
    )


def _medoid_names(mdp: MDP, partition: Partition) -> tuple[str, ...] | None:
    return None if mdp.state_names is None else tuple(mdp.state_names[state] for state in partition.medoids)


def _quotient_of_medoids(mdp: MDP, partition: Partition) -> MDP:
    counts = np.diff(mdp.choice_ptr)[partition.medoids]
    pointers = np.concatenate([[0], np.cumsum(counts)])
    picked = np.repeat(mdp.choice_ptr[partition.medoids] - pointers[:-1], counts) + np.arange(pointers[-1])
    P = (mdp.rows.matrix()[picked] @ membership(partition)).tocsr()
    actions = None if mdp.action_names is None else tuple(mdp.action_names[c] for c in picked)
    return MDP(
        Distributions.from_matrix(P),
        mdp.rewards[picked].copy(),
        pointers.astype(np.int64),
        mdp.gamma,
        mdp.action_of_choice[picked].copy(),
        mdp.action_labels,
        _medoid_names(mdp, partition),
        action_names=actions,
        reward_name=mdp.reward_name,
    )


def label_table(mdp: MDP) -> Ints:
    """The choice of each state and label [S, labels], −1 where the state has none."""
    table = np.full((mdp.n_states, len(mdp.action_labels)), -1, np.int64)
    states = mdp.state_of_choice
    table[states, mdp.action_of_choice] = np.arange(mdp.n_choices)
    twice = np.flatnonzero(table[states, mdp.action_of_choice] != np.arange(mdp.n_choices))
    if twice.size:
        s = int(states[twice[0]])
        raise ModelError(f"state {mdp.name_of(s)} has two choices of the same label; aggregation needs different ones.")
    return table


def lift_policy(
    mdp: MDP,
    small: MDP,
    partition: Partition,
    policy: ArrayLike,
    *,
    match: Literal["labels", "hausdorff"] = "labels",
) -> Floats:
    """A policy of the quotient as one on all states, per choice [N].

    match="labels": the same action in all states of a class. match="hausdorff": for each choice of the class, the
    choice of the state that is most like it: the least |Δr| + γ R TV, where TV is the total variation of the
    probabilities of reaching each class and R the range of all values. This bounds by how much the values of the two
    choices differ where values are equal inside classes.
    """
    weights = small.check_policy(policy)
    if match == "labels":
        classes = partition.class_of[mdp.state_of_choice]
        chosen = label_table(small)[classes, mdp.action_of_choice]
        fewer = np.diff(mdp.choice_ptr) < np.diff(small.choice_ptr)[partition.class_of]
        if (chosen < 0).any() or fewer.any():
            raise ModelError(
                "lift_policy: a state and its class have different actions.",
                python='Quotients made with match="hausdorff" are lifted with it too.',
            )
        return np.asarray(weights[chosen])
    if match != "hausdorff":
        raise ValueError(f'match must be "labels" or "hausdorff"; got {match!r}.')
    to_class = mdp.rows.matrix() @ membership(partition)
    of_class = small.rows.matrix()
    reach = mdp.gamma * mdp.reward_span / (1.0 - mdp.gamma)
    lifted = np.zeros(mdp.n_choices)
    for s in range(mdp.n_states):
        own = slice(mdp.choice_ptr[s], mdp.choice_ptr[s + 1])
        theirs = slice(*small.choice_ptr[[partition.class_of[s], partition.class_of[s] + 1]])
        mine, wanted = to_class[own].toarray(), of_class[theirs].toarray()
        apart = 0.5 * np.abs(mine[:, None, :] - wanted[None, :, :]).sum(axis=2)
        unlike = np.abs(mdp.rewards[own][:, None] - small.rewards[theirs][None, :]) + reach * apart
        np.add.at(lifted, mdp.choice_ptr[s] + unlike.argmin(axis=0), weights[theirs])
    return lifted
