"""The wire format: frames, limits, typed errors, and the sizes that cores state."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from whence.core.message import Packet
from whence.core.sizes import FRAME_BYTES
from whence.errors import FrameError, FrameTooLargeError, HandshakeError, PeerError, VersionError
from whence.protocols import registry
from whence.protocols.barrier.oppnet import OppnetPacket
from whence.protocols.barrier.wire import BarrierEntry, BarrierPacket
from whence.protocols.baselines.fifo import FifoPacket
from whence.protocols.baselines.vector import VectorPacket
from whence.protocols.deadline.wire import DeadlineMessage, DeadlinePacket
from whence.protocols.log.wire import LogPacket
from whence.protocols.prc.wire import PrcPacket
from whence.protocols.vcube.wire import VCubeMessage, VCubePacket
from whence.session.datagrams import Header, digest_of, payload_room_bytes
from whence.session.handshake import Identity, error_code, refused
from whence.session.wire import (
    BYE_FRAME,
    GREETING_MAX_BYTES,
    HEADER,
    PING_FRAME,
    Ack,
    Bye,
    FrameReader,
    FrameType,
    Hello,
    Refusal,
    ack_frame,
    answer_frame,
    challenge_frame,
    data_frame,
    encode_packet,
    error_frame,
    hello_frame,
    packets_frame,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "wire-format.md"

HELLO = Hello(
    magic="whence", version=3, group="room", protocol="vector", parameters={"relay": "true"},
    members=["alice", "bob"], max_payload_bytes=1048576, node="alice", to="bob", session=258,
    peer_session=0, received=0, nonce=25, life=7,
)  # fmt: skip


TDCA = Identity(
    group="room", protocol="tdca", parameters={"copies": "1"}, members=("alice", "bob"),
    max_payload_bytes=payload_room_bytes(2), node="alice", session=258,
)  # fmt: skip


def reader(max_frame_bytes: int = 1000, packet_type: type[Packet] = VectorPacket) -> FrameReader:
    made = FrameReader(packet_type, max_frame_bytes)
    assert made.greeting(hello_frame(HELLO)) == HELLO
    return made


def random_named_packet(draw: random.Random, packet_type: type[Packet]) -> Packet:
    """Of the protocols that name nodes by texts."""

    def name() -> str:
        return "ö" * draw.choice([1, 5, 15, 16, 31, 127, 128])

    def number() -> int:
        return draw.randrange(2 ** draw.randrange(1, 63))

    def deadline_us() -> int | None:
        return draw.choice([None, number()])

    if packet_type is OppnetPacket:
        ids = tuple((name(), number()) for _ in range(draw.choice([0, 1, 15, 16, 100])))
        messages = tuple(random_named_packet(draw, BarrierPacket) for _ in range(draw.randrange(2)))
        return OppnetPacket(draw.randrange(4), ids, messages)
    count = draw.choice([0, 1, 3, 15, 16, 70])
    barrier = tuple(BarrierEntry(name(), number(), deadline_us()) for _ in range(count))
    payload = draw.randbytes(draw.choice([0, 1, 64, 255, 256, 65_536]))
    return BarrierPacket(name(), number(), deadline_us(), barrier, payload)


def random_log_packet(draw: random.Random) -> LogPacket:
    def number() -> int:
        return draw.randrange(2 ** draw.randrange(1, 63))

    def numbers() -> tuple[int, ...]:
        return tuple(number() for _ in range(draw.choice([0, 2, 15, 16, 70])))

    names = tuple((number(), "ö" * draw.choice([1, 15, 16, 130])) for _ in range(draw.choice([0, 1, 16])))
    items = tuple(
        (number(), number(), number(), numbers(), draw.randbytes(draw.choice([0, 64, 255, 256, 70_000])), 0)
        for _ in range(draw.choice([0, 1, 3, 16]))
    )
    return LogPacket(draw.randrange(11), names, numbers(), items, draw.randbytes(draw.choice([0, 112, 300])))


def random_packet(draw: random.Random, packet_type: type[Packet]) -> Packet:
    if packet_type is LogPacket:
        return random_log_packet(draw)
    if packet_type in (BarrierPacket, OppnetPacket):
        return random_named_packet(draw, packet_type)
    if packet_type is VCubePacket:  # a list of messages
        return VCubePacket(tuple(random_packet(draw, VCubeMessage) for _ in range(draw.randrange(1, 20))))

    def integer() -> int:
        return draw.randrange(2 ** draw.randrange(1, 63))

    def integers() -> tuple[int, ...]:
        return tuple(integer() for _ in range(draw.choice([0, 2, 15, 16, 40])))

    def name() -> str:
        return "é" * draw.randrange(3) + "n" * draw.choice([1, 5, 31, 32, 255, 256, 70_000])

    if packet_type is DeadlinePacket:
        messages = tuple(random_packet(draw, DeadlineMessage) for _ in range(draw.choice([0, 1, 2, 15, 16])))
        return DeadlinePacket(draw.randrange(3), messages, integers(), integers(), integers())
    payload = draw.randbytes(draw.choice([0, 1, 64, 255, 256, 65_535, 65_536][: draw.randrange(1, 8)]))

    def after() -> tuple[int, ...]:  # a long list takes each of some numbers many times
        count = draw.choice([0, 2, 8, 15, 16, 40, 70_000][: draw.randrange(2, 8)])
        return tuple(draw.choices([integer() for _ in range(min(count, 100) + 1)], k=count))

    values: dict[str, Callable[[], Any]] = {
        "kind": lambda: draw.randrange(10),
        "route": lambda: tuple(name() for _ in range(draw.choice([0, 3, 16]))),
        "messages": lambda: tuple((name(), integer(), payload) for _ in range(draw.choice([0, 1, 20]))),
        "origin": name if get_type_hints(packet_type)["origin"] is str else integer,
        "number": integer,
        "deadline_us": integer,
        "left": integers,
        "after": after,
        "domain": integer,
        "to": integer,
        "sent": integer,
        # A deadline's stamp is a number, that of a matrix clock a list of them.
        "stamp": integer
        if packet_type is DeadlineMessage
        else lambda: tuple(integer() for _ in range(draw.choice([0, 3, 9, 16, 300]))),
        "payload": lambda: payload,
    }
    return packet_type(**{name: values[name]() for name in packet_type._fields})


@pytest.mark.parametrize("protocol", registry.names())
def test_stated_sizes_are_the_bytes_on_the_wire(protocol: str) -> None:
    draw = random.Random(protocol)
    core = registry.make(protocol, "a", ["a", "b"])
    for _ in range(1000 if "messages" not in core.packet_type._fields else 100):
        packet = random_packet(draw, core.packet_type)
        total_bytes, control_bytes = core.sizes(packet)
        assert len(data_frame(packet)) == total_bytes
        messages = getattr(packet, "messages", [packet])
        if isinstance(packet, PrcPacket):
            messages = [*packet.messages, (packet.payload,)]
        payloads = sum(len(message[-1]) for message in messages)
        if isinstance(packet, LogPacket):
            payloads = sum(len(item[4]) for item in packet.items)
        assert total_bytes - control_bytes == payloads
    assert HEADER.size == FRAME_BYTES


@pytest.mark.parametrize("protocol", registry.names())
def test_packets_come_back_as_they_were_sent_however_they_are_cut(protocol: str) -> None:
    draw = random.Random(protocol)
    core = registry.make(protocol, "a", ["a", "b"])
    count = 20 if "messages" in core.packet_type._fields else 200
    packets = [random_packet(draw, core.packet_type) for _ in range(count)]
    data, at = b"", 0
    while at < len(packets):  # alone, or so many together
        together = list(map(encode_packet, packets[at : at + draw.choice([1, 1, 2, 15, 16, 90])]))
        data += packets_frame(b"".join(together), len(together))
        at += len(together)
    made = reader(100_000_000, core.packet_type)
    got: list[Packet] = []
    at = 0
    while at < len(data):
        step = draw.choice([1, 3, 100, 5_000, 100_000])
        got += made.feed(data[at : at + step])
        at += step
    assert made.error is None
    assert got == packets
    assert all(type(packet) is core.packet_type for packet in got)


def test_control_frames_are_told_apart() -> None:
    made = reader()
    refusal = FrameError("frame", "it is wrong", "mend it")
    data = (
        ack_frame(70_000)
        + PING_FRAME
        + data_frame(VectorPacket(0, 1, (), b"x"))
        + error_frame("frame", refusal)
    )
    assert made.feed(data + BYE_FRAME) == [VectorPacket(0, 1, (), b"x")]
    assert made.control == [Ack(70_000), Refusal("frame", "it is wrong", "mend it"), Bye()]


def body(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def frame(kind: int, content: bytes) -> bytes:
    return HEADER.pack(len(content) + 1, kind) + content


BAD_FRAMES = {
    "length 0": (b"\0\0\0\0\2", FrameError),
    "too long": (HEADER.pack(2000, 2), FrameTooLargeError),
    "negative as signed": (b"\xff\xff\xff\xff\x02", FrameTooLargeError),
    "unknown type": (frame(99, b"x"), FrameError),
    "HELLO again": (hello_frame(HELLO), FrameError),
    "empty DATA": (frame(2, b""), FrameError),
    "empty BATCH": (frame(13, b""), FrameError),
    "BATCH of numbers": (frame(13, body([1, 2, 3])), FrameError),
    "BATCH of which one is wrong": (frame(13, body([[0, 1, [], b""], [0, 2, [], "text"]])), FrameError),
    "BATCH cut short": (frame(13, b"\x92" + body([0, 1, [], b""])), FrameError),
    "BATCH with trailing bytes": (frame(13, body([[0, 1, [], b""]]) + b"\0"), FrameError),
    "BATCH that announces too many": (frame(13, b"\xdd\xff\xff\xff\xff"), FrameError),
    "BATCH too long": (HEADER.pack(2000, 13), FrameTooLargeError),
    "not MessagePack": (frame(2, b"\xc1"), FrameError),
    "truncated MessagePack": (frame(2, b"\x94\x00\x01\x90\xc4\xff"), FrameError),
    "trailing bytes": (frame(2, body([0, 1, [], b""]) + b"\0"), FrameError),
    "too few fields": (frame(2, body([0, 1, []])), FrameError),
    "too many fields": (frame(2, body([0, 1, [], b"", 5])), FrameError),
    "text for bytes": (frame(2, body([0, 1, [], "text"])), FrameError),
    "text for number": (frame(2, body(["0", 1, [], b""])), FrameError),
    "nested": (frame(2, b"\x91" * 900), FrameError),
    "ACK with text": (frame(3, body("many")), FrameError),
    "ACK negative": (frame(3, body(-1)), FrameError),
    "PING with body": (frame(4, b"x"), FrameError),
    "BYE with body": (frame(5, b"x"), FrameError),
    "ERROR of numbers": (frame(6, body([1, 2, 3])), FrameError),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_frame_is_a_typed_error_and_what_came_before_is_kept(name: str) -> None:
    data, kind = BAD_FRAMES[name]
    made = reader()
    good = VectorPacket(1, 2, (0, 1), b"kept")
    assert made.feed(data_frame(good) + data) == [good]
    assert type(made.error) is kind
    assert made.feed(data_frame(good)) == []  # nothing is read behind an error


BAD_GREETINGS = {
    "DATA first": (data_frame(VectorPacket(0, 1, (), b"")), FrameError),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", FrameError),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", HandshakeError),
    "too long": (HEADER.pack(GREETING_MAX_BYTES + 1, FrameType.HELLO), FrameTooLargeError),
    "other magic": (frame(1, body(["hwence", 1])), FrameError),
    "not an array": (frame(1, body({"magic": "whence"})), FrameError),
    "other version": (frame(1, body(["whence", 4, "whatever follows"])), VersionError),
    "too short": (frame(1, body(["whence", 3, "room"])), FrameError),
    "endless name": (frame(1, body([*msgspec.to_builtins(HELLO)[:2], "x" * 256])), FrameError),
    "number for name": (frame(1, body(["whence", 3, 5])), FrameError),
    "nested": (frame(1, b"\x91" * 5000), FrameError),
}


@pytest.mark.parametrize("name", BAD_GREETINGS)
def test_a_bad_greeting_is_a_typed_error(name: str) -> None:
    data, kind = BAD_GREETINGS[name]
    with pytest.raises(PeerError) as caught:
        FrameReader(VectorPacket, 1000).greeting(data)
    assert type(caught.value) is kind


def test_a_greeting_may_come_byte_by_byte_and_what_follows_waits() -> None:
    made = FrameReader(FifoPacket, 1000)
    data = hello_frame(HELLO) + data_frame(FifoPacket(0, 1, b"first"))
    hello_bytes = len(hello_frame(HELLO))
    for at in range(hello_bytes - 1):
        assert made.greeting(data[at : at + 1]) is None
    assert made.greeting(data[hello_bytes - 1 :]) == HELLO
    assert made.feed(b"") == [FifoPacket(0, 1, b"first")]


def test_a_slow_long_frame_costs_no_quadratic_copying() -> None:
    made = reader(10_000_000)
    packet = VectorPacket(0, 1, (), bytes(3_000_000))
    data = data_frame(packet)
    for at in range(0, len(data) - 1, 30):  # 100,000 pieces: copying 3 MB for each would take minutes
        assert made.feed(data[at : min(at + 30, len(data) - 1)]) == []
    assert made.feed(data[-1:]) == [packet]


def test_an_error_frame_keeps_its_type_on_the_other_side() -> None:
    for kind in (FrameError, FrameTooLargeError, VersionError):
        error = kind("frame", "evil \x1b[31m text", "mend it")
        made = reader()
        made.feed(error_frame(error_code(error), error))
        [refusal] = made.control
        assert isinstance(refusal, Refusal)
        there = refused("bob", refusal)
        assert type(there) is kind
        assert there.reason == "evil ?[31m text"  # a peer cannot paint our terminal


def documented() -> list[tuple[str, bytes]]:
    """The examples of the document: a heading line and a block of hexadecimal bytes each."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.findall(r"Example: ([^\n]+)\n\n```hex\n(.*?)```", text, re.DOTALL)
    return [
        (title, bytes.fromhex(re.sub(r"#[^\n]*", "", block).replace("\n", " "))) for title, block in found
    ]


def test_the_documents_examples_are_what_is_written() -> None:
    written = {
        "HELLO": hello_frame(HELLO),
        "CHALLENGE": challenge_frame(300),
        "ANSWER": answer_frame(300),
        "DATA of `fifo`": data_frame(FifoPacket(1, 300, b"hi")),
        "DATA of `vector`": data_frame(VectorPacket(0, 7, (1, 300), b"hi")),
        "BATCH of `fifo`": packets_frame(
            encode_packet(FifoPacket(1, 300, b"hi")) + encode_packet(FifoPacket(1, 301, b"ho")), 2
        ),
        "ACK": ack_frame(300),
        "PING": PING_FRAME,
        "BYE": BYE_FRAME,
        "ERROR": error_frame("frame", FrameError("frame", "its type 99 is not allowed here", "Upgrade")),
        "datagram": Header(0, digest_of(TDCA), 258, 772).pack() + PING_FRAME + BYE_FRAME,
    }
    examples = documented()
    assert [title for title, _ in examples] == list(written)
    for title, data in examples:
        assert data == written[title], title
