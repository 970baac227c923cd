"""Runs of the experiments: their ids, what they compute, and the distributions and distances of the appendix."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import ot
import pytest
from scipy.optimize import linprog

import bisimetric as bm
from bisimetric.paper import FIGURES, experiments, figure
from bisimetric.paper.jobs import (
    CURVES,
    QUANTILES,
    PolicyJob,
    Problem,
    SharpnessJob,
    can_run,
    job_id,
    transport_between,
)
from bisimetric.paper.jobs import with_entropy as point_of_entropy
from bisimetric.paper.settings import AUTHORS, FULL, NOISE, PROFILES, QUICK, TEXT, Variant
from bisimetric.policy.folder import TIMES

SMALL = Problem.of("chain", n_states=12, n_classes=4, gamma=0.9, seed=1)
POLICY = PolicyJob(
    SMALL, bm.Sinkhorn(1.0, diagonal="zero"), bm.EpsilonCover(0.1), bm.PowerDecay(0.8, 0.01), 3, 7, probes=(0, 2, 6)
)
SHARP = SharpnessJob(2, 0.1, 1.0, (3, 4), 0)

# Another value for each setting of a run.
OTHER_POLICY = {
    "problem": replace(SMALL, name="staircase"),
    "transport": bm.Sinkhorn(1.0),
    "aggregation": bm.EpsilonCover(0.2),
    "step_size": bm.Constant(1.0),
    "seed": 4,
    "steps": 8,
    "sweeps": 5,
    "warm": False,
    "noise": None,
    "probes": (0, 2),
    "potentials": False,
    "ties": "first",
    "medoids": 3,
}
OTHER_SHARP = {
    "dimension": 3,
    "reg": math.inf,
    "entropy": 1.5,
    "pairs": (3, 5),
    "seed": 1,
    "points": 31,
    "radius": 1.0,
    "reference": 0.03,
}


# ---- ids ----


@pytest.mark.parametrize(("job", "others"), [(POLICY, OTHER_POLICY), (SHARP, OTHER_SHARP)], ids=["policy", "sharpness"])
def test_ids_tell_all_settings_apart(job, others):
    assert set(others) == {field.name for field in fields(job)}  # a new setting must be looked at here
    changed = [replace(job, **{name: value}) for name, value in others.items()]
    assert len({job_id(one) for one in [job, *changed]}) == len(others) + 1
    assert job_id(replace(job)) == job_id(job)


@pytest.mark.parametrize(
    "changed",
    [
        replace(POLICY, transport=bm.Sinkhorn(1.0, diagonal="zero", marginal_tol=1e-7)),
        replace(POLICY, transport=bm.Sinkhorn(1.0, 2.0, diagonal="zero")),
        replace(POLICY, transport=bm.Sinkhorn(1.0, cost="value", diagonal="zero")),
        replace(POLICY, transport=bm.Independent(diagonal="zero")),
        replace(POLICY, transport=bm.Exact()),
        replace(POLICY, aggregation=bm.EpsilonCover(0.1, "diameter")),
        replace(POLICY, aggregation=bm.KMedoids(3, 0)),
        replace(POLICY, step_size=bm.PowerDecay(0.8, 0.02)),
        replace(POLICY, noise=(0.05, 0.2)),
        replace(POLICY, problem=Problem.of("chain", n_states=12, n_classes=4, gamma=0.99, seed=1)),
    ],
)
def test_ids_tell_settings_of_settings_apart(changed):
    assert job_id(changed) != job_id(POLICY)


def test_the_order_of_a_problems_arguments_does_not_matter():
    assert Problem.of("chain", seed=1, gamma=0.9, n_classes=4, n_states=12) == SMALL
    assert SMALL.build().n_states == 12


def test_ids_are_the_same_in_other_processes():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_paper_jobs import *;"
        "print(job_id(POLICY)); print(job_id(SHARP))"
    )
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code, os.path.dirname(__file__)]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        said = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=300).stdout
        assert said.split() == [job_id(POLICY), job_id(SHARP)]


@pytest.mark.parametrize("profile", [QUICK, FULL], ids=["quick", "full"])
@pytest.mark.parametrize("variant", [TEXT, AUTHORS, Variant(cost="exact"), Variant(cost="value")])
def test_cells_of_all_figures(profile, variant):
    """Settings tell the runs of a figure apart, ids are names of files, and figures share equal runs."""
    found = {}
    for name in FIGURES:
        cells = figure(name).cells(profile, variant)
        keys = [tuple(cell.keys.items()) for cell in cells]
        assert len(set(keys)) == len(keys), name
        assert all(set(cell.keys) == set(cells[0].keys) and "seed" in cell.keys for cell in cells)
        for cell in cells:
            assert found.setdefault(job_id(cell.job), cell.job) == cell.job
            assert job_id(cell.job).isascii()
            assert not set(job_id(cell.job)) & set("/\\ :*?\"'<>|")
    jobs = experiments.jobs_of(FIGURES, profile, variant)
    assert {job_id(job) for job in jobs} == set(found)
    assert len(jobs) == len(found)


def test_sweeps_are_those_of_the_paper():
    def values(name, key, **part):
        cells = [c for c in figure(name).cells(FULL, TEXT) if all(c.keys[k] == v for k, v in part.items())]
        return {c.keys[key] for c in cells}

    assert values("alpha-ablation", "alpha") == {1.0, 0.5, 0.25, 2.0**-4, 2.0**-6}
    assert values("alpha-ablation", "mdp") == {"first", "second"}
    assert values("naive-vs-warm", "n") == {28, 7, 1}
    assert values("naive-vs-warm", "gamma") == {0.9, 0.99}
    assert values("lambda-ablation", "reg") == {0.0, 0.1, 1.0, 10.0, math.inf}
    assert values("p-ablation", "p") == {1.0, 2.0, 4.0}
    assert values("budget", "mixing") == {0.0, 0.05, 0.5}
    assert values("budget", "reg") >= {0.1, 1.0, math.inf}
    assert values("sharpness", "reg") == {0.1, 1.0, math.inf}
    assert values("sharpness", "dimension") == {2, 8, 32}
    assert values("distance-vs-value", "reg") == {0.25, 2.0, math.inf}
    assert values("distance-vs-value", "n") == {1, 5}
    assert values("value-functions", "mdp") == {"first", "second", "third"}
    for cell in figure("p-ablation").cells(FULL, TEXT):
        assert (cell.job.transport.reg, cell.job.aggregation.eps) == (0.1, 0.25)
    for cell in figure("alpha-ablation").cells(FULL, TEXT):
        assert cell.job.aggregation.eps == {"first": 0.1, "second": 0.04}[cell.keys["mdp"]]
        assert (cell.job.sweeps, cell.job.noise) == (28, NOISE)
        assert cell.job.aggregation.rule == {"chosen": "radius", "authors": "diameter"}[cell.keys["variant"]]
    for cell in figure("budget").cells(FULL, TEXT):
        assert cell.job.aggregation.k == 30
    for cell in figure("value-functions").cells(FULL, TEXT):
        assert (cell.job.steps, cell.job.aggregation.k) == (1000, 30)
        assert isinstance(cell.job.transport, bm.Independent)
    assert {cell.job.steps for cell in figure("distance-vs-value").cells(FULL, TEXT)} == {200}


@pytest.mark.parametrize("name", [n for n in FIGURES if n != "sharpness"])
def test_full_figures_have_ten_seeds(name):
    seeds = {cell.keys["seed"] for cell in figure(name).cells(FULL, TEXT)}
    assert seeds == set(range(10 if name != "runtime" else FULL.timed_seeds))


@pytest.mark.parametrize("name", ["alpha-ablation", "naive-vs-warm", "p-ablation", "runtime"])
def test_the_cost_is_switched_for_the_whole_run(name):
    """`cost="exact"` means λ = 0 wherever λ itself is not what is swept."""
    cells = figure(name).cells(QUICK, Variant(cost="exact"))
    cells = [c for c in cells if c.keys.get("variant") != "authors" and c.keys.get("sweep") != "lambda"]
    assert {type(cell.job.transport) for cell in cells} == {bm.Exact}


def test_variants_are_checked():
    for name in ("rule", "concentration", "cost", "advance"):
        with pytest.raises(ValueError, match=name):
            Variant(**{name: "no such"})
    assert set(PROFILES) == {"quick", "full"}
    assert QUICK.medoids == 18
    assert FULL.medoids == 30


# ---- policy iteration ----


@pytest.mark.parametrize(
    "job",
    [
        POLICY,
        replace(POLICY, transport=bm.Exact(), aggregation=bm.KMedoids(5, 3), step_size=bm.Constant(0.5), warm=False),
        replace(POLICY, sweeps=1, noise=None, steps=4, probes=(1,)),
        replace(POLICY, potentials=False),
    ],
    ids=["warm", "naive", "one sweep", "cold potentials"],
)
def test_a_run_is_policy_iteration(job, one_thread):
    arrays = job.run("cpu")
    expected = bm.solve_policy(
        job.problem.build(),
        transport=job.transport,
        aggregation=job.aggregation,
        step_size=job.step_size,
        sweeps=job.sweeps,
        restart_metric=not job.warm,
        greedy_noise=job.noise,
        ties=job.ties,
        steps=job.steps,
        seed=job.seed,
        early_stop=1e-3,
        lump=False,
    )
    close = {"rtol": 0.0, "atol": 0.0} if job.potentials else {"rtol": 1e-4, "atol": 1e-4}
    for name in CURVES:
        assert arrays[name].shape == (job.steps,)
        if name not in TIMES and (job.potentials or name != "iterations"):
            np.testing.assert_allclose(arrays[name], expected.curve(name), **close, err_msg=name)
    np.testing.assert_allclose(arrays["value"], expected.value, **close)
    np.testing.assert_allclose(arrays["abstract_value"], expected.abstract_value, **close)
    best = arrays["optimal_value"]
    assert np.abs(best - arrays["value"]).max() <= expected.certificate.error + 1e-9
    np.testing.assert_array_less(arrays["error"], arrays["bound"] + 1e-9)


def test_the_same_run_gives_the_same_arrays(one_thread):
    one, two = POLICY.run("cpu"), POLICY.run("cpu")
    assert one.keys() == two.keys()
    for name in one:
        if name not in TIMES:
            np.testing.assert_array_equal(one[name], two[name], err_msg=name)


def test_probes_are_quantiles_of_the_slack(one_thread):
    """At each probed step the quantiles agree with the step's own largest gap, and the share with the quantiles."""
    arrays = POLICY.run("cpu")
    boxes = arrays["boxes"]
    assert boxes.shape == (len(POLICY.probes), len(QUANTILES) + 1)
    assert (np.diff(boxes[:, :-1], axis=1) >= 0.0).all()
    for box, k in zip(boxes, POLICY.probes, strict=True):
        assert max(abs(box[0]), abs(box[-2])) == pytest.approx(arrays["metric_gap"][k], abs=1e-12)
        assert 0.0 <= box[-1] <= 1.0
        for q, edge in zip(QUANTILES, box, strict=False):
            if edge >= 0.0:
                assert box[-1] >= 1.0 - q - 2.0 / 66
    none = replace(POLICY, probes=()).run("cpu")["boxes"]
    assert none.shape == (0, len(QUANTILES) + 1)


