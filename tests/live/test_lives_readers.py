"""W7 and W8: who is done with what, and which message is which, over kill -9 on real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import whence
from live.lives_member import Process, Settings, started
from support.living import in_a_loop, live_group, loopback, quick_limits, take
from whence.errors import MisuseError, NoRoomError


def settings(node: str, peers: dict[str, str], folder: Path, **more: Any) -> Settings:
    options = {"peers": peers, "protocol": "vector", "store": str(folder / f"{node}.db")}
    return Settings(node, options, str(folder / f"{node}.log"), **more)


async def _two(tmp_path: Path) -> tuple[Process, Process, Settings]:
    peers = loopback("ab")
    reader = settings("b", peers, tmp_path, reads=False)
    return await started(settings("a", peers, tmp_path)), await started(reader), reader


@in_a_loop
async def test_w7_asking_for_a_message_says_nothing_of_another_ones_task(tmp_path: Path) -> None:
    a, b, reader = await _two(tmp_path)
    for payload in ("first", "second", "third"):
        await a.ask("broadcast", payload)
    assert [await b.ask("receive") for _ in range(3)] == ["first", "second", "third"]
    await b.ask("done", "second")
    await b.kill()
    b = await started(reader)
    assert [await b.ask("receive") for _ in range(2)] == ["first", "third"]
    await b.ask("again", "first")
    assert await b.ask("receive") == "first"
    for payload in ("third", "first"):
        await b.ask("done", payload)
    await b.kill()
    b = await started(reader)
    await a.ask("broadcast", "last")
    assert await b.ask("receive") == "last"
    await asyncio.gather(a.end(), b.end())


@in_a_loop
async def test_w7_a_body_that_raises_does_not_finish_its_message(tmp_path: Path) -> None:
    a, b, reader = await _two(tmp_path)
    for payload in ("1", "2", "3"):
        await a.ask("broadcast", payload)
    assert await b.ask("loop_raises", "2") == ["1", "2"]
    await b.kill()
    b = await started(reader)
    assert await b.ask("receive") == "2"
    await asyncio.gather(a.end(), b.end())


@in_a_loop
async def test_w8_a_broadcast_that_is_tried_again_is_the_same_message(tmp_path: Path) -> None:
    a, b, _ = await _two(tmp_path)
    sender = settings("a", a.settings.options["peers"], tmp_path)
    for turns in range(6):
        await a.ask("cancelled", f"{turns}", f"key {turns}", turns)
    await a.kill()
    a = await started(sender)
    ids = [await a.ask("broadcast", f"{turns}", {"key": f"key {turns}"}) for turns in range(6)]
    again = [await a.ask("broadcast", f"{turns}", {"key": f"key {turns}"}) for turns in range(6)]
    assert ids == again
    assert len({tuple(id_) for id_ in ids}) == 6
    await a.ask("broadcast", "end")
    got = [await b.ask("receive") for _ in range(7)]
    assert (sorted(got[:6]), got[6]) == ([*"012345"], "end")  # one that was given up in time leaves later
    await asyncio.gather(a.end(), b.end())


@in_a_loop
async def test_several_tasks_take_from_one_inbox(tmp_path: Path) -> None:
    async with live_group("a", "b", protocol="vector") as (a, b):
        for number in range(40):
            await a.broadcast(b"%d" % number)
        parts = await asyncio.gather(*[take(b, 10) for _ in range(4)])
        got = [int(message.payload) for part in parts for message in part]
        assert sorted(got) == list(range(40))
        await a.broadcast(b"once")
        message = await b.receive()
        b.again(message)
        assert await b.receive() == message
        with pytest.raises(MisuseError, match="key: this node has no store"):
            await b.broadcast(b"", key=b"k")


@in_a_loop
async def test_a_caller_may_bound_its_waiting_for_room() -> None:
    peers = loopback("ab")
    limits = quick_limits(queue_messages=4, warn_after_s=0.3, leave_timeout_s=0.1)
    async with whence.join("room", node="a", peers=peers, limits=limits, protocol="vector") as a:
        for _ in range(4):  # the first waits until the node knows that this is its first life
            await a.broadcast(b"x")
        with pytest.raises(
            NoRoomError, match=r"no room for b \(not connected, 4 .*Start b again, or retire it"
        ):
            await a.broadcast(b"x", on_full="raise")
        with pytest.raises(NoRoomError, match=r"after 0.05 s there is no room"):
            await a.broadcast(b"x", timeout=0.05)
        waiting = [asyncio.create_task(a.broadcast(b"x")) for _ in range(5)]
        await asyncio.sleep(1.0)
        first, second = [
            event.detail for event in a.events() if event.kind == "waiting"
        ]  # not one for each task
        assert "this node has just started" in first
        assert "there is no room for b (not connected, 4 messages unacknowledged)" in second
        assert "iterating" not in first + second
        for task in waiting:
            task.cancel()
        assert a.stats().broadcasts == 4


@in_a_loop
async def test_room_is_per_destination() -> None:
    peers = loopback("abc")
    limits = quick_limits(queue_messages=4, leave_timeout_s=0.1)
    async with (
        whence.join("room", node="a", peers=peers, protocol="matrix", limits=limits) as a,
        whence.join("room", node="b", peers=peers, protocol="matrix", limits=limits) as b,
    ):
        for _ in range(4):
            await a.send("c", b"for the dead")
        with pytest.raises(NoRoomError, match="no room for c"):
            await a.send("c", b"one too many", on_full="raise")
        async with asyncio.timeout(10):
            for number in range(100):
                await a.send("b", b"%d" % number)
                assert (await b.receive()).payload == b"%d" % number
