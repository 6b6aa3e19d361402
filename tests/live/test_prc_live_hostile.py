"""Live PRC against wrong use and bad peers: typed errors, counted faults, and the group goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import whence
from support.living import eventually, free_ports, take
from whence.core.message import Packet
from whence.errors import ParameterError, PeerError
from whence.protocols.prc.wire import ABORT, ALPHA, BUFFER, JOIN, PrcPacket, direct, message_packet, routed
from whence.session.overlay_wire import OVERLAY, Give, More, OpeningLinks, Ready, Word, overlay_packet
from whence.session.wire import (
    VERSION,
    Answer,
    Bye,
    Challenge,
    FrameReader,
    Hello,
    Refusal,
    answer_frame,
    data_frame,
    hello_frame,
)

LIMITS = whence.Limits(
    connect_timeout_s=1.0, handshake_timeout_s=1.0, backoff_first_s=0.02, leave_timeout_s=2.0
)


def joining(name: str, port: int, contact: int | None, **options: Any) -> Any:
    return whence.join(
        "room",
        node=name,
        listen=f"127.0.0.1:{port}",
        contact=None if contact is None else f"127.0.0.1:{contact}",
        protocol="prc",
        **{"limits": LIMITS, "shuffle_s": 0.2, **options},
    )


@asynccontextmanager
async def pair(**options: Any) -> AsyncIterator[tuple[whence.Group, whence.Group, int]]:
    """Two honest processes, and the port of the first."""
    one, other = free_ports(2)
    async with joining("alice", one, None, **options) as alice, joining("bob", other, one, **options) as bob:
        yield alice, bob, one


class Stranger:
    """A process made by hand."""

    def __init__(self, group: whence.Group, port: int, /, **changes: Any) -> None:
        node: Any = group._node
        self.port = port
        self.node = node
        hello = Hello(
            magic="whence", version=VERSION, group="room", protocol="prc",
            parameters=dict(node.identity.parameters), members=[], max_payload_bytes=1024 * 1024,
            node="mallory", to="mallory", session=7, peer_session=0, received=0,
        )  # fmt: skip
        self.hello = msgspec.structs.replace(hello, **changes)
        self.control: list[Any] = []
        self.packets: list[Packet] = []

    async def connect(self) -> Hello | Refusal:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(hello_frame(self.hello))
        self.frames = FrameReader(PrcPacket, 1 << 24)
        answer = None
        async with asyncio.timeout(10):
            while answer is None:
                data = await self.reader.read(65536)
                assert data
                answer = self.frames.greeting(data)
                if isinstance(answer, Challenge):
                    self.writer.write(answer_frame(answer.nonce))
                    answer = self.frames.greeting(b"")
        assert not isinstance(answer, Challenge | Answer)
        return answer

    def say(self, *packets: Packet) -> None:
        for packet in packets:
            self.writer.write(data_frame(packet))

    def word(self, word: Word) -> None:
        self.say(overlay_packet("mallory", word))

    async def ending(self) -> Refusal:
        """Read until the other side closes; its last word."""
        async with asyncio.timeout(10):
            while data := await self.reader.read(65536):
                self.packets += self.frames.feed(data)
        self.control = self.frames.control
        self.writer.close()
        refusals = [each for each in self.control if isinstance(each, Refusal)]
        assert refusals
        return refusals[-1]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"peers": {"alice": "127.0.0.1:7001"}}, "peers"),
        ({"listen": None}, "listen"),
        ({"listen": "nowhere"}, "listen"),
        ({"contact": "127.0.0.1:0"}, "contact"),
        ({"shuffle_s": 0}, "shuffle_s"),
        ({"shuffle_s": True}, "shuffle_s"),
        ({"links": "static"}, "links"),
        ({"transport": "udp"}, "transport"),
        ({"node": "a\0b"}, "node"),
        ({"sorrow": 1}, "parameter 'sorrow'"),
        ({"timeout_us": 0}, "timeout_us"),
        ({"protocol": "vector", "peers": {"alice": "127.0.0.1:7001"}}, "contact"),
    ],
)
def test_wrong_use_is_refused_at_once(options: dict[str, Any], what: str) -> None:
    given = {"node": "alice", "listen": "127.0.0.1:7001", "contact": "127.0.0.1:7002", "protocol": "prc"}
    with pytest.raises(ParameterError) as caught:
        whence.join("room", **{**given, **options})
    assert what in caught.value.what


def test_a_contact_that_is_not_there_is_a_typed_error() -> None:
    async def main() -> None:
        one, other = free_ports(2)
        with pytest.raises(PeerError, match="has not taken this process in"):
            await joining("alice", one, other).__aenter__()
        async with joining("alice", one, None) as alice:  # and the address is free again
            assert alice.members == ("alice",)

    asyncio.run(main())


def test_a_name_that_is_taken_and_another_group_are_refused() -> None:
    async def main() -> None:
        async with pair() as (alice, _, port):
            [free] = free_ports(1)
            with pytest.raises(PeerError, match="this connection is refused"):
                await joining("alice", free, port).__aenter__()
            assert "under this name" in alice.events()[-1].detail  # a stranger is not told why, its owner is
            for changes, why in (
                ({"group": "other"}, "the group"),
                ({"protocol": "vector"}, "the protocol"),
                ({"members": ["mallory"]}, "list of members"),
                ({"to": "carol"}, "this is 'alice'"),
                ({"session": 0}, "no correct process"),
                ({"received": 3}, "no correct process"),
                ({"node": "a\0b", "to": "a\0b"}, "no correct process"),
            ):
                answer = await Stranger(alice, port, **changes).connect()
                assert isinstance(answer, Refusal)
                assert answer.reason == "this connection is refused"
                assert why in alice.events()[-1].detail
            assert alice.stats().peer_errors["HandshakeError"] == 8

    asyncio.run(main())


def nonsense(payload: bytes, **changes: Any) -> PrcPacket:
    return PrcPacket(OVERLAY, "mallory", 1, payload, (), ())._replace(**changes)


BAD = {
    "garbage": [nonsense(b"\xc1")],
    "an unknown word": [nonsense(msgspec.msgpack.encode([99]))],
    "another speaker": [overlay_packet("bob", Ready("127.0.0.1:1"))],
    "fields too many": [nonsense(msgspec.msgpack.encode([4]), route=("a", "b", "c"))],
    "no address": [overlay_packet("mallory", Ready("nowhere"))],
    "an arc without a port": [overlay_packet("mallory", Give(0, [("carol", "127.0.0.1")]))],
    "too many arcs": [overlay_packet("mallory", Give(0, [("carol", "127.0.0.1:1")] * 300))],
    "a nameless arc": [overlay_packet("mallory", Give(0, [("", "127.0.0.1:1")]))],
    "a reason that there is not": [overlay_packet("mallory", Give(4, []))],
    "a joiner without an address": [direct(JOIN, "mallory", 1)],
}


@pytest.mark.parametrize("name", BAD)
def test_what_no_process_says_ends_the_link_and_nothing_else(name: str) -> None:
    async def main() -> None:
        async with pair() as (alice, bob, port):
            mallory = Stranger(alice, port)
            assert isinstance(await mallory.connect(), Hello)
            mallory.say(*BAD[name])
            assert (await mallory.ending()).code == "frame"
            await eventually(lambda: "mallory" not in alice.members)
            assert alice.stats().peer_errors == {"FrameError": 1}
            await alice.broadcast(b"on")
            assert (await take(bob, 1))[0].payload == b"on"

    asyncio.run(main())


def test_control_that_makes_no_sense_is_discarded_and_the_group_goes_on() -> None:
    async def main() -> None:
        async with pair() as (alice, bob, port):
            mallory = Stranger(alice, port)
            assert isinstance(await mallory.connect(), Hello)
            mallory.word(Ready("127.0.0.1:1"))
            mallory.word(OpeningLinks(["alice", "bob"]))  # of a Give that never was
            mallory.word(More([]))  # over a link that is not safe
            mallory.word(Give(0, [("alice", "127.0.0.1:1"), ("ghost", "127.0.0.1:1")]))
            mallory.word(Give(3, [("alice", "127.0.0.1:1")]))  # it leaves, and alice is to name herself
            mallory.word(Give(3, [("nobody", "127.0.0.1:1")]))
            mallory.word(Give(3, []))
            mallory.say(
                message_packet(whence.Message("bob", 1, b"forged")),
                routed(ALPHA, "mallory", 1, ("mallory", "bob", "alice")),
                direct(77, "mallory", 1),
            )
            await eventually(lambda: sum(alice.stats().discards.values()) >= 3)
            await bob.broadcast(b"true")
            assert (await take(alice, 1))[0].payload == b"true"
            assert not alice.stats().peer_errors
            mallory.say(direct(BUFFER, "mallory", 1))  # nobody opens a link from there: it is closed
            async with asyncio.timeout(10):
                while await mallory.reader.read(65536):
                    pass
            mallory.writer.close()
            await eventually(lambda: "mallory" not in alice.members)
            assert not alice.stats().control_entries

    asyncio.run(main())


def test_a_process_that_has_lost_all_its_links_comes_back_and_one_that_was_left_goes_on() -> None:
    async def main() -> None:
        one, other, third = free_ports(3)
        async with joining("alice", one, None) as alice:
            async with joining("bob", other, one) as bob:
                await bob.broadcast(b"hello")
                assert (await take(alice, 1))[0].payload == b"hello"
            await eventually(lambda: alice.members == ("alice",))
            await alice.broadcast(b"alone")
            assert (await take(alice, 1))[0].payload == b"alone"
            carol = await joining("carol", third, one).__aenter__()
            await alice.broadcast(b"again")
            assert (await take(carol, 1))[0].payload == b"again"
            assert (await take(alice, 1))[0].payload == b"again"
            node: Any = carol._node
            node.links["alice"].channel.abort()  # as if the wire was cut: neither end says good-bye
            node.peering.disconnected(node.links["alice"])
            await eventually(lambda: alice.stats().rejoins + carol.stats().rejoins > 0)
            await eventually(lambda: alice.members == carol.members == ("alice", "carol"))
            await carol.broadcast(b"here")
            assert (await take(alice, 1))[0].payload == b"here"
            await carol.leave()

    asyncio.run(main())


def test_a_process_that_gives_its_attempt_up_and_falls_silent_is_forgotten() -> None:
    """Its connection stays up, so only the target's own time-out can end the tombstone."""

    async def main() -> None:
        async with pair(timeout_us=300_000, shuffle_s=60.0) as (alice, _, port):
            mallory = Stranger(alice, port)
            assert isinstance(await mallory.connect(), Hello)
            mallory.word(Ready("127.0.0.1:1"))
            mallory.say(direct(ABORT, "mallory", 5))
            await eventually(lambda: alice.stats().control_entries == 1)
            async with asyncio.timeout(20):
                while await mallory.reader.read(65536):  # until alice hangs up
                    pass
            mallory.writer.close()
            await eventually(lambda: "mallory" not in alice.members)
            assert alice.stats().control_entries == 0

    asyncio.run(main())


