"""Leaving: everything sent is taken first, the others are told, and it takes a bounded time."""

from __future__ import annotations

import asyncio

import pytest

import whence
from live.raw_peer import RawPeer
from support.living import Mesh, eventually, live_group, loopback, quick_limits, take
from whence.session.wire import BYE_FRAME, Bye, ack_frame


def test_what_was_broadcast_before_leaving_is_delivered() -> None:
    async def main() -> None:
        async with live_group("alice", "bob", "carol") as [alice, bob, carol]:
            for number in range(2000):
                await alice.broadcast(b"%d" % number)
            await alice.leave()
            for group in (bob, carol):
                assert group.stats().links["alice"].state == "left"
                assert [m.payload for m in await take(group, 2000)] == [b"%d" % n for n in range(2000)]
            assert alice.stats().lost_frames == 0
            # Nobody waits for the one who left, however much is sent.
            for _ in range(6000):
                await bob.broadcast(b"x")
                await bob.receive()
                if bob.stats().broadcasts % 1000 == 0:
                    await take(carol, 1000)

    asyncio.run(main())


def test_a_relay_that_leaves_in_the_middle_of_traffic_does_not_wait_for_it_to_end() -> None:
    async def main() -> None:
        async with live_group("alice", "bob", "carol") as [alice, bob, carol]:
            stop = False

            async def talk(group: whence.Group) -> None:
                while not stop:
                    await group.broadcast(b"x")
                    await asyncio.sleep(0)

            async def read(group: whence.Group) -> None:
                async for _ in group:
                    pass

            tasks = [
                asyncio.create_task(talk(bob)),
                *(asyncio.create_task(read(g)) for g in (alice, bob, carol)),
            ]
            await asyncio.sleep(0.2)
            await asyncio.wait_for(alice.leave(), 15)
            stop = True
            await tasks[0]
            await eventually(lambda: carol.stats().deliveries == bob.stats().broadcasts)
            for task in tasks:
                task.cancel()

    asyncio.run(main())


def test_leaving_while_connections_are_cut_still_tells_everybody() -> None:
    async def main() -> None:
        names = ["a", "b", "c"]
        async with Mesh(names) as mesh, mesh.joined() as [a, b, c]:
            cutting = asyncio.create_task(mesh.cut_at_random(0.005, seed=1))
            for _ in range(300):
                await b.broadcast(b"x")
            await b.leave()
            cutting.cancel()
            for group in (a, c):
                assert len(await take(group, 300)) == 300
                assert group.stats().links["b"].state == "left"
            assert b.stats().lost_frames == 0

    asyncio.run(main())


def test_leaving_without_the_others_takes_a_bounded_time_and_says_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits(leave_timeout_s=0.3)
        async with whence.join("room", node="alice", peers=peers, limits=limits, protocol="vector") as alice:
            for _ in range(7):
                await alice.broadcast(b"to nobody")
            await asyncio.wait_for(alice.leave(), 10)
            assert alice.stats().lost_frames == 7
            assert [event.kind for event in alice.events()][-1] == "lost"

    with caplog.at_level("WARNING", logger="whence.live"):
        asyncio.run(main())
    assert any("7 messages for it were not acknowledged" in record.getMessage() for record in caplog.records)


def test_all_may_leave_at_once() -> None:
    async def main() -> None:
        async with live_group("a", "b", "c", "d") as groups:
            for group in groups:
                await group.broadcast(b"bye")
            async with asyncio.timeout(10):
                await asyncio.gather(*(group.leave() for group in groups))
            for group in groups:
                assert group.stats().deliveries == 4
                assert group.stats().lost_frames == 0

    asyncio.run(main())


def test_a_good_bye_whose_answer_was_lost_is_answered_again() -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group("bob", peers=peers, connected=False) as [bob]:
            aaron = RawPeer("aaron", peers, bob, session=3)
            await aaron.connect()
            await aaron.send(BYE_FRAME)
            assert await aaron.closed()
            assert aaron.control == [Bye()]
            aaron.control.clear()
            await aaron.connect()
            assert await aaron.closed()
            assert aaron.control == [Bye()]
            assert bob.stats().links["aaron"].state == "left"

    asyncio.run(main())


def test_who_left_comes_back_as_another_life() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        async with live_group("bob", peers=peers, connected=False) as [bob]:
            async with live_group("alice", peers=peers) as [alice]:
                await alice.broadcast(b"first life")
            await take(bob, 1)
            async with live_group("alice", peers=peers) as [again]:
                await eventually(lambda: again._host.lives_begun == 1)
                await again.broadcast(b"second life")
                [message] = await take(bob, 1)
                assert message.payload == b"second life"
                assert message.number > 1  # no id is used twice

    asyncio.run(main())


def test_leaving_waits_for_acknowledgements_and_not_only_for_the_socket() -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group("bob", peers=peers, connected=False) as [bob]:
            aaron = RawPeer("aaron", peers, bob, session=3)
            await aaron.connect()
            await bob.broadcast(b"take this")
            await aaron.read(1)  # it has arrived, but nobody has said so
            leaving = asyncio.create_task(bob.leave())
            await asyncio.sleep(0.2)
            assert not leaving.done()
            assert aaron.control == []  # no good-bye yet
            await aaron.send(ack_frame(1))
            await eventually(lambda: bob._node.peering.parting)
            await aaron.send(BYE_FRAME)
            await asyncio.wait_for(leaving, 10)
            assert bob.stats().lost_frames == 0
            await aaron.close()

    asyncio.run(main())
