"""The site: `make docs`. Markdown as it stands in this folder, and the API from the docstrings."""

import subprocess
import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

project = "Whence"
copyright = "the Whence authors, Apache-2.0"  # noqa: A001 - Sphinx's own name
version = release = installed("whence")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Whence {release}"
html_static_path: list[str] = []
html_copy_source = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# `py` and `console` blocks are run by tests; a lexer need not understand every line of a transcript.
suppress_warnings = ["misc.highlighting_failure", "ref.python"]

# Docstrings are plain text with `names` in single backquotes.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}

# Pages of the repository's root have a place of their own on the site.
MOVED = {f"../{name.upper()}.md": f"project/{name}.md" for name in ("changelog", "contributing", "security")}


def _literal(app, what, name, obj, options, lines):  # type: ignore[no-untyped-def]
    """Let indented blocks and tables of a docstring stand as they are, not as quotes."""
    found, before = list(lines), ""
    lines.clear()
    inside = False
    for line in found:
        plain = not line.strip()
        set_off = line.startswith("    ") or line.startswith("|")
        if set_off and not inside and not before.strip():
            lines.extend(["::", ""])
            inside = True
        elif not plain and not set_off:
            inside = False
        lines.append(f"    {line}" if inside and not plain else line)
        before = line


def _moved(app, name, source):  # type: ignore[no-untyped-def]
    for old, new in MOVED.items():
        source[0] = source[0].replace(f"]({old}", f"]({new}")


def _bench_history(app, name, source):  # type: ignore[no-untyped-def]
    """Put the table of benches on its page: it is made from data when the site is."""
    if name == "project/bench":
        command = [sys.executable, str(Path(__file__).parents[1] / "bench" / "history.py"), "--page"]
        source[0] += "\n" + subprocess.run(command, capture_output=True, text=True, check=True).stdout


def setup(app):  # type: ignore[no-untyped-def]
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _literal)
    app.connect("source-read", _moved)
    app.connect("source-read", _bench_history)
