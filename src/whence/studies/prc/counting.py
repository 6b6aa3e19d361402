"""Cores and observers that count what Table 1 of paper 003 is about.

    numbers     on a message: the message's own and those that say what it follows
    work        entries of control information that a delivery reads or writes, besides its own number
    space       entries that a process holds, sampled
    opening     packets that a core sends because a link came up

Deliveries are watched from outside; only the vector core counts what it compares, where it is asked what a
message misses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whence.core.clocks import Delta
from whence.core.effects import Send
from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.lab.observer import Observer
from whence.protocols import registry
from whence.protocols.barrier.wire import BarrierPacket
from whence.protocols.baselines.flooding import Relaying
from whence.protocols.baselines.reliable import Reliable
from whence.protocols.baselines.vector import Vector, VectorPacket
from whence.protocols.prc.link_memory import LinkMemory
from whence.protocols.prc.preventive import Preventive
from whence.protocols.prc.wire import MESSAGE
from whence.sim.model import Scenario
from whence.sim.outcome import Outcome
from whence.trace.measures import Value
from whence.trace.schema import Kind, Level

SAMPLED_FROM = 0.6  # of the run: by then nearly all nodes have broadcast
NEWCOMER = "newcomer"  # a name that no simulated node has


class CountedVector(Vector):
    """Compares every entry of a delta, each time that it looks at it."""

    work = 0

    def is_met(self, after: Delta) -> bool:
        self.work += len(after) // 2
        return super().is_met(after)

    def missing_of(self, packet: VectorPacket) -> tuple[int, int] | None:
        self.work += len(packet.after) // 2
        return super().missing_of(packet)


def work_of(core: Protocol, origin: NodeId, number: int) -> int:
    """Return the entries that a core has read or written for a message that it has just delivered.

    Reliable reads what came before its turn, preventive adds the message to the buffer of every link that is
    being opened, link memory tags every link but the one that the message came over.
    """
    if isinstance(core, Reliable):
        return len(core.beyond.get(core.index[origin], ()))
    if isinstance(core, Preventive):
        return len(core.pinged)
    if isinstance(core, LinkMemory):
        return len(core.expected.get((origin, number), ()))
    return 0


def numbers_on(packet: Packet) -> int:
    """The numbers on a packet that say which message it is and what it follows."""
    if isinstance(packet, VectorPacket):
        return 1 + len(packet.after) // 2
    if isinstance(packet, BarrierPacket):
        return 1 + len(packet.barrier)
    return 1


class StaticWatch(Observer):
    """Counts on links that stay: packets, work, and samples of the second part of a run."""

    level = Level.DELIVERIES

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._cores: dict[NodeId, Protocol] = {}
        self._stop_us = scenario.stop.duration_us
        self._from_us = int(SAMPLED_FROM * self._stop_us)
        self._samples = self._entries = 0
        self._copies = self._numbers = self._control_bytes = self._work = 0
        self._known: dict[Packet, tuple[int, int]] = {}  # a flooded packet is sized once

    def make(self, me: NodeId, members: Sequence[NodeId]) -> Protocol:
        """Make a core of the run that is watched."""
        scenario = self._scenario
        if scenario.protocol == Vector.name:
            core: Protocol = CountedVector(me, members, **scenario.params)
        else:
            core = registry.make(scenario.protocol, me, members, scenario.params)
        self._cores[me] = core
        return core

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
        """Count one sample, or the work on one delivery."""
        if kind == Kind.DELIVER and origin is not None:
            self._work += work_of(self._cores[node], origin, number)
        elif kind == Kind.SAMPLE and detail == "entries" and self._from_us <= time_us < self._stop_us:
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
        self._work += sum(core.work for core in cores if isinstance(core, CountedVector))
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