def test_a_call_that_is_answered_after_leaving_makes_no_link() -> None:
    async def main() -> None:
        called, answered = asyncio.Event(), asyncio.Event()
        problems: list[dict[str, Any]] = []
        said: list[bytes] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        patient = msgspec.structs.replace(LIMITS, handshake_timeout_s=20.0)
        async with pair(shuffle_s=60.0, limits=patient) as (alice, _, port):
            late = Stranger(alice, port, node="late", to="alice")

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                asked = FrameReader(PrcPacket, 1 << 20).greeting(await reader.read(65536))
                assert isinstance(asked, Hello)
                called.set()
                await eventually(lambda: late.node.peering.parting)
                writer.write(hello_frame(msgspec.structs.replace(late.hello, nonce=asked.nonce)))
                said.append(await reader.read())  # until it hangs up
                writer.close()
                answered.set()

            [where] = free_ports(1)
            server = await asyncio.start_server(answer, "127.0.0.1", where)
            mallory = Stranger(alice, port)
            assert isinstance(await mallory.connect(), Hello)
            mallory.word(Ready("127.0.0.1:1"))
            mallory.word(Give(2, [("late", f"127.0.0.1:{where}")]))
            async with asyncio.timeout(10):
                await called.wait()
            leaving = asyncio.create_task(alice.leave())
            async with asyncio.timeout(20):
                await answered.wait()
                await leaving
            assert b"gone" in said[0]
            mallory.writer.close()
            server.close()
        assert problems == []

    asyncio.run(main())


def test_bye_ends_a_link_at_once() -> None:
    async def main() -> None:
        async with pair() as (alice, _, port):
            mallory = Stranger(alice, port)
            assert isinstance(await mallory.connect(), Hello)
            mallory.writer.write(b"\x00\x00\x00\x01\x05")
            async with asyncio.timeout(10):
                while data := await mallory.reader.read(65536):
                    mallory.packets += mallory.frames.feed(data)
            assert any(isinstance(each, Bye) for each in mallory.frames.control)
            mallory.writer.close()
            await eventually(lambda: "mallory" not in alice.members)

    asyncio.run(main())
