"""The seam of engines: the same names, parameters and files on both sides, and nobody looks past it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bisimetric
from bisimetric.backends import cpu, cuda, protocol
from bisimetric.backends.cpu import kernels
from bisimetric.backends.cpu.distances import HostDistances
from bisimetric.backends.cpu.sweeper import CpuSweeper
from bisimetric.backends.cuda.distances import DeviceDistances
from bisimetric.backends.cuda.sweeper import CudaSweeper

ROOT = Path(bisimetric.__file__).parent
SIDES = {
    "Backend": (protocol.Backend, cpu.CpuBackend, cuda.CudaBackend),
    "Distances": (protocol.Distances, HostDistances, DeviceDistances),
    "Sweeper": (protocol.Sweeper, CpuSweeper, CudaSweeper),
    **{f"PairSolver-{way.__name__}": (protocol.PairSolver, cpu.SOLVERS[way], cuda.SOLVERS[way]) for way in cpu.SOLVERS},
}


def methods(kind: type) -> dict[str, list[str]]:
    """Public methods with the names of their parameters."""
    found = {}
    for name, value in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            found[name] = list(inspect.signature(value).parameters)
    return found


@pytest.mark.parametrize("name", SIDES)
def test_engines_have_the_methods_of_the_protocol_with_its_parameters(name):
    asked, *engines = SIDES[name]
    for engine in engines:
        has = methods(engine)
        for method, parameters in methods(asked).items():
            assert has.get(method) == parameters, f"{engine.__name__}.{method}"
        for member, value in inspect.getmembers(asked):
            if isinstance(value, property):
                assert isinstance(getattr(engine, member), property), f"{engine.__name__}.{member}"


def test_both_engines_know_the_same_transports():
    assert cpu.SOLVERS.keys() == cuda.SOLVERS.keys()
    for way, solver in cpu.SOLVERS.items():
        assert solver.__name__ == cuda.SOLVERS[way].__name__


def test_both_engines_have_the_same_files():
    sides = [{path.name for path in (ROOT / "backends" / engine).glob("*.py")} for engine in ("cpu", "cuda")]
    # Without discount, and pair by pair, there is no device, and none is given one half of the distances.
    host_only = {"undecided.py", "local_pairs.py", "choices.py", "halves.py", "tiles.py"}
    assert sides[0] - host_only == sides[1]


def test_nobody_else_looks_at_the_device():
    looks = re.compile(r"on_device|\.xp\b|cupy|cuda_array_interface|to_device|synchroni")
    for path in ROOT.rglob("*.py"):
        if "backends" not in path.parts:
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                assert not looks.search(line), f"{path.relative_to(ROOT)}:{number}: {line}"


def test_numbers_that_certificates_rest_on_stand_once():
    """Limits, safe exponents and shares are those of `transport.budget`: engines have none of their own."""
    own = re.compile(r"20_000|20000\b|\b300\.0\b|64\.0 \* eps|1e-13 if|DENSE_LIMIT =|ITERATION_LIMIT =")
    for engine in ("cpu", "cuda"):
        for path in (ROOT / "backends" / engine).glob("*.py"):
            assert not own.search(path.read_text(encoding="utf-8")), path.name


def test_parts_of_kernels_are_called_by_kernels_only():
    """Python has no way into them: a call would not end well."""
    folder = ROOT / "backends" / "cpu" / "kernels"
    functions = [
        (path, node) for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    functions = [(path, node) for path, node in functions if isinstance(node, ast.FunctionDef)]
    decorated = {node.name: {ast.unparse(one) for one in node.decorator_list} for _, node in functions}
    parts = {name for name, words in decorated.items() if words & {"part", "minima_part"}}
    assert len(parts) > 100
    assert not parts & set(kernels.__all__)
    for path, node in functions:
        if not node.decorator_list and path.name not in ("jit.py", "cache.py"):
            inner = {one for one in ast.walk(node) if isinstance(one, ast.FunctionDef) and one.decorator_list}
            called = {ast.unparse(one.func) for one in _calls(node, inner)}
            assert not called & parts, (path.name, node.name)
    for path in ROOT.rglob("*.py"):
        if folder not in path.parents:
            for name in re.findall(r"\bkernels\.(\w+)", path.read_text(encoding="utf-8")):
                assert name not in parts, (path.name, name)


def _calls(node: ast.AST, without: set[ast.AST]) -> Iterator[ast.Call]:
    """Calls in a function, but for those in some functions within it."""
    for child in ast.iter_child_nodes(node):
        if child not in without:
            if isinstance(child, ast.Call):
                yield child
            yield from _calls(child, without)
