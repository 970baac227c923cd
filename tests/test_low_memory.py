"""One array of all pairs in place of two: the same bytes, in about half of the memory."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_mdp
from sweepers import sweeper_for
from transports import name

import bisimetric as bm
from bisimetric.backends import protocol
from bisimetric.backends.cpu import kernels
from bisimetric.backends.cpu import sweeper as cpu_sweeper
from bisimetric.backends.cpu.distances import HostDistances
from bisimetric.backends.cpu.halves import Halves, mirror
from bisimetric.backends.cpu.sweeper import CpuSweeper
from bisimetric.cli import run
from bisimetric.metric import evaluation, plan

SPARE = (bm.Exact(), bm.Exact(2.0), bm.Exact(1.5), bm.Independent(), bm.Independent(2.0, diagonal="zero"))
MATCHES = (None, "labels", "hausdorff")


def asked(seed: int, match: str | None, n_states: int = 40) -> bm.Chain | bm.MDP:
    mdp = bm.problems.garnet(n_states=n_states, n_actions=2, branching=4, gamma=0.9, seed=seed)
    return mdp if match else mdp.under(mdp.uniform_policy())


def everything(sweeper: CpuSweeper, start: np.ndarray) -> list[object]:
    """What all kinds of sweeps make of distances, and what is remembered after them, as bytes."""
    d, seen = sweeper.backend.distances(start), []
    seen.append(sweeper.sweep_roughly(d))
    with_plans = sweeper.keep_choices()
    for _ in range(2):
        seen.append(tuple(sweeper.sweep(d, 1e-6)))
        if with_plans:
            seen += [sweeper.sweep_kept(d), sweeper.sweep_frozen(d)]
        if sweeper.transport.order == 1.0:
            seen.append(sweeper.mean_change(d))
    bounds = [bound.tobytes() for bound in sweeper.bounds(d, 1e-6)]
    return [d.array.tobytes(), *seen, *bounds, *(part.tobytes() for part in sweeper.solver.remembered().values())]


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("transport", SPARE, ids=name)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_sweeps_give_the_same_bytes(transport, match, dtype):
    for seed, remember in ((0, True), (1, False)):
        model = asked(seed, match, 33 + seed)
        start = np.random.default_rng(seed).random((model.n_states,) * 2)
        start = np.triu(start, 0 if transport.with_diagonal else 1)
        start = start + np.triu(start, 1).T
        results = []
        for spare in (False, True):
            sweeper = sweeper_for(model, transport, match=match, dtype=dtype, remember=remember)
            assert sweeper.spare_memory() if spare else not sweeper.solver.halved
            results.append(everything(sweeper, start))
        assert results[0] == results[1]


@given(st.integers(1, 70), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 2.0, 1.5]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_halves_are_what_the_whole_is(n, seed, p, single):
    """Costs are read from below the diagonal alone, whatever is above it, and mirroring brings that down."""
    rng, dtype = np.random.default_rng(seed), np.float32 if single else np.float64
    whole = rng.random((n, n)).astype(dtype) * 10.0 ** int(rng.integers(-3, 3))
    whole = np.triu(whole) + np.triu(whole, 1).T
    cost = np.empty_like(whole)
    top, unit = kernels.power(whole, p, cost)
    half = whole.copy()
    halves = Halves(half, p)
    half[np.triu_indices(n)] = -1.0
    states = np.flatnonzero(rng.random(n) < 0.5)
    found = np.empty((len(states), n), dtype)
    kernels.gather_rows(half, whole.diagonal().copy(), states, p, halves.unit, found)
    assert (halves.top, halves.unit) == (top, unit)
    assert np.array_equal(found, cost[states])
    new = np.triu(rng.random((n, n)).astype(dtype))
    mixed = np.tril(whole, -1) + new
    mirror(mixed)
    assert np.array_equal(mixed, new + np.triu(new, 1).T)


@pytest.mark.parametrize("match", MATCHES)
def test_solutions_are_the_same_bytes_for_any_threads_and_units(match, monkeypatch):
    model = asked(3, match)
    results = set()
    for threads, unit, spare in ((1, 4 << 20, False), (1, 4 << 20, True), (3, 4 << 20, True), (2, 1, True)):
        bm.set_threads(threads)
        monkeypatch.setattr(cpu_sweeper, "_UNIT_BYTES", unit)
        found = bm.solve_metric(model, match=match, tol=1e-4, low_memory=spare)
        results.add((found.distance.tobytes(), found.error, found.sweeps))
        if match != "hausdorff":
            lower, upper = found.bracket()
            results.add((lower.tobytes(), upper.tobytes()))
    assert len(results) == (1 if match == "hausdorff" else 2)


def test_one_array_is_held_and_a_little(monkeypatch):
    """The peak of all arrays while a solve is under way, in units of one of all pairs."""
    monkeypatch.setattr(cpu_sweeper, "_UNIT_BYTES", 1 << 16)
    monkeypatch.setattr(protocol, "_SAMPLE", 1 << 14)
    monkeypatch.setattr(evaluation, "_WINDOWS", ())
    bm.set_threads(2)
    chain = asked(0, None, 900)
    peaks = {}
    for spare in (True, False):
        tracemalloc.start()
        bm.solve_metric(chain, tol=1e-3, max_sweeps=2, lump=False, remember=False, low_memory=spare)
        peaks[spare] = tracemalloc.get_traced_memory()[1] / (8 * 900**2)
        tracemalloc.stop()
    assert peaks[True] < 1.4
    assert peaks[False] > 2.0


def test_it_is_done_where_two_arrays_do_not_fit(monkeypatch):
    chain = asked(5, None)
    plenty = bm.solve_metric(chain, tol=1e-5)
    monkeypatch.setattr(plan, "_SMALL", 0)
    short = bm.solve_metric(chain, tol=1e-5)
    assert not any("one array" in note for note in short.notes)
    monkeypatch.setattr(plan, "available_memory", lambda: 12 * 40**2)
    short = bm.solve_metric(chain, tol=1e-5)
    refused = bm.solve_metric(chain, tol=1e-5, low_memory=False)
    assert any("one array of all pairs is held" in note and "do not fit" in note for note in short.notes)
    assert not any("one array" in note for note in refused.notes)
    assert short.distance.tobytes() == plenty.distance.tobytes() == refused.distance.tobytes()
    entropic = bm.solve_metric(chain, bm.Sinkhorn(0.5), tol=1e-3)  # there is no other way
    assert not any("one array" in note for note in entropic.notes)
    with pytest.raises(ValueError, match=r"40 states would need .* GB, and .* GB"):
        short.bracket()


@pytest.mark.parametrize("transport", [bm.Sinkhorn(0.5), bm.KLBall(0.2), bm.Independent()], ids=name)
def test_what_cannot_be_spared_is_refused(transport):
    chain = bm.problems.chain(n_states=40, n_classes=4).under(
        bm.problems.chain(n_states=40, n_classes=4).uniform_policy()
    )
    with pytest.raises(ValueError, match="low_memory is for Exact, and for Independent on sparse rows"):
        bm.solve_metric(chain, transport, low_memory=True)
    with pytest.raises(ValueError, match="low_memory is for one model"):
        bm.compare(chain, chain, low_memory=True)


@pytest.mark.parametrize("after", [1, 3, 6])
def test_interrupts_within_a_sweep_leave_distances(after, monkeypatch):
    chain = asked(7, None, 60)
    truth = bm.solve_metric(chain, tol=1e-9).distance
    monkeypatch.setattr(cpu_sweeper, "_UNIT_BYTES", 1 << 12)
    monkeypatch.setattr(cpu_sweeper, "_FEWEST", 1.0)
    bm.set_threads(2)
    work, units = CpuSweeper._sweep_unit, []

    def interrupted(self, unit, d):
        if self.comparison.shape[0] == 60:
            units.append(unit)
            if len(units) == 16 * after + 5:
                raise KeyboardInterrupt
        return work(self, unit, d)

    monkeypatch.setattr(CpuSweeper, "_sweep_unit", interrupted)
    found = bm.solve_metric(chain, tol=1e-9, low_memory=True, lump=False, accelerate=False)
    assert found.status.name == "INTERRUPTED"
    assert np.array_equal(found.distance, found.distance.T)
    assert np.abs(found.distance - truth).max() <= found.error + 1e-9


def test_interrupts_wait_for_the_mirror(monkeypatch):
    """Ctrl-C that comes while new distances are put below the diagonal is heard when all are there."""
    from bisimetric.backends.cpu import halves

    upper = np.triu(np.random.default_rng(0).random((300, 300)), 1)
    d, calls = upper - 1.0 * (np.tril(np.ones((300, 300)), -1)), []
    whole = halves.run_all

    def interrupted(task, units, **more):
        calls.append(1)
        if len(calls) == 1:
            task(units[0])
            raise KeyboardInterrupt
        return whole(task, units, **more)

    monkeypatch.setattr(halves, "run_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mirror(d)
    assert np.array_equal(d, upper + upper.T)


def test_restarts_pickles_and_checkpoints_go_on(tmp_path):
    chain = asked(9, None)
    full = bm.solve_metric(chain, tol=1e-7, lump=False)
    half = bm.solve_metric(chain, tol=1e-7, lump=False, low_memory=True, max_sweeps=3)
    half.save(tmp_path / "half.npz", restart=True)
    for start in (half, pickle.loads(pickle.dumps(half)), bm.MetricSolution.load(tmp_path / "half.npz")):
        again = bm.solve_metric(chain, tol=1e-7, lump=False, start=start, low_memory=True)
        other = bm.solve_metric(chain, tol=1e-7, lump=False, start=start)
        assert again.distance.tobytes() == other.distance.tobytes()
        assert np.abs(again.distance - full.distance).max() <= again.error + full.error


def test_following_another_policy_stays_with_one_array():
    mdp = random_mdp(4, 12)
    chain = mdp.under(mdp.uniform_policy())
    first = np.zeros(mdp.n_choices)
    first[mdp.choice_ptr[:-1]] = 1.0
    other, d = mdp.under(first), np.zeros((12, 12))
    sweeper, fresh = sweeper_for(chain, bm.Exact()), sweeper_for(other, bm.Exact())
    assert sweeper.spare_memory()
    sweeper.sweep(HostDistances(d))
    sweeper.follow(other)
    assert sweeper.solver.halved
    mine, theirs = HostDistances(d.copy()), HostDistances(d.copy())
    sweeper.sweep(mine), fresh.sweep(theirs)
    np.testing.assert_allclose(mine.array, theirs.array, rtol=0, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_shifts_need_fewer_sweeps_and_end_where_plain_ones_do(gamma, monkeypatch):
    monkeypatch.setattr(evaluation, "_WINDOWS", ())
    mdp = bm.problems.garnet(n_states=50, n_actions=1, branching=4, gamma=gamma, seed=0)
    chain = mdp.under(mdp.uniform_policy())
    moved = []
    move = HostDistances.shift
    monkeypatch.setattr(HostDistances, "shift", lambda self, by: (moved.append(by), move(self, by)))
    fast = bm.solve_metric(chain, tol=0.01, remember=False, lump=False)
    plain = bm.solve_metric(chain, tol=0.01, remember=False, lump=False, accelerate=False)
    assert moved
    assert fast.sweeps < 0.7 * plain.sweeps
    assert np.abs(fast.distance - plain.distance).max() <= fast.error + plain.error
    grid = bm.problems.gridworld(width=5, height=5, gamma=gamma)
    fast = bm.solve_metric(grid, match="labels", tol=1e-3, remember=False, lump=False)
    plain = bm.solve_metric(grid, match="labels", tol=1e-3, remember=False, lump=False, accelerate=False)
    assert fast.sweeps <= plain.sweeps + 2  # whose distances do not go on alike


def test_the_plan_and_the_commands_know_of_it(monkeypatch, capsys, tmp_path):
    model, square = "problem:garnet?n_states=300", 8 * 300**2
    assert run(["metric", model, "--low-memory", "--max-sweeps", "2", "--no-remember"]) == 1
    assert "as low_memory asks for" in capsys.readouterr().out
    assert run(["metric", model, "--transport", "sinkhorn:1", "--low-memory"]) == 2
    assert "--low-memory is for Exact" in capsys.readouterr().err
    mdp = bm.problems.garnet(n_states=300)
    settings_ = bm.MetricSettings(remember=False, accelerate=False)
    cost = plan.memory(mdp.under(mdp.uniform_policy()), settings_)
    assert (cost.fixed_bytes, cost.least_bytes) == (2 * square, square)
    assert run(["info", model]) == 0
    assert "with --low-memory" in capsys.readouterr().out
    monkeypatch.setattr(plan, "available_memory", lambda: int(1.5 * square))
    monkeypatch.setattr(plan, "_SMALL", 0)
    few = ["--no-remember", "--no-accelerate", "--max-sweeps", "1"]
    assert run(["metric", model, *few]) == 1
    assert "two do not fit" in capsys.readouterr().out
    assert run(["metric", model, *few, "--no-low-memory", "-o", str(tmp_path / "d.npz")]) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_equal_rows_are_known_however_successors_are_numbered(p):
    """Their transport is 0 exactly, for which a root must not be paid."""
    P = [[2 / 3, 0, 1 / 3, 0], [2 / 3, 0, 1 / 3, 0], [1 / 3, 0, 1 / 3, 1 / 3], [1 / 3, 0, 1 / 3, 1 / 3]]
    chain = bm.Chain.from_arrays(P, [2.0, 3.0, 3.0, 1.0], 0.9)
    one, two = (bm.solve_metric(chain, bm.Exact(p), low_memory=x, lump=False, tol=1e-9) for x in (True, False))
    assert one.distance.tobytes() == two.distance.tobytes()
    assert (one.error, one.status, one.sweeps) == (two.error, two.status, two.sweeps)
    assert two.error <= 1e-9


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("row", [[0.3, 0.7], [0.2, 0.3, 0.5]])
def test_rows_of_two_models_are_not_equal_by_their_numbers(p, row):
    """They are where their states are at distance 0, and where they are not what rounding does is counted."""
    n = len(row)
    cost = np.random.default_rng(0).random((n, n)) + 0.1
    zero = cost * (1.0 - np.eye(n))
    rows = kernels.arguments.Rows(
        np.array([0, n, 2 * n]), np.r_[np.arange(n), np.arange(n)].astype(np.int32), np.r_[row, row]
    )
    block = kernels.arguments.Block(np.array([0, 1]), 0, 1, 1, 1)
    for ground, known in ((cost, False), (zero, True)):
        given_ = kernels.arguments.Ground(ground, 1.0, 1.0 / p)
        memory = kernels.arguments.Memory(np.zeros(8 * n, np.uint8), np.zeros(2, np.int64))
        out, errors = np.full((1, 1), np.nan), np.full((1, 1), np.nan)
        kernels.exact_block(rows, np.zeros(2), block, given_, memory, np.zeros(1, np.int64), out, errors)
        if p != 1.0 or n == 2:
            assert (errors[0, 0] == 0.0) == known
            assert (out[0, 0] == 0.0) == known
