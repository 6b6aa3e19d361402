"""Who is let in: nodes that disagree refuse each other, name what differs, and the group goes on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

import whence
from live.raw_peer import RawPeer
from support.living import eventually, live_group, loopback, quick_limits, send_raw, take
from whence.errors import HandshakeError, VersionError, WhenceError
from whence.protocols.baselines.vector import VectorPacket
from whence.session.wire import (
    HEADER,
    FrameReader,
    FrameType,
    Refusal,
)

DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "group": ({"name": "another"}, "the group ('another' at 'ODD', 'room' at 'bob')"),
    "protocol": ({"protocol": "fifo"}, "the protocol ('fifo' at 'ODD', 'vector' at 'bob')"),
    "parameter": ({"relay": False}, "parameter 'relay' (false at 'ODD', \"need\" at 'bob')"),
    "payload limit": (
        {"limits": quick_limits(leave_timeout_s=0.05, max_payload_bytes=7)},
        "max_payload_bytes (7 at 'ODD', 1048576 at 'bob')",
    ),
    "members": ({"more": "dave"}, "the members ('dave' only at 'ODD')"),
    "fewer members": ({"less": "carol"}, "the members ('carol' only at 'bob')"),
}


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize("odd", ["aaron", "zoe"])  # one that dials, one that is dialled
def test_nodes_that_disagree_refuse_each_other_and_name_what_differs(what: str, odd: str) -> None:
    async def main() -> None:
        names = ["bob", "carol", odd]
        peers = loopback([*names, "dave"])
        dave = peers.pop("dave")
        options: dict[str, Any] = {"name": "room", "protocol": "vector"}
        options["limits"] = quick_limits(leave_timeout_s=0.05)
        changes, words = DIFFERENT[what]
        changes = {**options, **changes}
        theirs = dict(peers)
        if "more" in changes:
            theirs[changes.pop("more")] = dave
        if "less" in changes:
            del theirs[changes.pop("less")]
        async with AsyncExitStack() as stack:
            bob = await stack.enter_async_context(whence.join(node="bob", peers=peers, **options))
            carol = await stack.enter_async_context(whence.join(node="carol", peers=peers, **options))
            other = await stack.enter_async_context(whence.join(node=odd, peers=theirs, **changes))
            await eventually(lambda: bob.stats().peer_errors.get("HandshakeError", 0) > 0)
            await eventually(lambda: other.stats().peer_errors.get("HandshakeError", 0) > 0)
            with pytest.raises(HandshakeError, match="not connected after"):
                await other.wait_connected(0.05)
            errors = [str(event.error) for group in (bob, other) for event in group.events() if event.error]
            wanted = _alternatives(words.replace("ODD", odd))
            assert any(each in error for error in errors for each in wanted), errors
            assert bob.stats().links[odd].state == "disconnected"
            await bob.broadcast(b"we go on")
            assert (await take(carol, 1))[0].payload == b"we go on"
            assert other.stats().deliveries == 0

    asyncio.run(main())


def _alternatives(words: str) -> list[str]:
    """The listener's words: whoever of the two listens names the other first."""
    what, _, values = words.rpartition(" (")
    turned = ", ".join(reversed(values.removesuffix(")").split(", ")))
    return [words, f"{what} ({turned})"]


@pytest.mark.parametrize("protocol", ["vector", "matrix"])
def test_a_name_that_is_not_listed_is_refused_with_the_words_that_help(protocol: str) -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob", "carol", "zoe"])
        listed = {name: peers[name] for name in ("bob", "carol")}
        options: dict[str, Any] = {"limits": quick_limits(leave_timeout_s=0.05), "protocol": protocol}
        async with (
            whence.join("room", node="bob", peers=listed, **options) as bob,
            whence.join("room", node="aaron", peers=peers, **options),
            whence.join("room", node="zoe", peers=peers, **options) as zoe,
        ):
            await eventually(lambda: bob.stats().peer_errors.get("HandshakeError", 0) > 0)
            errors = [str(event.error) for event in bob.events() if event.error]
            assert any("Use protocol 'log' or 'prc', which know no list" in error for error in errors), errors
            with pytest.raises(WhenceError, match="it has not called: does its list name this node"):
                await zoe.wait_connected(0.1)  # nobody calls whom it does not know

    asyncio.run(main())


