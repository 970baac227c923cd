"""Aggregation: Algorithm 1 to the letter, k-medoids, partitions, quotient MDPs and lifting back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pseudocode import algorithm_1
from random_models import random_mdp
from sklearn.metrics import normalized_mutual_info_score
from transport_blocks import GROUNDS, ground

import bisimetric as bm
from bisimetric.aggregation import class_shares, membership
from bisimetric.values import best_values


@st.composite
def distances(draw, asymmetric=True):
    """A distance matrix with ties: a metric or not, with a zero diagonal or not, symmetric or not."""
    n = draw(st.integers(1, 14), label="states")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    d = ground(rng, draw(st.sampled_from(GROUNDS), label="ground"), n)
    if draw(st.booleans(), label="diagonal"):
        np.fill_diagonal(d, rng.integers(0, 3, size=n) / 2.0)
    if asymmetric and draw(st.booleans(), label="asymmetric"):
        d = d * rng.integers(1, 3, size=(n, n))
    return d


epsilons = st.sampled_from([0.0, 0.2, 0.5, 1.0, 1.5, 2.0, 9.0])


def pairs_within(d: np.ndarray, part: bm.Partition) -> float:
    """The largest distance of two different states of a class, by brute force."""
    n = range(len(d))
    return max((d[s, t] for s in n for t in n if s != t and part.class_of[s] == part.class_of[t]), default=0.0)


def check_partition(part: bm.Partition, d: np.ndarray) -> None:
    """What holds of every partition."""
    n = len(d)
    assert part.n_states == n
    assert len(part) == part.n_classes == len(part.medoids) == len(set(part.class_of.tolist()))
    firsts = [int(np.flatnonzero(part.class_of == c)[0]) for c in range(part.n_classes)]
    assert firsts == sorted(firsts)  # numbered by first appearance
    assert part.class_of[part.medoids].tolist() == list(range(part.n_classes))
    assert part.sizes.tolist() == [int((part.class_of == c).sum()) for c in range(part.n_classes)]
    medoid = part.medoids[part.class_of]
    radius = max((d[s, medoid[s]] for s in range(n) if s != medoid[s]), default=0.0)
    assert part.radius == radius
    assert part.diameter == pairs_within(d, part)
    with pytest.raises(ValueError, match="read-only"):
        part.class_of[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        part.medoids[0] = 0


@settings(max_examples=400)
@given(distances(), epsilons)
def test_radius_rule_is_algorithm_1(d, eps):
    before = d.copy()
    part = bm.EpsilonCover(eps)(d)
    wanted = algorithm_1(d, eps)
    assert np.array_equal(d, before)
    classes = {frozenset(members): members[0] for members in wanted}
    found = {frozenset(np.flatnonzero(part.class_of == c).tolist()): int(part.medoids[c]) for c in range(len(part))}
    assert found == classes
    if np.array_equal(d, d.T):
        check_partition(part, d)
        assert part.radius <= eps


@settings(max_examples=400)
@given(distances(asymmetric=False), epsilons)
def test_diameter_rule_keeps_all_pairs_within_twice_eps(d, eps):
    part = bm.EpsilonCover(eps, rule="diameter")(d)
    check_partition(part, d)
    assert pairs_within(d, part) <= 2.0 * eps


def test_radius_rule_can_exceed_twice_eps_without_a_triangle_inequality():
    d = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 9.0], [1.0, 9.0, 0.0]])
    assert bm.EpsilonCover(1.0)(d).diameter == 9.0
    part = bm.EpsilonCover(1.0, rule="diameter")(d)
    assert (part.class_of.tolist(), part.diameter) == ([0, 0, 1], 1.0)


def test_ties_go_to_the_smallest_index():
    d = np.abs(np.arange(4.0)[:, None] - np.arange(4.0)[None, :])
    part = bm.EpsilonCover(1.0)(d)  # states 1 and 2 have three neighbours each
    assert part.medoids.tolist() == [1, 3]
    assert part.class_of.tolist() == [0, 0, 0, 1]


@settings(max_examples=60)
@given(distances(asymmetric=False), st.integers(0, 3), st.data())
def test_k_medoids(d, seed, data):
    k = data.draw(st.integers(1, len(d)), label="k")
    part = bm.KMedoids(k, seed=seed)(d)
    check_partition(part, d)
    assert part.n_classes == k
    again = bm.KMedoids(k, seed=seed)(d.copy())
    assert part == again
    assert np.array_equal(part.medoids, again.medoids)
    ground_distance = d.copy()
    np.fill_diagonal(ground_distance, 0.0)
    loss = ground_distance[np.arange(len(d)), part.medoids[part.class_of]].sum()
    random = np.random.default_rng(seed).choice(len(d), k, replace=False)  # where it began
    assert loss <= ground_distance[:, random].min(axis=1).sum() + 1e-9
    assert loss <= ground_distance[:, part.medoids].min(axis=1).sum() + 1e-9  # each state is with its nearest


def test_k_medoids_limits_and_quality():
    rng = np.random.default_rng(0)
    x = rng.permutation(np.concatenate([rng.normal(c, 0.1, size=(10, 2)) for c in (0.0, 5.0, 10.0)]))
    d = np.linalg.norm(x[:, None] - x[None, :], axis=2)
    truth = np.round(x[:, 0] / 5.0)
    assert bm.KMedoids(3)(d).purity(truth) == 1.0
    assert bm.KMedoids(30)(d).class_of.tolist() == list(range(30))
    assert bm.KMedoids(30)(d).radius == 0.0
    one = bm.KMedoids(1)(d)
    assert one.n_classes == 1
    assert one.medoids[0] == np.argmin(d.sum(axis=0))


def test_labels_are_canonical():
    part = bm.Partition.from_classes(["b", "b", "a", "c", "a"])
    assert part.class_of.tolist() == [0, 0, 1, 2, 1]
    assert part.medoids.tolist() == [0, 2, 3]
    assert part == bm.Partition.from_classes([7, 7, -1, 0, -1], medoids=[4])
    assert part != bm.Partition.from_classes([0, 1, 1, 2, 1])
    assert bm.Partition.from_classes([7, 7, -1, 0, -1], medoids=[4]).medoids.tolist() == [0, 4, 3]


@settings(max_examples=150)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=25), st.integers(0, 2**32 - 1))
def test_purity_and_nmi(labels, seed):
    truth = np.random.default_rng(seed).integers(0, 4, size=len(labels))
    part = bm.Partition.from_classes(labels)
    assert part.nmi(truth) == pytest.approx(normalized_mutual_info_score(truth, labels), abs=1e-12)
    wanted = sum(np.bincount(truth[part.class_of == c]).max() for c in range(len(part))) / len(labels)
    assert part.purity(truth) == pytest.approx(wanted, abs=1e-15)
    assert part.nmi(part.class_of) == pytest.approx(1.0, abs=1e-12)
    assert part.purity(part.class_of) == 1.0


def test_lift_membership_and_shares():
    part = bm.Partition.from_classes([0, 1, 0, 2])
    assert part.lift([1.0, 2.0, 3.0]).tolist() == [1.0, 2.0, 1.0, 3.0]
    table = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(part.lift(table), table[[0, 1, 0, 2]])
    assert np.array_equal(membership(part).toarray(), np.eye(3)[part.class_of])
    assert np.allclose(class_shares(part, [1.0, 5.0, 3.0, 2.0]), [0.25, 1.0, 0.75, 1.0], atol=1e-15)
    for bad in (np.ones(4), np.ones((2, 2)), 1.0):
        with pytest.raises(ValueError, match="one entry per class"):
            part.lift(bad)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 3))
def test_quotient_is_the_weighted_average(seed, n, n_actions):
    rng = np.random.default_rng(seed)
    P, R = rng.dirichlet(np.ones(n), size=(n, n_actions)), rng.normal(size=(n, n_actions))
    mdp = bm.MDP.from_arrays(P, R, 0.9, axes="sas")
    part = bm.Partition.from_classes(rng.integers(0, 3, size=n))
    for weights in (None, rng.random(n) + 0.01):
        small = bm.quotient(mdp, part, weights)
        xi = np.ones(n) if weights is None else weights
        Phi = np.eye(len(part))[part.class_of]  # [S, K]
        share = xi[:, None] * Phi / (xi @ Phi)  # [S, K], columns sum to 1
        wanted_P = np.einsum("sk,sat,tl->kal", share, P, Phi)
        wanted_R = np.einsum("sk,sa->ka", share, R)
        found_P = small.rows.matrix().toarray().reshape(wanted_P.shape)
        assert np.allclose(found_P, wanted_P, atol=1e-13)
        assert np.allclose(small.rewards.reshape(wanted_R.shape), wanted_R, atol=1e-13)
        assert np.allclose(found_P.sum(axis=2), 1.0, atol=1e-12)
        assert small.action_labels == mdp.action_labels


def test_true_classes_give_the_reduced_mdp():
    mdp = bm.problems.chain(n_states=24, n_classes=6, seed=3)
    part = bm.Partition.from_classes(mdp.classes)
    small = bm.quotient(mdp, part, np.random.default_rng(0).random(24) + 0.1)  # ξ does not matter here
    wanted = np.zeros((6, 2, 6))
    wanted[np.arange(6), 0, np.minimum(np.arange(6) + 1, 5)] = 1.0
    wanted[:, 1, 0] = 1.0
    assert np.allclose(small.rows.matrix().toarray().reshape(6, 2, 6), wanted, atol=1e-14)
    lifted = part.lift(best_values(small)[0])
    assert np.abs(lifted - best_values(mdp)[0]).max() < 1e-11
    greedy = np.tile([1.0, 0.0], 6)
    values = best_values(mdp)[0]
    chain = mdp.under(bm.lift_policy(mdp, small, part, greedy))
    assert np.abs(chain.rewards + mdp.gamma * (chain.rows.matrix() @ values) - values).max() < 1e-11


def test_ragged_quotient_and_lifted_policy():
    P = np.zeros((7, 4))
    P[np.arange(7), [1, 2, 3, 2, 0, 0, 3]] = 1.0
    mdp = bm.MDP.from_choices(P, np.arange(7.0), [0, 2, 4, 6, 7], 0.5, list("abbaabc"), state_names=list("wxyz"))
    part = bm.Partition.from_classes([0, 0, 1, 2])
    small = bm.quotient(mdp, part)
    assert small.choice_ptr.tolist() == [0, 2, 4, 5]
    assert [small.action_labels[k] for k in small.action_of_choice] == list("ababc")
    assert small.rewards.tolist() == [1.5, 1.5, 4.0, 5.0, 6.0]  # a: (0 + 3)/2, b: (1 + 2)/2
    assert small.rows.matrix().toarray().tolist() == [[0.5, 0.5, 0], [0, 0.5, 0.5], [1, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert small.state_names == ("w", "y", "z")
    lifted = bm.lift_policy(mdp, small, part, [0.2, 0.8, 0.6, 0.4, 1.0])
    assert lifted.tolist() == [0.2, 0.8, 0.8, 0.2, 0.6, 0.4, 1.0]
    with pytest.raises(bm.ModelError, match=r"same actions; states z and y differ"):
        bm.quotient(mdp, bm.Partition.from_classes([0, 0, 1, 1]))


def test_quotient_refuses_two_choices_of_one_label():
    mdp = bm.MDP.from_choices(np.ones((2, 1)), [0.0, 1.0], [0, 2], 0.5, ["a", "a"])
    with pytest.raises(bm.ModelError, match="two choices of the same label"):
        bm.quotient(mdp, bm.Partition.from_classes([0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bm.EpsilonCover(-0.1), "eps must be finite and not negative; got -0.1"),
        (lambda: bm.EpsilonCover(np.nan), "eps must be"),
        (lambda: bm.EpsilonCover(np.inf), "eps must be"),
        (lambda: bm.EpsilonCover(0.1, rule="ball"), 'rule must be "radius" or "diameter"; got \'ball\''),
        (lambda: bm.KMedoids(0), "k must be at least 1; got 0"),
        (lambda: bm.KMedoids(4)(np.zeros((3, 3))), "k = 4 classes cannot be made of 3 states"),
        (lambda: bm.EpsilonCover(0.1)(np.zeros((2, 3))), r"square matrix; got shape \(2, 3\)"),
        (lambda: bm.EpsilonCover(0.1)(np.zeros((0, 0))), "square matrix"),
        (lambda: bm.EpsilonCover(0.1)(np.full((2, 2), np.nan)), "finite"),
        (lambda: bm.KMedoids(1)(np.full((2, 2), np.inf)), "finite"),
        (lambda: bm.Partition.from_classes([]), "classes must be a vector"),
        (lambda: bm.Partition.from_classes(np.zeros((2, 2))), "classes must be a vector"),
        (lambda: bm.Partition.from_classes([0, 1]).nmi([0]), "one entry per state"),
        (lambda: class_shares(bm.Partition.from_classes([0, 1]), [1.0, 0.0]), r"positive and finite; state 1 has 0\.0"),
        (lambda: class_shares(bm.Partition.from_classes([0, 1]), [1.0, np.inf]), "positive and finite"),
        (lambda: class_shares(bm.Partition.from_classes([0, 1]), [1.0]), "weights need one entry per state"),
        (lambda: bm.quotient(random_mdp(0, 3), bm.Partition.from_classes([0, 1])), "partition is of 2 states"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
