"""Scripted conversations of a few cores, without simulator and host: for frames and saved states.

A talk is plain data: who says what when, and how links are. Every packet takes a time drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from whence.core.effects import CancelTimer, CloseLink, Deliver, Effects, Send, SetTimer, Stop
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol
from whence.protocols.registry import make

Line = tuple[Any, ...]  # (at_us, node, verb, and what the verb takes)


@dataclass(frozen=True)
class Talk:
    """One conversation."""

    protocol: str
    script: list[Line]
    params: dict[str, Any] = field(default_factory=dict)
    own: dict[NodeId, dict[str, Any]] = field(default_factory=dict)  # parameters of single nodes
    members: str = "abcd"
    meshed: bool = True  # all links are up from the start
    ordered: bool = False  # links keep the order
    loss: float = 0.0
    until_us: int = 200_000

    def core(self, name: NodeId) -> Protocol:
        """A fresh core of a member."""
        group = [name] if self.params.get("links") == "dynamic" else list(self.members)
        return make(self.protocol, name, group, {**self.params, **self.own.get(name, {})})


class Run:
    """A talk as it goes; `after(step)` is called after every input."""

    def __init__(self, talk: Talk, after: Callable[[Run], None] = lambda run: None) -> None:
        self.talk = talk
        self.cores = {name: talk.core(name) for name in talk.members}
        self.sent: list[Packet] = []
        self.delivered: dict[NodeId, list[Message]] = {name: [] for name in talk.members}
        self.steps = 0
        self._after = after
        self._draw = Random(f"golden talk {talk.protocol}")
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._links: dict[frozenset[NodeId], int] = {}  # that are up -> which time
        self._last_us: dict[tuple[NodeId, NodeId], int] = {}
        self._timers: dict[tuple[NodeId, str], int] = {}
        self._stopped: set[NodeId] = set()
        self._now_us = 0

    def run(self) -> Run:
        """To the end."""
        if self.talk.meshed:
            names = self.talk.members
            for one, other in [(one, other) for one in names for other in names if one < other]:
                self._link(one, other)
        for line in self.talk.script:
            self._at(line[0], lambda line=line: self._say(*line[1:]))
        while self._agenda and self._agenda[0][0] <= self.talk.until_us:
            self._now_us, _, happen = heappop(self._agenda)
            happen()
        return self

    def _at(self, at_us: int, happen: Callable[[], None]) -> None:
        heappush(self._agenda, (at_us, next(self._order), happen))

    def _do(self, name: NodeId, act: Callable[[Protocol], Effects]) -> None:
        """One step of one core."""
        if name in self._stopped:
            return
        effects = act(self.cores[name])
        self.steps += 1
        self._after(self)
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.append(effect.packet)
                for to in effect.to:
                    self._carry(name, to, effect.packet)
            elif isinstance(effect, Deliver):
                self.delivered[name].append(effect.message)
            elif isinstance(effect, SetTimer):
                self._set_timer(name, effect.key, effect.at_us)
            elif isinstance(effect, CancelTimer):
                self._timers.pop((name, effect.key), None)
            elif isinstance(effect, CloseLink):
                self._cut(name, effect.peer, told=(effect.peer,))
            elif isinstance(effect, Stop):
                self._stopped.add(name)

    def _say(self, name: NodeId, verb: str, *what: Any) -> None:
        now_us = self._now_us
        if verb == "link":
            self._link(name, what[0])
        elif verb == "cut":
            self._cut(name, what[0], told=(name, what[0]))
        elif verb == "crash":
            self._stopped.add(name)
        elif verb == "broadcast":
            self._do(name, lambda core: core.broadcast(what[0], now_us))
        elif verb == "within":
            self._do(name, lambda core: core.broadcast_within(*what, now_us))
        elif verb == "send":
            self._do(name, lambda core: core.send(*what, now_us))
        elif verb == "timer":
            self._do(name, lambda core: core.timer(what[0], now_us))
        else:
            self._do(name, lambda core: core.command(verb, what, now_us))

    def _link(self, one: NodeId, other: NodeId) -> None:
        now_us = self._now_us
        self._links[frozenset((one, other))] = next(self._order)
        self._do(one, lambda core: core.link_up(other, now_us))
        self._do(other, lambda core: core.link_up(one, now_us))

    def _cut(self, one: NodeId, other: NodeId, told: tuple[NodeId, ...]) -> None:
        now_us = self._now_us
        if self._links.pop(frozenset((one, other)), None) is None:
            return
        for name in told:
            peer = other if name == one else one
            self._do(name, lambda core, peer=peer: core.link_down(peer, now_us))

    def _carry(self, name: NodeId, to: NodeId, packet: Packet) -> None:
        at_us = self._now_us + self._draw.randrange(500, 9_000)
        if self._draw.random() < self.talk.loss:
            return
        if self.talk.ordered:
            at_us = self._last_us[name, to] = max(at_us, self._last_us.get((name, to), 0))
        link = self._links.get(frozenset((name, to)))
        self._at(at_us, lambda: self._arrive(name, to, packet, link))

    def _arrive(self, name: NodeId, to: NodeId, packet: Packet, link: int | None) -> None:
        now_us = self._now_us
        if link is not None and self._links.get(frozenset((name, to))) == link:
            self._do(to, lambda core: core.receive(name, packet, now_us))

    def _set_timer(self, name: NodeId, key: str, at_us: int) -> None:
        self._timers[name, key] = this = next(self._order)

        def fire() -> None:
            if self._timers.get((name, key)) == this:
                del self._timers[name, key]
                self._do(name, lambda core: core.timer(key, self._now_us))

        self._at(max(at_us, self._now_us), fire)


def _broadcasts(members: str = "abcd", rounds: int = 8) -> list[Line]:
    return [
        (1_000 + 9_000 * number + 700 * at, name, "broadcast", f"{name} {number}".encode() * (number % 3))
        for number in range(rounds)
        for at, name in enumerate(members)
    ]


def _sends(members: str, rounds: int = 8) -> list[Line]:
    return [
        (
            1_000 + 7_000 * number + 500 * at,
            name,
            "send",
            members[(at + number) % len(members)],
            b"to" * number,
        )
        for number in range(rounds)
        for at, name in enumerate(members)
    ]


def _mortal() -> list[Line]:
    lives_us = (4_000, 12_000, 40_000)
    return [
        (at_us, name, "within", payload, lives_us[at % 3])
        for at, (at_us, name, _, payload) in enumerate(_broadcasts())
    ]


# Nodes that meet two by two, part, and meet again.
_MEETINGS: list[Line] = [
    line
    for number, pair in enumerate(["ab", "bc", "cd", "ad", "ac", "bd", "ab", "cd"])
    for line in [
        (500 + 12_000 * number, pair[0], "link", pair[1]),
        (25_000 + 12_000 * number, pair[0], "cut", pair[1]),
    ]
]

# b and c join through a, d through b; then links are opened through mediators, one of which crashes.
_OVERLAY: list[Line] = [
    (0, "a", "found"),
    (10, "a", "link", "b"),
    (20, "b", "join", "a"),
    (30, "a", "link", "c"),
    (40, "c", "join", "a"),
    (20_000, "b", "link", "d"),
    (20_010, "d", "join", "b"),
    (45_000, "b", "link", "c"),
    (45_010, "a", "mediate", "b", "c"),
    (45_020, "b", "open", "b", "a", "c"),
    (60_000, "a", "link", "d"),
    (60_010, "b", "mediate", "d", "a"),
    (60_020, "d", "open", "d", "b", "a"),
    (110_000, "c", "link", "d"),
    (110_010, "b", "mediate", "c", "d"),
    (110_020, "c", "open", "c", "b", "d"),
    (110_100, "b", "crash"),
    (190_000, "a", "cut", "b"),
]


def _overlay_broadcasts() -> list[Line]:
    founded = [(at_us + 3_000, *rest) for at_us, *rest in _broadcasts("a", 3)]
    return founded + [(at_us + 50_000, *rest) for at_us, *rest in _broadcasts("abcd", 12)]


_TESTS = {"detect": True, "test_interval_us": 9_000, "test_timeout_us": 45_000, "start_timeout_us": 90_000}
_SWIFT = {"gap_us": 400, "setup_max_us": 900}

TALKS: dict[str, Talk] = {
    "fifo": Talk("fifo", _broadcasts()),
    "reliable": Talk("reliable", _broadcasts()),
    "log": Talk("log", _broadcasts(), ordered=True),
    "vector": Talk("vector", _broadcasts()),
    "vcube": Talk("vcube", _broadcasts("abcdefg", 5), members="abcdefg"),
    "vcube-single": Talk("vcube", _broadcasts(), {"tree": "single", "mtu_bytes": 150}),
    "vcube-detect": Talk(
        "vcube",
        [*_broadcasts("abc", 14), (60_000, "b", "crash"), (150_000, "e", "broadcast", b"in"),
         (190_000, "e", "timer", "leave")],
        _TESTS, {"e": {"joins": True}}, members="abcde", ordered=True, until_us=260_000,
    ),
    "barrier-safe": Talk("barrier", _mortal(), {"lifetime_us": 30_000, "skew_us": 200}),
    "barrier-immortal": Talk("barrier", _broadcasts()),
    "barrier-published": Talk("barrier", _mortal(), {"mode": "published", "lifetime_us": 30_000}),
    "oppnet-safe": Talk(
        "oppnet", [*_MEETINGS, *_broadcasts()], {**_SWIFT, "lifetime_us": 60_000}, meshed=False
    ),
    "oppnet-published": Talk(
        "oppnet", [*_MEETINGS, *_broadcasts()], {**_SWIFT, "mode": "published", "lifetime_us": 60_000},
        meshed=False,
    ),
    "tdca": Talk("tdca", _mortal(), {"margin_us": 100, "copies": 2}, loss=0.2),
    "tdca-published": Talk("tdca", _mortal(), {"mode": "published", "lifetime_us": 30_000}, loss=0.2),
    "odca-exact": Talk("odca", _mortal(), {"margin_us": 100, "retry_us": 3_000, "copies": 1}, loss=0.2),
    "odca-window": Talk("odca", _mortal(), {"margin_us": 100, "retry_us": 3_000, "pull": "window"}, loss=0.4),
    "odca-published": Talk("odca", _mortal(), {"mode": "published", "lifetime_us": 60_000}, loss=0.4),
    "link_memory": Talk("link_memory", _broadcasts(), ordered=True),
    "prc": Talk(
        "prc", [*_OVERLAY, *_overlay_broadcasts()], {"links": "dynamic", "timeout_us": 60_000},
        meshed=False, ordered=True, until_us=600_000,
    ),
    "prc-static": Talk("prc", _broadcasts(), ordered=True),
    "preventive": Talk(
        "preventive", [*_OVERLAY, *_overlay_broadcasts()], {"links": "dynamic", "timeout_us": 60_000},
        meshed=False, ordered=True, until_us=600_000,
    ),
    "matrix": Talk("matrix", _sends("abcd")),
    "matrix-full": Talk("matrix", _sends("abcd"), {"stamps": "full"}),
    "domains": Talk(
        "domains", _sends("abcdef"), {"domains": [["a", "b", "c"], ["c", "d"], ["d", "e", "f"]]},
        members="abcdef",
    ),
}  # fmt: skip
