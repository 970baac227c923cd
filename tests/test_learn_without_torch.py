"""The package without PyTorch: it works, and what needs it says what to install."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import bisimetric as bm

ROOT = Path(bm.__file__).parents[2]


def test_learn_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import bisimetric as bm\n"
        "bm.solve_metric\n"
        "try:\n    bm.learn\n"
        "except ModuleNotFoundError as missing:\n    print(missing.name, missing)\n"
        "try:\n    bm.nothing\n"
        "except AttributeError as missing:\n    print(missing)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.strip().split("\n")
    assert first.startswith("torch ")
    assert 'pip install "bisimetric[learn]"' in first
    assert second == "module 'bisimetric' has no attribute 'nothing'"


def test_public_names_of_learn_are_documented():
    """Read from the source, as there may be no torch: each name has its place in the reference."""
    source = Path(bm.__file__).with_name("learn").joinpath("__init__.py").read_text(encoding="utf-8")
    names = set(re.findall(r'^    "(\w+)",$', source, re.MULTILINE))
    assert {"MetricLoss", "MirrorStep", "dbc"} <= names
    text = (ROOT / "docs" / "reference" / "learn.rst").read_text()
    for name in names:
        assert re.search(
            rf"(autofunction|autoclass|autoexception|automodule):: (bisimetric\.learn\.)?{name}\b", text
        ), name
