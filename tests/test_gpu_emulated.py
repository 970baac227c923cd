"""The CUDA path without a GPU: its sources compiled as C++ and run thread by thread, against the CPU and the reference.

This shows the arithmetic of the kernels and the code around them. Kernels that need a whole warp (shuffles) and all
that is parallel are shown on a device only, by test_gpu_device.py.
"""

from __future__ import annotations

import sys

import emulated_cuda
import numpy as np
import pytest
import rectangles
from random_models import random_chain, random_mdp
from sweepers import sweep, sweeper_for
from transport_blocks import GROUNDS, distribution, filled, ground, rows_of
from transports import EVERY_TRANSPORT, name

import bisimetric as bm
from bisimetric.aggregation import class_shares
from bisimetric.backends import reference, select
from bisimetric.backends.comparison import matrix_like
from bisimetric.backends.cpu import kernels as cpu_kernels
from bisimetric.backends.cuda import kernels as cuda_kernels
from bisimetric.backends.cuda.distances import DeviceDistances
from bisimetric.backends.cuda.kernels import classes, device, pairs
from bisimetric.backends.cuda.sweeper import CudaSweeper

pytestmark = [
    pytest.mark.skipif(emulated_cuda.COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.usefixtures("emulated"),
]
every_transport = pytest.mark.parametrize("transport", EVERY_TRANSPORT, ids=name)


@pytest.fixture
def emulated(monkeypatch):
    """The package sees the stand-in for CuPy; nothing of it is left behind."""
    monkeypatch.setitem(sys.modules, "cupy", emulated_cuda.fake_cupy())
    for cached in (device.check, device.lanes, device.processors):
        cached.cache_clear()
    monkeypatch.setattr(device, "_CALLS", {})
    yield
    for cached in (device.check, device.lanes, device.processors):
        cached.cache_clear()


@pytest.fixture
def all_on_device(monkeypatch):
    """Classes of few states are found on the device too, rather than on a copy near the host."""
    monkeypatch.setattr("bisimetric.backends.cuda.distances._FEW_STATES", 0)
    monkeypatch.setattr(DeviceDistances, "near", None)


def table_on(where, transport, rows, d, dtype="float64", accuracy=1e-11):
    """W between all pairs of rows from one block of a cold solver; the output starts as NaN."""
    n = len(rows)
    solver = select.backend(where, dtype).solver(rows_of(rows), (np.arange(n),), transport, True)
    out, report = filled(solver, d, accuracy)
    inside = np.triu_indices(n, solver.first)
    assert np.isfinite(out[inside]).all()
    assert np.isnan(out[np.tril_indices(n, -1)]).all() or getattr(solver, "matrix", None) is not None
    return out[inside], report


@every_transport
@pytest.mark.parametrize("support", [1, 2, 3, 4, 5, 7, 8, 9, 13])
def test_blocks_equal_those_of_the_cpu(transport, support):
    """Supports on either side of the widths of the kernels, ragged, with ties and zeros in the ground cost."""
    for seed, kind in enumerate(("uniform", "ties", "zeros", "line")):
        rng = np.random.default_rng([support, seed])
        n = support + 40  # so that no matrix products are used
        rows = np.array([distribution(rng, "simplex", n, 1 + int(rng.integers(support))) for _ in range(6)])
        rows[-1] = rows[0]
        d = ground(rng, kind, n)
        ours, report = table_on("cuda", transport, rows, d)
        theirs, _ = table_on("cpu", transport, rows, d)
        np.testing.assert_allclose(ours, theirs, atol=2e-7 * max(d.max(), 1.0))
        assert report.error >= 0.0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("transport", rectangles.TRANSPORTS, ids=str)
@pytest.mark.parametrize("kind", list(rectangles.two_models()))
def test_two_models_are_compared_as_on_the_cpu(kind, transport, dtype):
    rectangles.check(kind, transport, dtype, "cuda")


def test_rows_of_a_rectangle_can_be_done_in_any_blocks(monkeypatch):
    for kind in ("4", "12", "40", "labels", "hausdorff"):
        model, other, match = rectangles.two_models()[kind]
        for transport in (bm.Exact(), bm.Sinkhorn(0.5)):
            whole = bm.compare(model, other, transport, match=match, device="cuda", tol=1e-4).distance
            with monkeypatch.context() as small:
                small.setattr("bisimetric.backends.cuda.sweeper._UNIT_ROWS", 7)
                parts = bm.compare(model, other, transport, match=match, device="cuda", tol=1e-4).distance
            np.testing.assert_array_equal(whole, parts)


@pytest.mark.parametrize("support", [3, 6, 11])
@pytest.mark.parametrize(
    "transport", [bm.Exact(), bm.Sinkhorn(0.7), bm.Sinkhorn(0.7, cost="value"), bm.Independent()], ids=name
)
def test_blocks_equal_the_reference(transport, support):
    rng = np.random.default_rng(support)
    n = support + 40
    rows = np.array([distribution(rng, "simplex", n, support) for _ in range(3)])
    d = ground(rng, "paths", n)
    ours, _ = table_on("cuda", transport, rows, d)
    first = 1 if isinstance(transport, bm.Exact) else 0
    expected = [
        reference.transport(transport, d, rows[s], rows[t]) for s, t in zip(*np.triu_indices(3, first), strict=True)
    ]
    np.testing.assert_allclose(ours, expected, atol=1e-7)


@pytest.mark.parametrize(
    "transport", [bm.Exact(), bm.Sinkhorn(0.5), bm.Sinkhorn(0.05, cost="value"), bm.KLBall(0.2)], ids=name
)
def test_float32_blocks_are_close(transport):
    for support in (4, 8, 12):
        rng = np.random.default_rng(support)
        rows = np.array([distribution(rng, "simplex", 60, support) for _ in range(5)])
        d = ground(rng, "uniform", 60)
        ours, _ = table_on("cuda", transport, rows, d, "float32", 1e-5)
        np.testing.assert_allclose(ours, table_on("cpu", transport, rows, d)[0], atol=3e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("support", [12, 17, 20, 29, 32, 33])
def test_trees_follow_costs_and_masses(support, p, dtype):
    """Kept trees under other costs, and under other masses, for which some are infeasible: as the CPU from nothing."""
    rng = np.random.default_rng(support)
    n = support + 60
    sizes = [support, support - 1, 1, 2, support // 2, support, support]
    rows = np.array([distribution(rng, "simplex", n, size) for size in sizes])
    rows[-1] = rows[0]
    solver = select.backend("cuda", dtype).solver(rows_of(rows), (np.arange(len(rows)),), bm.Exact(p), True)
    others = rows * rng.random(rows.shape)
    others /= others.sum(axis=1, keepdims=True)
    for masses, kind in ((rows, "uniform"), (rows, "ties"), (others, "ties"), (others, "line"), (rows, "zeros")):
        d = ground(rng, kind, n)
        solver.follow(rows_of(masses))
        ours, report = filled(solver, d, 1e-11)
        inside = np.triu_indices(len(rows), 1)
        expected, _ = table_on("cpu", bm.Exact(p), masses, d)
        assert np.abs(ours[inside] - expected).max() <= report.error + 4e-7 * d.max() * (dtype == "float32") + 1e-14
        np.testing.assert_allclose(ours[inside], expected, atol=1e-6 if dtype == "float64" else 3e-3)


def test_equal_rows_are_at_distance_zero():
    rng = np.random.default_rng(0)
    for support in (3, 4, 8, 12, 20, 32):
        rows = np.repeat(distribution(rng, "simplex", 80, support)[None], 3, axis=0)
        for dtype in ("float64", "float32"):
            for p in (1.0, 2.0):
                ours, _ = table_on("cuda", bm.Exact(p), rows, ground(rng, "line", 80), dtype)
                assert (ours == 0.0).all()


@pytest.mark.parametrize("reg", [0.01, 1e-3])
def test_small_regularisation_stays_finite(reg):
    rng = np.random.default_rng(1)
    for support in (5, 12):
        rows = np.array([distribution(rng, "tiny", 60, support) for _ in range(5)])
        d = 10.0 * ground(rng, "uniform", 60)
        ours, _ = table_on("cuda", bm.Sinkhorn(reg), rows, d, accuracy=1e-5)
        np.testing.assert_allclose(ours, table_on("cpu", bm.Sinkhorn(reg), rows, d, accuracy=1e-5)[0], atol=1e-4)


@every_transport
@pytest.mark.parametrize("match", [None, "labels", "hausdorff"])
def test_solutions_equal_those_of_the_cpu(transport, match):
    model = random_chain(3, 13) if match is None else random_mdp(3, 9)
    ours, theirs = (bm.solve_metric(model, transport, match=match, tol=1e-5, device=x) for x in ("cuda", "cpu"))
    assert ours.status is theirs.status
    assert isinstance(ours.distance, np.ndarray)
    np.testing.assert_allclose(ours.distance, theirs.distance, atol=3e-5)
    np.testing.assert_array_equal(ours.distance, ours.distance.T)
    lower, upper = ours.bracket()
    exact = bm.solve_metric(model, bm.Exact(transport.p), match=match, tol=1e-8).distance
    assert (lower <= exact + 1e-7).all()
    assert (exact <= upper + 1e-7).all()


@pytest.mark.parametrize("match", [None, "labels", "hausdorff"])
@pytest.mark.parametrize(
    "transport",
    [bm.Exact(1), bm.Exact(2), bm.Sinkhorn(1), bm.Sinkhorn(1, 2, cost="value"), bm.KLBall(1)],
    ids=str,
)
def test_whole_numbers_are_numbers(transport, match):
    """Kernels take their settings as doubles, also where these were given as whole numbers (the stand-in looks)."""
    model = random_chain(4, 7) if match is None else random_mdp(4, 5)
    settings = {"match": match, "transition_weight": 0, "reward_weight": 1, "tol": 1}
    ours, theirs = (bm.solve_metric(model, transport, device=device, **settings) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(ours.distance, theirs.distance, atol=1e-9)
    for weight in (0, 0.5):
        sol = bm.solve_metric(model, transport, device="cuda", **settings | {"transition_weight": weight, "tol": 1e-3})
        assert (sol.bracket()[0] <= sol.bracket()[1]).all()


@pytest.mark.parametrize("n", [1, 2, 3, 31, 33, 65])
def test_awkward_sizes(n):
    chain = random_chain(n, n, support=min(3, n))
    for transport in (bm.Exact(), bm.Sinkhorn(0.5)):
        ours, theirs = (
            bm.solve_metric(
                chain,
                transport,
                tol=1e-4,
                device=x,
                lump=False if x == "cuda" and isinstance(transport, bm.Exact) else None,
            ).distance
            for x in ("cuda", "cpu")
        )
        np.testing.assert_allclose(ours, theirs, atol=3e-4)


@pytest.mark.parametrize("branching", [5, 11])
@pytest.mark.parametrize("transport", [bm.Exact(), bm.Sinkhorn(0.3), bm.KLBall(0.1)], ids=name)
def test_results_do_not_depend_on_blocks(transport, branching, monkeypatch):
    mdp = bm.problems.garnet(n_states=23, n_actions=1, branching=branching, seed=2)
    chain = mdp.under(mdp.uniform_policy())
    whole = bm.solve_metric(chain, transport, tol=1e-6, device="cuda").distance
    monkeypatch.setattr("bisimetric.backends.cuda.sweeper._UNIT_BYTES", 23 * 8 * 4)
    monkeypatch.setattr(pairs, "cache_bytes", lambda: 23 * 8 * 8 * 4)
    np.testing.assert_array_equal(bm.solve_metric(chain, transport, tol=1e-6, device="cuda").distance, whole)


@pytest.mark.parametrize("transport", [bm.Exact(), bm.Sinkhorn(0.2), bm.KLBall(0.1)], ids=name)
def test_what_is_kept_is_carried_over(transport):
    """Rows that change their successors start cold, the others go on; the answer is that of a cold start."""
    mdp = bm.problems.garnet(n_states=20, n_actions=2, branching=3, seed=4)
    first = mdp.under(np.tile([0.5, 0.5], 20))
    policy = np.tile([0.5, 0.5], 20)
    policy[:6] = np.tile([1.0, 0.0], 3)
    second = mdp.under(policy)
    sweeper = sweeper_for(first, transport, device="cuda")
    d = np.zeros((20, 20))
    for _ in range(4):
        sweep(sweeper, d, 1e-9)
    sweeper.follow(second)
    fresh = sweeper_for(second, transport, device="cuda")
    other = d.copy()
    sweep(sweeper, d, 1e-9)
    sweep(fresh, other, 1e-9)
    np.testing.assert_allclose(d, other, atol=1e-7)
    remembered = sweeper.solver.remembered()
    fresh.solver.recall(remembered)
    for key, array in fresh.solver.remembered().items():
        np.testing.assert_array_equal(array, remembered[key])


@pytest.mark.parametrize(
    "transport", [bm.Sinkhorn(1.0, diagonal="zero"), bm.Exact(), bm.Independent(diagonal="zero")], ids=name
)
def test_policy_runs_equal_those_of_the_cpu(transport):
    mdp = bm.problems.chain(n_states=40, n_classes=4, seed=1)
    ours, theirs = (
        bm.solve_policy(
            mdp,
            transport=transport,
            step_size=bm.Constant(0.25),
            greedy_noise=(0.01, 0.1),
            steps=4,
            seed=5,
            lump=False,
            device=x,
        )
        for x in ("cuda", "cpu")
    )
    for a, b in zip(ours.history, theirs.history, strict=True):
        assert (a.n_classes, a.sweeps) == (b.n_classes, b.sweeps)
        assert a.error == pytest.approx(b.error, abs=1e-9)
    assert isinstance(ours.distance, np.ndarray)
    np.testing.assert_allclose(ours.distance, theirs.distance, atol=1e-5)


def test_warm_restarts_leave_the_first_solution_alone():
    chain = random_chain(5, 12)
    loose = bm.solve_metric(chain, bm.Sinkhorn(0.5), tol=1e-1, device="cuda")
    before = loose.distance.copy()
    tight = bm.solve_metric(chain, bm.Sinkhorn(0.5), tol=1e-6, start=loose, device="cuda")
    np.testing.assert_array_equal(loose.distance, before)
    cold = bm.solve_metric(chain, bm.Sinkhorn(0.5), tol=1e-6)
    np.testing.assert_allclose(tight.distance, cold.distance, atol=3e-6)
    assert tight.sweeps < cold.sweeps


def test_memory_is_planned(monkeypatch):
    """Too little for the arrays: an error with the sizes. Too little for what is kept: it is dropped."""
    chain = random_chain(1, 30, support=5)
    monkeypatch.setattr("bisimetric.backends.cuda.kernels.free_bytes", lambda: 10_000)
    with pytest.raises(bm.DeviceError, match=r"30 states in float64 need .* GB of device memory are free"):
        bm.solve_metric(chain, bm.Sinkhorn(0.5), device="cuda")
    monkeypatch.setattr("bisimetric.backends.cuda.kernels.free_bytes", lambda: 22_000)
    dropped = bm.solve_metric(chain, bm.Sinkhorn(0.5), tol=1e-4, device="cuda")
    assert dropped.kept_bytes == 0
    np.testing.assert_allclose(dropped.distance, bm.solve_metric(chain, bm.Sinkhorn(0.5), tol=1e-4).distance, atol=3e-4)


@pytest.mark.parametrize("transport", [bm.Exact(), bm.Sinkhorn(0.5), bm.KLBall(0.1)], ids=name)
def test_what_is_kept_shrinks_with_memory(transport, monkeypatch):
    """Room for some pairs: those of the first rows are kept, also when rows change their successors."""
    monkeypatch.setattr("bisimetric.backends.cuda.sweeper._UNIT_BYTES", 30 * 8 * 4)  # four rows a block
    first, second = (random_chain(seed, 30, support=5) for seed in (1, 2))
    whole = sweeper_for(first, transport, device="cuda", dtype="float64")
    everything = whole.solver.memory.nbytes
    square = 30 * 30 * 8
    room = int(transport.squares * square + 0.4 * everything)
    monkeypatch.setattr("bisimetric.backends.cuda.kernels.free_bytes", lambda: room)
    sweeper = sweeper_for(first, transport, device="cuda", dtype="float64")
    memory = sweeper.solver.memory
    assert 0 < memory.nbytes < 0.5 * everything
    assert 0 < sum(len(memory.up_to(0, a1)) > 0 for a1 in range(1, 31)) < 30  # rows whose pairs are remembered
    for chain in (first, second):
        sweeper.follow(chain)
        ours, theirs = np.zeros((30, 30)), np.zeros((30, 30))
        on_host = sweeper_for(chain, transport)
        for _ in range(6):
            sweep(sweeper, ours, 1e-7)
            sweep(on_host, theirs, 1e-7)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_errors_of_the_device_are_explained():
    chain = random_chain(1, 10)
    runtime = sys.modules["cupy"].cuda.runtime
    for attribute, answer, text in (
        ("getDeviceCount", lambda: 0, "no CUDA device was found"),
        ("driverGetVersion", lambda: 11020, r"supports version 11\.2"),
        ("driverGetVersion", lambda: 0, "no CUDA driver is installed"),
    ):
        kept = getattr(runtime, attribute)
        setattr(runtime, attribute, answer)
        device.check.cache_clear()
        with pytest.raises(bm.DeviceError, match=text):
            bm.solve_metric(chain, device="cuda")
        setattr(runtime, attribute, kept)
    device.check.cache_clear()

    class OutOfMemoryError(MemoryError):
        pass

    sweeper = sweeper_for(chain, bm.Exact(), device="cuda")

    def fail(*_):
        raise OutOfMemoryError("allocating 5 bytes")

    sweeper.solver.fill = fail
    with pytest.raises(bm.DeviceError, match="out of device memory"):
        sweeper.sweep(sweeper.backend.zeros((10, 10)))


@pytest.mark.parametrize("reg", [1.0, 0.1, 0.02])
def test_dense_rows_equal_those_of_the_cpu(reg):
    """Matrix products, with Newton steps for slow pairs, and the few that are left to the other kernel."""
    n = 40
    mdp = bm.problems.chain(n_states=n, n_classes=4, seed=0, mixing=0.3)
    rows = mdp.under(mdp.uniform_policy()).rows.matrix().toarray()
    assert matrix_like(rows_of(rows))
    points = np.random.default_rng(0).random((n, 3))
    d = 3.0 * np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    for transport in (bm.Sinkhorn(reg), bm.Sinkhorn(reg, cost="value")):
        (ours, report), (theirs, _) = (table_on(where, transport, rows, d, accuracy=1e-9) for where in ("cuda", "cpu"))
        assert report.error <= 1e-9
        assert np.abs(ours - theirs).max() <= 1e-8


def _some_distances():
    """Grounds of all kinds, and lines on which states wait for each other one by one, along their index and against."""
    for n in (1, 2, 3, 7, 40):
        for kind in GROUNDS:
            rng = np.random.default_rng(n)
            yield ground(rng, kind, n) + (0.3 * np.eye(n) if kind == "zeros" else 0.0)
    for places in (np.cumsum(np.linspace(0.5, 1.0, 60)), np.arange(60.0)[::-1]):
        yield np.abs(places[:, None] - places[None, :])


@pytest.mark.usefixtures("all_on_device")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("rule", "rounds"), [("radius", 1), ("radius", 8), ("diameter", 8)])
def test_classes_equal_those_of_the_cpu(rule, rounds, dtype, monkeypatch):
    """Also where one round leaves most to the block that goes through the states one by one."""
    monkeypatch.setattr(classes, "_ROUNDS", rounds)
    for d in (x.astype(dtype) for x in _some_distances()):
        n = len(d)
        for eps in (0.0, 0.4, 1.0):
            for weights in (None, np.random.default_rng(n).integers(1, 5, n).astype(float)):
                ours, theirs = (bm.EpsilonCover(eps, rule)(x, weights) for x in (d.view(emulated_cuda.OnDevice), d))
                np.testing.assert_array_equal(ours.class_of, theirs.class_of)
                np.testing.assert_array_equal(ours.medoids, theirs.medoids)
                assert (ours.radius, ours.diameter) == (theirs.radius, theirs.diameter)
        V = np.random.default_rng(n).random(n)
        gaps = [x.value_gap(d, V) for x in (cuda_kernels, cpu_kernels)]
        assert gaps[0] == pytest.approx(gaps[1], rel=1e-6)


@pytest.mark.usefixtures("all_on_device")
def test_parts_of_larger_arrays_are_seen_as_they_are():
    d = ground(np.random.default_rng(0), "uniform", 30)
    ours, theirs = (bm.EpsilonCover(0.2)(x) for x in (d.view(emulated_cuda.OnDevice)[::2, ::2], d[::2, ::2]))
    np.testing.assert_array_equal(ours.class_of, theirs.class_of)
    assert ours.diameter == theirs.diameter


@pytest.mark.usefixtures("all_on_device")
def test_distances_on_a_device_are_checked():
    d = np.zeros((3, 3))
    d[1, 2] = d[2, 1] = np.inf
    with pytest.raises(ValueError, match="finite"):
        bm.EpsilonCover(0.1)(d.view(emulated_cuda.OnDevice))
    with pytest.raises(ValueError, match="square"):
        bm.EpsilonCover(0.1)(d[:2].view(emulated_cuda.OnDevice))


@pytest.mark.parametrize("n_classes", [1, 5, 60])
def test_values_by_iteration_equal_those_of_the_cpu(n_classes):
    chain = random_chain(2, 60)
    rng = np.random.default_rng(n_classes)
    part = bm.Partition.from_classes(np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, 60 - n_classes)]))
    shares = class_shares(part, rng.random(60) + 0.1)
    found = [
        select.backend(x, "float64").averaged_values(chain, part.class_of, shares, np.zeros(n_classes), 1e-12)
        for x in ("cuda", "cpu")
    ]
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-11)
    assert max(change for _, change in found) <= 1e-12
    A, R = np.empty((n_classes, n_classes)), np.empty(n_classes)
    select.host().averaged_system(chain, part.class_of, shares, A, R)
    np.testing.assert_allclose(found[0][0], np.linalg.solve(A, R), atol=1e-10)


