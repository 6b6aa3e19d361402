"""Real `kill -9` on members of a group that remembers, under load; judged from the applications' records.

    pytest -m slow -s tests/live/test_log_kill.py     # 1,000 kills, 100 rollbacks, 100 clones, traces
    pytest -m slow -s tests/live/test_log_kill.py -k "thousand and 3"     # one hundred alone

With network namespaces (root, `ip`) members are split into two sides now and then; strangers without a store
join, say something, and leave or are killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from live.log_member import LogSettings
from live.namespaces import Namespaces, missing
from support.living import free_ports
from support.processes import launch
from whence.verify.run import verify_trace

PROGRAM = str(Path(__file__).parent / "log_member.py")
ROUNDS, KILLS = 10, 100


class Records:
    """What one member wrote down, and what that may not say; read as far as it is written."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.said: set[str] = set()
        self.got: dict[str, str] = {}
        self.missed: list[str] = []
        self.news: Counter[str] = Counter()
        self.problems: list[str] = []
        self.opens = 0
        self.is_busy = False  # it has said something in its present life
        self._path = path
        self._at = 0
        self._read: dict[str, int] = {}  # of each stream, in this life and those before
        self._fresh: set[str] = set()  # given since the last opening

    def read_on(self) -> None:
        """Take the lines that are new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            lines = file.read().split(b"\n")[:-1]
        for line in lines:
            self._at += len(line) + 1
            self._take(*line.decode().partition(" ")[::2])

    def _take(self, word: str, rest: str) -> None:
        if word == "open":
            self.opens += 1
            self.is_busy = False
            self._fresh = set()
        elif word == "said":
            self.is_busy = True
            self.said.add(rest)
        elif word == "missed":
            self.missed.append(rest)
        elif word == "news":
            self.news[rest.split(maxsplit=1)[0]] += 1
        elif word == "forgot":
            pass
        elif word == "got":
            self._judge(*rest.partition(" ")[::2])
        else:
            self.problems.append(f"{self.name}: {word} {rest}")

    def _judge(self, id_: str, payload: str) -> None:
        read = self._read
        stream, _, text = id_.rpartition(":")
        number = int(text)
        if id_ in self._fresh:
            self.problems.append(f"{self.name} is given {id_} twice in one life")
        self._fresh.add(id_)
        if self.got.setdefault(id_, payload) != payload:
            self.problems.append(f"{self.name}: {id_} is two messages")
        if number > read.get(stream, 0) + 1:
            self.problems.append(f"{self.name}: {id_} after {read.get(stream, 0)}, silently")
        for other, count in json.loads(payload)["after"].items():
            if read.get(other, 0) < count:
                self.problems.append(f"{self.name}: {id_} before {other}:{count}")
        read[stream] = max(read.get(stream, 0), number)


class Member:
    """One process that was forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def send(self, what: int) -> None:
        if not self.ended.done():
            os.kill(self.pid, what)

    async def wait(self) -> int:
        return await self.ended


