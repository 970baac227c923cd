"""Check a release: python tools/release.py [FOLDER].

Builds sdist and wheel (the wheel from the sdist, twice: the same bytes), looks at what is in them, installs the wheel
into an empty environment without extras, tries it there, and lets mypy and pyright read a user's file against it.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parent.parent
TRY = """
import sys, bisimetric as bm
mdp = bm.problems.gridworld()
solution = bm.solve_metric(mdp, match="labels")
assert solution.converged
print(solution.explain(0, 7, depth=1))
bm.view(solution, "page.html")
assert "pandas" not in sys.modules and "matplotlib" not in sys.modules
for call, extra in ((solution.to_frame, "frames"), (lambda: bm.plot.map(solution), "viz")):
    try:
        call()
    except ImportError as error:
        assert f"bisimetric[{extra}]" in str(error), error
    else:
        raise AssertionError(extra)
print(bm.__version__)
"""


def run(*command: object, cwd: Path | None = None) -> str:
    """Run a command; its output is shown where it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def built(folder: Path) -> tuple[Path, Path]:
    """(sdist, wheel)."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check_contents(sdist: Path, wheel: Path, version: str) -> None:
    """What must be there is there, and nothing else; one version everywhere."""
    with tarfile.open(sdist) as tar:
        files = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    assert {"LICENSE", "README.md", "pyproject.toml", "src/bisimetric/__init__.py", "tests/conftest.py"} <= files
    stray = re.compile(r"\.(?!gitignore|pre-commit)|dist|build|demo|docs/_build|docs/paper/.*png")
    assert not [name for name in files if stray.match(name)], sorted(filter(stray.match, files))
    assert sdist.stat().st_size < 3_000_000, sdist.stat().st_size
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (place,) = (name for name in names if name.endswith("/METADATA"))
        facts = Parser().parsestr(archive.read(place).decode())
    assert facts["Version"] == version
    assert {"bisimetric/py.typed", "bisimetric/pages/assets/page.js"} <= set(names)
    assert all(name.startswith(("bisimetric/", "bisimetric-", "bisimetric_command")) for name in names)
    assert "https://raw.githubusercontent.com" in str(facts.get_payload())
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(), "CITATION.cff has another version"
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(), "CHANGELOG.md has not this version"


def tried(wheel: Path, folder: Path, version: str) -> None:
    """Installed into an empty environment without extras, used, and read by type checkers."""
    place = folder / "empty"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel)
    assert run(python, "-c", TRY, cwd=folder).strip().endswith(version)
    assert run(place / "bin" / "bisimetric", "--version").strip() == version
    run(place / "bin" / "bisimetric", "explain", "problem:gridworld", "0", "7", "--match", "labels", cwd=folder)
    user = ROOT / "tests" / "typing" / "user.py"
    run(sys.executable, "-m", "mypy", "--strict", "--python-executable", python, user, cwd=folder)
    print("mypy: a user's file is typed")
    run(sys.executable, "-m", "pyright", "--pythonpath", python, user, cwd=folder)
    print("pyright: a user's file is typed")


def main() -> int:
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/bisimetric/__init__.py").read_text(), re.MULTILINE)
    assert version
    with tempfile.TemporaryDirectory() as name:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(name) / "one"
        sdist, wheel = built(folder)
        _, again = built(Path(name) / "two")
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, again)]
        assert digests[0] == digests[1], "two builds of the wheel differ"
        print(f"{wheel.name} {wheel.stat().st_size} bytes, sha256 {digests[0]}, the same twice")
        check_contents(sdist, wheel, version[1])
        print(f"{sdist.name} {sdist.stat().st_size} bytes")
        tried(wheel, Path(name), version[1])
    print("the release is good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
