"""The code of the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import bisimetric as bm

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_code_runs(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert "import bisimetric as bm" in code
    small = bm.problems.chain(n_states=20, n_classes=4)
    bm.write(small, "model.drn")
    rng = np.random.default_rng(0)
    given = {"P": rng.dirichlet(np.ones(4), (4, 2)), "R": rng.random((4, 2))}
    code = code.replace("n_states=200, n_classes=20", "n_states=20, n_classes=4").replace("steps=500", "steps=3")
    # a generated model has no variables: the line on labels gets one whose states have names
    labels = "mdp = mdp.with_labels("
    assert labels in code
    code = code.replace(labels, "mdp = named(mdp).with_labels(")
    exec(code, {**given, "named": named})


def named(mdp: bm.MDP) -> bm.MDP:
    from dataclasses import replace

    return replace(mdp, state_names=tuple(f"x={s} & busy=false" for s in range(mdp.n_states)))
