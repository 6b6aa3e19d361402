"""A connection that is played again is refused, and a packet that comes twice is delivered once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import whence
from live.raw_peer import RawPeer
from support.keyring import client_context, keys_for
from support.living import Proxy, eventually, free_ports, live_group, loopback, quick_limits, send_raw, take
from whence.core.message import Packet
from whence.errors import PeerError, ReplayError
from whence.protocols.baselines.fifo import FifoPacket
from whence.protocols.baselines.vector import VectorPacket
from whence.session.links import LinkOut
from whence.session.wire import BYE_FRAME, FrameReader, Refusal, challenge_frame, data_frame, hello_frame

LIMITS = quick_limits(leave_timeout_s=0.3)


def replays_at(group: whence.Group) -> int:
    assert all(isinstance(event.error, ReplayError) for event in group.events() if event.error is not None), (
        group.events()
    )
    return group.stats().peer_errors.get("ReplayError", 0)


def refusal_in(answer: bytes) -> Refusal:
    """Behind the challenge that no recording answers."""
    reader = FrameReader(VectorPacket, 1 << 20)
    reader.greeting(answer)
    refusal = reader.greeting(b"")
    assert isinstance(refusal, Refusal)
    return refusal


async def recorded(bob: whence.Group, peers: dict[str, str], ending: bytes = b"") -> tuple[RawPeer, bytes]:
    """Aaron connects and says three things; answers all bytes that he sent, HELLO included."""
    aaron = RawPeer("aaron", peers, bob, session=9)
    await aaron.connect()
    await aaron.send(b"".join(data_frame(VectorPacket(0, n, (), b"%d" % n)) for n in (1, 2, 3)) + ending)
    assert [m.payload for m in await take(bob, 3)] == [b"1", b"2", b"3"]
    return aaron, aaron.said


@pytest.mark.parametrize("there", ["connected", "gone for a while"])
def test_a_recorded_connection_is_refused_in_its_own_session(there: str) -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group("bob", peers=peers, connected=False, limits=LIMITS) as [bob]:
            aaron, recording = await recorded(bob, peers)
            if there != "connected":
                await aaron.close()
                await eventually(lambda: bob.stats().links["aaron"].state != "connected")
            for count in (1, 2):
                refusal = refusal_in(await send_raw(peers["bob"], recording))
                assert refusal.code == "handshake"
                assert "it repeats another one" in str(bob.events()[-1].error)
                assert replays_at(bob) == count
            link = bob._node.links["aaron"]
            assert (link.incoming.received, link.connections) == (3, 1)  # nothing has moved
            if there != "connected":
                answer = await aaron.connect()
                assert answer.received == 3
            await aaron.send(data_frame(VectorPacket(0, 4, (), b"4")))
            assert [m.payload for m in await take(bob, 1)] == [b"4"]
            assert bob.stats().deliveries == 4
            assert bob.stats().discards == {}
            await aaron.close()

    asyncio.run(main())


def test_a_recording_of_another_day_is_refused_by_a_new_node() -> None:
    """Nobody knows aaron's session yet, nor does the recording know bob's: it is refused all the same."""

    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group("bob", peers=peers, connected=False, limits=LIMITS) as [bob]:
            aaron, recording = await recorded(bob, peers)
            await aaron.close()
        async with live_group("bob", peers=peers, connected=False, limits=LIMITS) as [bob]:
            assert refusal_in(await send_raw(peers["bob"], recording)).code == "handshake"
            assert replays_at(bob) == 1
            assert bob._node.links["aaron"].peer_session == 0
            aaron = RawPeer("aaron", peers, bob, session=10)
            await aaron.connect()
            await aaron.send(data_frame(VectorPacket(0, 1, (), b"today")))
            assert [m.payload for m in await take(bob, 1)] == [b"today"]
            await aaron.close()

    asyncio.run(main())


def test_an_old_session_does_not_give_up_a_member_that_is_away() -> None:
    """Of all that a stranger could say in plain text, a mere recording has no effect on who takes part."""

    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group("bob", peers=peers, connected=False, limits=LIMITS) as [bob]:
            _, recording = await recorded(bob, peers)
        async with live_group("bob", peers=peers, connected=False, limits=LIMITS) as [bob]:
            aaron = RawPeer("aaron", peers, bob, session=10)
            await aaron.connect()
            await aaron.close()
            await eventually(lambda: bob.stats().links["aaron"].state != "connected")
            await send_raw(peers["bob"], recording)  # session 9
            assert replays_at(bob) == 1
            assert bob._node.links["aaron"].alive
            await aaron.connect()
            await aaron.close()

    asyncio.run(main())


def test_a_recording_is_refused_by_a_durable_node_that_has_come_back(tmp_path: Path) -> None:
    """Its session and its links are those of the recording; only the connection is another."""

    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        options: dict[str, Any] = {"peers": peers, "protocol": "vector", "limits": LIMITS}
        options["store"] = tmp_path / "bob.db"
        async with whence.join("room", node="bob", **options) as bob:
            session = bob._node.identity.session
            aaron, recording = await recorded(bob, peers)
            await aaron.close()
        async with whence.join("room", node="bob", **options) as bob:
            assert bob._node.identity.session == session
            refusal_in(await send_raw(peers["bob"], recording))
            assert replays_at(bob) == 1
            assert bob._node.links["aaron"].incoming.received == 3
            assert (await aaron.connect()).received == 3
            await aaron.send(data_frame(VectorPacket(0, 4, (), b"4")))
            # Those read come again, as their reader was not done with them; the recording brings nothing.
            assert [m.payload for m in await take(bob, 4)] == [b"1", b"2", b"3", b"4"]
            await aaron.close()

    asyncio.run(main())


def test_a_recorded_good_bye_ends_nobody() -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group("bob", peers=peers, connected=False, limits=LIMITS) as [bob]:
            aaron, recording = await recorded(bob, peers)
            await send_raw(peers["bob"], recording + BYE_FRAME)
            assert replays_at(bob) == 1
            assert bob.stats().links["aaron"].state == "connected"
            await aaron.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "frames", ["HELLO alone", "a guess", "two HELLOs", "ANSWER first", "CHALLENGE first"]
)
def test_the_steps_of_the_handshake_cannot_be_skipped(frames: str) -> None:
    async def main() -> None:
        from whence.session.wire import answer_frame

        peers = loopback(["aaron", "bob"])
        patience_s = 0.3 if frames == "HELLO alone" else 10.0
        limits = quick_limits(leave_timeout_s=0.3, handshake_timeout_s=patience_s)
        async with live_group("bob", peers=peers, connected=False, limits=limits) as [bob]:
            hello = hello_frame(RawPeer("aaron", peers, bob, session=9).hello)
            data = data_frame(VectorPacket(0, 1, (), b"never"))
            said, kind = {
                "HELLO alone": (hello, "HandshakeError"),
                "a guess": (hello + answer_frame(1) + data, "ReplayError"),
                "two HELLOs": (hello + hello + data, "FrameError"),
                "ANSWER first": (answer_frame(1) + hello + data, "FrameError"),
                "CHALLENGE first": (challenge_frame(1) + hello + data, "FrameError"),
            }[frames]
            await send_raw(peers["bob"], said)
            assert bob.stats().peer_errors == {kind: 1}
            assert bob.stats().deliveries == 0
            assert bob._node.links["aaron"].peer_session == 0

    asyncio.run(main())


class Ear(Proxy):
    """A proxy that writes down what passes, one line per connection and direction."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.heard: list[tuple[bool, bytearray]] = []  # whether the dialler speaks, and what it says

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, outward: bool) -> None:
        line = bytearray()
        self.heard.append((outward, line))
        read = source.read

        async def overhear(size: int) -> bytes:
            data = await read(size)
            line.extend(data)
            return data

        source.read = overhear  # type: ignore[method-assign]  # it is this stream only
        await super()._pump(source, sink, outward)

    def lines(self, *, dialler: bool) -> list[bytes]:
        return [bytes(line) for speaks, line in self.heard if speaks is dialler]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_a_recorded_answer_is_refused_by_the_dialler() -> None:
    """Somebody listens at bob's address and plays what bob once said."""

    async def main() -> None:
        [front] = free_ports(1)
        peers = loopback(["alice", "bob"])
        ear = Ear(port_of(peers["bob"]))
        await ear.start(front)
        seen = {**peers, "bob": f"127.0.0.1:{front}"}
        async with (
            whence.join("room", node="alice", peers=seen, limits=LIMITS, protocol="vector") as alice,
            whence.join("room", node="bob", peers=peers, limits=LIMITS, protocol="vector") as bob,
        ):
            await alice.wait_connected(10)
            await bob.broadcast(b"recorded")
            assert (await take(alice, 1))[0].payload == b"recorded"
            recording = ear.lines(dialler=False)[-1]
            assert b"recorded" in recording
            await ear.stop()

            async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(recording)
                await reader.read()
                writer.close()

            server = await asyncio.start_server(play, "127.0.0.1", front)
            await eventually(lambda: alice.stats().peer_errors.get("ReplayError", 0) > 0)
            assert alice.stats().deliveries == 1
            assert alice.stats().links["bob"].state != "connected"
            server.close()

    asyncio.run(main())


