"""Questions at the edges: supports that fill a table at once, rounding, budgets and Ctrl-C between questions."""

from __future__ import annotations

import signal
from fractions import Fraction
from itertools import count, pairwise

import numpy as np
import pytest
from scipy.optimize import linprog

import bisimetric as bm
from bisimetric.backends.cpu import local_pairs
from bisimetric.backends.cpu.kernels import local_pairs as kernels
from bisimetric.backends.cpu.kernels import spanning_tree
from bisimetric.backends.cpu.local_pairs import PairTable
from bisimetric.cli import run
from bisimetric.queries import nearest
from bisimetric.queries.search import Search

pytestmark = pytest.mark.usefixtures("one_thread")


def dense_chain(n, seed=5):
    rng = np.random.default_rng(seed)
    return bm.Chain.from_arrays(rng.dirichlet(np.ones(n), size=n), rng.random(n), 0.9)


def dense_mdp(n, seed=5):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(n), size=(n, 3))
    return bm.MDP.from_arrays(P, rng.random((n, 3)), 0.9, axes="sas")


@pytest.fixture
def few_growths(monkeypatch):
    """A table that grows more often than it must is a failure, and no end of memory."""
    grow, left = PairTable.make_room, [12]

    def counted(self, *arguments):
        left[0] -= 1
        assert left[0] >= 0, "the table grows for ever"
        return grow(self, *arguments)

    monkeypatch.setattr(PairTable, "make_room", counted)


@pytest.mark.parametrize(
    ("model", "match"), [(dense_chain(91), None), (dense_mdp(40), "labels"), (dense_mdp(40), "hausdorff")]
)
@pytest.mark.usefixtures("few_growths")
def test_one_pair_may_have_more_successors_than_the_table_has_room_for(model, match):
    query = bm.Query(model, match=match, lump=False)
    answer = query.distance(0, 1, tol=1e-3, budget=bm.Budget(pairs=3))
    truth = bm.solve_metric(model, match=match, tol=1e-6)
    assert answer.status is bm.Status.BUDGET
    assert answer.opened == 3
    assert answer.lower <= truth.distance[0, 1] + truth.error
    assert truth.distance[0, 1] - truth.error <= answer.upper
    states = model.n_states
    assert query.known <= states * (states - 1) // 2
    assert query.nbytes < 20_000_000


def test_a_table_larger_than_the_budget_of_memory_is_not_made():
    query = bm.Query(dense_chain(91), lump=False)
    allowed = query.nbytes + 1000
    answer = query.distance(0, 1, budget=bm.Budget(memory=allowed))
    assert answer.status is bm.Status.BUDGET
    assert answer.opened == 0
    assert query.nbytes <= allowed


def test_what_no_table_can_hold_is_refused(monkeypatch):
    query = bm.Query(dense_chain(20), lump=False)
    monkeypatch.setattr(local_pairs, "_MOST_PAIRS", 150)
    with pytest.raises(MemoryError, match="at most"):
        query.distance(0, 1, tol=1e-6)


def test_a_transport_whose_pivots_gave_out_is_still_bounded_from_below(monkeypatch):
    """Any feasible tree in place of the best one: what its potentials violate is counted."""
    for name in ("_tree_value", "_violation", "_kid_of_arc"):
        monkeypatch.setattr(kernels, name, getattr(kernels, name).py_func)
    monkeypatch.setattr(kernels, "solve", unfinished)
    worse = 0
    for seed in range(20):
        table = bm.Query(dense_chain(6, seed), lump=False)._table
        rng = np.random.default_rng(seed)
        assert table.open(0, 1, np.full((3, table.room), table.enter(0, 1), np.int32)) == 1
        table.table.lower[2:] = rng.random(len(table.table.lower) - 2)
        table.table.upper[2:] = table.table.lower[2:] + rng.random(len(table.table.lower) - 2)
        low, high = kernels._transport.py_func(0, 1, 0, 0, table.model, table.table, table.work, False)
        a, b = (table.model.probs[slice(*table.model.indptr[k : k + 2])] for k in (0, 1))
        kids = table.table.kids[: len(a) * len(b)].reshape(len(a), len(b))
        least, least_upper = (linear_program(a, b, bounds[kids]) for bounds in (table.table.lower, table.table.upper))
        assert low <= least + 1e-12
        assert least_upper - 1e-12 <= high
        worse += low < least - 1e-9
    assert worse  # some trees were not the best


def unfinished(n, m, cost, real, link, kept, start, tol):
    """What `simplex.solve` leaves where it gives up at once."""
    del kept, start, tol
    spanning_tree.cold_tree.py_func(n, m, cost, real, link)
    spanning_tree.set_potentials.py_func(n, m, cost, real, link)
    spanning_tree.set_flows.py_func(n, m, real, link)
    parents = link[spanning_tree.PARENT]
    arcs = [(v, parents[v] - n) if v < n else (parents[v], v - n) for v in range(1, n + m)]
    flows = real[spanning_tree.FLOW]
    return sum(max(flows[v], 0.0) * cost[i * m + j] for v, (i, j) in enumerate(arcs, 1)), 0


