"""Metrics on a cluster of Dask: the same bytes as in one process, whatever happens to workers; clear errors."""

from __future__ import annotations

import dataclasses
import errno
import json
import os

import clusters
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transports import EVERY_TRANSPORT, name

import bisimetric as bm
from bisimetric.cli import run
from bisimetric.metric import acceleration, driver, evaluation
from bisimetric.paper import experiments, on_cluster
from bisimetric.paper import store as paper_store
from bisimetric.paper.settings import PROFILES, TEXT, Profile

pytest.importorskip("distributed")
from bisimetric.cluster import crew, engine, store, sweeper, tasks, tiles
from bisimetric.cluster.errors import ClusterError
from bisimetric.cluster.versions import Version

pytestmark = pytest.mark.usefixtures("one_thread")
MATCHES = (None, "labels", "hausdorff")
# Distributed leaves sockets and loops to be collected when workers are killed.
quiet = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def client():
    with clusters.local_client(2, processes=True) as found:
        yield found


@pytest.fixture
def inside():
    """A client whose one worker is a thread of this process, so that it can be tampered with."""
    with clusters.local_client(1, processes=False) as found:
        yield found


def two_models(match, **settings):
    make = clusters.chain if match is None else clusters.mdp
    return make(60, 1, **settings), make(9, 2, **settings)


def in_place(monkeypatch):
    """Treat all distances as too many for iterates, as those of large models are."""
    monkeypatch.setattr(evaluation, "_WINDOWS", ())
    monkeypatch.setattr(acceleration, "_FEW", 0)


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("large", [False, True])
def test_a_cross_metric_has_the_same_bytes(client, monkeypatch, match, large):
    model, small = two_models(match)
    if large:
        in_place(monkeypatch)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 2)
    here = bm.cross(model, small, match=match, tol=1e-6, lump=False)
    there = bm.cross(model, small, match=match, tol=1e-6, lump=False, cluster=client)
    assert clusters.same_bytes(here.metric, there.metric)
    assert here.certificate == there.certificate
    assert here.metric.sweeps > 2


def labelled_chain(n, seed):
    """States that are apart lie in some tiles only."""
    chain = clusters.chain(n, seed)
    labels = {"x": np.arange(n) < n // 8, "y": np.arange(n) > n - 3}
    return bm.Chain.from_arrays(chain.rows.matrix(), chain.rewards, chain.gamma, state_labels=labels)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("tiles", [2, 6])
def test_labelled_chains_have_the_same_bytes(client, monkeypatch, large, tiles):
    """In some tiles nothing is apart, in the whole something is."""
    if large:
        in_place(monkeypatch)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", tiles)
    model, small = labelled_chain(60, 1), labelled_chain(9, 2)
    settings = {"tol": 1e-6, "lump": False}
    assert clusters.same_bytes(
        bm.compare(model, small, **settings), bm.compare(model, small, **settings, cluster=client)
    )
    assert clusters.same_bytes(bm.solve_metric(model, **settings), bm.solve_metric(model, **settings, cluster=client))


@pytest.mark.parametrize("tiles", [1, 7])
def test_the_number_of_tiles_changes_nothing(client, monkeypatch, tiles):
    model, small = two_models("labels")
    here = bm.compare(model, small, bm.Exact(2.0), match="labels", dtype="float32", tol=1e-3)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", tiles)
    there = bm.compare(model, small, bm.Exact(2.0), match="labels", dtype="float32", tol=1e-3, cluster=client)
    assert clusters.same_bytes(here, there)


def one_of_each_kind(ways):
    """All of them; those of a kind that came before are slow."""
    seen = set()
    for way in ways:
        yield pytest.param(way, marks=[pytest.mark.slow] if type(way) in seen else [], id=name(way))
        seen.add(type(way))


@pytest.mark.parametrize("way", list(one_of_each_kind(EVERY_TRANSPORT)))
def test_a_whole_metric_has_the_same_bytes(client, monkeypatch, way):
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 3)
    model, asked = clusters.chain(70, 3, 0.5), {"tol": 1e-3, "lump": False}
    here = bm.solve_metric(model, way, **asked)
    there = bm.solve_metric(model, way, cluster=client, **asked)
    assert clusters.same_bytes(here, there)
    assert all((a <= b).all() for a, b in [there.bracket()])


