"""W5 and W6: processes that slept, and groups whose network was gone, are one group again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

import whence
from live.lives_member import Process, Settings
from live.test_lives import Room
from support.living import free_ports, in_a_loop, quick_limits, take
from support.processes import until

QUICK = {"heartbeat_s": 0.2, "silence_s": 1.0, "connect_timeout_s": 1.0, "handshake_timeout_s": 2.0}


class Swarm(Room):
    """Processes of a `prc` group."""

    def __init__(self, folder: Path, names: str) -> None:
        super().__init__(folder, "prc", names, durable=False, limits=QUICK)
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))

    def settings(self, node: str) -> Settings:
        options: dict[str, Any] = {
            "protocol": "prc", "listen": f"127.0.0.1:{self.ports[node]}", "shuffle_s": 1.0
        }  # fmt: skip
        if self.members:
            options["contact"] = f"127.0.0.1:{self.ports[self.names[0]]}"
        return Settings(node, options, str(self.folder / f"{node}.log"), self.limits)

    async def connected(self) -> None:
        """Nobody knows how many there are."""
        await asyncio.sleep(1.0)

    async def are_one(self, word: str, timeout_s: float = 30.0) -> None:
        """Within some time a message of each reaches all: all those of some round, however late they come."""
        rounds = 0

        async def missing() -> list[tuple[str, str]]:
            nonlocal rounds
            rounds += 1
            for node in self.members:
                await self.say(node, f"{word} {rounds} from {node}")
            await asyncio.sleep(1.0)
            heard = {node: set(self.got(node)) for node in self.members}
            found = [
                [
                    (node, each)
                    for node in self.members
                    for each in self.members
                    if f"{word} {at} from {each}" not in heard[node]
                ]
                for at in range(1, rounds + 1)
            ]
            return min(found, key=len)

        await until(missing, lambda found: not found, timeout_s)


async def _rejoined(members: dict[str, Process]) -> int:
    return sum([(await member.ask("report"))["rejoins"] for member in members.values()])


@in_a_loop
async def test_w5_processes_that_slept_come_back_into_one_group(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path, "abcdef")
    await swarm.start()
    await swarm.are_one("before")
    for node in "def":
        swarm.members[node].process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(3.0)
    for node in "def":
        swarm.members[node].process.send_signal(signal.SIGCONT)
    await swarm.are_one("after")
    assert await _rejoined(swarm.members) > 0
    await swarm.end()


@in_a_loop
async def test_w6_a_swarm_outlives_a_blackout(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path, "abcde")
    await swarm.start()
    await swarm.are_one("before")
    for member in swarm.members.values():
        await member.ask("blackout", 3.0)
    await asyncio.sleep(3.0)
    await swarm.are_one("after")
    assert await _rejoined(swarm.members) >= 4
    await swarm.end()


@pytest.mark.parametrize("protocol", ["vcube", "vector", "barrier"])
@in_a_loop
async def test_w6_a_listed_group_outlives_a_blackout(protocol: str, tmp_path: Path) -> None:
    options = {"test_interval_us": 200_000, "test_timeout_us": 1_500_000} if protocol == "vcube" else {}
    room = Room(tmp_path, protocol, "abcd", durable=False, limits=QUICK, **options)
    await room.start()
    await room.exchange("before")
    for member in room.members.values():
        await member.ask("blackout", 4.0)
    await asyncio.sleep(5.0)

    async def out() -> list[str]:
        reports = {node: await member.ask("report") for node, member in room.members.items()}
        return [node for node, report in reports.items() if not report["ready"] or report["ended"]]

    await until(out, lambda found: not found, 30)
    await room.exchange("after")
    if protocol == "vcube":
        assert await _rejoined(room.members) > 0
    await room.end()


@pytest.mark.parametrize("protocol", ["prc", "vcube"])
@in_a_loop
async def test_what_is_said_by_a_node_that_is_out_waits_until_it_is_in(protocol: str) -> None:
    """It raised that the node had not joined, until the next turn in which something was written."""
    ports, limits = free_ports(2), quick_limits(**QUICK)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    options: list[dict[str, Any]] = [
        {"listen": addresses[0]},
        {"listen": addresses[1], "contact": addresses[0]},
    ]
    if protocol == "vcube":
        options = [{"peers": dict(zip("ab", addresses, strict=True)), "test_interval_us": 200_000}] * 2
    async with (
        whence.join("room", node="a", protocol=protocol, limits=limits, **options[0]) as a,
        whence.join("room", node="b", protocol=protocol, limits=limits, **options[1]) as b,
    ):
        await a.broadcast(b"before")
        assert [message.payload for message in await take(b, 1)] == [b"before"]
        b._node.membership.come_back("it was out")
        await b.broadcast(b"after", timeout=20)
        payloads: list[bytes] = []
        while b"after" not in payloads:
            payloads += [message.payload for message in await take(a, 1)]
