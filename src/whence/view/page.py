"""A packed scene as one HTML file: template, style, scripts and data in one."""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from whence.errors import writing
from whence.view.pack import pack
from whence.view.scene import Scene

_PARTS = ("view.css", "graph.js", "paint.js", "panel.js", "save.js", "view.js")


def parts_of(scene: Scene, *, focus: int = 0, live: str = "") -> tuple[dict[str, Any], str]:
    """What a page holds of a scene: a table for JSON, and a text of columns.

    `focus`: the finding that it opens with, from 1; `live`: the state of a run that goes on.
    """
    packed = pack(scene)
    return packed.head | {"focus": focus, "live": live}, packed.data


def page_of(scene: Scene, *, version: str, focus: int = 0, live: str = "") -> str:
    """The whole page as text. A live one asks the server that it came from for news."""
    head, data = parts_of(scene, focus=focus, live=live)
    # Inside a script element only "</script" and "<!--" matter; in JSON "<" can be written otherwise.
    fields = {
        "version": escape(version),
        "title": escape(scene.title),
        "connect": "'self'" if live else "'none'",
        "head": msgspec.json.encode(head).decode().replace("<", "\\u003c"),
        "data": data,
    }
    files = resources.files("whence.view").joinpath("templates")
    page = files.joinpath("view.html").read_text(encoding="utf-8")
    for name in _PARTS:
        page = page.replace("{{" + name + "}}", files.joinpath(name).read_text(encoding="utf-8"))
    # The data come last and in one pass: nothing that they hold is taken for a field of the template.
    first, *rest = page.split("{{")
    made = [first]
    for part in rest:
        name, found, after = part.partition("}}")
        made += [fields[name], after] if found and name in fields else ["{{", part]
    return "".join(made)


def write(scene: Scene, path: Path, *, version: str, focus: int = 0) -> Path:
    """Write the page."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page_of(scene, version=version, focus=focus), encoding="utf-8")
    return path