def test_a_recorded_tls_connection_is_refused(tmp_path: Path) -> None:
    """All that a client sent, played again to the same server: it is sealed for another connection."""

    async def main() -> None:
        keys = keys_for(tmp_path / "keys", "aaron", "bob")
        peers = loopback(["aaron", "bob"])
        async with live_group("bob", peers=peers, connected=False, limits=LIMITS, keys=keys) as [bob]:
            ear = Ear(port_of(peers["bob"]))
            await ear.start()
            aaron = RawPeer("aaron", {**peers, "bob": f"127.0.0.1:{ear.port}"}, bob, session=9)
            aaron.context = client_context(keys, "aaron")
            await aaron.connect()
            await aaron.send(data_frame(VectorPacket(0, 1, (), b"once")))
            assert (await take(bob, 1))[0].payload == b"once"
            [recording] = ear.lines(dialler=True)
            assert len(recording) > 1000
            assert b"once" not in recording  # nobody on the way can read it
            for _ in range(2):
                await send_raw(peers["bob"], recording)
            await eventually(lambda: sum(bob.stats().peer_errors.values()) == 2)
            assert all(isinstance(event.error, PeerError) for event in bob.events() if event.error)
            assert bob.stats().links["aaron"].state == "connected"
            await aaron.send(data_frame(VectorPacket(0, 2, (), b"twice")))
            assert (await take(bob, 1))[0].payload == b"twice"
            assert (bob.stats().deliveries, bob.stats().discards) == (2, {})
            await aaron.close()
            await ear.stop()

    asyncio.run(main())


