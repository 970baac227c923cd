"""Files that are no models: one line that names the file, never another exception, never much memory."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_files import CSV, DRN, TRA, refused, refused_by_command, reread
from umb_archives import archive, umb_members

import bisimetric as bm
from bisimetric.cli import run

TEXT = {".drn": DRN, ".tra": TRA, ".csv": CSV}


def good(ending, folder):
    """A valid file of the format."""
    path = folder / f"model{ending}"
    if ending == ".npz":
        bm.write(bm.problems.gridworld(2, 2), path)
    elif ending == ".umb":
        path.write_bytes(archive(umb_members()))
    else:
        path.write_text(TEXT[ending])
    return path


ENDINGS = (".npz", ".drn", ".umb", ".tra", ".csv")


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_of_other_kinds(ending, tmp_path, capsys):
    """Empty, garbage, or a good file of another format."""
    assert isinstance(reread(good(ending, tmp_path), 0.9), bm.MDP)
    path = tmp_path / f"bad{ending}"
    contents = [b"", b"\n\n", b"\x00\xff\xfe" * 99, b"\x93NUMPY", bytes(range(256)) * 9, b"hello\nworld\n", b"{}", b"3"]
    contents += [good(other, tmp_path).read_bytes() for other in ENDINGS if other != ending]
    for content in contents:
        path.write_bytes(content)
        refused(path)
    refused_by_command(path, capsys)


@pytest.mark.parametrize("ending", ENDINGS)
def test_missing_files_and_folders(ending, tmp_path, capsys):
    refused(tmp_path / f"none{ending}")
    assert run(["info", str(tmp_path / f"none{ending}")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    folder = tmp_path / f"folder{ending}"
    folder.mkdir()
    refused(folder)
    assert run(["info", str(folder)]) == 2


def test_endings(tmp_path):
    for name in ("model.xyz", "model", "model.DRNX"):
        refused(tmp_path / name, "known")


def test_models_for_storm_need_storm(tmp_path):
    with contextlib.suppress(ImportError):
        import stormpy  # noqa: F401

        pytest.skip("stormpy is installed")
    (tmp_path / "m.nm").write_text("mdp")
    refused(tmp_path / "m.nm", "pip install")


CHANGES = {  # ending: (what is replaced, by what, line named in the message, words)
    ".drn": [
        ("1 : 0.5", "7 : 0.5", 17, "7"),
        ("1 : 0.5", "1 : 0.49", None, "sum"),
        ("1 : 0.5", "1 : 1e308", None, "sum"),
        ("1 : 0.5", "1 : nan", 17, "finite"),
        ("1 : 0.5", "1 : -0.5", None, "negative"),
        ("1 : 0.5", "1 ; 0.5", 17, ""),
        ("1 : 0.5", "1 : 1/0", 17, "number"),
        ("state 1", "state 0", 20, "state 0"),
        ("state 1", "state 2", 20, "state 2"),
        ("[0.25, 1/3]", "[0.25]", 22, "1 rewards for 2"),
        ("[0.25, 1/3]", "[0.25, 1", 22, "closed"),
        ("[0.25, 1/3]", "[0.25, 1e999]", 22, "finite"),
        ("\taction __NOLABEL__ [0.25, 1/3]\n\t\t1 : 1\n", "", None, "choice"),
        ("\t\t1 : 1\nstate", "state", None, "sum"),
        ("@model\n", "@model\n\taction a\n", 13, "before any state"),
        ("@model\n", "@model\n0 : 1\n", 13, "before any action"),
        ("@nr_states\n2", "@nr_states\n1000000000", None, "1000000000"),
        ("@nr_choices\n3", "@nr_choices\n4", None, "4"),
        ('[0, 0] "done"\n//[x=1]\n\taction __NOLABEL__ [0.25', "[1e308, 0]\n\taction a [1e308", None, "finite"),
        ("@type: MDP", "@type: POMDP", 2, "POMDP"),
        ("double", "interval", 3, ""),
        ("@parameters\n", "@parameters\np", 5, "p"),
        ("[0, 1] init", "[0, 1] {3} init", 13, "POMDP"),
    ],
    ".tra": [
        ("0 0 1 0.5", "0 0 9 0.5", 3, "9"),
        ("0 0 1 0.5", "0 0 1 0.49", None, "sum"),
        ("0 0 1 0.5", "0 0 1 1e308", None, "sum"),
        ("0 0 1 0.5", "0 0 x 0.5", 3, "x"),
        ("0 0 1 0.5 a", "0 0 1", 3, "entries"),
        ("0 1 1 1 b", "0 2 1 1 b", None, "state 0"),
        ("1 0 1 1", "0 0 0 0", None, "choice"),
        ("2 3 4", "1000000000 3 4", 1, "1000000000"),
        ("2 3 4", "2 3 1000000000", 1, "1000000000"),
        ("2 3 4", "2 7 4", 1, "7"),
        ("2 3 4", "2 x 4", 1, "x"),
        ("2 3 4", "# comment\n\n2 3 5", 3, "5"),
    ],
    ".csv": [
        ("0,0,1,0.5,1", "0,0,999999999,0.5,1", None, "999999999"),
        ("0,0,1,0.5,1", "0,0,1,0.49,1", None, "sum"),
        ("0,0,1,0.5,1", "0,0,1,1e308,1", None, "sum"),
        ("0,0,1,0.5,1", "0,0,1,0.5,inf", 3, "reward"),
        ("0,0,1,0.5,1", "0,0,1,0.5", 3, "4 entries"),
        ("1,0,1,1,0.5\n", "", None, "choice"),
        ("idaction", "action", 1, "columns"),
        ("idaction", '"idaction', 1, "columns"),
        ("0,0,1,0.5,1", "0,0,1,1e308,1e308", None, ""),
        ("0,0,1,0.5,1", "0,-1,1,0.5,1", 3, "-1"),
    ],
}


@pytest.mark.parametrize(
    ("ending", "old", "new", "line", "word"),
    [pytest.param(end, *case, id=f"{end[1:]}-{k}") for end in CHANGES for k, case in enumerate(CHANGES[end])],
)
def test_mistakes_in_text_files(ending, old, new, line, word, tmp_path, capsys):
    path = good(ending, tmp_path)
    assert old in TEXT[ending]
    path.write_text(TEXT[ending].replace(old, new, 1))
    refused(path, word, line=line)
    refused_by_command(path, capsys)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("model.lab", '0="init"\n0: 3\n', 2),
        ("model.lab", '0="init"\n9: 0\n', 2),
        ("model.lab", "nothing\n", 1),
        ("model.lab", "", None),
        ("model.srew", "2 1\n2 1\n", 2),
        ("model.srew", "3 1\n1 1\n", 1),
        ("model.srew", "2 1\n7\n", 2),
        ("model.trew", "2 3 1\n0 5 1 1\n", 2),
        ("model.trew", "2 3 1\n0 0 8 1\n", 2),
        ("model.trew", "2 3 1\n0 0 1 x\n", 2),
        ("model.trew", "2 3 1\n1\n", 2),
    ],
)
def test_mistakes_beside_a_transition_file(name, text, line, tmp_path):
    path = good(".tra", tmp_path)
    (tmp_path / name).write_text(text)
    refused(path, line=line, named=tmp_path / name)


@pytest.mark.parametrize("ending", ENDINGS)
@given(st.data())
def test_damage_is_refused_or_harmless(tmp_path_factory, ending, data):
    """Cuts, changed and inserted bytes and moved lines: a valid model or one line, never another exception."""
    path = good(ending, tmp_path_factory.mktemp("fuzz"))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        kind = data.draw(st.sampled_from(["cut", "byte", "insert", "delete", "word"]))
        if kind == "cut":
            del content[at:]
        elif kind == "byte" and content:
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        elif kind == "delete":
            del content[at : at + data.draw(st.integers(1, 40))]
        else:
            words = [b"\r", b"\n", b"-1", b"1e308", b"99999999999", b'"', b"[", b"]", b" ", b"\t", b"#", b"//", b"nan"]
            content[at:at] = data.draw(st.sampled_from(words))
    path.write_bytes(content)
    with contextlib.suppress(bm.ModelError, OSError):
        assert isinstance(reread(path, 0.9), bm.MDP)
