"""Tables, pictures and the page, all made from the runs of a results folder."""

from __future__ import annotations

import base64
import csv
import html
import io
import math
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from .. import atomic
from . import BEYOND, FIGURES, FigureModule, experiments, figure, store, style
from .claims import Decision, decide_all
from .evidence import Verdict
from .jobs import job_id
from .settings import Profile, Variant
from .table import Cell, Keys, Setting, Table, summary_csv, tidy_csv


def check_matplotlib() -> None:
    """Refuse to begin what would end without pictures."""
    if find_spec("matplotlib") is None:
        raise ValueError("figures need matplotlib: install bisimetric[viz], or give --no-report to do the runs only.")


@dataclass(frozen=True)
class Section:
    """One figure on the page."""

    name: str
    table: Table
    absent: int
    drawn: bool


def write(folder: Path, version: str, say: Callable[[str], None]) -> list[Decision]:
    """Write tables, figures, claims and the page; returns the claims with what was decided."""
    profile, variant = store.settings_of(folder, version)
    for part in ("tables", "figures"):
        (folder / part).mkdir(exist_ok=True)
    sections = [_section(name, folder, profile, variant, say) for name in FIGURES]
    tables = {section.name: section.table for section in sections if section.drawn}
    decisions = decide_all(tables, profile)
    atomic.write_text(folder / "claims.csv", claims_csv(decisions))
    atomic.write_text(folder / "index.html", page(folder, profile, variant, version, sections, decisions))
    return decisions


def _section(name: str, folder: Path, profile: Profile, variant: Variant, say: Callable[[str], None]) -> Section:
    module = figure(name)
    cells = module.cells(profile, variant)
    table = experiments.results(cells, folder, say)
    drawn = _has_all_settings(cells, table)
    if drawn:
        atomic.write_text(folder / "tables" / f"{name}.csv", tidy_csv(table))
        atomic.write_text(folder / "tables" / f"{name}-summary.csv", _summary(module, table))
        with style.looks():
            style.save(module.draw(table, profile), folder / "figures", name)
    else:  # nothing old may stay
        for path in (*(folder / "figures").glob(f"{name}.*"), *(folder / "tables").glob(f"{name}*.csv")):
            path.unlink()
    missing = len(_expected(cells, table)) - len(table)
    return Section(name, table, missing, drawn)


def _summary(module: FigureModule, table: Table) -> str:
    own = getattr(module, "summary", None)
    return str(own(table)) if own is not None else summary_csv(table, module.QUANTITIES)


def _expected(cells: list[Cell], table: Table) -> list[Cell]:
    """Runs that a figure needs: timed ones of the devices of which some are there, or else of the CPU."""
    there = {row.run for row in table}
    devices = {cell.job.on for cell in cells if job_id(cell.job) in there} - {None} or {"cpu"}
    return [cell for cell in cells if cell.job.on is None or cell.job.on in devices]


def _has_all_settings(cells: list[Cell], table: Table) -> bool:
    """Whether there is at least one seed of every setting."""

    def settings(keys: Keys) -> tuple[tuple[str, Setting], ...]:
        return tuple((key, value) for key, value in keys.items() if key != "seed")

    return {settings(cell.keys) for cell in _expected(cells, table)} == {settings(row.keys) for row in table}


def claims_csv(decisions: list[Decision]) -> str:
    stream = io.StringIO()
    facts = [decision.facts() for decision in decisions]
    writer = csv.DictWriter(stream, list(facts[0]), lineterminator="\n")
    writer.writeheader()
    for row in facts:
        writer.writerow({key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()})
    return stream.getvalue()


def counts(decisions: list[Decision]) -> dict[Verdict, int]:
    return {verdict: sum(d.finding.verdict is verdict for d in decisions) for verdict in Verdict}


def lines(decisions: list[Decision]) -> list[str]:
    """The claims as lines for a terminal."""
    found = []
    for d in decisions:
        why = d.finding.measure if math.isnan(d.finding.effect) else _effect(d)
        found.append(f"{d.finding.verdict.value:9s} {d.claim.name:4s} {d.claim.text}  [{why}]")
    number = counts(decisions)
    return [*found, ", ".join(f"{count} {verdict.value}" for verdict, count in number.items())]


