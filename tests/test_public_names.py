"""The public API: one list of names, each loaded when it is used, seen by everything that looks at a module."""

from __future__ import annotations

import ast
import importlib
import pickle
import pydoc
import rlcompleter
import subprocess
import sys
from pathlib import Path

import pytest

import bisimetric as bm

LISTED = Path(bm.__file__).with_name("__init__.pyi")
PLACES = {
    alias.name: (node, alias)
    for node in ast.parse(LISTED.read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_list_is_read_as_type_checkers_read_it():
    assert set(bm.__all__) == PLACES.keys() - {"learn"}
    for node, alias in PLACES.values():
        assert node.level == 1
        assert len(node.names) == 1  # a line each
        assert alias.asname == alias.name  # else it is no public name for a type checker
    assert bm.__all__ == [name for name in PLACES if name != "learn"]


@pytest.mark.parametrize("name", bm.__all__)
def test_each_name_is_that_of_its_module(name):
    node, _ = PLACES[name]
    here = getattr(bm, name)
    if node.module is None:
        assert here is importlib.import_module(f"bisimetric.{name}")
    else:
        assert here is getattr(importlib.import_module(f"bisimetric.{node.module}"), name)
    assert name in dir(bm)


def test_unknown_names_are_refused():
    assert not hasattr(bm, "solve_metrics")
    with pytest.raises(AttributeError, match="module 'bisimetric' has no attribute 'solve_metrics'"):
        bm.solve_metrics  # noqa: B018
    with pytest.raises(ImportError):
        from bisimetric import solve_metrics  # noqa: F401


def test_the_import_loads_nothing_else():
    """What is not used is not loaded: not even NumPy."""
    code = "import sys, bisimetric; print([m for m in sys.modules if m.startswith(('numpy', 'bisimetric.'))])"
    assert in_a_new_process(code) == "[]"
    code = "import sys, bisimetric; bisimetric.MDP; print('bisimetric.metric' in sys.modules, 'numpy' in sys.modules)"
    assert in_a_new_process(code) == "False True"


def test_a_star_imports_all_names():
    code = "from bisimetric import *; import bisimetric; print(set(bisimetric.__all__) <= set(globals()), solve_metric)"
    assert in_a_new_process(code).startswith("True <function solve_metric")


def test_people_who_look_around_find_the_names():
    assert "solve_metric(" in pydoc.render_doc(bm, renderer=pydoc.plaintext)
    code = "import rlcompleter, bisimetric; print(rlcompleter.Completer({'bm': bisimetric}).attr_matches('bm.solve_m'))"
    assert "bm.solve_metric" in in_a_new_process(code)
    assert "bm.EpsilonCover(" in rlcompleter.Completer({"bm": bm}).attr_matches("bm.Eps")


def test_what_is_pickled_is_found_by_a_process_that_has_used_nothing():
    things = (bm.Exact(2.0), bm.Constant(0.5), bm.MetricSettings(tol=1e-3), bm.Status.CONVERGED)
    code = f"import pickle; print(pickle.loads(bytes.fromhex({pickle.dumps(things).hex()!r})))"
    assert in_a_new_process(code) == str(things)


def test_the_list_of_commands_is_made_without_them():
    """`--help` says of each command what its docstring says, and loads neither it nor NumPy."""
    from bisimetric import cli

    code = "import sys; from bisimetric import cli; cli.run(['--help']); print('numpy' in sys.modules)"
    *listed, loaded = in_a_new_process(code).split("\n")
    assert loaded == "False"
    text = " ".join(word for line in listed for word in line.strip("│ ").split())
    for name, place in (cli.COMMANDS | cli.STUDIES).items():
        line = cli.first_line(place)
        assert line
        assert f"{name} {line}" in text
        module, function = place.split(":")
        found = getattr(importlib.import_module(f"bisimetric.cli.{module}"), function)
        told = found.__doc__ if name in cli.COMMANDS else found.help
        assert told.startswith(line)
