"""Datagrams that no correct member sends: each is counted and dropped, and the group goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import whence
from support.living import eventually, live_group, loopback, quick_limits, take
from whence.errors import FrameError, HandshakeError, VersionError
from whence.protocols.deadline.wire import DeadlineMessage, DeadlinePacket, broadcast_packet
from whence.session.datagrams import HEADER_BYTES, MAX_BYTES, Header, digest_of, unpack_header
from whence.session.handshake import GoneError, RestartedError
from whence.session.wire import (
    BYE_FRAME,
    HEADER,
    PING_FRAME,
    Bye,
    Control,
    FrameReader,
    FrameType,
    Hello,
    Refusal,
    ack_frame,
    data_frame,
    error_frame,
    hello_frame,
)

# A member made by hand that speaks datagrams from its own address, as well or as badly as it is told.


class RawMember(asyncio.DatagramProtocol):
    """The member `name` of `group`'s group, bound to its address; `group` is the node to talk to."""

    def __init__(self, name: str, peers: dict[str, str], group: whence.Group, session: int = 77) -> None:
        self.node = group._node
        self.name = name
        self.place = _place(peers[group.node])
        self.address = _place(peers[name])
        members = self.node.identity.members
        self.header = Header(members.index(name), digest_of(self.node.identity), session, 0)
        self.heard: list[tuple[Header, list[Control]]] = []
        self.transport: Any = None

    async def __aenter__(self) -> RawMember:
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=self.address)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.transport.close()
        await asyncio.sleep(0)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        reader = FrameReader(self.node.packet_type, 1 << 20, datagrams=True)
        reader.whole(data[HEADER_BYTES:])
        self.heard.append((unpack_header(data), list(reader.control)))

    def send(self, body: bytes, **changes: Any) -> None:
        """A datagram with these frames; `changes` are fields of its header."""
        self.send_raw(self.header._replace(**changes).pack() + body)

    def send_raw(self, data: bytes) -> None:
        """Any bytes."""
        self.transport.sendto(data, self.place)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


# The tests


MINUTE_US = 60_000_000


def message(group: whence.Group, number: int = 1, payload: bytes = b"by hand") -> bytes:
    """A frame with a good message of member b, of a group of a and b."""
    now_us = group._node.clock.now_us()
    return data_frame(
        broadcast_packet(
            DeadlineMessage(1, number, now_us, now_us + MINUTE_US, (0, number - 1), (0, 0), payload)
        )
    )


@asynccontextmanager
async def facing(session: int = 77) -> AsyncIterator[tuple[whence.Group, RawMember]]:
    """A real member a, and b by hand."""
    peers = loopback(["a", "b"])
    limits = quick_limits(leave_timeout_s=0.5)
    async with (
        whence.join("room", node="a", peers=peers, protocol="tdca", limits=limits) as a,
        RawMember("b", peers, a, session) as b,
    ):
        yield a, b


def test_a_member_by_hand_is_heard_without_any_handshake() -> None:
    async def main() -> None:
        async with facing() as (a, b):
            b.send(message(a))
            assert (await take(a, 1))[0] == ("b", 1, b"by hand")
            assert a.stats().links["b"].state == "disconnected"  # it has not said that it hears us
            b.send(PING_FRAME, peer_session=a._node.identity.session)
            await eventually(lambda: a.stats().links["b"].state == "connected")
            b.send(hello_frame(a._node.identity.hello(a._node.links["b"])))
            await eventually(lambda: bool(b.heard) and b.heard[-1][0].peer_session == 77)
            b.send(BYE_FRAME)
            await eventually(lambda: a.stats().links["b"].state == "left")
            await eventually(lambda: any(isinstance(each, Bye) for _, got in b.heard for each in got))
            b.heard.clear()
            b.send(BYE_FRAME)  # our answer was lost: it is given again
            await eventually(lambda: any(isinstance(each, Bye) for _, got in b.heard for each in got))

    asyncio.run(main())


def frame(kind: int, body: bytes) -> bytes:
    return HEADER.pack(len(body) + 1, kind) + body


BAD_BODIES: dict[str, Callable[[whence.Group], bytes]] = {
    "cut off": lambda a: message(a)[:-1],
    "cut in a header": lambda a: message(a) + b"\x00\x00",
    "good, then nonsense": lambda a: message(a) + frame(99, b""),
    "no packet": lambda a: frame(FrameType.DATA, msgspec.msgpack.encode(["no", "packet"])),
    "empty DATA": lambda a: frame(FrameType.DATA, b""),
    "length 0": lambda a: HEADER.pack(0, FrameType.DATA),
    "enormous length": lambda a: HEADER.pack(2**32 - 1, FrameType.DATA) + b"x",
    "PING with a body": lambda a: frame(FrameType.PING, b"x"),
    "HELLO of numbers": lambda a: frame(FrameType.HELLO, msgspec.msgpack.encode([1, 2, 3])),
    "nested": lambda a: frame(FrameType.DATA, b"\x91" * 5000),
}


