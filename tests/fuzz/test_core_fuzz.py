"""A peer can never make a core raise: whatever decodes as a packet is delivered, held or discarded."""

from __future__ import annotations

import random
from functools import cache
from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.parts import parts
from whence.core.effects import (
    CancelTimer,
    CloseLink,
    Deliver,
    Discard,
    Expire,
    Internal,
    Missed,
    Send,
    SetTimer,
    Tell,
)
from whence.core.message import Packet
from whence.core.protocol import Protocol
from whence.protocols import registry
from whence.protocols.deadline.wire import DeadlineMessage, DeadlinePacket
from whence.protocols.vcube.wire import VCubeMessage, VCubePacket

MEMBERS = ["a", "b", "c", "d"]
EDGES = [
    0,
    1,
    2,
    3,
    4,
    5,
    127,
    128,
    255,
    256,
    65535,
    65536,
    999_999,
    1_000_001,
    2**31,
    2**32,
    2**62,
    2**63,
    2**64 - 1,
]
EDGES += [-1, -2, -(2**31), -(2**63)]

integers = st.sampled_from(EDGES) | st.integers(0, 6) | st.integers(-(2**63), 2**64 - 1)
texts = st.sampled_from([*MEMBERS, "", "e", "x" * 300]) | st.text(max_size=5)
routes = st.just([]) | st.permutations(MEMBERS) | st.lists(texts, max_size=5)
lists = st.lists(integers, max_size=9) | st.lists(st.integers(0, 5), max_size=9)


def fresh(protocol: str, relay: bool) -> Protocol:
    known = registry.lookup(protocol).parameters
    choice = {
        "relay": relay,
        "aggregate": relay,
        "deadlines": relay,
        "pull": "exact" if relay else "window",
        "stamps": "full" if relay else "updates",
        "domains": [["a", "b"], ["b", "c"], ["c", "d"]],
        "capacity": 3 * relay,
        "own_after_echo": relay,
        "lifetimes": relay,
        "window": 8,
        "held_max": 6,
        "streams_max": 12,
    }
    params = {name: value for name, value in choice.items() if name in known}
    core = registry.make(protocol, "b", MEMBERS, params)
    for peer in ("a", "c"):
        core.link_up(peer, 0)
    return core


@cache
def decoder(protocol: str) -> msgspec.msgpack.Decoder[Packet]:
    """What reads the packets of a protocol."""
    return msgspec.msgpack.Decoder(registry.lookup(protocol).packet_type)


def decode(protocol: str, fields: list[object]) -> Packet | None:
    """What the live node would make of such a body; None if the wire refuses it."""
    try:
        return decoder(protocol).decode(msgspec.msgpack.encode(fields))
    except msgspec.DecodeError:
        return None


def draw_barrier(data: st.DataObject) -> list[object]:
    names = st.sampled_from(["a", "b", "c", "d", "", "x" * 300]) | st.text(max_size=3)
    deadlines = st.none() | integers
    entries = st.lists(st.tuples(names, integers, deadlines), max_size=4)
    return [data.draw(each) for each in (names, integers, deadlines, entries, st.binary(max_size=5))]


def draw_oppnet(data: st.DataObject) -> list[object]:
    ids = data.draw(st.lists(st.tuples(st.text(max_size=3), integers), max_size=4))
    kind = data.draw(st.integers(-1, 5))
    return [kind, ids, [draw_barrier(data) for _ in range(data.draw(st.integers(0, 2)))]]


def near_barrier(draw: random.Random) -> list[object]:
    """What nodes with clocks near 60 might send, or nearly."""

    def deadline_us() -> int | None:
        return draw.choice([None, draw.randrange(140), draw.randrange(140)])

    entries = [(draw.choice("abcd"), draw.randrange(1, 4), deadline_us()) for _ in range(draw.randrange(4))]
    if draw.random() < 0.9:
        entries = sorted({entry[:2]: entry for entry in entries}.values(), key=lambda entry: entry[:2])
    return [
        draw.choice("aacd"),
        draw.choice([1, 1, 2, 3, 4, 0, draw.choice(EDGES)]),
        deadline_us(),
        entries,
        b"x",
    ]


def near_oppnet(draw: random.Random) -> list[object]:
    kind = draw.choice([0, 1, 2, 3, 3, 3, 3])
    ids = [(draw.choice("abcd"), draw.randrange(0, 5)) for _ in range(draw.randrange(3))]
    return [kind, [] if kind == 3 else ids, [near_barrier(draw)] if kind == 3 else []]


