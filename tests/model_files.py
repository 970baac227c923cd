"""Models as files: small ones of each text format, reading back what was written, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import bisimetric as bm
from bisimetric import formats
from bisimetric.cli import run

DRN = """// a comment
@type: MDP
@value_type: double
@parameters

@reward_models
r q
@nr_states
2
@nr_choices
3
@model
state 0 [0, 1] init
//[x=0]
\taction a [1, 2]
\t\t0 : 0.5
\t\t1 : 0.5
\taction b [0, 0]
\t\t1 : 1
state 1 [0, 0] "done"
//[x=1]
\taction __NOLABEL__ [0.25, 1/3]
\t\t1 : 1
"""
TRA = "2 3 4\n0 0 0 0.5 a\n0 0 1 0.5 a\n0 1 1 1 b\n1 0 1 1\n"
LAB = '0="init" 1="done"\n0: 0\n1: 1\n'
TREW = "2 3 1\n0 0 1 4\n"
SREW = "2 1\n1 0.5\n"
CSV = "idstatefrom,idaction,idstateto,probability,reward\n0,0,0,0.5,1\n0,0,1,0.5,1\n0,1,1,1,0\n1,0,1,1,0.5\n"


def reread(path: Path | str, gamma: float | None = None) -> bm.MDP:
    """A model as it was written: the first of its reward models is the one that was in use."""
    whole = formats.read_whole(Path(path), gamma)
    return whole if Path(path).suffix == ".npz" else whole.with_reward(next(iter(whole.reward_models), None))


def back(mdp, folder, ending):
    path = folder / f"model{ending}"
    bm.write(mdp, path)
    return reread(path, 0.75)


def refused(path, *words, line=None, named=None):
    """One line that names the file (and where asked the line), from the library and from the command line."""
    with pytest.raises((bm.ModelError, OSError)) as caught:
        reread(path, 0.9)
    message = str(caught.value)
    assert "\n" not in message
    assert str(named or path) in message
    assert line is None or f"line {line}:" in message, message
    for word in words:
        assert word in message, message


def refused_by_command(path, capsys):
    before = sorted(path.parent.iterdir())
    for command in (
        ["lump", str(path), "--map", str(path.parent / "m.csv")],
        ["info", str(path)],
        ["convert", str(path), str(path.parent / "out.drn")],
        ["metric", str(path), "--gamma", "0.9", "-o", str(path.parent / "d.npz")],
    ):
        assert run(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert path.name in err
    assert sorted(path.parent.iterdir()) == before
