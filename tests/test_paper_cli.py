"""bisimetric paper: bad input, stops and damage, and the page that it writes. All in a size that takes seconds."""

from __future__ import annotations

import base64
import csv
import html
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import bisimetric as bm
from bisimetric.cli import run
from bisimetric.paper import BEYOND, FIGURES, experiments, figure, pool, settings, store
from bisimetric.paper import report as pages
from bisimetric.paper.claims import CLAIMS
from bisimetric.paper.settings import TEXT, Profile
from bisimetric.policy.folder import TIMES

TINY = Profile("quick", 12, 4, 2, 12, 12, 6, 6, 8, 6, 2, (2, 3), perturbed_exact=True)
SMALLEST = "p-ablation"  # six runs
SECOND = "value-functions"  # six more
DRIVER = f"""
import sys
from bisimetric.paper import settings
from bisimetric.paper.settings import Profile

if __name__ == "__main__":
    settings.PROFILES["quick"] = {TINY!r}
    from bisimetric.cli import run
    sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _tiny(monkeypatch, tmp_path):
    monkeypatch.setitem(settings.PROFILES, "quick", TINY)
    monkeypatch.chdir(tmp_path)
    bm.set_threads(1)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A folder with all runs of two figures."""
    folder = tmp_path_factory.mktemp("paper") / "whole"
    before = settings.PROFILES["quick"]
    settings.PROFILES["quick"] = TINY
    try:
        assert run(["paper", "run", SMALLEST, SECOND, "--out", str(folder), "--workers", "2"]) == 0
    finally:
        settings.PROFILES["quick"] = before
    return folder


@pytest.fixture
def results(whole, tmp_path):
    """A copy of it that may be changed."""
    import shutil

    return shutil.copytree(whole, tmp_path / "results")


def paper(*arguments):
    return run(["paper", *(str(argument) for argument in arguments)])


