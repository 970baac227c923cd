"""bisimetric truth: models, distractors, samples, rules, and results folders that survive being stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="bisimetric truth needs PyTorch: pip install torch")
pytest.importorskip("gymnasium", reason="two of its models are Gymnasium's: pip install gymnasium")

import bisimetric as bm  # noqa: E402
from bisimetric import learn, truth  # noqa: E402
from bisimetric.cli import run  # noqa: E402
from bisimetric.paper import store  # noqa: E402
from bisimetric.paper.evidence import Verdict  # noqa: E402
from bisimetric.paper.jobs import job_id  # noqa: E402
from bisimetric.paper.table import Row, Table, summary_csv  # noqa: E402
from bisimetric.truth import claims, distractors, drift, models, observations, settings, training  # noqa: E402
from bisimetric.truth import couplings as coupling_figure  # noqa: E402
from bisimetric.truth import report as pages  # noqa: E402
from bisimetric.truth import table as truth_table  # noqa: E402
from bisimetric.truth.losses import exact_loss, sampled_loss  # noqa: E402

MODELS = [name for name in settings.MODELS if name != "taxi"]  # which takes seconds


# ---- models ----


@pytest.mark.parametrize("name", MODELS)
def test_models_are_scaled_and_certified(name):
    case = models.known(name, 1)
    assert np.ptp(case.chain.rewards) == pytest.approx(1.0)
    again = bm.solve_metric(case.chain, tol=1e-3, accelerate=False)
    assert np.abs(again.distance - case.distance).max() <= 1e-3 + 1e-4
    assert models.known(name, 1).mdp is case.mdp  # what has no chance in it is made once


def test_noise_beside_a_model_makes_bisimilar_copies():
    mdp = bm.problems.gridworld(width=2, height=2, gamma=0.9)
    product = models.product_with_noise(mdp, 3, seed=0)
    plain = bm.solve_metric(mdp.under(mdp.uniform_policy()), tol=1e-9).distance
    beside = bm.solve_metric(product.under(product.uniform_policy()), tol=1e-9).distance
    state = np.repeat(np.arange(mdp.n_states), 3)
    assert np.abs(beside - plain[np.ix_(state, state)]).max() < 1e-8


# ---- samples ----


def test_samples_are_of_the_model():
    case = models.known("garnet", 0)
    drawn = training.sample(case.mdp, case.policy, 60_000, seed=3)
    estimate = training.estimated(drawn, case.mdp.n_states, case.mdp.gamma)
    gap = np.abs(estimate.rows.matrix().toarray() - case.chain.rows.matrix().toarray())
    assert gap.max() < 0.06  # 2,000 of each state: 5 standard errors of a probability of 1/2
    assert np.abs(estimate.rewards - case.chain.rewards).max() < 0.06
    again = training.sample(case.mdp, case.policy, 60_000, seed=3)
    assert all(np.array_equal(x, y) for x, y in zip(drawn, again, strict=True))
    assert not np.array_equal(drawn.state, training.sample(case.mdp, case.policy, 60_000, seed=4).state)


def test_a_state_that_was_never_left_stays():
    drawn = training.Transitions(np.array([0, 0]), np.array([0, 0]), np.array([1.0, 0.0]), np.array([1, 2]))
    chain = training.estimated(drawn, 3, 0.9)
    assert np.array_equal(chain.rows.matrix().toarray(), [[0, 0.5, 0.5], [0, 1, 0], [0, 0, 1]])
    assert np.array_equal(chain.rewards, [0.5, 0, 0])


@pytest.mark.parametrize("kind", settings.ENCODERS)
def test_exact_training_reaches_the_certified_metric(kind):
    case = models.known("garnet", 0)
    loss = exact_loss("norm", case.mdp.gamma)
    encoder = training.encoder_of(kind, case.mdp.n_states, 0)
    schedule = training.Schedule(encoder.parameters(), 600, training.RATES[kind])
    training.learn_exactly(loss, encoder, training.ExactBatch.of(case.chain), schedule, 600)
    with torch.no_grad():
        z = encoder()
        gap = np.abs(loss.head.distances(z, z).numpy() - case.distance).max()
    assert gap <= 0.05 * case.diameter


# ---- distractors ----


def test_train_and_test_distractors_are_disjoint_and_hide_nothing():
    mdp = distractors.room(0)
    seen = observations.Distracted(mdp, 0)
    assert not set(seen.train) & set(seen.test)
    assert len(seen.train) == seen.n_train
    assert len(seen.test) == seen.n_test
    _, bank, _ = seen._parts
    apart = np.linalg.norm(bank[seen.train][:, None] - bank[seen.test][None, :], axis=2)
    assert apart.min() > 0.5  # none of the test distractors is near one that was trained with
    used = []

    class Spy(observations.Distracted):
        def observe(self, state, distractor, rng):
            used.append(np.unique(distractor))
            return super().observe(state, distractor, rng)

    distractors.experience(Spy(mdp, 0), 500, 0)
    assert set(np.concatenate(used)) == set(seen.train)


def test_observations_depend_on_state_distractor_and_noise():
    seen = observations.Distracted(distractors.room(0), 0)
    one = seen.observe(np.array([3]), np.array([2]), np.random.default_rng(0))
    same = seen.observe(np.array([3]), np.array([2]), np.random.default_rng(0))
    other = seen.observe(np.array([3]), np.array([9]), np.random.default_rng(0))
    assert np.array_equal(one, same)
    assert np.linalg.norm(one - other) > observations.LOUDNESS / 2
    # The projection is orthogonal: nothing is lost, and a linear map could take the distractor out.
    code = seen._parts[0][3]
    assert np.linalg.norm(one) ** 2 == pytest.approx(
        np.linalg.norm(code) ** 2 + observations.LOUDNESS**2 + _noise(0) ** 2, rel=1e-5
    )


def _noise(seed):
    return np.linalg.norm(observations.SIGMA * np.random.default_rng(seed).standard_normal((1, observations.NOISE)))


def test_normalised_returns():
    mdp = distractors.room(0)
    assert distractors.normalised_return(mdp, mdp.uniform_policy()) == pytest.approx(0.0, abs=1e-9)
    best = bm.greedy(mdp, bm.optimal_values(mdp))
    assert distractors.normalised_return(mdp, best) == pytest.approx(1.0, abs=1e-9)


# ---- jobs ----


def small_jobs():
    return [
        truth_table.TableJob("mico", "garnet", "network", "samples", 20, 500, 0),
        truth_table.TableJob("norm", "lake", "table", "samples", 20, 500, 0),
        drift.DriftJob("garnet", 0.25, 4, 3, 0),
        distractors.LightDistractorJob("dbc", 10, 200, 0),
        coupling_figure.CouplingJob("debiased", "garnet", 10, 0),
    ]


@pytest.mark.parametrize("job", small_jobs(), ids=lambda job: job.words)
def test_jobs_give_the_same_again(job):
    first, second = job.run("cpu"), job.run("cpu")
    assert first.keys() == second.keys()
    for name, values in first.items():
        assert np.isfinite(values).all(), name
        if "seconds" not in name:
            assert np.array_equal(values, second[name]), name
    assert job.cost > 0.0
    assert job_id(job) != job_id(type(job)(**{**vars(job), "seed": 1}))


def test_mico_stays_below_its_ceiling():
    found = truth_table.TableJob("mico", "garnet", "table", "exact", 150, 0, 0).run("cpu")
    assert 0.0 < found["largest"][0] <= claims.CEILING + 1e-9
    assert found["bias"][0] > 0.2


def test_a_policy_that_stays_does_not_move_its_metric():
    found = drift.DriftJob("garnet", 0.0, 3, 5, 0).run("cpu")
    assert np.array_equal(found["moved"], np.zeros(3))
    assert np.array_equal(found["error"], found["relative"])


def test_every_loss_is_there_and_cells_are_unique():
    for name in settings.LOSSES:
        exact_loss(name, 0.9)
        sampled_loss(name, 0.9)
    assert isinstance(exact_loss("dbc-published", 0.9), learn.PublishedDBC)
    for profile in settings.PROFILES.values():
        jobs = [cell.job for name in truth.FIGURES for cell in truth.figure(name).cells(profile)]
        assert len({job_id(job) for job in jobs}) == len(jobs)


def test_the_table_is_the_whole_product():
    full = settings.PROFILES["full"]
    assert full.models == settings.MODELS
    found = {tuple(cell.keys.values()) for cell in truth_table.cells(full)}
    assert len(found) == len(truth_table.cells(full)) == 6 * 8 * 2 * 2 * 10


# ---- rules ----


def drift_table(levels):
    rows = [
        Row(
            {"model": model, "alpha": alpha, "seed": float(seed)},
            {name: np.full(8, level + 0.001 * seed) for name in ("error", "moved", "relative")},
        )
        for model in settings.DRIFT_MODELS
        for alpha, level in levels.items()
        for seed in range(3)
    ]
    return {"drift": Table(tuple(rows))}


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [({1.0: 0.8, 0.25: 0.4, 0.05: 0.1, 0.0: 0.09}, "holds"), ({1.0: 0.1, 0.25: 0.4, 0.05: 0.8, 0.0: 0.1}, "fails")],
)
def test_rules_about_drift(levels, verdict):
    decisions = {d.claim.name: d.finding.verdict.value for d in claims.decide_all(drift_table(levels))}
    assert {decisions[f"D{k}{letter}"] for k in range(1, 7) for letter in "ab"} == {verdict}
    assert decisions["C1"] == "undecided"


def test_rules_about_couplings_compare_at_the_same_time():
    """The slow one is better in the end only: what counts is where it stood when the first one ended."""
    curves = {name: ([0.5, 1.0], [0.5, 0.4]) for name in settings.COUPLINGS}
    curves["categorical"] = ([1.0, 3.0], [0.6, 0.0])
    rows = [
        Row(
            {"model": "garnet", "coupling": name, "seed": float(seed)},
            {"seconds": np.array(seconds), "error": np.array(errors) + 0.001 * seed},
        )
        for name, (seconds, errors) in curves.items()
        for seed in range(3)
    ]
    decided = {d.claim.name: d.finding for d in claims.decide_all({"couplings": Table(tuple(rows))})}
    assert decided["C1"].verdict is Verdict.FAILS
    assert decided["C1"].effect == pytest.approx(1.5, rel=0.01)


# ---- the command ----


def test_unknown_figures_and_folders_are_refused(tmp_path, capsys):
    for arguments in (
        ["truth", "run"],
        ["truth", "run", "tabel"],
        ["truth", "run", "table", "--profile", "huge"],
        ["truth", "run", "table", "--workers", "0"],
        ["truth", "report", str(tmp_path / "nothing")],
    ):
        assert run(arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
    assert not list(tmp_path.iterdir())
    assert run(["truth", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["figures"]
    assert [figure["id"] for figure in listed] == list(truth.FIGURES)


def test_a_folder_of_the_paper_is_not_taken(tmp_path, capsys):
    from bisimetric.paper.settings import QUICK, TEXT

    store.begin(tmp_path / "paper", QUICK, TEXT, bm.__version__)
    assert run(["truth", "run", "drift", "--out", str(tmp_path / "paper")]) == 2
    assert "another --out" in capsys.readouterr().err


TINY = """
import sys
from dataclasses import replace
from bisimetric.truth import settings
settings.PROFILES["quick"] = replace(settings.QUICK, seeds=2, policies=3, steps_a_policy=3)
from bisimetric.cli import run
sys.exit(run(sys.argv[1:]))
"""


def tiny(*arguments):
    command = [sys.executable, "-c", TINY, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_and_resumed_gives_the_same(tmp_path):
    """SIGKILL in the middle of the runs; the same command goes on, and all results are those of undisturbed runs."""
    folder = tmp_path / "results"
    runs = folder / "runs"
    broken = tiny("truth", "run", "drift", "--out", folder, "--workers", 1)
    while broken.poll() is None and not (runs.exists() and list(runs.glob("*.npz"))):
        time.sleep(0.02)
    os.kill(broken.pid, signal.SIGKILL)
    broken.communicate()
    assert list(runs.glob("*.npz"))
    resumed = tiny("truth", "run", "drift", "--out", folder, "--workers", 1)
    out, error = resumed.communicate()
    assert resumed.returncode == 0, error
    assert "page:" in out
    size = replace(settings.QUICK, seeds=2, policies=3, steps_a_policy=3)
    for cell in drift.cells(size):
        kept, undisturbed = store.load(folder, cell.job), cell.job.run("cpu")
        assert kept is not None
        assert all(np.array_equal(kept[name], undisturbed[name]) for name in undisturbed)


def test_pages_show_what_is_there(tmp_path, monkeypatch, capsys):
    """The page, the claims and what is published, from results put into a folder."""
    pytest.importorskip("matplotlib")
    size = replace(settings.QUICK, seeds=2, policies=3, steps_a_policy=3, coupling_seconds=0.01)
    monkeypatch.setitem(settings.PROFILES, "quick", size)
    pages.begin(tmp_path / "results", size, bm.__version__)
    rng = np.random.default_rng(0)
    for cell in drift.cells(size):
        curves = {name: 0.1 + rng.random(3) for name in drift.QUANTITIES}
        store.save(tmp_path / "results", cell.job, curves, "cpu", bm.__version__)
    assert run(["truth", "report", str(tmp_path / "results"), "--publish", str(tmp_path / "published")]) == 0
    assert "page:" in capsys.readouterr().out
    page = (tmp_path / "results" / "index.html").read_text()
    assert page.count("data:image/svg+xml") == 1
    assert page.count("runs are missing") == 3
    names = {path.name for path in (tmp_path / "published").iterdir()}
    assert names == {"README.md", "claims.csv", "drift.csv", "drift.png"}
    text = (tmp_path / "published" / "README.md").read_text()
    assert "D1a" in text
    assert "C1" not in text
    store.path_of(tmp_path / "results", drift.cells(size)[0].job).unlink()
    assert run(["truth", "report", str(tmp_path / "results")]) == 0
    assert "data:image/svg+xml" not in (tmp_path / "results" / "index.html").read_text()  # nothing old stays


def every_row(module, size):
    """Imagined results of a figure, one row for each run."""
    rng = np.random.default_rng(1)
    rows = []
    for cell in module.cells(size):
        arrays = {name: 0.1 + rng.random(1 if module is not coupling_figure else 4) for name in module.QUANTITIES}
        if module is coupling_figure:
            arrays["seconds"] = np.arange(1.0, 5.0)
        rows.append(Row(cell.keys, arrays, job_id(cell.job)))
    return Table(tuple(rows))


@pytest.mark.parametrize("name", ["table", "distractors", "couplings"])
def test_figures_are_drawn_and_their_claims_decided(name):
    pytest.importorskip("matplotlib")
    size = replace(settings.QUICK, seeds=2)
    module = truth.figure(name)
    table = every_row(module, size)
    assert module.draw(table, size).axes
    decided = [d for d in claims.decide_all({name: table}) if d.claim.figures == (name,)]
    assert decided
    assert all(d.finding.seeds == 2 for d in decided)
    own = getattr(module, "summary", None)
    text = own(table) if own is not None else summary_csv(table, module.QUANTITIES)
    assert len(text.splitlines()) > 3