@pytest.mark.parametrize("match", ["labels", "hausdorff"])
@pytest.mark.parametrize("large", [False, True])
def test_a_whole_metric_of_an_mdp_has_the_same_bytes(client, monkeypatch, match, large):
    if large:
        in_place(monkeypatch)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 3)
    model = clusters.mdp(40, 5)
    asked = {"match": match, "tol": 1e-4, "lump": False}
    assert clusters.same_bytes(bm.solve_metric(model, **asked), bm.solve_metric(model, cluster=client, **asked))


@pytest.mark.parametrize("match", MATCHES)
def test_paths_through_all_tiles(client, monkeypatch, match):
    """Where most rows have one successor, pairs are followed to the ends of their paths."""
    monkeypatch.setattr(acceleration, "_FEW", 0)
    model, small = two_models(match, lonely=0.9)
    asked = {"match": match, "tol": 1e-6, "lump": False}
    assert np.mean(model.rows.sizes == 1) > 0.7
    assert clusters.same_bytes(bm.compare(model, small, **asked), bm.compare(model, small, cluster=client, **asked))


def test_plain_sweeps_and_sweeps_without_memory(client):
    model, small = two_models(None)
    for change in ({"accelerate": False}, {"remember": False}, {"max_sweeps": 2}):
        here = bm.compare(model, small, tol=0.3, lump=False, **change)
        assert clusters.same_bytes(here, bm.compare(model, small, tol=0.3, lump=False, cluster=client, **change))


def test_an_abstraction_has_the_same_bytes(client, tmp_path):
    model = bm.problems.gridworld(width=5, height=5)
    here = bm.abstract(model, size=4, match="labels")
    there = bm.abstract(model, size=4, match="labels", cluster=client, store=tmp_path / "store")
    assert np.array_equal(here.radii, there.radii)
    assert clusters.same_bytes(here.cross.metric, there.cross.metric)
    assert np.array_equal(here.policy, there.policy)


@quiet
@pytest.mark.parametrize("square", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_killed_change_no_byte(monkeypatch, square):
    """One is killed after each of two sweeps, with all that it remembers."""
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 2)
    in_place(monkeypatch)
    model, small = clusters.chain(150, 1), clusters.chain(150 if square else 12, 2)

    def metric(**where):
        if square:
            return bm.solve_metric(model, tol=1e-6, lump=False, **where)
        return bm.compare(model, small, tol=1e-6, lump=False, **where)

    with clusters.local_client(2, processes=True) as client:

        def kill(progress):
            if progress.sweep in (1, 3):
                clusters.kill_one(client)

        there = metric(cluster=client, on_progress=kill)
    here = metric()
    assert clusters.same_bytes(here, there)
    assert here.sweeps > 3


class _LostError(Exception):
    pass


@quiet
@pytest.mark.parametrize("large", [False, True])
def test_work_is_gone_on_with(client, inside, tmp_path, monkeypatch, large):
    """What was broken off goes on from the last whole version, on other workers, cut as it was."""
    if large:
        in_place(monkeypatch)
    model, small = two_models("hausdorff")
    asked = {"match": "hausdorff", "tol": 1e-6, "lump": False}

    def lose(progress):
        if progress.sweep == 3:
            raise _LostError

    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 5)
    with pytest.raises(_LostError):
        bm.compare(model, small, cluster=inside, store=tmp_path / "s", on_progress=lose, **asked)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 1)
    seen = []
    there = bm.compare(
        model, small, cluster=client, store=tmp_path / "s", on_progress=lambda p: seen.append(p.sweep), **asked
    )
    assert seen[0] == 3
    assert clusters.same_bytes(bm.compare(model, small, **asked), there)
    with pytest.raises(ClusterError, match="holds work on something else"):
        bm.compare(model, small, cluster=inside, store=tmp_path / "s", **{**asked, "tol": 1e-3})


