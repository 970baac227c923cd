"""The generated problems: known values, true classes, seeds, and errors with suggestions."""

from __future__ import annotations

import re

import numpy as np
import pytest
from model_equality import assert_same

import bisimetric as bm
from bisimetric.problems import NAMES, from_spec

pytestmark = pytest.mark.usefixtures("one_thread")


def optimal_values(mdp):
    """V* by QuantEcon's policy iteration."""
    markov = pytest.importorskip("quantecon.markov")
    choices = mdp.state_of_choice, mdp.choice_ptr
    actions = np.arange(mdp.n_choices) - choices[1][choices[0]]
    ddp = markov.DiscreteDP(mdp.rewards, mdp.rows.matrix().toarray(), mdp.gamma, choices[0], actions)
    return ddp.solve(method="policy_iteration").v


def dense(mdp):
    return mdp.rows.matrix().toarray()


def test_staircase_values():
    mdp = bm.problems.staircase(n_states=40, n_classes=20, gamma=0.9)
    V = optimal_values(mdp)
    for k in range(20):
        np.testing.assert_allclose(V[mdp.classes == k], V[2 * k], atol=1e-9)
    gaps = np.diff(V[::2])
    assert (gaps > 0).all()
    np.testing.assert_allclose(gaps[-3:], [0.047, 0.031, 0.015], atol=5e-4)
    R = mdp.rewards.reshape(40, 2)[::2]
    e = R[0, 0]
    np.testing.assert_allclose(R[1:, 0], 0.9 * R[:-1, 0] + e, rtol=1e-13)
    assert R[-1, 0] == pytest.approx(1.0, abs=1e-13)
    assert (R[:, 1] == 0.0).all()


def test_staircase_alternates_where_asked():
    mdp = bm.problems.staircase(n_states=8, n_classes=4, advance="alternating")
    R = mdp.rewards.reshape(8, 2)
    assert [bool(row[1] > row[0]) for row in R[::2]] == [False, True, False, True]
    np.testing.assert_allclose(
        optimal_values(mdp), optimal_values(bm.problems.staircase(n_states=8, n_classes=4)), atol=1e-9
    )


def test_chain_values():
    """V*(class k) = γ^(m−1−k) / (1 − γ)."""
    V = optimal_values(bm.problems.chain(n_states=12, n_classes=6, gamma=0.5))
    np.testing.assert_allclose(V, np.repeat(0.5 ** np.arange(5, -1, -1) / 0.5, 2), atol=1e-9)


def test_detours_structure():
    mdp = bm.problems.detours(n_states=12, n_classes=4, n_actions=3, seed=5)
    by_class = dense(mdp).reshape(12, 3, 4, 3).sum(axis=3)  # [S, A, class]
    for s in range(12):
        k = s // 3
        forward = min(k + 1, 3)
        for a in range(3):
            if a != k % 3:
                np.testing.assert_allclose(by_class[s, a], [1, 0, 0, 0], atol=1e-12)
                continue
            assert 0.75 <= by_class[s, a, forward] < 1.0
            others = np.flatnonzero(by_class[s, a] > 1e-12)
            assert len(others) == 2
            assert k not in others or k == forward
        np.testing.assert_allclose(by_class[s], by_class[3 * k], atol=1e-12)
    rewards = mdp.rewards.reshape(12, 3)
    assert rewards.sum() == 3.0
    assert (rewards[9:, 0] == 1.0).all()
    assert len(bm.problems.detours(n_states=12, n_classes=4).action_labels) == 10


