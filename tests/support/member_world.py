"""A world in which members of a VCube crash, are suspected, leave and join, all drawn from one seed.

Links are not FIFO; between processes that live they lose nothing. What a crashed process had sent may
be lost, and it may crash in the middle of a broadcast. Every process has its own name in the trace
("n3", and "n3+2" in its life 2), so that the verifier can judge each life by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from whence.core.effects import (
    CancelTimer,
    Deliver,
    Discard,
    Effects,
    Reason,
    Send,
    SetTimer,
    Stop,
)
from whence.core.message import NodeId, Packet
from whence.core.protocol import LEAVE
from whence.protocols.vcube.control import LIFE_BITS
from whence.protocols.vcube.members import Phase, VCubeMembers
from whence.trace.memory import MemoryTrace
from whence.trace.schema import Kind, PromisesMade
from whence.verify.report import RunReport
from whence.verify.run import verify_table

MASK = (1 << LIFE_BITS) - 1
INTERVAL_US, TIMEOUT_US = 20_000, 120_000
Make = Callable[..., VCubeMembers]


@dataclass
class Process:
    """One run of a member's program."""

    name: NodeId
    serial: int
    core: VCubeMembers
    up: bool = True
    end: str = ""  # why it is not up
    cut: tuple[int, ...] = ()  # where its deliveries begin
    ids: list[tuple[int, int]] = field(default_factory=list)  # what it delivered: (member, number)
    known: list[int] = field(default_factory=list)  # for each member the newest number in its past
    timers: dict[str, int] = field(default_factory=dict)
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
        self.make = make
        self.check = check
        self.params = {
            "test_interval_us": INTERVAL_US,
            "test_timeout_us": TIMEOUT_US,
            "start_timeout_us": 4 * TIMEOUT_US,
            **params,
        }
        width = len(str(size - 1))
        self.names = [f"n{index:0{width}d}" for index in range(size)]
        self.now_us = 0
        self.heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.serial = 0
        self.trace = MemoryTrace()
        self.labels: dict[str, int] = {}  # label -> serial of the process that used it
        self.discards: dict[str, int] = {}
        self.packets = 0
        self.pasts: dict[tuple[int, int], list[int]] = {}  # message -> `known` of its origin before it
        self.violations: list[str] = []  # of a joiner's past, which begins with the cut: no trace shows that
        self.delay_us: Callable[[NodeId, NodeId, bool], int] = lambda *_: self.draw.randrange(500, 8_000)
        self.on_delivery: Callable[[Process], None] = lambda _process: None
        self.tests_are_right = False  # nothing delays a test so much that a process is suspected wrongly
        self.processes: list[Process] = []
        self.current = {name: self._start(name, joins=False) for name in self.names}
        for process in self.processes:
            self._link_all(process)

    # What a test does

    def at(self, time_us: int, action: Callable[..., None], *args: Any) -> None:
        """Do something at a time."""
        self.serial += 1
        heappush(self.heap, (max(time_us, self.now_us), self.serial, action, args))

    def run(self, until_us: int) -> None:
        """Let everything happen that is due before a time."""
        while self.heap and self.heap[0][0] < until_us:
            self.now_us, _, action, args = heappop(self.heap)
            action(*args)
        self.now_us = until_us

    def broadcast(self, name: NodeId, payload: bytes = b"") -> bool:
        """Broadcast, if the member is in a state to."""
        process = self.current[name]
        core = process.core
        if not process.up or core.phase is not Phase.IN or core.leaving:
            return False
        effects = core.broadcast(payload, self.now_us)
        self.pasts[core.my_index, core.last] = list(process.known)
        self._row(process, Kind.BROADCAST, core.my_index, core.last)
        if process.crash_after is not None:
            self._carry_out(process, effects[: process.crash_after])
            self.crash(name)
        else:
            self._carry_out(process, effects)
        return True

    def crash(self, name: NodeId) -> None:
        """Kill the process; half of what it has under way is lost."""
        process = self.current[name]
        if process.up:
            self._end(process, "crash")
            lost = [entry for entry in self.heap if entry[2] == self._arrive and entry[3][0] is process]
            kept = {id(entry) for entry in lost if self.draw.random() < 0.5}
            gone = {id(entry) for entry in lost} - kept
            self.heap = [entry for entry in self.heap if id(entry) not in gone]
            self.heap.sort()

    def leave(self, name: NodeId) -> None:
        """Ask the member to leave."""
        process = self.current[name]
        if process.up:
            process.owed = process.owed or set(process.ids)
            self._carry_out(process, process.core.timer(LEAVE, self.now_us))

    def join(self, name: NodeId, *, noticed: bool = True) -> None:
        """Start a new process of a member that is not up; `noticed`: its peers' hosts see that it is new."""
        if self.current[name].up:
            return
        process = self.current[name] = self._start(name, joins=True)
        self._link_all(process)
        if noticed:
            for other in self.live():
                if other is not process:
                    self.at(self.now_us + self.draw.randrange(3_000), self._relink, other, process)

    def live(self) -> list[Process]:
        """The processes that are up."""
        return [process for process in self.current.values() if process.up]

    # The machinery

    def _start(self, name: NodeId, *, joins: bool) -> Process:
        self.serial += 1
        core = self.make(name, self.names, joins=joins, **self.params)
        process = Process(name, self.serial, core, cut=() if joins else (0,) * len(self.names))
        self.processes.append(process)
        return process

    def _link_all(self, process: Process) -> None:
        for other in self.names:
            if other != process.name:
                self._carry_out(process, process.core.link_up(other, self.now_us))

    def _relink(self, process: Process, peer: Process) -> None:
        if process.up and self.current[peer.name] is peer:
            self._carry_out(process, process.core.link_down(peer.name, self.now_us))
            if process.up:
                self._carry_out(process, process.core.link_up(peer.name, self.now_us))

    def _end(self, process: Process, why: str) -> None:
        process.up = False
        process.end = why
        if self.labels.get(process.label) == process.serial:
            self._row(process, Kind.CRASH)

    def _carry_out(self, process: Process, effects: Effects) -> None:
        core = process.core
        if not process.cut and core.phase is Phase.IN:
            process.cut = tuple(core.received)  # nothing was delivered yet: it has just been welcomed
        if not process.known:
            process.known = list(process.cut)
        for effect in effects:
            if isinstance(effect, Send):
                for to in effect.to:
                    self.packets += 1
                    delay_us = self.delay_us(process.name, to, effect.packet.control is not None)
                    self.at(self.now_us + delay_us, self._arrive, process, to, effect.packet)
            elif isinstance(effect, Deliver):
                origin, number, _ = effect.message
                self._deliver(process, (core.index[origin], number))
                self._row(process, Kind.DELIVER, core.index[origin], number)
            elif isinstance(effect, SetTimer):
                process.timers[effect.key] = effect.at_us
                self.at(effect.at_us, self._timer, process, effect.key, effect.at_us)
            elif isinstance(effect, CancelTimer):
                process.timers.pop(effect.key, None)
            elif isinstance(effect, Discard):
                self.discards[effect.reason] = self.discards.get(effect.reason, 0) + 1
            elif isinstance(effect, Stop):
                self._end(process, str(effect.reason))
        if self.check:
            core.check()
        if any(isinstance(effect, Deliver) for effect in effects) and process.up:
            self.on_delivery(process)

    def _deliver(self, process: Process, id_: tuple[int, int]) -> None:
        for member, number in enumerate(self.pasts[id_]):
            is_message = number & MASK  # the beginning of a life is no message
            if is_message and process.known[member] < number:
                self.violations.append(f"{process.label} delivers {id_} before {(member, number)}")
        process.known[id_[0]] = id_[1]
        process.ids.append(id_)

    def _arrive(self, sender: Process, to: NodeId, packet: Packet) -> None:
        process = self.current[to]
        if process.up:
            self._carry_out(process, process.core.receive(sender.name, packet, self.now_us))

    def _timer(self, process: Process, key: str, at_us: int) -> None:
        if process.up and process.timers.get(key) == at_us:
            del process.timers[key]
            self._carry_out(process, process.core.timer(key, self.now_us))

    def _row(self, process: Process, kind: Kind, member: int = -1, number: int = 0) -> None:
        user = self.labels.setdefault(process.label, process.serial)
        assert user == process.serial, f"two processes live the life {process.label}"
        origin = None
        if member >= 0:
            life = number >> LIFE_BITS
            origin = self.names[member] if not life else f"{self.names[member]}+{life}"
        self.trace.event(process.label, self.now_us, kind, origin, number & MASK)

    # Judging

    def verdict(self) -> RunReport:
        """What the independent verifier says about the order, over all lives."""
        promises = PromisesMade(causal=True, fifo=True, no_duplicates=True, complete=False)
        names = sorted({*self.names, *self.labels})
        return verify_table(self.trace.table("world"), promises, names, run="world")

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
