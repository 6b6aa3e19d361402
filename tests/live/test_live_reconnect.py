"""Links survive their connections: cut, stalled or replaced, they resume without loss or duplicate."""

from __future__ import annotations

import asyncio

import pytest

import whence
from live.raw_peer import RawPeer
from support.living import Mesh, eventually, live_group, loopback, quick_limits, take
from whence.protocols.baselines.fifo import FifoPacket
from whence.session.wire import ack_frame, data_frame


@pytest.mark.parametrize("relay", [False, True])
def test_cut_again_and_again_nothing_is_lost_or_doubled(relay: bool) -> None:
    names = ["a", "b", "c"]
    count = 300

    async def main() -> None:
        async with Mesh(names) as mesh, mesh.joined(relay=relay) as [a, b, c]:
            cutting = asyncio.create_task(mesh.cut_at_random(0.01, seed=3))

            async def talk(group: whence.Group) -> list[whence.Message]:
                got = []
                for number in range(count):
                    await group.broadcast(b"%d" % number)
                    await asyncio.sleep(0.001)
                while len(got) < count * len(names):
                    got += await take(group, 1, timeout_s=60)
                return got

            heard = await asyncio.gather(talk(a), talk(b), talk(c))
            cutting.cancel()
            for messages in heard:
                for name in names:
                    payloads = [m.payload for m in messages if m.origin == name]
                    assert payloads == [b"%d" % number for number in range(count)]
            assert mesh.cuts > 20
            assert sum(group.stats().reconnects for group in (a, b, c)) > 10
            for group in (a, b, c):
                assert sum(group.stats().discards.values()) == group.stats().packets_received - 2 * count

    asyncio.run(main())


def test_a_connection_that_is_silent_without_being_closed_is_found_out() -> None:
    async def main() -> None:
        limits = quick_limits(heartbeat_s=0.1, silence_s=0.5)
        async with Mesh(["alice", "bob"]) as mesh:
            [proxy] = mesh.proxies.values()
            async with mesh.joined(limits=limits) as [alice, bob]:
                await alice.wait_connected(10)
                await asyncio.sleep(0.8)  # idle, but heartbeats pass: nobody is suspected
                assert alice.stats().reconnects == bob.stats().reconnects == 0
                assert bob.stats().links["alice"].state == "connected"
                proxy.held.clear()
                await alice.broadcast(b"into the void")
                await eventually(lambda: any("nothing was heard" in event.detail for event in alice.events()))
                await eventually(lambda: any("nothing was heard" in event.detail for event in bob.events()))
                proxy.cut()
                proxy.held.set()
                assert (await take(bob, 1))[0].payload == b"into the void"
                assert bob.stats().deliveries == 1

    asyncio.run(main())


def test_a_newer_connection_replaces_the_older_and_resumes_where_the_peer_says() -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        options = {"protocol": "fifo", "relay": False, "limits": quick_limits(leave_timeout_s=0.2)}
        async with live_group("bob", peers=peers, connected=False, **options) as [bob]:
            first = RawPeer("aaron", peers, bob, session=4)
            await first.connect()
            for number in range(1, 11):
                await bob.broadcast(b"%d" % number)
            packets = await first.read(10)
            assert packets == [FifoPacket(1, number, b"%d" % number) for number in range(1, 11)]
            # Nothing was acknowledged. The same session again, which says that it has four.
            second = RawPeer("aaron", peers, bob, session=4)
            second.hello = type(second.hello)(**{**_fields(second), "received": 4})
            assert (await second.connect()).received == 0
            assert await first.closed()
            assert await second.read(6) == packets[4:]
            await second.send(ack_frame(10) + data_frame(FifoPacket(0, 1, b"up")))
            await eventually(lambda: bob.stats().links["aaron"].unacknowledged_messages == 0)
            third = RawPeer("aaron", peers, bob, session=4)
            third.hello = type(third.hello)(**{**_fields(third), "received": 10})
            assert (await third.connect()).received == 1
            assert bob.stats().links["aaron"].connections == 3
            await third.close()

    asyncio.run(main())


def _fields(peer: RawPeer) -> dict[str, object]:
    return {name: getattr(peer.hello, name) for name in peer.hello.__struct_fields__}


def test_a_peer_out_of_reach_for_too_long_is_retired_if_that_is_wished() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob", "carol"])
        limits = quick_limits(retire_after_s=0.5, heartbeat_s=0.1, silence_s=0.5, queue_messages=10)
        async with live_group("alice", "bob", peers=peers, connected=False, limits=limits) as [alice, bob]:
            async with asyncio.timeout(20):
                for _ in range(50):  # carol never comes: the queue for her would stop us
                    await alice.broadcast(b"x")
                    await alice.receive()
            assert len(await take(bob, 50)) == 50
            assert alice.stats().links["carol"].state == "retired"
            assert alice.stats().lost_frames >= 10
            assert any(event.kind == "retired" for event in alice.events())

    asyncio.run(main())