def test_the_exact_metric_bounds_values_in_the_end(one_thread):
    job = replace(POLICY, transport=bm.Exact(), noise=None, step_size=bm.Constant(1.0), steps=10, probes=(9,))
    (box,) = job.run("cpu")["boxes"]
    assert box[0] >= -0.05  # early stopping at 1e-3 leaves c/(1 − c) times as much
    assert box[3] == pytest.approx(0.0, abs=0.05)  # and on the first MDP it is the difference of values


# ---- distributions of given entropy ----


def entropy(p):
    q = p[p > 0.0]
    return float(-(q * np.log2(q)).sum())


@pytest.mark.parametrize("bits", [0.0, 1e-6, 0.01, 0.5, 1.0, 2.5, 4.0, 4.5, 4.99, 5.0])
def test_points_of_the_simplex_have_the_entropy_asked_for(bits):
    rng = np.random.default_rng(5)
    for _ in range(5):
        p = point_of_entropy(rng, 32, bits)
        assert p.shape == (32,)
        assert (p >= 0.0).all()
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
        assert entropy(p) == pytest.approx(bits, abs=0.01)


def test_points_of_the_simplex_are_random():
    rng = np.random.default_rng(5)
    a, b = (point_of_entropy(rng, 32, 2.0) for _ in range(2))
    assert np.abs(a - b).max() > 0.01
    np.testing.assert_array_equal(a, point_of_entropy(np.random.default_rng(5), 32, 2.0))
    where = {int(np.argmax(point_of_entropy(rng, 8, 0.0))) for _ in range(200)}
    assert where == set(range(8))