@quiet
def test_a_lost_scheduler_is_a_clear_error(tmp_path):
    model, small = two_models(None)
    with clusters.local_client(1, processes=False) as client:

        def lose(progress):
            if progress.sweep == 2:
                client.cluster.close()

        with pytest.raises(ClusterError, match=r"the scheduler at .* was lost"):
            bm.compare(model, small, cluster=client, store=tmp_path / "s", on_progress=lose)
    assert (tmp_path / "s" / "state.json").exists()


@pytest.mark.parametrize("settings", [{"tol": 1e-9, "dtype": "float32"}, {"tol": 1e-18}], ids=str)
def test_work_that_ends_by_rounding_is_gone_on_with_to_the_same_bytes(inside, tmp_path, settings):
    """How long nothing has got better is part of what is gone on from."""
    model, small = clusters.chain(6, 1), clusters.chain(3, 2)
    here = bm.compare(model, small, lump=False, **settings)
    assert here.status is bm.Status.ROUNDING

    class LostError(Exception):
        pass

    for stop in range(here.sweeps - 3, here.sweeps + 1):

        def lose(progress, stop=stop):
            if progress.sweep == stop:
                raise LostError

        place = tmp_path / str(stop)
        with pytest.raises(LostError):
            bm.compare(model, small, lump=False, cluster=inside, store=place, on_progress=lose, **settings)
        for _ in range(2):  # and work that is done is found done
            there = bm.compare(model, small, lump=False, cluster=inside, store=place, **settings)
            assert clusters.same_bytes(here, there)


@pytest.mark.parametrize("transport", [bm.Exact(), bm.Sinkhorn(0.5, cost="value")], ids=name)
@pytest.mark.parametrize("stop", [1, 2, 4])
def test_what_is_broken_off_after_a_sweep_goes_on_from_it(inside, tmp_path, monkeypatch, transport, stop):
    """What is done between sweeps may take longer than they do: it is done again, they are not."""
    model, small = two_models(None)
    here = bm.compare(model, small, transport, tol=1e-6, lump=False)

    class LostError(Exception):
        pass

    accelerate, calls = driver.FixedPoint._accelerate, []

    def lose(self, acceleration, report):
        calls.append(report)
        if len(calls) == stop:
            raise LostError
        accelerate(self, acceleration, report)

    sweeps = []
    with monkeypatch.context() as patch:
        patch.setattr(driver.FixedPoint, "_accelerate", lose)
        with pytest.raises(LostError):
            bm.compare(model, small, transport, tol=1e-6, lump=False, cluster=inside, store=tmp_path / "s")
    there = bm.compare(
        model,
        small,
        transport,
        tol=1e-6,
        lump=False,
        cluster=inside,
        store=tmp_path / "s",
        on_progress=lambda progress: sweeps.append(progress.sweep),
    )
    assert clusters.same_bytes(here, there)
    if isinstance(transport, bm.Exact) and stop > 1:
        assert sweeps[0] == stop + 1


def test_a_store_is_one_callers(inside, tmp_path):
    model, small = two_models(None)
    refused = []

    def another(progress):
        if progress.sweep == 1:
            with pytest.raises(ClusterError, match="another process is working in the store"):
                bm.compare(model, small, cluster=inside, store=tmp_path / "s", max_sweeps=3)
            refused.append(progress.sweep)

    there = bm.compare(model, small, cluster=inside, store=tmp_path / "s", max_sweeps=3, on_progress=another)
    assert refused
    assert clusters.same_bytes(bm.compare(model, small, max_sweeps=3), there)


