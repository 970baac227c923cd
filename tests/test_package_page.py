"""The page that a package index shows: what it points to is found from anywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TARGETS = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_pictures_and_links_are_absolute(project):
    text = readme = (ROOT / "README.md").read_text()
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for rule in hook["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    before, after = TARGETS.findall(readme), TARGETS.findall(text)
    assert len(before) == len(after) > 3
    home = project["project"]["urls"]["Homepage"]
    for old, new in zip(before, after, strict=True):
        assert new.startswith("https://")
        if not old.startswith("http"):
            assert (ROOT / old).exists(), old
            assert home.removeprefix("https://github.com/") in new
    assert "raw.githubusercontent.com" in text


def test_links_between_pages_are_found():
    for page in ROOT.glob("docs/**/*.md"):
        for target in TARGETS.findall(page.read_text()):
            if not target.startswith(("http", "#")):
                assert (page.parent / target.split("#")[0]).exists(), (page.name, target)


def test_what_the_project_says_of_itself(project):
    facts = project["project"]
    assert facts["authors"]
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(facts["urls"])
    extras = facts["optional-dependencies"]
    assert "cuda12x" in extras["cuda12"][0]
    assert "cuda13x" in extras["cuda13"][0]
    assert extras["gpu"] == ["bisimetric[cuda13]"]
