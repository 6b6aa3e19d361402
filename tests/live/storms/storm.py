"""Storms: random faults on real processes, judged from what their applications wrote down.

    PYTHONPATH=tests python -m live.storms.storm --storms 300 --seconds 60 --at-once 12
    PYTHONPATH=tests python -m live.storms.storm --case W1 --storms 20 --seconds 15
    PYTHONPATH=tests python -m live.storms.storm --one vector/durable/17 --seconds 60

A storm is drawn from its name: the schedule of faults is written down before it begins, and a failure prints
it with the command that repeats it. When the schedule is over everything heals, dead members start again, and
within `GOES_ON_S` a message of each must reach all; then the logs are judged (judge.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from live.storms.indoors import Indoors, begin, patched
from live.storms.judge import Judge, rounds_heard, summary
from live.storms.storm_member import Settings, take_part
from live.storms.virtual import VirtualProcess, World
from live.storms.weather import can_make_spaces, network_of
from support.forked import Forked, in_network

Process: TypeAlias = Forked | VirtualProcess
GOES_ON_S = 30.0
NAMES = "abcd"
LIMITS = {
    "heartbeat_s": 0.3, "silence_s": 1.5, "connect_timeout_s": 1.0, "handshake_timeout_s": 2.0,
    "backoff_first_s": 0.02, "backoff_max_s": 0.5, "leave_timeout_s": 2.0, "queue_messages": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A protocol as it takes part in storms, and what it owes."""

    protocol: str
    options: dict[str, Any] = field(default_factory=dict)
    network: str = "proxies"
    stores: tuple[bool, ...] = (True, False)
    is_point_to_point: bool = False
    is_causal: bool = True
    completes: bool = True
    agrees: bool = True
    via: dict[str, str] = field(default_factory=dict)
    retires: bool = True
    has_deadlines: bool = False  # each message one of its own
    is_ordered: bool = True
    takes_back: bool = True  # who has lost its state
    limits: dict[str, Any] = field(default_factory=dict)  # besides those of all


