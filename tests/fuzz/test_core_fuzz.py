"""A peer can never make a core raise: whatever decodes as a packet is delivered, held or discarded."""

from __future__ import annotations

import random
from typing import get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.core.effects import CancelTimer, CloseLink, Deliver, Discard, Send, SetTimer
from whence.core.message import Packet
from whence.core.protocol import Protocol
from whence.protocols import registry
from whence.protocols.vcube_wire import VCubeMessage

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
    switch = next((name for name in ("relay", "aggregate", "own_after_echo") if name in known), None)
    core = registry.make(protocol, "b", MEMBERS, {} if switch is None else {switch: relay})
    for peer in ("a", "c"):
        core.link_up(peer, 0)
    return core


def decode(protocol: str, fields: list[object]) -> Packet | None:
    """What the live node would make of such a body; None if the wire refuses it."""
    decoder = msgspec.msgpack.Decoder(registry.lookup(protocol).packet_type)
    try:
        return decoder.decode(msgspec.msgpack.encode(fields))
    except msgspec.DecodeError:
        return None


def fields(protocol: str) -> tuple[list[str], bool]:
    """The fields of a message, and whether a packet is a list of messages."""
    names = list(registry.lookup(protocol).packet_type.__annotations__)
    return (list(VCubeMessage.__annotations__), True) if names == ["messages"] else (names, False)


def is_named(protocol: str) -> bool:
    """Whether packets name their origin, rather than its place in a list of members."""
    return get_type_hints(registry.lookup(protocol).packet_type).get("origin") is str


def nearly_right(draw: random.Random, names: list[str], named: bool) -> list[object]:
    way = draw.sample([*MEMBERS, "e"], draw.choice([0, 0, 2, 3, 3, 4]))
    near: dict[str, object] = {
        "kind": draw.choice([0, 0, 0, *range(-1, 11)]),
        "origin": draw.choice([*MEMBERS, "", "e", *way[:1]]) if named else draw.randrange(-1, 5),
        "route": way,
        "messages": [[draw.choice(MEMBERS), draw.randrange(4), b""] for _ in range(draw.choice([0, 0, 3]))],
        "number": draw.choice([1, 1, 2, 3, 4, 5, draw.choice(EDGES)]),
        "after": sorted(draw.randrange(5) for _ in range(draw.randrange(5))),
        "payload": b"x",
    }
    return [near[name] for name in names]


def give(core: Protocol, peer: str, packet: Packet, now_us: int) -> None:
    core.message_of(packet)
    core.sizes(packet)
    for effect in core.receive(peer, packet, now_us):
        if isinstance(effect, Deliver):
            assert effect.message.origin in MEMBERS or not hasattr(core, "members")
            assert effect.message.number >= 1
        elif isinstance(effect, Send):
            assert set(effect.to) <= {"a", "c"} - ({peer} if hasattr(core, "relay") else set())
        elif isinstance(effect, Discard):
            assert effect.peer == peer
        else:
            assert isinstance(effect, SetTimer | CancelTimer | CloseLink)


@pytest.mark.parametrize("protocol", registry.names())
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_sequence_of_packets_is_survived(protocol: str, data: st.DataObject) -> None:
    core = fresh(protocol, data.draw(st.booleans()))
    names, several = fields(protocol)
    special = {
        "after": lists,
        "payload": st.binary(max_size=5),
        "route": routes,
        "messages": st.lists(st.tuples(texts, integers, st.binary(max_size=3)), max_size=3),
    } | ({"origin": texts} if is_named(protocol) else {})
    message = st.tuples(*(special.get(name, integers) for name in names))
    for now_us in range(data.draw(st.integers(1, 12))):
        drawn = data.draw(st.tuples(st.lists(message, max_size=4)) if several else message)
        packet = decode(protocol, list(drawn))
        if packet is not None:
            give(core, data.draw(st.sampled_from(["a", "c", "d", "stranger"])), packet, now_us)
            core.check()
    core.explain()
    core.entries()


@pytest.mark.parametrize("protocol", registry.names())
def test_thousands_of_nearly_right_packets(protocol: str) -> None:
    """Small numbers meet the real state far more often than arbitrary ones."""
    names, several = fields(protocol)
    delivered = 0
    for seed in range(250):
        draw = random.Random(f"{protocol}/{seed}")
        core = fresh(protocol, seed % 2 == 0)
        for now_us in range(120):
            messages = [
                nearly_right(draw, names, is_named(protocol))
                for _ in range(draw.randrange(1, 4) if several else 1)
            ]
            packet = decode(protocol, [messages] if several else messages[0])
            if packet is not None:
                give(core, draw.choice(["a", "c"]), packet, now_us)
                core.check()
            if draw.random() < 0.05:
                delivered += len(core.broadcast(b"own", now_us))
    assert delivered
