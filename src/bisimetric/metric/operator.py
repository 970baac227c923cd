"""The one-step operators of bisimulation metrics: what is compared, and how.

For a chain (a policy π), with a transport W:

    F(d)(s, t) = c_R |R(s) − R(t)| + c_T W(d)(P(s), P(t))                              (eqs. 5 and 11)

For an MDP, F(d)(s, t) compares choices by c_R |r − r'| + c_T W(d)(P, P') and combines them:

    match="labels"     the maximum over actions of the same label (eqs. 3 and 10). Where one state has
                       an action that the other has not, the distance is the largest possible one.
    match="hausdorff"  the Hausdorff distance of the two sets of choices (probabilistic automata).

States whose respected labels (atomic propositions) differ are at the largest possible distance. All distances are at
most c_R · span / (1 − c_T), where span is the range of the rewards (1 where all rewards are equal, so that
states with different actions are still apart). Without discount (c_T = 1, labelled chains only, see `undiscounted`)
there are no rewards, and the largest distance is 1.

Here F is only described, as a `Comparison`. A `Sweeper` of an engine applies it.
"""

from __future__ import annotations

import numpy as np

from ..backends.comparison import Comparison
from ..backends.protocol import Backend, Sweeper
from ..backends.select import backend
from ..kinds import Ints
from ..lumping import label_classes
from ..model import MDP, Chain
from .settings import Question


def largest_distance(model: Chain | MDP, c_R: float, c_T: float) -> float:
    """The largest possible distance, c_R · span / (1 − c_T); 1 without discount."""
    if c_T == 1.0:
        return 1.0
    return c_R * (model.reward_span or 1.0) / (1.0 - c_T)


def comparison_of(model: Chain | MDP, question: Question) -> Comparison:
    """F for a model: its rows, which of them are compared, and how they are combined."""
    c_R, c_T = question.reward_weight, question.transition_weight
    action_sets, groups = comparison_groups(model, question.match)
    if isinstance(model, MDP):
        states, pointers = model.state_of_choice, model.choice_ptr
    else:
        states, pointers = np.arange(model.n_states), np.arange(model.n_states + 1)
    apart = action_sets
    if question.respected:
        both = np.stack([action_sets, label_classes(model, question.respected)])
        apart = np.unique(both, axis=1, return_inverse=True)[1].reshape(-1)
    combine, rewards = question.match, model.rewards
    if c_T == 1.0:  # states are compared as if their labels were those of their one action
        combine, groups, c_R, rewards = "labels", _label_groups(apart), 0.0, np.zeros(model.n_states)
    return Comparison(
        rows=model.rows,
        groups=groups,
        state_of_row=states,
        row_pointers=pointers,
        column_pointers=pointers,
        rewards=rewards,
        apart=apart,
        columns_apart=apart,
        combine=combine,
        c_R=c_R,
        c_T=c_T,
        largest=largest_distance(model, c_R, c_T),
    )


def _label_groups(apart: Ints) -> tuple[Ints, ...]:
    """States with equal numbers, where there are several; all of them where there are none such, as some must be."""
    order = np.argsort(apart, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(apart[order])) + 1)
    return tuple(group for group in groups if len(group) > 1) or (np.arange(len(apart)),)


def sweeper_of(model: Chain | MDP, question: Question, engine: Backend | None = None) -> Sweeper:
    """F at work on the engine that is asked for, or on a given one."""
    engine = engine or backend(question.device, question.dtype)
    comparison = comparison_of(model, question)
    check_range(comparison.largest, engine)
    with engine.guard(question.transport.squares, comparison.shape):
        return engine.sweeper(comparison, question.transport, question.remember)


def comparison_groups(model: Chain | MDP, match: str) -> tuple[Ints, tuple[Ints, ...]]:
    """(number of each state's set of action labels [S], groups of rows whose pairs are compared)."""
    if isinstance(model, Chain):
        return np.zeros(model.n_states, np.int64), (np.arange(model.n_states),)
    if match == "hausdorff":
        return np.zeros(model.n_states, np.int64), (np.arange(model.n_choices),)
    action_sets = _action_sets(model)
    # Only states with the same labels are compared, one group for each label of each set.
    key = action_sets[model.state_of_choice] * len(model.action_labels) + model.action_of_choice
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    return action_sets, tuple(np.split(order, cuts))


def _action_sets(model: MDP) -> Ints:
    """Numbers of the states' sets of action labels, by first appearance [S]; refuses a label twice in a state."""
    states, actions = model.state_of_choice, model.action_of_choice
    order = np.lexsort((actions, states))
    states, actions = states[order], actions[order]
    twice = np.flatnonzero((states[1:] == states[:-1]) & (actions[1:] == actions[:-1]))
    if twice.size:
        s, label = int(states[twice[0]]), model.action_labels[actions[twice[0]]]
        raise ValueError(
            f'match="labels" needs different labels within a state; state {model.name_of(s)} has action {label} '
            'more than once. Use match="hausdorff".'
        )
    place, sets = np.arange(len(states)) - model.choice_ptr[states], np.zeros(model.n_states, np.int64)
    for k in range(int(place.max()) + 1):  # sets that agree in their first k labels have the same number so far
        more = np.zeros(model.n_states, np.int64)
        more[states[place == k]] = actions[place == k] + 1
        _, inverse = np.unique(sets * (len(model.action_labels) + 1) + more, return_inverse=True)
        sets = inverse.reshape(-1)
    _, first, inverse = np.unique(sets, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def check_range(largest: float, engine: Backend) -> None:
    """Refuse distances that the numbers of the engine cannot hold."""
    if not largest < 1e-8 * float(np.finfo(engine.dtype).max):
        raise ValueError(
            f"distances may reach {largest:.3g}, which is too large for {engine.dtype.name}; scale the rewards down"
            + (", or use float64." if engine.dtype == np.float32 else ".")
        )