LIVES = [f"{name}/{digit * 16}" for name in "abcd" for digit in "01"]


def draw_log(data: st.DataObject) -> list[object]:
    names = st.lists(
        st.tuples(integers, st.sampled_from([*LIVES, "a", "", "/", "x" * 300]) | texts), max_size=3
    )
    items = st.tuples(integers, integers, integers, lists, st.binary(max_size=3), integers)
    parts = (st.integers(-1, 12), names, lists, st.lists(items, max_size=3), st.binary(max_size=120))
    return [data.draw(each) for each in parts]


def near_log(draw: random.Random) -> list[object]:
    """What peers in the middle of a session might say, or nearly."""
    kind = draw.choice([0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10])
    names = [(at, stream) for at, stream in enumerate(draw.sample(LIVES, 3)) if draw.random() < 0.3]
    numbers: list[int] = [draw.randrange(-1, 5) for _ in range(draw.choice([0, 1, 2, 2, 3, 3, 4, 5]))]
    items = []
    if kind == 0:
        names = [(draw.randrange(2), draw.choice(LIVES))]
        numbers = [1, draw.randrange(4), draw.choice([0, 3, 300, draw.choice(EDGES)]), draw.randrange(3)]
    elif kind == 3:
        numbers = []
        for _ in range(draw.randrange(1, 4)):
            after = [draw.randrange(4) for _ in range(draw.choice([0, 0, 2, 2, 3, 4, 6]))]
            number = draw.choice([1, 1, 2, 3, 4, draw.choice(EDGES)])
            until = draw.choice([0, 0, 50, 100, draw.choice(EDGES)])
            items.append((draw.randrange(3), number, until, after, b"x", draw.choice([0, 0, 0, 1, 2, 9])))
    return [kind, names, numbers, items, draw.randbytes(draw.choice([0, 0, 0, 112]))]


# Protocols whose packets name nodes or streams.
NAMED = {
    "barrier": (draw_barrier, near_barrier),
    "oppnet": (draw_oppnet, near_oppnet),
    "log": (draw_log, near_log),
}


def fields(protocol: str) -> tuple[list[str], bool]:
    """The fields of a message, and whether a packet is a list of messages."""
    packet_type = registry.lookup(protocol).packet_type
    message_type = {VCubePacket: VCubeMessage, DeadlinePacket: DeadlineMessage}.get(packet_type)
    return list((message_type or packet_type).__annotations__), message_type is not None


def around(protocol: str, messages: list[object], rest: list[object]) -> list[object]:
    """The fields of a packet of several messages; `rest` has what a solicitation may say besides."""
    if registry.lookup(protocol).packet_type is DeadlinePacket:
        return [rest[0], messages, *rest[1:]]
    return [messages]


@cache
def is_named(protocol: str) -> bool:
    """Whether packets name their origin, rather than its place in a list of members."""
    return get_type_hints(registry.lookup(protocol).packet_type).get("origin") is str


def nearly_right(draw: random.Random, names: list[str], named: bool) -> list[object]:
    number = draw.choice([1, 1, 2, 3, 4, 5, draw.choice(EDGES)])
    way = draw.sample([*MEMBERS, "e"], draw.choice([0, 0, 2, 3, 3, 4]))
    near: dict[str, object] = {
        "kind": draw.choice([0, 0, 0, *range(-1, 11)]),
        "origin": draw.choice([*MEMBERS, "", "e", *way[:1]]) if named else draw.randrange(-1, 5),
        "route": way,
        "messages": [[draw.choice(MEMBERS), draw.randrange(4), b""] for _ in range(draw.choice([0, 0, 3]))],
        "number": number,
        "after": sorted(draw.randrange(5) for _ in range(draw.randrange(5))),
        "payload": b"x",
        "domain": draw.randrange(-1, 3),
        "to": draw.choice([1, 2, 3, draw.randrange(-1, 5)]),
        "sent": draw.choice([1, 1, 2, 3, draw.choice(EDGES)]),
        "stamp": draw.choice(
            [
                [],
                [draw.randrange(3) for _ in range(draw.choice([3, 4, 16]))],
                [0, draw.choice([1, 2]), draw.randrange(4)],
            ]
        ),
    }
    if "deadline_us" in names:  # a vector over all members, in which the own entry is the number before
        after = [draw.choice([0, 0, 1, 1, 2, draw.choice(EDGES)]) for _ in MEMBERS]
        if near["origin"] in range(4):
            after[draw.randrange(-1, 5) % 4 if draw.random() < 0.05 else near["origin"]] = max(number, 1) - 1
        near |= {
            "after": after,
            "stamp": draw.choice([number, draw.randrange(200), draw.choice(EDGES)]),
            "deadline_us": draw.choice([draw.randrange(200), draw.randrange(200), draw.choice(EDGES)]),
            "left": draw.choice([[], [], [draw.randrange(100) for _ in MEMBERS], [draw.choice(EDGES)] * 4]),
        }
    return [near[name] for name in names]


