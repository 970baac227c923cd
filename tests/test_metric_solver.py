"""The solver: errors that are true, restarts, statuses, and results that do not depend on how they were computed."""

from __future__ import annotations

import numpy as np
import pytest
from random_models import random_chain, random_mdp
from solved_metrics import garnet_chain, miss
from sweepers import sweep, sweeper_for
from transports import EVERY_TRANSPORT, name

import bisimetric as bm
from bisimetric.backends.cpu import sweeper as cpu_sweeper

every_transport = pytest.mark.parametrize("transport", EVERY_TRANSPORT, ids=name)
RIGOROUS = [transport for transport in EVERY_TRANSPORT if transport.axioms.nonexpansive]


def dense_chain(n=40):
    mdp = bm.problems.chain(n_states=n, n_classes=8, mixing=0.2, gamma=0.8)
    return mdp.under(mdp.uniform_policy())


@pytest.mark.parametrize("transport", RIGOROUS, ids=name)
@pytest.mark.parametrize("match", [None, "labels", "hausdorff"])
def test_the_tolerance_is_an_error_of_the_answer(transport, match, one_thread):
    model = garnet_chain() if match is None else random_mdp(5, 6)
    truth = bm.solve_metric(model, transport, match=match, tol=2e-8)
    assert truth.converged
    for tol in (1.0, 1e-3):
        solution = bm.solve_metric(model, transport, match=match, tol=tol)
        assert solution.converged
        assert solution.certificate.rigorous
        assert miss(solution, truth) <= solution.error + truth.error
        assert solution.error <= tol == solution.tol


