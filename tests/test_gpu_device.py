"""On a CUDA device: the kernels with one warp a pair, sizes that fill it, and the laws, against the CPU.

Without a device all of these are skipped. Run them with `pytest -m gpu`.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import rectangles
from sweepers import sweeper_for

import bisimetric as bm
from bisimetric.backends import select
from bisimetric.backends.cpu import kernels as cpu_kernels
from bisimetric.backends.cuda import kernels as cuda_kernels
from bisimetric.backends.errors import DeviceError
from bisimetric.policy import folder


def _device() -> str:
    """Why there is no device, or nothing."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        select.backend("cuda", "float64")
    except DeviceError as error:
        return str(error)
    return ""


MISSING = _device()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is a device")]

TRANSPORTS = (
    bm.Exact(),
    bm.Exact(2.0),
    bm.Sinkhorn(1.0, diagonal="zero"),
    bm.Sinkhorn(0.1),
    bm.Sinkhorn(0.01),
    bm.Sinkhorn(0.5, cost="value"),
    bm.Sinkhorn(0.5, cost="value", p=2.0),
    bm.Independent(),
    bm.KLBall(0.2),
)


def models():
    """Supports of 4, 8, 20 and 30 states, dense rows, and MDPs; sizes that are a multiple of nothing."""
    uniform = {
        "4": bm.problems.garnet(n_states=131, n_actions=1, branching=4, seed=1),
        "8": bm.problems.garnet(n_states=71, n_actions=2, branching=4, seed=1),
        "20": bm.problems.chain(n_states=90, n_classes=9),
        "30": bm.problems.detours(n_states=120, n_classes=12),
        "40": bm.problems.garnet(n_states=90, n_actions=10, branching=4, seed=2),
        "dense": bm.problems.chain(n_states=40, n_classes=8, mixing=0.2, gamma=0.8),
    }
    mdp = bm.problems.garnet(n_states=53, n_actions=2, branching=4, seed=3)
    chains = {key: (model.under(model.uniform_policy()), None) for key, model in uniform.items()}
    return {**chains, "labels": (mdp, "labels"), "hausdorff": (mdp, "hausdorff")}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("transport", TRANSPORTS, ids=str)
@pytest.mark.parametrize("kind", list(models()))
def test_solutions_equal_those_of_the_cpu(kind, transport, dtype):
    model, match = models()[kind]
    settings = {
        "match": match,
        "tol": 1e-4,
        "max_sweeps": 20,
        "accelerate": False,  # choices of an MDP are extrapolated on a device, and solved for on the CPU
        **({"lump": False} if isinstance(transport, bm.Exact) else {}),
    }
    ours = bm.solve_metric(model, transport, device="cuda", dtype=dtype, **settings).distance
    theirs = bm.solve_metric(model, transport, **settings).distance
    assert np.isfinite(ours).all()
    np.testing.assert_array_equal(ours, ours.T)
    np.testing.assert_allclose(ours, theirs, atol=5e-4 if dtype == "float64" else 5e-3)


@pytest.mark.parametrize("transport", TRANSPORTS, ids=str)
def test_accelerated_solutions_are_within_their_errors(transport):
    for kind, (model, match) in models().items():
        if not transport.axioms.nonexpansive:
            continue
        ours, theirs = (
            bm.solve_metric(model, transport, match=match, tol=1e-3, device=device, lump=False if kind == "4" else None)
            for device in ("cuda", "cpu")
        )
        assert np.abs(ours.distance - theirs.distance).max() <= ours.error + theirs.error


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("transport", rectangles.TRANSPORTS, ids=str)
@pytest.mark.parametrize("kind", list(rectangles.two_models()))
def test_two_models_are_compared_as_on_the_cpu(kind, transport, dtype):
    rectangles.check(kind, transport, dtype, "cuda", scale=3)