def linear_program(a, b, cost):
    n, m = cost.shape
    rows = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    return linprog(cost.ravel(), A_eq=rows, b_eq=np.concatenate([a, b])).fun


@pytest.mark.parametrize("gamma", [0.7, 0.9, 0.95, 0.99, 0.999])
def test_a_distance_that_is_the_largest_one_is_within_the_bounds(gamma):
    """In rational arithmetic, by rewards and by definition: numbers can be a unit below 1/(1 − γ)."""
    truth = 1 / (1 - Fraction(gamma))
    for labels in ({}, {"x": np.array([True, False])}):
        query = bm.Query(bm.Chain.from_arrays(np.eye(2), [0.0, 1.0], gamma, state_labels=labels))
        answer, near = query.distance(0, 1, budget=bm.Budget(pairs=3)), query.nearest(0)
        for lower, upper in ((answer.lower, answer.upper), (near.lower[0], near.upper[0])):
            assert Fraction(float(lower)) <= truth <= Fraction(float(upper))
        assert query.distance(1, 1).upper == 0.0
        assert query.at_most(0, 1, 1.001 * float(truth)) is True
        assert query.at_most(0, 1, 0.999 * float(truth)) is False


def test_a_search_for_the_nearest_says_that_memory_ended_it():
    chain = dense_chain(12)
    near = bm.Query(chain, lump=False).nearest(0, 2, tol=1e-9, budget=bm.Budget(memory=1))
    assert near.status is bm.Status.BUDGET
    assert bm.Query(chain, lump=False).nearest(0, 2, tol=1e-25).status is bm.Status.ROUNDING


@pytest.mark.parametrize("after", [1, 2, 3])
def test_ctrl_c_between_two_questions_ends_a_search_with_true_bounds(monkeypatch, after):
    chain = dense_chain(12)
    truth, count = bm.solve_metric(chain, tol=1e-9).distance[0], [0]
    left = nearest._left

    def interrupted(*arguments):
        count[0] += 1
        if count[0] == after:
            raise KeyboardInterrupt
        return left(*arguments)

    monkeypatch.setattr(nearest, "_left", interrupted)
    near = bm.Query(chain, lump=False).nearest(0, 3, tol=1e-6)
    assert near.status is bm.Status.INTERRUPTED
    assert len(near) == 3
    assert (near.lower <= truth[near.states] + 1e-8).all()
    assert (truth[near.states] <= near.upper + 1e-8).all()
    assert truth[near.states].max() <= np.sort(truth[1:])[2] + near.eta + 1e-8


def test_no_leap_begins_that_would_end_after_the_budget(monkeypatch):
    """A leap takes some sweeps' time; here each look at the clock is a second later."""
    clock, leap, leaps = count(), PairTable.leap, []

    def timed(self, *arguments):
        leaps.append(next(clock))
        leap(self, *arguments)

    monkeypatch.setattr(Search, "seconds", property(lambda _: float(next(clock))))
    monkeypatch.setattr(PairTable, "leap", timed)
    answer = bm.Query(dense_chain(30), lump=False).distance(0, 1, tol=1e-9, budget=bm.Budget(seconds=40.0))
    assert answer.status is bm.Status.BUDGET
    assert leaps
    assert max(leaps) <= 40 - 4


def test_ctrl_c_while_a_threshold_is_decided_ends_the_command_with_its_status(monkeypatch, capsys):
    rounds = Search._round

    def interrupted(self, least):
        if self.table.opened > 20:
            signal.raise_signal(signal.SIGINT)
        return rounds(self, least)

    monkeypatch.setattr(Search, "_round", interrupted)
    asked = ["query", "problem:garnet?n_states=60", "0", "1", "--match", "labels", "--at-most"]
    middle = bm.Query(bm.problems.garnet(n_states=60), match="labels").distance(0, 1, tol=1.0).value
    capsys.readouterr()
    assert run([*asked, str(middle)]) == 130
    shown = capsys.readouterr()
    assert "undecided" in shown.out
    assert "interrupted" in shown.err
    assert run([*asked, "1e6"]) == 0
    assert run([*asked, str(middle), "--pairs", "1"]) == 1
    assert "undecided" in capsys.readouterr().out


