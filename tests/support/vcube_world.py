"""A world of the one net in which members of a VCube crash, are suspected, leave and join, by one seed.

A packet arrives when the time drawn for it has passed. Links are not FIFO; between processes that live they
lose nothing. What a crashed process had sent may be lost, and it may crash in the middle of a broadcast.
Every process has its own name in the trace ("n3", and "n3+2" in its life 2), so that the verifier can judge
each life by itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.net import ORDERED, Flight, Make, Net
from whence.core.effects import Deliver, Effects, Reason
from whence.core.message import NodeId
from whence.core.protocol import LEAVE
from whence.protocols.vcube.control import LIFE_BITS
from whence.protocols.vcube.members import Phase, VCubeMembers
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind
from whence.verify.report import RunReport
from whence.verify.run import verify_table

MASK = (1 << LIFE_BITS) - 1
INTERVAL_US, TIMEOUT_US = 20_000, 120_000


@dataclass
class Process:
    """One run of a member's program."""

    name: NodeId
    core: VCubeMembers
    up: bool = True
    end: str = ""  # why it is not up
    cut: tuple[int, ...] = ()  # where its deliveries begin
    ids: list[tuple[int, int]] = field(default_factory=list)  # what it delivered: (member, number)
    known: list[int] = field(default_factory=list)  # for each member the newest number in its past
    crash_after: int | None = None  # crash in the next broadcast, after so many of its effects
    owed: set[tuple[int, int]] = field(default_factory=set)  # what it had delivered when asked to leave

    @property
    def label(self) -> str:
        return self.name if not self.core.life else f"{self.name}+{self.core.life}"


