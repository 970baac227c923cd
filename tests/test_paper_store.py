"""Results folders: whose they are, what is kept in them, and damage that is named."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from bisimetric.paper import store
from bisimetric.paper.jobs import SharpnessJob
from bisimetric.paper.settings import AUTHORS, FULL, QUICK, TEXT, Variant
from bisimetric.paper.store import ResultsError

JOB = SharpnessJob(2, 0.1, 1.0, (3, 4), 0)
OTHER = SharpnessJob(2, 0.1, 1.0, (3, 4), 1)
ARRAYS = {
    "a": np.arange(12.0).reshape(3, 4),
    "b": np.array([1, 2, 3]),
    "words": np.array(["x", "yz"]),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 8)),
    "nan": np.array([np.nan, np.inf]),
}


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "results"
    store.begin(out, QUICK, TEXT, "1.0")
    return out


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- the folder ----


def test_begin_makes_a_folder_and_accepts_it_again(tmp_path):
    out = tmp_path / "deep" / "results"
    store.begin(out, FULL, AUTHORS, "1.0")
    before = snapshot(out)
    store.begin(out, FULL, AUTHORS, "1.0")
    assert snapshot(out) == before
    assert store.settings_of(out, "1.0") == (FULL, AUTHORS)


def test_begin_accepts_an_empty_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    store.begin(tmp_path / "empty", QUICK, TEXT, "1.0")
    assert store.settings_of(tmp_path / "empty", "1.0") == (QUICK, TEXT)


@pytest.mark.parametrize(
    ("profile", "variant", "version", "words"),
    [
        (QUICK, TEXT, "1.1", ("version", "1.0", "1.1")),
        (FULL, TEXT, "1.0", ("profile", "quick", "full")),
        (QUICK, Variant(rule="diameter"), "1.0", ("rule", "radius", "diameter")),
        (QUICK, Variant(concentration="1/N"), "1.0", ("concentration", "1/N")),
        (QUICK, Variant(cost="value"), "1.0", ("cost", "sharp", "value")),
        (QUICK, Variant(advance="alternating"), "1.0", ("advance", "first", "alternating")),
    ],
)
def test_begin_refuses_results_of_other_settings(folder, profile, variant, version, words):
    before = snapshot(folder)
    with pytest.raises(ResultsError) as caught:
        store.begin(folder, profile, variant, version)
    for word in (str(folder), "--out", *words):
        assert word in str(caught.value)
    assert snapshot(folder) == before


def test_begin_refuses_a_folder_of_something_else(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("hello")
    (tmp_path / "file").write_text("hello")
    for name in ("letters", "file"):
        with pytest.raises(ResultsError, match=name):
            store.begin(tmp_path / name, QUICK, TEXT, "1.0")
    assert [p.name for p in (tmp_path / "letters").iterdir()] == ["dear.txt"]
    assert (tmp_path / "file").read_text() == "hello"


def test_begin_refuses_a_run_folder_of_solve(tmp_path):
    (tmp_path / "settings.json").write_text('{"version": 1, "fingerprint": "x", "settings": {}}')
    with pytest.raises(ResultsError):
        store.begin(tmp_path, QUICK, TEXT, "1.0")
    with pytest.raises(ResultsError):
        store.settings_of(tmp_path, "1.0")


def test_settings_of_another_version(folder):
    with pytest.raises(ResultsError, match=r"1\.0.*2\.0"):
        store.settings_of(folder, "2.0")


def test_settings_of_another_format(folder):
    path = folder / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": store.FORMAT + 1}))
    for use in (lambda: store.settings_of(folder, "1.0"), lambda: store.begin(folder, QUICK, TEXT, "1.0")):
        with pytest.raises(ResultsError):
            use()


def test_settings_of_no_folder(tmp_path):
    for name in ("none", "."):
        with pytest.raises(ResultsError, match=r"settings\.json"):
            store.settings_of(tmp_path / name, "1.0")


WHOLE = {"format": store.FORMAT, "version": "1.0", "profile": "quick", **TEXT.describe()}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'"text"',
        b"3",
        b"null",
        b"[1, 2]",
        b"[]",
        b"{}",
        b"\xff\xfe\x00",
        b'{"format": 1, "version": "1.0"}',
        json.dumps({**WHOLE, "profile": "huge"}).encode(),
        json.dumps({**WHOLE, "profile": ["quick"]}).encode(),
        json.dumps({**WHOLE, "profile": None}).encode(),
        json.dumps({**WHOLE, "rule": "circle"}).encode(),
        json.dumps({**WHOLE, "rule": ["radius"]}).encode(),
        json.dumps({**WHOLE, "rule": {}}).encode(),
        json.dumps({key: value for key, value in WHOLE.items() if key != "cost"}).encode(),
    ],
)
def test_damaged_settings(folder, content):
    (folder / "settings.json").write_bytes(content)
    with pytest.raises(ResultsError) as caught:
        store.settings_of(folder, "1.0")
    assert str(folder) in str(caught.value)
    with pytest.raises(ResultsError) as caught:
        store.begin(folder, QUICK, TEXT, "1.0")
    assert str(folder) in str(caught.value)
    assert (folder / "settings.json").read_bytes() == content


def test_a_folder_without_settings_but_with_an_empty_runs_folder_can_be_used(tmp_path):
    """As a command leaves it that is stopped at its very beginning: the same command must be able to go on."""
    (tmp_path / "runs").mkdir()
    store.begin(tmp_path, QUICK, TEXT, "1.0")


# ---- results ----


def test_results_come_back_as_they_were(folder):
    assert store.load(folder, JOB) is None
    store.save(folder, JOB, ARRAYS, "cpu", "1.0")
    found = store.load(folder, JOB)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert store.load(folder, OTHER) is None
    made = store.made_by(folder, JOB)
    assert made["job"] == repr(JOB)
    assert (made["device"], made["version"], made["numpy"]) == ("cpu", "1.0", np.__version__)
    assert [path.name for path in (folder / "runs").iterdir()] == [store.path_of(folder, JOB).name]


def test_equal_results_are_equal_files(folder, tmp_path):
    store.begin(tmp_path / "two", QUICK, TEXT, "1.0")
    for where in (folder, tmp_path / "two"):
        store.save(where, JOB, ARRAYS, "cpu", "1.0")
    assert store.path_of(folder, JOB).read_bytes() == store.path_of(tmp_path / "two", JOB).read_bytes()


def test_a_result_can_be_replaced(folder):
    store.path_of(folder, JOB).write_bytes(b"damaged")
    store.save(folder, JOB, ARRAYS, "cpu", "1.0")
    assert store.load(folder, JOB).keys() == ARRAYS.keys()


def archive_of(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def one_array():
    stream = io.BytesIO()
    np.save(stream, np.arange(3))
    return stream.getvalue()


def text_archive():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("made.npy", "hello")
    return stream.getvalue()


FOREIGN = {
    "empty": b"",
    "text": b"hello\n",
    "zeros": bytes(1000),
    "zip header": b"PK\x03\x04",
    "one array": one_array(),
    "no made": archive_of(a=np.zeros(3)),
    "made is no JSON": archive_of(made=np.array("hello")),
    "made is a list": archive_of(made=np.array("[1]")),
    "made is a number": archive_of(made=np.array(3.0)),
    "made is of another run": archive_of(made=np.array(json.dumps({"job": repr(OTHER)}))),
    "made says nothing": archive_of(made=np.array("{}")),
    "pickled": archive_of(made=np.array(json.dumps({"job": repr(JOB)})), a=np.array([{"x": 1}], dtype=object)),
    "text inside": text_archive(),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_results_are_named(folder, kind):
    path = store.path_of(folder, JOB)
    path.write_bytes(FOREIGN[kind])
    with pytest.raises(ResultsError, match=r"damaged|not a result that can be read|not read") as caught:
        store.load(folder, JOB)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == FOREIGN[kind]


def test_a_result_that_is_a_folder_is_named(folder):
    path = store.path_of(folder, JOB)
    path.mkdir()
    with pytest.raises(ResultsError) as caught:
        store.load(folder, JOB)
    assert str(path) in str(caught.value)


def test_truncated_results_are_named(folder):
    store.save(folder, JOB, ARRAYS, "cpu", "1.0")
    path = store.path_of(folder, JOB)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ResultsError) as caught:
            store.load(folder, JOB)
        assert str(path) in str(caught.value)


def test_flipped_bits_are_named_or_harmless(folder):
    """Whatever byte is damaged: an error that names the file, or the arrays as they were."""
    store.save(folder, JOB, ARRAYS, "cpu", "1.0")
    path = store.path_of(folder, JOB)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    wrong = []
    for _ in range(600):
        broken = bytearray(whole)
        position = int(rng.integers(len(whole)))
        broken[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        try:
            found = store.load(folder, JOB)
        except ResultsError as error:
            if str(path) not in str(error):
                wrong.append((position, "does not name the file"))
            continue
        except Exception as error:
            wrong.append((position, repr(error)))
            continue
        same = found.keys() == ARRAYS.keys() and all(
            found[name].dtype == array.dtype and np.array_equal(found[name], array, equal_nan=array.dtype.kind == "f")
            for name, array in ARRAYS.items()
        )
        if not same:
            wrong.append((position, "other arrays"))
    assert not wrong, wrong[:10]
