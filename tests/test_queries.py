"""Local queries: every bracket holds the full solver's answer, whatever the model, the matching and the budget."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_chain, random_mdp
from scipy.sparse import csr_array

import bisimetric as bm
from bisimetric.backends.cpu.local_pairs import PairTable
from bisimetric.queries import landmarks
from bisimetric.queries.landmarks import Landmark, distances_from
from bisimetric.queries.search import Search

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)
MATCHES = (None, "labels", "hausdorff")
GAMMAS = (0.5, 0.9, 0.97)


def model_for(match, seed, labelled=False):
    """A small model of a seed: chains, MDPs with equal or ragged actions, with or without a label of states."""
    rng = np.random.default_rng(seed)
    n, gamma = int(rng.integers(2, 9)), float(rng.choice(GAMMAS))
    if match is None:
        chain = random_chain(seed, n, gamma)
        if not labelled:
            return chain
        holds = {"x": rng.random(n) < 0.5}
        return bm.Chain.from_arrays(chain.rows.matrix(), chain.rewards, gamma, state_labels=holds)
    mdp = random_mdp(seed, n, gamma, ragged=bool(rng.integers(2)))
    return mdp.with_labels({"x": rng.random(n) < 0.5}) if labelled else mdp


def walk(n, gamma=0.9):
    """A lazy walk on a line with a smooth reward."""
    i = np.arange(n)
    P = np.zeros((n, n))
    np.add.at(P, (i, np.minimum(i + 1, n - 1)), 0.3)
    np.add.at(P, (i, np.maximum(i - 1, 0)), 0.3)
    np.add.at(P, (i, i), 0.4)
    return bm.Chain.from_arrays(P, 0.5 + 0.5 * np.sin(6.0 * i / n), gamma)


@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, labelled=st.booleans(), lump=st.sampled_from([None, False]))
def test_brackets_hold_the_answer_at_any_budget(match, seed, labelled, lump):
    model = model_for(match, seed, labelled)
    truth = bm.solve_metric(model, match=match, tol=1e-9)
    query = bm.Query(model, match=match, lump=lump)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        s, t = map(int, rng.integers(0, model.n_states, 2))
        before = (0.0, np.inf)
        for pairs in (1, int(rng.integers(1, 10)), None):
            answer = query.distance(s, t, tol=1e-6, budget=bm.Budget(pairs=pairs))
            assert answer.lower - truth.error <= truth.distance[s, t] <= answer.upper + truth.error
            assert before[0] <= answer.lower <= answer.upper <= before[1]  # what is known is never lost
            assert pairs is None or answer.opened <= pairs
            before = (answer.lower, answer.upper)
        assert answer.converged
        assert answer.gap <= 1e-6


@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_two_models(match, seed):
    gamma = 0.9
    make = random_chain if match is None else random_mdp
    model, other = make(seed, 4, gamma), make(seed + 1, 5, gamma)
    truth = bm.compare(model, other, match=match, tol=1e-9)
    query = bm.Query(model, other, match=match)
    for s in range(4):
        for t in range(5):
            answer = query.distance(s, t, tol=1e-6)
            assert answer.lower - truth.error <= truth.distance[s, t] <= answer.upper + truth.error
            assert answer.converged


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, match=st.sampled_from(MATCHES))
def test_landmarks_are_distances_from_states_that_nobody_has(seed, match):
    """Put the fictitious state into the model, and let the full solver measure it."""
    mdp = random_mdp(seed, 4, 0.8, ragged=False)
    model = mdp.under(mdp.uniform_policy()) if match is None else mdp
    query = bm.Query(model, match=match, lump=False)
    table = query._table
    low, high = model.reward_range
    for r in (low, high):
        P = np.zeros((4 + 1, 5)) if match is None else np.zeros((5, 2, 5))
        R = np.full(P.shape[:-1], r)
        if match is None:
            P[:4, :4], R[:4] = model.rows.matrix().toarray(), model.rewards
            P[4, 4] = 1.0
            both = bm.Chain.from_arrays(P, R, 0.8)
        else:
            P[:4, :, :4], R[:4] = model.rows.matrix().toarray().reshape(4, 2, 4), model.rewards.reshape(4, 2)
            P[4, :, 4] = 1.0
            both = bm.MDP.from_arrays(P, R, 0.8, axes="sas")
        truth = bm.solve_metric(both, match=match, tol=1e-9)
        values, error = distances_from(table, Landmark(r, 0), 1e-9, np.zeros(1, np.uint8))
        assert np.abs(values - truth.distance[:4, 4]).max() <= error + 2e-9


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, match=st.sampled_from(MATCHES), k=st.integers(1, 3))
def test_nearest_states_are_near(seed, match, k):
    model = model_for(match, seed)
    k = min(k, model.n_states - 1)
    truth = bm.solve_metric(model, match=match, tol=1e-9)
    found = bm.Query(model, match=match).nearest(0, k, tol=1e-4)
    others = np.delete(truth.distance[0], 0)
    kth = np.sort(others)[k - 1]
    assert found.converged
    assert len(set(found.states.tolist())) == k
    assert 0 not in found.states
    d = truth.distance[0, found.states]
    assert (d <= kth + found.eta + 2e-9).all()
    assert found.eta <= 1e-4
    assert (found.lower - 1e-9 <= d).all()
    assert (d <= found.upper + 1e-9).all()


def test_thresholds_are_decided_or_left_open():
    chain = walk(60)
    d = float(bm.solve_metric(chain, tol=1e-9).distance[10, 40])
    query = bm.Query(chain)
    assert query.at_most(10, 40, d + 0.01) is True
    assert query.at_most(10, 40, d - 0.01) is False
    fresh = bm.Query(chain)
    assert fresh.at_most(10, 12, 0.1, budget=bm.Budget(pairs=1)) in (True, False, None)


def test_few_pairs_are_opened_where_models_are_local():
    """Counters, not seconds: what a pair of a walk opens does not grow with the walk."""
    opened = [bm.Query(walk(n), lump=False).distance(20, 26, tol=1e-3).opened for n in (300, 900)]
    assert max(opened) < 1000
    assert opened[1] < 0.01 * 900**2


def test_random_graphs_are_for_the_full_solver_and_the_answer_says_so():
    mdp = bm.problems.garnet(n_states=80, n_actions=2, branching=4, gamma=0.95, seed=0)
    answer = bm.Query(mdp, match="labels").distance(0, 1, tol=1e-4)
    assert answer.converged
    assert any("solve_metric" in note for note in answer.notes)


def test_later_questions_use_what_is_known():
    query = bm.Query(walk(200))
    first, again = query.distance(50, 58), query.distance(50, 58)
    assert first.opened > 0
    assert again.opened == 0
    assert (again.lower, again.upper) == (first.lower, first.upper)
    assert query.distance(51, 58).opened < bm.Query(walk(200)).distance(51, 58).opened
    assert query.distance(7, 7).upper == 0.0


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scales(scale):
    chain = walk(40)
    big = bm.Chain.from_arrays(chain.rows.matrix(), chain.rewards * scale, chain.gamma)
    truth = bm.solve_metric(big, tol=1e-9 * scale)
    answer = bm.Query(big).distance(3, 30, tol=1e-6 * scale)
    assert answer.lower <= truth.distance[3, 30] + truth.error
    assert truth.distance[3, 30] - truth.error <= answer.upper


def test_long_horizons_and_tiny_masses():
    P = np.array([[1.0 - 1e-17, 1e-17, 0.0], [0.5, 0.25, 0.25], [0.0, 1e-9, 1.0 - 1e-9]])
    chain = bm.Chain.from_arrays(P, [0.0, 1.0, 0.5], 0.9999)
    truth = bm.solve_metric(chain, tol=1e-6)
    answer = bm.Query(chain).distance(0, 2, tol=1e-2, budget=bm.Budget(seconds=1.0))  # slow so near to 1, but true
    assert answer.lower - truth.error <= truth.distance[0, 2] <= answer.upper + truth.error


def test_a_tolerance_below_rounding_ends():
    answer = bm.Query(walk(30)).distance(2, 20, tol=1e-18)
    assert answer.status is bm.Status.ROUNDING
    assert answer.gap < 1e-9


def test_ctrl_c_leaves_a_valid_bracket_and_a_table_that_goes_on(monkeypatch):
    chain = walk(300, 0.97)
    truth = bm.solve_metric(chain, tol=1e-8)
    query = bm.Query(chain, lump=False)
    rounds = Search._round

    def interrupted(self, least):
        if self.table.opened > 30:
            signal.raise_signal(signal.SIGINT)
        return rounds(self, least)

    assert threading.current_thread() is threading.main_thread()
    with monkeypatch.context() as patch:
        patch.setattr(Search, "_round", interrupted)
        answer = query.distance(100, 120, tol=1e-6)
    assert answer.status is bm.Status.INTERRUPTED
    assert answer.lower - truth.error <= truth.distance[100, 120] <= answer.upper + truth.error
    assert query.distance(100, 120, tol=1e-4).converged


def test_a_budget_of_memory_is_kept():
    mdp = bm.problems.garnet(n_states=300, n_actions=2, branching=4, gamma=0.95, seed=0)
    answer = bm.Query(mdp, match="labels").distance(0, 1, tol=1e-6, budget=bm.Budget(memory=3_000_000))
    assert answer.status is bm.Status.BUDGET
    assert answer.lower < answer.upper


def test_initial_states_and_names():
    mdp = bm.problems.garnet(n_states=6, n_actions=2, branching=2, seed=0)
    with pytest.raises(ValueError, match="no state labelled"):
        bm.Query(mdp, match="labels").distance()
    labelled = mdp.with_labels({"init": np.arange(6) == 2})
    assert bm.Query(labelled, labelled, match="labels").distance().upper < 1e-9
    assert bm.Query(labelled, match="labels").distance(None, 2).upper == 0.0


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda q: q.distance(0, 99), "t: there is no state 99; states are numbered 0 to 29"),
        (lambda q: q.distance(-1, 0), "s: there is no state -1"),
        (lambda q: q.distance("nobody", 0), "s: there is no state 'nobody'"),
        (lambda q: q.distance(0, 1, tol=0.0), "tol must be positive"),
        (lambda q: q.at_most(0, 1, -1.0), "threshold must be finite"),
        (lambda q: q.nearest(0, 30), "k must be between 1 and"),
        (lambda q: bm.Budget(pairs=0), "pairs must be at least 1"),
        (lambda q: bm.Budget(seconds=0.0), "seconds must be positive"),
        (lambda q: bm.Query(q.model, match="labels"), "match is for an MDP"),
        (lambda q: bm.Query(q.model, walk(5, 0.5)), "different discounts"),
        (lambda q: bm.Query(bm.problems.garnet(n_states=5, branching=2)), "match must be"),
        (lambda q: bm.Query(q.model, transition_weight=1.0), "transition_weight"),
    ],
)
def test_bad_input_is_named(ask, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ask(bm.Query(walk(30)))


def test_landmarks_of_models_with_many_kinds_of_states_are_few():
    mdp = random_mdp(3, 12, 0.9)
    query = bm.Query(mdp, match="labels", lump=False)
    assert query.coordinates.shape[1] <= 8


@pytest.mark.parametrize("gamma", [0.95, 0.99])
def test_landmarks_are_extrapolated(gamma, monkeypatch):
    """In fewer sweeps than without, to distances that are as right; threads change nothing."""
    i = np.arange(400)
    P = np.zeros((400, 400))
    P[i, np.minimum(i + 1, 399)], P[i, np.maximum(i - 1, 0)] = 0.3, 0.3
    P[i, i] += 0.4
    chain = bm.Chain.from_arrays(P, 0.5 + 0.5 * np.sin(i / 40.0), gamma)
    sweep, counted = PairTable.landmark_sweep, []
    monkeypatch.setattr(PairTable, "landmark_sweep", lambda *given: (counted.append(1), sweep(*given))[1])
    found, sweeps = [], []
    for cycle, threads in ((5, 1), (5, 3), (10**6, 1)):
        monkeypatch.setattr(landmarks, "_CYCLE", cycle)
        bm.set_threads(threads)
        counted.clear()
        found.append(bm.Query(chain, lump=False)._table.model)
        sweeps.append(len(counted))
    assert found[0].landmarks.tobytes() == found[1].landmarks.tobytes()
    assert sweeps[0] == sweeps[1] < 0.6 * sweeps[2]
    for one in (found[0], found[2]):
        assert one.errors.max() <= 2e-9 * one.largest
    assert (np.abs(found[0].landmarks - found[2].landmarks) <= found[0].errors + found[2].errors).all()


def test_an_extrapolation_that_does_harm_is_undone(monkeypatch):
    """Iterates that are combined badly cost sweeps, and nothing else."""

    def astray(iterates, out):
        out[:] = 50.0 * iterates[-1] - 3.0

    chain = random_chain(3, 12, gamma=0.9)
    right = bm.Query(chain, lump=False)._table.model
    monkeypatch.setattr(landmarks, "_combine", astray)
    found = bm.Query(chain, lump=False)._table.model
    assert found.errors.max() <= 2e-9 * found.largest
    assert (np.abs(found.landmarks - right.landmarks) <= found.errors + right.errors).all()


def test_near_states_of_a_walk_open_few_pairs():
    """Many plans cost the same on a line; those that do not cross keep to one diagonal of the table of pairs."""
    n = 20_000
    i = np.arange(n)
    up = 0.3 + 0.2 * np.sin(6.0 * np.pi * i / n)
    columns = np.concatenate([np.minimum(i + 1, n - 1), np.maximum(i - 1, 0), i])
    P = csr_array((np.concatenate([up, 0.6 - up, np.full(n, 0.4)]), (np.tile(i, 3), columns)), shape=(n, n))
    query = bm.Query(bm.Chain.from_arrays(P, 0.5 + 0.5 * np.sin(10.0 * np.pi * i / n), 0.95), lump=False)
    opened = [query.distance(s, s + 30, tol=1e-3).opened for s in range(100, n - 100, n // 8)]
    assert np.median(opened) < 700  # some 420; 1040 where plans cross