def test_every_entry_is_written():
    model = models()["20"][0]
    for transport in TRANSPORTS:
        xp, solver = cuda_kernels.cupy(), sweeper_for(model, transport, device="cuda").solver
        d = xp.asarray(bm.solve_metric(model, bm.Independent(), tol=0.1).distance)
        solver.prepare(d, 1e-9)
        out = xp.full(d.shape, np.nan)
        solver.fill(0, 0, len(d), out, solver.tally)
        assert np.isfinite(xp.asnumpy(out)[np.triu_indices(len(d), 1)]).all(), transport


@pytest.mark.parametrize("reg", [1.0, 0.1, 0.01])
def test_policy_runs_equal_those_of_the_cpu(reg):
    mdp = bm.problems.chain(n_states=100, n_classes=10)
    ours, theirs = (
        bm.solve_policy(mdp, transport=bm.Sinkhorn(reg, diagonal="zero"), steps=6, seed=2, device=x)
        for x in ("cuda", "cpu")
    )
    for a, b in zip(ours.history, theirs.history, strict=True):
        assert (a.n_classes, a.sweeps) == (b.n_classes, b.sweeps)
    np.testing.assert_allclose(ours.distance, theirs.distance, atol=1e-4)


def test_results_do_not_depend_on_blocks(monkeypatch):
    for kind in ("4", "8", "20"):
        model = models()[kind][0]
        whole = bm.solve_metric(model, bm.Sinkhorn(0.5), tol=1e-4, device="cuda").distance
        monkeypatch.setattr("bisimetric.backends.cuda.sweeper._UNIT_BYTES", model.n_states * 8 * 7)
        np.testing.assert_array_equal(bm.solve_metric(model, bm.Sinkhorn(0.5), tol=1e-4, device="cuda").distance, whole)
        monkeypatch.undo()


@pytest.mark.parametrize("transport", [bm.Exact(), bm.Sinkhorn(0.5), bm.Sinkhorn(0.1, cost="value")], ids=str)
def test_brackets_hold_the_exact_metric(transport):
    for kind in ("8", "20", "dense"):
        model = models()[kind][0]
        lower, upper = bm.solve_metric(model, transport, tol=1e-3, device="cuda", max_sweeps=60).bracket()
        exact = bm.solve_metric(model, bm.Exact(), tol=1e-6, max_sweeps=400).distance
        assert (lower <= exact + 1e-5).all()
        assert (exact <= upper + 1e-5).all()


@pytest.mark.parametrize("reg", [1.0, 0.1])
def test_dense_policy_runs_equal_those_of_the_cpu(reg):
    """Matrix products with Newton steps and what is kept between policies; a budget of classes."""
    mdp = bm.problems.chain(n_states=100, n_classes=10, mixing=0.05)
    ours, theirs = (
        bm.solve_policy(
            mdp,
            transport=bm.Sinkhorn(reg, diagonal="zero"),
            aggregation=bm.KMedoids(15, seed=0),
            step_size=bm.Constant(0.5),
            greedy_noise=(0.05, 0.1),
            steps=5,
            seed=2,
            device=x,
            lump=False,
        )
        for x in ("cuda", "cpu")
    )
    assert [step.sweeps for step in ours.history] == [step.sweeps for step in theirs.history]
    np.testing.assert_allclose(ours.distance, theirs.distance, atol=1e-4)


