"""What notebooks show, frames and pictures: each kind of result, also with hostile names and without the libraries."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from random_models import random_mdp

import bisimetric as bm


@pytest.fixture(scope="module")
def results() -> dict[str, object]:
    mdp = bm.problems.gridworld()
    solution = bm.solve_metric(mdp, match="labels")
    return {
        "mdp": mdp,
        "chain": mdp.under(mdp.uniform_policy()),
        "solution": solution,
        "partition": bm.EpsilonCover(0.5)(solution.distance),
        "lumping": bm.lump(mdp),
        "run": bm.solve_policy(mdp, steps=3),
        "certificate": solution.certificate,
        "failed": bm.certificates.optimal_value_error(0.1, gamma=0.9, c_T=0.5),
        "between": bm.compare(mdp, mdp, match="labels"),
        "explanation": solution.explain(0, 7),
        "distinction": bm.lump(mdp).explain(0, 7),
    }


NAMES = (
    "mdp chain solution partition lumping run certificate failed between explanation distinction"  # what has a table
)


@pytest.mark.parametrize("name", NAMES.split())
def test_tables_and_short_reprs(name, results):
    shown = results[name]._repr_html_()
    assert shown.count("<table>") == shown.count("</table>")
    assert shown.startswith("<")
    assert len(repr(results[name])) < 250
    assert "\n" not in repr(results[name])


def test_names_in_tables_are_text():
    from dataclasses import replace

    mdp = replace(random_mdp(1, 4), state_labels={"<script>": np.array([True, False, False, False])})
    assert "<script>" not in mdp._repr_html_()
    assert "&lt;script&gt;" in mdp._repr_html_()


def test_frames(results):
    pytest.importorskip("pandas")
    mdp, solution = results["mdp"], results["solution"]
    table = mdp.to_frame()
    assert table.groupby(["state", "action"])["probability"].sum().to_numpy() == pytest.approx(1.0)
    assert len(table) == mdp.rows.probs.size
    assert len(results["chain"].to_frame()) == results["chain"].rows.probs.size
    d = solution.to_frame()
    assert d.loc[mdp.name_of(0), mdp.name_of(7)] == solution.distance[0, 7]
    assert results["between"].to_frame().shape == (25, 25)
    assert results["partition"].to_frame(mdp.state_names)["class"].tolist() == results["partition"].class_of.tolist()
    history = results["run"].to_frame()
    assert history["bound"].tolist() == results["run"].curve("bound").tolist()


def test_without_pandas_or_matplotlib(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'bisimetric\[frames\]'"):
        results["solution"].to_frame()
    with pytest.raises(ImportError, match=r"pip install 'bisimetric\[viz\]'"):
        bm.plot.map(results["solution"])


@pytest.fixture
def axes():
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    figure, found = plt.subplots()
    yield found
    plt.close(figure)


def test_pictures_take_axes_and_give_them_back(axes, results):
    solution, mdp = results["solution"], results["mdp"]
    values = bm.optimal_values(mdp).value
    for draw in (
        lambda: bm.plot.metric(solution, axes=axes),
        lambda: bm.plot.map(solution, axes=axes, colour=results["partition"]),
        lambda: bm.plot.map(solution, axes=axes, colour=values),
        lambda: bm.plot.classes(solution, axes=axes),
        lambda: bm.plot.curves(results["run"], axes=axes),
        lambda: bm.plot.board(mdp, values, axes=axes),
    ):
        axes.clear()
        assert draw() is axes
        axes.get_figure().canvas.draw()


def test_pictures_show_what_is_there(axes, results):
    solution, mdp = results["solution"], results["mdp"]
    values = bm.optimal_values(mdp).value
    bm.plot.board(mdp, values, axes=axes)
    assert axes.images[0].get_array()[1, 2] == values[7]
    bm.plot.metric(solution, axes=axes, order=False)
    assert np.array_equal(axes.images[1].get_array(), solution.distance)
    axes.clear()
    bm.plot.classes(solution, axes=axes)
    eps, count = axes.lines[0].get_data()
    assert (eps[0], count[0], count[-1]) == (0.0, 25, 1)
    assert eps[-1] == pytest.approx(solution.distance.max() / 2)


def test_what_pictures_refuse(axes, results):
    with pytest.raises(ValueError, match="one entry per state"):
        bm.plot.map(results["solution"], axes=axes, colour=[1, 2])
    with pytest.raises(ValueError, match="no rows and columns"):
        bm.plot.board(random_mdp(1, 4), np.zeros(4), axes=axes)
    with pytest.raises(ValueError, match="one number per state"):
        bm.plot.board(results["mdp"], np.zeros(4), axes=axes)


def test_bars_are_silent_where_nobody_looks(capsys, results):
    with bm.Bar() as bar:
        bm.solve_metric(results["chain"], on_progress=bar)
        bm.solve_policy(results["mdp"], steps=2, on_progress=bar)
    assert capsys.readouterr() == ("", "")


class ZMQInteractiveShell:
    """What a notebook's shell is called."""


def test_bars_in_notebooks(monkeypatch, capsys, results):
    import types

    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=ZMQInteractiveShell))
    with bm.Bar(total=2) as bar:
        bm.solve_metric(results["chain"], on_progress=bar)
        assert "sweep" in bar._bar.tasks[0].description
        bm.solve_policy(results["mdp"], steps=2, on_progress=bar)
        assert "step" in bar._bar.tasks[0].description
        assert bar._bar.tasks[0].completed == 1.0
    capsys.readouterr()


def test_interrupts_end_a_solve_with_an_answer(results):
    def stop(progress):
        raise KeyboardInterrupt

    solution = bm.solve_metric(results["chain"], on_progress=stop)
    assert solution.status is bm.Status.INTERRUPTED
    assert solution.error < solution.largest * 2
