"""Models: constructors, immutability, and what is refused with which words."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_equality import arrays_of, assert_same
from random_models import random_mdp
from scipy.sparse import coo_array, csr_array

import bisimetric as bm
from bisimetric.model import Distributions

P = np.array([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [0.25, 0.25, 0.5]], [[0.0, 0.0, 1.0]] * 2])
R = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, -5.0]])


def test_axes_and_layouts_agree():
    base = bm.MDP.from_arrays(P, R, 0.9, axes="sas")
    by_action = np.swapaxes(P, 0, 1)
    assert_same(base, bm.MDP.from_arrays(by_action, R, 0.9, axes="ass"))
    assert_same(base, bm.MDP.from_arrays([csr_array(m) for m in by_action], R, 0.9, axes="ass"))
    assert_same(base, bm.MDP.from_arrays([coo_array(m) for m in by_action], R, 0.9, axes="ass"))
    assert_same(base, bm.MDP.from_arrays(np.asfortranarray(P), np.asfortranarray(R), 0.9, axes="sas"))
    assert_same(base, bm.MDP.from_arrays(P.tolist(), R.tolist(), 0.9, axes="sas"))
    flat = P.reshape(6, 3)
    for rows in (flat, csr_array(flat), flat[::1, ::-1][:, ::-1]):
        assert_same(base, bm.MDP.from_choices(rows, R.reshape(-1), [0, 2, 4, 6], 0.9))
    np.testing.assert_array_equal(base.rows.matrix().toarray(), flat)
    np.testing.assert_array_equal(base.rewards, R.reshape(-1))


def test_sparse_duplicates_are_summed_and_zeros_dropped():
    messy = coo_array(([0.25, 0.25, 0.5, 0.0, 1.0, 1.0], ([0, 0, 0, 0, 1, 2], [1, 1, 0, 2, 1, 2])), shape=(3, 3))
    mdp = bm.MDP.from_choices(messy, [0.0, 1.0, 2.0], [0, 1, 2, 3], 0.5)
    np.testing.assert_array_equal(mdp.rows.indices, [0, 1, 1, 2])
    np.testing.assert_array_equal(mdp.rows.probs, [0.5, 0.5, 1.0, 1.0])


def test_integers_and_float32_become_float64():
    permutation = np.eye(3, dtype=np.int64)[[1, 2, 0]][:, None, :]
    mdp = bm.MDP.from_arrays(permutation, np.array([1, 2, 3]), 0, axes="sas")
    assert mdp.rows.probs.dtype == mdp.rewards.dtype == np.float64
    small = bm.MDP.from_arrays(P.astype(np.float32), R.astype(np.float32), np.float32(0.5), axes="sas")
    assert_same(small, bm.MDP.from_arrays(P, R, 0.5, axes="sas"))
    assert isinstance(small.gamma, float)


def test_rewards_per_state_choice_and_transition():
    by_state = bm.MDP.from_arrays(P, [1.0, 2.0, 3.0], 0.9, axes="sas")
    np.testing.assert_array_equal(by_state.rewards, [1, 1, 2, 2, 3, 3])
    full = np.arange(18.0).reshape(3, 2, 3)
    full[P == 0.0] = np.nan  # read only where P is positive
    expected = np.where(P > 0, P * np.nan_to_num(full), 0.0).sum(axis=2).reshape(-1)
    per_transition = bm.MDP.from_arrays(P, full, 0.9, axes="sas")
    np.testing.assert_allclose(per_transition.rewards, expected, rtol=1e-15)
    swapped = bm.MDP.from_arrays(np.swapaxes(P, 0, 1), np.swapaxes(full, 0, 1), 0.9, axes="ass")
    np.testing.assert_array_equal(swapped.rewards, per_transition.rewards)
    ragged = bm.MDP.from_choices(P.reshape(6, 3), full.reshape(6, 3), [0, 2, 4, 6], 0.9)
    np.testing.assert_array_equal(ragged.rewards, per_transition.rewards)
    ragged = bm.MDP.from_choices(P.reshape(6, 3), [1.0, 2.0, 3.0], [0, 2, 4, 6], 0.9)
    np.testing.assert_array_equal(ragged.rewards, by_state.rewards)


def test_ragged_choices_and_labels():
    rows = P.reshape(6, 3)
    mdp = bm.MDP.from_choices(rows, np.arange(6.0), [0, 1, 4, 6], 0.9, ["go", "stay", "go", "wait", "go", "stay"])
    assert (mdp.n_states, mdp.n_choices) == (3, 6)
    np.testing.assert_array_equal(mdp.state_of_choice, [0, 1, 1, 1, 2, 2])
    assert [mdp.action_labels[k] for k in mdp.action_of_choice] == ["go", "stay", "go", "wait", "go", "stay"]
    by_position = bm.MDP.from_choices(rows, np.arange(6.0), [0, 1, 4, 6], 0.9)
    assert [by_position.action_labels[k] for k in by_position.action_of_choice] == ["0", "0", "1", "2", "0", "1"]
    np.testing.assert_allclose(mdp.uniform_policy(), [1, 1 / 3, 1 / 3, 1 / 3, 0.5, 0.5])


@given(st.integers(0, 10**6), st.booleans())
def test_under_is_the_mixture(seed, ragged):
    mdp = random_mdp(seed, 4, ragged=ragged)
    rng = np.random.default_rng(seed)
    raw = rng.random(mdp.n_choices) * (rng.random(mdp.n_choices) < 0.7) + 1e-3 * (seed % 2)
    raw[mdp.choice_ptr[:-1]] += 1e-3  # zeros elsewhere, for even seeds
    policy = raw / np.add.reduceat(raw, mdp.choice_ptr[:-1])[mdp.state_of_choice]
    rows = mdp.rows.matrix().toarray()
    for chosen in [policy] if ragged else [policy, policy.reshape(4, 2)]:
        chain = mdp.under(chosen)
        assert np.all(chain.rows.probs > 0.0)
        for s in range(4):
            successors = chain.rows.indices[chain.rows.indptr[s] : chain.rows.indptr[s + 1]]
            assert np.all(np.diff(successors) > 0)
            mine = slice(mdp.choice_ptr[s], mdp.choice_ptr[s + 1])
            np.testing.assert_allclose(chain.rows.matrix().toarray()[s], policy[mine] @ rows[mine], atol=1e-15)
            assert chain.rewards[s] == pytest.approx(policy[mine] @ mdp.rewards[mine], abs=1e-15)
        assert chain.gamma == mdp.gamma
        assert chain.reward_range == mdp.reward_range


def test_models_are_immutable_and_copy():
    p, r, ptr, classes = P.reshape(6, 3).copy(), R.reshape(-1).copy(), np.array([0, 2, 4, 6]), np.array([0, 1, 1])
    sparse = csr_array(p)
    before = [x.tobytes() for x in (p, r, ptr, classes, sparse.data, sparse.indices, sparse.indptr)]
    for source in (p, sparse):
        mdp = bm.MDP.from_choices(source, r, ptr, 0.9, classes=classes)
        chain = mdp.under(mdp.uniform_policy())
        held = [*arrays_of(mdp).values(), mdp.classes, chain.rewards, chain.rows.probs, chain.rows.indices]
        for array in held:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
            assert not any(np.shares_memory(array, mine) for mine in (p, r, ptr, classes, sparse.data, sparse.indices))
    with pytest.raises(AttributeError):
        mdp.gamma = 0.5  # type: ignore[misc]
    assert before == [x.tobytes() for x in (p, r, ptr, classes, sparse.data, sparse.indices, sparse.indptr)]
    assert p.flags.writeable
    assert sparse.data.flags.writeable
    policy = mdp.uniform_policy()
    mdp.under(policy)
    assert policy.flags.writeable
    assert mdp.with_gamma(0.5).gamma == 0.5
    assert mdp.gamma == 0.9


def test_normalised():
    off = P * 1.0001
    with pytest.raises(bm.ModelError, match=r"MDP.normalised"):
        bm.MDP.from_arrays(off, R, 0.9, axes="sas")
    fixed = bm.MDP.normalised(off)
    np.testing.assert_allclose(fixed, P, atol=1e-15)
    bm.MDP.from_arrays(fixed, R, 0.9, axes="sas")
    np.testing.assert_allclose(bm.MDP.normalised(csr_array(off.reshape(6, 3))).toarray(), P.reshape(6, 3), atol=1e-15)
    both = bm.MDP.normalised([csr_array(off[:, a]) for a in range(2)])
    np.testing.assert_allclose(both[1].toarray(), P[:, 1], atol=1e-15)
    far = P.copy()
    far[1, 1, 2] = 0.7
    with pytest.raises(bm.ModelError, match=r"row \(1, 1\) of P sums to 1\.2"):
        bm.MDP.normalised(far)


def changed(index, value):
    array = P.copy()
    array[index] = value
    return array


BAD_ARRAYS = {
    "nan": (changed((1, 1, 2), np.nan), R, 0.9, "state 1, action 1, next state 2 has nan"),
    "infinite": (changed((1, 1, 2), np.inf), R, 0.9, "state 1, action 1, next state 2 has inf"),
    "negative": (changed((0, 0), [1.5, -0.5, 0.0]), R, 0.9, "state 0, action 0, next state 1 has -0.5"),
    "sum": (changed((1, 1, 2), 0.49), R, 0.9, "state 1, action 1 sums to 0.99 "),
    "no action": (changed((2,), 0.0), R, 0.9, "state 2 has none"),
    "gamma one": (P, R, 1.0, "gamma must be in [0, 1); got 1"),
    "gamma negative": (P, R, -0.1, "gamma must be in [0, 1); got -0.1"),
    "gamma nan": (P, R, float("nan"), "gamma must be in [0, 1); got nan"),
    "flat P": (P.reshape(6, 3), R, 0.9, "(6, 3)"),
    "not square": (P[:, :, :2], R, 0.9, "(3, 2, 2)"),
    "no states": (np.zeros((0, 2, 0)), R, 0.9, "(0, 2, 0)"),
    "R too short": (P, R[:2], 0.9, "[2, 2]"),
    "R not finite": (P, np.where(R == 3.0, np.nan, R), 0.9, "state 1, action 1 has nan"),
    "complex": (P.astype(complex), R, 0.9, "complex128"),
    "text": (P, np.array([["x"] * 2] * 3), 0.9, "R: rewards must be real numbers"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_named(case):
    probabilities, rewards, gamma, words = BAD_ARRAYS[case]
    with pytest.raises(bm.ModelError, match=re.escape(words)) as caught:
        bm.MDP.from_arrays(probabilities, rewards, gamma, axes="sas")
    assert "\n" not in str(caught.value)


def test_names_are_used_in_messages():
    with pytest.raises(bm.ModelError, match=r"state kitchen, action south sums to 0\.99 "):
        bm.MDP.from_arrays(
            BAD_ARRAYS["sum"][0],
            R,
            0.9,
            axes="sas",
            labels=["north", "south"],
            state_names=["hall", "kitchen", "attic"],
        )


BAD_CHOICES = {
    "no choice": ({"choice_of_state": [0, 3, 3, 6]}, "state 1 has none"),
    "falling": ({"choice_of_state": [0, 4, 2, 6]}, "row pointers"),
    "too few": ({"choice_of_state": [0, 2, 6]}, "4 row pointers"),
    "not from zero": ({"choice_of_state": [1, 2, 4, 6]}, "from 0"),
    "not integers": ({"choice_of_state": [0.0, 2.0, 4.0, 6.0]}, "integers; got float64"),
    "labels": ({"labels": ["a"] * 5}, "one entry per choice (6)"),
    "R": ({"R": np.zeros(5)}, "per choice [6], per state [3]"),
    "state names": ({"state_names": ["x"]}, "1 state names for 3 states"),
    "classes": ({"classes": [0, 1]}, "one entry per state (3)"),
    "vector": ({"P": np.ones(3)}, "[choices, states]"),
    "sum in sparse": (
        {"P": csr_array(np.diag([1.0, 0.5, 1.0])), "R": np.zeros(3), "choice_of_state": [0, 1, 2, 3]},
        "state 1, action 0 sums to 0.5 ",
    ),
}


@pytest.mark.parametrize("case", BAD_CHOICES)
def test_bad_choices_are_named(case):
    change, words = BAD_CHOICES[case]
    good = {"P": P.reshape(6, 3), "R": R.reshape(-1), "choice_of_state": [0, 2, 4, 6], "gamma": 0.9}
    with pytest.raises(bm.ModelError, match=re.escape(words)):
        bm.MDP.from_choices(**(good | change))


def test_axes_are_never_guessed():
    for axes in ("SAS", "asa", "", None):
        with pytest.raises(bm.ModelError, match='"sas".*"ass".*got ' + repr(axes)):
            bm.MDP.from_arrays(P, R, 0.9, axes=axes)
    with pytest.raises(TypeError):
        bm.MDP.from_arrays(P, R, 0.9)
    with pytest.raises(bm.ModelError, match='use axes="ass"'):
        bm.MDP.from_arrays([csr_array(np.eye(3))], np.zeros(3), 0.9, axes="sas")
    with pytest.raises(bm.ModelError, match="square and alike"):
        bm.MDP.from_arrays([csr_array(np.eye(3)), csr_array(np.eye(2))], np.zeros(3), 0.9, axes="ass")
    with pytest.raises(bm.ModelError, match="3 action labels for 2"):
        bm.MDP.from_arrays(P, R, 0.9, axes="sas", labels=["a", "b", "c"])


def test_bad_policies_are_named():
    mdp = bm.MDP.from_arrays(P, R, 0.9, axes="sas")
    cases = [
        (np.full((3, 2), 0.4), "state 0 sums to 0.8"),
        ([[1.0, 0.0], [1.5, -0.5], [0.5, 0.5]], "state 1, action 1 has -0.5"),
        ([[1.0, 0.0], [1.0, 0.0], [np.nan, 1.0]], "state 2, action 0 has nan"),
        (np.full((2, 3), 0.5), "[6] or [3, 2], or one action per state [3], as integers or names; got shape (2, 3)"),
        (np.ones(3), "got shape (3,)"),
        ([["left", "right"]] * 3, "one action per state [3]; got shape (3, 2)"),
        (["0", "1", "up"], "state 2 has no action 'up'; actions are 0, 1"),
        ([0, 1, 2], "state 2 has no action 2; it has 0 (0), 1 (1)"),
        (np.full((3, 2), 0.5 + 0.5j), "policy: probabilities must be real numbers"),
    ]
    for policy, words in cases:
        with pytest.raises(bm.ModelError, match=re.escape(words)):
            mdp.under(policy)


def test_bad_chains_are_named():
    for matrix, rewards, gamma, words in [
        (np.eye(2)[:1], [0.0], 0.9, "P [1, 2] and R [1]"),
        (np.eye(2), [0.0], 0.9, "R [1]"),
        ([[1.0, 0.0], [0.5, 0.4]], [0.0, 0.0], 0.9, "state 1 sums to 0.9 "),
        (np.eye(2), [0.0, np.inf], 0.9, "state 1 has inf"),
        (np.eye(2), [0.0, 0.0], 1.5, "gamma"),
        (np.zeros((0, 0)), [], 0.5, "at least one state"),
    ]:
        with pytest.raises(bm.ModelError, match=re.escape(words)):
            bm.Chain.from_arrays(matrix, rewards, gamma)


def test_row_sums_are_checked_to_the_tolerance():
    for excess, good in ((5e-9, True), (2e-8, False)):
        matrix = np.array([[1.0 + excess, 0.0], [0.0, 1.0]])
        if good:
            assert Distributions.from_matrix(matrix).sums()[0] == 1.0 + excess
            bm.Chain.from_arrays(matrix, [0, 1], 0.5)
        else:
            with pytest.raises(bm.ModelError, match="tolerance 1e-08"):
                bm.Chain.from_arrays(matrix, [0, 1], 0.5)


def test_one_state():
    mdp = bm.MDP.from_arrays(np.ones((1, 1, 1)), [3.0], 0.5, axes="sas")
    chain = mdp.under([1.0])
    for transport in (bm.Exact(), bm.Sinkhorn(1.0), bm.KLBall(0.1), bm.Independent()):
        assert bm.solve_metric(chain, transport).distance.tolist() == [[0.0]]
        for match in ("labels", "hausdorff"):
            assert bm.solve_metric(mdp, transport, match=match).distance.tolist() == [[0.0]]


def test_absorbing_and_unreachable_states():
    """State 2 absorbs with reward 0, state 3 with 1, nobody reaches state 4, which goes to 2."""
    matrix = np.zeros((5, 5))
    for s, t in enumerate([1, 2, 2, 3, 2]):
        matrix[s, t] = 1.0
    chain = bm.Chain.from_arrays(matrix, [0.0, 0.0, 0.0, 1.0, 0.5], 0.5)
    d = bm.solve_metric(chain, tol=1e-12).distance
    np.testing.assert_allclose(d[2], [0.0, 0.0, 0.0, 2.0, 0.5], atol=1e-11)
    np.testing.assert_allclose(d[3], [2.0, 2.0, 2.0, 0.0, 1.5], atol=1e-11)


def test_actions_that_states_do_not_have_are_left_out():
    """A mask, a reward of −inf, or a row of zeros: all say the same."""
    mask = np.array([[True, False], [True, True], [False, True]])
    by_mask = bm.MDP.from_arrays(P, R, 0.9, axes="sas", mask=mask)
    by_reward = bm.MDP.from_arrays(P, np.where(mask, R, -np.inf), 0.9, axes="sas")
    by_rows = bm.MDP.from_arrays(P * mask[:, :, None], R, 0.9, axes="sas")
    sparse = [csr_array(m) for m in np.swapaxes(P * mask[:, :, None], 0, 1)]
    by_sparse_rows = bm.MDP.from_arrays(sparse, R, 0.9, axes="ass")
    for mdp in (by_mask, by_reward, by_rows, by_sparse_rows):
        assert_same(mdp, by_mask)
        np.testing.assert_array_equal(mdp.choice_ptr, [0, 1, 3, 4])
        np.testing.assert_array_equal(mdp.action_of_choice, [0, 0, 1, 1])
        np.testing.assert_array_equal(mdp.rewards, [0.0, 2.0, 3.0, -5.0])
    for bad, words in (
        (np.ones((2, 2), bool), "[3, 2]"),
        (np.ones((3, 2)), "booleans"),
        (~mask & mask, "state 0 has none"),
    ):
        with pytest.raises(bm.ModelError, match=re.escape(words)):
            bm.MDP.from_arrays(P, R, 0.9, axes="sas", mask=bad)
    with pytest.raises(bm.ModelError, match="state 0, action 1 has inf"):
        bm.MDP.from_arrays(P, np.where(mask, R, np.inf), 0.9, axes="sas")


def test_policies_as_actions():
    mdp = bm.MDP.from_arrays(
        P, R, 0.9, axes="sas", labels=["left", "right"], mask=[[True, False], [True] * 2, [True] * 2]
    )
    for policy in (
        [0, 1, 0],
        np.array([0, 1, 0], np.uint8),
        ["left", "right", "left"],
        np.array(["left", "right", "left"]),
    ):
        np.testing.assert_array_equal(mdp.check_policy(policy), [1, 0, 1, 1, 0])
    for policy, words in (
        ([1, 0, 0], "state 0 has no action 1; it has 0 (left)"),
        ([0, 0, -1], "state 2 has no action -1"),
    ):
        with pytest.raises(bm.ModelError, match=re.escape(words)):
            mdp.check_policy(policy)
    single = bm.MDP.from_arrays(np.eye(3)[:, None, :], [1.0, 2.0, 3.0], 0.5, axes="sas")
    for policy in ([0, 0, 0], [1, 1, 1], [1.0, 1.0, 1.0]):
        np.testing.assert_array_equal(single.check_policy(policy), 1.0)


NAMED = ["x=0 & y=1.5 & busy", "x=1 & y=-2 & !busy", "x=2 & y=0 & busy"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x=1", [0, 1, 0]),
        ("x!=1", [1, 0, 1]),
        ("x>=1 & busy", [0, 0, 1]),
        ("x=0 | !busy", [1, 1, 0]),
        ("true", [1] * 3),
        ("!(x=0 | x=2)", [0, 1, 0]),
        ("x+y*2 > 0", [1, 0, 1]),
        ("-x < 0", [0, 1, 1]),
        ('"odd" & y<=0', [0, 1, 0]),
        ("busy = false", [0, 1, 0]),
        ("x - 1 == 1e0", [0, 0, 1]),
        ("!busy & true | x = 0 & busy", [1, 1, 0]),
    ],
)
def test_labels_from_expressions(expression, expected):
    mdp = bm.MDP.from_arrays(P, R, 0.9, axes="sas", state_names=NAMED).with_labels(
        {"odd": np.array([False, True, False])}
    )
    labelled = mdp.with_labels({"new": expression})
    np.testing.assert_array_equal(labelled.state_labels["new"], np.array(expected, bool))
    assert set(labelled.state_labels) == {"odd", "new"}
    assert set(mdp.state_labels) == {"odd"}


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "it is empty"),
        ("z=1", "unknown 'z'; the model has the variables x, y, busy"),
        ("x", "a number stands where"),
        ("x=busy", "compares a number with"),
        ("(x=1", "not closed"),
        ("x=1)", "from ')' on"),
        ("x=", "ends too early"),
        ("x=1 & $", "cannot read '$'"),
        ('"z"', "unknown 'z'; the model has the labels none"),
        ("busy+1=2", "true or false"),
        ("(" * 300 + "busy" + ")" * 300, "nested too deeply"),
        ("!" * 5000 + "busy", "nested too deeply"),
        ("x=1" * 5000, "10000"),
        ("-" * 5000 + "x=1", "nested too deeply"),
    ],
)
def test_bad_expressions_are_named(expression, words):
    mdp = bm.MDP.from_arrays(P, R, 0.9, axes="sas", state_names=NAMED)
    with pytest.raises(bm.ModelError, match=re.escape(words)) as caught:
        mdp.with_labels({"new": expression})
    assert len(str(caught.value)) < 300


def test_states_without_variables_say_so():
    for names, words in (
        (["a b", "c", "d"], "does not give its variables"),
        (["x=1", "x=2", "y=3"], "different variables"),
    ):
        with pytest.raises(bm.ModelError, match=words):
            bm.MDP.from_arrays(P, R, 0.9, axes="sas", state_names=names).with_labels({"goal": "x=1"})


def test_absorbing_at_a_label():
    mdp = bm.MDP.from_arrays(P, R, 0.9, axes="sas", state_names=NAMED).with_labels({"goal": "x=1"})
    stopped = mdp.absorb("goal")
    np.testing.assert_array_equal(stopped.rows.matrix().toarray()[2:4], [[0, 1, 0]] * 2)
    np.testing.assert_array_equal(stopped.rewards, [0, 1, 0, 0, 4, -5])
    np.testing.assert_array_equal(
        stopped.rows.matrix().toarray()[[0, 1, 4, 5]], mdp.rows.matrix().toarray()[[0, 1, 4, 5]]
    )
    with pytest.raises(bm.ModelError, match="no label 'end'; it has: goal"):
        mdp.absorb("end")


def test_wrong_types_name_the_argument():
    with pytest.raises(TypeError, match="gamma must be a number; got str"):
        bm.MDP.from_arrays(P, R, "0.9", axes="sas")
    with pytest.raises(TypeError, match="gamma must be a number; got list"):
        bm.Chain.from_arrays(np.eye(2), [0.0, 1.0], [0.9])


def test_choices_can_be_labelled_by_their_action_names(tmp_path):
    """Two states with the actions a, b in another order: by position they differ, by name they are bisimilar."""
    from dataclasses import replace

    P = np.full((4, 2), 0.5)
    mdp = bm.MDP.from_choices(P, [1.0, 0.0, 0.0, 1.0], [0, 2, 4], gamma=0.5)
    named = replace(mdp, action_names=("a", "b", "b", "a"))
    by_name = named.labelled_by_action()
    assert by_name.action_labels == ("a", "b")
    assert by_name.action_of_choice.tolist() == [0, 1, 1, 0]
    assert bm.solve_metric(named, match="labels").distance[0, 1] == pytest.approx(1.0, abs=1e-5)
    assert bm.solve_metric(by_name, match="labels").distance[0, 1] == 0.0
    assert mdp.labelled_by_action() is mdp


def test_shapes_are_said_in_the_order_of_the_axes():
    from scipy.sparse import csr_array

    with pytest.raises(bm.ModelError, match=r"axes=.sas. must be three-dimensional, S by A by S"):
        bm.MDP.from_arrays(np.ones((2, 2, 3)), np.ones(2), 0.9, axes="sas")
    with pytest.raises(bm.ModelError, match=r"axes=.ass. must be three-dimensional, A by S by S"):
        bm.MDP.from_arrays(np.ones((2, 3)), np.ones(2), 0.9, axes="ass")
    with pytest.raises(bm.ModelError, match=r"one sparse matrix \(4, 2\) does not say.*MDP\.from_choices"):
        bm.MDP.from_arrays(csr_array(np.ones((4, 2)) / 2), np.ones(2), 0.9, axes="sas")
