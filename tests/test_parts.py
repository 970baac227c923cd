"""Models that are read in parts: each part is what the whole model has there, and metrics have the same bytes."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import pickle
import tarfile
import zipfile
from fractions import Fraction
from itertools import pairwise

import clusters
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from umb_archives import archive, umb_members

import bisimetric as bm
from bisimetric.abstraction import policies
from bisimetric.formats.members import ArrayFile
from bisimetric.formats.parts import NpzParts
from bisimetric.model.parts import joined

pytestmark = pytest.mark.usefixtures("one_thread")


def compressed(source, target):
    """The same archive of arrays, deflated."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    return target


def same_rows(part, rows, first, last):
    begin, end = rows.indptr[first], rows.indptr[last]
    assert np.array_equal(part.rows.indptr, rows.indptr[first : last + 1] - begin)
    assert part.rows.indices.dtype == rows.indices.dtype
    assert np.array_equal(part.rows.indices, rows.indices[begin:end])
    assert part.rows.probs.tobytes() == rows.probs[begin:end].tobytes()


def same_parts(parts, whole, cuts):
    """The parts between the cuts are those of the model, and of its uniform policy's chain, bit by bit."""
    assert (parts.n_states, parts.gamma) == (whole.n_states, whole.gamma)
    chain, averaged = whole.under(whole.uniform_policy()), parts.under_uniform()
    for first, last in pairwise(cuts):
        part, choices = parts.read(first, last), slice(whole.choice_ptr[first], whole.choice_ptr[last])
        same_rows(part, whole.rows, choices.start, choices.stop)
        assert part.rewards.tobytes() == whole.rewards[choices].tobytes()
        names = [parts.action_labels[a] for a in part.actions]
        assert names == [whole.action_labels[a] for a in whole.action_of_choice[choices]]
        assert set(part.labels) == set(whole.state_labels)
        assert all(np.array_equal(part.labels[name], holds[first:last]) for name, holds in whole.state_labels.items())
        mixed = averaged.read(first, last)
        same_rows(mixed, chain.rows, first, last)
        assert mixed.rewards.tobytes() == chain.rewards[first:last].tobytes()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_parts_of_an_archive_are_those_of_the_model(seed, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("npz")
    model = clusters.mdp(23, seed)
    bm.write(model, folder / "m.npz")
    cuts = sorted({0, 23, *data.draw(st.lists(st.integers(1, 22), max_size=5))})
    same_parts(bm.read_parts(folder / "m.npz"), model, cuts)
    same_parts(bm.read_parts(compressed(folder / "m.npz", folder / "c.npz")), model, cuts)


def table(folder, model, group=7):
    """A table of transitions with few rows in a group, so that states lie across groups."""
    import pyarrow.parquet

    bm.write(model, folder / "whole.parquet")
    path = folder / "m.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(folder / "whole.parquet"), path, row_group_size=group)
    return path


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_parts_of_a_table_are_those_of_the_model(seed, tmp_path_factory):
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("parquet")
    path = table(folder, clusters.mdp(23, seed))
    whole = bm.read(path, 0.8)
    bm.write(clusters.mdp(23, seed), folder / "m.csv")
    text = bm.read(folder / "m.csv", 0.8)
    assert whole.rows.probs.tobytes() == text.rows.probs.tobytes()
    assert whole.rewards.tobytes() == text.rewards.tobytes()
    same_parts(bm.read_parts(path, 0.8), whole, [0, 1, 9, 10, 23])


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
def test_parts_of_a_umb_archive_are_those_of_the_model(tmp_path, pack):
    path = tmp_path / "m.umb"
    path.write_bytes(pack(archive(umb_members())))
    same_parts(bm.read_parts(path, 0.9, reward="r"), bm.read(path, 0.9, reward="r"), [0, 1, 2])
    same_parts(bm.read_parts(path, 0.9, reward=None), bm.read(path, 0.9, reward=None), [0, 2])


def test_only_what_is_asked_for_is_read(tmp_path, monkeypatch):
    """A stretch of an array that is not compressed is one read of its bytes."""
    model = clusters.mdp(300, 0)
    bm.write(model, tmp_path / "m.npz")
    parts = bm.read_parts(tmp_path / "m.npz")
    read = []
    take = ArrayFile.take

    def noting(self, name, *ends):
        found = take(self, name, *ends)
        read.append(found.nbytes)
        return found

    monkeypatch.setattr(ArrayFile, "take", noting)
    parts.read(100, 103)
    assert sum(read) < 1000 < os.stat(tmp_path / "m.npz").st_size


def test_rewards_are_chosen(tmp_path):
    model = clusters.mdp(12, 0)
    several = bm.MDP(
        model.rows,
        np.zeros(model.n_choices),
        model.choice_ptr,
        0.9,
        model.action_of_choice,
        model.action_labels,
        reward_models={"a": model.rewards, "b": 2.0 * model.rewards},
    )
    bm.write(several, tmp_path / "m.npz")
    with pytest.raises(bm.ModelError, match="2 reward models"):
        bm.read_parts(tmp_path / "m.npz")
    with pytest.raises(bm.ModelError, match="no reward model 'c'"):
        bm.read_parts(tmp_path / "m.npz", reward="c")
    for name in ("a", "b", None):
        parts, whole = bm.read_parts(tmp_path / "m.npz", reward=name), bm.read(tmp_path / "m.npz", reward=name)
        assert np.array_equal(parts.read(3, 9).rewards, whole.rewards[whole.choice_ptr[3] : whole.choice_ptr[9]])
        assert parts.reward_name == name
    bm.write(several.with_reward("b"), tmp_path / "b.npz")
    assert bm.read_parts(tmp_path / "b.npz").reward_name == "b"


def test_joined_parts_are_one(tmp_path):
    model = clusters.mdp(20, 4)
    bm.write(model, tmp_path / "m.npz")
    parts = bm.read_parts(tmp_path / "m.npz")
    one, other = parts.read(2, 13), joined([parts.read(2, 7), parts.read(7, 8), parts.read(8, 13)])
    for name in ("indptr", "indices", "probs"):
        assert np.array_equal(getattr(one.rows, name), getattr(other.rows, name))
    assert np.array_equal(one.choice_ptr, other.choice_ptr)
    assert np.array_equal(one.actions, other.actions)
    assert one.reward_range == other.reward_range


# ---- metrics ----


@pytest.fixture(scope="module")
def client():
    pytest.importorskip("distributed")
    with clusters.local_client(2, processes=False) as found:
        yield found


def both(folder, match, seed=1, n=60):
    """A model, and the file of it; of its uniform policy where there is no match."""
    model = clusters.mdp(n, seed)
    bm.write(model, folder / "m.npz")
    parts = bm.read_parts(folder / "m.npz")
    return (model, parts) if match else (model.under(model.uniform_policy()), parts.under_uniform())


def small_of(model, match, seed=2):
    small = clusters.mdp(9, seed)
    small = small.with_rewards(np.clip(small.rewards, *model.reward_range))
    return small if match else small.under(small.uniform_policy())


@pytest.mark.parametrize("match", [None, "labels", "hausdorff"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_cross_metric_in_parts_has_the_same_bytes(client, tmp_path, match, dtype):
    model, parts = both(tmp_path, match)
    small = small_of(model, match)
    here = bm.cross(model, small, match=match, tol=1e-3, dtype=dtype, lump=False)
    there = bm.cross(parts, small, match=match, tol=1e-3, dtype=dtype, lump=False, cluster=client)
    assert clusters.same_bytes(here.metric, there.metric)
    assert here.metric.notes == there.metric.notes
    assert here.certificate == there.certificate
    one, other = here.bracket(3, np.arange(60)), there.bracket(3, np.arange(60))
    assert np.array_equal(one, other)
    with pytest.raises(bm.ModelError, match="read in parts"):
        there.metric.bracket()


@pytest.mark.parametrize("match", [None, "labels", "hausdorff"])
def test_abstractions_in_parts_are_certified(client, tmp_path, match):
    model, parts = both(tmp_path, match, seed=5)
    found = bm.abstract(parts, size=6, match=match, cluster=client)
    assert found.small.n_states <= 6
    D = bm.compare(model, found.small, match=match, tol=1e-9, lump=False).distance
    assert (D[np.arange(60), found.class_of] <= found.radii + 1e-8).all()
    if match == "labels":
        loss = bm.optimal_values(model).value - bm.evaluate(model, found.policy).value
        assert -1e-9 <= loss.max() <= found.certificate.error + 1e-8
    else:
        assert found.policy is found.certificate is None


def test_a_policy_in_parts_has_nearly_the_certificate_of_the_whole(client, tmp_path):
    """Values are iterated until their error is a hundredth of the bound."""
    model = bm.problems.gridworld(width=6, height=6)
    bm.write(model, tmp_path / "m.npz")
    found = bm.abstract(bm.read_parts(tmp_path / "m.npz"), size=14, match="labels", cluster=client)
    whole = policies.loss_of(model, found.policy)
    assert whole.error <= found.certificate.error <= 1.02 * whole.error


def test_an_eps_in_parts(client, tmp_path):
    model = bm.problems.gridworld(width=5, height=5)
    bm.write(model, tmp_path / "m.npz")
    parts = bm.read_parts(tmp_path / "m.npz")
    assert bm.abstract(parts, eps=2.0, match="labels", cluster=client).radius <= 2.0
    garnet = bm.problems.garnet(n_states=300, n_actions=2, branching=4, gamma=0.9, seed=0)
    bm.write(garnet, tmp_path / "g.npz")
    with pytest.raises(bm.NoCoverError):
        bm.abstract(bm.read_parts(tmp_path / "g.npz"), eps=0.2, match="labels", most=16, cluster=client)


def test_work_on_parts_is_gone_on_with(client, tmp_path):
    model, parts = both(tmp_path, "labels")
    small = small_of(model, "labels")
    settings = {"match": "labels", "tol": 1e-6, "cluster": client, "store": tmp_path / "store"}
    whole = bm.cross(parts, small, match="labels", tol=1e-6, cluster=client)

    def stop(progress):
        if progress.sweep == 2:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        bm.cross(parts, small, on_progress=stop, **settings)
    assert clusters.same_bytes(bm.cross(parts, small, **settings).metric, whole.metric)
    bm.write(clusters.mdp(60, 77), tmp_path / "m.npz")  # another model under the same name
    with pytest.raises(bm.ClusterError, match="something else"):
        bm.cross(bm.read_parts(tmp_path / "m.npz"), small, **settings)


def test_parts_become_smaller_until_they_fit(client, tmp_path, monkeypatch):
    from bisimetric.cluster import engine

    model, parts = both(tmp_path, "labels", n=400)
    small = small_of(model, "labels")
    monkeypatch.setattr(engine, "BASE", 0)
    check = engine.Crew.check

    def short_of_memory(self, store=None):
        check(self, store)
        self.memory = 60_000

    monkeypatch.setattr(engine.Crew, "check", short_of_memory)
    here = bm.cross(model, small, match="labels", tol=1e-3, lump=False)
    there = bm.cross(parts, small, match="labels", tol=1e-3, cluster=client, store=tmp_path / "store")
    assert clusters.same_bytes(here.metric, there.metric)
    assert len(list((tmp_path / "store" / "blocks").glob("R-*.npy"))) > 2
    monkeypatch.setattr(engine.Crew, "check", lambda self, store=None: (check(self, store), setattr(self, "memory", 1)))
    with pytest.raises(bm.ClusterError, match="too large for the workers"):
        bm.cross(parts, small, match="labels", cluster=client)


def in_ranges(monkeypatch, count):
    """Let workers read as many ranges, whatever their number is."""
    from bisimetric.cluster import backups, engine, scanning

    def some(crew, parts):
        return scanning.ranges_of(parts.n_states, count)

    for module in (scanning, engine, backups):
        monkeypatch.setattr(module, "ranges_for", some)
    monkeypatch.setattr(engine, "_TILES_PER_THREAD", count)


@pytest.mark.parametrize("match", [None, "labels"])
def test_results_do_not_depend_on_ranges(client, tmp_path, monkeypatch, match):
    """Labels, actions and kinds in other orders; as many kinds as there are landmarks, and more."""
    rng = np.random.default_rng(0)
    model = clusters.mdp(50, 8).with_labels({name: rng.random(50) < 0.4 for name in ("init", "y", "z")})
    bm.write(model, tmp_path / "m.npz")
    parts = bm.read_parts(tmp_path / "m.npz")
    parts = parts if match else parts.under_uniform()
    whole = model if match else model.under(model.uniform_policy())
    found = []
    for count in (1, 3, 7):
        in_ranges(monkeypatch, count)
        found.append(bm.abstract(parts, size=14, match=match, cluster=client))
    for one in found[1:]:
        assert one.radii.tobytes() == found[0].radii.tobytes()
        assert np.array_equal(one.class_of, found[0].class_of)
        assert one.notes == found[0].notes
        assert one.certificate == found[0].certificate
    D = bm.compare(whole, found[0].small, match=match, tol=1e-9, lump=False).distance
    assert (D[np.arange(50), found[0].class_of] <= found[0].radii + 1e-8).all()


def exact_loss(mdp, policy):
    """How far a policy of one action a state is from the best, in rational numbers."""
    gamma, n = Fraction(mdp.gamma), mdp.n_states
    chosen = [int(k) for k in np.flatnonzero(policy)]
    rows = [
        dict(zip(map(int, mdp.rows.indices[a:b]), map(Fraction, mdp.rows.probs[a:b]), strict=True))
        for a, b in pairwise(mdp.rows.indptr)
    ]

    def values(choices):
        """Cramer's rule for two states."""
        (a, b), (c, d) = (
            [Fraction(int(i == j)) - gamma * rows[k].get(j, Fraction(0)) for j in range(n)]
            for i, k in enumerate(choices)
        )
        r, q = (Fraction(float(mdp.rewards[k])) for k in choices)
        return (r * d - b * q) / (a * d - b * c), (a * q - c * r) / (a * d - b * c)

    own = values(chosen)
    every = [values((x, y)) for x in range(*mdp.choice_ptr[:2]) for y in range(*mdp.choice_ptr[1:])]
    return max(max(other[s] for other in every) - own[s] for s in range(n))


def test_losses_count_rounding(client, tmp_path):
    """Rewards that differ in their last digits, at a discount near 1."""
    lost = 0
    for gamma in (0.9999, 0.999999):
        for better in (0, 1):
            rewards = np.ones((2, 2))
            rewards[:, better] += [1e-12, -1e-12]
            P = np.zeros((2, 2, 2))
            P[:, 0, 0], P[:, 1, 1] = 1.0, 1.0
            mdp = bm.MDP.from_arrays(P, rewards, gamma, axes="sas")
            bm.write(mdp, tmp_path / "m.npz")
            found = bm.abstract(bm.read_parts(tmp_path / "m.npz"), size=1, match="labels", cluster=client)
            loss = exact_loss(mdp, found.policy)
            assert loss <= Fraction(found.certificate.error)
            lost += loss > 0
    assert lost


def test_certificates_in_parts_are_those_of_the_whole(client, tmp_path, monkeypatch):
    """In few passes also at a discount near 1, where the policy leaves several sets of states unleft."""
    from bisimetric.cluster.backups import Passes

    model = bm.problems.gridworld(width=3, height=3, gamma=0.9999)
    bm.write(model, tmp_path / "m.npz")
    turns, backed_up = [], Passes.backed_up
    monkeypatch.setattr(Passes, "backed_up", lambda self, V: turns.append(1) or backed_up(self, V))
    found = bm.abstract(bm.read_parts(tmp_path / "m.npz"), size=9, match="labels", cluster=client)
    assert len(turns) <= 40
    whole = policies.loss_of(model, found.policy)
    assert whole.error <= found.certificate.error <= 1.02 * whole.error


def test_ctrl_c_in_an_abstraction(client, tmp_path):
    """What was found so far is true, and says that it is not all."""
    model, parts = both(tmp_path, "labels")
    sweeps = []

    def stop(progress):
        sweeps.append(progress.sweep)
        if len(sweeps) == 3:
            raise KeyboardInterrupt

    for source, where in ((model, {}), (parts, {"cluster": client})):
        sweeps.clear()
        found = bm.abstract(source, size=5, match="labels", on_progress=stop, **where)
        assert found.status is bm.Status.INTERRUPTED
        D = bm.compare(model, found.small, match="labels", tol=1e-9, lump=False).distance
        assert (D[np.arange(60), found.class_of] <= found.radii + 1e-8).all()
        loss = bm.optimal_values(model).value - bm.evaluate(model, found.policy).value
        assert loss.max() <= found.certificate.error + 1e-8


def test_results_of_parts_are_pickled_and_say_what_they_lack(client, tmp_path):
    model, parts = both(tmp_path, "labels")
    found = bm.cross(parts, small_of(model, "labels"), match="labels", tol=1e-3, cluster=client)
    again = pickle.loads(pickle.dumps(found))
    assert again.distance.tobytes() == found.distance.tobytes()
    assert again.bracket(0, 1) == found.bracket(0, 1)
    with pytest.raises(bm.ModelError, match="read in parts"):
        found.metric.between()
    with pytest.raises(bm.ModelError, match="read in parts"):
        found.metric.carry(model.uniform_policy())


def test_rescaled_rows_are_noted(client, tmp_path):
    model = clusters.mdp(30, 0)
    np.savez(tmp_path / "m.npz", **damaged(model, probs=model.rows.probs * (1.0 + 3e-9)))
    small = small_of(model, "labels")
    notes = [
        bm.cross(source, small, match="labels", tol=1e-3, lump=False, **where).metric.notes
        for source, where in (
            (bm.read(tmp_path / "m.npz"), {}),
            (bm.read_parts(tmp_path / "m.npz"), {"cluster": client}),
        )
    ]
    assert any("rescaled" in note for note in notes[0])
    assert notes[0] == notes[1]


def test_what_a_killed_process_left_is_no_other_work(client, tmp_path):
    model, parts = both(tmp_path, "labels")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".token-0").write_text("x")
    bm.cross(parts, small_of(model, "labels"), match="labels", tol=0.1, cluster=client, store=tmp_path / "store")


# ---- what is refused ----


def test_what_cannot_be_done_in_parts_is_refused(client, tmp_path):
    _, parts = both(tmp_path, "labels")
    small = clusters.mdp(5, 3)
    with pytest.raises(ValueError, match="give cluster="):
        bm.cross(parts, small, match="labels")
    with pytest.raises(ValueError, match="give cluster="):
        bm.abstract(parts, size=3, match="labels")
    with pytest.raises(ValueError, match="whole model"):
        bm.cross(parts, small, match="labels", lump=True, cluster=client)
    with pytest.raises(ValueError, match="0 to 59"):
        parts.read(50, 61)
    with pytest.raises(ValueError, match="a chain has no choices"):
        bm.cross(parts.under_uniform(), small, match="labels", cluster=client)


def test_check_sums_are_compared(client, tmp_path):
    """Reading in parts looks at no check sums, so workers compare them once, member by member."""
    mdp = bm.problems.gridworld(width=100, height=100)
    bm.write(mdp, tmp_path / "m.npz")
    parts, small = bm.read_parts(tmp_path / "m.npz"), bm.problems.gridworld(width=2, height=2)
    assert bm.cross(parts, small, match="labels", tol=5.0, cluster=client).error <= 5.0
    data = bytearray((tmp_path / "m.npz").read_bytes())
    data[data.rfind(np.float64(0.925).tobytes()) + 7] ^= 0x80  # a probability of −0.925
    (tmp_path / "m.npz").write_bytes(bytes(data))
    with pytest.raises(bm.ModelError, match=r"m\.npz.*CRC"):
        bm.cross(bm.read_parts(tmp_path / "m.npz"), small, match="labels", tol=5.0, cluster=client)


def test_a_file_that_changed_is_opened_again(client, tmp_path):
    model, parts = both(tmp_path, "labels")
    bm.write(model.with_gamma(0.5), tmp_path / "m.npz")
    with pytest.raises(bm.ModelError, match="has changed since it was opened; open it again"):
        bm.cross(parts, small_of(model, "labels"), match="labels", cluster=client)
    with pytest.raises((ValueError, TypeError), match="gamma"):
        bm.read_parts(tmp_path / "m.npz", gamma="0.9")


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_copy_that_differs_is_refused_by_who_reads_it(tmp_path, ending):
    """Workers may have copies of their own, with another time, but not with other contents of the same size."""
    model = clusters.mdp(30, 1)
    path = tmp_path / f"m.{ending}"
    bm.write(model, path)
    parts = pickle.loads(pickle.dumps(bm.read_parts(path, gamma=0.9)))
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(1, 1))
    assert parts.read(0, 30).n_states == 30
    bm.write(model.with_rewards(model.rewards[::-1]), path)
    with pytest.raises(bm.ModelError, match="has changed since it was opened"):
        parts.read(0, 30)


def test_a_file_that_workers_do_not_see(client, tmp_path):
    _, parts = both(tmp_path, "labels")
    (tmp_path / "m.npz").unlink()
    with pytest.raises(bm.ClusterError, match="same path"):
        bm.cross(parts, clusters.mdp(5, 3), match="labels", cluster=client)


@pytest.mark.parametrize(
    ("path", "words"),
    [("m.csv", "read in parts from files that end in"), ("m.umb", "no discount"), ("m.parquet", "no discount")],
)
def test_files_that_are_not_read_in_parts(tmp_path, path, words):
    (tmp_path / path).write_text("")
    with pytest.raises(bm.ModelError, match=words):
        bm.read_parts(tmp_path / path)
    with pytest.raises(FileNotFoundError):
        bm.read_parts(tmp_path / "nothing.npz")


def damaged(model, **entries):
    """The arrays of a model, some of them changed."""
    arrays = {
        "format": "bisimetric-mdp",
        "version": 1,
        "indptr": model.rows.indptr,
        "indices": model.rows.indices,
        "probs": model.rows.probs,
        "rewards": model.rewards,
        "choice_ptr": model.choice_ptr,
        "gamma": 0.9,
        "action_of_choice": model.action_of_choice,
        "action_labels": np.array(model.action_labels),
    }
    return {**arrays, **entries}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("probs", lambda x: x * 0.9, "sum to 1"),
        ("probs", lambda x: -x, "not negative"),
        ("probs", lambda x: x[:-1], "numbers|pointers"),
        ("indices", lambda x: x + 1000, "outside"),
        ("indptr", lambda x: x[::-1].copy(), "numbers|pointers|successor"),
        ("choice_ptr", lambda x: np.where(np.arange(len(x)) == 3, 10**12, x), "numbers|pointers"),
        ("action_of_choice", lambda x: x + 7, "not in action_labels"),
        ("rewards", lambda x: x * np.nan, "finite"),
        ("version", lambda x: 99, "newer version"),
        ("format", lambda x: "another", "not a bisimetric model"),
        ("gamma", lambda x: 1.5, "gamma"),
        ("gamma", lambda x: np.full((1, 2), 0.9), "gamma"),
        ("choice_ptr", lambda x: x[:-1], "pointers"),
        ("choice_ptr", lambda x: x + 1, "pointers"),
        ("choice_ptr", lambda x: x.astype(np.float64), "integers"),
        ("rewards", lambda x: np.append(x, 0.0), "must have"),
    ],
)
def test_damaged_archives_are_refused(tmp_path, name, change, words):
    arrays = damaged(clusters.mdp(20, 0))
    np.savez(tmp_path / "m.npz", **{**arrays, name: change(arrays[name])})

    def read_all():
        parts = bm.read_parts(tmp_path / "m.npz")
        for first in range(0, 20, 5):
            parts.read(first, first + 5)

    with pytest.raises(bm.ModelError, match=words):
        read_all()


