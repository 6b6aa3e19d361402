"""W7 and W8: who is done with what, and which message is which, over kill -9 on real processes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import whence
from live.lives_member import Process, Settings, started
from support.living import in_a_loop, live_group, loopback, quick_limits, take
from whence.errors import AgentError, MisuseError, NoRoomError


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


@pytest.mark.parametrize("protocol", ["vector", "log"])
@in_a_loop
async def test_what_is_put_back_or_done_must_be_in_hand_and_comes_again_in_order(
    protocol: str, tmp_path: Path
) -> None:
    """A message that was put back came after those that follow it, if its node then left in order."""
    [address] = loopback("a").values()
    place: dict[str, Any] = {"listen": address} if protocol == "log" else {"peers": {"a": address}}
    options = {"protocol": protocol, "store": tmp_path / "a.db", "limits": quick_limits(), **place}
    async with whence.join("room", node="a", **options) as a:
        for number in range(5):
            await a.broadcast(b"%d" % number)
        messages = await take(a, 4)
        a.done(messages[3])
        a.again(messages[1])
        for wrong in (messages[1], messages[3]):  # it waits; it is done
            for call in (a.done, a.again):
                with pytest.raises(MisuseError, match="no reader has it"):
                    call(wrong)
        assert await take(a, 1) == [messages[1]]
    async with whence.join("room", node="a", **options) as a:
        assert [message.payload for message in await take(a, 4)] == [b"0", b"1", b"2", b"4"]


def copy_store(folder: Path, to: str) -> None:
    """What a crash would leave."""
    for path in folder.glob("a.db*"):
        shutil.copy(path, path.with_name(path.name.replace("a.db", to)))


@in_a_loop
async def test_an_agent_reacts_in_order_after_readers_put_back(tmp_path: Path) -> None:
    """Its log does not name the message: after a crash another one counted as reacted to."""
    peers = loopback("a")
    reacted: list[bytes] = []

    def agent(state: bytes, message: whence.Message) -> tuple[bytes, list[whence.Output]]:
        if reacted:
            raise ValueError("the second is too much")
        reacted.append(message.payload)
        return state, []

    options: dict[str, Any] = {"peers": peers, "protocol": "vector", "limits": quick_limits()}
    async with whence.join("room", node="a", store=tmp_path / "a.db", **options) as a:
        for number in range(3):
            await a.broadcast(b"%d" % number)
        for message in await take(a, 2):
            a.again(message)  # 1 is the next now
        with pytest.raises(AgentError, match="too much"):
            await a.serve(agent)
        copy_store(tmp_path, "crashed.db")
    assert reacted == [b"0"]
    async with whence.join("room", node="a", store=tmp_path / "crashed.db", **options) as a:
        assert [message.payload for message in await take(a, 2)] == [b"1", b"2"]


@in_a_loop
async def test_a_loop_over_values_may_say_itself_that_one_is_done(tmp_path: Path) -> None:
    options: dict[str, Any] = {"peers": loopback("a"), "protocol": "vector", "limits": quick_limits()}
    async with whence.join("room", node="a", codec="json", store=tmp_path / "a.db", **options) as a:
        for number in range(3):
            await a.broadcast(number)
        values = []
        async for received in a:
            values.append(received.value)
            if received.value == 1:
                a.done(received)
            if received.value == 2:
                break
        assert values == [0, 1, 2]


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
