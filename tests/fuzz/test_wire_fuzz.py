"""Whatever bytes arrive, the frame reader answers with frames or a typed error, and nothing else."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.core.message import Packet
from whence.errors import FrameError, PeerError
from whence.protocols import registry
from whence.protocols.barrier.wire import BarrierEntry, BarrierPacket
from whence.session.wire import (
    HEADER,
    REPEATED_KEPT,
    REPEATED_MIN,
    VERSION,
    Answer,
    Challenge,
    FrameReader,
    FrameType,
    Hello,
    Refusal,
    Unopened,
    _RepeatedDecoder,
    hello_frame,
    packet_decoders,
)

HELLO = Hello(
    magic="whence", version=VERSION, group="room", protocol="vector", parameters={}, members=["a", "b"],
    max_payload_bytes=1000, node="a", to="b", session=1, peer_session=0, received=0,
)  # fmt: skip
TYPES = [registry.lookup(name).packet_type for name in registry.names()]
LIMIT = 4096


def read_everything(packet_type: type[Packet], data: bytes, cuts: list[int]) -> None:
    """Feed `data` in pieces; any exception but those of the contract fails the test."""
    reader = FrameReader(packet_type, LIMIT)
    assert reader.greeting(hello_frame(HELLO)) == HELLO
    at = 0
    for cut in [*cuts, len(data)]:
        had_error = reader.error
        for packet in reader.feed(data[at : at + cut]):
            assert type(packet) is packet_type
            assert had_error is None
        at += cut
    assert reader.error is None or isinstance(reader.error, PeerError)
    open_later(packet_type, data, cuts, is_good=reader.error is None)


def open_later(packet_type: type[Packet], data: bytes, cuts: list[int], *, is_good: bool) -> None:
    """As a node with a store reads: it decodes the same packets later, or hears then that it cannot."""
    reader, late = FrameReader(packet_type, LIMIT), FrameReader(packet_type, LIMIT, opens=False)
    for each in (reader, late):
        each.greeting(hello_frame(HELLO))
    at = 0
    for cut in [*cuts, len(data)]:
        piece = data[at : at + cut]
        packets, unopened = reader.feed(piece), late.feed(piece)
        assert isinstance(unopened, Unopened)
        try:
            opened = unopened.open()
        except FrameError:
            assert not is_good
            return
        assert len(opened) == len(unopened)
        assert opened == packets
        at += cut
    assert is_good or late.error is not None


def greet(data: bytes) -> None:
    try:
        answer = FrameReader(TYPES[0], LIMIT).greeting(data)
    except PeerError:
        return
    assert answer is None or isinstance(answer, Hello | Challenge | Answer | Refusal)


msgpack_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=12,
)
frames = st.builds(
    lambda kind, body: HEADER.pack(len(body) + 1, kind) + body,
    st.sampled_from([*FrameType, 0, 9, 255]),
    msgpack_values.map(msgspec.msgpack.encode) | st.binary(max_size=60),
)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(TYPES),
    st.lists(frames, max_size=6).map(b"".join) | st.binary(max_size=300),
    st.lists(st.integers(0, 20)),
)
def test_any_frames_give_packets_or_a_typed_error(
    packet_type: type[Packet], data: bytes, cuts: list[int]
) -> None:
    read_everything(packet_type, data, cuts)


@settings(max_examples=300, deadline=None)
@given(frames | st.binary(max_size=200))
def test_any_greeting_gives_a_hello_or_a_typed_error(data: bytes) -> None:
    greet(data)


@pytest.mark.parametrize("seed", range(4))
def test_random_and_damaged_bytes_in_thousands(seed: int) -> None:
    draw = random.Random(seed)
    whole = hello_frame(HELLO)
    for _ in range(4000):
        damaged = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        greet(bytes(damaged[: draw.randrange(len(damaged) + 1)]))
        body = draw.randbytes(draw.randrange(40))
        kind = draw.choice([2, 2, 2, 3, draw.randrange(256)])
        data = HEADER.pack(len(body) + 1, kind) + body + draw.randbytes(draw.randrange(10))
        read_everything(draw.choice(TYPES), data, [draw.randrange(8) for _ in range(5)])


# A field that many packets share is decoded once


def barrier(draw: random.Random) -> tuple[BarrierEntry, ...]:
    """One of a few, short and long."""
    size = draw.choice([0, 1, REPEATED_MIN - 1, REPEATED_MIN, 40, 40, 2500 if draw.random() < 0.1 else 9])
    return tuple(BarrierEntry(f"n{at:04}", at + 1, draw.choice([None, 7])) for at in range(size))


@pytest.mark.parametrize("seed", range(2))
def test_packets_that_share_a_field_are_read_as_if_each_were_alone(seed: int) -> None:
    draw = random.Random(seed)
    decode, decode_many = packet_decoders(BarrierPacket)
    plain = msgspec.msgpack.Decoder(list[BarrierPacket]).decode
    refused = 0
    for _ in range(150):
        some = [barrier(draw) for _ in range(2)]
        packets = [
            BarrierPacket("n1", at, None, draw.choice(some), draw.randbytes(4))
            for at in range(draw.randrange(6))
        ]
        body = bytearray(msgspec.msgpack.encode(packets))
        assert decode_many(bytes(body)) == packets
        assert [decode(msgspec.msgpack.encode(packet)) for packet in packets] == packets
        assert all(type(entry) is BarrierEntry for packet in packets for entry in packet.barrier)
        for _ in range(draw.randrange(3)):
            body[draw.randrange(len(body))] = draw.randrange(256)
        data = bytes(body[: draw.randrange(len(body) + 1)]) if draw.random() < 0.3 else bytes(body)
        try:
            expected: object = plain(data)
        except ValueError:
            expected, refused = ValueError, refused + 1
        try:
            found: object = decode_many(data)
        except ValueError:
            found = ValueError
        assert found == expected
    assert 10 < refused < 140


def test_what_is_remembered_of_a_shared_field_is_bounded() -> None:
    decode_many = packet_decoders(BarrierPacket)[1]
    decoder = decode_many.__self__  # type: ignore[attr-defined]
    assert isinstance(decoder, _RepeatedDecoder)
    for number in range(1, 40):
        long = tuple(BarrierEntry(f"n{at:03}", number, None) for at in range(200))
        first, second = decode_many(msgspec.msgpack.encode([BarrierPacket("a", number, None, long, b"")] * 2))
        assert first[3] == second[3] == long
        assert number == 1 or first[3] is second[3]
        assert len(decoder._known) <= REPEATED_KEPT
    huge = tuple(BarrierEntry(f"n{at:05}", 1, None) for at in range(5000))
    (packet,) = decode_many(msgspec.msgpack.encode([BarrierPacket("a", 1, None, huge, b"")]))
    assert packet[3] == huge
    assert huge not in decoder._known.values()