def test_an_archive_that_is_cut_short(tmp_path):
    bm.write(clusters.mdp(20, 0), tmp_path / "m.npz")
    parts = bm.read_parts(tmp_path / "m.npz")
    (tmp_path / "m.npz").write_bytes((tmp_path / "m.npz").read_bytes()[:700])
    with pytest.raises(bm.ModelError, match=r"m\.npz"):
        parts.read(0, 20)
    (tmp_path / "m.npz").write_bytes(b"PK")
    with pytest.raises(bm.ModelError, match=r"m\.npz"):
        bm.read_parts(tmp_path / "m.npz")


def test_objects_in_archives_are_not_read(tmp_path):
    model = clusters.mdp(6, 0)
    np.savez(tmp_path / "m.npz", **damaged(model, **{"label:x": np.array([None] * 6, dtype=object)}))
    with pytest.raises(bm.ModelError, match="read in parts"):
        bm.read_parts(tmp_path / "m.npz")


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_repeated_successors_add_up_the_same_way(seed, tmp_path_factory):
    """Three and more entries for one successor, in any order: sums have the same last bits in all parts."""
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    rng = np.random.default_rng(seed)
    columns = {name: [] for name in ("idstatefrom", "idaction", "idstateto", "probability", "reward")}
    for state in range(6):
        masses = rng.dirichlet(np.ones(8))
        for target, mass in zip(rng.integers(0, 3, 8), masses, strict=True):
            for name, value in zip(columns, (state, 0, int(target), float(mass), float(state)), strict=True):
                columns[name].append(value)
    columns["idstatefrom"].append(6), columns["idaction"].append(0), columns["idstateto"].append(6)
    columns["probability"].append(1.0), columns["reward"].append(0.0)
    path = tmp_path_factory.mktemp("twice") / "m.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    same_parts(bm.read_parts(path, 0.9), bm.read(path, 0.9), [0, 1, 2, 5, 7])


