"""Model files: exact round trips, and one line for whatever is not a model."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_equality import assert_same
from random_models import random_mdp

import bisimetric as bm


@pytest.fixture(autouse=True)
def _no_open_files():
    yield
    gc.collect()  # a file left open is noticed here


@pytest.fixture
def model_file(tmp_path):
    bm.write(bm.problems.gridworld(2, 2), tmp_path / "model.npz")
    return tmp_path / "model.npz"


def entries(path):
    with np.load(path) as archive:
        return {key: archive[key] for key in archive.files}


def refused(path, words=""):
    with pytest.raises(bm.ModelError) as caught:
        bm.read(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert words in message


@given(st.integers(0, 10**6), st.booleans())
def test_round_trip_is_exact(tmp_path_factory, seed, ragged):
    path = tmp_path_factory.mktemp("models") / "model.npz"
    mdp = random_mdp(seed, 3, ragged=ragged)
    bm.write(mdp, path)
    assert_same(mdp, bm.read(path))


def test_round_trip_of_names_classes_and_unicode(tmp_path):
    for mdp in (bm.problems.gridworld(3, 2, copies=2), bm.problems.detours(30, 5, n_actions=3)):
        bm.write(mdp, tmp_path / "model.npz")
        assert_same(mdp, bm.read(tmp_path / "model.npz"))
    named = bm.MDP.from_arrays(np.eye(2)[:, None], [0, 1], 0.9, axes="sas", labels=["←"], state_names=["ä", "日本"])
    bm.write(named, str(tmp_path / "model.npz"))
    assert_same(named, bm.read(str(tmp_path / "model.npz")))
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_writing_is_all_or_nothing(tmp_path, monkeypatch, model_file):
    before = model_file.read_bytes()

    def full_disk(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        bm.write(bm.problems.garnet(5), model_file)
    assert model_file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_unknown_ending(tmp_path):
    for path in (tmp_path / "model.xyz", tmp_path / "model"):
        refused(path, ".npz")
        with pytest.raises(bm.ModelError, match="ending"):
            bm.write(bm.problems.garnet(5), path)
        assert not path.exists()


def test_missing_file(tmp_path):
    with pytest.raises(OSError, match=r"none\.npz"):
        bm.read(tmp_path / "none.npz")


def test_files_that_are_no_archive(tmp_path):
    path = tmp_path / "model.npz"
    array = io.BytesIO()
    np.save(array, np.eye(3))
    for content in (b"", b"hello, this is not a model\n" * 20, b"\x80\x04\x95pickle", b"PK\x03\x04", array.getvalue()):
        path.write_bytes(content)
        refused(path)


def test_foreign_archives(tmp_path, model_file):
    path = tmp_path / "foreign.npz"
    np.savez(path, x=np.eye(2))
    refused(path, "not a bisimetric model")
    np.savez(path, format="bisimetric-metric", version=1)
    refused(path, "not a bisimetric model")
    np.savez(path, **(entries(model_file) | {"version": 2}))
    refused(path, "newer version")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    refused(path)


def test_truncated_at_any_length(model_file):
    content = model_file.read_bytes()
    for length in [*range(0, len(content), 97), len(content) - 1]:
        model_file.write_bytes(content[:length])
        refused(model_file)


def test_damage_is_refused_or_harmless(tmp_path, model_file):
    """One changed byte anywhere, stored or compressed: a ModelError, or a valid model."""
    np.savez_compressed(tmp_path / "small.npz", **entries(model_file))
    for path in (model_file, tmp_path / "small.npz"):
        content = path.read_bytes()
        for at in range(0, len(content), 23):
            path.write_bytes(content[:at] + bytes([content[at] ^ 0x5A]) + content[at + 1 :])
            with contextlib.suppress(bm.ModelError):
                assert isinstance(bm.read(path), bm.MDP)


@pytest.mark.parametrize(
    "entry",
    ["version", "indptr", "indices", "probs", "rewards", "choice_ptr", "gamma", "action_of_choice", "action_labels"],
)
def test_each_entry_is_needed(model_file, entry):
    data = entries(model_file)
    del data[entry]
    np.savez(model_file, **data)
    refused(model_file, entry)


WRONG_ENTRIES = {
    "version": "one",
    "indptr": np.zeros(3, np.int64),
    "indices": np.array(0),
    "probs": np.array(["a"]),
    "rewards": np.zeros(3),
    "choice_ptr": np.array(16),
    "gamma": np.array([0.5, 0.5]),
    "action_of_choice": np.full(16, 9),
    "action_labels": np.array("north"),
    "state_names": np.array(["x"]),
    "classes": np.zeros(3),
}


@pytest.mark.parametrize("entry", WRONG_ENTRIES)
def test_entries_that_do_not_fit(model_file, entry):
    np.savez(model_file, **(entries(model_file) | {entry: WRONG_ENTRIES[entry]}))
    refused(model_file)


def test_models_are_checked_when_read(model_file):
    data = entries(model_file)
    for entry, value, words in [
        ("gamma", 1.5, "gamma"),
        ("probs", -data["probs"], "not negative"),
        ("probs", 0.5 * data["probs"], "sum to 1"),
        ("indices", data["indices"] + 3, "outside"),
        ("rewards", data["rewards"] * np.nan, "finite"),
    ]:
        np.savez(model_file, **(data | {entry: value}))
        refused(model_file, words)
