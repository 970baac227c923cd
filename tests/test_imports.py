"""Which way imports go: read from the source, not from what happens to be loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bisimetric

ROOT = Path(bisimetric.__file__).parent

# For each module or folder directly under bisimetric, the siblings that it may import. A dotted name allows that
# part of a sibling only. Imports inside a folder are its own affair. Modules that do not exist yet are listed
# where the design names them; a module that is not listed may import nothing of ours.
GROUND = {
    "archives",
    "atomic",
    "bars",
    "checks",
    "damage",
    "frames",
    "kinds",
    "locks",
    "room",
    "showing",
    "status",
}  # files, checks, types: for everybody
ENGINES = {
    "backends.comparison",
    "backends.protocol",
    "backends.select",
    "backends.errors",
    "backends.threads",
    "backends.plans",
}  # the seam: all that is seen
CORE = (
    GROUND
    | ENGINES
    | {"model", "transport", "aggregation", "lumping", "distinctions", "reduction", "values", "certificates"}
)
EVERYTHING_BELOW = CORE | {
    "metric",
    "estimate",
    "queries",
    "abstraction",
    "policy",
    "schedules",
    "cluster",
    "formats",
    "problems",
    "pictures",
    "pages",
    "plot",
    "backends.reference",
}
ALLOWED: dict[str, set[str]] = {
    "atomic": set(),
    "bars": set(),
    "frames": {"kinds"},
    "checks": set(),
    "damage": set(),
    "locks": set(),
    "room": set(),
    "status": set(),
    "showing": set(),
    "kinds": set(),
    "archives": {"atomic", "damage", "kinds"},
    "model": GROUND,
    "schedules": GROUND | {"certificates"},
    "certificates": {"kinds", "showing"},
    "transport": GROUND,  # settings and error mathematics: no engine
    "backends": GROUND | {"model", "transport"},
    "aggregation": GROUND | ENGINES | {"model"},  # the quotient is an MDP; distances come as arrays or Distances
    "lumping": GROUND | ENGINES | {"model", "aggregation", "distinctions"},
    "distinctions": GROUND | {"model", "lumping"},
    "reduction": GROUND | {"model", "aggregation", "lumping"},
    "values": GROUND | ENGINES | {"aggregation", "certificates", "model"},
    "cluster": GROUND | ENGINES | {"model", "transport", "__init__"},  # an engine whose units are done elsewhere
    "metric": CORE | {"cluster", "__init__"},
    "estimate": CORE | {"metric"},
    "policy": CORE | {"metric", "schedules", "estimate", "cluster", "queries", "abstraction"},
    "queries": CORE | {"metric", "cluster"},
    "abstraction": CORE | {"metric", "queries", "cluster"},
    "formats": GROUND | {"model"},
    "problems": GROUND | {"model"},
    "pages": CORE | {"metric", "policy"},
    "plot": CORE | {"metric", "policy", "pages"},
    "pictures": {"model", "aggregation", "policy"},
    "learn": CORE | {"metric", "policy", "schedules", "problems", "estimate"},
    "paper": EVERYTHING_BELOW,
    "truth": EVERYTHING_BELOW | {"learn", "paper"},
    "bench": EVERYTHING_BELOW | {"__init__"},
    "cli": EVERYTHING_BELOW | {"bench", "paper", "truth", "__init__"},
    "__main__": {"cli"},
    "__init__": EVERYTHING_BELOW | {"learn"},  # loaded when it is used
}
# Loaded when used, never at the top of a module (but for the folder or module named here).
LAZY = {
    "cupy",
    "matplotlib",
    "plotly",
    "gymnasium",
    "minari",
    "pyarrow",
    "stormpy",
    "dask",
    "distributed",
    "torch",
    "ot",
    "rich",
    "pandas",
}
LAZY_EXCEPTIONS = {("paper", "matplotlib"), ("learn", "torch"), ("truth", "torch")}


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def resolve(node: ast.ImportFrom, path: Path) -> list[str]:
    """Absolute dotted names that an import statement may load."""
    if node.level == 0:
        base = node.module or ""
    else:
        package = ["bisimetric", *path.relative_to(ROOT).parent.parts]
        package = package[: len(package) - node.level + 1]
        base = ".".join(package + ([node.module] if node.module else []))
    return [f"{base}.{alias.name}" for alias in node.names]


def our_imports(path: Path) -> set[str]:
    """Dotted names below bisimetric that a file imports, also inside functions and under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = resolve(node, path)
        else:
            continue
        found |= {name for name in names if name == "bisimetric" or name.startswith("bisimetric.")}
    return found


def sibling(dotted: str) -> str:
    """The part after bisimetric that exists as a module or folder; names of the package itself are __init__."""
    parts = dotted.split(".")[1:]
    if not parts or not ((ROOT / parts[0]).is_dir() or (ROOT / f"{parts[0]}.py").exists()):
        return "__init__"
    return ".".join(parts)


SOURCES = sorted([*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi")])


@pytest.mark.parametrize("path", SOURCES, ids=[str(p.relative_to(ROOT)) for p in SOURCES])
def test_imports_go_the_right_way(path):
    own = part_of(path)
    allowed = ALLOWED.get(own, set())
    for dotted in our_imports(path):
        target = sibling(dotted)
        if target.split(".")[0] == own:
            continue
        fits = any(target == rule or target.startswith(rule + ".") for rule in allowed)
        assert fits, (
            f"{path.relative_to(ROOT)} imports {dotted}; {own} may import {sorted(allowed) or 'nothing of ours'}"
        )


def test_nothing_imports_learn():
    """Only what is about learning needs torch."""
    for path in SOURCES:
        if part_of(path) not in ("learn", "truth", "__init__"):
            assert not [dotted for dotted in our_imports(path) if sibling(dotted).split(".")[0] == "learn"], path


def test_nothing_imports_cli_or_paper():
    for path in SOURCES:
        if part_of(path) in ("cli", "paper", "truth", "__main__"):
            continue
        for dotted in our_imports(path):
            assert sibling(dotted).split(".")[0] not in ("cli", "paper", "truth"), path


@pytest.mark.parametrize("path", SOURCES, ids=[str(p.relative_to(ROOT)) for p in SOURCES])
def test_optional_libraries_load_when_used(path):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for top in {name.split(".")[0] for name in names} & LAZY:
            assert (part_of(path), top) in LAZY_EXCEPTIONS, f"{path.relative_to(ROOT)} loads {top} when imported"


def test_the_rules_see_wrong_imports():
    """The reader itself: relative, absolute, nested and type-checking imports are all seen."""
    path = ROOT / "transport" / "imagined.py"
    text = "from ..metric import x\nfrom . import base\ndef f():\n    import bisimetric.cli\n"
    seen = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            seen |= set(resolve(node, path))
        elif isinstance(node, ast.Import):
            seen |= {alias.name for alias in node.names}
    assert seen == {"bisimetric.metric.x", "bisimetric.transport.base", "bisimetric.cli"}
    assert sibling("bisimetric.metric.x") == "metric.x"
    assert sibling("bisimetric.__version__") == "__init__"


def test_import_is_light():
    """To use a name loads neither compilers nor plotting nor SciPy's sparse matrices, nor what threads need."""
    heavy = ("numba", "scipy.sparse", "rich", "matplotlib", "cyclopts", "kmedoids", "torch", "concurrent.futures")
    code = f"import sys\nfrom bisimetric import *\nprint([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