def test_stores_are_the_same_folder_for_all_and_folders_made_for_nothing_go_again(client, tmp_path, monkeypatch):
    """Workers were started somewhere else, so that a relative path is another one for them."""
    model, small = two_models(None)
    monkeypatch.chdir(tmp_path)
    there = bm.compare(model, small, cluster=client, store="deep/s", max_sweeps=3)
    assert clusters.same_bytes(bm.compare(model, small, max_sweeps=3), there)
    assert (tmp_path / "deep" / "s" / "state.json").exists()
    monkeypatch.setattr(crew.Crew, "_asked", lambda self, *given: {"w": {"version": "0.0", "sees": True}})
    with pytest.raises(ClusterError, match=r"has bisimetric 0\.0"):
        bm.compare(model, small, cluster=client, store="other/s/t", max_sweeps=3)
    assert not (tmp_path / "other").exists()


def test_workers_that_come_back_are_waited_for(inside, monkeypatch):
    model, small = two_models(None)
    ask, silent = inside.run, [1, 1]

    def run(work, *given, **options):
        if work is tasks.describe and silent:
            silent.pop()
            return {"tcp://gone": OSError("Connection reset by peer")}
        return ask(work, *given, **options)

    monkeypatch.setattr(inside, "run", run)
    monkeypatch.setattr(crew, "_WAIT", 0.01)
    there = bm.compare(model, small, cluster=inside, max_sweeps=3)
    assert not silent
    assert clusters.same_bytes(bm.compare(model, small, max_sweeps=3), there)
    silent += [1] * 1000
    monkeypatch.setattr(crew, "_COME_BACK", 0.1)
    with pytest.raises(ClusterError, match="tcp://gone does not answer, and did not come back"):
        bm.compare(model, small, cluster=inside, max_sweeps=3)


def test_a_full_store_keeps_the_last_version(inside, tmp_path, monkeypatch):
    model, small = two_models(None)
    whole, calls = store.npy.write_array, []

    def full(*arguments, **asked):
        calls.append(0)
        if len(calls) > 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(*arguments, **asked)

    with monkeypatch.context() as patch:
        patch.setattr(store.npy, "write_array", full)
        with pytest.raises(ClusterError, match=r"is full.*last whole version is kept"):
            bm.compare(model, small, cluster=inside, store=tmp_path / "s", tol=1e-6, lump=False)
    assert [path.name for path in (tmp_path / "s").glob("**/.*")] == [".lock"]  # nothing half-written is left
    there = bm.compare(model, small, cluster=inside, store=tmp_path / "s", tol=1e-6, lump=False)
    assert clusters.same_bytes(bm.compare(model, small, tol=1e-6, lump=False), there)


def test_a_damaged_store_is_refused(inside, tmp_path):
    model, small = two_models(None)
    place = tmp_path / "s"
    bm.compare(model, small, cluster=inside, store=place, max_sweeps=3)
    path = next(iter(place.glob("m*/0-0.npy")))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ClusterError, match="damaged"):
        bm.compare(model, small, cluster=inside, store=place, max_sweeps=3)
    (place / "question.json").write_text("{")
    with pytest.raises(ClusterError, match="damaged"):
        bm.compare(model, small, cluster=inside, store=place, max_sweeps=3)


@pytest.mark.parametrize("harm", ["flipped", "empty", "gone"])
def test_blocks_of_a_model_that_are_not_what_they_were_are_refused(inside, tmp_path, harm):
    """A bit that flipped is another model, and what was not on the disk when the power was cut is none."""
    model, small = two_models(None)
    place = tmp_path / "s"
    bm.compare(model, small, cluster=inside, store=place, max_sweeps=3)
    path = next(iter((place / "blocks").glob("R-*.npy")))
    data = bytearray(path.read_bytes())
    data[-9] ^= 0x40
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(data) if harm == "flipped" else b"")
    with pytest.raises(ClusterError, match=f"is damaged \\({path.name} is not what it was\\); remove it"):
        bm.compare(model, small, cluster=inside, store=place, max_sweeps=3)


@pytest.mark.parametrize("address", ["nothing", "", "http://x", "tcp://nohost.invalid:8786", "tcp://127.0.0.1:9"])
def test_no_client_is_made_for_addresses_at_which_nobody_listens(address, monkeypatch):
    """One that found nobody waits 20 s at the end of the process."""
    made = []
    monkeypatch.setattr("distributed.Client.__init__", lambda self, *_, **__: made.append(self))
    grid = bm.problems.gridworld(width=2, height=2)
    with pytest.raises(ClusterError, match="there is no cluster at"):
        bm.compare(grid, grid, match="labels", cluster=address)
    assert not made


