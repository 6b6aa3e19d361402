"""Groups that remember, live: no list of members, history, restarts, slow and absent peers, news."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from support.keyring import keys_for
from support.living import Proxy, eventually, free_ports, in_a_loop, live_group, loopback, quick_limits, take
from whence.core.effects import Missed
from whence.core.lives import Joined, Left, Suspected
from whence.errors import KeysRequiredError, MisuseError, NotCopiedError, ParameterError, PeerError
from whence.session import acquaintances


def at(port: int) -> str:
    return f"127.0.0.1:{port}"


def node(name: str, port: int | None = None, *contacts: int, **options: Any) -> Any:
    """A node that listens at a port, and dials some."""
    options = {"limits": quick_limits(), **options}
    listen = None if port is None else at(port)
    return whence.join("room", node=name, listen=listen, contact=[at(each) for each in contacts], **options)


async def outcomes(group: whence.Group, messages: int, timeout_s: float = 20.0) -> list[Any]:
    """All outcomes up to the n-th message."""
    found: list[Any] = []
    async with asyncio.timeout(timeout_s):
        async for outcome in group.outcomes():
            found.append(outcome)
            if sum(isinstance(each, whence.Message) for each in found) == messages:
                break
    return found


def payloads(found: list[Any]) -> list[bytes]:
    return [each.payload for each in found if isinstance(each, whence.Message)]


@in_a_loop
async def test_a_mesh_grows_from_one_contact_and_everyone_gets_the_whole_history() -> None:
    ports = free_ports(5)
    async with AsyncExitStack() as stack:
        ann = await stack.enter_async_context(node("ann", ports[0]))
        for number in range(10):
            await ann.broadcast(b"early %d" % number)
        others = [await stack.enter_async_context(node(f"n{port}", port, ports[0])) for port in ports[1:]]
        for each in others:
            await each.wait_connected(20)
        ids = [await each.broadcast(b"from %s" % each.node.encode()) for each in others]
        groups = [ann, *others]
        for group in groups:
            found = await take(group, 14)
            assert [each.payload for each in found if each.origin == "ann"] == [
                b"early %d" % number for number in range(10)
            ]
            assert {each.id for each in found if each.origin != "ann"} == set(ids)
            assert [each.mine for each in found] == [each.origin == group.node for each in found]
            assert {(each.origin, each.life) for each in found} == {  # type: ignore[attr-defined]
                (other.node, other.stats().log.life)
                for other in groups  # type: ignore[union-attr]
            }
        # Addresses were told: everyone is linked to everyone, and then no message comes twice.
        await eventually(lambda: all(len(group.stats().links) == 4 for group in groups))
        assert all(group.members == tuple(sorted(each.node for each in groups)) for group in groups)
        await eventually(
            lambda: all(len(list(group._node.host.log.exchange.synced())) == 4 for group in groups)  # type: ignore[attr-defined]
        )
        await asyncio.sleep(0.5)

        def duplicates() -> int:
            return sum(group.stats().discards.get("duplicate", 0) for group in groups)

        before = duplicates()
        for group in groups:
            await group.broadcast(b"again")
        for group in groups:
            await take(group, 5)
        await asyncio.sleep(0.2)
        assert duplicates() == before
        assert all(group.explain() == [] for group in groups)


@in_a_loop
async def test_a_group_too_large_for_a_mesh_is_connected_without_all_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for a link to each, which nobody makes there."""
    monkeypatch.setattr(acquaintances, "MESH_MAX", 16)
    async with live_group(*(f"n{number:02}" for number in range(22)), protocol="log") as groups:
        assert any(len(group._node.links) < len(groups) - 1 for group in groups)
        await groups[0].broadcast(b"to all")
        for group in groups:
            assert (await group.receive()).payload == b"to all"


@in_a_loop
async def test_peers_are_contacts_and_the_default_protocol_is_log() -> None:
    peers = loopback(["a", "b", "c"])
    joins = [whence.join("room", node=name, peers=peers, limits=quick_limits()) for name in peers]
    async with joins[0] as a, joins[1] as b:
        await a.broadcast(b"c is not even there")  # and no one waits for it
        assert payloads(await take(b, 1)) == [b"c is not even there"]
        with pytest.raises(PeerError, match="c at 127"):
            await b.wait_connected(0.2)
        async with joins[2] as c:
            await c.wait_connected(20)
            assert payloads(await take(c, 1)) == [b"c is not even there"]


@in_a_loop
async def test_history_new_begins_now_and_says_what_was_before() -> None:
    ports = free_ports(2)
    async with node("a", ports[0]) as a:
        for number in range(5):
            await a.broadcast(b"%d" % number)
        async with node("b", ports[1], ports[0], history="new") as b:
            await b.wait_connected(20)
            await eventually(lambda: b.stats().log is not None and b.stats().log.missed == 5)
            await a.broadcast(b"now")
            found = await outcomes(b, 1)
            assert payloads(found) == [b"now"]
            [missed] = [each for each in found if isinstance(each, Missed)]
            assert (missed.first, missed.last, missed.reason) == (1, 5, "before joining")
            assert (missed.origin, missed.life) == ("a", found[-1].life)


