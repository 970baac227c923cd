"""Values: of a policy, of a policy on aggregated states, and the best ones, each by a linear solve or by iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from . import certificates
from .aggregation import Partition, class_shares
from .backends.protocol import Backend
from .backends.select import host
from .backends.threads import single_thread
from .certificates import Certificate
from .checks import check_type
from .kinds import Array, Bools, Floats, Ints
from .model import MDP, Chain

_DENSE_SOLVE = 500  # unknowns up to which values are found by a dense solve
_PATIENT = 0.99  # discount above which plain iteration is given a good start by a Krylov method


def solved_on_host(chain: Chain) -> bool:
    """Whether the values of the chain are found by a dense solve on the host."""
    return len(chain.rewards) <= _DENSE_SOLVE


def policy_values(chain: Chain, start: Floats, on: Backend | None = None) -> tuple[Floats, float]:
    """(V^π, a bound on its error): a dense solve for few states, iteration from `start` on an engine for many."""
    n = len(chain.rewards)
    if not solved_on_host(chain):
        return _iterated(chain, np.arange(n), np.ones(n), _good_start(chain, start), on)
    V = _solved(chain, np.arange(n), np.ones(n))
    backup = chain.rewards + chain.gamma * (chain.rows.matrix() @ V)
    return V, (float(np.abs(backup - V).max()) + _rounding(chain, V)) / (1.0 - chain.gamma)


def _good_start(chain: Chain, start: Floats) -> Floats:
    """A better start where plain iteration would take long: some steps of GMRES on (I − γP) V = R."""
    if chain.gamma <= _PATIENT:
        return start
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import gmres

    system = (eye_array(chain.n_states) - chain.gamma * chain.rows.matrix()).tocsr()
    with single_thread():
        found, _ = gmres(system, chain.rewards, x0=start, rtol=1e-12, restart=40, maxiter=20)
    return np.asarray(found, np.float64) if np.isfinite(found).all() else start


def abstract_values(
    chain: Chain, partition: Partition, start: Floats, weights: ArrayLike | None = None, on: Backend | None = None
) -> Floats:
    """Ṽ^π lifted to all states [S]: rewards and transitions averaged over classes, and the values of that chain.

    A dense solve for few classes, iteration from `start` [S] on an engine for many.
    """
    labels, shares = partition.class_of, class_shares(partition, weights)
    if partition.n_classes <= _DENSE_SOLVE:
        return _solved(chain, labels, shares)[labels]
    return _iterated(chain, labels, shares, start[partition.medoids], on)[0][labels]


def _iterated(chain: Chain, labels: Ints, shares: Floats, start: Floats, on: Backend | None) -> tuple[Floats, float]:
    """(values of the chain averaged over classes [K], a bound on their error where classes are states), iterated."""
    gamma = chain.gamma
    scale = max(float(np.abs(chain.rewards).max()), (1.0 - gamma) * float(np.abs(start).max()), 1e-300)
    limit = max(1e-11, 1e-15 / (1.0 - gamma)) * scale  # rounding may keep changes above much less than the second
    V, change = (on or host()).averaged_values(chain, labels, shares, start, limit)
    return V, (gamma * change + _rounding(chain, V)) / (1.0 - gamma)


def _rounding(model: Chain | MDP, V: Floats) -> float:
    """What rounding can add to an entry of a backup of V, and to the sum of a row."""
    size = max(float(np.abs(V).max()), float(np.abs(model.rewards).max()))
    return (2 * int(model.rows.sizes.max()) + 4) * float(np.finfo(np.float64).eps) * size


def _solved(chain: Chain, labels: Ints, shares: Floats) -> Floats:
    """Values of the chain averaged over classes [K], by a dense solve."""
    n = int(labels.max()) + 1
    A, R = np.empty((n, n)), np.empty(n)
    host().averaged_system(chain, labels, shares, A, R)
    with single_thread():
        return np.asarray(np.linalg.solve(A, R), np.float64)


def choice_values(mdp: MDP, V: Floats) -> Floats:
    """Q [N]: the value of each choice where V is what follows."""
    return np.asarray(mdp.rewards + mdp.gamma * (mdp.rows.matrix() @ V))


def optimal_backup(mdp: MDP, V: Floats) -> Floats:
    """T V [S]."""
    return np.asarray(np.maximum.reduceat(choice_values(mdp, V), mdp.choice_ptr[:-1]))


@dataclass(frozen=True, eq=False, repr=False)
class Values:
    """Values of all states with their error; as an array it is `value`.

    Attributes: value [S]; certificate: the largest error of an entry.
    """

    value: Floats
    certificate: Certificate

    @property
    def error(self) -> float:
        return self.certificate.error

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.value, dtype=dtype, copy=True if copy else None)

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        low, high = self.value.min(), self.value.max()
        return f"Values({len(self.value)} states, {low:.6g} to {high:.6g}, error {self.error:.3g})"


def _certified(value: Floats, error: float, source: str) -> Values:
    value.setflags(write=False)
    return Values(value, Certificate(error, True, source))


def evaluate(mdp: MDP, policy: ArrayLike) -> Values:
    """V^π of a policy.

    Args:
        mdp: the model. policy: probabilities per choice, or one action per state, as integers or names.
    """
    check_type("mdp", mdp, MDP, words="an MDP")
    value, error = policy_values(mdp.under(policy), np.zeros(mdp.n_states))
    return _certified(value, error, "Bellman residual of an approximate value function")


def optimal_values(mdp: MDP) -> Values:
    """V*, by policy iteration."""
    check_type("mdp", mdp, MDP, words="an MDP")
    value, error = best_values(mdp)
    return _certified(value, error, "Bellman residual of V^π")


def greedy(mdp: MDP, values: ArrayLike | Values) -> Floats:
    """A policy that is greedy for values, per choice [N]; ties go to the first choice."""
    check_type("mdp", mdp, MDP, words="an MDP")
    V = np.asarray(values, np.float64)
    if V.shape != (mdp.n_states,):
        raise ValueError(f"values need one entry per state ({mdp.n_states}); got shape {V.shape}.")
    Q = choice_values(mdp, V)
    best = np.maximum.reduceat(Q, mdp.choice_ptr[:-1])
    policy = np.zeros(mdp.n_choices)
    policy[first_choices(mdp, best[mdp.state_of_choice] <= Q)] = 1.0
    return policy


def first_choices(mdp: MDP, good: Bools) -> Ints:
    """The first good choice of each state [S]; each state must have one."""
    choices = np.flatnonzero(good)
    return np.asarray(choices[np.flatnonzero(np.diff(mdp.state_of_choice[choices], prepend=-1))])


def best_values(mdp: MDP) -> tuple[Floats, float]:
    """(V*, a bound on its error) by policy iteration: choices change only where that is clearly better.

    V* − V is at most max(TV − V)/(1 − γ), and V − V* at most what V may be above the values of its policy.
    """
    V, off = np.zeros(mdp.n_states), 0.0
    chosen: Ints | None = None
    states, starts = mdp.state_of_choice, mdp.choice_ptr[:-1]
    scale = max(float(np.abs(mdp.rewards).max()) / (1.0 - mdp.gamma), 1e-300)
    while True:
        Q = choice_values(mdp, V)
        TV = np.maximum.reduceat(Q, starts)
        better = first_choices(mdp, TV[states] <= Q)
        if chosen is not None:
            worth_it = TV - Q[chosen] > 1e-13 * scale
            if not worth_it.any():  # values rise with each change, so this comes
                rise = float(np.max(TV - V)) + _rounding(mdp, V)
                return V, max(rise / (1.0 - mdp.gamma), off)
            better = np.where(worth_it, better, chosen)
        chosen = better
        policy = np.zeros(mdp.n_choices)
        policy[chosen] = 1.0
        V, off = policy_values(mdp.under_checked(policy), TV)


def certified_loss(mdp: MDP, V: Floats, value_error: float) -> Certificate:
    """The best rigorous bound on ‖V* − V^π‖∞ for V = V^π, known up to value_error."""
    residual = certificates.bellman_residual(V, optimal_backup(mdp, V), gamma=mdp.gamma, value_error=value_error)
    anything = certificates.trivial(gamma=mdp.gamma, scale=mdp.reward_span, value_error=2.0 * value_error)
    return certificates.best(residual, anything)


def value_ranges(model: Chain | MDP, discount: float) -> list[tuple[Floats, float]]:
    """(V, a bound on its error) under a discount: of a chain, or of the best and of the worst policy of an MDP."""
    if isinstance(model, Chain):
        return [policy_values(replace(model, gamma=discount), np.zeros(model.n_states))]
    best, error = best_values(model.with_gamma(discount))
    worst, other = best_values(model.with_gamma(discount).with_rewards(-model.rewards))
    return [(best, error), (-worst, other)]