def test_what_is_not_a_cluster_is_refused(monkeypatch):
    model, small = two_models(None)
    monkeypatch.setattr(crew, "_CONNECT", 0.3)
    with pytest.raises(ClusterError, match=r"no cluster at tcp://127.0.0.1:9"):
        bm.compare(model, small, cluster="tcp://127.0.0.1:9")
    with pytest.raises(TypeError, match="cluster must be a Client of Dask"):
        bm.compare(model, small, cluster=3)
    with pytest.raises(ValueError, match=r"give cluster \(cluster=, --cluster\) too"):
        bm.compare(model, small, store="somewhere")


def test_clusters_that_cannot_do_the_work_are_refused(inside, tmp_path, monkeypatch):
    model, small = two_models(None)
    with pytest.raises(ValueError, match='device must be "cpu"'):
        bm.compare(model, small, cluster=inside, device="cuda")
    (tmp_path / "mine").write_text("")
    with pytest.raises(ClusterError, match="holds other files"):
        bm.compare(model, small, cluster=inside, store=tmp_path)
    monkeypatch.setattr(store.Store, "sees", lambda self, token: False)
    with pytest.raises(ClusterError, match="does not see the folder"):
        bm.compare(model, small, cluster=inside, store=tmp_path / "s")
    with pytest.raises(ValueError, match="gone on with by store="):
        bm.solve_metric(model, start=bm.solve_metric(model), cluster=inside)
    with clusters.local_client(0, processes=False) as empty, pytest.raises(ClusterError, match="has no workers"):
        bm.compare(model, small, cluster=empty)


def test_workers_of_another_version_are_refused(client):
    def become(version):
        import bisimetric

        bisimetric.__version__ = version

    model, small = two_models(None)
    client.run(become, "0.0.7", workers=[next(iter(client.nthreads()))])
    try:
        with pytest.raises(ClusterError, match=rf"has bisimetric 0\.0\.7, and this is {bm.__version__}"):
            bm.compare(model, small, cluster=client)
    finally:
        client.run(become, bm.__version__)


@pytest.mark.parametrize("match", MATCHES)
def test_the_bytes_of_a_sweep_are_those_planned(inside, monkeypatch, match):
    model, small = two_models(match)
    plan = bm.cluster_plan(model, small, match=match, workers=3)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 3)
    seen = []
    stage = sweeper.ClusterSweeper._stage
    monkeypatch.setattr(
        sweeper.ClusterSweeper,
        "_stage",
        lambda self, kind, *rest: seen.append((kind, stage(self, kind, *rest))) or seen[-1][1],
    )
    bm.compare(model, small, match=match, tol=1e-6, lump=False, cluster=inside)
    full = [reports for kind, reports in seen if kind == "full"]
    frozen = [reports for kind, reports in seen if kind in ("frozen", "rough")]
    assert plan.tiles == 3 == len(full[0])
    assert sum(report.read for report in full[-1]) == plan.read_bytes
    assert sum(report.written for report in full[-1]) == plan.written_bytes + plan.remembered_bytes
    assert sum(report.written for report in frozen[-1]) == plan.written_bytes
    assert all(part > 0.0 for part in plan.core_seconds)


def test_the_bytes_of_all_pairs_are_nearly_those_planned(inside, monkeypatch):
    model = clusters.chain(120, 4)
    plan = bm.cluster_plan(model, workers=3)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 3)
    reports = []
    stage = sweeper.ClusterSweeper._stage
    monkeypatch.setattr(
        sweeper.ClusterSweeper, "_stage", lambda self, *rest: reports.append(stage(self, *rest)) or reports[-1]
    )
    bm.solve_metric(model, tol=1e-2, lump=False, cluster=inside)
    assert sum(report.read for report in reports[-1]) == plan.read_bytes
    written = sum(report.written for report in reports[-1])
    assert written == pytest.approx(plan.written_bytes + plan.remembered_bytes, rel=0.02)