def refusal_in(answer: bytes) -> Refusal:
    reader = FrameReader(VectorPacket, 10_000)
    first = reader.greeting(answer)
    if isinstance(first, Refusal):
        return first
    reader.feed(b"")
    [refusal] = [item for item in reader.control if isinstance(item, Refusal)]
    return refusal


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "to somebody else": ({"to": "carol"}, "handshake", "this is 'bob'"),
    "from ourselves": ({"node": "bob"}, "handshake", "cannot be a peer"),
    "from a stranger": ({"node": "mallory"}, "handshake", "Use protocol 'log' or 'prc'"),
    "who must be dialled": ({"node": "carol"}, "handshake", "must wait to be dialled"),
    "without a session": ({"session": 0}, "handshake", "cannot be a peer"),
    "without a life": ({"life": 0}, "handshake", "cannot be a peer"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_impossible_hello_is_refused_with_its_reason(what: str) -> None:
    changes, code, words = REFUSED[what]

    async def main() -> None:
        peers = loopback(["aaron", "bob", "carol"])
        async with live_group("bob", "carol", peers=peers, connected=False) as [bob, carol]:
            await eventually(lambda: bob.stats().links["carol"].state == "connected")
            aaron = RawPeer("aaron", peers, bob, session=5)
            aaron.hello = msgspec.structs.replace(aaron.hello, **changes)
            refusal = await aaron.refused()
            assert refusal.code == code
            assert refusal.reason == "this connection is refused"  # a stranger learns nothing
            assert words in str(bob.events()[-1].error)
            assert bob.stats().peer_errors["HandshakeError"] == 1
            await bob.broadcast(b"on")
            assert (await take(carol, 1))[0].payload == b"on"
            await_less = quick_limits(leave_timeout_s=0.1)
            for group in (bob, carol):
                group._node.limits = await_less  # aaron never comes

    asyncio.run(main())


def test_another_version_is_refused_by_type() -> None:
    async def main() -> None:
        peers = loopback(["aaron", "bob"])
        async with live_group("bob", peers=peers, connected=False) as [bob]:
            body = msgspec.msgpack.encode(["whence", 4, {"all": "new"}])
            answer = await send_raw(peers["bob"], HEADER.pack(len(body) + 1, FrameType.HELLO) + body)
            refusal = refusal_in(answer)
            assert refusal.code == "version"
            assert "the peer speaks version 4, this node version 3" in refusal.reason
            assert bob.stats().peer_errors == {"VersionError": 1}
            assert isinstance(bob.events()[-1].error, VersionError)

    asyncio.run(main())


def test_the_dialler_understands_a_refusal_of_its_version() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        host, _, port = peers["bob"].rpartition(":")

        async def future_bob(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1000)
            body = msgspec.msgpack.encode(["whence", 4])
            writer.write(HEADER.pack(len(body) + 1, FrameType.HELLO) + body)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(future_bob, host, int(port))
        async with live_group("alice", peers=peers, connected=False) as [alice]:
            with pytest.raises(VersionError, match="the peer speaks version 4"):
                await alice.wait_connected(0.3)
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize("restarted", ["alice", "bob"])  # the one that dials, the one that is dialled
def test_a_node_that_restarts_without_its_state_returns_at_a_cut(restarted: str) -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob", "carol"])
        async with live_group("carol", peers=peers, connected=False) as [carol]:
            other = "bob" if restarted == "alice" else "alice"
            async with live_group(other, peers=peers, connected=False) as [stays]:
                async with live_group(restarted, peers=peers, connected=False) as [first]:
                    for group in (first, stays, carol):
                        await group.wait_connected(10)
                    await first.broadcast(b"before")
                    await take(stays, 1)
                    await take(carol, 1)
                    crash(first)
                async with live_group(restarted, peers=peers, connected=False) as [second]:
                    await second.wait_connected(10)
                    await eventually(lambda: second._host.lives_begun == 1)
                    await second.broadcast(b"again")
                    for group in (stays, carol):
                        assert (await take(group, 1))[0].payload == b"again"
                        assert any(event.kind == "returned" for event in group.events())
                    await stays.broadcast(b"after")
                    assert [each.payload for each in await take(second, 2)] == [b"again", b"after"]
                    assert any(event.kind == "rolled back" for event in second.events())

    asyncio.run(main())


def crash(group: whence.Group) -> None:
    """As if the process had died: no good-bye, connections reset, nothing answers any more."""
    node = group._node
    node.failed = node.leaving = True
    for task in node._tasks:
        task.cancel()
    node.transport.close()
    for link in node.links.values():
        if link.channel is not None:
            link.channel.abort()
            link.channel = None


def test_a_second_process_of_the_same_name_is_refused_and_the_first_stays() -> None:
    async def main() -> None:
        peers = loopback(["alice", "bob"])
        async with live_group("alice", "bob", peers=peers) as [alice, bob]:
            elsewhere = {**peers, **loopback(["alice"])}
            async with live_group("alice", peers=elsewhere, connected=False) as [impostor]:
                await eventually(lambda: bool(impostor.stats().peer_errors))
                assert impostor.stats().links["bob"].state == "disconnected"
                assert any("another process takes part" in event.detail for event in bob.events())
            await alice.broadcast(b"still me")
            assert (await take(bob, 1))[0].payload == b"still me"
            assert bob.stats().links["alice"].state == "connected"

    asyncio.run(main())