class Mother:
    """The process that forks members, in one namespace or outside of all."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._members: dict[int, Member] = {}
        self._born: asyncio.Queue[Member] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, within: tuple[str, ...]) -> Mother:
        return cls(await launch(PROGRAM, within=within, stdin=asyncio.subprocess.PIPE))

    async def bear(self, settings: LogSettings) -> Member:
        assert self._process.stdin is not None
        async with self._turn:
            self._process.stdin.write(json.dumps(asdict(settings)).encode() + b"\n")
            return await self._born.get()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            word, pid, *code = line.decode().split()
            if word == "started":
                self._members[int(pid)] = member = Member(int(pid))
                self._born.put_nowait(member)
            else:
                self._members.pop(int(pid)).ended.set_result(int(code[0]))

    async def end(self) -> None:
        assert self._process.stdin is not None
        for member in list(self._members.values()):
            member.send(signal.SIGKILL)
            await member.wait()
        self._process.stdin.close()
        await self._process.wait()
        await self._listening


class Storm:
    """Members as processes."""

    def __init__(
        self, folder: Path, count: int, seed: int, *, spaces: Namespaces | None = None, **more: Any
    ) -> None:
        self.folder = folder
        self.draw = random.Random(seed)
        self.kills = self.splits = 0
        self.spaces = spaces
        self.more = more
        ports = free_ports(count)
        listens = [
            f"{'127.0.0.1' if spaces is None else spaces.host(f'm{at}')}:{port}"
            for at, port in enumerate(ports)
        ]
        self.settings = [
            LogSettings(f"m{at}", str(folder), listen, [listens[at - 1], listens[at - 2]], **more)
            for at, listen in enumerate(listens)
        ]
        self.members: dict[str, Member] = {}
        self._mothers: dict[str, Mother] = {}
        self._turn = asyncio.Lock()
        self.records = {each.node: Records(folder / f"{each.node}.records") for each in self.settings}
        self.strangers: list[Records] = []
        self.starts: Counter[str] = Counter()

    def do(self, work: Coroutine[Any, Any, list[Records]]) -> list[Records]:
        """Run to the end; no process stays behind."""

        async def guarded() -> list[Records]:
            try:
                return await work
            finally:
                for mother in self._mothers.values():
                    await mother.end()

        return asyncio.run(guarded())

    async def start(self, settings: LogSettings) -> None:
        self.starts[settings.node] += 1
        self.members[settings.node] = await self.fork(settings, settings.node)

    async def fork(self, settings: LogSettings, place: str) -> Member:
        """One more process, in the namespace of a member or of the guests."""
        space = "" if self.spaces is None else place
        async with self._turn:  # or several mothers would be started, and all but one forgotten
            if space not in self._mothers:
                within = () if self.spaces is None else self.spaces.within(place)
                self._mothers[space] = await Mother.start(within)
        return await self._mothers[space].bear(settings)

    async def busy(self, settings: LogSettings, records: Records | None = None) -> None:
        """Wait until a member has said something in its present life."""
        found = records or self.records[settings.node]
        async with asyncio.timeout(120):
            while not (found.is_busy and found.opens == self.starts[settings.node]):
                await asyncio.sleep(0.05)
                found.read_on()

    async def kill(self, settings: LogSettings) -> None:
        member = self.members[settings.node]
        member.send(signal.SIGKILL)
        assert await member.wait() == -signal.SIGKILL
        self.kills += 1

    async def run(self, kills: int, least_s: float, most_s: float, *, strangers: int = 0) -> list[Records]:
        """Kill members at random moments and start them again, then let all come to rest."""
        await asyncio.gather(*map(self.start, self.settings))
        half = len(self.settings) // 2
        work = [
            self._kill_some(self.settings[:half], kills // 2, least_s, most_s),
            self._kill_some(self.settings[half:], kills - kills // 2, least_s, most_s),
            self._visit(strangers),
        ]
        splitting = asyncio.create_task(self._split_now_and_then())
        await asyncio.gather(*work)
        splitting.cancel()
        return await self.rest()

    async def _kill_some(
        self, settings: list[LogSettings], kills: int, least_s: float, most_s: float
    ) -> None:
        for _ in range(kills):
            victim = self.draw.choice(settings)
            await self.busy(victim)
            await asyncio.sleep(self.draw.uniform(least_s, most_s))
            await self.kill(victim)
            await asyncio.sleep(self.draw.choice([0.0, 0.0, 0.1, 0.3]))
            await self.start(victim)

    async def _split_now_and_then(self) -> None:
        while self.spaces is not None:
            await asyncio.sleep(self.draw.uniform(1, 6))
            right = [name for name in self.spaces.names if self.draw.random() < 0.5]
            self.spaces.split(right)
            self.splits += 1
            await asyncio.sleep(self.draw.uniform(1, 6))
            self.spaces.split(())

    async def _visit(self, strangers: int) -> None:
        """Nobody has heard of them; what they said with a copy stays when they are gone."""
        hosts = ["127.0.0.1"] if self.spaces is None else [self.spaces.host("guest")]
        for number in range(strangers):
            [port] = free_ports(1)
            name = f"s{number}"
            contacts = [each.listen for each in self.draw.sample(self.settings, 3)]
            settings = LogSettings(
                name, str(self.folder), f"{hosts[0]}:{port}", contacts,
                durable=False, copies=1, **{**self.more, "pause_s": 0.3},
            )  # fmt: skip
            guest = await self.fork(settings, "guest")
            records = Records(self.folder / f"{name}.records")
            self.starts[name] += 1
            await self.busy(settings, records)
            await asyncio.sleep(self.draw.uniform(0.0, 1.0))
            # A guest has no disk: the rows that it has not written yet would die with it.
            ends = [signal.SIGTERM] if self.more.get("trace") else [signal.SIGTERM, signal.SIGKILL]
            guest.send(self.draw.choice(ends))
            await guest.wait()
            records.read_on()
            self.strangers.append(records)

    async def rest(self) -> list[Records]:
        """Let all say their last, and wait until everybody has everything."""
        if self.spaces is not None:
            self.spaces.split(())
        await asyncio.gather(*map(self.busy, self.settings))
        (self.folder / "quiet").touch()
        found = list(self.records.values())
        async with asyncio.timeout(240):
            while True:
                for each in found:
                    each.read_on()
                said = set().union(*(each.said for each in (*found, *self.strangers)))
                if all(said <= each.got.keys() for each in found):
                    break
                await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)
        for member in self.members.values():
            member.send(signal.SIGTERM)
        codes = await asyncio.gather(*(member.wait() for member in self.members.values()))
        assert set(codes) == {0}
        for each in found:
            each.read_on()
        return found


def judge(found: list[Records], strangers: list[Records] | None = None) -> int:
    """Nothing lost, invented, silent or out of causal order; returns how much was said."""
    everyone = [*found, *(strangers or ())]
    assert [problem for each in everyone for problem in each.problems] == []
    assert [missed for each in everyone for missed in each.missed] == []
    got = [each.got.keys() for each in found]
    assert all(each == got[0] for each in got)  # also what was on its way when its sender was killed
    payloads: dict[str, str] = {}
    for each in everyone:
        for id_, payload in each.got.items():
            assert payloads.setdefault(id_, payload) == payload
    assert set().union(*(each.said for each in everyone)) <= got[0]
    return len(got[0])


@pytest.mark.timeout(200)
def test_a_few_kills_lose_nothing(tmp_path: Path) -> None:
    storm = Storm(tmp_path, 3, seed=1)
    found = storm.do(storm.run(5, 0.2, 0.8))
    assert storm.kills == 5
    assert sum(each.opens for each in found) == 8
    assert judge(found) > 100


@pytest.fixture
def spaces() -> Iterator[Namespaces | None]:
    """Namespaces for eight members and a guest; None where there can be none, and then nothing is split."""
    reason = missing()
    if reason is not None:
        print(f"no partitions: {reason}")
        yield None
        return
    with Namespaces([*(f"m{at}" for at in range(8)), "guest"]) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_thousand_kills_under_load_lose_nothing(
    tmp_path: Path, spaces: Namespaces | None, seed: int
) -> None:
    storm = Storm(tmp_path, 8, seed, spaces=spaces, pause_s=0.05)
    found = storm.do(storm.run(KILLS, 0.05, 0.4, strangers=8))
    said = judge(found, storm.strangers)
    opens = sum(each.opens for each in found)
    print(
        f"seed {seed}: {storm.kills} kills, {opens} openings, {storm.splits} partitions, "
        f"{len(storm.strangers)} strangers, {said} messages"
    )
    assert storm.kills == KILLS
    assert opens == KILLS + 8
    shutil.rmtree(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_partitions_by_network_namespaces(tmp_path: Path, spaces: Namespaces | None) -> None:
    if spaces is None:
        pytest.skip(missing() or "")
    storm = Storm(tmp_path, 8, seed=5, spaces=spaces, pause_s=0.05)

    async def split(times: int) -> list[Records]:
        await asyncio.gather(*map(storm.start, storm.settings))
        await asyncio.gather(*map(storm.busy, storm.settings))
        for _ in range(times):
            right = storm.draw.sample(spaces.names, 4)
            spaces.split(right)
            await asyncio.sleep(storm.draw.uniform(1, 8))
            spaces.split(())
            await asyncio.sleep(storm.draw.uniform(0, 3))
        return await storm.rest()

    assert judge(storm.do(split(10))) > 1000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_kills_are_verified_from_traces_too(tmp_path: Path) -> None:
    storm = Storm(tmp_path, 8, seed=77, pause_s=0.5, trace=True)
    found = storm.do(storm.run(KILLS, 0.05, 0.4, strangers=4))
    said = judge(found, storm.strangers)
    [report] = verify_trace(tmp_path / "trace")
    print(f"{storm.kills} kills, {said} messages, {report.deliveries} deliveries in traces")
    assert report.ok, report
    assert report.broadcasts == said
    assert report.deliveries >= 8 * said


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_rollbacks_survive(tmp_path: Path, seed: int) -> None:
    """A store is copied while its owner is down, and put back later."""
    storm = Storm(tmp_path, 4, seed, pause_s=0.02, copies=1)  # what no peer has is lost with the disk
    found = storm.do(_with_copies(storm, 10, back=True))
    _judge_copies(found)
    assert sum(each.news["RolledBack"] for each in found) >= 5
    print(f"seed {seed}: 10 rollbacks, {sum((each.news for each in found), Counter())}")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_clones_survive(tmp_path: Path, seed: int) -> None:
    """A store is copied, and both copies run under one name, in turns and at the same time."""
    storm = Storm(tmp_path, 4, seed, pause_s=0.02)
    found = storm.do(_with_copies(storm, 10, back=False))
    _judge_copies(found)
    assert sum(each.news["OtherLife"] for each in found) >= 5
    print(f"seed {seed}: 10 clones, {sum((each.news for each in found), Counter())}")


def _judge_copies(found: list[Records]) -> None:
    """The application of a store that was put back is given things again, in another life: never in one.

    Only a store that is put back has lost anything, of its own, and only what no peer has said to have.
    """
    assert [problem for each in found for problem in each.problems] == []
    assert [missed for each in found for missed in each.missed] == []
    common = set.intersection(*(set(each.got) for each in found))
    for each in found:
        assert {id_.partition("/")[0] for id_ in each.got.keys() - common} <= {each.name}
        assert each.said <= common


async def _with_copies(storm: Storm, times: int, *, back: bool) -> list[Records]:
    await asyncio.gather(*map(storm.start, storm.settings))
    for number in range(times):
        victim = storm.draw.choice(storm.settings)
        await storm.busy(victim)
        copy = storm.folder / f"copy{number}"
        copy.mkdir()
        names = await _copied(storm, victim, copy)
        await asyncio.sleep(storm.draw.uniform(0.5, 1.0))
        if back:
            await storm.kill(victim)
            for path in storm.folder.glob(f"{victim.node}.db*"):
                path.unlink()
            for name in names:
                if not name.endswith(".records"):
                    shutil.copy(copy / name, storm.folder / name)
            with (storm.folder / f"{victim.node}.records").open("a") as file:
                file.write("forgot\n")  # its application has read no more than its store
            await storm.start(victim)
        else:
            await _run_clone(storm, victim, copy)
    return await storm.rest()


async def _copied(storm: Storm, victim: LogSettings, copy: Path) -> list[str]:
    """Copy a store and its records in the middle of the work; returns the names of the files."""
    member = storm.members[victim.node]
    member.send(signal.SIGSTOP)
    await asyncio.sleep(0.05)  # until it stands still
    names = [path.name for path in storm.folder.glob(f"{victim.node}.*") if not path.name.endswith("-lock")]
    for name in names:
        shutil.copy(storm.folder / name, copy / name)
    member.send(signal.SIGCONT)
    return names


async def _run_clone(storm: Storm, victim: LogSettings, copy: Path) -> None:
    """Run the copy beside the original for a while, then alone; its application has its own records."""
    [port] = free_ports(1)
    clone = replace(victim, folder=str(copy), listen=f"127.0.0.1:{port}", copies=1)
    records = Records(copy / f"{victim.node}.records")
    records.read_on()
    opens = records.opens
    process = await storm.fork(clone, victim.node)
    await asyncio.sleep(storm.draw.uniform(0.5, 1.5))
    await storm.kill(victim)
    async with asyncio.timeout(120):
        while not (records.opens > opens and records.is_busy):
            await asyncio.sleep(0.05)
            records.read_on()
    await asyncio.sleep(storm.draw.uniform(0.1, 0.5))
    process.send(signal.SIGKILL)
    await process.wait()
    await storm.start(victim)
    records.read_on()
    assert records.problems == []
    storm.strangers.append(records)
