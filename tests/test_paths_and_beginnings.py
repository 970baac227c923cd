"""What policy iteration does beside full sweeps: rough ones to begin with, and paths of pairs that lead to one."""

from __future__ import annotations

import numpy as np
import pytest
from engines import DEVICE
from hypothesis import given, settings
from hypothesis import strategies as st
from sweepers import sweeper_for

import bisimetric as bm
from bisimetric.backends.cpu.distances import HostDistances
from bisimetric.metric import acceleration, evaluation

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)
MATCHES = (None, "labels", "hausdorff")


def single_or_few(seed, n, gamma, single=0.8, actions=2, cycles=True):
    """An MDP of which most rows have one successor; without cycles they lead to states of lower numbers."""
    rng = np.random.default_rng(seed)
    P = np.zeros((n, actions, n))
    for s in range(n):
        for a in range(actions):
            k = 1 if rng.random() < single else int(rng.integers(2, 4))
            reach = n if cycles or s == 0 else s
            P[s, a, rng.integers(reach, size=k)] += rng.integers(1, 5, size=k)
            P[s, a] /= P[s, a].sum()
    return bm.MDP.from_arrays(P, rng.integers(0, 4, (n, actions)) / 4.0, gamma=gamma, axes="sas")


def asked(mdp, match):
    return mdp.under(mdp.uniform_policy()) if match is None else mdp


def apart(a, b):
    return float(np.abs(a.distance - b.distance).max())


@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=12)
@given(
    seed=SEEDS,
    gamma=st.sampled_from([0.5, 0.99, 0.9999]),
    single=st.sampled_from([0.5, 0.8, 1.0]),
    transport=st.sampled_from([bm.Exact(), bm.Exact(2.0), bm.Independent(diagonal="zero")]),
    cycles=st.booleans(),
)
def test_paths_change_the_way_and_not_the_answer(match, seed, gamma, single, transport, cycles):
    mdp = single_or_few(seed, 9, gamma, single, 1 if match is None else 2, cycles)
    how = {"match": match, "tol": max(1e-7, 1e-13 / (1.0 - gamma) ** 2), "lump": False}  # above what rounding leaves
    fast = bm.solve_metric(asked(mdp, match), transport, **how)
    assert fast.converged
    slow = bm.solve_metric(asked(mdp, match), transport, **how, accelerate=False, max_sweeps=4000)
    assert apart(fast, slow) <= fast.error + slow.error


@pytest.mark.parametrize("match", [None, "labels"])
@settings(max_examples=12)
@given(seed=SEEDS, gamma=st.sampled_from([0.5, 0.99]), single=st.sampled_from([0.6, 1.0]))
def test_paths_between_two_models(match, seed, gamma, single):
    few = 1 if match is None else 2
    one, other = (asked(single_or_few(seed + k, 8 + k, gamma, single, few), match) for k in range(2))
    fast = bm.compare(one, other, match=match, tol=1e-7)
    slow = bm.compare(one, other, match=match, tol=1e-7, accelerate=False)
    assert fast.converged
    assert apart(fast, slow) <= fast.error + slow.error


@settings(max_examples=25)
@given(seed=SEEDS, single=st.sampled_from([0.5, 0.9, 1.0]), c_T=st.sampled_from([0.3, 0.99, 1.0 - 1e-9]))
def test_following_paths_solves_their_equations(seed, single, c_T):
    """After it, pairs of rows with one successor each satisfy d = c_R |ΔR| + c_T d(next); no other pair has changed."""
    chain = asked(single_or_few(seed, 8, c_T, single, 1), None)
    sweeper = sweeper_for(chain, bm.Exact())
    given_d = np.random.default_rng(seed).random((8, 8))
    given_d = given_d + given_d.T
    np.fill_diagonal(given_d, 0.0)
    d = HostDistances(given_d.copy())
    sweeper.sweep(HostDistances(given_d.copy()))
    sweeper.find_paths()
    sweeper.follow_paths(d)
    rows = sweeper.comparison.rows
    alone, next_of = rows.sizes == 1, rows.indices[rows.indptr[:-1]]
    c_R = sweeper.comparison.c_R
    for s in range(8):
        for t in range(8):
            if s != t and alone[s] and alone[t]:
                there = d.array[next_of[s], next_of[t]]
                wanted = c_R * abs(chain.rewards[s] - chain.rewards[t]) + sweeper.comparison.c_T * there
                assert d.array[s, t] == pytest.approx(wanted, rel=1e-6, abs=1e-12)
            else:
                assert d.array[s, t] == given_d[s, t]