@pytest.mark.parametrize(("kind", "part"), [(DeviceDistances, "near"), (CudaSweeper, "follow"), (CudaSweeper, "start")])
def test_memory_that_runs_out_in_a_policy_run_is_explained(kind, part, monkeypatch):
    def fail(*_):
        raise MemoryError("allocating 5 bytes")

    monkeypatch.setattr(kind, part, fail)
    with pytest.raises(bm.DeviceError, match=r"out of device memory \(allocating 5 bytes\).*20 states in float64 need"):
        bm.solve_policy(bm.problems.chain(n_states=20, n_classes=4), transport=bm.Sinkhorn(1.0), steps=2, device="cuda")


def test_memory_that_runs_out_in_a_bracket_is_explained(monkeypatch):
    def fail(*_):
        raise MemoryError("allocating 5 bytes")

    solution = bm.solve_metric(random_chain(1, 10), bm.Sinkhorn(0.5), tol=1e-3, device="cuda")
    monkeypatch.setattr(CudaSweeper, "bounds", fail)
    with pytest.raises(bm.DeviceError, match="out of device memory"):
        solution.bracket()


def handed_out_with(byte):
    """A stand-in for CuPy whose new memory is full of this byte, as memory is that others have used."""
    fake = emulated_cuda.fake_cupy()

    def empty(shape, dtype=float):
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8)[:] = byte
        return array

    fake.empty, fake.empty_like = empty, lambda like, dtype=None: empty(like.shape, dtype or like.dtype)
    return fake