def test_a_walk_exchanges_and_a_random_chain_broadcasts():
    P = np.eye(400, k=1) + np.eye(400, k=-1)
    P[0, 1] = P[-1, -2] = 2.0
    walk = bm.Chain.from_arrays(P / 2.0, np.linspace(0.0, 1.0, 400), 0.9)
    small = clusters.chain(5, 1)
    assert bm.cluster_plan(walk, small, workers=8).share < 0.14
    assert bm.cluster_plan(clusters.chain(400, 2), small, workers=2).share > 0.6


def test_what_no_worker_can_hold_is_refused_and_what_some_can_is_cut(inside):
    model, small = clusters.chain(2000, 1), clusters.chain(8, 2)
    least = bm.cluster_plan(model, small, workers=1).held_bytes
    cut = bm.cluster_plan(model, small, workers=1, memory=(256 << 20) + least // 3)
    assert cut.tiles >= 3
    assert cut.held_bytes <= least // 3
    with pytest.raises(ClusterError, match=r"too large for the workers: the least tile needs .* GB"):
        bm.cluster_plan(model, small, workers=1, memory=256 << 20)
    with pytest.raises(ValueError, match="workers must be at least 1"):
        bm.cluster_plan(model, small, workers=0)


def test_the_plan_on_the_command_line(capsys):
    command = ["cluster-plan", "problem:gridworld", "--workers", "4", "--match", "labels"]
    assert run([*command, "--size", "5", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["tiles"] == 4
    assert plan["read_bytes"] > 0
    assert run(command) == 0
    assert "a sweep" in capsys.readouterr().out
    assert run([*command, "--memory", "0.001"]) == 2
    assert "too large for the workers" in capsys.readouterr().err


def test_policy_runs_on_a_cluster_are_those_of_one_process(client):
    mdp = bm.problems.garnet(n_states=15, n_actions=2, branching=3, seed=1)
    variants = [{"seed": seed} for seed in range(3)]
    here = bm.solve_policies(mdp, variants, steps=4)
    there = bm.solve_policies(mdp, variants, steps=4, cluster=client)
    for one, other in zip(here, there, strict=True):
        assert one.policy.tobytes() == other.policy.tobytes()
        assert one.value.tobytes() == other.value.tobytes()
        assert one.certificate == other.certificate
    with pytest.raises(ValueError, match="on_progress is not for a cluster"):
        bm.solve_policies(mdp, [{"on_progress": print}], cluster=client)
    with pytest.raises(ValueError, match='device must be "cpu"'):
        bm.solve_policies(mdp, variants, device="cuda", cluster=client)


def test_the_papers_runs_on_a_cluster(client, tmp_path, capsys, monkeypatch):
    tiny = Profile("quick", 12, 4, 2, 12, 12, 6, 6, 8, 6, 2, (2, 3), perturbed_exact=True)
    monkeypatch.setitem(PROFILES, "quick", tiny)
    address, folder = client.scheduler.address, tmp_path / "there"
    command = ["paper", "run", "p-ablation", "--no-report", "--out"]
    assert run([*command, str(folder), "--cluster", address]) == 0
    jobs = experiments.jobs_of(["p-ablation"], tiny, TEXT)
    assert len(jobs) == 6
    for job in jobs:
        here, there = job.run("cpu"), paper_store.load(folder, job)
        assert set(here) == set(there)
        for entry in here:
            assert "second" in entry or np.array_equal(here[entry], there[entry], equal_nan=True), entry
    capsys.readouterr()
    assert run([*command, str(tmp_path / "x"), "--cluster", address, "--workers", "2"]) == 2
    assert "--cluster has its own workers" in capsys.readouterr().err
    monkeypatch.setattr(crew, "_CONNECT", 0.3)
    assert run([*command, str(tmp_path / "x"), "--cluster", "tcp://127.0.0.1:9"]) == 2
    assert not (tmp_path / "x").exists()
    assert "there is no cluster at tcp://127.0.0.1:9" in capsys.readouterr().err


def test_a_run_that_fails_on_a_cluster_is_reported(inside, tmp_path):
    paper_store.begin(tmp_path / "runs", PROFILES["quick"], TEXT, bm.__version__)
    job = experiments.jobs_of(["p-ablation"], PROFILES["quick"], TEXT)[0]
    broken = dataclasses.replace(job, sweeps=-1)
    (failure,) = on_cluster.run_jobs(
        [broken], tmp_path / "runs", cluster=inside, version=bm.__version__, done=lambda _: None
    )
    assert "sweeps" in failure.reason


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), square=st.booleans())
def test_a_tile_reads_the_distances_of_its_successors(seed, square):
    """Whatever the cuts: entries of the whole matrix, shifted where they are positive, and the largest of all."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    m = n if square else int(rng.integers(1, 6))
    d = rng.random((n, m)) * (rng.random((n, m)) < 0.8)
    if square:
        d = np.triu(d) + np.triu(d, 1).T
    inner = np.unique(rng.integers(1, n + 1, 3))
    rows = (0, *(int(k) for k in inner[inner < n]), n)
    grid = tiles.TileGrid(rows, rows if square else (0, m), square)
    needed = tiles.Ground(
        np.flatnonzero(rng.random(n) < 0.5), np.flatnonzero(rng.random(m) < 0.5) if square else np.arange(m)
    )
    out = tiles.ground_like(grid, needed, "float64")
    out[:] = np.nan

    def read(tile):
        i, j = tile
        assert i <= j or not square
        return d[grid.rows[i] : grid.rows[i + 1], grid.columns[j] : grid.columns[j + 1]]

    tiles.fill_ground(out, read, grid, needed, Version(3, (0.25, -0.125), 7.0))
    wanted = d[np.ix_(needed.rows, needed.columns)]
    wanted = np.where(wanted > 0.0, wanted + 0.25, wanted)
    wanted = np.where(wanted > 0.0, np.maximum(wanted - 0.125, 0.0), wanted)
    assert np.array_equal(out[:-1, : wanted.shape[1]], wanted)
    assert out[-1, -1] == 7.0
    assert out.max() == 7.0


def test_ctrl_c_keeps_what_was_done(inside):
    model, small = two_models(None)

    def stop(progress):
        if progress.sweep == 2:
            raise KeyboardInterrupt

    here = bm.compare(model, small, tol=1e-9, lump=False, on_progress=stop)
    there = bm.compare(model, small, tol=1e-9, lump=False, on_progress=stop, cluster=inside)
    assert there.status is bm.Status.INTERRUPTED
    assert clusters.same_bytes(here, there)


def test_distances_that_do_not_fit_here_stay_in_the_store(inside, tmp_path, monkeypatch):
    """A file of the store in place of an array; without a store of one's own they are refused before the work."""
    model, small = two_models("labels")
    here = bm.compare(model, small, match="labels", tol=1e-6, lump=False)
    whole = bm.solve_metric(model, match="labels", tol=1e-6, lump=False)
    monkeypatch.setattr(engine, "available_memory", lambda: 3000)
    monkeypatch.setattr(engine, "_SMALL", 3000)
    with pytest.raises(ClusterError, match=r"give a store \(store=, --store\)"):
        bm.compare(model, small, match="labels", cluster=inside)
    there = bm.compare(model, small, match="labels", tol=1e-6, lump=False, cluster=inside, store=tmp_path / "a")
    assert clusters.same_bytes(here, there)
    assert np.array_equal(np.load(tmp_path / "a" / "distance.npy"), here.distance)
    assert there.distance.base is not None
    square = bm.solve_metric(model, match="labels", tol=1e-6, lump=False, cluster=inside, store=tmp_path / "b")
    assert clusters.same_bytes(whole, square)
    assert np.load(tmp_path / "b" / "distance.npy", mmap_mode="r").shape == (60, 60)


def test_a_worker_that_was_given_up_does_no_harm(inside, tmp_path):
    """Its sources were retired, and perhaps written over: what it makes of them is thrown away."""
    model, small = two_models(None)
    seen = []
    stage = sweeper.ClusterSweeper._task

    def noting(self, *given):
        seen.append((self.work, stage(self, *given)))
        return seen[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeper.ClusterSweeper, "_task", noting)
        patch.setattr(store.Store, "remove", lambda self: None)  # the folder outlives the work
        found = bm.compare(model, small, tol=1e-6, lump=False, cluster=inside)
    work, late = next((w, t) for w, t in seen if t.source.number >= 0)
    kept = store.Store(work.folder, passing=True)
    assert work.passing
    assert not kept.holds("d", late.source.number)
    assert list((kept.folder / "spares").iterdir())
    before = {path: path.read_bytes() for path in kept.folder.rglob("*.npy")}
    with pytest.raises((ClusterError, FileNotFoundError)):
        tasks.sweep_tile(work, late)
    assert {path: path.read_bytes() for path in kept.folder.rglob("*.npy")} == before
    assert found.converged
    kept.remove()


def test_spares_are_given_up_where_the_store_is_full(tmp_path, monkeypatch):
    (tmp_path / "s").mkdir()
    own = store.Store(tmp_path / "s", passing=True)
    one = own.place("d", 1, (0, 0))
    own.write(one, [np.arange(8.0)])
    own.remove_all_but({})
    assert len(list((tmp_path / "s" / "spares").iterdir())) == 1
    fill, calls = store.Store._fill, []

    def full_once(self, *given):
        calls.append(1)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "no space")
        fill(self, *given)

    monkeypatch.setattr(store.Store, "_fill", full_once)
    two = own.place("d", 2, (0, 0))
    assert own.write(two, [np.arange(3.0)]) == 24
    assert np.array_equal(own.read(two)[0], np.arange(3.0))
    assert not (tmp_path / "s" / "spares").exists()