_TESTS = {"test_interval_us": 200_000, "test_timeout_us": 1_500_000}
_LIVES_5_S = {"lifetime": 5.0}
_STEADY: dict[str, Any] = {"retires": False, "takes_back": False}
KINDS = {
    "vector": Kind("vector"),
    "fifo": Kind("fifo", is_causal=False),
    "barrier": Kind("barrier"),
    "barrier-brief": Kind("barrier", _LIVES_5_S, completes=False, has_deadlines=True),
    "matrix": Kind("matrix", is_point_to_point=True, agrees=False),
    "domains": Kind("domains", {"domains": [["a", "b", "c"], ["c", "d"]]}, is_point_to_point=True,
                    agrees=False, via=dict.fromkeys(("ad", "bd", "da", "db"), "c")),
    "vcube": Kind("vcube", _TESTS, stores=(False,), retires=False, completes=False),
    "prc": Kind("prc", {"shuffle_s": 1.0}, "spaces", (False,), retires=False, completes=False),
    "log": Kind("log", {}, "spaces", retires=False),
    "odca": Kind("odca", {**_LIVES_5_S, "transport": "tcp"}, stores=(False,), completes=False),
    "tdca": Kind("tdca", {**_LIVES_5_S, "transport": "tcp"}, stores=(False,), completes=False),
    "odca-udp": Kind("odca", {**_LIVES_5_S, "faults": {"loss": 0.05, "duplicate": 0.05, "reorder": 0.1}},
                     "spaces", (False,), completes=False),
    "reliable": Kind("reliable", is_causal=False, is_ordered=False),
    "vector-alone": Kind("vector", {"relay": False}, agrees=False),
    "vector-retiring": Kind("vector", limits={"retire_after_s": 1.0}),
    "oppnet": Kind("oppnet", **_STEADY),
    "vcube-steady": Kind("vcube", {"detect": False}, **_STEADY),
    "barrier-published": Kind("barrier", {"mode": "published"}, **_STEADY),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A case of the specification: the faults that make it, the kinds that it is about, what members do."""

    verbs: tuple[str, ...]
    fits: Callable[[Kind, bool], bool]
    habit: str = ""


def _any(kind: Kind, durable: bool) -> bool:
    return True


def _keeps(kind: Kind, durable: bool) -> bool:
    return durable and kind.protocol != "log"


def _copies(kind: Kind, durable: bool) -> bool:
    return _keeps(kind, durable) and kind.takes_back


CASES = {
    "all": Case((), _any),
    "W1": Case(("copy", "old"), _copies),
    "W1b": Case(("clone",), _copies),
    "copies": Case(("clone", "clone", "lose", "old", "copy", "retire", "link", "partition"), _copies),
    "W3": Case(("away", "stop", "retire"), lambda kind, durable: kind.retires),
    "W4": Case(("lose",), lambda kind, durable: kind.retires),
    "W5": Case(("half",), lambda kind, durable: kind.protocol in ("prc", "vcube") and kind.takes_back),
    "W6": Case(("blackout",), _any),
    "W7": Case(("kill",), _keeps, "readers"),
    "W8": Case(("kill", "link"), _keeps, "keys"),
    "B1": Case(("kill", "lose", "link"), lambda kind, durable: kind.has_deadlines),
    "split": Case(("partition",), _any),
    "alone": Case(("alone",), lambda kind, durable: kind.protocol != "prc" and (durable or kind.takes_back)),
}


@dataclass
class Step:
    """One fault, with its end."""

    at_s: float
    verb: str
    nodes: str
    amount: float  # of a fault that has one
    lasts_s: float


def schedule_of(name: str, kind: Kind, durable: bool, only: tuple[str, ...], seconds: float) -> list[Step]:
    """The faults of a storm, all drawn from its name."""
    draw = random.Random(name)
    verbs = only or _verbs(kind, durable)
    steps = []
    at_s = draw.uniform(1.0, 3.0)
    while at_s < seconds - 1.0:
        verb = draw.choice(verbs)
        if verb == "link":
            nodes = "".join(draw.sample(NAMES, 2))
            verb = draw.choice(_link_faults(kind))
        elif verb in ("half", "partition"):
            nodes = "".join(sorted(draw.sample(NAMES, 2)))
        elif verb == "blackout":
            nodes = NAMES
        else:
            nodes = draw.choice(NAMES)
        lasts_s = draw.uniform(*_LASTS_S.get(verb, (0.1, 3.0)))
        if only:
            lasts_s = draw.uniform(*_LONG_S.get(verb, (lasts_s, lasts_s)))
        lasts_s = max(0.1, min(lasts_s, seconds - at_s))
        steps.append(Step(round(at_s, 2), verb, nodes, round(draw.random(), 2), round(lasts_s, 2)))
        at_s += draw.uniform(0.3, 3.0) + (lasts_s if verb in _EXCLUSIVE else 0.0)
    return steps


_LASTS_S = {
    "away": (3.0, 10.0), "stop": (0.2, 8.0), "half": (1.0, 6.0), "blackout": (2.0, 12.0),
    "partition": (2.0, 12.0), "delay": (1.0, 5.0), "alone": (1.0, 8.0),
}  # fmt: skip
_LONG_S = {"blackout": (5.0, 60.0), "half": (5.0, 15.0), "partition": (5.0, 30.0)}  # where that is the case
_EXCLUSIVE = ("blackout", "partition", "half", "away", "clone", "alone")  # the next fault waits for its end


def _verbs(kind: Kind, durable: bool) -> list[str]:
    verbs = ["kill", "kill", "away"] if durable or kind.takes_back else []
    verbs += ["stop", "half", "link", "link", "link", "link", "partition", "blackout"]
    verbs += ["copy", "old", "lose", "clone"] if durable and kind.takes_back else []
    return verbs + (["retire"] if kind.retires else [])


def _link_faults(kind: Kind) -> tuple[str, ...]:
    if kind.network == "spaces":
        return ("black hole", "half-open")
    return ("cut", "cut", "delay", "truncate", "black hole", "half-open", "refuse", "hold")


class Member:
    """One name: its process, its store, its log."""

    def __init__(self, storm: Storm, name: str) -> None:
        self.storm = storm
        self.name = name
        self.openings = 0
        self.process: Process | None = None
        self.log = storm.folder / f"{name}.log"
        self.has_copy = False
        self.is_restarting = False  # a killed process may take a while to end
        self.started_s = 0.0

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def is_open(self) -> bool:
        """Whether its process takes part."""
        return self.is_alive and f'["open", {self.openings},' in self.log.read_text()

    def store(self, name: str = "") -> Path:
        return self.storm.folder / (name or f"{self.name}.db")

    async def start(self, how: str = "same") -> None:
        if self.openings and not self.storm.durable:
            how = "fresh"
        self.openings += 1
        with self.log.open("a") as file:
            file.write(json.dumps(["start", how, round(self.storm.now_s(), 3)]) + "\n")
        self.started_s = self.storm.now_s()
        self.process = self.storm.spawn(self.name, self.openings, self.store(), self.log)

    async def kill(self) -> None:
        if self.is_alive:
            assert self.process is not None
            await self.process.kill()

    def say(self, order: str) -> None:
        if self.is_alive:
            assert self.process is not None
            self.process.say(order)

    def signal(self, number: int) -> None:
        if self.is_alive:
            assert self.process is not None
            self.process.send_signal(number)

    def copy_store(self, to: str) -> None:
        for path in self.storm.folder.glob(f"{self.name}.db*"):
            shutil.copy(path, path.with_name(path.name.replace(f"{self.name}.db", to)))

    def lose_store(self) -> None:
        for path in self.storm.folder.glob(f"{self.name}.db*"):
            path.unlink()

    def put_back(self) -> None:
        self.lose_store()
        for path in self.storm.folder.glob(f"old-{self.name}*"):
            shutil.copy(path, path.with_name(path.name.replace(f"old-{self.name}", f"{self.name}.db")))


class Storm:
    """One storm from its name to its verdict."""

    def __init__(
        self, name: str, seconds: float, case: str, folder: Path, world: World | None = None
    ) -> None:
        self.world = world  # where it blows in memory
        self.name = name
        self.kind_name, store, self.seed = name.split("/")
        self.kind = KINDS[self.kind_name]
        self.durable = store == "durable"
        self.seconds = seconds
        self.case = case
        self.folder = folder
        self.network: Any = (
            network_of(self.kind.network, NAMES)
            if world is None
            else Indoors(world, NAMES, spaces=self.kind.network == "spaces")
        )
        self.now_s = time.time if world is None else world.clock().time
        self.steps = schedule_of(name, self.kind, self.durable, CASES[case].verbs, seconds)
        self.members = {each: Member(self, each) for each in NAMES}
        self.twins: list[Process] = []
        self.problems: list[str] = []
        self.goes_on_s = 0.0
        self._ends: set[asyncio.Task[None]] = set()

    # Processes

    def options(self, name: str, store: Path | None) -> dict[str, Any]:
        kind, peers = self.kind, self.network.peers_of(name)
        options: dict[str, Any] = {"protocol": kind.protocol, **kind.options}
        if kind.protocol == "prc":
            options["listen"] = peers[name]
            living = [each for each in self.members.values() if each.name != name and each.is_alive]
            if living:  # whoever has been there for the longest has got in itself
                options["contact"] = peers[min(living, key=lambda each: each.started_s).name]
        else:
            options["peers"] = peers
        if kind.network == "spaces":
            options["plaintext"] = True
        if self.durable and store is not None:
            options["store"] = str(store)
        return options

    def spawn(self, name: str, opening: int, store: Path, log: Path, listen: str = "") -> Process:
        options = self.options(name, store)
        if listen:
            options["listen"] = listen
        habit = "deadlines" if self.kind.has_deadlines else CASES[self.case].habit
        settings = Settings(
            name, opening, NAMES, options, str(log), {**LIMITS, **self.kind.limits},
            self.kind.is_point_to_point, hash_of(self.name), habit,
        )  # fmt: skip
        errors = self.folder / f"{name}.err"
        if self.world is not None:
            return begin(self.world, asdict(settings), errors)
        return Forked(in_network, self.network.space(name), errors, take_part, asdict(settings))

    # The storm

    async def run(self) -> None:
        await self.network.start()
        try:
            for member in self.members.values():
                await member.start("fresh")
                await self._until_open(member)
            await self._blow()
            await self._end_faults()
            await self._go_on()
        finally:
            for process in [*self.twins, *[member.process for member in self.members.values()]]:
                if process is not None and process.returncode is None:
                    await process.kill()
            await self.network.stop()

    async def _until_open(self, member: Member) -> None:
        for _ in range(600):
            await asyncio.sleep(0.05)
            if not member.is_alive or member.is_open:
                return

    async def _all_live(self) -> None:
        """The fault of a dead member ends when its process takes part again, which takes time when busy."""
        for member in self.members.values():
            if not member.is_alive:
                await member.start()
            await self._until_open(member)

    async def _blow(self) -> None:
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        for step in self.steps:
            await asyncio.sleep(max(0.0, begin_s + step.at_s - loop.time()))
            task = asyncio.create_task(self._fault(step))
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)
        await asyncio.sleep(max(0.0, begin_s + self.seconds - loop.time()))

    async def _fault(self, step: Step) -> None:
        if step.verb in self.network.faults:
            await self.network.hurt(*step.nodes, step.verb, step.amount)
            await asyncio.sleep(step.lasts_s)
            await self.network.heal(*step.nodes)
        elif step.verb in ("partition", "blackout"):
            pairs = [
                pair
                for pair in combinations(NAMES, 2)
                if step.verb == "blackout" or (pair[0] in step.nodes) != (pair[1] in step.nodes)
            ]
            await self._without(pairs, asyncio.sleep(step.lasts_s))
        elif step.verb == "alone":  # it dies, and meets nobody when it is back
            pairs = [pair for pair in combinations(NAMES, 2) if step.nodes in pair]
            await self._without(pairs, self._restart(step))
        elif step.verb in ("stop", "half"):
            for name in step.nodes:
                self.members[name].signal(signal.SIGSTOP)
            await asyncio.sleep(step.lasts_s)
            for name in step.nodes:
                self.members[name].signal(signal.SIGCONT)
        elif step.verb == "retire":
            other = random.Random(str(step)).choice([each for each in NAMES if each != step.nodes])
            self.members[other].say(f"retire {step.nodes}")
        else:
            await self._restart(step)

    async def _without(self, pairs: list[tuple[str, str]], work: Coroutine[Any, Any, None]) -> None:
        """Do something while nothing passes between these."""
        for pair in pairs:
            await self.network.hurt(*pair, "black hole", 0.0)
        await work
        for pair in pairs:
            await self.network.heal(*pair)

    async def _restart(self, step: Step) -> None:
        member = self.members[step.nodes]
        if not member.is_alive or member.is_restarting:
            return  # it is away already
        if not self.durable and not any(each.is_open for each in self.members.values() if each is not member):
            return  # a group without stores of which nobody is left is another group
        member.is_restarting = True
        await member.kill()
        how = "same"
        if step.verb == "lose":
            member.lose_store()
            how = "lost"
        elif step.verb == "copy":
            member.copy_store(f"old-{member.name}")
            member.has_copy = True
        elif step.verb == "old" and member.has_copy:
            member.put_back()
            how = "old"
        elif step.verb == "clone":
            member.copy_store(f"twin-{member.name}")
        if step.verb in ("kill", "away", "lose", "old"):
            await asyncio.sleep(step.lasts_s)
        await member.start(how)
        member.is_restarting = False
        if step.verb == "clone":
            await self._twin(member, step.lasts_s + 2.0)
        elif step.verb == "alone":
            await asyncio.sleep(step.lasts_s)

    async def _twin(self, member: Member, lasts_s: float) -> None:
        """A second process on a copy of the store, beside the first."""
        await asyncio.sleep(1.0)
        number = len(self.twins)
        log, store = self.folder / f"{member.name}.twin{number}", self.folder / f"twin-{member.name}"
        host = self.network.peers_of(member.name)[member.name].rpartition(":")[0]
        listen = f"{host}:{20_000 + hash_of(f'{self.name}{os.getpid()}{number}') % 10_000}"
        twin = self.spawn(member.name, 1000 + number, store, log, listen)
        self.twins.append(twin)
        await asyncio.sleep(lasts_s)
        if twin.returncode is None:
            await twin.kill()
        for path in self.folder.glob(f"twin-{member.name}*"):
            path.unlink()

    # Afterwards

    async def _end_faults(self) -> None:
        await asyncio.gather(*self._ends)
        for pair in combinations(NAMES, 2):
            await self.network.heal(*pair)
        for member in self.members.values():
            member.signal(signal.SIGCONT)

    async def _go_on(self) -> None:
        """Everything is healed, and all live: within some time a message of each must reach all."""
        loop = asyncio.get_running_loop()
        await self._all_live()
        begin_s = loop.time()
        heard: dict[str, dict[str, set[str]]] = {}
        number = 0
        while loop.time() < begin_s + GOES_ON_S:
            for member in self.members.values():
                if not member.is_alive:  # its contact was away, or its address was taken
                    await member.start()
                    await asyncio.sleep(0.3)
                member.say("calm")
                member.say(f"round {number}")
            await asyncio.sleep(1.0)
            heard = {name: rounds_heard(member.log) for name, member in self.members.items()}
            if any(self._is_whole(heard, str(each)) for each in range(number + 1)):
                self.goes_on_s = loop.time() - begin_s
                break
            number += 1
        else:
            last = {
                name: {key: sorted(heard[name][key]) for key in sorted(heard[name])[-1:]} for name in NAMES
            }
            self.problems.append(f"going on: not one group {GOES_ON_S:.0f} s after the storm: {last}")
        await self._quiet()
        for member in self.members.values():
            member.say("leave")
        for member in self.members.values():
            if member.is_alive:
                assert member.process is not None
                try:
                    await asyncio.wait_for(member.process.wait(), 20)
                except TimeoutError:
                    self.problems.append(f"going on: {member.name} does not leave")
                    continue
            if member.process is not None and member.process.returncode:
                self.problems.append(f"going on: {member.name} ended with {member.process.returncode}")

    def _is_whole(self, heard: dict[str, dict[str, set[str]]], number: str) -> bool:
        return all(heard[name].get(number, set()) >= set(NAMES) - {name} for name in NAMES)

    async def _quiet(self) -> None:
        """Wait until nothing is given to anyone any more."""
        before = -1
        for _ in range(20):
            now = sum(member.log.read_text().count('["got"') for member in self.members.values())
            if now == before:
                return
            before = now
            await asyncio.sleep(2.0)

    def judged(self) -> dict[str, Any]:
        kind = self.kind
        judge = Judge(is_causal=kind.is_causal, completes=kind.completes, agrees=kind.agrees, via=kind.via)
        # who is done first is not who was given first
        judge.is_ordered = kind.is_ordered and CASES[self.case].habit != "readers"
        for member in self.members.values():
            judge.read(member.name, member.log)
            for path in self.folder.glob(f"{member.name}.twin*"):
                judge.read(member.name, path, is_twin=True)
        found = summary(judge.judge())
        found["problems"] = self.problems + found["problems"]
        return {
            **found, "name": self.name, "case": self.case, "faults": len(self.steps),
            "openings": sum(member.openings for member in self.members.values()),
            "goes_on_s": round(self.goes_on_s, 1),
        }  # fmt: skip


def hash_of(text: str) -> int:
    """The same number for the same text, in every process."""
    return random.Random(text).getrandbits(31)


def names_of(case: str, storms: int, first: int, only: list[str]) -> Iterator[str]:
    """The names of the storms of a case: kinds and stores in turn."""
    fits = CASES[case].fits
    found = [
        f"{name}/{'durable' if durable else 'volatile'}"
        for name, kind in KINDS.items()
        for durable in kind.stores
        if fits(kind, durable) and (not only or name in only)
    ]
    for number in range(storms):
        yield f"{found[number % len(found)]}/{first + number}"


def one(name: str, seconds: float, case: str, keep: Path | None, *, indoors: bool = False) -> dict[str, Any]:
    """Run one storm, on real processes or in memory, and judge it."""
    folder = Path(tempfile.mkdtemp(prefix="storm-")) if keep is None else keep
    folder.mkdir(parents=True, exist_ok=True)
    if indoors:
        world = World(name)
        storm = Storm(name, seconds, case, folder, world)
        with patched(world):
            world.run(storm.run())
    else:
        storm = Storm(name, seconds, case, folder)
        asyncio.run(storm.run())
    verdict = storm.judged()
    verdict["folder"] = str(folder)
    if verdict["problems"]:
        verdict["schedule"] = [f"{step.at_s:6.2f} {step}" for step in storm.steps]
    elif keep is None:
        shutil.rmtree(folder)
    return verdict


async def many(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Storms side by side, each driven by a process of its own: they mostly wait."""
    names = list(names_of(options.case, options.storms, options.first, options.kind))
    if not can_make_spaces():
        for name in [name for name in names if KINDS[name.split("/")[0]].network == "spaces"]:
            print(f"skipped: {name} needs network namespaces, which this machine does not let us make")
            names.remove(name)
    free = asyncio.Semaphore(options.at_once)
    print(
        f"{'storm':28}{'faults':>7}{'openings':>9}{'sent':>7}{'got':>8}{'judged':>8}{'told':>6}{'goes on':>9}"
    )

    async def run(name: str) -> dict[str, Any]:
        async with free:
            command = [
                sys.executable, "-m", "live.storms.storm", "--one", name, "--seconds", str(options.seconds),
                "--case", options.case,
            ]  # fmt: skip
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            output, _ = await process.communicate()
        lines = output.decode().splitlines()
        try:
            verdict: dict[str, Any] = json.loads(lines[-1])
        except (ValueError, IndexError):
            verdict = {"name": name, "problems": [f"the driver failed ({process.returncode})"]}
        show(verdict, command)
        return verdict

    return await asyncio.gather(*map(run, names))


def indoors_all(options: argparse.Namespace) -> int:
    """One storm after the other in this process."""
    bad = count = 0
    for name in names_of(options.case, options.storms, options.first, options.kind):
        if "udp" in name:
            continue
        verdict = one(name, options.seconds, options.case, None, indoors=True)
        show(verdict, ["python", "-m", "live.storms.storm", "--indoors", "--one", name,
                       "--seconds", str(options.seconds), "--case", options.case])  # fmt: skip
        bad += bool(verdict["problems"])
        count += 1
    print(f"{count} storms in memory, {bad} bad")
    return 1 if bad else 0


_WIDTHS = (7, 9, 7, 8, 8, 6, 9)


def show(verdict: dict[str, Any], command: list[str]) -> None:
    """One line of the table; of a bad storm all that is needed to repeat it."""
    keys = ("faults", "openings", "sent", "got", "judged", "missed", "goes_on_s")
    figures = "".join(f"{verdict.get(key, '-'):>{width}}" for key, width in zip(keys, _WIDTHS, strict=True))
    print(f"{verdict['name']:28}{figures}", "" if not verdict["problems"] else "  BAD", flush=True)
    for problem in verdict["problems"][:8]:
        print("    ", problem)
    if verdict["problems"]:
        print(
            "     again:",
            " ".join(["PYTHONPATH=tests", *command]),
            "  kept in",
            verdict.get("folder"),
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--one", help="run this storm alone, and print its verdict as JSON")
    parser.add_argument("--case", choices=sorted(CASES), default="all")
    parser.add_argument("--storms", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--kind", action="append", default=[], choices=sorted(KINDS))
    parser.add_argument("--indoors", action="store_true", help="in memory, in virtual time")
    parser.add_argument("--keep", type=Path, help="a folder for the logs of `--one`")
    options = parser.parse_args()
    if options.one:
        verdict = one(options.one, options.seconds, options.case, options.keep, indoors=options.indoors)
        print(json.dumps(verdict))
        return 1 if verdict["problems"] else 0
    if options.indoors:
        return indoors_all(options)
    verdicts = asyncio.run(many(options))
    bad = sum(bool(verdict["problems"]) for verdict in verdicts)
    slowest_s = max(verdict.get("goes_on_s", 0.0) for verdict in verdicts)
    judged = sum(verdict.get("judged", 0) for verdict in verdicts)
    print(
        f"{len(verdicts)} storms, {bad} bad; {judged} acknowledged messages judged at those that were there"
    )
    print(f"throughout; the slowest went on after {slowest_s} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