@pytest.mark.parametrize("transport", [*EVERY_TRANSPORT, bm.Exact(1.5), bm.KLBall(0.2, 2.0)], ids=name)
@pytest.mark.parametrize("model", ["first", "wide", "dense", "labels", "rectangle"])
def test_what_new_memory_holds_does_not_matter(transport, model, monkeypatch):
    """Pairs that are done before they are begun (equal costs, bounds that meet) leave nothing for a later start."""
    if model == "rectangle" and getattr(transport, "diagonal", "kept") == "zero":
        pytest.skip("between two models there is no diagonal")
    mdp = {
        "first": lambda: bm.problems.chain(n_states=16, n_classes=4, seed=1),
        "wide": lambda: bm.problems.garnet(n_states=24, n_actions=2, branching=10, seed=2),
        "dense": lambda: bm.problems.garnet(n_states=12, n_actions=2, branching=12, seed=2),
        "labels": lambda: random_mdp(3, 9),
        "rectangle": lambda: random_mdp(4, 7),
    }[model]()
    found = []
    for byte in (0, 0x54, 0x7F, 0xFF):  # zeros, 1e+98, large or no numbers
        monkeypatch.setitem(sys.modules, "cupy", handed_out_with(byte))
        if model == "rectangle":
            sol = bm.compare(mdp, random_mdp(4, 7), transport, match="labels", tol=1e-2, max_sweeps=12, device="cuda")
        elif model == "labels":
            sol = bm.solve_metric(mdp, transport, match="labels", tol=1e-2, max_sweeps=12, device="cuda")
        else:
            chain = mdp.under(mdp.uniform_policy())
            sol = bm.solve_metric(chain, transport, tol=1e-2, max_sweeps=12, device="cuda", lump=False)
        found.append((sol.distance.tobytes(), sol.error, sol.sweeps, *(side.tobytes() for side in sol.bracket())))
    assert all(one == found[0] for one in found)