# ---- transport between distributions ----


def sphere(n=9, dimension=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, dimension))
    x *= 0.5 / np.linalg.norm(x, axis=1, keepdims=True)
    d = np.linalg.norm(x[:, None] - x[None, :], axis=2)
    rows = [point_of_entropy(rng, n, bits) for bits in (0.0, 1.0, 2.0, 0.0, 0.5, 2.0, 3.0)]
    return rows, d


def by_linear_program(mu, nu, d):
    n = len(mu)
    marginals = np.vstack([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))])
    found = linprog(d.ravel(), A_eq=marginals, b_eq=np.concatenate([mu, nu]), bounds=(0.0, None), method="highs")
    assert found.success
    return found.fun


def by_plain_sinkhorn(mu, nu, d, reg):
    kernel = np.exp(-d / reg) * mu[:, None] * nu[None, :]
    u, v = np.ones_like(mu), np.ones_like(nu)
    for _ in range(3_000):
        u = np.divide(mu, kernel @ v, out=np.zeros_like(mu), where=mu > 0.0)
        v = np.divide(nu, kernel.T @ u, out=np.zeros_like(nu), where=nu > 0.0)
    return float((u[:, None] * kernel * v[None, :] * d).sum())


def test_exact_transport_between():
    rows, d = sphere()
    found = transport_between(bm.Exact(), rows, 3, d)
    assert found.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            assert found[i, j] == pytest.approx(ot.emd2(rows[i], rows[3 + j], d), abs=1e-9)
            assert found[i, j] == pytest.approx(by_linear_program(rows[i], rows[3 + j], d), abs=1e-7)