def _effect(decision: Decision) -> str:
    f = decision.finding
    if math.isnan(f.effect):
        return "—"
    if math.isinf(f.low):
        return f"{f.effect:.3g}"
    return f"{f.effect:.3g}, {f.low:.3g} to {f.high:.3g}"


def publish(folder: Path, target: Path, version: str, decisions: list[Decision]) -> None:
    """Copy what is small (figures, summary tables, claims), with a page in Markdown that shows them."""
    profile, variant = store.settings_of(folder, version)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy2(folder / "claims.csv", target / "claims.csv")
    names = [name for name in FIGURES if (folder / "figures" / f"{name}.png").exists()]
    for name in FIGURES:  # nothing old may stay
        for end in ("png", "csv"):
            (target / f"{name}.{end}").unlink(missing_ok=True)
    for name in names:
        shutil.copy2(folder / "figures" / f"{name}.png", target / f"{name}.png")
        shutil.copy2(folder / "tables" / f"{name}-summary.csv", target / f"{name}.csv")
    atomic.write_text(target / "README.md", _markdown(folder, profile, variant, version, names, decisions))


def _markdown(
    folder: Path, profile: Profile, variant: Variant, version: str, names: list[str], decisions: list[Decision]
) -> str:
    facts = _facts(folder, profile, variant, version, names)
    shown = with_results(decisions)
    out = [
        "# The experiments of Kemertas and Jepson (2022), rerun",
        "",
        f"**Of {len(shown)} claims {verdict_counts(shown)}.**",
        "",
        f"{profile.n_states} states in {profile.n_classes} classes, {profile.seeds} seeds. Made by "
        f"`{facts['command']}` and `bisimetric paper report RESULTS --publish FOLDER`; this page is generated. Each "
        "table (`.csv`) has means and standard errors over seeds at the plotted steps. Shaded: standard errors.",
    ]
    for name in names:
        module = figure(name)
        beyond = " (beyond the paper)" if name in BEYOND else ""
        text = f"{caption(name, variant)} [Table]({name}.csv)."
        out += ["", f"## {module.TITLE}{beyond}", "", f"![{module.TITLE}]({name}.png)", "", text]
    out += [
        "",
        "## Claims",
        "",
        f"{_ABOUT_RULES} The rules are in `src/bisimetric/paper/claims.py`.",
        "",
        *claims_markdown(shown),
    ]
    out += ["", "## Settings", ""]
    out += [f"- {key}: {value}" for key, value in facts.items() if key != "command"]
    return "\n".join(out) + "\n"


def verdict_counts(decisions: list[Decision]) -> str:
    """How many claims hold, fail, are undecided, in words."""
    return ", ".join(f"{count} {_WORDS[verdict]}" for verdict, count in counts(decisions).items())


def claims_markdown(decisions: list[Decision]) -> list[str]:
    """The claims as lines of a table in Markdown."""
    out = ["| | claim | verdict | effect | measure; rule |", "|---|---|---|---|---|"]
    for d in decisions:
        more = " ".join(part for part in (d.elsewhere, d.reason) if part)
        reason = f" *{more}*" if more else ""
        cells = (
            d.claim.name,
            d.claim.text + reason,
            f"**{d.finding.verdict.value}**",
            _effect(d),
            f"{d.finding.measure}; {d.finding.rule}",
        )
        out.append("| " + " | ".join(cell.replace("|", "∣") for cell in cells) + " |")
    return out


# ---- the page ----