def test_small_models_are_measured_on_a_device_too():
    mdp = bm.problems.gridworld(width=5, height=5)
    found = bm.abstract(mdp, size=6, match="labels", device="cuda")
    assert found.cross.metric.question.device == "cuda"
    again = bm.cross(mdp, found.small, match="labels", tol=1e-6)  # of the same small model, on the CPU
    np.testing.assert_allclose(found.radii, again.radius, atol=found.cross.error + again.error)
    assert found.radius == pytest.approx(bm.abstract(mdp, size=6, match="labels").radius, abs=0.01)
    with pytest.raises(ValueError, match="device must be"):
        bm.abstract(mdp, size=6, match="labels", device="gpu")


@pytest.mark.parametrize("far", [1e6, 1e15, 1e17, -1e17, 1.19e103, -1e300])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_starts_from_far_away_leave_the_errors_of_balls_true(device, far):
    """Kept logarithms that are not of this problem may keep a pair from its accuracy; its error then says so."""
    rng, n = np.random.default_rng(3), 30
    rows = np.array([distribution(rng, "simplex", n, 6) for _ in range(6)])
    d = rng.random((n, n))
    d = 0.5 * (d + d.T)
    np.fill_diagonal(d, 0.0)
    solver = select.backend(device, "float64").solver(rows_of(rows), (np.arange(6),), bm.KLBall(0.2), True)
    cold, first = filled(solver, d, 1e-6)
    solver.recall({key: np.where(np.isfinite(kept), far, kept) for key, kept in solver.remembered().items()})
    warm, second = filled(solver, d, 1e-6)
    pairs = np.triu_indices(6, 1)
    assert np.abs(warm - cold)[pairs].max() <= first.error + second.error