@pytest.mark.parametrize("reg", [0.1, 1.0])
def test_sinkhorn_between(reg):
    rows, d = sphere(seed=1)
    found = transport_between(bm.Sinkhorn(reg), rows, 3, d)
    for i in range(3):
        for j in range(4):
            assert found[i, j] == pytest.approx(by_plain_sinkhorn(rows[i], rows[3 + j], d, reg), abs=1e-6)
    assert (found >= transport_between(bm.Exact(), rows, 3, d) - 1e-6).all()


def test_independent_between():
    rows, d = sphere(seed=2)
    found = transport_between(bm.Independent(), rows, 3, d)
    np.testing.assert_allclose(found, np.array(rows[:3]) @ d @ np.array(rows[3:]).T, atol=1e-12)


def test_transport_between_leaves_its_arguments_alone():
    rows, d = sphere(seed=3)
    before = [row.copy() for row in rows], d.copy()
    transport_between(bm.Sinkhorn(0.1), rows, 2, d)
    np.testing.assert_array_equal(before[0], rows)
    np.testing.assert_array_equal(before[1], d)


# ---- sharpness ----


@pytest.mark.parametrize("reg", [0.1, 1.0, math.inf])
@pytest.mark.parametrize("dimension", [2, 32])
def test_sinkhorn_distances_are_exact_without_entropy(reg, dimension):
    """Also where both distributions are points, and even the same point: then nothing is wrong, and no warning."""
    for seed in range(4):
        arrays = SharpnessJob(dimension, reg, 0.0, (6, 8), seed).run("cpu")
        for name in ("relative_error", "reference_error"):
            assert arrays[name].shape == (6, 8)
            assert np.isfinite(arrays[name]).all(), (seed, name)
            assert np.abs(arrays[name]).max() <= 1e-6


def test_sharpness_is_lost_with_entropy():
    medians = [np.median(SharpnessJob(8, 1.0, bits, (5, 10), 0).run("cpu")["relative_error"]) for bits in (0.5, 2, 4)]
    assert 0.0 < medians[0] < medians[1] < medians[2]


def test_sharpness_falls_with_regularisation():
    errors = [SharpnessJob(8, reg, 2.0, (4, 6), 0).run("cpu")["relative_error"] for reg in (0.1, 1.0, math.inf)]
    assert (errors[0] > -1e-6).all()
    assert (errors[1] >= errors[0] - 1e-6).all()
    assert (errors[2] >= errors[1] - 1e-6).all()


def test_the_reference_of_the_sharpness_is_nearly_exact():
    arrays = SharpnessJob(8, 1.0, 2.0, (4, 6), 0).run("cpu")
    assert (arrays["reference_error"] >= -1e-6).all()
    assert np.median(arrays["reference_error"]) < np.median(arrays["relative_error"])


def test_timed_runs_choose_their_device():
    """The runtime figure has a row for each device; other runs take the device that is asked for."""
    timed = figure("runtime").cells(QUICK, TEXT)
    assert {cell.job.on for cell in timed} == {"cpu", "cuda"}
    assert all(cell.job.on == cell.keys["device"] and cell.job.alone for cell in timed)
    assert len({job_id(cell.job) for cell in timed}) == len(timed)
    other = figure("p-ablation").cells(QUICK, TEXT)[0].job
    box = figure("sharpness").cells(QUICK, TEXT)[0].job
    on_cpu, on_gpu = (next(cell.job for cell in timed if cell.job.on == where) for where in ("cpu", "cuda"))
    assert [can_run(job, "cpu") for job in (other, box, on_cpu, on_gpu)] == [True, True, True, False]
    assert [can_run(job, "cuda") for job in (other, box, on_cpu, on_gpu)] == [True] * 4
