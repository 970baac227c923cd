"""Policies with a certificate for the true MDP, from data alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ..certificates import Certificate
from ..kinds import Bools, Floats
from ..model import MDP
from ..model.chain import check_discount
from .choices import SetChoices
from .confidence import Confidence
from .counts import Counts, check_delta
from .values import Band, contradiction, loss_bound, policy_band, policy_weights, value_band

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..kinds import Array


@dataclass(frozen=True, eq=False, repr=False)
class DataCertificate:
    """What is certain of a policy in the true MDP, with probability 1 − δ, for all states together.

    Attributes:
        policy: probabilities [S, A], the end among the states where there is one.
        lower, upper: bounds on its values V^π [S] over all models that the data allow.
        best_lower, best_upper: bounds on the best values V* [S].
        loss: a bound on V* − V^π [S].
        visited: states that the data say something about [S]; elsewhere the loss can be anything.
        certificate: the largest loss of a visited state, or of any where there are no data.
        delta: δ. notes: what it rests on.
    """

    policy: Floats
    lower: Floats
    upper: Floats
    best_lower: Floats
    best_upper: Floats
    loss: Floats
    visited: Bools
    certificate: Certificate
    delta: float
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"DataCertificate({len(self.loss)} states, loss at most {self.certificate.error:.4g} with probability "
            f"{1.0 - self.delta:g})"
        )

    def arrays(self) -> dict[str, object]:
        """All of it as arrays by name, for files."""
        fields = ("policy", "lower", "upper", "best_lower", "best_upper", "loss", "visited", "delta")
        return {name: getattr(self, name) for name in fields} | {"notes": np.array(self.notes, dtype=str)}

    @classmethod
    def of_arrays(cls, data: Mapping[str, Array], certificate: Certificate) -> DataCertificate:
        """What `arrays` gave, with its certificate."""
        numbers = {
            name: np.asarray(data[name], np.float64)
            for name in ("policy", "lower", "upper", "best_lower", "best_upper", "loss")
        }
        visited = np.asarray(data["visited"], np.bool_)
        notes = tuple(str(note) for note in data["notes"].reshape(-1))
        return cls(**numbers, visited=visited, certificate=certificate, delta=float(data["delta"]), notes=notes)


def certify(
    counts: Counts, policy: ArrayLike, delta: float, *, gamma: float, **sets: Unpack[SetChoices]
) -> DataCertificate:
    """A bound on the loss of a policy in the true MDP, with probability 1 − δ.

    It holds for all policies at once, so the policy may be chosen from the same data, and the best of several
    certificates may be taken. Half of δ is for the sets, half for Bernstein's inequality at V*.

    Args:
        counts: the data.
        policy: "uniform", one action for each state [S], or probabilities [S, A].
        delta: δ. gamma: discount. sets: as for `Counts.confidence`.
    """
    check_delta(delta)
    check_discount(gamma)
    found = counts.confidence(0.5 * delta, **sets)
    best = value_band(found, gamma, 0.5 * delta)
    return certified(found, best, policy_weights(found, policy), gamma, delta)


def certified(sets: Confidence, best: Band, weights: Floats, gamma: float, delta: float) -> DataCertificate:
    """The certificate of a policy [S, A], from sets and a band of V* that both hold with probability 1 − δ."""
    own = policy_band(sets, weights, gamma)
    G = loss_bound(sets, weights, gamma, best)
    lower, upper = np.maximum(own.lower, best.lower - G), np.minimum(own.upper, best.upper)
    slack = 1e-9 * max(abs(x) for x in sets.reward_range) / (1.0 - gamma)
    if (best.lower > best.upper + slack).any() or (lower > upper + slack).any():
        raise contradiction()
    loss = np.maximum(np.minimum(G, best.upper - lower), 0.0)
    visited = np.asarray(sets.observed.reshape(sets.n_states, -1).any(axis=1))
    counted = (
        visited if (sets.observed & np.isfinite(sets.visits)).any() else np.ones_like(visited)
    )  # no data, no bound
    return DataCertificate(
        weights,
        lower,
        upper,
        best.lower,
        best.upper,
        loss,
        visited,
        Certificate(float(loss[counted].max()), True, _source(delta, int((~counted).sum()))),
        delta,
        sets.notes,
    )


def _source(delta: float, left_out: int) -> str:
    rest = f"; {left_out} states that were never left are not counted" if left_out else ""
    return f"data: with probability {1.0 - delta:g}, over all models in the confidence sets{rest}"


def policy_on_rows(counts: Counts, model: MDP, policy: Floats) -> Floats:
    """A policy of an estimated model (per choice) as probabilities [S, A] of all states but its sink."""
    n, A = counts.n_states + counts.ends, counts.n_actions
    weights = np.zeros((n, A))
    inside = model.state_of_choice < n
    weights[model.state_of_choice[inside], model.action_of_choice[inside]] = policy[inside]
    return weights
