"""Cores and observers that count what Table 1 of paper 003 is about.

    numbers     on a message: the message's own and those that say what it follows
    work        entries of control information that a delivery reads or writes, besides its own number
    space       entries that a process holds, sampled
    opening     packets that a core sends because a link came up

Each core does what its protocol does; it only keeps count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from whence.core.clocks import Delta
from whence.core.effects import Effects, Send
from whence.core.message import Message, NodeId, Packet
from whence.core.protocol import Protocol
from whence.lab.observer import Observer
from whence.protocols import registry
from whence.protocols.barrier.wire import BarrierPacket
from whence.protocols.baselines.flooding import Relaying
from whence.protocols.baselines.reliable import Reliable
from whence.protocols.baselines.vector import Vector, VectorPacket
from whence.protocols.prc.link_memory import Key, LinkMemory
from whence.protocols.prc.preventive import Preventive
from whence.protocols.prc.wire import MESSAGE
from whence.sim.cores import Make
from whence.sim.model import Scenario
from whence.sim.outcome import Outcome
from whence.trace.measures import Value
from whence.trace.schema import Kind

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


def counting_cores(scenario: Scenario) -> Make:
    """Return the maker of cores that count, where there are such."""

    def make(me: NodeId, members: Sequence[NodeId]) -> Protocol:
        counted = COUNTED.get(scenario.protocol)
        if counted is not None:
            return counted(me, members, **scenario.params)
        return registry.make(scenario.protocol, me, members, scenario.params)

    return make


class StaticWatch(Observer):
    """Counts on links that stay: packets, and samples of the second part of a run."""

    def __init__(self, scenario: Scenario) -> None:
        self._stop_us = scenario.stop.duration_us
        self._from_us = int(SAMPLED_FROM * self._stop_us)
        self._samples = self._entries = 0
        self._copies = self._numbers = self._control_bytes = self._work = 0
        self._known: dict[Packet, tuple[int, int]] = {}  # a flooded packet is sized once

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
        """Count one sample."""
        if kind == Kind.SAMPLE and detail == "entries" and self._from_us <= time_us < self._stop_us:
            self._samples += 1
            self._entries += number

    def sent(self, core: Protocol, to: tuple[NodeId, ...], packet: Packet, time_us: int) -> None:
        """Count the copies of one packet."""
        known = self._known.get(packet)
        if known is None:
            known = self._known[packet] = (numbers_on(packet), core.sizes(packet).control_bytes)
        self._copies += len(to)
        self._numbers += len(to) * known[0]
        self._control_bytes += len(to) * known[1]

    def finished(self, cores: Sequence[Protocol], time_us: int) -> Mapping[str, Value]:
        """Return the counts; at last a link comes up, to see what that costs."""
        self._work = sum(getattr(core, "work", 0) for core in cores)
        counts: dict[str, Value] = {
            "window_us": self._stop_us,
            "copies": self._copies,
            "numbers": self._numbers,
            "control_bytes": self._control_bytes,
            "samples": self._samples,
            "sampled_entries": self._entries,
            "entries_left": sum(core.entries() for core in cores),
        }
        ends = cores[:2]
        if all(isinstance(core, Relaying) for core in ends):
            effects = [effect for core in ends for effect in core.link_up(NEWCOMER, time_us)]
            sizes = [ends[0].sizes(each.packet).control_bytes for each in effects if isinstance(each, Send)]
            counts |= {"opened_packets": len(sizes), "opened_bytes": sum(sizes)}
        return counts

    def totals(self, outcome: Outcome) -> dict[str, Value]:
        """Return the counts of messages, and of the work on them."""
        return {
            "broadcasts": outcome.broadcasts,
            "deliveries": outcome.deliveries,
            "work": outcome.deliveries + self._work,
        }


class OpeningWatch(Observer):
    """Counts on links that open and close: the bytes of messages and of all the rest apart."""

    def __init__(self) -> None:
        self._message_copies = self._message_bytes = self._other_packets = self._other_bytes = 0

    def sent(self, core: Protocol, to: tuple[NodeId, ...], packet: Packet, time_us: int) -> None:
        """Count the copies of one packet."""
        control_bytes = core.sizes(packet).control_bytes
        if packet[0] == MESSAGE:
            self._message_copies += len(to)
            self._message_bytes += len(to) * control_bytes
        else:
            self._other_packets += len(to)
            self._other_bytes += len(to) * control_bytes

    def finished(self, cores: Sequence[Protocol], time_us: int) -> Mapping[str, Value]:
        """Return the counts."""
        return {
            "message_copies": self._message_copies,
            "message_copies_bytes": self._message_bytes,
            "other_packets": self._other_packets,
            "other_bytes": self._other_bytes,
            "entries_left": sum(core.entries() for core in cores),
        }
