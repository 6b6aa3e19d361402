"""Strangers and broken peers: each a typed error that is counted; the group goes on and loses nothing."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from live.raw_peer import RawPeer
from support.living import Mesh, eventually, live_group, loopback, quick_limits, send_raw, take
from whence.errors import FrameError, FrameTooLargeError, HandshakeError
from whence.protocols.baselines.vector import VectorPacket
from whence.session.wire import HEADER, data_frame

NOISE: dict[str, tuple[bytes, str]] = {
    "HTTP": (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "FrameError"),
    "zeros": (bytes(100), "FrameError"),
    "a huge length": (b"\xff\xff\xff\xff\x01", "FrameTooLargeError"),
    "a long HELLO": (HEADER.pack(300_000, 1) + bytes(1000), "FrameTooLargeError"),
    "an empty HELLO": (HEADER.pack(1, 1), "FrameError"),
    "data at once": (data_frame(VectorPacket(0, 1, (), b"x")), "FrameError"),
}


@pytest.mark.parametrize("what", NOISE)
def test_a_stranger_is_answered_with_an_error_and_counted(what: str) -> None:
    noise, kind = NOISE[what]

    async def main() -> None:
        peers = loopback(["alice", "bob"])
        async with live_group("alice", "bob", peers=peers) as [alice, bob]:
            for name in ("alice", "bob"):
                await send_raw(peers[name], noise)
            assert alice.stats().peer_errors == bob.stats().peer_errors == {kind: 1}
            assert type(bob.events()[-1].error).__name__ == kind
            await alice.broadcast(b"undisturbed")
            assert (await take(bob, 1))[0].payload == b"undisturbed"
            assert bob.stats().reconnects == 0

    asyncio.run(main())


def test_random_garbage_in_quantity_is_logged_once_per_kind(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        draw = random.Random(5)
        peers = loopback(["alice", "bob"])
        async with live_group("alice", "bob", peers=peers) as [alice, bob]:
            for number in range(60):
                await alice.broadcast(b"%d" % number)
                body = draw.randbytes(draw.randrange(1, 60))
                await send_raw(peers["bob"], HEADER.pack(len(body) + 1, 1) + body)
            assert [m.payload for m in await take(bob, 60)] == [b"%d" % n for n in range(60)]
            assert sum(bob.stats().peer_errors.values()) == 60
            assert bob.stats().links["alice"].state == "connected"

    with caplog.at_level("WARNING", logger="whence.live"):
        asyncio.run(main())
    assert 1 <= len(caplog.records) < 30  # msgspec's reasons differ a little; the flood is not repeated
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records)


def test_a_connection_that_says_nothing_or_dribbles_is_closed_in_time() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits(handshake_timeout_s=1.0)
        async with live_group("alice", "bob", peers=peers, limits=limits) as [alice, bob]:
            host, _, port = peers["bob"].rpartition(":")

            async def dribble() -> bytes:
                reader, writer = await asyncio.open_connection(host, int(port))

                async def write() -> None:
                    for byte in HEADER.pack(1000, 1) + bytes(900):  # never silent, and never done
                        writer.write(bytes([byte]))
                        await asyncio.sleep(0.02)

                writing = asyncio.create_task(write())
                try:
                    return await asyncio.wait_for(reader.read(), 10)
                except ConnectionResetError:
                    return b""  # it was still writing when bob closed, so TCP may drop bob's last words
                finally:
                    writing.cancel()
                    writer.transport.abort()

            *_, silent = await asyncio.gather(dribble(), dribble(), send_raw(peers["bob"], b""))
            assert b"refused" in silent
            assert bob.stats().peer_errors == {"HandshakeError": 3}
            assert isinstance(bob.events()[-1].error, HandshakeError)
            await alice.broadcast(b"meanwhile")
            assert (await take(bob, 1))[0].payload == b"meanwhile"

    asyncio.run(main())


def test_many_silent_connections_are_bounded() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        async with live_group("alice", "bob", peers=peers, limits=quick_limits(handshake_timeout_s=60.0)) as [
            alice,
            bob,
        ]:
            host, _, port = peers["bob"].rpartition(":")
            crowd = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
            await eventually(
                lambda: sum("too many connections" in event.detail for event in bob.events()) >= 20
            )
            assert len(bob._node.peering.strangers) <= 260
            await alice.broadcast(b"through the crowd")
            assert (await take(bob, 1))[0].payload == b"through the crowd"
            for _, writer in crowd:
                writer.transport.abort()
            await eventually(lambda: not bob._node.peering.strangers)

    asyncio.run(main())


BROKEN: dict[str, tuple[bytes, type[Exception]]] = {
    "garbage": (b"\xde\xad\xbe\xef" * 10, FrameTooLargeError),
    "oversized": (HEADER.pack(1 << 30, 2), FrameTooLargeError),
    "unknown type": (HEADER.pack(2, 77) + b"x", FrameError),
    "not a packet": (HEADER.pack(3, 2) + b"\x91\x01", FrameError),
    "an impossible ACK": (HEADER.pack(2, 3) + b"\x7f", FrameError),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_peer_loses_its_connection_but_nothing_that_was_accepted(what: str) -> None:
    broken, kind = BROKEN[what]

    async def main() -> None:
        peers = loopback(["aaron", "bob", "carol"])
        limits = quick_limits(leave_timeout_s=0.3)
        async with live_group("bob", "carol", peers=peers, connected=False, limits=limits) as [bob, carol]:
            aaron = RawPeer("aaron", peers, bob, session=9)
            await aaron.connect()
            await aaron.send(data_frame(VectorPacket(0, 1, (), b"good")) + broken)
            assert await aaron.closed()
            assert kind in [type(event.error) for event in bob.events()]
            assert (await take(bob, 1))[0] == ("aaron", 1, b"good")  # what came before the fault counts
            # It comes back, is told that 1 frame was received, and goes on from there.
            assert (await aaron.connect()).received == 1
            await aaron.send(data_frame(VectorPacket(0, 2, (), b"better")))
            assert (await take(bob, 1))[0] == ("aaron", 2, b"better")
            await bob.broadcast(b"and we go on")
            assert [m.payload for m in await take(carol, 3)] == [b"good", b"better", b"and we go on"]
            await aaron.close()

    asyncio.run(main())


def test_a_peer_that_repeats_its_fault_is_refused_for_a_while() -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        limits = quick_limits(leave_timeout_s=0.2, backoff_first_s=0.2, backoff_max_s=1.0)
        async with live_group("bob", peers=peers, connected=False, limits=limits) as [bob]:
            aaron = RawPeer("aaron", peers, bob, session=9)
            for _ in range(2):
                await aaron.connect()
                await aaron.send(HEADER.pack(2, 77) + b"x")
                assert await aaron.closed()
            refusal = await aaron.refused()
            assert refusal.code == "later"
            await eventually(
                lambda: asyncio.get_running_loop().time() > bob._node.links["aaron"].refuse_until_s
            )
            await aaron.connect()  # the time is over
            await aaron.send(data_frame(VectorPacket(0, 1, (), b"mended")))
            assert (await take(bob, 1))[0].payload == b"mended"
            await aaron.close()

    asyncio.run(main())


def test_what_is_damaged_on_its_way_is_sent_again() -> None:
    async def main() -> None:
        async with Mesh(["alice", "bob"]) as mesh:
            [proxy] = mesh.proxies.values()
            async with mesh.joined() as [alice, bob]:
                await alice.wait_connected(10)

                def ruin(data: bytes) -> bytes:
                    proxy.damage = None
                    return b"\xff" * len(data)

                for number in range(5):
                    proxy.damage = ruin
                    await alice.broadcast(b"a%d" % number)
                    assert (await take(bob, 1))[0].payload == b"a%d" % number
                    await bob.broadcast(b"b%d" % number)
                    await take(bob, 1)
                got = [message.payload for message in await take(alice, 10)]
                for who in b"ab":
                    assert [each for each in got if each[0] == who] == [b"%c%d" % (who, n) for n in range(5)]
                assert bob.stats().deliveries == 10
                errors: dict[str, Any] = dict(bob.stats().peer_errors)
                for kind, count in alice.stats().peer_errors.items():
                    errors[kind] = errors.get(kind, 0) + count
                assert errors.get("FrameTooLargeError", 0) >= 4

    asyncio.run(main())


def test_a_packet_that_is_well_formed_but_wrong_is_a_counted_discard() -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group(
            "bob", peers=peers, connected=False, limits=quick_limits(leave_timeout_s=0.2)
        ) as [bob]:
            aaron = RawPeer("aaron", peers, bob, session=9)
            await aaron.connect()
            wrong = [
                VectorPacket(7, 1, (), b"unknown origin"),
                VectorPacket(1, 5, (), b"forged"),
                VectorPacket(0, 0, (), b"malformed"),
                VectorPacket(0, 1, (1, 4), b"impossible"),
                VectorPacket(0, 2_000_000, (), b"far"),
            ]
            await aaron.send(b"".join(map(data_frame, wrong)) + data_frame(VectorPacket(0, 1, (), b"right")))
            assert (await take(bob, 1))[0].payload == b"right"
            assert sum(bob.stats().discards.values()) == 5
            assert len(bob.stats().discards) == 5
            assert bob.stats().peer_errors == {}
            await aaron.close()

    asyncio.run(main())


async def _flood(host: str, port: int, per_s: int, until: asyncio.Event) -> int:
    """Open connections that say nothing, and keep them, as fast as asked."""
    crowd = []
    while not until.is_set():
        crowd += [await asyncio.open_connection(host, port) for _ in range(per_s // 20)]
        await asyncio.sleep(0.05)
    for _, writer in crowd:
        writer.transport.abort()
    return len(crowd)


def test_w8_a_member_gets_in_while_hundreds_of_connections_a_second_say_nothing() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits()
        async with live_group("bob", peers=peers, connected=False, limits=limits):
            host, _, port = peers["bob"].rpartition(":")
            over = asyncio.Event()
            flood = asyncio.create_task(_flood(host, int(port), 500, over))
            await asyncio.sleep(1.0)
            async with live_group("alice", peers=peers, limits=limits):  # she gets in, and the flood goes on
                over.set()
                assert await flood > 100

    asyncio.run(main())
