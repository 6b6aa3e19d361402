"""A full disk in a running system of processes: a typed error there, and the others go on.

`test_durable_disk.py` has one group in one process; here members and servers are processes of their own, and
the disk of one of them, or of all, has no free block.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from live.lives_member import Settings
from live.test_lives import Room
from live.test_mom_cases import Ledger
from support.living import in_a_loop
from support.systems import Bench, bench, until
from whence.errors import StoreError
from whence.servers.processes import holder_of
from whence.servers.system import System

WORD = "x" * 2000


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A file system of its own, where this machine lets us mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """No block is free meanwhile."""
    with (disk / "filling").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass
    yield
    (disk / "filling").unlink()


class Crowd(Room):
    """The store of `c` is on a disk of its own."""

    def settings(self, node: str) -> Settings:
        settings = super().settings(node)
        if node == "c":
            settings.options["store"] = str(self.folder / "disk" / "c.db")
        return settings

    async def refused(self, node: str, word: str) -> tuple[list[str], str]:
        """Speak until the disk takes no more; returns what was acknowledged before, and what was refused.

        The last block of a file that is there may have room for a message or two.
        """
        to, said = next(each for each in self.names if each != node), []
        for number in range(1000):
            payload = f"{word} {number} {WORD}"
            answer: Any = await self.say(node, payload, to)
            if isinstance(answer, dict):
                assert answer["error"] == "StoreError", answer
                assert "no room" in answer["text"], answer
                return said, payload
            said.append(payload)
        raise AssertionError("a full disk takes everything")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["vector", "fifo", "barrier", "matrix", "domains", "log"])
@in_a_loop
async def test_the_full_disk_of_one_member_is_a_typed_error_and_the_others_go_on(
    protocol: str, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        room = Crowd(tmp_path, protocol)
        await room.start()
        await room.exchange("before")
        with full(disk):
            said, first = await room.refused("c", "full")
            for number in range(20):
                await room.say_to_all("a", f"meanwhile {number} {WORD}")
                await room.say_to_all("b", f"and {number} {WORD}")
            await room.gets("a", *(f"and {number} {WORD}" for number in range(20)))
            await room.gets("b", *(f"meanwhile {number} {WORD}" for number in range(20)))
            await asyncio.sleep(1.0)
            more, second = await room.refused("c", "still full")
        await room.gets("c", *(f"meanwhile {number} {WORD}" for number in range(20)))
        await room.exchange("after")
        await room.gets("a", *said, *more)
        assert not {first, second} & {*room.got("a"), *room.got("b")}, "what was refused has not happened"
        await room.end()


# Servers


@pytest.fixture
def made() -> Iterator[Bench]:
    with bench() as each:
        yield each


def refuses(ledger: Ledger, source: str, to: str) -> bool:
    """Whether a server says that its disk takes nothing; what it takes is in the ledger."""
    try:
        ledger.send(source, to, 1, timeout_s=5.0)
    except StoreError:
        return True
    return False


def pids(system: System) -> dict[str, int | None]:
    return {server: holder_of(system.lock_of(server)) for server in system.servers}


@pytest.mark.slow
def test_servers_whose_disk_is_full_refuse_and_go_on(made: Bench) -> None:
    with small_disk(made.folder / "data", "8m") as disk:
        system = made.write({"left": ["a", "b", "c"], "right": ["c", "d"]})
        made.run("up", "--detach")
        ledger = Ledger(system)
        ledger.check_exchange(["a", "b", "c", "d"])
        before = pids(system)
        with full(disk):
            until(lambda: refuses(ledger, "a", "b"))
            said = made.run("send", "a", "b", WORD, code=2)
            assert "error: " in said, said
            assert "Traceback" not in said, said
        for server, to in ("ab", "ba", "cd", "dc"):  # each finds out by itself
            until(lambda server=server, to=to: not refuses(ledger, server, to))  # type: ignore[misc]
        ledger.check_exchange(["a", "b", "c", "d"])
        assert pids(system) == before, "no server has ended"
        made.run("down")


@pytest.mark.slow
def test_the_full_disk_of_a_router_stops_nobody_else_and_loses_nothing(made: Bench) -> None:
    """The kernel lets no file of the router grow: of one process alone, where all share a file system."""
    system = made.write({"left": ["a", "b", "c"], "right": ["c", "d"]}, limits="queue_messages = 64\n")
    made.run("up", "--detach")
    ledger = Ledger(system)
    ledger.check_exchange(["a", "b", "c", "d"])
    router = holder_of(system.lock_of("c"))
    assert router is not None
    longest = max(path.stat().st_size for path in system.folder.glob("c.store*"))
    limits = resource.prlimit(router, resource.RLIMIT_FSIZE)
    resource.prlimit(router, resource.RLIMIT_FSIZE, (longest, limits[1]))
    try:
        until(lambda: refuses(ledger, "c", "d"))
        accepted = ledger.send("a", "d", 500, timeout_s=2.0)
        assert 0 < accepted < 500, "a takes what it has room for, and says when it has none"
        ledger.send("a", "b", 20)
        ledger.read_all("b")
        assert holder_of(system.lock_of("c")) == router
    finally:
        resource.prlimit(router, resource.RLIMIT_FSIZE, limits)
    until(lambda: not refuses(ledger, "c", "d"))
    ledger.check_exchange(["a", "b", "c", "d"])
    made.run("down")