def test_shorter_arrays_in_longer_files(tmp_path):
    (tmp_path / "s").mkdir()
    own = store.Store(tmp_path / "s", passing=True)
    own.write(own.place("d", 1, (0, 0)), [np.arange(100.0)])
    own.remove_all_but({})
    own.write(own.place("d", 2, (0, 0)), [np.arange(3.0)])
    (found,) = own.read(own.place("d", 2, (0, 0)))
    assert np.array_equal(found, np.arange(3.0))


def test_the_memory_of_a_worker_is_what_its_cluster_gives_it(client):
    """Not that of its machine: workers that take more are ended."""
    with crew.crew_of(client) as found:
        found.check()
        assert found.memory == 2 << 30
    assert client.submit(tasks.memory_limit, pure=False).result() == 2 << 30


def test_workers_let_go_of_tiles_before_they_take_another(inside, monkeypatch):
    """All that is held, and one more as large as the largest, stay within the memory of a worker."""
    model, _ = two_models(None)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", 10)
    here = bm.solve_metric(model, tol=1e-4, lump=False)
    largest, sums, make = [], [], tasks._Held.__init__

    def noting(self, *given):
        sizes = [held.nbytes for held in tasks._HELD.values()]
        largest.append(max(sizes, default=0))
        sums.append(sum(sizes))
        make(self, *given)

    monkeypatch.setattr(tasks._Held, "__init__", noting)
    monkeypatch.setattr(tasks, "BASE", 0)
    there = bm.solve_metric(model, tol=1e-4, lump=False, cluster=inside)
    assert clusters.same_bytes(here, there)
    check, limit = engine.Crew.check, 3 * max(largest)

    def ample(self, own=None):
        check(self, own)
        self.memory = 1 << 40

    assert max(sums) > limit
    sums.clear()
    monkeypatch.setattr(engine.Crew, "check", ample)
    monkeypatch.setattr(tasks, "memory_limit", lambda worker=None: limit)
    assert clusters.same_bytes(here, bm.solve_metric(model, tol=1e-4, lump=False, cluster=inside))
    assert max(sums) <= limit - 0.9 * max(largest)
