"""Every code block of the documentation and the README's commands run as they stand; the documentation builds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bisimetric as bm
from bisimetric.cli import run

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [page for page in sorted(ROOT.glob("docs/**/*.md")) if "_build" not in page.parts]
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]
# What cannot run here, and why.
NOT_RUN = {"docs/gpu.md": "needs a GPU"}
NEEDS_TORCH = ("docs/learn.md", "docs/learn-agents.md", "docs/theory/updates.md")
NOT_RUN_COMMANDS = {
    "bisimetric bench": "measures for a minute; the examples of --help run it with --quick",
    "bisimetric paper run all": "takes minutes; tests/test_paper_cli.py runs its parts",
    "bisimetric convert model.umb": "nothing here writes .umb files; tests/test_formats.py reads some",
}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch, one_thread):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    rng = np.random.default_rng(0)
    lines = [f"{s},{a},{s % 2},{t},false" for s, a, t in rng.integers(2, size=(500, 3))]
    Path("data.csv").write_text("\n".join(["s,a,r,s_next,done", *lines]) + "\n")  # transitions, for what reads some
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize("page", WITH_CODE, ids=[str(page.relative_to(ROOT)) for page in WITH_CODE])
def test_code_of_pages_runs(page, capsys):
    """All blocks of a page, in their order, in one session and one folder."""
    name = str(page.relative_to(ROOT))
    if name in NOT_RUN:
        pytest.skip(NOT_RUN[name])
    for needed in ("gymnasium", "pandas", "matplotlib", "distributed"):
        pytest.importorskip(needed)
    if name in NEEDS_TORCH:
        torch = pytest.importorskip("torch", reason="bisimetric.learn needs PyTorch: pip install torch")
        torch.set_num_threads(1)
    session: dict[str, object] = {}
    for language, code in BLOCK.findall(page.read_text()):
        if language == "python":
            exec(compile(code, name, "exec"), session)
            continue
        for line in code.strip().split("\n"):
            program, *arguments = shlex.split(line, comments=True)
            assert program == "bisimetric", line
            assert run(arguments) == 0, (line, capsys.readouterr().err[-2000:])


def test_other_fences_are_output_or_said_so():
    """A block is python, sh, plain output, or one of the few kinds that are not ours to run."""
    for page in [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for language in re.findall(r"^```(\S+)", page.read_text(), re.MULTILINE):
            assert language in {"python", "sh", "text"} or language.startswith("{"), (page.name, language)


def test_the_commands_of_the_readme_run(capsys):
    blocks = [block for language, block in BLOCK.findall((ROOT / "README.md").read_text()) if language == "sh"]
    (code,) = [block for block in blocks if "bisimetric" in block]
    names = tuple(f"l={k} & busy=false" for k in range(20))
    mdp = replace(bm.problems.chain(n_states=20, n_classes=4), state_names=names)
    mdp = replace(mdp, reward_models={"energy": mdp.rewards}, reward_name="energy")
    for file in ("model.npz", "model.drn", "changed.drn"):
        bm.write(mdp, file)
    ran = 0
    for line in code.strip().split("\n"):
        if any(line.startswith(start) for start in NOT_RUN_COMMANDS):
            continue
        program, *arguments = shlex.split(line.replace("n_states=300", "n_states=20"), comments=True)
        assert program == "bisimetric"
        goes_on = "--resume" in arguments
        if arguments == ["solve"] or (goes_on and arguments[0] == "metric"):
            continue  # the first is the demo; the other goes on after an interruption (tests/test_cli.py)
        short = ["--steps", "3"] if arguments[0] == "solve" and not goes_on else []
        assert run([*arguments, *short]) in (0, 1), (line, capsys.readouterr().err[-2000:])
        ran += 1
    assert ran >= 8


def test_pictures_of_the_gallery_are_drawn():
    pytest.importorskip("gymnasium")
    plt = pytest.importorskip("matplotlib.pyplot")
    for script in sorted((ROOT / "docs" / "gallery").glob("*.py")):
        before = len(plt.get_fignums())
        exec(compile(script.read_text(), script.name, "exec"), {})
        assert len(plt.get_fignums()) > before, script.name
        plt.close("all")


def test_public_names_are_documented():
    """Each public name has its place in the reference."""
    text = "\n".join(page.read_text() for page in ROOT.glob("docs/reference/*.rst"))
    for name in set(bm.__all__) - {"Certificate"}:  # a member of its module, which is there as a whole
        assert re.search(rf"(autofunction|autoclass|autoexception|automodule):: (bisimetric\.)?{name}\b", text), name


@pytest.mark.slow
def test_documentation_builds_without_warnings(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs"), "html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    index = (tmp_path / "html" / "searchindex.js").read_text()
    assert "hausdorff" in index
    for page in (tmp_path / "html").rglob("*.html"):
        assert not re.search(r'<(script|img)[^>]+src="(https?:)?//', page.read_text()), page
    assert "--checkpoint-every" in (tmp_path / "html" / "reference" / "cli.html").read_text()
