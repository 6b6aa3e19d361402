"""Cores and engines that count what Table 1 of paper 003 is about.

    numbers     on a message: the message's own and those that say what it follows
    work        entries of control information that a delivery reads or writes, besides its own number
    space       entries that a process holds, sampled
    opening     packets that a core sends because a link came up

Each core does what its protocol does; it only keeps count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whence.core.clocks import Delta
from whence.core.effects import Effects, Send
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol
from whence.protocols import registry
from whence.protocols.barrier.wire import BarrierPacket
from whence.protocols.baselines.flooding import Relaying
from whence.protocols.baselines.reliable import Reliable
from whence.protocols.baselines.vector import Vector, VectorPacket
from whence.protocols.prc.link_memory import Key, LinkMemory
from whence.protocols.prc.preventive import Preventive
from whence.protocols.prc.wire import MESSAGE
from whence.sim.engine import Engine
from whence.sim.model import Scenario
from whence.trace.rows import About
from whence.trace.schema import Kind, Level, Recorder

SAMPLED_FROM = 0.6  # of the run: by then nearly everybody has broadcast
NEWCOMER = "newcomer"  # a name that no simulated node has


class CountedReliable(Reliable):
    """Reads and writes the count of the origin, and what came before its turn."""

    work = 0

    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        super()._accept(packet, now_us, effects)
        self.work += len(self.beyond.get(packet[0], ()))


class CountedVector(Vector):
    """Compares every entry of a delta, each time that it looks at it."""

    work = 0

    def _met(self, after: Delta) -> bool:
        self.work += len(after) // 2
        return super()._met(after)

    def _obstacle(self, packet: VectorPacket) -> tuple[int, int] | None:
        self.work += len(packet.after) // 2
        return super()._obstacle(packet)


class CountedPreventive(Preventive):
    """Adds a message to the buffer of every link that is being opened."""

    work = 0

    def _take(self, message: Message, came_from: NodeId | None, now_us: int, effects: Effects) -> None:
        super()._take(message, came_from, now_us, effects)
        self.work += len(self.pinged)


class CountedLinkMemory(LinkMemory):
    """Tags every link but the one that the message came over."""

    work = 0

    def _take(self, message: Message, came_from: NodeId | None, now_us: int, effects: Effects) -> None:
        super()._take(message, came_from, now_us, effects)
        key: Key = (message.origin, message.number)
        self.work += len(self.expected.get(key, ()))


COUNTED: dict[str, Callable[..., Protocol]] = {
    each.name: each for each in (CountedReliable, CountedVector, CountedPreventive, CountedLinkMemory)
}


def numbers_on(packet: Packet) -> int:
    """The numbers on a packet that say which message it is and what it follows."""
    if isinstance(packet, VectorPacket):
        return 1 + len(packet.after) // 2
    if isinstance(packet, BarrierPacket):
        return 1 + len(packet.barrier)
    return 1


class Samples:
    """A recorder that adds up samples of the second part of a run, and passes on what a trace is to keep."""

    def __init__(self, writer: Recorder, level: Level, stop_us: int) -> None:
        self.count = self.entries = 0
        self._writer = writer
        self._is_kept = level >= Level.DELIVERIES
        self._from_us, self._stop_us = int(SAMPLED_FROM * stop_us), stop_us

    def event(
        self,
        node: str,
        time_us: int,
        kind: Kind,
        origin: str | None = None,
        number: int = 0,
        peer: str | None = None,
        total_bytes: int = 0,
        control_bytes: int = 0,
        detail: str | None = None,
    ) -> None:
        """Count one event."""
        if kind == Kind.SAMPLE:
            if detail == "entries" and self._from_us <= time_us < self._stop_us:
                self.count += 1
                self.entries += number
        elif self._is_kept or kind == Kind.BROADCAST:
            self._writer.event(
                node, time_us, kind, origin, number, peer, total_bytes, control_bytes, detail
            )  # fmt: skip


class StaticEngine(Engine):
    """The engine, looking at every packet."""

    def __init__(self, scenario: Scenario, recorder: Recorder, level: Level) -> None:
        def make(me: NodeId, members: Sequence[NodeId]) -> Protocol:
            counted = COUNTED.get(scenario.protocol)
            if counted is not None:
                return counted(me, members, **scenario.params)
            return registry.make(scenario.protocol, me, members, scenario.params)

        super().__init__(scenario, make, recorder, level=level)
        self.copies = self.numbers = self.control_bytes = 0
        self._known: dict[Packet, tuple[int, int]] = {}  # a flooded packet is sized once

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        known = self._known.get(packet)
        if known is None:
            control_bytes = self.drivers[node].core.sizes(packet).control_bytes
            known = self._known[packet] = (numbers_on(packet), control_bytes)
        self.copies += len(to)
        self.numbers += len(to) * known[0]
        self.control_bytes += len(to) * known[1]
        super().send(node, to, packet, time_us, about)

    def opened(self) -> tuple[int, int] | None:
        """Packets and bytes of both ends when a link comes up after a run; None: it is not allowed."""
        cores = [driver.core for driver in self.drivers[:2]]
        if not all(isinstance(core, Relaying) for core in cores):
            return None
        effects = [effect for core in cores for effect in core.link_up(NEWCOMER, self.time_us)]
        sizes = [cores[0].sizes(each.packet).control_bytes for each in effects if isinstance(each, Send)]
        return len(sizes), sum(sizes)


class OpeningEngine(Engine):
    """The engine over changing links, with the bytes of messages and of all the rest apart."""

    def __init__(self, scenario: Scenario, recorder: Recorder, level: Level) -> None:
        super().__init__(scenario, None, recorder, level=level)
        self.message_copies = self.message_bytes = self.other_packets = self.other_bytes = 0

    def send(
        self, node: int, to: tuple[NodeId, ...], packet: Packet, time_us: int, about: About | None
    ) -> None:
        control_bytes = self.drivers[node].core.sizes(packet).control_bytes
        if packet[0] == MESSAGE:
            self.message_copies += len(to)
            self.message_bytes += len(to) * control_bytes
        else:
            self.other_packets += len(to)
            self.other_bytes += len(to) * control_bytes
        super().send(node, to, packet, time_us, about)
