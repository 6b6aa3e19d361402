"""Stability of live groups that remember: cuts, retirement, retention."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from live.test_log_live import node, outcomes, payloads
from support.living import eventually, free_ports, in_a_loop, take
from whence.errors import GroupClosedError, MisuseError, NoRoomError, NotAdmittedError

QUICK: dict[str, Any] = {
    "stability": True, "alone_us": 300_000, "ack_us": 50_000, "tick_us": 20_000,
}  # fmt: skip

# A newcomer waits for a member: what is stable among one would be cut before the others have it.
JOINS = {**QUICK, "alone_us": 600_000_000}


def covers(group: whence.Group, *groups: whence.Group) -> bool:
    """Whether all that these broadcast is stable at `group`."""
    stable = group.stable()
    return all(
        stable.get(f"{each.node}/{each.stats().log.life}", 0) >= each.stats().broadcasts  # type: ignore[union-attr]
        for each in groups
    )


@in_a_loop
async def test_what_all_members_have_becomes_stable_and_a_dead_one_is_retired() -> None:
    ports = free_ports(3)
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(node("a", ports[0], **QUICK))
        b = await stack.enter_async_context(node("b", ports[1], ports[0], **JOINS))
        lost = node("c", ports[2], ports[0], **JOINS)
        c = await lost.__aenter__()
        for group in (a, b, c):
            await group.broadcast(b"from %s" % group.node.encode(), timeout=20)
        for group in (a, b, c):
            assert len(await take(group, 3)) == 3
        await eventually(lambda: all(covers(each, a, b, c) for each in (a, b, c)))
        cuts = a.stable_cuts()
        assert await anext(cuts) == a.stable()
        await lost.__aexit__(None, None, None)  # it says good-bye, and still counts
        origin, number = await b.broadcast(b"without c")  # acknowledgements have numbers as well
        await asyncio.sleep(0.5)
        assert a.stable()[origin] < number
        await a.retire("c")
        await a.retire("c")  # as often as one likes
        await eventually(lambda: all(each.stable()[origin] >= number for each in (a, b)))
        assert set(await anext(cuts)) >= set(a.stable())
        assert payloads(await outcomes(b, 1)) == [b"without c"]
        await eventually(lambda: any(event.kind == "retired" for event in b.events()))
    async with node("d", ports[0]) as d:
        assert d.stable() == {}
        with pytest.raises(MisuseError, match="retire"):
            await d.retire("a")


@in_a_loop
async def test_a_log_is_kept_until_it_is_stable(tmp_path: Path) -> None:
    ports = free_ports(2)
    cuts = {"keep": "stable"}
    async with (
        node("a", ports[0], store=tmp_path / "a.db", **QUICK, **cuts) as a,
        node("b", ports[1], ports[0], **JOINS, **cuts) as b,
    ):
        await b.broadcast(b"first", timeout=20)
        for number in range(300):
            await a.broadcast(b"%d" % number, timeout=20)
        for group in (a, b):
            for _ in range(301):
                group.done(await group.receive())
        await b.broadcast(b"last")
        for group in (a, b):
            group.done(await group.receive())
        await eventually(lambda: all(each.stats().log.size_bytes < 10_000 for each in (a, b)))  # type: ignore[union-attr]


@in_a_loop
async def test_what_a_founder_said_alone_is_kept_for_the_first_to_come() -> None:
    ports = free_ports(2)
    async with node("a", ports[0], keep="stable", **QUICK) as a:
        await a.broadcast(b"alone", timeout=20)
        a.done(await a.receive())
        await eventually(lambda: covers(a, a))
        await asyncio.sleep(0.2)
        async with node("b", ports[1], ports[0], keep="stable", **JOINS) as b:
            assert (await b.receive()).payload == b"alone"


@in_a_loop
async def test_broadcasts_before_admission_wait_in_a_durable_outbox(tmp_path: Path) -> None:
    ports = free_ports(2)
    store = {"store": tmp_path / "b.db"}
    async with node("b", ports[1], ports[0], **JOINS, **store) as b:
        with pytest.raises(NoRoomError, match="has not been let into"):
            await b.broadcast(b"not even kept", on_full="raise")
        with pytest.raises(NotAdmittedError, match="no member has admitted"):
            await b.broadcast(b"first", key=b"1", timeout=0.1)
        with pytest.raises(NotAdmittedError):
            await b.broadcast(b"first", key=b"1", timeout=0.1)  # tried again: still one
        left = asyncio.create_task(b.broadcast(b"second"))
        await asyncio.sleep(0.1)
        assert b.stats().log.outbox == 2  # type: ignore[union-attr]
    with pytest.raises(GroupClosedError):
        await left
    async with node("a", ports[0], **QUICK) as a, node("b", ports[1], ports[0], **JOINS, **store) as b:
        third = await b.broadcast(b"third", key=b"3", copies=1, timeout=20)
        found = await take(a, 3)
        assert [each.payload for each in found] == [b"first", b"second", b"third"]
        assert third == found[2].id
        assert await b.broadcast(b"third", key=b"3") == third
        assert await b.broadcast(b"first", key=b"1") == found[0].id
    async with node("b", ports[1], **QUICK, **store) as b:
        await b.broadcast(b"fourth", timeout=20)  # nothing is sent again
        assert [each.payload for each in await take(b, 4)][-1] == b"fourth"


@in_a_loop
async def test_what_a_copy_of_the_store_has_sent_from_its_outbox_is_not_sent_again(tmp_path: Path) -> None:
    """Two messages wait; the store is copied; either copy is admitted, and they are sent once."""
    ports = free_ports(3)
    one, other = tmp_path / "b.db", tmp_path / "copy.db"
    async with node("b", ports[1], ports[0], **JOINS, store=one) as b:
        for payload, key in ((b"first", b"1"), (b"second", None)):
            with pytest.raises(NotAdmittedError):
                await b.broadcast(payload, key=key, timeout=0.1)
    shutil.copy(one, other)
    async with node("a", ports[0], **QUICK) as a:
        async with node("b", ports[1], ports[0], **JOINS, store=one) as b:
            await b.broadcast(b"of one", copies=1, timeout=20)
            found = await take(a, 3)
            assert [each.payload for each in found] == [b"first", b"second", b"of one"]
        async with node("b", ports[2], ports[0], **JOINS, store=other) as b:
            await b.broadcast(b"of the other", copies=1, timeout=20)
            assert [each.payload for each in await take(a, 1)] == [b"of the other"]
            assert b.stats().log.outbox == 0  # type: ignore[union-attr]
            assert await b.broadcast(b"first", key=b"1") == found[0].id
        async with node("b", ports[2], ports[0], **JOINS, store=other) as b:
            await b.broadcast(b"last", copies=1, timeout=20)  # a later opening knows it, too
            assert [each.payload for each in await take(a, 1)] == [b"last"]
