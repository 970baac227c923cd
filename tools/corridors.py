"""How far one walks to read the code: files and functions of a sweep and of a policy step, sizes, parameters.

    python tools/corridors.py            # this tree
    python tools/corridors.py OTHER/src  # another one, to compare

A walk is what Python itself does between two sweeps (exact transport, chain of 24 states; plain ones, and with what is
done between them) or two steps (the same, not lumped): every call of a function of the package, in order. Kernels are
left out: they are compiled.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

WALK = """
import json, sys
import bisimetric as bm

root = bm.__path__[0]
calls = []

def watch(frame, event, _):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(root) and "/kernels/" not in file or "select" in file:
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        if not name.endswith(("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")):
            calls.append((file[len(root) + 1 :], name))

def between(first):
    def see(progress):
        number = progress.sweep if hasattr(progress, "sweep") else progress.k
        sys.setprofile(watch if number == first else None)
    return see

bm.set_threads(1)
mdp = bm.problems.chain(n_states=24, n_classes=4, seed=1)
chain = mdp.under(mdp.uniform_policy())
found = {}
fields = getattr(getattr(bm, "MetricSettings", None), "__dataclass_fields__", {})
ways = {"sweep": {"accelerate": False}, "accelerated sweep": {}} if "accelerate" in fields else {"sweep": {}}
for name, way in ways.items():
    bm.solve_metric(chain, tol=1e-9, lump=False, on_progress=between(2), **way)
    sys.setprofile(None)
    found[name], calls = calls, []
bm.solve_policy(mdp, lump=False, steps=4, step_size=bm.Constant(0.5), on_progress=between(1))
sys.setprofile(None)
found["step"] = calls
print(json.dumps(found))
"""


def walks(source: Path) -> dict[str, Any]:
    """Files, functions and changes of file of one sweep and of one policy step."""
    environment = {"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run([sys.executable, "-c", WALK], env=environment, capture_output=True, text=True, check=True)
    found = {}
    for name, calls in json.loads(done.stdout).items():
        files = [file for file, _ in calls]
        found[name] = {
            "files": len(set(files)),
            "functions": len({tuple(call) for call in calls}),
            "changes of file": sum(a != b for a, b in itertools.pairwise(files)),
            "in": sorted(set(files)),
        }
    return found


def imported(path: Path, root: Path, seen: set[Path]) -> set[Path]:
    """A file and all files of the package that are loaded with it."""
    if path in seen:
        return seen
    seen.add(path)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = path.parent
        for _ in range(node.level - 1):
            base = base.parent
        base = base.joinpath(*(node.module or "").split(".")) if node.module else base
        for place in (base.with_suffix(".py"), base / "__init__.py", *(base / f"{a.name}.py" for a in node.names)):
            if place.exists() and root in place.parents and "cuda" not in place.parts and "gpu" not in place.parts:
                imported(place, root, seen)
    return seen


def core_lines(root: Path, files: set[str]) -> int:
    """Lines of the files that a sweep walks through, with the kernels of exact transport."""
    kernels = [path for name in ("simplex", "spanning_tree", "combine") for path in root.rglob(f"cpu/**/{name}.py")]
    read = {root / file for file in files} | set(kernels)
    return sum(path.read_text(encoding="utf-8").count("\n") for path in read)


def sizes(root: Path) -> dict[str, Any]:
    """Largest files, functions and parameter lists; `Any`, `fmt: skip`, looks at the device outside of engines."""
    files, functions, anys, skips, looks = [], [], 0, 0, []
    imports = re.compile(r"^from typing import (\([^)]*\)|.*)$", re.MULTILINE)
    device = re.compile(r"on_device|\.xp\b|where_it_lives|for_classes|to_device|cupy|cuda_array")
    for path in sorted(root.rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), str(path.relative_to(root))
        files.append((text.count("\n"), name))
        anys += len(re.findall(r"\bAny\b", imports.sub("", text)))
        skips += text.count("fmt: skip")
        inside = name.startswith(("backends", "kernels"))
        looks += [name for line in text.split("\n") if not inside and device.search(line)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
                functions.append((node.end_lineno - node.lineno + 1, count, f"{name} {node.name}"))  # type: ignore[operator]
    lines = sorted(length for length, _, _ in functions)
    return {
        "files": len(files),
        "lines": sum(length for length, _ in files),
        "largest file": max(files),
        "longest function": max(functions)[::2],
        "median and 90th percentile of functions": [lines[len(lines) // 2], lines[int(0.9 * len(lines))]],
        "longest parameter list": max((count, name) for _, count, name in functions),
        "parameter lists over 8": sum(count > 8 for _, count, _ in functions),
        "Any": anys,
        "fmt: skip": skips,
        "looks at the device outside of engines": [len(looks), len(set(looks))],
    }


def ignored_rules(project: Path) -> int | None:
    """Lint rules that are ignored everywhere."""
    if not project.exists():
        return None
    settings = tomllib.loads(project.read_text(encoding="utf-8"))
    return len(settings["tool"]["ruff"]["lint"].get("ignore", []))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=Path, default=Path(__file__).parents[1] / "src", metavar="OTHER/src")
    source = parser.parse_args().source.resolve()
    root = source / "bisimetric"
    if not root.is_dir():
        parser.error(f"{source} has no folder bisimetric: give the src folder of a tree")
    found: dict[str, Any] = walks(source)
    solve = root / "metric" / "solve.py"
    found["lines to read for a sweep, kernels included"] = core_lines(root, set(found["sweep"]["in"]))
    closure = {path for path in imported(solve, root, set()) if path.parts[-2] not in ("formats", "problems")}
    found["lines of metric/solve.py with all that it imports"] = sum(
        path.read_text(encoding="utf-8").count("\n") for path in closure
    )
    found["sizes"] = sizes(root)
    found["ignored lint rules"] = ignored_rules(source.parent / "pyproject.toml")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
