"""Queues are bounded: a slow reader slows its senders, and a hopeless peer is given up, never silently."""

from __future__ import annotations

import asyncio

import pytest

import whence
from support.living import Mesh, eventually, in_its_life, live_group, loopback, quick_limits, take
from whence.errors import PeerTooSlowError


async def produce(group: whence.Group, count: int, payload: bytes = b"x") -> None:
    for _ in range(count):
        await group.broadcast(payload)


async def drain(group: whence.Group) -> None:
    async for _ in group:
        pass


async def settled(group: whence.Group) -> int:
    """Wait until a producer has come to a halt; answers how many broadcasts it made."""
    before, same = -1, 0
    while same < 10:
        await asyncio.sleep(0.03)
        now = group.stats().broadcasts
        same = same + 1 if now == before else 0
        before = now
    return before


def test_a_slow_reader_slows_its_sender_and_both_queues_stay_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        limits = quick_limits(queue_messages=50, unread_messages=100, warn_after_s=0.2)
        async with live_group("alice", "bob", limits=limits) as [alice, bob]:
            draining = asyncio.create_task(drain(alice))
            producing = asyncio.create_task(produce(alice, 1000))
            sent = await settled(alice)
            # bob acknowledged up to his limit, then alice's queue filled up to hers.
            assert 100 <= sent <= 300
            assert alice.stats().links["bob"].unacknowledged_messages <= 50
            assert bob.stats().unread_messages == sent
            assert not producing.done()
            for _ in range(20):  # a little reading lets a little through
                await take(bob, 20)
                await asyncio.sleep(0.01)
                assert alice.stats().links["bob"].unacknowledged_messages <= 50
                assert bob.stats().unread_messages <= 300
            await take(bob, 600)
            await producing
            assert alice.stats().broadcasts == bob.stats().deliveries == 1000
            draining.cancel()

    with caplog.at_level("WARNING", logger="whence.live"):
        asyncio.run(main())
    warnings = [record.getMessage() for record in caplog.records]
    assert any("bob" in text and "Is it being read there" in text for text in warnings)


def test_who_never_reads_its_own_messages_is_stopped_too(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limits = quick_limits(queue_messages=50, unread_messages=100, warn_after_s=0.2)
        async with live_group("alice", "bob", limits=limits) as [alice, bob]:
            draining = asyncio.create_task(drain(bob))
            producing = asyncio.create_task(produce(alice, 1000))
            assert await settled(alice) == 100
            assert alice.stats().unread_messages == 100
            await take(alice, 1000)
            await producing
            await eventually(lambda: bob.stats().deliveries == 1000)
            draining.cancel()

    with caplog.at_level("WARNING", logger="whence.live"):
        asyncio.run(main())
    assert any("100 messages are unread here" in record.getMessage() for record in caplog.records)


def test_bytes_are_bounded_as_well_as_messages() -> None:
    async def main() -> None:
        limits = quick_limits(queue_bytes=100_000, unread_bytes=200_000, max_payload_bytes=10_000)
        async with live_group("alice", "bob", limits=limits) as [alice, bob]:
            draining = asyncio.create_task(drain(alice))
            producing = asyncio.create_task(produce(alice, 200, bytes(10_000)))
            sent = await settled(alice)
            assert 20 <= sent <= 60
            assert alice.stats().links["bob"].unacknowledged_bytes <= 120_000
            assert len(await take(bob, 200)) == 200
            await producing
            draining.cancel()

    asyncio.run(main())


def test_a_peer_that_is_away_holds_the_sender_at_the_soft_limit_and_then_gets_everything() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        limits = quick_limits(queue_messages=20)
        async with live_group("alice", peers=peers, connected=False, limits=limits) as [alice]:
            draining = asyncio.create_task(drain(alice))
            producing = asyncio.create_task(produce(alice, 100))
            await eventually(lambda: alice.stats().broadcasts == 20)  # nobody knows it from before
            assert await settled(alice) == 20
            async with live_group("bob", peers=peers, connected=False, limits=limits) as [bob]:
                numbers = [in_its_life(message.number) for message in await take(bob, 100)]
                assert numbers == list(range(1, 101))
                await producing
            draining.cancel()

    asyncio.run(main())


def test_a_peer_that_a_relay_cannot_reach_is_given_up_at_the_hard_limit() -> None:
    async def main() -> None:
        limits = quick_limits(queue_messages=20, hard_factor=8, heartbeat_s=5.0, silence_s=60.0)
        names = ["alice", "bob", "carol"]
        async with Mesh(names) as mesh, mesh.joined(limits=limits, relay=True) as [alice, bob, carol]:
            for group in (alice, bob, carol):
                await group.wait_connected(10)
            reading = [asyncio.create_task(drain(group)) for group in (alice, bob, carol)]
            mesh.proxies["bob", "carol"].held.clear()  # alice reaches both, bob cannot reach carol
            await asyncio.wait_for(produce(alice, 500), 30)
            await eventually(lambda: carol.stats().deliveries == 500)
            await eventually(lambda: bob.stats().links["carol"].state == "given up")
            assert bob.stats().peer_errors["PeerTooSlowError"] == 1
            [event] = [event for event in bob.events() if event.kind == "given up" and event.error]
            assert isinstance(event.error, PeerTooSlowError)
            assert bob.stats().lost_frames >= 160
            assert alice.stats().links["carol"].state == "connected"
            await alice.broadcast(b"on")  # the rest of the group goes on
            await eventually(lambda: bob.stats().deliveries == carol.stats().deliveries == 501)
            for task in reading:
                task.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("relay", [False, True])
def test_nodes_that_reply_to_everything_do_not_wait_for_each_other_for_ever(relay: bool) -> None:
    """Every reader answers every message, through queues that are far too small."""
    count = 200

    async def main() -> None:
        names = ["a", "b", "c", "d"]
        # The hard limit leaves room for the whole storm: without any bound on it nothing could help.
        limits = quick_limits(queue_messages=8, unread_messages=8, hard_factor=100)
        async with live_group(*names, limits=limits, relay=relay) as groups:

            async def answer(group: whence.Group) -> int:
                delivered, left = 0, count
                await group.broadcast(b"first")
                left -= 1
                async for _ in group:
                    delivered += 1
                    for _ in range(min(left, 2)):
                        await group.broadcast(b"reply")
                        left -= 1
                    if delivered == count * len(names):
                        break
                return delivered

            async with asyncio.timeout(60):
                assert await asyncio.gather(*map(answer, groups)) == [count * len(names)] * len(names)

    asyncio.run(main())


def test_who_is_given_up_comes_back_where_the_others_are() -> None:
    async def main() -> None:
        names = ["alice", "bob", "carol"]
        async with Mesh(names) as mesh, mesh.joined() as [alice, bob, carol]:
            for group in (alice, bob, carol):
                await group.wait_connected(10)
            mesh.proxies["alice", "bob"].held.clear()
            error = PeerTooSlowError("node 'alice'", "it is too slow", "Hurry")
            bob._node.peering.give_up(bob._node.links["alice"], error)
            mesh.proxies["alice", "bob"].cut()
            mesh.proxies["alice", "bob"].held.set()
            await eventually(lambda: any(event.kind == "returned" for event in bob.events()))
            for group in (alice, bob, carol):
                await group.wait_connected(10)
            for number in range(100):
                await alice.broadcast(b"%d" % number)
            await eventually(lambda: bob.stats().deliveries == carol.stats().deliveries == 100)

    asyncio.run(main())