@pytest.mark.parametrize("what", BAD_BODIES)
def test_a_bad_datagram_is_dropped_whole_and_told(what: str) -> None:
    async def main() -> None:
        async with facing() as (a, b):
            b.send(BAD_BODIES[what](a))
            await eventually(lambda: a.stats().peer_errors != {})
            [(kind, count)] = a.stats().peer_errors.items()
            assert kind in ("FrameError", "FrameTooLargeError")
            assert count == 1
            assert a.stats().packets_received == 0  # not even what stood before the fault
            await eventually(lambda: any(isinstance(each, Refusal) for _, got in b.heard for each in got))
            b.send(message(a))
            assert (await take(a, 1))[0].payload == b"by hand"

    asyncio.run(main())


def test_what_is_no_datagram_of_ours() -> None:
    async def main() -> None:
        async with facing() as (a, b):
            good = b.header.pack() + message(a)
            for data in (b"", b"W", good[: HEADER_BYTES - 1], b"GET / HTTP/1.1\r\n\r\n" * 3, b"\x00" * 100):
                b.send_raw(data)
            b.send_raw(good[:2] + b"\x02" + good[3:])  # another version
            b.send(message(a), session=0)
            b.send(message(a), session=2**63)
            b.send(message(a), peer_session=2**64 - 1)
            await eventually(lambda: sum(a.stats().peer_errors.values()) >= 8)
            await eventually(lambda: a.stats().peer_errors.get("VersionError") == 1)
            assert set(a.stats().peer_errors) == {"FrameError", "VersionError"}
            assert a.stats().packets_received == 0
            b.send(message(a))
            await take(a, 1)

    asyncio.run(main())


def test_headers_are_judged_with_typed_errors() -> None:
    with pytest.raises(FrameError, match="less than a header"):
        unpack_header(b"WD\x01")
    with pytest.raises(FrameError, match="not one of Whence"):
        unpack_header(bytes(HEADER_BYTES))
    with pytest.raises(VersionError, match="version 9"):
        unpack_header(b"WD\x09" + bytes(HEADER_BYTES))
    with pytest.raises(FrameError, match="sessions"):
        unpack_header(b"WD\x01" + bytes(HEADER_BYTES))


def test_another_group_is_refused() -> None:
    async def main() -> None:
        async with facing() as (a, b):
            hello = a._node.identity.hello(a._node.links["b"])
            other = msgspec.structs.replace(hello, group="other room", node="b", to="a")
            b.send(message(a), digest=b"otherwis")
            b.send(hello_frame(other), digest=b"otherwis")
            await eventually(lambda: a.stats().peer_errors == {"HandshakeError": 2})
            reasons = [event.error.reason for event in a.events() if event.error]
            assert reasons[0] == "it is configured otherwise than this node"
            assert "the group ('other room' at 'b', 'room' at 'a')" in reasons[1]
            assert a.stats().packets_received == 0
            [refusal] = [each for _, got in b.heard for each in got if isinstance(each, Refusal)]
            assert refusal.code == "handshake"  # one for the burst

    asyncio.run(main())


def test_a_forged_sender_and_a_stranger_are_refused() -> None:
    async def main() -> None:
        peers = loopback(["a", "b", "c"])
        limits = quick_limits(leave_timeout_s=0.5)
        async with (
            whence.join("room", node="a", peers=peers, protocol="tdca", limits=limits) as a,
            RawMember("b", peers, a) as b,
            RawMember("c", {**peers, **loopback(["c"])}, a) as stranger,
        ):
            b.send(message(a), sender=2)  # b's address, c's name
            b.send(message(a), sender=40_000)
            stranger.send(message(a))  # c's name, from an address that nobody has
            await eventually(lambda: a.stats().peer_errors.get("HandshakeError") == 3)
            errors = {event.peer: event.error for event in a.events() if event.kind == "fault"}
            assert set(errors) == {"b", "stranger at 127.0.0.1"}
            assert all(isinstance(error, HandshakeError) for error in errors.values())
            assert a.stats().packets_received == 0
            await asyncio.sleep(0.1)
            # Strangers are not answered, or we would be a mirror for anybody's packets.
            assert not stranger.heard

    asyncio.run(main())


def test_a_message_in_anothers_name_is_the_cores_business() -> None:
    """The datagram is right, what it carries is not: it arrives, and ends as a counted discard."""

    async def main() -> None:
        async with facing() as (a, b):
            now_us = a._node.clock.now_us()
            forged = DeadlineMessage(0, 1, now_us, now_us + MINUTE_US, (0, 0), (0, 0), b"from a itself")
            unknown = DeadlineMessage(9, 1, now_us, now_us + MINUTE_US, (0, 0), (0, 0), b"from nobody")
            b.send(data_frame(broadcast_packet(forged)) + data_frame(broadcast_packet(unknown)))
            b.send(data_frame(DeadlinePacket(77, (), (), (), ())))
            await eventually(lambda: sum(a.stats().discards.values()) == 3)
            assert a.stats().peer_errors == {}
            assert (a.stats().deliveries, a.stats().held_messages) == (0, 0)

    asyncio.run(main())