def one_line(capsys):
    """What was said of a mistake: one line, and nothing else."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("bisimetric: ")
    return err


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def arrays_of(folder, *names):
    """All results of figures, without their times."""
    found = {}
    for job in experiments.jobs_of(names, TINY, TEXT):
        arrays = store.load(folder, job)
        assert arrays is not None, job
        found[store.path_of(folder, job).name] = {k: v for k, v in arrays.items() if k not in TIMES}
    return found


def assert_same_arrays(one, two):
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].keys() == two[name].keys()
        for key in one[name]:
            np.testing.assert_array_equal(one[name][key], two[name][key], err_msg=f"{name} {key}")


# ---- list ----


def test_list(capsys):
    assert paper("list") == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name in FIGURES:
        assert sum(line.startswith(name + " ") for line in out.splitlines()) == 1
    assert out.count("beyond the paper") == len(BEYOND)


def test_list_as_json(capsys):
    assert paper("list", "--json") == 0
    rows = strict(capsys.readouterr().out)["figures"]
    assert [row["id"] for row in rows] == list(FIGURES)
    for row in rows:
        assert row["runs"]["quick"] == sum(cell.job.on != "cuda" for cell in figure(row["id"]).cells(TINY, TEXT))
        assert row["in_paper"] == (row["id"] not in BEYOND)


# ---- bad input ----


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("alpha-ablatoin", "alpha-ablation"),
        ("alpha_ablation", "alpha-ablation"),
        ("lamda-ablation", "lambda-ablation"),
        ("sharpnes", "sharpness"),
        ("naive-vs-warn", "naive-vs-warm"),
        ("budgets", "budget"),
    ],
)
def test_an_unknown_figure(given, nearest, capsys, tmp_path):
    assert paper("run", given, "--out", "out") == 2
    said = one_line(capsys)
    assert repr(given) in said
    assert repr(nearest) in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("figures", [("zzzzzz",), (SMALLEST, "alpha-ablatoin"), ("all", "alpha-ablatoin")])
def test_one_unknown_figure_is_enough(figures, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "run_jobs", lambda jobs, folder, **rest: [])
    assert paper("run", *figures, "--out", "out", "--no-report") == 2
    assert figures[-1] in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), ("figures", "all", "paper list")),
        ((SMALLEST, "--profile", "huge"), ("profile", "huge", "quick", "full")),
        ((SMALLEST, "--workers", "0"), ("workers", "0")),
        ((SMALLEST, "--workers", "-3"), ("workers", "-3")),
        ((SMALLEST, "--workers", "two"), ("workers", "two")),
        ((SMALLEST, "--rule", "square"), ("rule", "square", "radius", "diameter")),
        ((SMALLEST, "--concentration", "2"), ("concentration", "1/N")),
        ((SMALLEST, "--cost", "dull"), ("cost", "dull", "sharp", "value", "exact")),
        ((SMALLEST, "--advance", "never"), ("advance", "never", "alternating")),
        ((SMALLEST, "--device", "abacus"), ("device", "abacus")),
        ((SMALLEST, "--colour", "red"), ("--colour",)),
    ],
)
def test_bad_options(options, words, capsys, tmp_path):
    assert paper("run", *options, "--out", "out") == 2
    said = one_line(capsys)
    for word in words:
        assert word in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--profile", "full"), ("profile", "quick", "full")),
        (("--rule", "diameter"), ("rule", "radius", "diameter")),
        (("--concentration", "1/N"), ("concentration", "1/N")),
        (("--cost", "exact"), ("cost", "sharp", "exact")),
    ],
)
def test_a_folder_of_other_settings(options, words, results, capsys):
    before = contents(results)
    assert paper("run", SMALLEST, *options, "--out", results) == 2
    said = one_line(capsys)
    for word in (str(results), *words):
        assert word in said
    assert contents(results) == before


def test_a_folder_of_another_version(results, capsys):
    path = results / "settings.json"
    path.write_text(path.read_text().replace(f'"{bm.__version__}"', '"0.0.1"'))
    before = contents(results)
    for command in (("run", SMALLEST, "--out", results), ("report", results)):
        assert paper(*command) == 2
        said = one_line(capsys)
        assert str(results) in said
        assert "0.0.1" in said
        assert contents(results) == before


def test_folders_that_hold_no_results(capsys, tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("hello")
    (tmp_path / "file").write_text("hello")
    before = contents(tmp_path)
    for command in (
        ("run", SMALLEST, "--out", "letters"),
        ("run", SMALLEST, "--out", "file"),
        ("run", SMALLEST, "--out", "file/below"),
        ("report", "letters"),
        ("report", "file"),
        ("report", "nowhere"),
    ):
        assert paper(*command) == 2
        assert command[-1] in one_line(capsys)
        assert contents(tmp_path) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "letters"]


def test_without_matplotlib(monkeypatch, results, capsys, tmp_path):
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    before = contents(results)
    for command in (("run", SMALLEST, "--out", "new"), ("run", SMALLEST, "--out", results), ("report", results)):
        assert paper(*command) == 2
        assert "bisimetric[viz]" in one_line(capsys)
    assert contents(results) == before
    assert not (tmp_path / "new").exists()
    assert paper("list") == 0
    assert paper("run", SMALLEST, "--out", results, "--no-report") == 0  # all is done: nothing to draw with needed
    assert contents(results) == before


def test_two_commands_do_not_share_a_folder(results, capsys):
    from bisimetric.policy import folder as runs

    with runs.locked(results):
        for command in (("run", SMALLEST, "--out", results), ("report", results)):
            assert paper(*command) == 2
            assert str(results) in one_line(capsys)


# ---- runs ----


def test_runs_that_are_done_are_skipped(results, capsys):
    times = {path: path.stat().st_mtime_ns for path in (results / "runs").iterdir()}
    assert paper("run", SMALLEST, "--out", results, "--no-report") == 0
    _, err = capsys.readouterr()
    assert "6 runs, 6 of them done before" in err
    assert {path: path.stat().st_mtime_ns for path in (results / "runs").iterdir()} == times


def damage(path, how):
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "text": b"hello", "zeros": bytes(len(whole))}[how])


def test_damaged_results_are_named_and_rerun_alone(results, whole, capsys):
    jobs = experiments.jobs_of([SMALLEST], TINY, TEXT)
    broken = [store.path_of(results, job) for job in jobs[:2]]
    for path, how in zip(broken, ("cut", "zeros"), strict=True):
        damage(path, how)
    times = {path: path.stat().st_mtime_ns for path in (results / "runs").iterdir() if path not in broken}
    assert paper("run", SMALLEST, "--out", results, "--no-report", "--workers", "1") == 0
    _, err = capsys.readouterr()
    for path in broken:
        assert sum(str(path) in line and "again" in line for line in err.splitlines()) == 1
    assert "4 of them done before" in err
    now = {path: path.stat().st_mtime_ns for path in (results / "runs").iterdir()}
    assert {path: now[path] for path in times} == times
    assert set(now) == set(times) | set(broken)
    assert_same_arrays(arrays_of(results, SMALLEST), arrays_of(whole, SMALLEST))


@pytest.mark.parametrize("how", ["cut", "empty", "text", "zeros"])
def test_a_report_leaves_damaged_results_out(how, results, capsys):
    """Another seed of the same setting is there, so the figure is drawn, with a word on what is missing."""
    path = store.path_of(results, experiments.jobs_of([SMALLEST], TINY, TEXT)[0])
    damage(path, how)
    assert paper("report", results) == 0
    _, err = capsys.readouterr()
    assert str(path) in err
    assert "Traceback" not in err
    page = (results / "index.html").read_text()
    assert "1 runs are missing" in page or "1 run is missing" in page


def test_a_report_on_runs_with_gaps(results, capsys):
    """Each setting has a seed, but not the same one: whatever can be said is said."""
    for name in (SMALLEST, SECOND):
        for k, cell in enumerate(figure(name).cells(TINY, TEXT)):
            if cell.keys["seed"] == (k // 2) % 2:
                store.path_of(results, cell.job).unlink()
    assert paper("report", results) == 0
    assert (results / "figures" / f"{SMALLEST}.svg").exists()
    out, _ = capsys.readouterr()
    assert len(out.splitlines()) >= len(CLAIMS)


def test_a_failed_run_is_reported(results, monkeypatch, capsys):
    jobs = experiments.jobs_of([SMALLEST], TINY, TEXT)
    store.path_of(results, jobs[0]).unlink()
    failed = [pool.Failure("its-id", "its process died twice")]
    monkeypatch.setattr(pool, "run_jobs", lambda jobs, folder, **rest: failed)
    assert paper("run", SMALLEST, "--out", results) == 1
    _, err = capsys.readouterr()
    assert "its-id" in err
    assert "died" in err
    assert (results / "index.html").exists()


# ---- Ctrl-C ----


def start(driver, *arguments):
    command = [sys.executable, str(driver), "paper", *(str(argument) for argument in arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "BISIMETRIC_THREADS": "1"},
    )


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["to the process", "to all, as a terminal does"])
def test_an_interrupted_command_goes_on_to_the_same_results(send, whole, tmp_path, capsys):
    driver, folder = tmp_path / "driver.py", tmp_path / "stopped"
    driver.write_text(DRIVER)
    process = start(driver, "run", SMALLEST, "--out", folder, "--workers", "2", "--no-report")
    end = time.monotonic() + 60.0
    while not list(folder.glob("runs/*.npz")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.002)
    send(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=300)
    done = len(list(folder.glob("runs/*.npz")))
    if done < 6:
        assert process.returncode == 130, said
        assert "interrupted" in said
        assert str(folder) in said
    assert "Traceback" not in said
    assert done >= 1
    assert not (folder / "index.html").exists()
    assert paper("run", SMALLEST, "--out", folder, "--workers", "2", "--no-report") == 0
    assert f"6 runs, {done} of them done before" in capsys.readouterr().err
    assert_same_arrays(arrays_of(folder, SMALLEST), arrays_of(whole, SMALLEST))


# ---- the report ----


def test_a_report_on_no_results(tmp_path, capsys):
    folder = tmp_path / "empty"
    store.begin(folder, TINY, TEXT, bm.__version__)
    assert paper("report", folder) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"0 holds, 0 fails, {len(CLAIMS)} undecided" in out
    page = (folder / "index.html").read_text()
    for name in FIGURES:
        assert f"bisimetric paper run {name}" in page
    assert "<img" not in page
    assert list((folder / "figures").iterdir()) == []


def test_a_report_as_json(results, capsys):
    assert paper("report", results, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    facts = strict(out)
    assert facts["page"] == str(results / "index.html")
    assert [claim["claim"] for claim in facts["claims"]] == [claim.name for claim in CLAIMS]
    assert {claim["verdict"] for claim in facts["claims"]} <= {"holds", "fails", "undecided"}


def test_claims_as_a_table(results, capsys):
    assert paper("report", results) == 0
    with open(results / "claims.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["claim"] for row in rows] == [claim.name for claim in CLAIMS]
    out, _ = capsys.readouterr()
    for row in rows:
        assert row["text"] in out
        if row["figures"] not in (SMALLEST, SECOND):
            assert row["verdict"] == "undecided"


def test_tables_have_a_row_for_each_run_and_step(whole):
    with open(whole / "tables" / f"{SMALLEST}.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    cells = figure(SMALLEST).cells(TINY, TEXT)
    assert len(rows) == sum(cell.job.steps for cell in cells)
    found = {(row["p"], row["seed"], row["step"]): row for row in rows}
    assert len(found) == len(rows)
    for cell in cells:
        arrays = store.load(whole, cell.job)
        for k in range(cell.job.steps):
            row = found[f"{cell.keys['p']:g}", str(cell.keys["seed"]), str(k + 1)]
            assert float(row["error"]) == pytest.approx(arrays["error"][k], rel=1e-9)


def test_a_second_report_writes_the_same_bytes(results, capsys):
    assert paper("report", results) == 0
    first = contents(results)
    assert paper("report", results) == 0
    assert contents(results) == first
    for name in (SMALLEST, SECOND):
        for ending, start_of_file in (("svg", b"<?xml"), ("png", b"\x89PNG")):
            assert (results / "figures" / f"{name}.{ending}").read_bytes().startswith(start_of_file)


def test_the_page_of_a_part_is_of_that_part(whole):
    page = (whole / "index.html").read_text()
    check_page(page, [SMALLEST, SECOND])


def check_page(page, drawn):
    """Verdicts, figures, claims with results; nothing is fetched, and tables are linked."""
    assert page.startswith("<!doctype html>")
    for kind, target in re.findall(r"""\b(href|src)\s*=\s*["']?([^"'\s>]+)""", page):
        assert target.startswith(("#", "tables/") if kind == "href" else "data:image/"), target
    assert "http:" not in page
    assert "https:" not in page
    assert "<script" not in page
    assert "@import" not in page
    assert "url(" not in page
    pictures = re.findall(r"src='data:image/svg\+xml;base64,([^']+)'", page)
    assert len(pictures) == len(drawn)
    for picture in pictures:
        svg = base64.b64decode(picture).decode()
        assert "<svg" in svg
        assert all(link.startswith("#") for link in re.findall(r'href="([^"]+)"', svg))
    for name in FIGURES:
        assert f"id='{name}'" in page
        assert html.escape(figure(name).TITLE) in page
        assert (html.escape(figure(name).CAPTION) in page) == (name in drawn)
    shown = [claim for claim in CLAIMS if f"<td>{claim.name}</td>" in page]
    assert shown
    for claim in shown:  # those without results are left out
        assert set(claim.figures) <= set(drawn)
        assert html.escape(claim.text) in page
    assert f"Of {len(shown)} claims" in page
    assert page.index("Of ") < page.index("<figure>") < page.index("<h2 id='claims'>")
    for name in drawn:
        assert f"href='tables/{name}.csv'" in page
    for target in re.findall(r"""href=["']#([^"']+)""", page):
        assert re.search(rf"""id=["']{target}["']""", page)
    assert bm.__version__ in page
    assert "numpy" in page
    assert "seeds" in page
    assert TINY.name in page


def test_every_figure_is_drawn(tmp_path, monkeypatch):
    """All figures from made-up runs: the drawing, the tables and the page, without the time that runs take."""
    monkeypatch.setattr(store, "load", made_up)
    monkeypatch.setattr(pages.store, "made_by", lambda folder, job: dict.fromkeys(MADE, "made up"))
    folder = tmp_path / "all"
    store.begin(folder, TINY, TEXT, bm.__version__)
    assert paper("report", folder, "--publish", tmp_path / "docs") == 0
    check_page((folder / "index.html").read_text(), list(FIGURES))
    for name in FIGURES:
        for path in (f"figures/{name}.svg", f"figures/{name}.png", f"tables/{name}.csv", f"tables/{name}-summary.csv"):
            assert (folder / path).stat().st_size > 0
        assert (tmp_path / "docs" / f"{name}.png").exists()
        assert list((tmp_path / "docs").glob(f"{name}*.csv"))
    assert (tmp_path / "docs" / "claims.csv").read_bytes() == (folder / "claims.csv").read_bytes()


MADE = ("device", "version", "python", "numpy", "processor")


def made_up(folder, job):
    """Results of a run that nobody made."""
    from bisimetric.paper.jobs import CURVES, SharpnessJob

    rng = np.random.default_rng(job.seed)
    if isinstance(job, SharpnessJob):
        return {name: rng.random(job.pairs) for name in ("relative_error", "reference_error")}
    arrays = {name: rng.random(job.steps) + 0.1 for name in CURVES}
    arrays["metric_nmi"] = rng.random(job.steps if job.medoids else 0)
    boxes = np.sort(rng.random((len(job.probes), 8)), axis=1)
    values = {name: rng.random(TINY.n_states) for name in ("optimal_value", "value", "abstract_value")}
    return {**arrays, **values, "boxes": boxes}


def test_the_page_says_which_variant_it_is_of(tmp_path, monkeypatch):
    """Settings that hold for all figures are those of the variant, not those of the text's."""
    from bisimetric.paper.settings import Variant

    monkeypatch.setattr(store, "load", made_up)
    monkeypatch.setattr(pages.store, "made_by", lambda folder, job: dict.fromkeys(MADE, "made up"))
    monkeypatch.setattr(pages.style, "save", save_nothing)
    store.begin(tmp_path / "value", TINY, Variant(cost="value"), bm.__version__)
    pages.write(tmp_path / "value", bm.__version__, print)
    page = (tmp_path / "value" / "index.html").read_text()
    assert "--cost value" in page
    assert "sharp cost" not in page


def save_nothing(drawing, folder, name):
    (folder / f"{name}.svg").write_text("<svg/>")


def test_a_time_limit_keeps_what_is_done(tmp_path, monkeypatch, capsys):
    """Time is up before the first run ends: nothing is lost, the status is not 0, and the same command goes on."""
    monkeypatch.setitem(settings.PROFILES, "quick", TINY)
    out = tmp_path / "results"
    arguments = ["paper", "run", SMALLEST, "--out", str(out), "--no-report", "--workers", "1"]
    assert run([*arguments, "--time-limit", "1e-9"]) == 1
    assert "the time is up" in capsys.readouterr().err
    assert (out / "settings.json").exists()
    assert run([*arguments, "--time-limit", "10"]) == 0
    assert not experiments.missing(experiments.jobs_of([SMALLEST], TINY, TEXT), out, print)
    for limit in ("0", "-1", "nan"):
        assert run([*arguments, "--time-limit", limit]) == 2
        assert "--time-limit" in capsys.readouterr().err