def nearly_right_rest(draw: random.Random) -> list[object]:
    def vector() -> list[int]:
        return [draw.randrange(6) for _ in MEMBERS] if draw.random() < 0.7 else []

    return [draw.choice([0, 0, 0, 1, 2, 3]), vector(), vector(), draw.choice([[], [0, 1], [1, 2, 9], [7, 7]])]


def give(core: Protocol, peer: str, packet: Packet, now_us: int) -> None:
    core.message_of(packet)
    core.sizes(packet)
    for effect in core.receive(peer, packet, now_us):
        if isinstance(effect, Deliver):
            assert effect.message.origin in MEMBERS or core.name in NAMED or not hasattr(core, "members")
            assert effect.message.number >= 1
        elif isinstance(effect, Send):
            assert set(effect.to) <= {"a", "c"} - ({peer} if hasattr(core, "relay") else set())
        elif isinstance(effect, Discard):
            assert effect.peer == peer
        else:
            assert isinstance(effect, SetTimer | CancelTimer | Expire | CloseLink | Missed | Internal | Tell)


@pytest.mark.parametrize("protocol", registry.names())
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_sequence_of_packets_is_survived(protocol: str, data: st.DataObject) -> None:
    survive(protocol, data)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", registry.names())
@settings(max_examples=1_000, deadline=None)
@given(data=st.data())
def test_any_of_many_sequences_of_packets_is_survived(protocol: str, data: st.DataObject) -> None:
    survive(protocol, data)


def survive(protocol: str, data: st.DataObject) -> None:
    core = fresh(protocol, data.draw(st.booleans()))
    names, several = fields(protocol)
    named = NAMED.get(protocol)
    special = {
        "after": lists,
        "left": lists,
        "payload": st.binary(max_size=5),
        "route": routes,
        "messages": st.lists(st.tuples(texts, integers, st.binary(max_size=3)), max_size=3),
    } | ({"origin": texts} if is_named(protocol) else {})
    if "deadline_us" not in names:
        special["stamp"] = lists  # of matrix clocks; that of a deadline is a number
    message = st.tuples(*(special.get(name, integers) for name in names))
    for now_us in range(data.draw(st.integers(1, 12))):
        if named is not None:
            drawn = named[0](data)
        elif several:
            rest = data.draw(st.tuples(st.integers(0, 3), lists, lists, lists))
            drawn = around(protocol, data.draw(st.lists(message, max_size=4)), list(rest))
        else:
            drawn = list(data.draw(message))
        packet = decode(protocol, drawn)
        if packet is not None:
            give(core, data.draw(st.sampled_from(["a", "c", "d", "stranger"])), packet, now_us)
            core.check()
    core.explain()
    core.entries()


@pytest.mark.parametrize("part", parts(5, fast=1))
@pytest.mark.parametrize("protocol", registry.names())
def test_thousands_of_nearly_right_packets(protocol: str, part: int) -> None:
    """Small numbers meet the real state far more often than arbitrary ones."""
    names, several = fields(protocol)
    named, point_to_point = is_named(protocol), registry.lookup(protocol).point_to_point
    delivered = 0
    for seed in range(part * 50, part * 50 + 50):
        draw = random.Random(f"{protocol}/{seed}")
        core = fresh(protocol, seed % 2 == 0)
        for now_us in range(120):
            if protocol in NAMED:
                packet = decode(protocol, NAMED[protocol][1](draw))
            else:
                messages = [
                    nearly_right(draw, names, named) for _ in range(draw.randrange(1, 4) if several else 1)
                ]
                several_fields = around(protocol, messages, nearly_right_rest(draw))
                packet = decode(protocol, several_fields if several else messages[0])
            if packet is not None:
                give(core, draw.choice(["a", "c"]), packet, now_us)
                core.check()
            if draw.random() < 0.05:
                if point_to_point:
                    delivered += len(core.send(draw.choice(MEMBERS), b"own", now_us))
                else:
                    delivered += len(core.broadcast(b"own", now_us))
    assert delivered
