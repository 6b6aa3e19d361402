"""Counts what Table 1 of paper 003 is about: with cores and observers in a run, and with cores in one room.

    numbers     on a message: the message's own and those that say what it follows
    work        entries of control information that a delivery reads or writes, besides its own number
    space       entries that a process holds, sampled
    opening     packets that a core sends because a link came up

Deliveries are watched from outside; only the vector core counts what it compares, where it is asked what a
message misses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from whence.core.clocks import Delta
from whence.core.effects import Deliver, Effects, Send
from whence.core.message import NodeId, Packet
from whence.core.protocol import Protocol
from whence.lab.observer import Observer
from whence.protocols import registry
from whence.protocols.barrier.wire import BarrierPacket
from whence.protocols.baselines.flooding import Relaying
from whence.protocols.baselines.reliable import Reliable
from whence.protocols.baselines.vector import Vector, VectorPacket
from whence.protocols.prc.link_memory import LinkMemory
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.preventive import Preventive
from whence.protocols.prc.wire import MESSAGE, ROUTED, PrcPacket
from whence.sim.model import Scenario, node_names
from whence.sim.outcome import Outcome
from whence.trace.measures import Value
from whence.trace.schema import Kind, Level

SAMPLED_FROM = 0.6  # of the run: by then nearly all nodes have broadcast
NEWCOMER = "newcomer"  # a name that no simulated node has
HANDSHAKE = (b"alpha", b"beta", b"pi", b"rho")  # opener and target take turns


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


# Ways of control, and graphs on which nothing is held: cores in one room, a queue for each run, no time. A
# case counts packets and entries, and draws nothing.
#
#     mediated    A adds B through C: α, β, π, ρ over two hops each
#     back_link   B has A in its view already: β and ρ go over that link, one hop (links here open both ways
#                 at once, so the short way is the room's, not the core's)
#     routed      an overlay that routes: a tree of joins in which the way from the first process to the last
#                 is log2 P long
#     flooded     no route is known: each of the four is broadcast to all, in a full mesh
#     ring        links one way round: who passes a message on has no second copy to wait for
#     tree        links from the root down; only the root broadcasts
#     two_way     the same tree with links both ways, as this package has them: each copy is echoed


class OneWay(LinkMemory):
    """Link memory whose links lead one way."""

    def sends_to(self, peers: Iterable[NodeId]) -> None:
        """Qo, and no echo from there."""
        self.out_view = tuple(sorted(peers))

    def hears_from(self, peers: Iterable[NodeId]) -> None:
        """Qi."""
        self.in_view = set(peers)


class Room:
    """Cores, and what is on its way between them, in the order of sending."""

    def __init__(self, cores: Mapping[NodeId, LinkMemory], shortcuts: Iterable[tuple[NodeId, NodeId]] = ()):
        self.cores = cores
        self.control = self.copies = self.entries_max = 0
        self.delivered: list[tuple[NodeId, bytes]] = []
        self._shortcuts = frozenset(shortcuts)
        self._queue: deque[tuple[NodeId, NodeId, NodeId, Packet]] = deque()  # from, as if from, to, what

    def do(self, node: NodeId, effects: Effects) -> None:
        """Carry out what a core wants."""
        for effect in effects:
            if isinstance(effect, Send):
                for peer in effect.to:
                    self._send(node, peer, effect.packet)
            elif isinstance(effect, Deliver):
                self.delivered.append((node, effect.message.payload))

    def _send(self, node: NodeId, peer: NodeId, packet: Packet) -> None:
        """A control packet takes a shortcut to its end where there is one, and arrives as if it had not."""
        if isinstance(packet, PrcPacket) and packet.kind in ROUTED:
            end = packet.route[0] if packet.route[-1] == node else None
            if end is not None and (node, end) in self._shortcuts:
                self._queue.append((node, peer, end, packet))
                return
        self._queue.append((node, node, peer, packet))

    def settle(self, watched: Iterable[NodeId] = ()) -> None:
        """Until nothing is on its way; what the watched hold is noted at every step."""
        watched = tuple(watched)
        self._look(watched)
        while self._queue:
            _, source, target, packet = self._queue.popleft()
            if isinstance(packet, PrcPacket) and packet.kind != MESSAGE:
                self.control += packet.kind in ROUTED
            else:
                self.copies += 1
            self.do(target, self.cores[target].receive(source, packet, 0))
            self._look(watched)

    def _look(self, watched: Iterable[NodeId]) -> None:
        self.entries_max = max([self.entries_max, *(self.cores[node].entries() for node in watched)])


def _joined(nodes: int) -> tuple[Room, list[NodeId], dict[NodeId, Prc]]:
    """A group in which each process has joined at the one whose number lacks its highest bit."""
    names = node_names(nodes)
    cores = {name: Prc(name, [name], links="dynamic") for name in names}
    room = Room(cores)
    cores[names[0]].found()
    for at in range(1, nodes):
        contact, joiner = names[at ^ 1 << at.bit_length() - 1], names[at]
        _link(cores, contact, joiner)
        room.do(joiner, cores[joiner].join(contact, 0))
        room.settle()
    return room, names, cores


def _link(cores: Mapping[NodeId, Prc], one: NodeId, other: NodeId) -> None:
    cores[one].link_up(other, 0)
    cores[other].link_up(one, 0)


def _opened(room: Room, cores: Mapping[NodeId, Prc], route: tuple[NodeId, ...]) -> dict[str, Value]:
    """Open a link along a route; it must be safe at both ends afterwards."""
    opener, target = route[0], route[-1]
    _link(cores, opener, target)
    room.do(opener, cores[opener].open(target, route, 0))
    room.settle()
    is_safe = cores[opener].is_safe_with(target) and cores[target].is_safe_with(opener)
    return {"hops": room.control, "safe": int(is_safe)}


def mediated(nodes: int) -> dict[str, Value]:
    """A, C and B in a row."""
    room, names, cores = _joined(3)  # n1 and n2 have joined at n0
    return _opened(room, cores, (names[1], names[0], names[2]))


def back_link(nodes: int) -> dict[str, Value]:
    """The same, and a link that leads from B to A."""
    _, names, cores = _joined(3)
    room = Room(cores, shortcuts=[(names[2], names[1])])
    return _opened(room, cores, (names[1], names[0], names[2]))


def routed(nodes: int) -> dict[str, Value]:
    """From the first process to the last of P = 2^k: each step sets one bit."""
    room, names, cores = _joined(nodes)
    route = [names[(1 << bits) - 1] for bits in range(nodes.bit_length())]
    return _opened(room, cores, tuple(route))


def flooded(nodes: int) -> dict[str, Value]:
    """Opener and target broadcast the handshake in a full mesh: each copy that is sent counts."""
    names = node_names(nodes)
    cores = {name: LinkMemory(name, [name]) for name in names}
    for name in names:
        for other in names:
            if other != name:
                cores[name].link_up(other, 0)
    room = Room(cores)
    heard = 0
    for turn, word in enumerate(HANDSHAKE):
        speaker, listener = (names[0], names[-1]) if turn % 2 == 0 else (names[-1], names[0])
        room.do(speaker, cores[speaker].broadcast(word, 0))
        room.settle()
        heard += (listener, word) in room.delivered
    return {"hops": room.copies, "safe": int(heard == len(HANDSHAKE))}


def ring(nodes: int) -> dict[str, Value]:
    """Links one way round: the most that any other than the origin holds, and that the origin holds."""
    names = node_names(nodes)
    after = {name: names[(at + 1) % nodes] for at, name in enumerate(names)}
    return _held(names, {name: [after[name]] for name in names})


def tree(nodes: int) -> dict[str, Value]:
    """Links from the root down."""
    names = node_names(nodes)
    return _held(names, {name: _children(names, at) for at, name in enumerate(names)})


def two_way(nodes: int) -> dict[str, Value]:
    """The tree with links both ways."""
    names = node_names(nodes)
    links: dict[NodeId, list[NodeId]] = {name: [] for name in names}
    for at, name in enumerate(names):
        for child in _children(names, at):
            links[name].append(child)
            links[child].append(name)
    return _held(names, links)


def _children(names: list[NodeId], at: int) -> list[NodeId]:
    return names[2 * at + 1 : 2 * at + 3]


def _held(names: list[NodeId], links: Mapping[NodeId, list[NodeId]]) -> dict[str, Value]:
    """Two messages of the first process, one after the other without waiting."""
    cores = {name: OneWay(name, [name]) for name in names}
    for name in names:
        cores[name].sends_to(links[name])
        cores[name].hears_from(other for other in names if name in links[other])
    held: list[int] = []
    for watched in (names[1:], names[:1]):
        room = Room(cores)
        for _ in range(2):
            room.do(names[0], cores[names[0]].broadcast(b"", 0))
        room.settle(watched)
        held.append(room.entries_max)
    counts: dict[str, Value] = {"entries_others": held[0], "entries_origin": held[1]}
    return counts | {"entries_left": sum(core.entries() for core in cores.values())}


CASES: dict[str, Callable[[int], dict[str, Value]]] = {
    "mediated": mediated,
    "back_link": back_link,
    "routed": routed,
    "flooded": flooded,
    "ring": ring,
    "tree": tree,
    "two_way": two_way,
}
