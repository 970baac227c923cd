"""Pages: what they hold, and, in a real browser, what they do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from browsers import browser, complaints, opened
from random_models import random_mdp

import bisimetric as bm
from bisimetric.cli import run
from bisimetric.pages import page_of
from bisimetric.pages.coordinates import board_of
from bisimetric.pages.layout import laid_out
from bisimetric.pages.subjects import Subject

HOSTILE = [
    "<script>window.broken = 1</script>",
    '"><img src=x onerror="window.broken = 1">',
    "</script><script>window.broken = 1</script>",
    "שלום עולם \u202eabc",
    "x" * 10_000,
    "same",
    "same",
    "a\nb\x00",
    "@DATA@",
    "'quotes\"",
]


def data_of(page: Path) -> dict:
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(text)


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 2))


def distances(at: np.ndarray) -> np.ndarray:
    return np.sqrt(((at[:, None, :] - at[None, :, :]) ** 2).sum(axis=2))


# ---- layout ----


def test_points_of_a_plane_are_drawn_as_they_are():
    d = distances(points(60))
    layout = laid_out(d)
    assert layout.stress < 1e-3
    place = layout.place * d.max()
    assert distances(place) == pytest.approx(d, abs=2e-3 * d.max())
    assert sorted(layout.order) == list(range(60))
    assert layout.merges[-1, 2] == pytest.approx(d.max())


def test_landmarks_cover_all_points():
    d = distances(points(200))
    layout = laid_out(d, most=30)
    assert len(layout.landmarks) == 30
    nearest = d[:, layout.landmarks].min(axis=1)
    assert layout.reach == pytest.approx(nearest, abs=1e-12)
    place = layout.place * layout.between.max()
    assert np.abs(distances(place) - d).max() < 0.02 * d.max()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_points_and_none_apart(n):
    for d in (np.zeros((n, n)), distances(points(n)), 1e150 * distances(points(n)), 1e-150 * distances(points(n))):
        layout = laid_out(d)
        assert np.isfinite(layout.place).all()
        assert len(layout.merges) == n - 1


def test_boards_are_read_from_names():
    assert board_of(["room 0 row 1 column 2", "row 0 col 1"], None, 2).tolist() == [[1, 2], [0, 1]]
    assert board_of(["x=1 & y=2", "x=3 & y=0"], None, 2).tolist() == [[2, 1], [0, 3]]
    assert board_of(["a", "row 1 column 1"], None, 2) is None
    assert board_of(None, (2, 2), 5).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [-1, -1]]
    assert board_of(["row 99999999999999999999 column 1"] * 2, None, 2) is None
    for bad in ((0, 3), [[1.5, 2.0]], [[1, 2]]):
        with pytest.raises(ValueError, match="board"):
            board_of(None, bad, 3)


# ---- what pages hold ----


def test_a_page_is_one_small_file(tmp_path):
    mdp = bm.problems.gridworld()
    page = bm.view(bm.solve_metric(mdp, match="labels"), tmp_path / "page.html")
    text = page.read_text()
    assert len(text) < 300_000
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "default-src 'none'" in text
    data = data_of(page)
    assert data["n"] == 25
    assert data["loss"]["slope"] == pytest.approx(1 / (1 - mdp.gamma))
    assert data["board"]


def test_the_certified_loss_is_that_of_the_theorem(tmp_path):
    mdp = random_mdp(1, 6, ragged=False)
    solution = bm.solve_metric(mdp, match="labels")
    loss = data_of(bm.view(solution, tmp_path / "p.html"))["loss"]
    for diameter in (0.0, 0.3, 1.0):
        bound = bm.certificates.optimal_value_error(diameter / 2, gamma=mdp.gamma, metric_error=solution.error)
        assert loss["at"] + loss["slope"] * diameter == pytest.approx(bound.error)
    sharp = bm.solve_metric(mdp.under(mdp.uniform_policy()), bm.Sinkhorn(0.5))
    assert "failed" in data_of(bm.view(sharp, tmp_path / "p.html"))["loss"]


def test_many_states_are_sampled_and_say_so(tmp_path):
    n = 20_000
    P = __import__("scipy.sparse").sparse.eye_array(n, format="csr")
    chain = bm.Chain.from_arrays(P, (np.arange(n) % 7) / 7.0, 0.9)
    page = bm.view(bm.solve_metric(chain), tmp_path / "p.html")
    data = data_of(page)
    assert "5000 of 20000 states are drawn: a sample" in data["notes"]
    assert data["K"] == 7
    assert page.stat().st_size < 10_000_000


def test_what_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mdp = bm.problems.gridworld()
    with pytest.raises(TypeError, match="needs model="):
        bm.view(bm.solve_policy(mdp, steps=2), tmp_path / "p.html")
    with pytest.raises(TypeError, match="got int"):
        bm.view(3, tmp_path / "p.html")
    assert run(["metric", "problem:gridworld", "-o", "d.npz"]) == 0
    (tmp_path / "bad.csv").write_text("nothing\n")
    (tmp_path / "folder").mkdir()
    capsys.readouterr()
    for bad in (
        ["view", "missing.npz", "-o", "p.html"],
        ["view", "d.npz", "-o", "p.html", "--board", "4by4"],
        ["view", "d.npz", "-o", "p.html", "--model", "problem:gridworld?copies=2"],
        ["view", "d.npz", "-o", "p.html", "--model", "problem:gridworld?height=5&width=5&goal_reward=2"],
        ["view", "bad.csv", "-o", "p.html", "--model", "problem:gridworld"],
        ["view", "bad.csv", "-o", "p.html"],
        ["view", "folder", "-o", "p.html"],
        ["view", "d.npz"],
    ):
        assert run(bad) == 2, bad
        assert len(capsys.readouterr().err.splitlines()) == 1, bad
        assert not (tmp_path / "p.html").exists()


def test_files_without_their_model_have_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bm.write(bm.problems.gridworld(), "model.npz")
    assert run(["metric", "model.npz", "-o", "d.npz"]) == 0
    assert run(["view", "d.npz", "-o", "with.html"]) == 0
    Path("model.npz").unlink()
    assert run(["view", "d.npz", "-o", "without.html"]) == 0
    assert "no explanations" in capsys.readouterr().err
    assert data_of(tmp_path / "with.html")["model"]
    assert data_of(tmp_path / "without.html")["model"] is None
    assert data_of(tmp_path / "without.html")["names"][0] == "room 0 row 0 column 0"


# ---- in a browser ----


@pytest.fixture(scope="module")
def driver():
    with browser() as found:
        yield found


SEARCH = """const box = document.getElementById("search");
box.value = arguments[0]; box.dispatchEvent(new Event("input"));
box.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));"""


CLICK_UNTIL = """const canvas = document.getElementById("map"), box = canvas.getBoundingClientRect();
const done = () => document.getElementById("pair").textContent.includes(arguments[0]);
for (let y = 3; y < box.height; y += 6) {
  for (let x = 3; x < box.width && !done(); x += 6) {
    canvas.dispatchEvent(new MouseEvent("click", {clientX: box.left + x, clientY: box.top + y}));
  }
}"""


def test_metric_page(tmp_path, driver):
    from_python = bm.solve_metric(bm.problems.gridworld(), match="labels")
    page = bm.view(from_python, tmp_path / "page.html", title="grid")
    opened(driver, page)
    text = lambda name: driver.execute_script(f"return document.getElementById('{name}').textContent")  # noqa: E731
    assert "Pick two states" in text("pair")
    # search by name, then by number
    driver.execute_script(SEARCH, "room 0 row 0 column 0")
    driver.execute_script(SEARCH, "7")
    why = from_python.explain(0, 7)
    assert f"are {float(f'{why.distance:.4g}'):g} apart" in text("pair")
    assert f"under {why.cause.actions[0]}" in text("why")
    assert f"mass {why.cause.causes[0].mass:g} on" in text("why")
    # slider: by keys, to the end, where one class is left
    slider = driver.find_element("id", "eps")
    slider.send_keys("\ue014")  # arrow right
    assert "24 classes" in text("eps-out")
    slider.send_keys("\ue010")  # end
    assert "1 class" in text("eps-out")
    loss = 2 * from_python.distance.max() / 2 / (1 - 0.95)
    assert f"{float(f'{loss:.4g}'):g}" in text("eps-out")
    # click on the map: two states are picked
    driver.execute_script("document.querySelector('#pair button').click()")
    assert "Pick two states" in text("pair")
    for wanted in ("A ", " and B "):
        driver.execute_script(CLICK_UNTIL, wanted)
        assert wanted in text("pair")
    # keys on the map
    canvas = driver.find_element("id", "map")
    canvas.send_keys("\ue00c")  # escape lets go
    assert "Pick two states" in text("pair")
    canvas.send_keys("\ue014\ue014")
    assert "Enter picks it" in text("pair")
    canvas.send_keys("\ue007")
    assert text("pair").startswith("A ")
    # the board is there, and its click picks too
    assert driver.execute_script("return !document.getElementById('board-panel').hidden")
    # colours: every one can be chosen
    for k in range(driver.execute_script("return document.getElementById('colour').options.length")):
        driver.execute_script(
            "const c = document.getElementById('colour'); c.value = String(arguments[0]);"
            "c.dispatchEvent(new Event('change'))",
            k,
        )
    assert complaints(driver) == []


@pytest.mark.parametrize("transport", [bm.Exact(2), bm.Sinkhorn(0.2, cost="value"), bm.Independent()], ids=str)
def test_plans_on_the_page_are_those_of_explain(transport, tmp_path, driver):
    mdp = random_mdp(3, 7, ragged=False)
    chain = mdp.under(mdp.uniform_policy())
    solution = bm.solve_metric(chain, transport, tol=1e-7)
    page = bm.view(solution, tmp_path / "page.html")
    opened(driver, page)
    for s, t in ((0, 1), (2, 6)):
        found = driver.execute_script("return Explain.explain(arguments[0], arguments[1], 2)", s, t)
        why = solution.explain(s, t, depth=2, remainder=0.01)
        assert found["whole"] == pytest.approx(why.total, rel=2e-4)
        assert found["one"]["reward"] == pytest.approx(why.cause.reward_share, rel=1e-6, abs=1e-9)
        shares = sum(x["share"] for x in found["one"]["successors"])
        assert shares + found["one"]["reward"] + found["one"]["entropy"] == pytest.approx(found["whole"], rel=1e-6)
    assert complaints(driver) == []


def test_hostile_names_are_text(tmp_path, driver):
    P = np.random.default_rng(0).dirichlet(np.full(10, 0.3), (10, 2))
    mdp = bm.MDP.from_arrays(P, P[:, :, 0], 0.9, axes="sas", state_names=HOSTILE, labels=["<i>a", "b"])
    mdp = mdp.with_labels({"<u>label</u>": np.arange(10) < 3})
    page = bm.view(bm.solve_metric(mdp, match="labels"), tmp_path / "p.html", title=HOSTILE[0], board=(2, 5))
    opened(driver, page, 400, 800, dark=True)
    for s in range(10):
        driver.execute_script(SEARCH, str(s))
    driver.execute_script(SEARCH, "0")
    driver.execute_script(SEARCH, "2")
    assert driver.execute_script("return window.broken") is None
    assert HOSTILE[0] in driver.execute_script("return document.getElementById('pair').textContent")
    assert driver.execute_script("return document.querySelectorAll('img, i:not(.bar i), u').length") == 0
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 400
    assert driver.title == HOSTILE[0]
    assert complaints(driver) == []


def test_run_and_lumping_pages_on_a_phone(tmp_path, monkeypatch, driver):
    monkeypatch.chdir(tmp_path)
    assert run(["solve", "problem:gridworld?copies=2", "--steps", "4", "--out", "run", "--no-pictures", "--json"]) == 0
    assert run(["view", "run", "-o", "run.html"]) == 0
    assert run(["lump", "problem:gridworld?copies=2", "--map", "classes.csv"]) == 0
    assert run(["view", "classes.csv", "--model", "problem:gridworld?copies=2", "-o", "lump.html"]) == 0
    opened(driver, tmp_path / "run.html", 400, 800, dark=True)
    paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert sum(int(x) for x in re.findall(r"\d+", paper)[:3]) < 150  # dark
    steps = len(data_of(tmp_path / "run.html")["history"]["k"])
    slider = driver.find_element("id", "step")
    slider.send_keys("\ue011")  # home
    assert "0: error" in driver.execute_script("return document.getElementById('step-out').textContent")
    assert driver.execute_script("return document.getElementById('step').max") == str(steps - 1)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 400
    opened(driver, tmp_path / "lump.html", 400, 800, dark=True)
    driver.execute_script(SEARCH, "0")
    driver.execute_script(SEARCH, "1")
    why = driver.execute_script("return document.getElementById('why').textContent")
    assert "Holds in one class" in why
    assert "⟨" in why
    driver.execute_script(SEARCH, "0")
    driver.execute_script(SEARCH, "0")
    driver.execute_script(SEARCH, "25")
    driver.execute_script(SEARCH, "1")  # lets go of it: left are 0 in both copies
    assert complaints(driver) == []


@pytest.mark.parametrize("kind", ["one", "zero"])
def test_nothing_to_tell_apart(kind, tmp_path, driver):
    n = 1 if kind == "one" else 4
    chain = bm.Chain.from_arrays(np.eye(n), np.zeros(n), 0.9)
    page = bm.view(bm.solve_metric(chain, lump=False), tmp_path / "p.html")
    opened(driver, page)
    driver.execute_script(SEARCH, "0")
    assert complaints(driver) == []


def test_5000_states_are_drawn_soon(tmp_path, driver):
    at = points(5000).astype(np.float32)
    squares = (at**2).sum(axis=1)
    d = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * at @ at.T, 0.0))
    np.fill_diagonal(d, 0.0)
    subject = Subject("metric", d, None, 5000, {}, columns={"value": points(5000)[:, 0]})
    page = tmp_path / "p.html"
    page.write_text(page_of(subject, "5000"))
    assert page.stat().st_size < 10_000_000
    opened(driver, page)
    assert float(driver.execute_script("return document.documentElement.dataset.drawn")) < 10_000  # milliseconds
    moved = driver.execute_async_script(
        """const done = arguments[0], slider = document.getElementById("eps"), start = performance.now();
        let k = 0;
        const next = () => {
          slider.value = String(Math.round(slider.max * k / 20));
          slider.dispatchEvent(new Event("input"));
          if (++k <= 20) requestAnimationFrame(next); else done((performance.now() - start) / 21); };
        next();"""
    )
    assert moved < 1000  # milliseconds a frame
    assert complaints(driver) == []


def test_vendored_files_are_those_released():
    """By their hashes; tools/vendor.py --check compares with the release itself."""
    import hashlib

    folder = Path(bm.__file__).parent / "pages" / "assets" / "vendor"
    for facts in json.loads((folder / "vendored.json").read_text()).values():
        for name, entry in facts["files"].items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == entry["sha256"]
    assert "Permission is hereby granted" in (folder / "uPlot.LICENSE").read_text()
