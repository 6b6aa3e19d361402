"""A packed scene as one HTML file: template, style, scripts and data in one."""

from __future__ import annotations

from html import escape
from importlib import resources
from pathlib import Path

import msgspec

from whence.view.pack import pack
from whence.view.scene import Scene

_PARTS = ("view.css", "graph.js", "paint.js", "view.js")


def render(scene: Scene, *, version: str, focus: int = 0, live: bool = False) -> str:
    """The whole page as text.

    `focus`: the finding that it opens with, from 1; `live`: it asks the server that it came from for news.
    """
    packed = pack(scene)
    head = packed.head | {"live": live, "focus": focus}
    # Inside a script element only "</script" and "<!--" matter; in JSON "<" can be written otherwise.
    fields = {
        "version": escape(version),
        "title": escape(scene.title),
        "connect": "'self'" if live else "'none'",
        "head": msgspec.json.encode(head).decode().replace("<", "\\u003c"),
        "data": packed.data,
    }
    files = resources.files("whence.view").joinpath("templates")
    page = files.joinpath("view.html").read_text(encoding="utf-8")
    # The data come last: nothing that they hold is taken for a field of the template.
    for name in _PARTS:
        page = page.replace("{{" + name + "}}", files.joinpath(name).read_text(encoding="utf-8"))
    first, *rest = page.split("{{")
    made = [first]
    for part in rest:
        name, found, after = part.partition("}}")
        made += [fields[name], after] if found and name in fields else ["{{", part]
    return "".join(made)


def write(scene: Scene, path: Path, *, version: str, focus: int = 0) -> Path:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(scene, version=version, focus=focus), encoding="utf-8")
    return path