TWICE: dict[str, tuple[list[Packet], dict[str, Any]]] = {
    "vector": ([VectorPacket(0, n, (), b"%d" % n) for n in (1, 2)], {}),
    "fifo": ([FifoPacket(0, n, b"%d" % n) for n in (1, 2)], {}),
}


@pytest.mark.parametrize("protocol", TWICE)
def test_a_packet_that_comes_twice_is_delivered_once(protocol: str) -> None:
    """Inside a link the n-th frame is number n, whatever is in it: the core sees it, and discards it."""
    packets, options = TWICE[protocol]

    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group(
            "bob", peers=peers, connected=False, limits=LIMITS, protocol=protocol, **options
        ) as [bob]:
            aaron = RawPeer("aaron", peers, bob, session=9)
            await aaron.connect()
            for packet in [packets[0], packets[0], packets[1], packets[0], packets[1]]:
                await aaron.send(data_frame(packet))
            assert [m.payload for m in await take(bob, 2)] == [b"1", b"2"]
            await eventually(lambda: bob._node.links["aaron"].incoming.received == 5)
            assert bob.stats().deliveries == 2
            assert sum(bob.stats().discards.values()) == 3
            assert bob.unread == 0
            await aaron.close()

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["vcube", "barrier", "tdca", "odca"])
def test_every_frame_twice_is_delivered_once(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for protocols whose packets are harder to make by hand: nodes that say everything twice."""
    take_frames = LinkOut.take

    def twice(self: LinkOut, max_frames: int) -> bytes:
        self.pending = [frame for frame in self.pending for _ in range(2)]
        return take_frames(self, 2 * max_frames)

    async def main() -> None:
        options: dict[str, Any] = {"transport": "tcp"} if protocol in ("tdca", "odca") else {}
        if protocol in ("tdca", "odca", "barrier"):
            options["lifetime"] = 60
        async with live_group("alice", "bob", "carol", protocol=protocol, **options) as groups:
            monkeypatch.setattr(LinkOut, "take", twice)
            for number in range(20):
                await groups[0].broadcast(b"%d" % number)
            for group in groups:
                assert [m.payload for m in await take(group, 20)] == [b"%d" % n for n in range(20)]
            await eventually(
                lambda: all(
                    link.out.unacknowledged == 0 for group in groups for link in group._node.links.values()
                )
            )
            monkeypatch.setattr(LinkOut, "take", take_frames)
            for group in groups:
                assert group.unread == 0
                assert group.stats().deliveries == 20
            assert sum(group.stats().discards.get("duplicate", 0) for group in groups) > 0

    asyncio.run(main())


def test_a_recorded_connection_is_refused_where_there_is_no_list_of_members() -> None:
    """`prc` remembers no message once all links have echoed it: a replayed one would be delivered again."""

    async def main() -> None:
        ports = free_ports(2)
        options: dict[str, Any] = {"protocol": "prc", "limits": LIMITS}
        ear = Ear(ports[0])
        await ear.start()
        async with (
            whence.join("room", node="alice", listen=f"127.0.0.1:{ports[0]}", **options) as alice,
            whence.join(
                "room", node="bob", listen=f"127.0.0.1:{ports[1]}", contact=f"127.0.0.1:{ear.port}", **options
            ) as bob,
        ):
            await bob.broadcast(b"once")
            assert (await take(alice, 1))[0].payload == b"once"
            [recording] = ear.lines(dialler=True)
            assert b"once" in recording
            for count in (1, 2):
                refusal_in(await send_raw(f"127.0.0.1:{ports[0]}", recording))
                assert replays_at(alice) == count
            await bob.broadcast(b"still linked")
            assert (await take(alice, 1))[0].payload == b"still linked"
            assert alice.stats().deliveries == 2
        await ear.stop()

    asyncio.run(main())