@pytest.mark.parametrize("gamma", [0.9999, 0.99999])
def test_few_pairs_that_lead_to_each_other_are_solved_for(gamma):
    """Near a discount of 1 sweeps bring such pairs nowhere: their equations are solved."""
    chain = bm.Chain.from_arrays([[0, 1], [1, 0]], [0.0, 1.0], gamma)
    query = bm.Query(chain)
    answer = query.distance(0, 1, tol=1e-3)
    assert answer.converged
    assert query._table.updates < 1000
    assert answer.lower <= 1.0 / (1.0 - gamma) * (1.0 + 1e-12)
    assert answer.upper >= 1.0 / (1.0 - gamma) * (1.0 - 1e-12)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda q: q.nearest(0, budget=5), "budget must be Budget"),
        (lambda q: q.distances([(0, 1, 2)]), "number 0 must be two states"),
        (lambda q: q.distances([(0, 1), 3]), "number 1 must be two states"),
        (lambda q: q.distance(0, 1, tol=10**400), "tol is too large"),
        (lambda q: bm.Query(q.model, respect=5), "respect must be a sequence of labels; got int"),
        (lambda q: bm.cluster_plan(q.model, 5, workers=2), "other must be a Chain or an MDP"),
        (lambda q: bm.cluster_plan(q.model, device="cuda", workers=2), 'device must be "cpu"'),
    ],
)
def test_what_is_wrong_with_a_question_is_said(ask, words):
    with pytest.raises((ValueError, TypeError), match=words):
        ask(bm.Query(bm.Chain.from_arrays([[0, 1], [1, 0]], [0.0, 1.0], 0.5)))


NEAR_ONE = ([[0.2, 0.1, 0.7, 0], [0, 0.2, 0.8, 0], [0, 0, 0.7, 0.3], [0, 0, 0, 1.0]], [0.66, 0.2, 0.64, 0.0])


@pytest.mark.parametrize(
    ("tol", "budget", "status"),
    [
        (0.1, bm.Budget(memory=1000), bm.Status.BUDGET),
        (1.78e-11, bm.Budget(), bm.Status.ROUNDING),
        (1.78e-11, bm.Budget(pairs=1000), bm.Status.ROUNDING),
    ],
)
def test_the_nearest_are_given_where_some_cannot_be_told_apart(tol, budget, status):
    """One candidate is given up, another within half of tol already: nothing is asked twice."""
    query = bm.Query(bm.Chain.from_arrays(np.array(NEAR_ONE[0]), NEAR_ONE[1], 0.999))
    found = query.nearest(0, 3, tol=tol, budget=budget)
    assert sorted(found.states) == [1, 2, 3]
    assert found.status is status
    assert found.eta > tol


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e18, "float32"), (1e150, "float64"), (1e20, "float64"), (1e-150, "float64"), (1.0, "float64")],
)
@pytest.mark.parametrize("spread", [0.0, 1e-15])
def test_averaged_rewards_stay_in_the_range_of_the_model(scale, dtype, spread):
    """Rounding must not put rewards out of the range by which distances are bounded, nor equal ones apart."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(6), size=(6, 3))
    rewards = scale * (1.0 + spread * rng.random((6, 3)))
    mdp = bm.MDP.from_arrays(P, rewards, 0.9, axes="sas")
    for _ in range(20):
        chain = mdp.under(rng.dirichlet(np.ones(3), size=6))
        low, high = chain.reward_range
        assert low <= chain.rewards.min() <= chain.rewards.max() <= high
    found = bm.solve_metric(chain, tol=1e-3 * max(chain.reward_span, 1e-300), dtype=dtype, lump=False)
    assert found.distance.max() <= found.largest * (1.0 + 1e-6)
    lower, upper = found.bracket()
    answer = bm.Query(chain, lump=False).distance(0, 1, tol=0.1 * max(chain.reward_span, scale * 1e-12))
    assert answer.lower <= upper[0, 1] + 1e-9 * found.largest
    assert lower[0, 1] <= answer.upper + 1e-9 * found.largest
    if spread == 0.0:
        assert not found.distance.any()


def test_progress_is_of_bounds_that_close_in_and_may_end_the_question():
    seen = []
    mdp = bm.problems.gridworld(width=5, height=5)
    answer = bm.Query(mdp, match="labels", on_progress=seen.append).distance(3, 20, tol=1e-6)
    assert len(seen) > 2
    for before, after in pairwise(seen):
        assert before.lower <= after.lower + 1e-12
        assert after.upper <= before.upper + 1e-12
        assert before.opened <= after.opened
    assert seen[-1].lower <= answer.lower + 1e-12
    assert answer.upper <= seen[-1].upper + 1e-12
    assert answer.opened >= seen[-1].opened

    def stop(progress):
        if progress.opened > 0:
            raise KeyboardInterrupt

    ended = bm.Query(mdp, match="labels", on_progress=stop).distance(3, 20, tol=1e-6)
    assert ended.status is bm.Status.INTERRUPTED
    assert ended.lower <= answer.upper
    assert answer.lower <= ended.upper
    silent = bm.Query(mdp, match="labels", on_progress=stop)
    assert [a.status for a in silent.distances([(3, 20)], tol=1e-6)] == [
        bm.Status.CONVERGED
    ]  # side by side: nobody is told