@in_a_loop
async def test_a_snapshot_is_a_state_and_a_cut() -> None:
    ports = free_ports(2)
    async with node("a", ports[0]) as a:
        state = []
        for number in range(20):
            await a.broadcast(b"%d" % number)
        for message in await take(a, 12):
            state.append(message.payload)
        cut = a.cut()
        async with node("b", ports[1], ports[0], history=cut) as b:
            found = await outcomes(b, 8)
            assert [each.last for each in found if isinstance(each, Missed)] == [12]
            assert state + payloads(found) == [b"%d" % number for number in range(20)]
    with pytest.raises(ParameterError, match="no cut"):
        async with node("c", ports[1], ports[0], history=b"anything"):
            pass


@in_a_loop
async def test_what_was_cut_off_is_told_and_never_silent() -> None:
    ports = free_ports(2)
    async with node("a", ports[0], keep=20_000) as a:
        for number in range(1000):
            await a.broadcast(b"%03d" % number)
            await a.receive()
        async with node("b", ports[1], ports[0]) as b:
            found: list[Any] = []
            async with asyncio.timeout(30):
                async for outcome in b.outcomes():
                    found.append(outcome)
                    if isinstance(outcome, whence.Message) and outcome.number == 1000:
                        break
            [missed] = [each for each in found if isinstance(each, Missed)]
            assert (missed.first, missed.reason) == (1, "truncated")
            assert 500 < missed.last < 1000
            numbers = [each.number for each in found if isinstance(each, whence.Message)]
            assert numbers == list(range(missed.last + 1, 1001))


@in_a_loop
async def test_a_stopped_peer_and_a_peer_that_never_reads_block_no_one() -> None:
    ports = free_ports(3)
    proxy = Proxy(ports[1])
    await proxy.start()
    slow = {"limits": quick_limits(unread_messages=64), "window": 256}
    async with (
        node("a", ports[0], window=256) as a,
        node("b", ports[1], **slow) as b,
        node("c", ports[2], ports[0], proxy.port, window=256) as c,
    ):
        await c.wait_connected(20)
        proxy.held.clear()  # b hears nothing any more, and no one is told
        async with asyncio.timeout(20):
            for number in range(3000):
                await c.broadcast(b"%d" % number)
                if number % 100 == 0:
                    await asyncio.sleep(0)
        assert len(await take(a, 3000)) == 3000
        assert len(await take(c, 3000)) == 3000
        proxy.held.set()
        # b reads nothing: it takes some, and withholds the credit for the rest.
        await eventually(lambda: b.unread >= 64)
        await asyncio.sleep(0.3)
        assert b.unread < 3000
        await c.broadcast(b"last")
        assert (await take(a, 1))[0].payload == b"last"
        assert [each.payload for each in await take(b, 3001)][-1] == b"last"
    await proxy.stop()


@in_a_loop
async def test_links_that_break_lose_nothing() -> None:
    ports = free_ports(2)
    proxy = Proxy(ports[0])
    await proxy.start()
    async with node("a", ports[0]) as a, node("b", None, proxy.port) as b:
        await b.wait_connected(20)

        async def speak(group: whence.Group) -> None:
            for number in range(400):
                await group.broadcast(b"%s%d" % (group.node.encode(), number))
                if number % 40 == 0:
                    await asyncio.sleep(0.05)  # time for a link to come up again
                    proxy.cut()
                await asyncio.sleep(0)

        await asyncio.gather(speak(a), speak(b))
        for group in (a, b):
            found = await take(group, 800, 60)
            for name in ("a", "b"):
                assert [each.number for each in found if each.origin == name] == list(range(1, 401))
        assert b.stats().links["a"].connections == 1  # a link is one connection: each is a new link
        assert proxy.cuts > 4
    await proxy.stop()


@in_a_loop
async def test_news_of_those_who_come_leave_and_vanish() -> None:
    ports = free_ports(3)
    async with node("a", ports[0], suspect_us=400_000) as a:
        async with node("b", ports[1], ports[0]) as b:
            await b.wait_connected(20)
            await b.broadcast(b"x")
            found = await outcomes(a, 1)
            assert Joined("b") in found
        lost = node("c", ports[2], ports[0])
        c = await lost.__aenter__()
        await c.wait_connected(20)
        await c.broadcast(b"y")
        found = await outcomes(a, 1)
        assert Left("b") in found
        assert Joined("c") in found
        assert a.members == ("a", "c")
        c._node.transport.close()  # as a crash would: no word to anyone
        for link in c._node.links.values():
            assert link.channel is not None
            link.channel.abort()
        for task in list(c._node._tasks):
            task.cancel()
        await eventually(lambda: a.members == ("a",))
        await a.broadcast(b"z")
        assert Suspected("c") in await outcomes(a, 1)
        assert {"joined", "left", "suspected"} <= {event.kind for event in a.events()}
        await c._node._shut()


