"""Pictures, tables, claims and the page, all made from the runs of a results folder."""

from __future__ import annotations

import base64
import html
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .. import atomic
from ..paper import experiments, store, style
from ..paper.claims import Decision
from ..paper.jobs import job_id
from ..paper.report import (
    PAGE_STYLE,
    check_matplotlib,
    claims_csv,
    claims_html,
    claims_markdown,
    lines,
    verdict_counts,
    verdicts_html,
    with_results,
)
from ..paper.table import Cell, Table, summary_csv
from . import FIGURES, figure
from .claims import decide_all
from .settings import PROFILES, Profile

COMMAND = "bisimetric truth"
ABOUT_RULES = (
    "Effect: mean over seeds and its 95 % interval. The rules were written, and committed, before there were results. "
    "Changed after runs in small size, before those in full size: D6 was added, and T7 is about what no embedding can "
    "represent, where it was about errors of learning. X5 and X6 were added after the results in full size: they ask "
    "whether the weight decides. T8 to T12 are about the corners of the table other than (table, exact): they were "
    "added, and committed, when these corners had been run for three seeds of two models (garnet, lake), before they "
    "were run for all; all rules that were there before are as they were. Errors are parts of the diameter of the "
    "certified metric d_π, unless said otherwise. The rules are in src/bisimetric/truth/table_claims.py and claims.py."
)
__all__ = ["check_matplotlib", "lines", "publish", "settings_of", "write"]


@dataclass(frozen=True)
class Section:
    """One figure on the page."""

    name: str
    table: Table
    absent: int

    @property
    def title(self) -> str:
        return figure(self.name).TITLE


def begin(folder: Path, profile: Profile, release: str) -> None:
    """Make the results folder, or check that it is of the same version and profile."""
    wanted = {"format": store.FORMAT, "version": release, "study": "truth", "profile": profile.name}
    store.begin_study(folder, wanted, COMMAND)


def settings_of(folder: Path, release: str) -> Profile:
    """The profile of a results folder."""
    found = store.study_settings(folder, release, COMMAND)
    if found.get("study") != "truth" or found.get("profile") not in PROFILES:
        raise store.ResultsError(f"{folder}: holds no results of {COMMAND}; give the folder of {COMMAND} run.")
    return PROFILES[str(found["profile"])]


def write(folder: Path, release: str, say: Callable[[str], None]) -> list[Decision]:
    """Write tables, figures, claims and the page; returns the claims with what was decided."""
    profile = settings_of(folder, release)
    for part in ("tables", "figures"):
        (folder / part).mkdir(exist_ok=True)
    sections = [_section(name, folder, profile, say) for name in FIGURES]
    decisions = decide_all({s.name: s.table for s in sections if not s.absent})
    atomic.write_text(folder / "claims.csv", claims_csv(decisions))
    atomic.write_text(folder / "index.html", _page(folder, profile, release, sections, decisions))
    return decisions


def _section(name: str, folder: Path, profile: Profile, say: Callable[[str], None]) -> Section:
    """Draw a figure, once all of its runs are there: means over some of the models would mislead."""
    module = figure(name)
    cells = module.cells(profile)
    table = experiments.results(cells, folder, say)
    absent = len(cells) - len(table)
    if absent:  # nothing old may stay
        for path in (*(folder / "figures").glob(f"{name}.*"), *(folder / "tables").glob(f"{name}*.csv")):
            path.unlink()
    else:
        atomic.write_text(folder / "tables" / f"{name}.csv", _summary(name, table))
        with style.looks():
            style.save(module.draw(table, profile), folder / "figures", name)
    return Section(name, table, absent)


def _summary(name: str, table: Table) -> str:
    module = figure(name)
    own = getattr(module, "summary", None)
    return str(own(table)) if own is not None else summary_csv(table, module.QUANTITIES)


# ---- the page ----


def _page(folder: Path, profile: Profile, release: str, sections: list[Section], decisions: list[Decision]) -> str:
    shown = with_results(decisions)
    links = " ".join(f'<a href="#{s.name}">{html.escape(s.title)}</a>' for s in sections if not s.absent)
    facts = _facts(folder, profile, release, [s.name for s in sections if not s.absent])
    rows = "".join(f"<tr><td>{key}</td><td>{html.escape(value)}</td></tr>" for key, value in facts.items())
    return "\n".join(
        [
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>The truth table of learned metrics</title><style>{PAGE_STYLE}</style></head><body>",
            "<h1>The truth table of learned metrics</h1>",
            f"<p class='verdicts'>{verdicts_html(shown)}</p>",
            "<p>Losses against their own fixed points and the certified metric, with bisimetric "
            f"{html.escape(release)}, profile <b>{profile.name}</b>: {profile.seeds} seeds. Shaded, and bars: "
            "standard errors over seeds.</p>",
            f"<nav>{links} <a href='#claims'>Claims</a> <a href='#settings'>Settings</a></nav>",
            *(_figure_html(folder, section) for section in sections),
            "<h2 id='claims'>Claims</h2>",
            claims_html(shown, ABOUT_RULES),
            f"<h2 id='settings'>Settings, versions, seeds</h2><table><tbody>{rows}</tbody></table>",
            "</body></html>",
            "",
        ]
    )


