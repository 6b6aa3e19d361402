"""Deadline protocols over lives: who dies comes back with other numbers; clocks that differ are told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import whence
from live.test_lives import Room
from support.living import eventually, in_a_loop, live_group, loopback, quick_limits, take
from support.processes import until
from whence.errors import MisuseError
from whence.live.waiting import WallClock


async def talk(room: Room, word: str) -> None:
    """All living members hear each other: they speak until then, and what is not given is told as too late.

    A new life cannot know that it will never be given what was said before it, and waits for that as long as
    the first message lives that follows it. It gives this one a few milliseconds before its end, and a timer
    may be later than that.
    """
    await room.connected()

    async def unheard() -> set[tuple[str, str]]:
        for node in room.members:
            await room.say(node, f"{word} from {node}")
        await asyncio.sleep(0.4)
        pairs = {(node, origin) for node in room.members for origin in room.members}
        return {(node, origin) for node, origin in pairs if f"{word} from {origin}" not in room.got(node)}

    await until(unheard, lambda pairs: not pairs, 60)

    async def unaccounted() -> set[tuple[str, str, int]]:
        found = set()
        for origin in room.members:
            said = {(origin, line[2]) for line in room.lines(origin, "sent") if line[3].startswith(word)}
            for node in room.members:
                known = {(line[1], line[2]) for line in room.lines(node) if line[0] in ("got", "expired")}
                found |= {(node, *each) for each in said - known}
        return found

    await until(unaccounted, lambda found: not found, 60)


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("protocol", ["tdca", "odca"])
@in_a_loop
async def test_a_member_of_a_deadline_group_comes_back_as_another_life(
    protocol: str, transport: str, tmp_path: Path
) -> None:
    limits = {"heartbeat_s": 0.2, "silence_s": 0.8}
    room = Room(
        tmp_path, protocol, durable=False, expires=True, limits=limits, transport=transport, lifetime=5.0
    )
    await room.start()
    await talk(room, "first")
    await room.kill("b")
    await room.say("a", "meanwhile")
    await room.start("b")
    await talk(room, "after")
    assert await room.events("a", "returned")
    await room.end()


@in_a_loop
async def test_a_member_of_a_deadline_group_can_be_retired_over_tcp(tmp_path: Path) -> None:
    limits = {"queue_messages": 8}
    room = Room(tmp_path, "odca", durable=False, expires=True, limits=limits, transport="tcp", lifetime=10.0)
    await room.start()
    await talk(room, "first")
    await room.kill("c")
    await room.members["a"].ask("retire", "c")
    for number in range(40):  # more than the queue takes
        await room.say("a", f"{number}")
    await room.gets("b", *(f"{number}" for number in range(40)))
    await room.start("c")
    await talk(room, "back")
    await room.end()


@in_a_loop
async def test_nothing_is_retired_over_datagrams() -> None:
    async with whence.join("room", node="a", peers=loopback("ab"), protocol="odca") as a:
        with pytest.raises(MisuseError, match="retire over datagrams: nothing waits for a member there"):
            await a.retire("b")


class Ahead(WallClock):
    """A clock that is wrong."""

    def now_us(self) -> int:
        return super().now_us() + 2_000_000


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@in_a_loop
async def test_w8_a_clock_that_is_off_is_told_with_its_fix(transport: str) -> None:
    peers = loopback("ab")
    options: dict[str, Any] = {"peers": peers, "protocol": "odca", "transport": transport, "lifetime": 1.0}
    limits = quick_limits(heartbeat_s=0.1, silence_s=2.0, leave_timeout_s=0.1)
    wrong = whence.join("room", node="b", limits=limits, **options)
    wrong._settings = replace(wrong._settings, clock=Ahead())
    async with whence.join("room", node="a", limits=limits, **options) as a, wrong as b:
        for group, peer, sign in ((a, "b", 1), (b, "a", -1)):
            await eventually(lambda group=group: any(each.kind == "clock" for each in group.events()))
            link = group.stats().links[peer]
            assert link.clock_offset_us is not None
            assert link.clock_error_us is not None
            assert abs(link.clock_offset_us - sign * 2_000_000) <= link.clock_error_us + 1000
            [event] = [each for each in group.events() if each.kind == "clock"]
            assert "Set the clocks of both machines (NTP)" in event.detail
    async with whence.join("room", node="a", limits=limits, **options) as a:
        assert a.stats().links["b"].clock_offset_us is None
        await asyncio.sleep(0)
        await a.broadcast(b"alone")
        assert (await take(a, 1))[0].payload == b"alone"


@pytest.mark.parametrize(
    ("protocol", "options", "why"),
    [
        ("oppnet", {}, "takes nobody back, and waits for all"),
        ("vcube", {"detect": False}, "takes nobody back, and waits for all"),
        ("vcube", {}, "finds out itself who is gone"),
    ],
)
@in_a_loop
async def test_where_nobody_can_be_retired_the_call_says_why(
    protocol: str, options: dict[str, Any], why: str
) -> None:
    async with live_group("a", "b", protocol=protocol, **options) as [a, _]:
        with pytest.raises(MisuseError, match=why):
            await a.retire("b")
