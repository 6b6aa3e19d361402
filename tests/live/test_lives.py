"""W1 to W4 on real processes: old and copied stores, strangers, dead members, lost disks."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from live.lives_member import Process, Settings, started
from support.living import in_a_loop, loopback
from support.processes import until
from whence.cli.main import app
from whence.verify.run import verify_trace

BROADCASTING = ["vector", "fifo", "barrier"]
POINT_TO_POINT = ["matrix", "domains"]


class Room:
    """Members as processes, with what they wrote down."""

    def __init__(self, folder: Path, protocol: str, names: str = "abc", **options: Any) -> None:
        self.folder = folder
        self.names = names
        self.protocol = protocol
        self.peers = loopback(names)
        self.limits: dict[str, Any] = options.pop("limits", {})
        self.is_durable = options.pop("durable", True)
        self.expires = options.pop("expires", False)
        self.options = options
        self.members: dict[str, Process] = {}

    def settings(self, node: str) -> Settings:
        options = {"peers": self.peers, "protocol": self.protocol, **self.options}
        if self.protocol == "domains":
            options["domains"] = [list(self.names)]
        if self.is_durable:
            options["store"] = str(self.folder / f"{node}.db")
        log = str(self.folder / f"{node}.log")
        return Settings(node, options, log, self.limits, expires=self.expires)

    async def start(self, *names: str) -> None:
        for name in names or self.names:
            self.members[name] = await started(self.settings(name))

    async def say(self, node: str, payload: str, to: str = "") -> Any:
        member = self.members[node]
        if self.protocol in POINT_TO_POINT:
            return await member.ask("send", to, payload)
        return await member.ask("broadcast", payload)

    async def say_to_all(self, node: str, payload: str) -> None:
        """The same for both kinds of protocols."""
        for to in self.names if self.protocol in POINT_TO_POINT else ("",):
            if to != node:
                await self.say(node, payload, to)

    def lines(self, node: str, kind: str | None = None) -> list[list[Any]]:
        path = self.folder / f"{node}.log"
        if not path.exists():
            return []
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if kind in (None, line[0])]

    def got(self, node: str) -> list[str]:
        return [line[3] for line in self.lines(node, "got")]

    async def gets(self, node: str, *payloads: str) -> None:
        """Wait until a member was given all of these."""

        async def given() -> list[str]:
            return self.got(node)

        await until(given, lambda got: set(payloads) <= set(got), 30)

    def check(self) -> None:
        """No id names two payloads, and nothing was given twice to one process."""
        payloads: dict[tuple[str, int], str] = {}
        for node in self.names:
            for _, origin, number, payload, *_ in [*self.lines(node, "got"), *self.lines(node, "sent")]:
                assert payloads.setdefault((origin, number), payload) == payload, (origin, number)
            given: set[tuple[str, int]] = set()
            for kind, *fields in self.lines(node):
                if kind == "open":  # after kill -9 what was not done comes again
                    given = set()
                elif kind == "got":
                    assert (fields[0], fields[1]) not in given, (node, fields)
                    given.add((fields[0], fields[1]))

    async def connected(self) -> None:
        """Wait until all living members are connected: whoever came back knows where it begins."""

        async def missing() -> list[str]:
            found = []
            for node, member in self.members.items():
                links = (await member.ask("report"))["links"]
                found += [peer for peer in self.members if peer != node and links.get(peer) != "connected"]
            return found

        await until(missing, lambda found: not found, 30)
        await asyncio.sleep(0.5)
        # Whoever was asked first may have meant a process that is gone: its successor has met it by now.
        await until(missing, lambda found: not found, 30)

    async def exchange(self, word: str) -> None:
        """All living members hear each other."""
        await self.connected()
        for node in self.members:
            await self.say_to_all(node, f"{word} from {node}")
        for node in self.members:
            others = [each for each in self.members if each != node]
            await self.gets(node, *(f"{word} from {each}" for each in others))

    async def events(self, node: str, kind: str) -> list[list[str]]:
        report = await self.members[node].ask("report")
        return [event for event in report["events"] if event[0] == kind]

    async def kill(self, node: str) -> None:
        await self.members.pop(node).kill()

    async def end(self) -> None:
        members, self.members = self.members, {}
        await asyncio.gather(*[member.end() for member in members.values()])
        self.check()

    def copy_store(self, node: str, name: str) -> None:
        for path in self.folder.glob(f"{node}.db*"):
            shutil.copy(path, path.with_name(path.name.replace(f"{node}.db", name)))

    def lose_store(self, node: str) -> None:
        for path in self.folder.glob(f"{node}.db*"):
            path.unlink()

    def put_back(self, node: str, name: str) -> None:
        self.lose_store(node)
        for path in self.folder.glob(f"{name}*"):
            shutil.copy(path, path.with_name(path.name.replace(name, f"{node}.db")))


@pytest.mark.parametrize("protocol", [*BROADCASTING, *POINT_TO_POINT])
@in_a_loop
async def test_w1_a_restored_store_goes_on_and_says_what_it_lost(protocol: str, tmp_path: Path) -> None:
    room = Room(tmp_path, protocol, "ab")
    await room.start()
    await room.exchange("first")
    await room.kill("a")
    room.copy_store("a", "old")
    await room.start("a")
    for number in range(10):
        await room.say_to_all("a", f"lost {number}")
        await room.say_to_all("b", f"heard {number}")
    await room.gets("b", *(f"lost {number}" for number in range(10)))
    await room.gets("a", *(f"heard {number}" for number in range(10)))
    await room.kill("a")
    room.put_back("a", "old")
    await room.start("a")
    await room.say_to_all("a", "at once")
    await room.gets("b", "at once")
    await room.exchange("after")
    told = await room.events("a", "missed")
    assert told, "what its old store lacks is said"
    assert await room.events("b", "returned")
    await room.end()


@in_a_loop
async def test_w1b_the_second_of_two_copies_is_refused_while_the_first_is_there(tmp_path: Path) -> None:
    room = Room(tmp_path, "vector", "ab")
    await room.start()
    await room.exchange("first")
    await room.kill("a")
    room.copy_store("a", "copy")
    await room.start("a")
    await room.exchange("again")
    twin = room.settings("a")
    port = loopback("x")["x"]
    twin.options = {**twin.options, "store": str(tmp_path / "copy"), "listen": port}
    twin.log = str(tmp_path / "twin.log")
    other = await started(twin)
    await asyncio.sleep(1.5)
    assert (await other.ask("report"))["links"]["b"] == "disconnected"
    await room.exchange("still")
    await other.kill()
    await room.end()


@pytest.mark.parametrize("protocol", [*BROADCASTING, *POINT_TO_POINT])
@pytest.mark.parametrize("durable", [True, False])
@in_a_loop
async def test_w4_a_member_that_lost_its_state_returns_at_a_cut(
    protocol: str, durable: bool, tmp_path: Path
) -> None:
    room = Room(tmp_path, protocol, durable=durable)
    await room.start()
    await room.exchange("first")
    await room.kill("b")
    room.lose_store("b")
    await room.say_to_all("a", "meanwhile")
    await room.start("b")
    await room.gets("c", "meanwhile")
    await room.exchange("after")
    await room.exchange("and again")
    assert await room.events("a", "returned")
    await room.end()


@pytest.mark.parametrize("protocol", ["vector", "matrix"])
@pytest.mark.parametrize("durable", [True, False])
@in_a_loop
async def test_w3_nobody_waits_for_a_member_that_is_retired(
    protocol: str, durable: bool, tmp_path: Path
) -> None:
    room = Room(tmp_path, protocol, durable=durable, limits={"queue_messages": 8})
    await room.start()
    await room.exchange("first")
    await room.kill("c")
    full = None
    for number in range(40):
        given = (f"{number}", {"on_full": "raise"})
        member = room.members["a"]
        order = ("send", "c", *given) if protocol == "matrix" else ("broadcast", *given)
        answer = await member.ask(*order)
        if isinstance(answer, dict):
            full = answer
            break
    assert full is not None
    assert full["error"] == "NoRoomError"
    assert "retire" in full["text"]
    await room.members["a"].ask("retire", "c")
    await room.exchange("without")
    for node in "ab":
        await until(lambda node=node: room.events(node, "retired"), bool, 10)
    if durable:  # it is remembered
        await room.kill("a")
        await room.start("a")
        await room.exchange("remembered")
        assert (await room.members["a"].ask("report"))["links"]["c"] == "retired"
    await room.start("c")  # and it is taken back as another life
    await room.exchange("back")
    await room.end()


@pytest.mark.parametrize("protocol", POINT_TO_POINT)
@pytest.mark.parametrize(("durable", "how"), [(True, "retired"), (False, "retired"), (False, "left")])
@in_a_loop
async def test_w3_what_is_sent_to_nobody_is_refused_and_not_void(
    protocol: str, durable: bool, how: str, tmp_path: Path
) -> None:
    """Under `matrix` it was acknowledged, and nobody was ever given it."""
    room = Room(tmp_path, protocol, durable=durable)
    await room.start()
    await room.exchange("first")
    if how == "left":
        await room.members.pop("c").end()
    else:
        await room.kill("c")
        await room.members["b"].ask("retire", "c")
        await until(lambda: room.events("a", "retired"), bool, 10)
    answer = await room.say("a", "to nobody", "c")
    assert answer["error"] == "MisuseError", answer
    assert f"destination 'c': it {'has left' if how == 'left' else 'was retired'}" in answer["text"]
    room.lose_store("c")
    await room.start("c")
    await room.exchange("back")
    back = [word for word in room.got("c") if word.startswith("back")]
    assert sorted(back) == ["back from a", "back from b"]  # neither follows the other
    await room.end()


@in_a_loop
async def test_w3_a_group_retires_a_dead_member_once_and_not_pair_by_pair(tmp_path: Path) -> None:
    limits = {"queue_messages": 8, "retire_after_s": 1.0, "heartbeat_s": 0.2, "silence_s": 0.8}
    room = Room(tmp_path, "vector", "abc", durable=False, limits=limits)
    await room.start()
    await room.exchange("first")
    await room.kill("b")
    for number in range(60):  # more than the queue takes
        await room.say("a", f"{number}")
    await room.gets("c", *(f"{number}" for number in range(60)))
    await until(lambda: room.events("c", "retired"), bool, 10)
    await room.start("b")
    await room.exchange("back")
    await room.end()


# What a killed process takes along


@pytest.mark.parametrize("protocol", ["vector", pytest.param("log", marks=pytest.mark.slow)])
@in_a_loop
async def test_a_guest_that_is_killed_leaves_an_unfinished_trace(protocol: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    room = Room(tmp_path, protocol, durable=False, trace=str(trace))
    await room.start()
    await room.exchange("first")
    await room.kill("a")  # with all its rows, which nobody has written yet
    await room.say("b", "second")
    await room.gets("c", "second")
    await room.end()
    [report] = verify_trace(trace)
    assert (report.ok, report.counts.created) == (False, 2)  # as far as rows tell
    result = CliRunner().invoke(app, ["verify", str(trace), "--json"])
    assert result.exit_code == 3, result.stdout
    [judged] = json.loads(result.stdout)
    assert (judged["ok"], judged["unfinished"], judged["counts"]["created"]) == (True, True, 0)
    assert "a did not end its trace: 2 deliveries" in result.stderr
