"""A scene for other viewers: Chrome's JSON trace format (Perfetto), and a ShiViz log.

The page makes the same of what is in sight (`templates/save.js`); a test holds the two against each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from whence.view.scene import Scene

SHIVIZ_PATTERN = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"


def perfetto(scene: Scene) -> bytes:
    """Each event as a short slice on a thread per lane, and a flow for every edge between two of them.

    Times are microseconds from the first event; without times, places on the longest path.
    """
    ticks = _microseconds(scene)
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": at + 1, "tid": 0, "args": {"name": name}}
        for at, name in enumerate(scene.procs)
    ]
    rows += [
        {
            "ph": "M",
            "name": "thread_name",
            "pid": scene.lane_proc[at] + 1,
            "tid": at + 1,
            "args": {"name": name},
        }
        for at, name in enumerate(scene.lanes)
    ]
    places = []
    for lane, (first, last) in enumerate(
        zip(scene.starts[:-1].tolist(), scene.starts[1:].tolist(), strict=True)
    ):
        for event in range(first, last):
            places.append({"pid": scene.lane_proc[lane] + 1, "tid": lane + 1, "ts": ticks[event]})
            kind, message, detail = _words(scene, event)
            rows.append(
                {
                    "ph": "X", "name": f"{kind} {message}".rstrip(), "cat": kind, "dur": 1, **places[-1],
                    "args": {"place": event - first, "message": message, "detail": detail},
                }
            )  # fmt: skip
    source, target = scene.all_edges()
    messages = len(source) - len(scene.edge_from)  # these come first
    by = ["message"] * messages + [scene.sources[each] for each in scene.edge_source.tolist()]
    for flow, (one, two) in enumerate(zip(source.tolist(), target.tolist(), strict=True), 1):
        shared = {"id": flow, "name": "message", "cat": by[flow - 1]}
        rows.append({"ph": "s", **shared, **places[one]})
        rows.append({"ph": "f", "bp": "e", **shared, **places[two]})
    about = {"title": scene.title, "verdict": scene.verdict}
    return msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": rows, "otherData": about})


def shiviz(scene: Scene) -> bytes:
    """Every event with the vector clock of its lane; the first line is ShiViz's default pattern."""
    hosts = ["_".join(name.split()) or "_" for name in scene.lanes]
    lines = [SHIVIZ_PATTERN, ""]
    for lane, event, clock in _clocked(scene):
        named = {hosts[other]: count for other, count in clock.items()}
        words = " ".join(" ".join(filter(None, _words(scene, event))).split())
        lines += [words, f"{hosts[lane]} {json.dumps(named)}"]
    return ("\n".join(lines) + "\n").encode()


def _words(scene: Scene, event: int) -> tuple[str, str, str]:
    msg, detail = int(scene.msg[event]), int(scene.detail[event])
    return (
        scene.kinds[scene.kind[event]].name,
        scene.msgs[msg] if msg >= 0 else "",
        scene.details[detail] if detail >= 0 else "",
    )


def _microseconds(scene: Scene) -> list[float]:
    if scene.time is not None:
        since = (scene.time - scene.time.min()) * scene.unit_ns
        ticks: list[float] = (since / 1000).tolist()
        return ticks
    far: dict[int, int] = {}
    causes = _causes(scene)
    for lane, event in _in_order(scene, causes):
        before = [far[cause] for cause in causes.get(event, ()) if cause in far]
        if event > scene.starts[lane]:
            before.append(far[event - 1])
        far[event] = 1 + max(before, default=-1)
    return [float(far[event]) for event in range(len(scene))]


def _clocked(scene: Scene) -> Iterator[tuple[int, int, dict[int, int]]]:
    """Lane, event and vector clock of all events, causes first."""
    causes = _causes(scene)
    carries = {cause for found in causes.values() for cause in found}
    kept: dict[int, dict[int, int]] = {}
    current: list[dict[int, int]] = [{} for _ in scene.lanes]
    for lane, event in _in_order(scene, causes):
        clock = current[lane]
        for cause in causes.get(event, ()):
            for other, count in kept.get(cause, {}).items():  # empty only in a circle
                clock[other] = max(count, clock.get(other, 0))
        clock[lane] = clock.get(lane, 0) + 1
        if event in carries:
            kept[event] = dict(clock)
        yield lane, event, clock


def _causes(scene: Scene) -> dict[int, list[int]]:
    made: dict[int, list[int]] = {}
    for source, target in zip(*(each.tolist() for each in scene.all_edges()), strict=True):
        made.setdefault(target, []).append(source)
    return made


def _in_order(scene: Scene, causes: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    """Lane and event, each after all that it follows from; if all wait in a circle, the first goes on."""
    next_of = scene.starts[:-1].tolist()
    end = scene.starts[1:].tolist()
    done: set[int] = set()
    forced = False
    while any(at < last for at, last in zip(next_of, end, strict=True)):
        moved = False
        for lane, last in enumerate(end):
            while next_of[lane] < last:
                event = next_of[lane]
                if not forced and not done.issuperset(causes.get(event, ())):
                    break
                forced, moved = False, True
                done.add(event)
                next_of[lane] += 1
                yield lane, event
        forced = not moved
