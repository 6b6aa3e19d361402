"""Movements in the manner of ns-2: nodes that are placed, sent to destinations at a speed, and removed.

    $node_(3) set X_ 12.0                                 $ns_ at 0.6 "$node_(3) create 12.0 40.0"
    $node_(3) set Y_ 40.0                                 $ns_ at 4.2 "$node_(3) setdest 90.0 40.0 1.3"
    $ns_ at 4.2 "$node_(3) setdest 90.0 40.0 1.3"         $ns_ at 99 "$node_(3) destroy"

or, without the Tcl around it: `0.6 create 3 12.0 40.0`, `4.2 setdest 3 90.0 40.0 1.3`, `99 destroy 3`.

A node that is placed with X_ and Y_ is there from time 0. It walks straight to its destination, waits there,
and turns immediately where the next setdest finds it; speed 0 stops it. If never destroyed, it stays to the
end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import NamedTuple

from whence.mobility.paths import Paths, Waypoint, make_paths
from whence.mobility.readers import SECOND_US, ContactLine, count, in_order, lines_of, nothing

_PLACED = re.compile(r"^\$node_\((?P<node>[^)\s]+)\)\s+set\s+(?P<axis>[XYZ])_\s+(?P<value>\S+)$")
_TIMED = re.compile(
    r'^\$\w+\s+at\s+(?P<time>\S+)\s+"\$node_\((?P<node>[^)\s]+)\)\s+(?P<verb>create|setdest|destroy)'
    r'(?P<rest>[^"]*)"\s*;?$'
)
_PLAIN = re.compile(r"^(?P<time>\S+)\s+(?P<verb>create|setdest|destroy)\s+(?P<node>\S+)(?P<rest>.*)$")
_ARGUMENTS = {"create": 2, "setdest": 3, "destroy": 0}
_FIX = 'Lines read: $node_(3) set X_ 12.0, or $ns_ at 4.2 "$node_(3) setdest 90.0 40.0 1.3", create, destroy'


class Movements(NamedTuple):
    """Paths, and what became of the lines."""

    paths: Paths
    lines: int
    rows: int
    left_out: dict[str, int]


class _Order(NamedTuple):
    """One command."""

    time_us: int
    line: ContactLine
    verb: str
    node: str
    numbers: list[float]


@dataclass
class _MovingNode:
    """Where a node is and where it goes."""

    points: list[Waypoint] = field(default_factory=list)
    goal: tuple[float, float] = (0.0, 0.0)
    arrives_us: int = 0
    there: bool = False


def read_ns2(path: Path | str, *, stop_s: float | None = None) -> Movements:
    """Read movements; they end at `stop_s`, or with the last command or arrival."""
    path = Path(path)
    left_out: dict[str, int] = {}
    placed: dict[str, dict[str, float]] = {}
    orders: list[_Order] = []
    texts = lines_of(path)
    for number, text in enumerate(texts, 1):
        line = ContactLine(path, number, text.split())
        if not line.words:
            count(left_out, "blank lines")
        elif line.words[0].startswith("#"):
            count(left_out, "comments")
        elif line.words[0] == "$god_" or "$god_ " in text:  # distances that ns-2 could compute
            count(left_out, "commands to god_")
        elif found := _PLACED.match(text.strip()):
            placed.setdefault(found["node"], {})[found["axis"]] = line.number_of(found["value"], "place")
        else:
            orders.append(_order(line, text.strip()))
    if not orders and not placed:
        raise nothing(path, "movement")
    orders.sort(key=lambda order: order.time_us)  # stable: as ns-2's scheduler would run them
    done: dict[str, list[list[Waypoint]]] = {}
    nodes: dict[str, _MovingNode] = {}
    for name, axes in placed.items():
        nodes[name] = _MovingNode([(0, axes.get("X", 0.0), axes.get("Y", 0.0))], there=True)
        nodes[name].goal = nodes[name].points[0][1:]
        done[name] = []
    for order in orders:
        _obey(order, nodes, done)
    last_us = max([order.time_us for order in orders] + [node.arrives_us for node in nodes.values()])
    end_us = last_us if stop_s is None else int(stop_s * SECOND_US)
    for name, node in nodes.items():
        if node.there:
            _leave(node, end_us, done[name])
    ordered = sorted(done, key=in_order)
    rows = len(orders) + sum(map(len, placed.values()))
    return Movements(make_paths({name: done[name] for name in ordered}), len(texts), rows, left_out)


def _order(line: ContactLine, text: str) -> _Order:
    found = _TIMED.match(text) or _PLAIN.match(text)
    if found is None:
        raise line.wrong("it is no movement", _FIX)
    words = found["rest"].split()
    if len(words) != _ARGUMENTS[found["verb"]]:
        raise line.wrong(f"{found['verb']} has {len(words)} numbers, not {_ARGUMENTS[found['verb']]}", _FIX)
    numbers = [line.number_of(word, "number") for word in words]
    if found["verb"] == "setdest" and numbers[2] < 0:
        raise line.wrong(f"its speed {numbers[2]} is negative", _FIX)
    return _Order(line.time_us(found["time"]), line, found["verb"], found["node"], numbers)


def _obey(order: _Order, nodes: dict[str, _MovingNode], done: dict[str, list[list[Waypoint]]]) -> None:
    node = nodes.get(order.node)
    if order.verb == "create":
        if node is not None and node.there:
            raise order.line.wrong(f"node {order.node!r} is there already", "Destroy it first")
        x, y = order.numbers
        nodes[order.node] = _MovingNode([(order.time_us, x, y)], (x, y), order.time_us, there=True)
        done.setdefault(order.node, [])
        return
    if node is None or not node.there:
        raise order.line.wrong(f"there is no node {order.node!r} at that time", "Create or place it first")
    if order.verb == "destroy":
        _leave(node, order.time_us, done[order.node])
        return
    here = _walk_until(node, order.time_us)
    x, y, speed = order.numbers
    far_m = sqrt((x - here[1]) ** 2 + (y - here[2]) ** 2)
    if speed == 0 or far_m == 0:
        node.goal, node.arrives_us = here[1:], order.time_us
    else:
        node.goal, node.arrives_us = (x, y), order.time_us + max(round(far_m / speed * SECOND_US), 1)


def _walk_until(node: _MovingNode, now_us: int) -> Waypoint:
    """Add the waypoints up to now, and return the last."""
    last_us, x, y = node.points[-1]
    if last_us < node.arrives_us <= now_us:
        last_us, x, y = node.arrives_us, *node.goal
        node.points.append((last_us, x, y))
    if last_us < now_us:
        if node.arrives_us > now_us:  # on the way
            share = (now_us - last_us) / (node.arrives_us - last_us)
            x, y = x + (node.goal[0] - x) * share, y + (node.goal[1] - y) * share
        node.points.append((now_us, x, y))
    return node.points[-1]


def _leave(node: _MovingNode, now_us: int, stays: list[list[Waypoint]]) -> None:
    _walk_until(node, now_us)
    stays.append([point for point in node.points if point[0] <= now_us])
    node.there = False
