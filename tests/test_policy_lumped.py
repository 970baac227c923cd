"""Merging bisimilar states before policy iteration is a matter of speed: it must not change the answer."""

from __future__ import annotations

import numpy as np
import pytest
from random_models import random_mdp

import bisimetric as bm


def with_copies(seed: int, copies: list[int]) -> bm.MDP:
    """A random MDP whose state s comes in copies[s] copies, entered by odds of their own; copies are bisimilar."""
    rng = np.random.default_rng(seed)
    n = len(copies)
    P, R = rng.dirichlet(np.full(n, 0.5), size=(n, 2)), rng.random((n, 2))
    owner = np.repeat(np.arange(n), copies)
    odds = [[np.concatenate([rng.dirichlet(np.ones(k)) for k in copies]) for _ in range(2)] for _ in owner]
    full = np.array([[P[s, a][owner] * odds[i][a] for a in range(2)] for i, s in enumerate(owner)])
    return bm.MDP.from_arrays(full / full.sum(axis=2, keepdims=True), R[owner], 0.8, axes="sas", classes=owner)


@pytest.mark.parametrize("copies", [[3, 3, 3, 3], [6, 1, 1, 4]])
@pytest.mark.parametrize("eps", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_lumping_does_not_change_the_answer(copies, eps, seed):
    mdp = with_copies(seed, copies)
    setting = {"aggregation": bm.EpsilonCover(eps + 1e-9), "steps": 4, "step_size": bm.Constant(0.5)}
    plain, lumped = (bm.solve_policy(mdp, lump=lump, **setting) for lump in (False, None))
    assert lumped.partition == plain.partition
    assert np.abs(lumped.distance - plain.distance).max() < 1e-9
    assert np.abs(lumped.abstract_value - plain.abstract_value).max() < 1e-9
    assert np.abs(lumped.policy - plain.policy).max() < 1e-9
    assert lumped.error == pytest.approx(plain.error, abs=1e-9)
    for one, two in zip(plain.history, lumped.history, strict=True):
        assert (one.n_classes, one.nmi) == (two.n_classes, pytest.approx(two.nmi))


def test_ties_are_not_decided_by_rounding():
    """Q of two actions is equal where both lead into one class; the sums differ in the last bit, by state."""
    mdp = bm.problems.chain(n_states=20, n_classes=5)
    plain, lumped = (bm.solve_policy(mdp, sweeps=1, restart_metric=True, steps=5, lump=lump) for lump in (False, None))
    assert np.abs(lumped.abstract_value - plain.abstract_value).max() < 1e-9
    assert np.array_equal(lumped.policy, plain.policy)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_recorded_is_about_all_states(seed):
    """Purity and NMI of the last step are those of the partition that is returned."""
    mdp = with_copies(seed, [6, 1, 1, 4])
    run = bm.solve_policy(mdp, aggregation=bm.EpsilonCover(0.6), steps=3)
    assert run.partition.n_states == mdp.n_states
    assert run.history[-1].purity == pytest.approx(run.partition.purity(mdp.classes))
    assert run.history[-1].nmi == pytest.approx(run.partition.nmi(mdp.classes))


def test_more_medoids_than_bisimulation_classes():
    """The paper asks for 30 medoids where there are 20 classes."""
    mdp = bm.problems.chain(n_states=20, n_classes=5)
    run = bm.solve_policy(mdp, aggregation=bm.KMedoids(6), steps=5)
    assert run.partition.n_states == 20
    assert run.error < 1e-9
    with pytest.raises(ValueError, match="k = 21 classes cannot be made of 20 states"):
        bm.solve_policy(mdp, aggregation=bm.KMedoids(21), steps=5)


def test_results_are_about_all_states():
    mdp = with_copies(0, [2, 3, 1, 2])
    run = bm.solve_policy(mdp, aggregation=bm.EpsilonCover(1e-6), steps=40)
    assert (len(run.policy), run.value.shape, run.distance.shape) == (16, (8,), (8, 8))
    assert run.error < 1e-9
    assert np.array_equal(run.partition.class_of, mdp.classes)
    chain = mdp.under(run.policy)
    assert np.abs(chain.rewards + 0.8 * (chain.rows.matrix() @ run.value) - run.value).max() < 1e-12


def test_lumping_is_refused_where_it_would_change_the_metric():
    mdp = bm.problems.chain(n_states=8, n_classes=4)
    with pytest.raises(ValueError, match="exact for Exact"):
        bm.solve_policy(mdp, transport=bm.Sinkhorn(1.0), lump=True, steps=1)
    policy = np.random.default_rng(0).dirichlet([1.0, 1.0], size=8)
    with pytest.raises(ValueError, match="first policy tells bisimilar states apart"):
        bm.solve_policy(mdp, policy=policy, lump=True, steps=1)
    plain, default = (bm.solve_policy(mdp, policy=policy, lump=lump, steps=2) for lump in (False, None))
    assert np.array_equal(plain.distance, default.distance)


def test_a_model_without_bisimilar_states_is_left_alone():
    mdp = random_mdp(2, 8)
    one, two = (bm.solve_policy(mdp, lump=lump, steps=3) for lump in (False, None))
    assert one.policy.tobytes() == two.policy.tobytes()
    assert one.distance.tobytes() == two.distance.tobytes()
