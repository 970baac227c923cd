"""The documentation: Sphinx with the theme of NumPy, SciPy and scikit-learn, Markdown by MyST.

Nothing is fetched while it is built or read: search is Sphinx's own index, formulas are plain text, and references to
other projects are links.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.util import find_spec
from os import environ

import bisimetric

project = "bisimetric"
author = "The bisimetric developers"
stamp = int(environ.get("SOURCE_DATE_EPOCH", "0")) or None
copyright = f"{(datetime.fromtimestamp(stamp, UTC) if stamp else datetime.now(UTC)).year}, {author}"
release = version = bisimetric.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "matplotlib.sphinxext.plot_directive",
    "cyclopts.sphinx_ext",
]
# Learned metrics are documented without PyTorch, too: what is read of it is a name.
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "gallery/*.py"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_linkify_fuzzy_links = False

html_theme = "pydata_sphinx_theme"
html_title = f"bisimetric {version}"
html_static_path = ["_static"]
html_css_files = ["own.css"]
html_show_sourcelink = False
html_theme_options = {
    "github_url": "https://github.com/bisimetric/bisimetric",
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
# Pages without pages below them need no list of these.
html_sidebars = {
    page: []
    for page in ("tutorial", "gallery", "data", "large-models", "learn*", "cluster", "comparison", "truth/*", "paper/*")
}
templates_path: list[str] = []
suppress_warnings = ["myst.header"]  # pages of tables begin where they like

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
plot_formats = [("png", 110)]
plot_html_show_source_link = False
plot_html_show_formats = False
plot_include_source = True
copybutton_prompt_text = "$ "

# Files that are read on the code host as well point outside of these pages.
_OUTSIDE = re.compile(r"\]\((?!https?:|#|mailto:)(\.\./|\.github)")


def _escaped(line: str) -> str:
    """A line of a docstring as reStructuredText: symbols are symbols, and `names` are code."""
    parts = re.split(r"(`[^`]+`)", line)
    for k, part in enumerate(parts):
        if k % 2:
            parts[k] = f"`{part}`"
        else:
            parts[k] = re.sub(r"(?<![\\])([*|])", r"\\\1", part)
            parts[k] = re.sub(r"(\w)_(?=[\s,.;:)]|$)", r"\1\\_", parts[k])
    return "".join(parts)


def _docstrings(app, what, name, obj, options, lines):  # type: ignore[no-untyped-def]
    del app, what, name, obj, options
    lines[:] = [_escaped(line) for line in lines]


def setup(app):  # type: ignore[no-untyped-def]
    """Let docstrings be written for people: before napoleon reads them, mathematics is kept from being markup."""
    app.connect("autodoc-process-docstring", _docstrings, priority=100)
