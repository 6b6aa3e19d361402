"""Durable nodes on one event loop: restarts, snapshots, readers, agents, the model, and a disk that fails."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import whence
from live.raw_peer import RawPeer
from session.pairs import Nothing
from support.living import eventually, finish, in_a_loop, in_its_life, loopback, quick_limits, take
from whence.core.message import Message
from whence.errors import AgentError, MisuseError, ParameterError, StoreError, TraceError, WhenceError
from whence.live import durable
from whence.live.durable import DurableMembership
from whence.live.store import Store
from whence.protocols import registry
from whence.protocols.baselines.vector import VectorPacket
from whence.session.durable import DurableServer
from whence.session.links import Link
from whence.session.records import RecordCodec
from whence.session.wire import HEADER, FrameType, data_frame, packets_frame
from whence.sim.replay import replay
from whence.trace.reader import check_trace
from whence.verify.run import verify_trace

NAMES = ("a", "b", "c")


class Room:
    """Members that come and go with their stores in one folder."""

    def __init__(self, folder: Path, protocol: str = "matrix", trace: bool = False, **params: Any) -> None:
        self.folder = folder
        self.peers = loopback(NAMES)
        self.protocol = protocol
        self.trace = folder / "trace" if trace else None
        self.params = params
        self.limits: dict[str, Any] = {"leave_timeout_s": 0.5}

    def join(self, node: str, **options: Any) -> Any:
        given = {"store": self.folder / f"{node}.db", "trace": self.trace, **self.params, **options}
        return whence.join(
            "room",
            node=node,
            peers=self.peers,
            protocol=self.protocol,
            limits=quick_limits(**self.limits),
            **given,
        )

    @asynccontextmanager
    async def all(self) -> AsyncIterator[list[whence.Group]]:
        groups = [await self.join(name).__aenter__() for name in NAMES]
        try:
            yield groups
        finally:
            await asyncio.gather(*[group.leave() for group in groups])


def node_of(group: whence.Group) -> DurableMembership:
    member = group._node.membership
    assert isinstance(member, DurableMembership)
    return member


@in_a_loop
async def test_what_is_for_a_member_that_is_away_waits_for_it(tmp_path: Path) -> None:
    room = Room(tmp_path, trace=True)
    async with room.all() as (a, b, c):
        await a.send("b", b"early")
        assert [message.payload for message in await finish(b, 1)] == [b"early"]
        await b.leave()
        for number in range(20):
            await a.send("b", b"%d" % number)
        await a.leave()  # both are gone, and the messages exist on a's disk only
        async with room.join("b") as again, room.join("a") as sender:
            assert [message.payload for message in await finish(again, 20)] == [
                b"%d" % each for each in range(20)
            ]
            assert sender.stats().links["b"].state == "connected"
            assert in_its_life((await sender.send("c", b"last")).number) == 1  # no number is used twice
            assert [message.payload for message in await finish(c, 1)] == [b"last"]
    [report] = verify_trace(tmp_path / "trace", complete=True)
    assert report.ok
    assert report.deliveries == 22
    check_trace(tmp_path / "trace")
    assert replay(tmp_path / "trace").ok


@in_a_loop
async def test_what_a_peer_says_that_cannot_be_read_has_not_arrived(tmp_path: Path) -> None:
    room = Room(tmp_path, "vector")
    broken = HEADER.pack(3, FrameType.DATA) + b"\x91\x01"
    async with room.join("b") as b:
        peer = RawPeer("a", room.peers, b, session=9)
        await peer.connect()
        await peer.send(data_frame(VectorPacket(0, 1, (), b"good")))
        assert (await b.receive()).payload == b"good"
        await peer.send(broken + data_frame(VectorPacket(0, 2, (), b"after it")))
        assert await peer.closed()
        assert b.stats().peer_errors == {"FrameError": 1}
    async with room.join("b") as b:  # the disk has all of it
        assert (await peer.connect()).received == 1
        await peer.send(data_frame(VectorPacket(0, 2, (), b"better")))
        assert [(await b.receive()).payload for _ in range(2)] == [b"good", b"better"]
        await peer.close()


@pytest.mark.parametrize("protocol", ["fifo", "vector", "vcube", "barrier"])
@in_a_loop
async def test_every_reliable_protocol_can_be_durable(protocol: str, tmp_path: Path) -> None:
    room = Room(tmp_path, protocol, trace=True, **({"detect": False} if protocol == "vcube" else {}))
    for life in range(3):
        async with room.all() as groups:
            for group in groups:
                await group.broadcast(b"%d %s" % (life, group.node.encode()))
            for group in groups:
                assert len(await finish(group, 3)) == 3
    [report] = verify_trace(tmp_path / "trace", complete=True)
    assert report.ok
    assert report.deliveries == 27


@in_a_loop
async def test_snapshots_replace_the_log_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "SNAPSHOT_BYTES", 600)
    room = Room(tmp_path, trace=True)
    async with room.all() as (a, b, _):
        for number in range(200):
            await a.send("b", b"%d" % number)
        stats = a.stats().store
        assert stats is not None
        assert stats.snapshots > 2
        assert stats.log_bytes < 2000
        assert stats.commits <= stats.records
        assert len(await finish(b, 200)) == 200
    async with room.all() as (a, b, _):
        assert in_its_life((await a.send("b", b"more")).number) == 1
        assert (await b.receive()).payload == b"more"
    [report] = verify_trace(tmp_path / "trace", complete=True)
    assert report.ok
    check_trace(tmp_path / "trace")
    assert replay(tmp_path / "trace").ok


@in_a_loop
async def test_a_message_comes_again_until_its_reader_is_done_with_it(tmp_path: Path) -> None:
    room = Room(tmp_path)
    async with room.all() as (a, b, _):
        for number in range(5):
            await a.send("b", b"%d" % number)
        assert [message.payload for message in await finish(b, 2)] == [b"0", b"1"]
        assert (await b.receive()).payload == b"2"  # not done
    async with room.join("b") as b:
        assert b.unread == 3
        assert [message.payload for message in await finish(b, 3)] == [b"2", b"3", b"4"]
    async with room.join("b") as b:
        assert b.unread == 0


# Agents


def add(state: bytes, message: Message) -> tuple[bytes, list[whence.Output]]:
    total = int(state or b"0") + int(message.payload)
    return b"%d" % total, [whence.Output(message.origin, b"%d" % total)] if message.origin != "b" else []


async def add_later(state: bytes, message: Message) -> tuple[bytes, list[whence.Output]]:
    await asyncio.sleep(0)
    return add(state, message)


@pytest.mark.parametrize("agent", [add, add_later])
@in_a_loop
async def test_an_agent_reacts_once_to_each_message_over_its_lives(agent: Any, tmp_path: Path) -> None:
    room = Room(tmp_path)
    for life in range(3):
        async with room.all() as (a, b, _):
            serving = asyncio.create_task(b.serve(agent))
            for _ in range(100):
                await a.send("b", b"1")
            got = await finish(a, 100)
            assert [message.payload for message in got] == [
                b"%d" % (100 * life + at + 1) for at in range(100)
            ]
            await b.leave()
            await serving
            assert b.agent_state == b"%d" % (100 * (life + 1))


@in_a_loop
async def test_a_failing_agent_loses_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path)
    async with room.all() as (a, b, _):
        for payload in (b"1", b"two", b"3"):
            await a.send("b", payload)
        await eventually(lambda: b.unread == 3)
        with pytest.raises(AgentError, match=r"at message a:\d+ \(ValueError.*the message waits"):
            await b.serve(add)
        assert b.agent_state == b"1"
        assert b.unread == 2
        for wrong in (
            lambda state, message: (state, [whence.Output("nobody", b"")]),
            lambda state, message: (state, [whence.Output(None, b"")]),
            lambda state, message: ("text", []),
            lambda state, message: None,
        ):
            with pytest.raises(AgentError, match="at message a:"):
                await b.serve(wrong)
    async with room.join("b") as b:
        assert b.unread == 2
        assert [message.payload for message in await finish(b, 1)] == [b"two"]
        await eventually(lambda: not node_of(b).host.hand)
        serving = asyncio.create_task(b.serve(add))
        await eventually(lambda: b.agent_state == b"4")
        with pytest.raises(MisuseError, match="an agent serves it"):
            await b.receive()
        with pytest.raises(MisuseError, match="something else reads"):
            await b.serve(add)
        await b.leave()
        await serving


# The log


@in_a_loop
async def test_the_server_of_the_crash_trials_makes_the_same_of_a_live_log(tmp_path: Path) -> None:
    """Without a disk and sockets, the log alone gives what the node is."""
    room = Room(tmp_path)
    async with room.all() as (a, b, c):
        serving = asyncio.create_task(b.serve(add))
        for number in range(50):
            await a.send("b", b"%d" % number)
            await c.send("a", b"x")
        await take(a, 100)
        await c.send("b", b"7")
        await eventually(lambda: node_of(b).host.reactions == 51)
        await c.leave()
        await a.send("c", b"for later")
        for group in (a, b):
            node = node_of(group)
            copy = tmp_path / f"copy of {group.node}"
            shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy*"))
            snapshot, batches = Store(copy / f"{group.node}.db").recover()
            assert snapshot is None
            core = registry.make("matrix", group.node, NAMES)
            links = {peer: Link(peer, link.address, link.dials) for peer, link in node.node.links.items()}
            server = DurableServer(core, links, Nothing(), Nothing(), lambda: 0)
            codec = RecordCodec(core.packet_type)
            server.recover(None, [record for batch in batches for record in codec.decode_batch(batch)])
            server.check()
            there = node.host.save()
            for peer, received, acknowledged, frames in there["links"]:
                assert links[peer].incoming.received == received
                assert [
                    *map(packets_frame, links[peer].out.unacknowledged_packets()[acknowledged:])
                ] == frames
            here = server.save()
            assert {**here, "links": None} == {**there, "links": None, "last_us": here["last_us"]}
            assert here["last_us"] <= there["last_us"]  # a clock that was read since
        await b.leave()
        await serving


# What is refused


@in_a_loop
async def test_a_foreign_or_damaged_store_is_refused(tmp_path: Path) -> None:
    room = Room(tmp_path)
    async with room.all() as (a, _, _):
        for _ in range(50):
            await a.send("b", bytes(1000))
        with pytest.raises(StoreError, match="another process uses it"):
            await room.join("a").__aenter__()
    with pytest.raises(StoreError, match="belongs to node 'a'"):
        await room.join("b", store=tmp_path / "a.db").__aenter__()
    with pytest.raises(StoreError, match="belongs to parameters"):
        await room.join("a", stamps="full").__aenter__()
    whole = (tmp_path / "a.db").read_bytes()
    for name, content in (
        ("text", b"no database at all, but long enough to be looked at" * 50),
        ("cut", whole[: len(whole) // 2]),
        ("burnt", whole[:3000] + bytes(3000) + whole[6000:]),
    ):
        bad = tmp_path / f"{name}.db"
        bad.write_bytes(content)
        with pytest.raises(StoreError, match=r"damaged|not a store|not a database"):
            await room.join("a", store=bad).__aenter__()
    with pytest.raises(StoreError, match="Check the path"):
        await room.join("a", store=tmp_path).__aenter__()
    async with room.join("a") as a:  # none of this has harmed the real one
        assert a.stats().links["b"].packets_sent == 50 + 2  # and two lives have begun


@in_a_loop
async def test_a_member_that_lost_its_store_is_refused_where_nobody_is_taken_back(tmp_path: Path) -> None:
    room = Room(tmp_path, "vcube", detect=False)
    async with room.all() as (a, b, _):
        await a.broadcast(b"x")
        await take(b, 1)
    (tmp_path / "b.db").unlink()
    async with room.join("a") as a, room.join("b") as b:
        with pytest.raises(WhenceError, match="not connected"):
            await a.wait_connected(2)
        assert any("takes nobody back" in event.detail for event in b.events())


@in_a_loop
async def test_durable_and_other_members_do_not_mix(tmp_path: Path) -> None:
    room = Room(tmp_path)
    async with room.join("a") as a, room.join("b", store=None):
        with pytest.raises(WhenceError, match="refuse"):
            await a.wait_connected(2)


def test_what_cannot_be_durable_is_refused_at_once(tmp_path: Path) -> None:
    peers = {"a": "127.0.0.1:7001", "b": "127.0.0.1:7002"}
    store = tmp_path / "a.db"
    for changes, words in (
        ({"protocol": "odca"}, "datagrams are not kept"),
        ({"protocol": "vcube", "detect": True}, "replaced"),
        ({"store": 7}, "not a path"),
    ):
        options: dict[str, Any] = {"store": store, **changes}
        with pytest.raises(ParameterError, match=words):
            whence.join("room", node="a", peers=peers, **options)
    with pytest.raises(ParameterError, match="store"):
        whence.join("room", node="a", listen="127.0.0.1:7001", protocol="prc", store=store)
    assert not store.exists()


@in_a_loop
async def test_serving_needs_a_store(tmp_path: Path) -> None:
    async with whence.join("room", node="a", peers=loopback("a"), protocol="matrix") as group:
        message = Message("a", 1, b"")
        for misuse in (lambda: group.serve(add), lambda: asyncio.sleep(0, group.done(message))):
            with pytest.raises(MisuseError, match="no store"):
                await misuse()


@in_a_loop
async def test_a_past_without_a_trace_cannot_be_traced(tmp_path: Path) -> None:
    room = Room(tmp_path)
    async with room.join("a"):
        pass
    with pytest.raises(TraceError, match="a past that was not traced"):
        await room.join("a", trace=tmp_path / "trace").__aenter__()
    async with room.join("a"):
        pass  # and the store is free again


@in_a_loop
async def test_packets_of_a_dense_stream_wait_for_company_and_not_for_ever(tmp_path: Path) -> None:
    room = Room(tmp_path, "vector", relay=False)
    async with room.all() as (a, b, _):
        for _ in range(3):  # the batch after a large one waits for others
            await asyncio.gather(*[a.broadcast(b"many") for _ in range(200)])
            await finish(b, 200)
            await a.broadcast(b"one")
            assert [message.payload for message in await finish(b, 1)] == [b"one"]
