"""A scene as one HTML file: template, style, scripts and data in one.

The data are columns of small numbers, deflated, in base64, and a table of names in JSON. Every column is a
list of unsigned integers, seven bits a byte, the last byte of each without its top bit. What can be foretold
is stored as the difference from what was foretold: a time from the one before in its lane, a message from the
one that comes next from its origin, the other end of an edge from the one before between the same lanes.
`templates/graph.js` is the reader.
"""

from __future__ import annotations

import base64
import re
import zlib
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from whence.errors import writing
from whence.view.scene import ROLES, Array, Scene

VERSION = 1  # of the data
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,14})", re.DOTALL)
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


# The data


class Packed(NamedTuple):
    """A scene in the form that a page holds it."""

    head: dict[str, Any]
    data: str  # base64


def pack(scene: Scene) -> Packed:
    """The scene as a table of names and a text of columns."""
    lane = np.repeat(np.arange(len(scene.lanes)), np.diff(scene.starts))
    names = _MessageNames(scene.msgs)
    columns: list[tuple[str, Array]] = [
        ("kind", scene.kind),
        ("time", _time_steps(scene, lane)),
        *names.columns(scene, lane),
        ("detail", scene.detail + 1),
        *_edges(scene, lane),
    ]
    encoded = [(name, varints(values)) for name, values in columns]
    raw = b"".join(each for _, each in encoded)
    timed = scene.time is not None and len(scene) > 0
    head = {
        "version": VERSION,
        "title": scene.title,
        "verdict": scene.verdict,
        "tone": scene.tone,
        "about": scene.about,
        "notes": scene.notes,
        "unjudged": scene.unjudged,
        "procs": scene.procs,
        "lanes": scene.lanes,
        "laneProc": scene.lane_proc,
        "starts": [int(each) for each in scene.starts],
        "kinds": [list(kind) for kind in scene.kinds],
        "unitNs": scene.unit_ns,
        "timeBase": str(int(scene.time.min())) if timed and scene.time is not None else None,
        "prefixes": names.prefixes,
        "numbered": names.numbered,
        "begins": _begins(scene, names.order),
        "details": scene.details,
        "sources": list(scene.sources),
        "findings": msgspec.to_builtins(scene.findings),
        "corrections": msgspec.to_builtins({str(at): each for at, each in scene.corrections.items()}),
        "reference": scene.reference,
        "columns": [[name, len(each)] for name, each in encoded],
    }
    return Packed(head, base64.b64encode(zlib.compress(raw, 9)).decode("ascii"))


def varints(values: Array) -> bytes:
    """Unsigned integers, seven bits a byte, the lowest first."""
    left = np.asarray(values, dtype=np.uint64)
    if not len(left):
        return b""
    size = np.ones(len(left), dtype=np.int64)
    for more in range(1, 10):
        size += left >= np.uint64(1) << np.uint64(7 * more)
    ends = np.cumsum(size)
    made = np.zeros(int(ends[-1]), dtype=np.uint8)
    begins = ends - size
    for at in range(int(size.max())):
        there = np.flatnonzero(size > at)
        seven = (left[there] >> np.uint64(7 * at)) & np.uint64(127)
        made[begins[there] + at] = seven | (np.uint64(128) * (size[there] > at + 1))
    return made.tobytes()


def zigzag(values: Array) -> Array:
    """Signed integers as unsigned ones, small ones staying small."""
    signed = np.asarray(values, dtype=np.int64)
    return ((signed << 1) ^ (signed >> 63)).view(np.uint64)


def _steps(values: Array, key: Array, first: int) -> Array:
    """Each value minus the one before of the same key; minus `first` where there is none before."""
    order = np.argsort(key, kind="stable")
    sorted_values, sorted_key = values[order], key[order]
    before = np.empty_like(sorted_values)
    before[1:] = sorted_values[:-1]
    new = np.ones(len(values), dtype=bool)
    new[1:] = sorted_key[1:] != sorted_key[:-1]
    before[new] = first
    steps = np.empty(len(values), dtype=np.int64)
    steps[order] = sorted_values - before
    return steps


def _time_steps(scene: Scene, lane: Array) -> Array:
    if scene.time is None or not len(scene):
        return np.zeros(0, dtype=np.uint64)
    time = scene.time.astype(np.int64) - int(scene.time.min())
    return zigzag(_steps(time, lane, 0))


class _MessageNames:
    """Names such as a:7 as a prefix and a number, in order of both."""

    def __init__(self, msgs: list[str]) -> None:
        split = [_split(name) for name in msgs]
        self.prefixes = sorted({prefix for prefix, _ in split})
        place = {prefix: at for at, prefix in enumerate(self.prefixes)}
        prefix = np.array([place[each] for each, _ in split], dtype=np.int64)
        number = np.array([each for _, each in split], dtype=np.int64)
        self.order = np.lexsort((number, prefix))
        self._prefix, self._number = prefix[self.order], number[self.order]
        self.numbered = np.bincount(self._prefix, minlength=len(self.prefixes)).tolist()
        self._rank = np.empty(len(msgs), dtype=np.int64)  # of each message among those of its prefix
        firsts = np.concatenate([[0], np.cumsum(self.numbered)]).astype(np.int64)
        self._rank[self.order] = np.arange(len(msgs)) - firsts[self._prefix] if msgs else 0
        self._prefix_of = prefix

    def columns(self, scene: Scene, lane: Array) -> list[tuple[str, Array]]:
        """The numbers of all messages; and for each event its message."""
        has = np.flatnonzero(scene.msg >= 0)
        which = scene.msg[has]
        prefix = np.zeros(len(scene), dtype=np.int64)
        prefix[has] = 1 + self._prefix_of[which] if len(has) else 0
        key = lane[has] * (len(self.prefixes) + 1) + prefix[has]
        rank = self._rank[which] if len(has) else np.zeros(0, dtype=np.int64)
        return [
            ("number", zigzag(_steps(self._number, self._prefix, 0))),
            ("prefix", prefix),
            ("rank", zigzag(_steps(rank, key, -1) - 1)),
        ]


def _begins(scene: Scene, order: Array) -> list[list[int]]:
    """Messages that do not begin with the first of their events that begins one: [message, event]."""
    first = np.full(len(scene.msgs), -1, dtype=np.int64)
    begins = np.flatnonzero((scene.roles() == ROLES.index("begin")) & (scene.msg >= 0))[::-1]
    first[scene.msg[begins]] = begins
    there, other = first[order], scene.begin[order]
    which = np.flatnonzero(there != other)
    return np.stack([which, other[which]], axis=1).tolist() if len(which) else []


def _split(name: str) -> tuple[str, int]:
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, -1)


def _edges(scene: Scene, lane: Array) -> list[tuple[str, Array]]:
    order = np.lexsort((scene.edge_from, scene.edge_to))
    source, target = scene.edge_from[order].astype(np.int64), scene.edge_to[order].astype(np.int64)
    from_lane = lane[source] if len(source) else source
    key = (lane[target] if len(target) else target) * len(scene.lanes) + from_lane
    return [
        ("edgeTo", np.diff(target, prepend=0)),
        ("edgeLane", from_lane),
        ("edgeFrom", zigzag(_steps(source, key, 0))),
        ("edgeSource", scene.edge_source[order]),
    ]