def test_a_replayed_datagram_delivers_nothing_twice() -> None:
    async def main() -> None:
        async with facing() as (a, b):
            for number in (1, 2, 1, 2, 2, 1):
                b.send(message(a, number))
            assert [each.number for each in await take(a, 2)] == [1, 2]
            await eventually(lambda: a.stats().discards == {"duplicate": 4})
            assert (a.unread, a.stats().held_messages) == (0, 0)
            # One of an earlier process of that name, seen on the wire and sent again.
            b.send(message(a, 3), session=76)
            await eventually(lambda: any(header.peer_session == 76 for header, _ in b.heard))  # it is asked
            assert a.stats().deliveries == 2

    asyncio.run(main())


def test_a_peer_that_speaks_to_an_earlier_process_learns_of_the_new_one() -> None:
    async def main() -> None:
        async with facing() as (a, b):
            b.send(message(a), peer_session=12345)
            await eventually(lambda: a.stats().peer_errors == {"HandshakeError": 1})
            await eventually(lambda: any(isinstance(each, Hello) for _, got in b.heard for each in got))
            assert a.stats().packets_received == 0
            assert a._flow.closed is None  # b must say so itself, and name this very process

    asyncio.run(main())


def test_no_refusal_ends_a_node() -> None:
    async def main() -> None:
        async with facing() as (a, b):
            restarted = error_frame("restarted", RestartedError("a", "it restarted", "Stop"))
            gone = error_frame("gone", GoneError("a", "given up", "Stop"))
            for session in (0, 12345):
                b.send(restarted, peer_session=session)
                b.send(gone, peer_session=session)
            b.send(message(a))
            await take(a, 1)
            assert a.stats().links["b"].state == "disconnected"
            b.send(restarted, peer_session=a._node.identity.session)
            await asyncio.wait_for(a.broadcast(b"still here"), 10)
            assert (await take(a, 1))[0].payload == b"still here"

    asyncio.run(main())


def test_the_largest_datagram_and_a_flood_of_garbage() -> None:
    async def main() -> None:
        rng = random.Random(7)
        async with facing() as (a, b):
            b.send(frame(FrameType.DATA, bytes(MAX_BYTES - HEADER_BYTES - HEADER.size)))
            for _ in range(300):
                b.send_raw(rng.randbytes(rng.randrange(200)))
                b.send(rng.randbytes(rng.randrange(1, 200)))
                if rng.random() < 0.1:
                    await asyncio.sleep(0)
            await eventually(lambda: sum(a.stats().peer_errors.values()) > 100)
            assert len(a.events()) <= 1000
            refusals = sum(isinstance(each, Refusal) for _, got in b.heard for each in got)
            assert refusals < 50  # not one for each
            await eventually(lambda: _works(a, b))

    asyncio.run(main())


def _works(a: whence.Group, b: RawMember) -> bool:
    b.send(message(a))
    return a.stats().deliveries == 1


def test_acknowledgements_mean_nothing_here() -> None:
    async def main() -> None:
        async with facing() as (a, b):
            b.send(ack_frame(10**9) + message(a))
            await take(a, 1)
            assert a.stats().peer_errors == {}

    asyncio.run(main())


def test_random_bytes_give_packets_or_typed_errors() -> None:
    """The reader alone, on damaged good datagrams."""
    rng = random.Random(11)
    reader = FrameReader(DeadlinePacket, 10_000, datagrams=True)
    packet = broadcast_packet(DeadlineMessage(1, 1, 5, 9, (0, 0), (0, 0), b"payload"))
    good = data_frame(packet) + PING_FRAME + BYE_FRAME + data_frame(packet)
    assert reader.whole(good) == [packet, packet]
    refused = 0
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        del data[rng.randrange(len(data)) if rng.random() < 0.3 else len(data) :]
        try:
            packets = reader.whole(bytes(data))
        except FrameError:
            refused += 1
        else:
            assert all(isinstance(each, DeadlinePacket) for each in packets)
    assert refused > 5_000


def test_two_groups_on_one_network_do_not_mix() -> None:
    async def main() -> None:
        async with (
            live_group("a", "b", protocol="odca") as [a, b],
            live_group("a", "b", protocol="odca") as [other_a, other_b],
        ):
            await a.broadcast(b"here", deadline=20.0)
            await other_a.broadcast(b"there", deadline=20.0)
            assert [each.payload for each in await take(b, 1)] == [b"here"]
            assert [each.payload for each in await take(other_b, 1)] == [b"there"]

    asyncio.run(main())
