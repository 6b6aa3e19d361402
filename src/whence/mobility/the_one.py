"""Connection events of The ONE simulator (StandardEventsReader): `time CONN a b up|down`, in order of time.

A link has no direction in The ONE, but converted sightings often have: each device that saw the other makes
its own events, so that `a b up` may be followed by `b a up`. So each direction is followed by itself, and the
pair is linked while either is up. A `down` ends its own direction or, if that is not up, the other one.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from whence.mobility.reading import SECOND_US, Line, Names, Reading, count, nothing, rows_of
from whence.overlay.contacts import ChangeKind, ContactPlan, make_plan

_FIX = "Lines read: time CONN a b up|down, in order of time"


def read_the_one(path: Path | str, nodes: Collection[str] | None = None) -> Reading:
    """Read connection events; other events of The ONE (messages) are counted and left out.

    `nodes`, if given, are all names that may appear, including those that meet nobody. What is still up at
    the end ends with the last event, and is counted in `left_out` as well (its end was not seen).
    """
    path = Path(path)
    left_out: dict[str, int] = {}
    names = Names()
    for name in nodes or ():
        names.of(name)
    up: dict[tuple[int, int], int] = {}
    contacts: list[tuple[int, int, int, int]] = []
    now_us = events = last = 0
    for line in rows_of(path, left_out):
        last = line.number
        if len(line.words) < 2 or line.words[1] != "CONN":
            if len(line.words) > 1 and line.words[1] in _OTHER_EVENTS:
                count(left_out, f"events {line.words[1]}")
                continue
            raise line.wrong("it is no connection event", _FIX)
        at_us, one, other = _event(line, names, nodes)
        if at_us < now_us:
            raise line.wrong(f"its time {line.words[0]} is before that of the line above", _FIX)
        now_us = at_us
        events += 1
        if line.words[4] == "up":
            if (one, other) in up:
                raise line.wrong(f"{line.words[2]} and {line.words[3]} are up already", _FIX)
            up[one, other] = now_us
            continue
        direction = (one, other) if (one, other) in up else (other, one)
        if direction not in up:
            raise line.wrong(f"{line.words[2]} and {line.words[3]} go down, but are not up", _FIX)
        contacts.append((*direction, up.pop(direction), now_us))
    if not events:
        raise nothing(path, "connection event")
    count(left_out, "ends of contacts that are up at the end of the file", len(up))
    contacts += [(*direction, start_us, now_us) for direction, start_us in up.items()]
    order, place = names.sorted()
    plan = make_plan(order, ((place[a], place[b], start, stop) for a, b, start, stop in contacts))
    return Reading(plan, str(path), "the-one", last, events, 0.0, left_out)


_OTHER_EVENTS = frozenset(
    {"C", "S", "DE", "A", "DR", "R"}
)  # messages made, sent, delivered, aborted, dropped


def _event(line: Line, names: Names, nodes: Collection[str] | None) -> tuple[int, int, int]:
    if len(line.words) != 5 or line.words[4] not in ("up", "down"):
        raise line.wrong(f"it has {len(line.words)} columns, or no up or down at its end", _FIX)
    for name in line.words[2:4]:
        if nodes is not None and name not in nodes:
            raise line.wrong(f"there is no node {name!r}", "Name all nodes, or none")
    if line.words[2] == line.words[3]:
        raise line.wrong(f"node {line.words[2]!r} meets itself", "Leave such lines out")
    return line.time_us(line.words[0]), names.of(line.words[2]), names.of(line.words[3])


def write_the_one(plan: ContactPlan, path: Path | str) -> int:
    """Write a plan's contacts as connection events and return how many lines; presence has no place there."""
    words = {ChangeKind.UP: "up", ChangeKind.DOWN: "down"}
    lines = [
        f"{_seconds(at_us)} CONN {plan.nodes[a]} {plan.nodes[b]} {words[kind]}\n"
        for at_us, kind, a, b in plan.changes()
        if kind in words
    ]
    Path(path).write_text("".join(lines), encoding="utf-8")
    return len(lines)


def _seconds(at_us: int) -> str:
    whole, rest = divmod(at_us, SECOND_US)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)