PAGE_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.verdicts { font-size: 1.15rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
figure { margin: 1rem 0; } figure img { width: 100%; height: auto; background: #fff; }
figcaption { opacity: 0.8; font-size: 0.92rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.6rem 0.25rem 0; border-bottom: 1px solid #8885; }
.holds, .fails, .undecided { font-weight: 600; white-space: nowrap; }
.holds { color: #00664d; } .fails { color: #a33a00; } .undecided { color: #5f5f5f; }
@media (prefers-color-scheme: dark) {
  .holds { color: #4fd1a5; } .fails { color: #ff9a5c; } .undecided { color: #a5a5a5; }
}
.claims th:nth-child(2) { width: 38%; } .claims th:nth-child(5) { width: 36%; }
.note { opacity: 0.75; } td.number { white-space: nowrap; } nav a { margin-right: 0.9rem; }
code { background: #8882; padding: 0.1rem 0.3rem; border-radius: 3px; }
@media (max-width: 640px) {
  .claims thead { display: none; } .claims tr { display: block; padding: 0.5rem 0; border-bottom: 1px solid #8885; }
  .claims td { display: block; border: none; padding: 0.05rem 0; } nav a { display: inline-block; }
  td { overflow-wrap: anywhere; }
}
"""
_ABOUT_RULES = (
    "Effect: mean over seeds and its 95 % interval. Rules were written before results were looked at, and changed "
    "since as follows. After runs in small size: claims about limits leave out settings that have not settled; 11a and "
    "11b allow for 0.01, which cannot be seen on their plots; shares count seeds, not runs; 9c needs 300 steps; 12h "
    "and 12i are new. After a first run in full size, which measured some things otherwise than the paper's captions "
    "say: ties between actions are broken at random; 8b to 8d are about the metric's own classes (k-medoids on it), "
    "over the steps as drawn; a setting has not settled where its error falls by 2 % on average, beyond chance; 3e, "
    "5e and 9f are new."
)
_MARKS = {Verdict.HOLDS: "✓", Verdict.FAILS: "✗", Verdict.UNDECIDED: "?"}
_WORDS = {Verdict.HOLDS: "hold", Verdict.FAILS: "fail", Verdict.UNDECIDED: "are undecided"}


def page(
    folder: Path, profile: Profile, variant: Variant, version: str, sections: list[Section], decisions: list[Decision]
) -> str:
    """One self-contained HTML page."""
    shown_claims = with_results(decisions)
    shown = [section for section in sections if section.drawn]
    links = " ".join(f'<a href="#{s.name}">{html.escape(figure(s.name).TITLE)}</a>' for s in shown)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        "<title>Approximate policy iteration with bisimulation metrics</title>",
        f"<style>{PAGE_STYLE}</style></head><body>",
        "<h1>Approximate policy iteration with bisimulation metrics: the experiments, rerun</h1>",
        f"<p class='verdicts'>{verdicts_html(shown_claims)}</p>",
        "<p>Kemertas and Jepson (TMLR 2022), rerun with bisimetric "
        f"{html.escape(version)}, profile <b>{profile.name}</b>: {profile.n_states} states in {profile.n_classes} "
        f"classes, {profile.seeds} seeds, {profile.steps} steps. Shaded: standard errors over seeds.</p>",
        f"<nav>{links} <a href='#claims'>Claims</a> <a href='#settings'>Settings</a></nav>",
        *(_figure_html(folder, section, variant) for section in sections),
        "<h2 id='claims'>Claims</h2>",
        claims_html(shown_claims, _ABOUT_RULES),
        _left_out(decisions, shown_claims),
        _settings_html(folder, profile, variant, version, sections),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def with_results(decisions: list[Decision]) -> list[Decision]:
    """Claims that something was measured for."""
    return [decision for decision in decisions if decision.finding.seeds]


def verdicts_html(decisions: list[Decision]) -> str:
    """The verdicts in one line."""
    parts = [
        f"<span class='{verdict.value}'>{_MARKS[verdict]} {count} {_WORDS[verdict]}</span>"
        for verdict, count in counts(decisions).items()
    ]
    return f"Of {len(decisions)} claims " + ", ".join(parts) + "."


def _left_out(decisions: list[Decision], shown: list[Decision]) -> str:
    count = len(decisions) - len(shown)
    return f"<p class='note'>{count} more claims have no results here.</p>" if count else ""


def claims_html(decisions: list[Decision], about_rules: str) -> str:
    """The claims as a table, with how they are decided above it."""
    rows = []
    for d in decisions:
        verdict = d.finding.verdict
        more = " ".join(part for part in (d.elsewhere, d.reason) if part)
        reason = f"<br><span class='note'>{html.escape(more)}</span>" if more else ""
        rows.append(
            f"<tr><td>{d.claim.name}</td><td>{html.escape(d.claim.text)}{reason}</td>"
            f"<td class='{verdict.value}'>{_MARKS[verdict]} {verdict.value}</td>"
            f"<td class='number'>{html.escape(_effect(d))}</td>"
            f"<td class='note'>{html.escape(d.finding.measure)}; {html.escape(d.finding.rule)}</td></tr>"
        )
    return (
        f"<details><summary>How claims are decided</summary><p class='note'>{about_rules}</p></details>"
        "<table class='claims'><thead><tr><th></th><th>claim</th><th>verdict</th>"
        f"<th>effect</th><th>measure and rule</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def caption(name: str, variant: Variant) -> str:
    """What a figure shows, with the choices of the variant that it depends on."""
    text = figure(name).CAPTION
    if name == "sharpness":
        return text
    rule = "Algorithm 1 (radius ε around a medoid)" if variant.rule == "radius" else "all pairs of a class within 2ε"
    spread = f"Dirichlet({variant.concentration}) inside classes"
    return f"{text} Unless said otherwise: aggregation by {rule}; {spread}; {variant.cost} transport cost."


def _figure_html(folder: Path, section: Section, variant: Variant) -> str:
    module = figure(section.name)
    title = html.escape(module.TITLE) + (" (beyond the paper)" if section.name in BEYOND else "")
    head = f"<h2 id='{section.name}'>{title}</h2>"
    if not section.drawn:
        return f"{head}<p class='note'>Not run: <code>bisimetric paper run {section.name}</code></p>"
    picture = base64.b64encode((folder / "figures" / f"{section.name}.svg").read_bytes()).decode()
    gap = f" {section.absent} runs are missing." if section.absent else ""
    return (
        f"{head}<figure><img alt='{title}' src='data:image/svg+xml;base64,{picture}'>"
        f"<figcaption>{html.escape(caption(section.name, variant))}{gap} Tables: "
        f"<a href='tables/{section.name}.csv'>all runs</a>, "
        f"<a href='tables/{section.name}-summary.csv'>means</a>.</figcaption></figure>"
    )


def _settings_html(folder: Path, profile: Profile, variant: Variant, version: str, sections: list[Section]) -> str:
    facts = _facts(folder, profile, variant, version, [s.name for s in sections if s.drawn])
    rows = "".join(f"<tr><td>{key}</td><td>{html.escape(value)}</td></tr>" for key, value in facts.items())
    return f"<h2 id='settings'>Settings, versions, seeds</h2><table><tbody>{rows}</tbody></table>"


def _facts(folder: Path, profile: Profile, variant: Variant, version: str, names: list[str]) -> dict[str, str]:
    """What the results depend on, in words."""
    chosen = variant.describe()
    options = " ".join(f"--{key} {value}" for key, value in chosen.items() if value != getattr(Variant(), key))
    which = "all" if len(names) in (0, len(FIGURES)) else " ".join(names)
    cost = "exact transport" if variant.cost == "exact" else f"λ = 1 ({variant.cost} cost, diagonal set to 0)"
    return {
        "command": f"bisimetric paper run {which} --profile {profile.name} {options}".strip(),
        "profile": str(profile),
        "variant": ", ".join(f"{key}: {value}" for key, value in chosen.items()),
        "unless said otherwise": f"γ = 0.9, p = 1, {cost}, n = 28 sweeps at most, stopped "
        "early at a change of 1e-3, greedy policies perturbed so that δ is in [0.05, 0.1], ties broken at random, "
        "uniform first policy, Sinkhorn to a marginal error of 1e-6",
        "seeds": f"0 to {profile.seeds - 1}, of the model, the noise and the first medoids alike",
        "runs made by": "; ".join(_made(folder, profile, variant, names)),
        "page made by": f"bisimetric {version}, Python {platform.python_version()}, {_versions()}",
    }


_MADE = ("device", "processor", "version", "python", "numpy")


def _made(folder: Path, profile: Profile, variant: Variant, names: list[str]) -> list[str]:
    """What made the runs, each kind once, with their number."""
    kinds: dict[str, int] = {}
    for job in experiments.jobs_of(names, profile, variant):
        facts = store.made_by(folder, job)
        if facts is not None:
            text = ", ".join(f"{key} {facts[key]}" for key in _MADE if key in facts)
            kinds[text] = kinds.get(text, 0) + 1
    return [f"{count} runs: {text}" for text, count in kinds.items()]


def _versions() -> str:
    found = []
    for name in ("numpy", "scipy", "numba", "kmedoids", "matplotlib"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
