"""Labelled chains without discount: distances against rational truth, and bounds that are inductive as they say."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import rational_policy_iteration as oracle
from hypothesis import given, settings
from hypothesis import strategies as st

import bisimetric as bm
from bisimetric.backends import reference
from bisimetric.backends.cpu import kernels
from bisimetric.backends.select import distances_of, host
from bisimetric.lumping import label_classes
from bisimetric.metric.operator import sweeper_of

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = st.integers(0, 10**6)
ROUNDING = 1e-12  # of the linear programs of the reference, on distances up to 1


def at_one(chain, **settings_of_metric):
    return bm.solve_metric(chain, transition_weight=1, **settings_of_metric)


def labelled(P, labels):
    return bm.Chain.from_arrays(P, np.zeros(len(P)), 0.5, state_labels={"x": np.asarray(labels, bool)})


def truth_of(chain):
    names = [name for name in chain.state_labels if name != "init"]
    labels = list(zip(*(chain.state_labels[name].tolist() for name in names), strict=True))
    return oracle.undiscounted(chain.rows.matrix().toarray(), labels)


def plain_chain(rng, n):
    return labelled(oracle.eighths(rng, n, n), rng.random(n) < 0.4)


def slow_chain(rng, n):
    """All that happens is rare: states stay where they are but for 2^-20 of the time; some for ever."""
    P = oracle.eighths(rng, n, n) * 2.0**-20
    P[np.diag_indices(n)] += 1.0 - 2.0**-20
    return labelled(P, rng.random(n) < 0.4)


def twin_chain(rng, n):
    """The last state is a copy of the first, but for a little mass that goes elsewhere."""
    P = oracle.eighths(rng, n, n)
    P[:, -1] = 0.0
    P[np.arange(n), rng.integers(0, n - 1, size=n)] += 1.0 - P.sum(axis=1)
    P[-1] = P[0]
    a, b = int(np.argmax(P[0])), int(rng.integers(0, n))
    moved = 2.0 ** -float(rng.integers(8, 24))
    P[-1, a] -= moved
    P[-1, b] += moved
    labels = rng.random(n) < 0.4
    labels[-1] = labels[0]
    return labelled(P, labels)


def decimal_chain(rng, n):
    """Rows whose numbers are rounded, so that their sums are only nearly 1."""
    P = rng.dirichlet(np.full(n, 0.5), size=n)
    P[P < 0.05] = 0.0
    return labelled(P / P.sum(axis=1, keepdims=True), rng.random(n) < 0.4)


KINDS = (plain_chain, slow_chain, twin_chain, decimal_chain)


def applied(chain, d):
    """F(d), by linear programs: 1 where labels differ."""
    P, apart = chain.rows.matrix().toarray(), label_classes(chain, None)
    return np.array(
        [
            [
                1.0 if apart[s] != apart[t] else 0.0 if s == t else reference.exact(d, P[s], P[t])
                for t in range(chain.n_states)
            ]
            for s in range(chain.n_states)
        ]
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(SEEDS, st.integers(3, 6))
def test_distances_are_within_their_error_of_the_truth(kind, seed, n):
    chain = kind(np.random.default_rng(seed), n)
    truth, tol = truth_of(chain), 1e-9 if kind in (plain_chain, decimal_chain) else 1e-4
    solution = at_one(chain, tol=tol)
    d, (lower, upper) = solution.distance, solution.bracket()
    assert solution.status is bm.Status.CONVERGED
    assert solution.error <= tol
    assert solution.certificate.rigorous
    assert oracle.within(d, truth, solution.error)
    assert oracle.enclosed(lower, truth, upper)
    assert (d[truth == 0] == 0.0).all()
    assert (d[truth == 1] == 1.0).all()
    assert (upper - lower).max() <= 2.0 * solution.error * (1.0 + 1e-12)
    assert np.array_equal(d, d.T)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(SEEDS, st.sampled_from([1, 3, 100]))
def test_bounds_are_inductive(kind, seed, max_sweeps):
    """F(U) ≤ U and L ≤ F(L), by another way to solve transports; also where the solve ended early."""
    chain = kind(np.random.default_rng(seed), 5)
    lower, upper = at_one(chain, tol=1e-4, max_sweeps=max_sweeps).bracket()
    assert (applied(chain, upper) <= upper + ROUNDING).all()
    assert (applied(chain, lower) >= lower - ROUNDING).all()
    assert (lower >= 0.0).all()
    assert (upper <= 1.0).all()


@settings(max_examples=30)
@given(SEEDS, st.integers(3, 8))
def test_the_order_of_states_does_not_matter(seed, n):
    rng = np.random.default_rng(seed)
    chain = KINDS[seed % 4](rng, n)
    order = rng.permutation(n)
    P = chain.rows.matrix().toarray()
    one, other = at_one(chain), at_one(labelled(P[np.ix_(order, order)], chain.state_labels["x"][order]))
    gap = np.abs(one.distance[np.ix_(order, order)] - other.distance).max()
    assert gap <= one.error + other.error


@settings(max_examples=20)
@given(SEEDS)
def test_discounted_metrics_grow_to_it(seed):
    """With c_R = 1 − c_T labels are 1 apart, and distances are at most those without discount."""
    chain = plain_chain(np.random.default_rng(seed), 6)
    limit = at_one(chain, tol=1e-8)
    last = np.zeros((6, 6))
    for c_T in (0.5, 0.9, 0.99, 0.9999):
        near = bm.solve_metric(chain, transition_weight=c_T, reward_weight=1.0 - c_T, tol=1e-8)
        assert (near.distance <= limit.distance + near.error + limit.error).all()
        assert (last <= near.distance + 2e-8).all()
        last = near.distance


@settings(max_examples=20)
@given(SEEDS, st.integers(20, 40))
def test_many_pairs_are_solved_by_passes(seed, n):
    """Passes over the equations and factors of them give the same, and bounds hold either way."""
    from bisimetric.metric import undiscounted

    chain = plain_chain(np.random.default_rng(seed), n)
    direct = at_one(chain, tol=1e-8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undiscounted, "_DIRECT", 0)
        passes = at_one(chain, tol=1e-8)
    assert direct.converged
    assert passes.converged
    assert np.abs(direct.distance - passes.distance).max() <= direct.error + passes.error


@settings(max_examples=40)
@given(SEEDS, st.integers(1, 9), st.sampled_from([1, 2, 1000]))
def test_pairs_that_can_meet(seed, n, room):
    """By hand, whatever room the stack has."""
    rng = np.random.default_rng(seed)
    P = rng.random((n, n)) < 0.25
    P[np.arange(n), rng.integers(0, n, size=n)] = True
    labels = rng.integers(0, 2, size=n)
    far = np.ones((n, n), bool)
    np.fill_diagonal(far, False)
    for _ in range(n * n):
        leads = P.astype(int) @ ~far @ P.T.astype(int) > 0
        far &= ~(leads & (labels[:, None] == labels[None, :]))
    into = [np.flatnonzero(P[:, u]) for u in range(n)]
    near = np.zeros((n, n), np.uint8)
    pointers = np.concatenate([[0], np.cumsum([len(x) for x in into])])
    kernels.meeting_pairs(pointers, np.concatenate(into), labels, np.empty(room, np.int64), near)
    upper = np.triu_indices(n, 1)
    assert np.array_equal(near[upper] > 0, ~far[upper])


@pytest.mark.parametrize("branching", [1, 2, 3, 5])
def test_equations_are_those_of_the_last_sweep(branching):
    """What plans cost is what the sweep that chose them gave."""
    rng = np.random.default_rng(branching)
    P = np.zeros((12, 12))
    for row in P:
        row[rng.choice(12, branching, replace=False)] = rng.dirichlet(np.ones(branching))
    chain = labelled(P, rng.random(12) < 0.3)
    question = bm.MetricSettings(transition_weight=1).for_model(chain, undiscounted=True)
    sweeper = sweeper_of(chain, question)
    pairs = host().undecided_pairs(chain.rows, sweeper.comparison.apart)
    x, d = rng.random(pairs.count), np.empty((12, 12))
    pairs.spread(x, d)
    sweeper.sweep(distances_of(d))
    equations = pairs.equations(sweeper)
    costs = np.empty(pairs.count)
    for k, (begin, end) in enumerate(zip(equations.begins, equations.ends, strict=True)):
        terms = equations.masses[begin:end] @ x[equations.columns[begin:end]]
        costs[k] = equations.constants[k] + (1.0 - equations.leaving[k]) * x[k] + terms
    least, largest = pairs.rises(d, costs)
    assert least >= -1e-14
    assert largest <= 1e-14


def test_rows_that_differ_by_rounding_are_noted():
    P = np.zeros((4, 4))
    P[0, [2, 3]] = 0.3, 0.7
    P[1, [2, 3]] = 0.1 + 0.2, 0.7
    P[[2, 3], [2, 3]] = 1.0
    merged = at_one(labelled(P, [0, 0, 1, 0]))
    assert merged.distance[0, 1] == 0.0
    assert any("merged" in note and "1e-12" in note for note in merged.notes)
    P[1] = P[0]
    assert not at_one(labelled(P, [0, 0, 1, 0])).notes


def test_float32():
    for seed in range(10):
        chain = plain_chain(np.random.default_rng(seed), 5)
        solution = at_one(chain, tol=1e-2, dtype="float32")
        assert solution.converged
        assert solution.distance.dtype == np.float32
        truth = truth_of(chain)
        assert oracle.within(solution.distance, truth, solution.error)
        assert oracle.enclosed(solution.bracket()[0], truth, solution.bracket()[1])
        fine = at_one(chain, tol=1e-9, dtype="float32")
        assert fine.status in (bm.Status.ROUNDING, bm.Status.CONVERGED)
        assert oracle.within(fine.distance, truth, fine.error)


def test_tolerances_below_rounding_say_so():
    chain = slow_chain(np.random.default_rng(3), 5)
    solution = at_one(chain, tol=1e-14)
    assert solution.status is bm.Status.ROUNDING
    assert 1e-14 < solution.error < 1e-4
    assert oracle.within(solution.distance, truth_of(chain), solution.error)


def test_progress_checkpoints_and_early_ends():
    rng = np.random.default_rng(2)
    chain = plain_chain(rng, 30)
    whole = at_one(chain, tol=1e-8)
    seen, kept = [], []
    told = at_one(chain, tol=1e-8, on_progress=seen.append, on_checkpoint=kept.append, checkpoint_every=0.0)
    assert told.distance.tobytes() == whole.distance.tobytes()
    assert [p.sweep for p in seen] == list(range(1, whole.sweeps + 1))
    assert seen[-1].error == whole.error
    for count in range(1, whole.sweeps):
        part = at_one(chain, tol=1e-8, max_sweeps=count)
        assert part.status is bm.Status.SWEEP_LIMIT
        assert part.sweeps == count
        kept.append(part)

        def stop(progress, count=count):
            if progress.sweep == count:
                raise KeyboardInterrupt

        broken = at_one(chain, tol=1e-8, on_progress=stop)
        assert broken.status is bm.Status.INTERRUPTED
        kept.append(broken)
    for part in kept:
        assert part.error <= 1.0
        assert np.abs(part.distance - whole.distance).max() <= part.error + whole.error
        lower, upper = part.bracket()
        assert (lower <= whole.distance + whole.error).all()
        assert (whole.distance <= upper + whole.error).all()


def test_pickles_and_files(tmp_path):
    chain = plain_chain(np.random.default_rng(4), 8)
    solution = at_one(chain)
    copy = pickle.loads(pickle.dumps(solution))
    assert copy.distance.tobytes() == solution.distance.tobytes()
    for one, other in zip(copy.bracket(), solution.bracket(), strict=True):
        assert one.tobytes() == other.tobytes()
    solution.save(tmp_path / "d.npz", restart=True)
    loaded = bm.MetricSolution.load(tmp_path / "d.npz")
    assert loaded.error == solution.error
    assert loaded.question.transition_weight == 1.0
    with pytest.raises(ValueError, match="without its model"):
        loaded.bracket()
    for start in (solution, copy, loaded):
        assert at_one(chain, start=start).distance.tobytes() == solution.distance.tobytes()
        assert bm.solve_metric(chain, start=start, tol=1e-6).converged


def test_all_pairs_may_be_decided():
    """States that labels tell apart, or that nothing does, need no sweep."""
    for P, labels in ((np.eye(2), [0, 1]), (np.eye(3), [1, 1, 1]), (np.ones((1, 1)), [0])):
        solution = at_one(labelled(P, labels))
        assert solution.converged
        assert solution.error == 0.0
        assert solution.sweeps == 0
        apart = np.not_equal.outer(labels, labels)
        np.testing.assert_array_equal(solution.distance, apart.astype(float))
        for bound in solution.bracket():
            np.testing.assert_array_equal(bound, solution.distance)


def test_what_is_refused_is_named():
    chain = plain_chain(np.random.default_rng(0), 4)
    paid = bm.Chain.from_arrays(np.eye(3), [0.0, 2.5, 1.0], 0.5, state_labels={"x": np.eye(3)[0] > 0})
    with pytest.raises(ValueError, match=r"states 0 and 1 have rewards 0 and 2\.5; use reward_weight=0"):
        at_one(paid)
    with pytest.raises(ValueError, match=r"Exact\(\) with p = 1.*Exact\(p=2\.0\)"):
        bm.solve_metric(chain, bm.Exact(2.0), transition_weight=1)
    with pytest.raises(ValueError, match=r"no labels are respected.*x"):
        at_one(chain, respect=[])
    with pytest.raises(ValueError, match="only solve_metric"):
        bm.compare(chain, chain, transition_weight=1)
    with pytest.raises(ValueError, match='use device="cpu"'):
        at_one(chain, device="cuda")
