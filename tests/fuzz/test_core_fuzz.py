"""A peer can never make a core raise: whatever decodes as a packet is delivered, held or discarded."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.core.effects import Deliver, Discard, Send
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
lists = st.lists(integers, max_size=9) | st.lists(st.integers(0, 5), max_size=9)


def fresh(protocol: str, relay: bool) -> Protocol:
    known = registry.lookup(protocol).parameters
    params: dict[str, object] = {"relay": relay} if "relay" in known else {"aggregate": relay}
    if "stamps" in known:
        params = {"stamps": "full" if relay else "updates"}
    if "domains" in known:
        params["domains"] = [["a", "b"], ["b", "c"], ["c", "d"]]
    core = registry.make(protocol, "b", MEMBERS, params)
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


def nearly_right(draw: random.Random, names: list[str]) -> list[object]:
    near: dict[str, object] = {
        "origin": draw.randrange(-1, 5),
        "number": draw.choice([1, 1, 2, 3, 4, 5, draw.choice(EDGES)]),
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
    return [near[name] for name in names]


def give(core: Protocol, peer: str, packet: Packet, now_us: int) -> None:
    core.message_of(packet)
    core.sizes(packet)
    for effect in core.receive(peer, packet, now_us):
        if isinstance(effect, Deliver):
            assert effect.message.origin in MEMBERS
            assert effect.message.number >= 1
        elif isinstance(effect, Send):
            assert set(effect.to) <= {"a", "c"} - ({peer} if hasattr(core, "relay") else set())
        else:
            assert isinstance(effect, Discard)
            assert effect.peer == peer


@pytest.mark.parametrize("protocol", registry.names())
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_sequence_of_packets_is_survived(protocol: str, data: st.DataObject) -> None:
    core = fresh(protocol, data.draw(st.booleans()))
    names, several = fields(protocol)
    message = st.tuples(
        *({"after": lists, "stamp": lists, "payload": st.binary(max_size=5)}.get(n, integers) for n in names)
    )
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
            messages = [nearly_right(draw, names) for _ in range(draw.randrange(1, 4) if several else 1)]
            packet = decode(protocol, [messages] if several else messages[0])
            if packet is not None:
                give(core, draw.choice(["a", "c"]), packet, now_us)
                core.check()
            if draw.random() < 0.05:
                if registry.lookup(protocol).point_to_point:
                    delivered += len(core.send(draw.choice(MEMBERS), b"own", now_us))
                else:
                    delivered += len(core.broadcast(b"own", now_us))
    assert delivered
