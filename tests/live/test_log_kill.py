"""Real `kill -9` on members of a group that remembers, under load; judged from the applications' records."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from asyncio.subprocess import Process
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from live.log_member import LogSettings
from support.living import free_ports
from support.processes import start

PROGRAM = str(Path(__file__).parent / "log_member.py")


class Records:
    """What one member wrote down, and what that may not say."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.said: set[str] = set()
        self.got: dict[str, str] = {}
        self.missed: list[str] = []
        self.news: Counter[str] = Counter()
        self.problems: list[str] = []
        self.opens = 0
        read: dict[str, int] = {}  # of each stream, in this life and those before
        fresh: set[str] = set()  # given since the last opening
        for line in path.read_text().splitlines():
            word, _, rest = line.partition(" ")
            if word == "open":
                self.opens += 1
                fresh = set()
            elif word == "said":
                self.said.add(rest)
            elif word == "missed":
                self.missed.append(rest)
            elif word == "news":
                self.news[rest.split()[0]] += 1
            elif word == "error":
                self.problems.append(rest)
            elif word == "got":
                id_, _, payload = rest.partition(" ")
                self._judge(id_, payload, read, fresh)

    def _judge(self, id_: str, payload: str, read: dict[str, int], fresh: set[str]) -> None:
        stream, _, text = id_.rpartition(":")
        number = int(text)
        if id_ in fresh:
            self.problems.append(f"{self.name} is given {id_} twice in one life")
        fresh.add(id_)
        if self.got.setdefault(id_, payload) != payload:
            self.problems.append(f"{self.name}: {id_} is two messages")
        if number > read.get(stream, 0) + 1:
            self.problems.append(f"{self.name}: {id_} after {read.get(stream, 0)}, silently")
        for other, count in json.loads(payload)["after"].items():
            if read.get(other, 0) < count:
                self.problems.append(f"{self.name}: {id_} before {other}:{count}")
        read[stream] = max(read.get(stream, 0), number)


class Storm:
    """Members as processes."""

    def __init__(self, folder: Path, count: int, seed: int, **options: Any) -> None:
        self.folder = folder
        self.draw = random.Random(seed)
        self.kills = 0
        ports = free_ports(count)
        listens = [f"127.0.0.1:{port}" for port in ports]
        self.settings = [
            LogSettings(f"m{at}", str(folder), listen, [listens[at - 1], listens[at - 2]], options=options)
            for at, listen in enumerate(listens)
        ]
        self.processes: dict[str, Process] = {}
        self.starts: Counter[str] = Counter()

    async def start(self, settings: LogSettings) -> None:
        self.starts[settings.node] += 1
        self.processes[settings.node] = await start(PROGRAM, settings)

    async def busy(self, settings: LogSettings) -> None:
        """Wait until a member has said something in its present life."""
        async with asyncio.timeout(60):
            while not self._is_busy(settings.node):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)

    def _is_busy(self, node: str) -> bool:
        path = self.folder / f"{node}.records"
        lives = path.read_text().split("open\n") if path.exists() else []
        return len(lives) == self.starts[node] + 1 and "said" in lives[-1]

    async def kill(self, settings: LogSettings) -> None:
        process = self.processes[settings.node]
        process.kill()
        await process.wait()
        self.kills += 1

    async def run(self, kills: int, least_s: float, most_s: float) -> list[Records]:
        """Kill members at random moments and start them again, then let all come to rest."""
        await asyncio.gather(*map(self.start, self.settings))
        for _ in range(kills):
            victim = self.draw.choice(self.settings)
            await self.busy(victim)
            await asyncio.sleep(self.draw.uniform(least_s, most_s))
            await self.kill(victim)
            await asyncio.sleep(self.draw.choice([0.0, 0.0, 0.1, 0.3]))
            await self.start(victim)
        return await self.rest()

    async def rest(self) -> list[Records]:
        """Let all say their last, and wait until everybody has everything."""
        await asyncio.gather(*map(self.busy, self.settings))
        (self.folder / "quiet").touch()
        async with asyncio.timeout(120):
            while True:
                found = self.records()
                said = set().union(*(each.said for each in found))
                if all(said <= set(each.got) for each in found):
                    break
                await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        codes = await asyncio.gather(*(process.wait() for process in self.processes.values()))
        assert set(codes) == {0}
        return self.records()

    def records(self) -> list[Records]:
        return [Records(self.folder / f"{each.node}.records") for each in self.settings]


def judge(found: list[Records]) -> int:
    """Nothing lost, invented, silent or out of causal order; returns how much was said."""
    assert [problem for each in found for problem in each.problems] == []
    assert [missed for each in found for missed in each.missed] == []
    got = [set(each.got) for each in found]
    assert all(each == got[0] for each in got)  # also what was on its way when its sender was killed
    payloads: dict[str, str] = {}
    for each in found:
        for id_, payload in each.got.items():
            assert payloads.setdefault(id_, payload) == payload
    said = set().union(*(each.said for each in found))
    assert said <= got[0]
    return len(got[0])


@pytest.mark.timeout(200)
def test_a_few_kills_lose_nothing(tmp_path: Path) -> None:
    storm = Storm(tmp_path, 3, seed=1)
    found = asyncio.run(storm.run(5, 0.2, 0.8))
    assert storm.kills == 5
    assert sum(each.opens for each in found) == 8
    assert judge(found) > 100


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_thousand_kills_under_load_lose_nothing(tmp_path: Path) -> None:
    kills = 0
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        storm = Storm(folder, 8, seed)
        found = asyncio.run(storm.run(100, 0.05, 0.4))
        kills += storm.kills
        print(f"seed {seed}: {judge(found)} messages, {sum(each.opens for each in found)} openings")
    assert kills == 1000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_rollbacks_and_clones_survive(tmp_path: Path) -> None:
    """A store is copied while its owner is down, put back later, or run beside the original."""
    news: Counter[str] = Counter()
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        storm = Storm(folder, 4, seed)
        found = asyncio.run(_with_copies(storm, 10))
        assert [problem for each in found for problem in each.problems] == []
        assert [missed for each in found for missed in each.missed] == []
        for each in found:
            news += each.news
    assert news["OtherLife"] + news["RolledBack"] > 50


async def _with_copies(storm: Storm, times: int) -> list[Records]:
    await asyncio.gather(*map(storm.start, storm.settings))
    for _ in range(times):
        victim = storm.draw.choice(storm.settings)
        await storm.busy(victim)
        store = storm.folder / f"{victim.node}.db"
        await storm.kill(victim)
        copies = {path: path.read_bytes() for path in storm.folder.glob(f"{victim.node}.db*")}
        await storm.start(victim)
        await storm.busy(victim)
        await asyncio.sleep(storm.draw.uniform(0.1, 0.5))
        await storm.kill(victim)
        for path in storm.folder.glob(f"{victim.node}.db*"):
            path.unlink()
        for path, data in copies.items():
            path.write_bytes(data)
        assert store.exists()
        await storm.start(victim)
    return await storm.rest()
