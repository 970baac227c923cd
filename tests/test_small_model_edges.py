"""Small models at the edges: states that have other actions than their class, equal rewards, odd arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_models import random_chain, random_mdp

import bisimetric as bm

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)


@settings(max_examples=12, deadline=None)
@given(seed=SEEDS, size=st.integers(1, 4))
@example(seed=9000, size=1)
@example(seed=9000, size=3)
def test_policies_are_policies_where_sets_of_actions_differ(seed, size):
    """Fewer classes than sets of actions: some states have none of the actions that their class plays."""
    mdp = random_mdp(seed, 8, 0.9, ragged=True)
    found = bm.abstract(mdp, size=size, match="labels")
    assert (found.policy >= 0.0).all()
    assert np.allclose(np.add.reduceat(found.policy, mdp.choice_ptr[:-1]), 1.0, rtol=0.0, atol=1e-12)
    loss = bm.optimal_values(mdp).value - bm.evaluate(mdp, found.policy).value
    assert found.certificate.rigorous
    assert loss.max() <= found.certificate.error + 1e-8


def test_states_that_play_what_they_have_are_counted():
    """One class for all: b is what it plays, and the state that has only a plays a."""
    P = np.eye(3)[[0, 1, 1, 2]]
    mdp = bm.MDP.from_choices(P, [0.0, 0.0, 1.0, 0.5], [0, 1, 3, 4], 0.9, ["a", "a", "b", "b"])
    found = bm.abstract(mdp, size=1, match="labels")
    assert np.array_equal(np.add.reduceat(found.policy, [0, 1, 3]), [1.0, 1.0, 1.0])
    assert any(note.endswith("all of theirs alike: 1") for note in found.notes)


def test_policies_are_lifted_only_where_actions_agree():
    mdp = random_mdp(0, 4, ragged=False)
    small = bm.MDP.from_choices(np.ones((3, 1)), [0.0, 1.0, 0.5], [0, 3], mdp.gamma, ["0", "1", "2"])
    with pytest.raises(bm.ModelError, match="different actions"):
        bm.lift_policy(mdp, small, bm.Partition.from_classes(np.zeros(4, np.int64)), small.uniform_policy())


@pytest.mark.parametrize("most", [0, -3])
def test_a_largest_size_below_1_is_refused(most):
    with pytest.raises(ValueError, match="most must be at least 1"):
        bm.abstract(random_chain(0, 4), eps=0.1, most=most)
