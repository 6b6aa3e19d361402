"""Live groups of VCube: processes are killed and come back, and those that are left agree."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from live.vcube_member import Member, Settings
from support import processes
from support.living import Mesh, eventually, live_group, loopback, quick_limits, take
from whence.sim.replay import replay
from whence.verify.run import verify_trace

NAMES = [f"n{index}" for index in range(8)]
LATER_LIFE = 1 << 40  # the numbers of a life that did not begin with the group are beyond this


@asynccontextmanager
async def members(
    names: list[str],
    peers: dict[str, str] | None = None,
    victims: tuple[str, ...] = (),
    **options: Any,
) -> AsyncIterator[dict[str, Member]]:
    peers = peers or loopback(names)
    started = {
        name: await Member.start(Settings(name, peers, is_victim=name in victims, **options))
        for name in names
    }
    try:
        yield started
        await asyncio.gather(*(member.end() for member in started.values()))
    finally:
        for member in started.values():
            if member.process.returncode is None:
                await member.kill()


async def reports(group: dict[str, Member]) -> list[dict[str, Any]]:
    return list(await asyncio.gather(*(member.report() for member in group.values())))


async def until(group: dict[str, Member], condition: Any, timeout_s: float = 40.0) -> list[dict[str, Any]]:
    """The first reports of all for which the condition holds."""
    return await processes.until(lambda: reports(group), condition, timeout_s)


def is_calm(found: list[dict[str, Any]]) -> bool:
    """Everybody has the same, and nobody holds anything back."""
    views = {tuple(each["present"]) for each in found}
    calm = all(not each["kept"] and not each["waiting"] and each["phase"] == "in" for each in found)
    return calm and len(views) == 1 and len(next(iter(views))) == len(found)


def newest(report: dict[str, Any]) -> dict[str, int]:
    return {origin: last for origin, (_, last) in report["delivered"].items()}


async def kill_two(trace: Path) -> list[dict[str, Any]]:
    # So few that the queues to the dead are full long before it is noticed.
    async with members(NAMES, victims=("n2", "n5"), trace=str(trace), queue_messages=32) as group:
        await until(group, lambda found: all(len(each["delivered"]) == 8 for each in found))
        victims = [group.pop("n2"), group.pop("n5")]
        for victim in victims:
            await victim.kill()
        await until(group, lambda found: all(each["present"] == [0, 1, 3, 4, 6, 7] for each in found))
        before = max(newest(each)["n0"] for each in await reports(group))
        await until(group, lambda found: all(newest(each)["n0"] > before + 50 for each in found))
        for member in group.values():
            member.say("quiet")
        found = await until(group, is_calm)
        assert not any(each["error"] or each["held"] for each in found), found
        return found


@pytest.mark.timeout(120)
def test_survivors_agree_when_two_of_eight_processes_are_killed(tmp_path: Path) -> None:
    found = asyncio.run(kill_two(tmp_path))
    assert len({str(each["delivered"]) for each in found}) == 1, found
    [report] = verify_trace(tmp_path)
    assert report.ok, report
    assert report.broadcasts > 100


async def kill_and_come_back() -> None:
    names = NAMES[:5]
    async with members(names) as group:
        peers = group["n0"].settings.peers
        await until(group, lambda found: all(len(each["delivered"]) == 5 for each in found))
        for name in ("n0", "n3"):  # one that dials all the others, one that is dialled
            await group.pop(name).kill()
            group[name] = await Member.start(Settings(name, peers, joins=True))
            await until(
                group, lambda found, name=name: all(newest(each).get(name, 0) > LATER_LIFE for each in found)
            )
        for member in group.values():
            member.say("quiet")
        found = await until(group, is_calm)
        assert len({str(newest(each)) for each in found}) == 1, found
        assert not any(each["error"] for each in found)


@pytest.mark.timeout(120)
def test_a_killed_process_comes_back_in_a_new_life() -> None:
    asyncio.run(kill_and_come_back())


async def join_late_and_leave(trace: Path) -> list[dict[str, Any]]:
    """Four of five are there; the fifth has never been, and joins while all are talking. One leaves."""
    names = NAMES[:5]
    peers = loopback(names)
    async with members(names[:4], peers, trace=str(trace)) as group:
        await until(group, lambda found: all(len(each["delivered"]) == 4 for each in found))
        group["n4"] = await Member.start(Settings("n4", peers, trace=str(trace), joins=True))
        await until(group, lambda found: all(newest(each).get("n4", 0) > LATER_LIFE for each in found))
        await group.pop("n3").end()
        await until(group, lambda found: all(each["present"] == [0, 1, 2, 4] for each in found))
        for member in group.values():
            member.say("quiet")
        found = await until(group, is_calm)
        assert not any(each["error"] or each["held"] for each in found), found
        return found


@pytest.mark.timeout(120)
def test_a_process_joins_late_and_one_leaves(tmp_path: Path) -> None:
    *founders, joiner = asyncio.run(join_late_and_leave(tmp_path))
    assert len({str(each["delivered"]) for each in founders}) == 1, founders
    assert newest(joiner) == newest(founders[0])
    [report] = verify_trace(tmp_path)
    assert report.ok, report
    replayed = replay(tmp_path)
    assert replayed.ok, replayed.mismatches[:3]


async def suspended() -> None:
    names = NAMES[:4]
    async with members(names, test_timeout_us=1_000_000) as group:
        await until(group, lambda found: all(len(each["delivered"]) == 4 for each in found))
        suspect = group.pop("n1")
        suspect.process.send_signal(signal.SIGSTOP)
        await until(group, lambda found: all(each["present"] == [0, 2, 3] for each in found))
        suspect.process.send_signal(signal.SIGCONT)
        group["n1"] = suspect
        found = await until(
            group, lambda found: all(newest(each).get("n1", 0) > LATER_LIFE for each in found)
        )
        assert not any(each["error"] for each in found), found
        suspect = group.pop("n1")
        await suspect.end()
        for member in group.values():
            member.say("quiet")
        found = await until(group, is_calm)
        assert len({str(each["delivered"]) for each in found}) == 1, found


@pytest.mark.timeout(120)
def test_a_process_that_was_asleep_for_too_long_comes_back_as_another_life() -> None:
    asyncio.run(suspended())


async def leaving() -> None:
    async with live_group("a", "b", "c", protocol="vcube", test_interval_us=50_000) as groups:
        a, b, c = groups
        await a.broadcast(b"one")
        for group in groups:
            [message] = await take(group, 1)
            assert message.payload == b"one"
        await c.broadcast(b"two")
        await c.leave()
        await b.broadcast(b"three")
        for group in (a, b):
            assert {message.payload for message in await take(group, 2)} == {b"two", b"three"}
        core: Any = a._host.core
        await eventually(lambda: core.roster.present == (0, 1) and not len(core.store))


def test_a_member_that_leaves_is_out_of_the_view_at_once() -> None:
    asyncio.run(leaving())


async def cut_network() -> None:
    """Between {a} and {b, c} nothing passes, until each part has gone on without the other."""
    options: dict[str, Any] = {"test_interval_us": 50_000, "test_timeout_us": 500_000}
    limits = quick_limits(leave_timeout_s=3.0)
    async with (
        Mesh(["a", "b", "c"]) as mesh,
        mesh.joined(protocol="vcube", limits=limits, **options) as [a, b, c],
    ):
        for group in (a, b, c):
            await group.wait_connected(10)
        for group in (a, b, c):
            await group.broadcast(b"before")
        for group in (a, b, c):  # until then nobody is missed
            assert [message.payload for message in await take(group, 3)] == [b"before"] * 3
        between = [mesh.proxies["a", "b"], mesh.proxies["a", "c"]]
        for proxy in between:
            proxy.open = False
            proxy.cut()
        cores: list[Any] = [group._host.core for group in (a, b, c)]
        await eventually(lambda: [core.roster.present for core in cores] == [(0,), (1, 2), (1, 2)])
        await a.broadcast(b"alone")
        await b.broadcast(b"together")
        assert (await take(c, 1))[0].payload == b"together"
        for proxy in between:
            proxy.open = True
        await eventually(lambda: a.stats().rejoins == 1)  # as another life: what it said alone stays with it
        await eventually(lambda: [core.roster.present for core in cores[1:]] == [(0, 1, 2)] * 2)
        await c.broadcast(b"and on")
        assert [message.payload for message in await take(b, 2)] == [b"together", b"and on"]
        async with asyncio.timeout(20):
            while (await a.receive()).payload != b"and on":
                pass


def test_the_smaller_part_of_a_network_that_was_cut_comes_back_when_they_meet() -> None:
    asyncio.run(cut_network())