FAMILIES = {
    "chain": bm.problems.chain(n_states=12, n_classes=4),
    "staircase": bm.problems.staircase(n_states=12, n_classes=4),
    "alternating": bm.problems.staircase(n_states=12, n_classes=4, advance="alternating"),
    "detours": bm.problems.detours(n_states=12, n_classes=4, n_actions=3),
    "sparse rows": bm.problems.chain(n_states=16, n_classes=4, concentration=0.25),
    "gridworld": bm.problems.gridworld(2, 2, copies=3),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_classes_are_bisimilar(family):
    """The exact metric is 0 inside classes and positive across them."""
    mdp = FAMILIES[family]
    solution = bm.solve_metric(mdp, bm.Exact(), match="labels", tol=1e-9)
    same = mdp.classes[:, None] == mdp.classes[None, :]
    assert solution.distance[same].max() <= solution.error + 1e-12
    assert solution.distance[~same].min() > 1e-3


@pytest.mark.parametrize("family", ["chain", "staircase", "detours"])
def test_mixing_and_concentration(family):
    make = getattr(bm.problems, family)
    mixed = make(n_states=12, n_classes=4, mixing=0.3)
    assert (dense(mixed) > 0.0).all()
    solution = bm.solve_metric(mixed, bm.Exact(), match="labels", tol=1e-6)
    same = (mixed.classes[:, None] == mixed.classes[None, :]) & ~np.eye(12, dtype=bool)
    assert solution.distance[same].min() > 1e-3
    plain = make(n_states=12, n_classes=4)
    difference = dense(mixed) - 0.7 * dense(plain)  # what was mixed in is a distribution times 0.3
    assert difference.min() >= 0.0
    np.testing.assert_allclose(difference.sum(axis=1), 0.3, atol=1e-12)

    def entropy(concentration):
        P = np.maximum(dense(make(n_states=40, n_classes=4, concentration=concentration)), 1e-300)
        return -(P * np.log(P)).sum(axis=1).mean()

    assert entropy(0.1) < entropy(1.0) - 0.5 < entropy(100.0) - 0.5
    tiny = make(n_states=40, n_classes=4, concentration=1e-4)
    assert np.isfinite(tiny.rows.probs).all()


@pytest.mark.parametrize("name", NAMES)
def test_seeds(name):
    sizes = {"copies": 2, "noise": 0.1} if name == "gridworld" else {"n_states": 60}
    make = getattr(bm.problems, name)
    assert_same(make(**sizes, seed=3), make(**sizes, seed=3))
    assert not np.array_equal(make(**sizes, seed=3).rows.probs, make(**sizes, seed=4).rows.probs)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    make(**sizes)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize(("n", "branching"), [(200, 3), (10, 3), (5, 5), (1, 1), (40, 5)])
def test_garnet_branching(n, branching):
    mdp = bm.problems.garnet(n_states=n, n_actions=3, branching=branching, seed=1)
    assert (mdp.n_states, mdp.n_choices) == (n, 3 * n)
    assert (mdp.rows.sizes == branching).all()
    assert 0.0 <= mdp.reward_range[0] <= mdp.reward_range[1] < 1.0
    if n == 200:  # successors are spread over all states
        assert len(np.unique(mdp.rows.indices)) == 200


def test_gridworld_noise_breaks_bisimilarity():
    quiet = bm.problems.gridworld(3, 2, copies=2, noise=0.0)
    noisy = bm.problems.gridworld(3, 2, copies=2, noise=0.2)
    for mdp, alike in ((quiet, True), (noisy, False)):
        d = bm.solve_metric(mdp, bm.Exact(), match="labels", tol=1e-8).distance
        twins = d[np.arange(5), np.arange(5) + 6]  # the last cell is the goal, where nothing happens any more
        assert (twins <= 1e-8).all() if alike else (twins > 1e-4).all()


def test_gridworld_values():
    """Without slips V* is γ^(steps to the goal − 1), and 0 at the goal."""
    mdp = bm.problems.gridworld(3, 3, copies=2, slip=0.0, gamma=0.5)
    steps = np.array([4, 3, 2, 3, 2, 1, 2, 1, 0] * 2)
    np.testing.assert_allclose(optimal_values(mdp), np.where(steps == 0, 0.0, 0.5 ** (steps - 1)), atol=1e-9)
    assert mdp.state_names[10] == "room 1 row 0 column 1"
    assert mdp.action_labels == ("north", "south", "west", "east")


def test_specs():
    assert_same(from_spec("chain?n_states=40&n_classes=4&seed=2"), bm.problems.chain(40, 4, seed=2))
    assert_same(from_spec("garnet"), bm.problems.garnet())
    assert_same(
        from_spec("staircase?n_states=40&gamma=0.5&advance=alternating"),
        bm.problems.staircase(40, gamma=0.5, advance="alternating"),
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("chian", "unknown problem 'chian'. Did you mean 'chain'?"),
        ("", "unknown problem ''"),
        ("lake", "chain, staircase, detours, garnet, gridworld"),
        ("chain?n_state=3", "has no argument 'n_state'. Did you mean 'n_states'?"),
        ("chain?foo=3", "Known: n_states, n_classes"),
        ("chain?n_states=abc", "n_states must be int; got 'abc'"),
        ("chain?n_states=", "n_states must be int"),
        ("chain?gamma=x", "gamma must be float; got 'x'"),
        ("chain?gamma=1", "gamma must be in [0, 1)"),
        ("chain?n_states", "n_states must be int"),
        ("chain?n_states=30&n_classes=7", "multiple of n_classes; got 30 and 7"),
        ("chain?concentration=0", "concentration must be positive"),
        ("chain?mixing=2", "mixing must be in [0, 1]; got 2"),
        ("chain?seed=-1", "non-negative"),
        ("staircase?advance=never", "'never'"),
        ("detours?n_states=4&n_classes=2", "at least 3 classes"),
        ("garnet?branching=0", "branching"),
        ("garnet?n_states=3&branching=4", "got 3, 2, 4"),
        ("gridworld?copies=0", "at least 1"),
        ("gridworld?noise=1", "noise in [0, 1)"),
    ],
)
def test_bad_specs(spec, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        from_spec(spec)