def test_rough_sweeps_begin_where_supports_are_few(monkeypatch):
    """Some sweeps of independent plans come first; the answer is that of plain sweeps."""
    counted = []
    begin = acceleration.CouplingIteration.begin
    monkeypatch.setattr(acceleration.CouplingIteration, "begin", lambda self, d: counted.append(begin(self, d)) or True)
    for branching, moved in ((4, True), (12, False)):
        mdp = bm.problems.garnet(n_states=80, n_actions=2, branching=branching, gamma=0.95, seed=1)
        for match in MATCHES:
            fast = bm.solve_metric(asked(mdp, match), match=match, tol=1e-6)
            slow = bm.solve_metric(asked(mdp, match), match=match, tol=1e-6, accelerate=False)
            assert apart(fast, slow) <= fast.error + slow.error
            assert counted.pop() is moved
    one, other = (bm.problems.garnet(80, 2, 4, gamma=0.95, seed=k) for k in range(2))
    fast = bm.compare(one, other, match="labels", tol=1e-6)
    slow = bm.compare(one, other, match="labels", tol=1e-6, accelerate=False)
    assert counted.pop() is True
    assert apart(fast, slow) <= fast.error + slow.error


def test_there_is_no_beginning_where_nothing_differs(monkeypatch):
    begun = []
    begin = acceleration.CouplingIteration.begin
    monkeypatch.setattr(
        acceleration.CouplingIteration, "begin", lambda self, d: begun.append(begin(self, d)) or begun[-1]
    )
    mdp = bm.problems.garnet(n_states=80, n_actions=2, branching=4, gamma=0.95, seed=1)
    P = mdp.rows.matrix().toarray().reshape(80, 2, 80)
    same = bm.MDP.from_arrays(P, np.full((80, 2), 0.5), gamma=0.95, axes="sas")
    for match in ("labels", "hausdorff"):
        solution = bm.solve_metric(same, match=match, lump=False)
        assert solution.sweeps == 1
        assert solution.distance.max() == 0.0
    assert begun == [False, False]


def test_a_warm_start_has_no_rough_beginning(monkeypatch):
    def refused(self, d):
        raise AssertionError("the start was given")

    mdp = bm.problems.garnet(n_states=80, n_actions=2, branching=4, gamma=0.95, seed=1)
    chain = asked(mdp, None)
    first = bm.solve_metric(chain, tol=1e-2)
    monkeypatch.setattr(acceleration.CouplingIteration, "begin", refused)
    again = bm.solve_metric(chain, tol=1e-6, start=first)
    assert again.converged


MODELS = {
    "garnet": lambda gamma: bm.problems.garnet(n_states=40, branching=4, gamma=gamma, seed=2),
    "gridworld": lambda gamma: bm.problems.gridworld(width=6, height=6, gamma=gamma),
    "first": lambda gamma: bm.problems.chain(n_states=40, n_classes=8, gamma=gamma),
}


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("gamma", [0.9, 0.99])
@pytest.mark.parametrize("model", MODELS)
def test_distances_without_room_for_iterates(model, gamma, match, monkeypatch):
    """Evaluations in place shift all distances at once, never far, and end where plain sweeps do."""
    monkeypatch.setattr(evaluation, "_WINDOWS", ())
    shifts = []
    move = HostDistances.shift
    monkeypatch.setattr(HostDistances, "shift", lambda self, by: (shifts.append(by), move(self, by)))
    mdp = MODELS[model](gamma)
    fast = bm.solve_metric(asked(mdp, match), match=match, tol=1e-6, lump=False)
    slow = bm.solve_metric(asked(mdp, match), match=match, tol=1e-6, lump=False, accelerate=False)
    assert fast.converged
    assert apart(fast, slow) <= fast.error + slow.error
    largest = 1.0 / (1.0 - gamma)  # of rewards in [0, 1]
    assert all(abs(by) <= 2.0 * largest for by in shifts)
    if DEVICE == "cpu" and model == "garnet":
        assert shifts


def test_a_shift_leaves_zeros_and_the_diagonal_alone():
    given_d = np.array([[0.0, 0.5, 0.1], [0.5, 0.0, 0.0], [0.1, 0.0, 0.0]])
    d = HostDistances(given_d.copy())
    d.shift(0.25)
    assert np.array_equal(d.array, np.where(given_d > 0.0, given_d + 0.25, 0.0))
    d.shift(-0.5)
    assert np.array_equal(d.array, np.where(given_d > 0.4, given_d - 0.25, 0.0))
