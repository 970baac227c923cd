"""bisimetric truth without PyTorch, or Gymnasium: it says what to install, and can still be read about."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from bisimetric.cli import run


@pytest.mark.parametrize(("absent", "extra"), [("torch", "bisimetric[learn]"), ("gymnasium", "bisimetric[gym]")])
def test_it_says_what_to_install(absent, extra, tmp_path, monkeypatch, capsys):
    there = importlib.util.find_spec
    pretend = {"torch": True, "gymnasium": True, absent: False}
    monkeypatch.setattr("bisimetric.truth.find_spec", lambda name: there("os") if pretend[name] else None)
    assert run(["truth", "run", "all", "--out", str(tmp_path / "results")]) == 2
    error = capsys.readouterr().err
    assert extra in error
    assert error.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_the_list_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None\nfrom bisimetric.cli import run\nsys.exit(run(['truth', 'list']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "The truth table" in done.stdout


def test_an_error_names_the_remedy(capsys):
    assert run(["truth", "run", "drfit"]) == 2
    assert "'drift'" in capsys.readouterr().err