class World:
    """The processes, the packets under way, and everything that was delivered."""

    def __init__(
        self, size: int, seed: int, make: Make = VCubeMembers, *, check: bool = False, **params: Any
    ):
        self.draw = random.Random(f"world/{seed}")
        width = len(str(size - 1))
        self.names = [f"n{index:0{width}d}" for index in range(size)]
        times_us = {
            "test_interval_us": INTERVAL_US,
            "test_timeout_us": TIMEOUT_US,
            "start_timeout_us": 4 * TIMEOUT_US,
        }
        self.net = Net(make, self.names, (), check=check, **{**times_us, **params})
        self.net.before, self.net.after = self._heed, self._answer
        self.net.on_send = self._plan
        self.net.on_stop = lambda name, reason: self._end(self.current[name], str(reason))
        self.trace = MemoryTrace()  # by lives: the net's knows names only
        self.labels: dict[str, Process] = {}  # label -> the process that used it
        self.pasts: dict[tuple[int, int], list[int]] = {}  # message -> `known` of its origin before it
        self.violations: list[str] = []  # of a joiner's past, which begins with the cut: no trace shows that
        self.delay_us: Callable[[NodeId, NodeId, bool], int] = lambda *_: self.draw.randrange(500, 8_000)
        self.on_delivery: Callable[[Process], None] = lambda _process: None
        self.tests_are_right = False  # nothing delays a test so much that a process is suspected wrongly
        cut = (0,) * size
        self.current = {name: Process(name, self.net.cores[name], cut=cut) for name in self.names}
        self.processes = list(self.current.values())
        for name in self.names:
            self._link_all(name)

    @property
    def now_us(self) -> int:
        return self.net.now_us

    @property
    def discards(self) -> Counter[Reason]:
        return Counter(discard.reason for discard in self.net.discards)

    # What a test does

    def at(self, time_us: int, action: Callable[..., Any], *args: Any) -> None:
        """Do something at a time."""
        self.net.at(time_us, action, *args)

    def run(self, until_us: int) -> None:
        """Let everything happen that is due before a time."""
        self.net.pass_time(until_us - 1)
        self.net.now_us = until_us

    def broadcast(self, name: NodeId, payload: bytes = b"") -> bool:
        """Broadcast, if the member is in a state to."""
        process = self.current[name]
        core = process.core
        if not process.up or core.phase is not Phase.IN or core.leaving:
            return False
        effects = core.broadcast(payload, self.now_us)
        self.pasts[core.my_index, core.last] = list(process.known)
        self.record(process, Kind.BROADCAST, core.my_index, core.last)
        if process.crash_after is not None:
            self.net.carry_out(name, effects[: process.crash_after])
            self.crash(name)
        else:
            self.net.carry_out(name, effects)
        return True

    def crash(self, name: NodeId) -> None:
        """Kill the process; half of what it has under way is lost."""
        process = self.current[name]
        if process.up:
            self._end(process, "crash")
            net = self.net
            mine = [entry for entry in net.agenda if entry[3] == self._arrive and entry[4][0] is process]
            gone = {id(entry) for entry in mine if self.draw.random() >= 0.5}
            lost = {id(entry[4][1]) for entry in mine if id(entry) in gone}
            net.agenda = sorted(entry for entry in net.agenda if id(entry) not in gone)
            net.flying = [flight for flight in net.flying if id(flight) not in lost]

    def leave(self, name: NodeId) -> None:
        """Ask the member to leave."""
        process = self.current[name]
        if process.up:
            process.owed = process.owed or set(process.ids)
            self.net.do(name, lambda core, now_us: core.timer(LEAVE, now_us))

    def join(self, name: NodeId, *, noticed: bool = True) -> None:
        """Start a new process of a member that is not up; `noticed`: its peers' hosts see that it is new."""
        if self.current[name].up:
            return
        self.net.add(name, joins=True)
        process = self.current[name] = Process(name, self.net.cores[name])
        self.processes.append(process)
        self._link_all(name)
        if noticed:
            for other in self.live():
                if other is not process:
                    self.at(self.now_us + self.draw.randrange(3_000), self._relink, other, process)

    def live(self) -> list[Process]:
        """The processes that are up."""
        return [process for process in self.current.values() if process.up]

    # The machinery

    def restart(self, name: NodeId) -> None:
        """The process comes back from what it saved; to the others it is the same."""
        self.net.restart(name)
        self.current[name].core = self.net.cores[name]

    def _link_all(self, name: NodeId) -> None:
        for other in self.names:
            if other != name:
                self.net.up[name, other] = self.net.up[other, name] = 1  # what flies survives both its ends
                self.net.do(name, lambda core, now_us, peer=other: core.link_up(peer, now_us))

    def _relink(self, process: Process, peer: Process) -> None:
        if process.up and self.current[peer.name] is peer:
            self.net.do(process.name, lambda core, now_us: core.link_down(peer.name, now_us))
            if process.up:
                self.net.do(process.name, lambda core, now_us: core.link_up(peer.name, now_us))

    def _end(self, process: Process, why: str) -> None:
        process.up = False
        process.end = why
        for key in [key for key in self.net.timers if key[0] == process.name]:
            del self.net.timers[key]
        if self.labels.get(process.label) is process:
            self.record(process, Kind.CRASH)

    def _heed(self, name: NodeId, effects: Effects) -> None:
        process = self.current[name]
        core = process.core
        if not process.cut and core.phase is Phase.IN:
            process.cut = tuple(core.received)  # nothing was delivered yet: it has just been welcomed
        if not process.known:
            process.known = list(process.cut)
        for effect in effects:
            if isinstance(effect, Deliver):
                origin, number, _ = effect.message
                self._deliver(process, (core.index[origin], number))
                self.record(process, Kind.DELIVER, core.index[origin], number)

    def _answer(self, name: NodeId, effects: Effects) -> None:
        process = self.current[name]
        if any(isinstance(effect, Deliver) for effect in effects) and process.up:
            self.on_delivery(process)

    def _deliver(self, process: Process, id_: tuple[int, int]) -> None:
        for member, number in enumerate(self.pasts[id_]):
            is_message = number & MASK  # the beginning of a life is no message
            if is_message and process.known[member] < number:
                self.violations.append(f"{process.label} delivers {id_} before {(member, number)}")
        process.known[id_[0]] = id_[1]
        process.ids.append(id_)

    def _plan(self, flight: Flight) -> None:
        delay_us = self.delay_us(flight.sender, flight.to, flight.packet.control is not None)
        self.at(self.now_us + delay_us, self._arrive, self.current[flight.sender], flight)

    def _arrive(self, _: Process, flight: Flight) -> None:
        at = next(at for at, each in enumerate(self.net.flying) if each is flight)
        if self.current[flight.to].up:
            self.net.arrive(at)
        else:
            self.net.lose(at)

    def record(self, process: Process, kind: Kind, member: int = -1, number: int = 0) -> None:
        user = self.labels.setdefault(process.label, process)
        assert user is process, f"two processes live the life {process.label}"
        origin = None
        if member >= 0:
            life = number >> LIFE_BITS
            origin = self.names[member] if not life else f"{self.names[member]}+{life}"
        self.trace.event(process.label, self.now_us, kind, origin, number & MASK)

    # Judging

    def verdict(self) -> RunReport:
        """What the independent verifier says about the order, over all lives."""
        names = sorted({*self.names, *self.labels})
        return verify_table(self.trace.table("world"), ORDERED, names, run="world")

    def disagreements(self) -> list[str]:
        """What the survivors do not agree on, or still hold, once all is quiet."""
        live = self.live()
        if not any(process.core.phase is Phase.IN for process in live):
            return self.violations  # nobody is left who could let anybody in
        problems = list(self.violations)
        if self.tests_are_right:
            wrong = [process.label for process in self.processes if process.end == Reason.GONE]
            problems += [f"{label} was expelled, and nobody could have suspected it" for label in wrong]
        for process in live:
            core = process.core
            if core.phase is not Phase.IN:
                problems.append(f"{process.label} is {core.phase}")
                continue
            if core.roster.stamps != live[0].core.roster.stamps:
                problems.append(f"{process.label} has the view {core.roster.stamps}")
            if core.explain() or core.pending or core.early:
                problems.append(f"{process.label} holds {core.explain() or core.pending or core.early}")
            if len(core.store):
                problems.append(f"{process.label} keeps {len(core.store)} messages: {core.store.kept}")
        present = sorted(process.core.my_index for process in live)
        if live and list(live[0].core.roster.present) != present:
            problems.append(f"present are {present}, believed {live[0].core.roster.present}")
        everything = {id_ for process in live for id_ in process.ids}
        for process in live:
            due = everything | self._left_by(process)
            wanted = {id_ for id_ in due if id_[1] > process.cut[id_[0]]} if process.cut else set()
            if set(process.ids) != wanted:
                missing, more = sorted(wanted - set(process.ids)), sorted(set(process.ids) - wanted)
                problems.append(f"{process.label} misses {missing[:5]} and has {more[:5]} before its cut")
        return problems

    def _left_by(self, survivor: Process) -> set[tuple[int, int]]:
        """What those had delivered who left in order: they waited for all who were in their view."""
        core = survivor.core
        left = [process for process in self.processes if process.end == Reason.LEFT]
        owed = [leaver.owed for leaver in left if leaver.core.roster.stamps[core.my_index] == 2 * core.life]
        return set().union(*owed)


def quiet(world: World, *, rounds: int = 40) -> None:
    """Let the tests run for a while without anything else."""
    world.run(world.now_us + rounds * INTERVAL_US)


def settle(world: World) -> None:
    """Let the tests run until all agree, or for as long as it can take.

    When all but one crash together, the last finds them out one after the other: each search of a
    cluster goes on when the one before has failed.
    """
    for _ in range(5 + 2 * len(world.names)):
        quiet(world, rounds=10)
        if not world.disagreements():
            break
    quiet(world, rounds=5)  # and it stays so


def chatter(world: World, names: Sequence[NodeId], every_us: int, stop_us: int) -> None:
    """Members broadcast at random times, and answer some of what they deliver."""
    draw = world.draw

    def speak(name: NodeId) -> None:
        world.broadcast(name, b"say")
        if world.now_us < stop_us:
            world.at(world.now_us + draw.randrange(1, 2 * every_us), speak, name)

    def answer(process: Process) -> None:
        if world.now_us < stop_us and draw.random() < 0.15:
            world.at(world.now_us + draw.randrange(2_000), world.broadcast, process.name, b"re")

    world.on_delivery = answer
    for name in names:
        world.at(draw.randrange(1, 2 * every_us), speak, name)