def _figure_html(folder: Path, section: Section) -> str:
    title = html.escape(section.title)
    head = f"<h2 id='{section.name}'>{title}</h2>"
    if section.absent:
        command = f"{COMMAND} run {section.name}"
        return f"{head}<p class='note'>{section.absent} runs are missing: <code>{command}</code></p>"
    picture = base64.b64encode((folder / "figures" / f"{section.name}.svg").read_bytes()).decode()
    return (
        f"{head}<figure><img alt='{title}' src='data:image/svg+xml;base64,{picture}'>"
        f"<figcaption>{html.escape(figure(section.name).CAPTION)} <a href='tables/{section.name}.csv'>Table</a>."
        "</figcaption></figure>"
    )


def _facts(folder: Path, profile: Profile, release: str, names: list[str]) -> Mapping[str, str]:
    which = "all" if len(names) in (0, len(FIGURES)) else " ".join(names)
    cells = [cell for name in names for cell in figure(name).cells(profile)]
    return {
        "command": f"{COMMAND} run {which} --profile {profile.name}",
        "profile": str(profile),
        "seeds": f"0 to {profile.seeds - 1}, of the model (where it is a random one), the samples and the encoder "
        "alike",
        "runs made by": "; ".join(_made(folder, cells)),
        "page made by": f"bisimetric {release}, Python {platform.python_version()}, {_versions()}",
    }


def _made(folder: Path, cells: list[Cell]) -> list[str]:
    """What made the runs, each kind once, with their number."""
    kinds: dict[str, int] = {}
    for job in {job_id(cell.job): cell.job for cell in cells}.values():
        facts = store.made_by(folder, job)
        if facts is not None:
            text = ", ".join(
                f"{key} {facts[key]}" for key in ("processor", "version", "python", "numpy") if key in facts
            )
            kinds[text] = kinds.get(text, 0) + 1
    return [f"{count} runs: {text}" for text, count in kinds.items()]


def _versions() -> str:
    found = []
    for name in ("torch", "gymnasium", "numpy", "numba", "matplotlib"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


# ---- what is published ----


def publish(folder: Path, target: Path, release: str, decisions: list[Decision]) -> None:
    """Copy what is small (figures, tables, claims), with a page in Markdown that shows them."""
    profile = settings_of(folder, release)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy2(folder / "claims.csv", target / "claims.csv")
    names = []
    for name in FIGURES:
        for made, end in ((folder / "figures" / f"{name}.png", "png"), (folder / "tables" / f"{name}.csv", "csv")):
            (target / f"{name}.{end}").unlink(missing_ok=True)  # nothing old may stay
            if made.exists():
                shutil.copy2(made, target / f"{name}.{end}")
        if (target / f"{name}.png").exists():
            names.append(name)
    atomic.write_text(target / "README.md", _markdown(folder, profile, release, names, decisions))


def _markdown(folder: Path, profile: Profile, release: str, names: list[str], decisions: list[Decision]) -> str:
    facts, shown = _facts(folder, profile, release, names), with_results(decisions)
    out = [
        "# The truth table of learned metrics",
        "",
        f"**Of {len(shown)} claims {verdict_counts(shown)}.**",
        "",
        "What do the losses of learned bisimulation metrics converge to, how near do encoders come to that, and how "
        f"far is it from the certified metric? {profile.seeds} seeds. Made by `{facts['command']}` and `{COMMAND} "
        "report RESULTS --publish FOLDER`; this page is generated. Shaded, and bars: standard errors over seeds. "
        "What the losses are: [learned metrics](../learn.md).",
    ]
    for name in names:
        module = figure(name)
        out += [
            "",
            f"## {module.TITLE}",
            "",
            f"![{module.TITLE}]({name}.png)",
            "",
            f"{module.CAPTION} [Table]({name}.csv).",
        ]
    out += ["", "## Claims", "", ABOUT_RULES, "", *claims_markdown(shown), "", "## Settings", ""]
    out += [f"- {key}: {value}" for key, value in facts.items() if key != "command"]
    return "\n".join(out) + "\n"