def test_odd_tables_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet

    def refused(words, **columns):
        given = {
            "idstatefrom": [0, 0, 1],
            "idaction": [0, 1, 0],
            "idstateto": [1, 0, 1],
            "probability": [1.0, 1.0, 1.0],
            "reward": [0.0, 1.0, 0.0],
            **columns,
        }
        kept = {name: value for name, value in given.items() if value is not None}
        pyarrow.parquet.write_table(pyarrow.table(kept), tmp_path / "m.parquet")
        with pytest.raises(bm.ModelError, match=words):
            bm.read_parts(tmp_path / "m.parquet", 0.9).read(0, 2)

    refused("sorted", idstatefrom=[1, 0, 0])
    refused("self-loop", idstateto=[1, 0, 2])
    refused("self-loop", idstatefrom=[0, 0, 2], idstateto=[2, 2, 2])
    refused("numbers from 0", idstateto=[1, -1, 1])
    refused("columns must be", reward=None)
    refused("whole numbers", idaction=[0.5, 1.0, 0.0])
    refused("empty places", probability=[1.0, None, 1.0])
    refused("sum to 1", probability=[1.0, 0.5, 1.0])


def test_commands_take_tables_of_models(tmp_path, capsys):
    """A Parquet file with probabilities is a model, one without them holds transitions."""
    pytest.importorskip("pyarrow")
    import json

    from bisimetric.cli import run

    path = tmp_path / "m.parquet"
    bm.write(clusters.mdp(12, 0), path)
    for command in (["solve", str(path), "--steps", "2", "--out", str(tmp_path / "run")], ["info", str(path)]):
        assert run([*command, "--gamma", "0.9", "--json"]) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)["states"] == 12
    assert run(["convert", str(path), str(tmp_path / "m.npz"), "--gamma", "0.9"]) == 0
    assert run(["convert", str(tmp_path / "m.npz"), str(tmp_path / "n.parquet")]) == 0
    capsys.readouterr()
    assert bm.read(tmp_path / "n.parquet", 0.9).rows.probs.tobytes() == bm.read(path, 0.9).rows.probs.tobytes()


def test_a_umb_archive_that_is_cut_short(tmp_path):
    path = tmp_path / "m.umb"
    members = umb_members()
    path.write_bytes(archive({**members, "branch-to-target.bin": members["branch-to-target.bin"][:-8]}))
    with pytest.raises(bm.ModelError, match="bytes instead of"):
        bm.read_parts(path, 0.9, reward="r").read(0, 2)
    data = io.BytesIO(archive(members))
    with tarfile.open(fileobj=data) as found:
        end = found.getmember("branch-to-probability.bin").offset_data
    path.write_bytes(data.getvalue()[:end])
    with pytest.raises(bm.ModelError, match=r"m\.umb"):
        bm.read_parts(path, 0.9, reward="r").read(0, 2)


def test_parts_say_what_they_are(tmp_path):
    _, parts = both(tmp_path, "labels")
    assert isinstance(parts, NpzParts)
    assert repr(parts) == "NpzParts(60 states, gamma=0.9)"
    assert parts.source != bm.read_parts(tmp_path / "m.npz", reward=None).source
