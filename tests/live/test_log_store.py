"""Groups that remember, with stores: restarts, crashes, full disks, rollbacks, clones, readers."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import whence
from live.test_log_live import node, outcomes, payloads
from support.living import eventually, free_ports, in_a_loop, quick_limits, take
from whence.core.effects import Missed
from whence.core.lives import OtherLife, RolledBack
from whence.errors import StoreError
from whence.live.book import SqliteBook


async def crash(joining: Any) -> None:
    """End a node as `kill -9` would, as far as one process can: nothing is written or said any more."""
    member = joining._group._node
    member.failed = True
    member.membership._writer.book.write = lambda batch: None
    for link in list(member.links.values()):
        if link.channel is not None:
            link.channel.abort()
    member._close_to_users(StoreError("test", "crashed", ""))
    await member._shut()


def remove(store: Path) -> None:
    """A store with all its files."""
    for file in store.parent.glob(f"{store.name}*"):
        file.unlink()


@in_a_loop
async def test_a_node_goes_on_where_its_reader_was_in_a_new_life(tmp_path: Path) -> None:
    ports = free_ports(2)
    store = tmp_path / "a.db"
    async with node("b", ports[1]) as b:
        async with node("a", ports[0], ports[1], store=store) as a:
            first = a.stats().log.life
            for number in range(6):
                await a.broadcast(b"%d" % number)
            await b.broadcast(b"from b", copies=1)
            done = await take(a, 3)
            for message in (done[0], done[2]):
                a.done(message)
        await b.broadcast(b"while a was away")
        async with node("a", ports[0], ports[1], store=store) as a:
            assert a.stats().log.life != first
            found = await outcomes(a, 6)
            assert payloads(found) == [b"1", b"3", b"4", b"5", b"from b", b"while a was away"]
            assert [each.mine for each in found if isinstance(each, whence.Message)] == [True] * 4 + [
                False
            ] * 2
            last = await a.broadcast(b"next life")
            assert last.number == 1
            assert last.origin != f"a/{first}"
            messages = await take(b, 9)
            assert messages[-1].payload == b"next life"


@in_a_loop
async def test_a_loop_is_done_with_what_it_went_on_from(tmp_path: Path) -> None:
    [port] = free_ports(1)
    async with node("a", port, store=tmp_path / "a.db") as a:
        for number in range(4):
            await a.broadcast(b"%d" % number)

        async def read() -> None:
            async for message in a:
                if message.payload == b"2":
                    raise ZeroDivisionError  # this message is not done

        with pytest.raises(ZeroDivisionError):
            await read()
    async with node("a", port, store=tmp_path / "a.db") as a:
        assert payloads(await take(a, 2)) == [b"2", b"3"]  # received, and not done
    async with node("a", port, store=tmp_path / "a.db") as a:
        assert payloads(await take(a, 2)) == [b"2", b"3"]


@in_a_loop
async def test_what_broadcast_returned_survives_a_crash_and_what_a_peer_has_too(tmp_path: Path) -> None:
    ports = free_ports(2)
    async with node("b", ports[1], store=tmp_path / "b.db") as b:
        joining = node("a", ports[0], ports[1], store=tmp_path / "a.db")
        a = await joining.__aenter__()
        await a.wait_connected(20)
        ids = [await a.broadcast(b"%d" % number) for number in range(20)]
        again = await a.broadcast(b"0", key=b"zero")
        await eventually(lambda: b.unread == 21)
        await crash(joining)
        async with node("a", ports[0], ports[1], store=tmp_path / "a.db") as a:
            assert [message.id for message in await take(a, 21)] == [*ids, again]
            assert await a.broadcast(b"0", key=b"zero") == again  # also in the next life
            await a.wait_connected(20)
            await a.broadcast(b"after", copies=1)
            found = await take(b, 22)
            assert [message.id for message in found[:21]] == [*ids, again]
            assert found[21].payload == b"after"
            assert a.stats().log.missed == b.stats().log.missed == 0


@in_a_loop
async def test_a_full_disk_refuses_and_goes_on_by_itself(tmp_path: Path) -> None:
    ports = free_ports(2)
    async with (
        node("a", ports[0], store=tmp_path / "a.db") as a,
        node("b", ports[1], ports[0]) as b,
    ):
        await b.wait_connected(20)
        writer = a._node.membership._writer
        write, room = writer.book.files._batches.write, [20_000]

        def until_full(number: int, batch: bytes) -> None:
            if len(batch) > room[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            room[0] -= len(batch)
            write(number, batch)

        writer.book.files._batches.write = until_full

        async def fill() -> None:
            for number in range(100):
                await a.broadcast(bytes(5000), key=b"%d" % number)

        with pytest.raises(StoreError, match="no room"):
            await fill()
        with pytest.raises(StoreError, match="no room"):
            await a.broadcast(b"refused at once")
        for number in range(2000):
            await b.broadcast(b"%d" % number)  # no one waits for a disk of others
        session, unused = b._node.host.log.exchange.of["a"], b._node.host.log.exchange.window - 2000
        await eventually(lambda: session.credit == unused)
        await asyncio.sleep(0.2)
        assert a.stats().log.error is not None
        assert session.credit == unused  # what is not on the disk is not acknowledged
        assert not any(isinstance(each, whence.Message) and each.origin == "b" for each in a._inbox)
        room[0] = 1 << 30
        await eventually(lambda: a.stats().log.error is None)
        first = await a.broadcast(bytes(5000), key=b"0")
        assert first.number == 1
        await a.broadcast(b"end")
        found = await take(a, number_of(a))
        assert b"end" in payloads(found)
        assert [each.payload for each in found if each.origin == "b"] == [
            b"%d" % each for each in range(2000)
        ]
        await eventually(lambda: session.credit > b._node.host.log.exchange.window - 2000)
        assert sum(event.kind == "store" for event in a.events()) > 0


def number_of(group: whence.Group) -> int:
    """Entries in a log that was never cut."""
    log = group.stats().log
    assert log is not None
    return log.next - 1


@in_a_loop
async def test_a_rolled_back_store_takes_back_what_peers_have_and_says_so(tmp_path: Path) -> None:
    ports = free_ports(2)
    store = tmp_path / "a.db"
    async with node("b", ports[1]) as b:
        async with node("a", ports[0], ports[1], store=store) as a:
            for number in range(5):
                await a.broadcast(b"%d" % number)
            life = a.stats().log.life
        shutil.copy(store, tmp_path / "copy.db")
        async with node("a", ports[0], ports[1], store=store) as a:
            await a.wait_connected(20)
            second = a.stats().log.life
            for number in range(5, 15):
                await a.broadcast(b"%d" % number, copies=1 if number == 14 else 0)
        shutil.copy(tmp_path / "copy.db", store)
        async with node("a", ports[0], ports[1], store=store) as a:
            found = await outcomes(a, 15)
            assert payloads(found) == [b"%d" % number for number in range(15)]
            assert OtherLife(second) in found  # the copy had not been opened for it
            mine = await a.broadcast(b"third")
            assert mine.number == 1
            assert {second, life}.isdisjoint({mine.origin.rpartition("/")[2]})
            assert len({message.id for message in await take(b, 16)}) == 16


@in_a_loop
async def test_a_store_restored_in_the_middle_of_a_life_is_noticed(tmp_path: Path) -> None:
    ports = free_ports(2)
    store = tmp_path / "a.db"
    async with node("b", ports[1]) as b:
        joining = node("a", ports[0], ports[1], store=store)
        a = await joining.__aenter__()
        await a.wait_connected(20)
        life = a.stats().log.life
        await a.broadcast(b"kept", copies=1)
        with sqlite3.connect(store) as source, sqlite3.connect(tmp_path / "copy.db") as copy:
            source.backup(copy)
        shutil.copy(tmp_path / "a.db-log", tmp_path / "copy.db-log")
        for number in range(4):
            await a.broadcast(b"%d" % number, copies=1)
        await crash(joining)
        remove(store)
        for end in ("", "-log"):
            shutil.copy(tmp_path / f"copy.db{end}", tmp_path / f"a.db{end}")
        async with node("a", ports[0], ports[1], store=store) as a:
            found = await outcomes(a, 5)
            assert payloads(found) == [b"kept", b"0", b"1", b"2", b"3"]
            assert RolledBack(life, 1, 5) in found
            await b.broadcast(b"on")
            assert payloads(await take(a, 1)) == [b"on"]
            assert any(event.kind == "rolledback" for event in a.events())


@in_a_loop
async def test_two_copies_of_a_store_that_both_run_are_told_apart(tmp_path: Path) -> None:
    ports = free_ports(3)
    async with node("a", ports[0], store=tmp_path / "a.db") as a:
        await a.broadcast(b"before")
    shutil.copy(tmp_path / "a.db", tmp_path / "clone.db")
    async with (
        node("b", ports[1]) as b,
        node("a", ports[0], ports[1], store=tmp_path / "a.db") as a,
        node("a", ports[2], ports[1], store=tmp_path / "clone.db") as clone,
    ):
        one, two = await a.broadcast(b"one"), await clone.broadcast(b"two")
        assert one.origin != two.origin
        assert one.number == two.number == 1
        found = await take(b, 3, 30)  # they push each other out, and everything arrives
        assert {message.id for message in found} >= {one, two}
        seen = await outcomes(a, 3, 30)
        assert sorted(payloads(seen)) == [b"before", b"one", b"two"]
        assert OtherLife(two.origin.rpartition("/")[2]) in seen


@in_a_loop
async def test_a_slow_reader_of_a_store_grows_to_a_limit_and_is_told_what_it_lost(tmp_path: Path) -> None:
    ports = free_ports(2)
    options = {"store": tmp_path / "a.db", "max_bytes": 300_000, "tick_us": 20_000}
    async with node("b", ports[1]) as b, node("a", ports[0], ports[1], **options) as a:
        await a.wait_connected(20)
        for number in range(2000):
            await b.broadcast(b"%04d" % number + bytes(500), copies=1 if number % 500 == 499 else 0)
            await b.receive()
        await eventually(lambda: a.stats().log.size_bytes <= 300_000)
        await b.broadcast(b"end")
        found: list[Any] = []
        async with asyncio.timeout(20):
            async for outcome in a.outcomes():
                found.append(outcome)
                if isinstance(outcome, whence.Message) and outcome.payload == b"end":
                    break
        missed = [each for each in found if isinstance(each, Missed)]
        assert missed
        assert {each.reason for each in missed} == {"unread"}
        numbers = [each.number for each in found if isinstance(each, whence.Message)]
        covered = {number for each in missed for number in range(each.first, each.last + 1)} | set(numbers)
        assert covered == set(range(1, 2002))
        assert len(numbers) == len(set(numbers)) < 2000


@in_a_loop
async def test_a_store_of_another_node_or_group_is_refused(tmp_path: Path) -> None:
    ports = free_ports(2)
    async with node("a", ports[0], store=tmp_path / "a.db"):
        with pytest.raises(StoreError, match="another process uses it"):
            await node("a", ports[1], store=tmp_path / "a.db").__aenter__()
    with pytest.raises(StoreError, match="it belongs to node 'a'"):
        await node("b", ports[1], store=tmp_path / "a.db").__aenter__()
    with pytest.raises(StoreError, match="it belongs to parameters"):
        await node("a", ports[1], store=tmp_path / "a.db", stability=True).__aenter__()
    old = whence.join(
        "room", node="v", peers={"v": "127.0.0.1:7999"}, protocol="vector", store=tmp_path / "v.db"
    )
    async with old:
        pass
    with pytest.raises(StoreError, match="not a store of Whence for this kind of group"):
        await node("v", ports[1], store=tmp_path / "v.db").__aenter__()
    SqliteBook(tmp_path / "a.db").close()  # and all locks were given back


@in_a_loop
async def test_a_newcomer_reads_a_long_history_without_holding_it_in_memory(tmp_path: Path) -> None:
    ports = free_ports(2)
    limits = quick_limits(unread_messages=400, unread_bytes=100_000)
    async with node("a", ports[0], store=tmp_path / "a.db") as a:
        await asyncio.gather(*(a.broadcast(b"%05d" % number) for number in range(5000)))
        async with node("b", ports[1], ports[0], limits=limits, store=tmp_path / "b.db") as b:
            await eventually(lambda: number_of(b) == 5000)
            assert len(b._inbox) <= 101
            assert b.unread == 5000
            found = await take(b, 5000)
            assert [message.number for message in found] == list(range(1, 5001))