def test_run_folders_resume_to_the_same_policy(tmp_path):
    mdp = bm.problems.chain(n_states=60, n_classes=6)
    settings = bm.PolicySettings(
        transport=bm.Sinkhorn(0.5, diagonal="zero"),
        aggregation=bm.EpsilonCover(0.1),
        step_size=bm.Constant(0.5),
        sweeps=10,
        greedy_noise=(0.05, 0.1),
        steps=8,
        lump=False,
        device="cuda",
    )

    def interrupt(step):
        if step.k == 3:
            raise KeyboardInterrupt

    results = []
    for name, observers in (("whole", ()), ("broken", (interrupt,))):
        folder.begin(tmp_path / name, {"settings": "as above"}, mdp)
        results.append(folder.run(mdp, settings, tmp_path / name, observers=observers))
    assert results[1].status is bm.Status.INTERRUPTED
    resumed = folder.run(mdp, settings, tmp_path / "broken")
    np.testing.assert_array_equal(resumed.policy, results[0].policy)
    np.testing.assert_allclose(resumed.distance, results[0].distance, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rule", ["radius", "diameter"])
@pytest.mark.parametrize("n", [1, 2, 33, 200, 1025, 2500])
def test_classes_equal_those_of_the_cpu(n, rule, dtype, monkeypatch):
    """Few and many classes, ties, weights, and a line on which medoids are decided one after the other."""
    monkeypatch.setattr("bisimetric.backends.cuda.distances._FEW_STATES", 0)  # else few are left to the host
    xp, rng = cuda_kernels.cupy(), np.random.default_rng(n)
    line = np.abs(np.subtract.outer(*[np.cumsum(np.linspace(0.5, 1.0, n))] * 2))
    points = rng.random((n, 2))
    plane = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    for d in (line, plane, np.floor(8.0 * plane), plane + 0.5 * np.eye(n)):
        d = d.astype(dtype)  # noqa: PLW2901
        for eps in (0.0, 0.05, 0.4):
            for weights in (None, rng.integers(1, 5, n).astype(float)):
                ours, theirs = (bm.EpsilonCover(eps, rule)(x, weights) for x in (xp.asarray(d), d))
                np.testing.assert_array_equal(ours.class_of, theirs.class_of)
                np.testing.assert_array_equal(ours.medoids, theirs.medoids)
                assert (ours.radius, ours.diameter) == (theirs.radius, theirs.diameter)
        V = rng.random(n)
        gap = cuda_kernels.value_gap(xp.asarray(d), V)
        assert gap == pytest.approx(cpu_kernels.value_gap(d, V), rel=1e-6)


@pytest.mark.parametrize("eps", [0.0, 0.3])
def test_policy_runs_of_many_states_equal_those_of_the_cpu(eps):
    """Classes and values by iteration on the device: many classes, and few with many states."""
    mdp = bm.problems.garnet(n_states=700, n_actions=2, branching=3, seed=0)
    ours, theirs = (
        bm.solve_policy(
            mdp,
            transport=bm.Independent(diagonal="zero"),
            aggregation=bm.EpsilonCover(eps, "diameter"),
            step_size=bm.Constant(0.5),
            steps=4,
            sweeps=5,
            device=x,
        )
        for x in ("cuda", "cpu")
    )
    for a, b in zip(ours.history, theirs.history, strict=True):
        assert a.n_classes == b.n_classes
        for name in ("error", "bound", "metric_gap", "diameter", "abstract_error"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-8)
    np.testing.assert_allclose(ours.abstract_value, theirs.abstract_value, atol=1e-8)


def test_runs_of_a_batch_are_those_alone():
    mdp = bm.problems.chain(n_states=100, n_classes=10)
    dense = bm.problems.chain(n_states=60, n_classes=6, mixing=0.1)
    variants = [
        *({"seed": seed} for seed in range(5)),
        {"transport": bm.Exact(), "lump": False},
        {"mdp": dense, "steps": 3},
        {"transport": bm.Sinkhorn(0.1, diagonal="zero"), "aggregation": bm.KMedoids(12)},
        {"dtype": "float32"},
        {"transport": bm.Independent(diagonal="zero")},
    ]
    common = {
        "transport": bm.Sinkhorn(1.0, diagonal="zero"),
        "step_size": bm.Constant(0.25),
        "steps": 8,
        "greedy_noise": (0.05, 0.1),
        "device": "cuda",
    }
    for changes, ours in zip(variants, bm.solve_policies(mdp, variants, side_by_side=6, **common), strict=True):
        arguments = {"mdp": mdp, **common, **changes}
        alone = bm.solve_policy(arguments.pop("mdp"), **arguments)
        np.testing.assert_array_equal(ours.policy, alone.policy)
        np.testing.assert_array_equal(ours.distance, alone.distance)


def test_the_device_has_a_name():
    assert select.backend("cuda", "float64").describe()