@pytest.mark.parametrize("c_T", [0.0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("transport", [bm.Exact(), bm.Independent()], ids=name)
def test_errors_cover_rounding(transport, c_T, one_thread):
    """float32 distances are rounded when stored; the error says so for every discount."""
    chain = garnet_chain()
    truth = bm.solve_metric(chain, transport, transition_weight=c_T, tol=1e-10)
    single = bm.solve_metric(chain, transport, transition_weight=c_T, dtype="float32", tol=1e-3)
    assert single.distance.dtype == np.float32
    assert miss(single, truth) <= single.error + truth.error


@pytest.mark.parametrize("reg", [1e-3, 1.0, 1e4, 1e10])
def test_errors_hold_for_any_regularisation(reg, one_thread):
    """Value and independent coupling differ by at most max(d)²/(8λ) a step; beyond that only errors remain."""
    chain = garnet_chain()
    solution = bm.solve_metric(chain, bm.Sinkhorn(reg, cost="value"), tol=1e-6)
    assert np.isfinite(solution.distance).all()
    if reg >= 1e4:
        independent = bm.solve_metric(chain, bm.Independent(), tol=1e-9)
        gap = 0.8 * independent.distance.max() ** 2 / (8.0 * reg) / 0.2
        assert miss(solution, independent) <= gap + solution.error + independent.error
    else:
        truth = bm.solve_metric(chain, bm.Sinkhorn(reg, cost="value"), tol=1e-8)
        assert miss(solution, truth) <= solution.error + truth.error


BY_PRODUCTS = (bm.Sinkhorn(0.5), bm.Sinkhorn(0.5, cost="value", p=2.0), bm.Independent(), bm.Independent(2.0))
CASES = [(t, "sparse") for t in EVERY_TRANSPORT] + [(t, "dense") for t in BY_PRODUCTS]
by_case = pytest.mark.parametrize(("transport", "kind"), CASES, ids=[f"{name(t)}-{kind}" for t, kind in CASES])


@by_case
def test_threads_and_blocks_change_no_bit(transport, kind, monkeypatch):
    model = dense_chain() if kind == "dense" else garnet_chain(40)
    results = []
    for threads, unit in ((1, 4 << 20), (2, 4 << 20), (3, 4 << 20), (1, 1 << 10), (2, 40 * 16 * 7), (3, 1)):
        bm.set_threads(threads)
        monkeypatch.setattr(cpu_sweeper, "_UNIT_BYTES", unit)
        units = cpu_sweeper.units_of_work(sweeper_for(model, transport).comparison, threads)
        solution = bm.solve_metric(model, transport, tol=1e-2)
        lower, upper = solution.bracket()
        results.append((solution.distance.tobytes(), solution.error, solution.sweeps, lower.tobytes(), upper.tobytes()))
        if unit == 1:
            assert len(units) == 40
    assert len(set(results)) == 1


@pytest.mark.parametrize("match", ["labels", "hausdorff"])
def test_threads_change_no_bit_of_an_mdp(match, monkeypatch):
    mdp = random_mdp(3, 12)
    results = set()
    for threads, unit in ((1, 4 << 20), (3, 4 << 20), (2, 1)):
        bm.set_threads(threads)
        monkeypatch.setattr(cpu_sweeper, "_UNIT_BYTES", unit)
        results |= {bm.solve_metric(mdp, t, match=match, tol=1e-3).distance.tobytes() for t in (bm.Exact(),)}
    assert len(results) == 1


@every_transport
def test_memory_layout_and_keeping_change_nothing(transport, one_thread):
    chain = garnet_chain()
    P = chain.rows.matrix().toarray()
    base = bm.solve_metric(chain, transport, tol=1e-7)
    for matrix in (np.asfortranarray(P), chain.rows.matrix()):
        again = bm.solve_metric(bm.Chain.from_arrays(matrix, chain.rewards, chain.gamma), transport, tol=1e-7)
        np.testing.assert_array_equal(again.distance, base.distance)
    lean = bm.solve_metric(chain, transport, tol=1e-7, remember=False)
    assert lean.kept_bytes == 0
    assert miss(lean, base) <= 2e-7


def other_policy(mdp, seed):
    weights = np.random.default_rng(seed).random(mdp.n_choices)
    if seed % 2:
        weights *= np.arange(mdp.n_choices) % 2  # one action only: the supports change
    return weights / np.add.reduceat(weights, mdp.choice_ptr[:-1])[mdp.state_of_choice]


@by_case
def test_restarts_reach_the_same_answer(transport, kind, one_thread):
    """After nothing, the policy or the transport changed; what the restart came from stays as it was."""
    mdp = bm.problems.garnet(n_states=14, branching=4, gamma=0.8)
    if kind == "dense":
        mdp = bm.problems.chain(n_states=32, n_classes=8, mixing=0.2, gamma=0.8)
    chain = mdp.under(mdp.uniform_policy())
    first = bm.solve_metric(chain, transport, tol=1e-4)
    before = first.distance.tobytes()
    targets = [(model, transport) for model in (chain, *(mdp.under(other_policy(mdp, seed)) for seed in (2, 3)))]
    targets += [(chain, bm.Exact()), (chain, bm.Sinkhorn(0.5, cost="value", diagonal="zero"))]
    for model, way in targets:
        cold = bm.solve_metric(model, way, tol=1e-6)
        warm, again = (bm.solve_metric(model, way, tol=1e-6, start=first) for _ in range(2))
        if way.axioms.nonexpansive:
            assert miss(warm, cold) <= warm.error + cold.error
        np.testing.assert_allclose(warm.distance, cold.distance, atol=5e-6)
        np.testing.assert_array_equal(warm.distance, again.distance)
        assert first.distance.tobytes() == before
    same = bm.solve_metric(chain, transport, tol=1e-4, start=first)
    assert same.sweeps == 1
    assert bm.solve_metric(chain, transport, tol=1e-4, start=first).distance.tobytes() == same.distance.tobytes()


@pytest.mark.parametrize(
    "kept", [bm.Sinkhorn(1.0), bm.Sinkhorn(1.0, cost="value"), bm.KLBall(0.1), bm.Independent()], ids=name
)
def test_restart_with_another_diagonal(kept, one_thread):
    """A positive diagonal must not linger where the new transport has a zero one, nor the reverse."""
    chain = garnet_chain()
    zero = type(kept)(**(kept.__dict__ | {"diagonal": "zero"}))
    for source, target in ((kept, zero), (zero, kept), (kept, bm.Exact())):
        cold = bm.solve_metric(chain, target, tol=1e-6)
        warm = bm.solve_metric(chain, target, tol=1e-6, start=bm.solve_metric(chain, source, tol=1e-6))
        np.testing.assert_allclose(warm.distance, cold.distance, atol=5e-6)


@every_transport
def test_diagnostics_only_read(transport, one_thread):
    """A bracket changes neither the solution nor what is kept for a restart."""
    chain = garnet_chain(10)
    solution = bm.solve_metric(chain, transport, tol=0.5)
    solver = solution.restart.sweeper.solver

    def kept():
        arrays = {"distance": solution.distance, **solver.remembered()}
        return {key: hash(array.tobytes()) for key, array in arrays.items()}

    before = kept()
    lower, upper = solution.bracket()
    assert kept() == before
    for a, b in zip((lower, upper), solution.bracket(), strict=True):
        np.testing.assert_array_equal(a, b)


@every_transport
def test_following_a_policy_equals_a_new_operator(transport, one_thread):
    mdp = bm.problems.garnet(n_states=10, branching=4)
    sweeper = sweeper_for(mdp.under(mdp.uniform_policy()), transport)
    d = np.zeros((10, 10))
    for seed in (0, 2, 3, 4):
        sweep(sweeper, d, 1e-9)
        chain = mdp.under(other_policy(mdp, seed))
        sweeper.follow(chain)
        expected = d.copy()
        sweep(sweeper_for(chain, transport), expected, 1e-9)
        sweep(sweeper, d, 1e-9)
        np.testing.assert_allclose(d, expected, atol=1e-7)


@every_transport
@pytest.mark.parametrize("match", [None, "labels", "hausdorff"])
@pytest.mark.parametrize("tol", [0.5, 1e-6])
def test_brackets_hold_the_exact_metric(transport, match, tol, one_thread):
    for seed in range(3):
        model = random_chain(seed, 6, kind="simplex") if match is None else random_mdp(seed, 6)
        exact = bm.solve_metric(model, bm.Exact(transport.p), match=match, tol=1e-8)
        lower, upper = bm.solve_metric(model, transport, match=match, tol=tol).bracket()
        assert (lower <= exact.distance + exact.error).all()
        assert (exact.distance - exact.error <= upper).all()
        assert (lower <= upper).all()
        assert (lower >= 0.0).all()
        assert (np.diag(upper) == 0.0).all()


@pytest.mark.parametrize("match", [None, "labels", "hausdorff"])
def test_the_bracket_closes(match, one_thread):
    model = garnet_chain() if match is None else random_mdp(1, 6)
    widths = []
    for tol in (1.0, 1e-2, 1e-4, 1e-8):
        lower, upper = bm.solve_metric(model, bm.Exact(), match=match, tol=tol).bracket()
        widths.append(float((upper - lower).max()))
        assert widths[-1] <= 4.0 * tol
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1e-7


def test_arguments_are_never_changed(one_thread):
    mdp = bm.problems.garnet(n_states=10)
    before = [a.tobytes() for a in (mdp.rows.probs, mdp.rows.indices, mdp.rewards, mdp.choice_ptr)]
    policy = mdp.uniform_policy()
    for transport in EVERY_TRANSPORT:
        bm.solve_metric(mdp.under(policy), transport, tol=1e-2).bracket()
        bm.solve_metric(mdp, transport, match="hausdorff", tol=1e-2)
    assert before == [a.tobytes() for a in (mdp.rows.probs, mdp.rows.indices, mdp.rewards, mdp.choice_ptr)]
    np.testing.assert_array_equal(policy, mdp.uniform_policy())
    solution = bm.solve_metric(mdp.under(policy))
    with pytest.raises(ValueError, match="read-only"):
        solution.distance[0, 0] = 1.0


@pytest.mark.parametrize(
    "transport",
    [
        bm.Exact(),
        bm.Sinkhorn(0.3, cost="value"),
        bm.Independent(),
        bm.KLBall(0.2),
        bm.KLBall(0.5),
        bm.KLBall(1.0),
        bm.KLBall(0.5, p=2.0),
    ],
    ids=str,
)
@pytest.mark.parametrize(("seed", "n", "support"), [(0, 8, 3), (4, 15, 5), (5, 15, 5)])
def test_a_loose_solution_is_within_its_error_of_a_tight_one(transport, seed, n, support):
    """Also where balls hardly bind, so that a plan's KL must be known well to know whether it is allowed."""
    chain = random_chain(seed, n, gamma=0.9, support=support)
    loose, tight = (bm.solve_metric(chain, transport, tol=tol) for tol in (1e-4, 1e-7))
    assert loose.converged
    assert np.abs(loose.distance - tight.distance).max() <= loose.error + tight.error