@in_a_loop
async def test_a_key_is_one_message_and_copies_are_waited_for() -> None:
    ports = free_ports(2)
    async with node("a", ports[0]) as a:
        first = await a.broadcast(b"order 17", key=b"17")
        assert await a.broadcast(b"order 17", key=b"17") == first
        with pytest.raises(NotCopiedError, match="0 of 1 peers have it"):
            await a.broadcast(b"alone", copies=1, timeout=0.1)
        async with node("b", ports[1], ports[0]) as b:
            await b.wait_connected(20)
            async with asyncio.timeout(20):
                await a.broadcast(b"two", copies=1)
            assert payloads(await take(b, 3)) == [b"order 17", b"alone", b"two"]
            with pytest.raises(MisuseError, match="1 to 255 bytes"):
                await b.broadcast(b"", key="17")  # type: ignore[arg-type]  # on purpose


@in_a_loop
async def test_the_same_over_tls_and_a_stranger_is_kept_out(tmp_path: Path) -> None:
    keys = keys_for(tmp_path / "room", "a", "b", "c")
    others = keys_for(tmp_path / "other", "b")
    ports = free_ports(4)
    async with (
        node("a", ports[0], keys=keys) as a,
        node("b", ports[1], ports[0], keys=keys) as b,
        node("c", ports[2], ports[0], keys=keys) as c,
    ):
        await b.wait_connected(20)
        await b.broadcast(b"sealed")
        for group in (a, b, c):
            assert payloads(await take(group, 1)) == [b"sealed"]
        async with node("b", ports[3], ports[0], keys=others) as forger:
            with pytest.raises(PeerError):
                await forger.wait_connected(1.0)
            await forger.broadcast(b"forged")
            await eventually(lambda: sum(a.stats().peer_errors.values()) > 0)
        await asyncio.sleep(0.2)
        assert a.unread == b.unread == c.unread == 0


@in_a_loop
async def test_nodes_on_one_network_discover_each_other() -> None:
    ports = free_ports(2)
    async with node("a", ports[0], discover=True) as a, node("b", ports[1], discover=True) as b:
        await a.broadcast(b"hello, anyone")
        assert payloads(await take(b, 1)) == [b"hello, anyone"]
        async with node("c", None, discover=True) as c:  # it listens nowhere, and hears
            assert payloads(await take(c, 1)) == [b"hello, anyone"]


@in_a_loop
async def test_one_task_or_several_read_and_a_message_can_be_put_back() -> None:
    async with node("a", *free_ports(1)) as a:
        for number in range(6):
            await a.broadcast(b"%d" % number)
        one, two = await asyncio.gather(a.receive(), a.receive())
        a.again(one)
        assert (await a.receive()) == one
        assert {one.payload, two.payload} == {b"0", b"1"}
        async for message in a:
            assert message.payload == b"2"
            break
        assert a.unread == 3
        assert [each.payload for each in await take(a, 3)] == [b"3", b"4", b"5"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"node": "a/b", "listen": at(7001)}, 'no "/"'),
        ({}, "neither be found nor find others"),
        ({"listen": at(7001), "history": "some"}, "history"),
        ({"listen": at(7001), "keep": "stable"}, "nothing is ever stable"),
        ({"listen": at(7001), "keep": "lifetime"}, "messages have none"),
        ({"listen": at(7001), "keep": True}, "keep"),
        ({"listen": at(7001), "keep": -1}, "keep"),
        ({"listen": at(7001), "discover": 1}, "discover"),
        ({"listen": at(7001), "stability": "yes"}, "stability"),
        ({"listen": at(7001), "shuffle_s": 1.0}, "shuffle_s"),
        ({"listen": at(7001), "contact": ["nowhere"]}, "contact"),
        ({"listen": at(7001), "peers": 7}, "peers"),
        ({"listen": at(7001), "transport": "udp"}, "udp"),
        ({"listen": at(7001), "wind": 3}, "wind"),
        ({"listen": at(7001), "contact": at(7002), "protocol": "vector"}, "contact"),
        ({"peers": {"n": at(7001)}, "history": "all", "protocol": "vector"}, "history"),
        ({"peers": {"n": at(7001)}, "keep": 5, "protocol": "fifo"}, "keep"),
        ({"listen": at(7001), "stability": True, "protocol": "prc"}, "stability"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(MisuseError, match=what):
        whence.join("room", **{"node": "n", **changes})


def test_beyond_this_machine_there_are_keys_or_the_wish_for_none() -> None:
    with pytest.raises(KeysRequiredError):
        whence.join("room", node="a", contact="192.0.2.7:7001")
    whence.join("room", node="a", contact="192.0.2.7:7001", plaintext=True)


@in_a_loop
async def test_what_only_groups_that_remember_have() -> None:
    async with live_group("a", protocol="vector") as [a]:
        for ask in (a.stable, a.cut):
            with pytest.raises(MisuseError, match="protocol 'vector'"):
                ask()
        with pytest.raises(MisuseError, match="Use protocol 'log'"):
            await a.broadcast(b"", copies=1)
