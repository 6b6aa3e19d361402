"""What Table 1 of paper 003 says beyond the experiment: ways of control, graphs on which nothing is held.

Cores in one room, a queue for each run, no time: a case counts packets and entries, and draws nothing.

    mediated    A adds B through C: α, β, π, ρ over two hops each
    back_link   B has A in its view already: β and ρ go over that link, one hop (links here open both ways at
                once, so the short way is the room's, not the core's)
    routed      an overlay that routes: a tree of joins in which the way from the first process to the last is
                log2 P long
    flooded     no route is known: each of the four is broadcast to all, in a full mesh
    ring        links one way round: who passes a message on has no second copy to wait for
    tree        links from the root down; only the root broadcasts
    two_way     the same tree with links both ways, as this package has them: each copy is echoed
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from whence.core.effects import Deliver, Effects, Send
from whence.core.message import NodeId, Packet
from whence.protocols.prc.link_memory import LinkMemory
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.wire import MESSAGE, ROUTED, PrcPacket
from whence.sim.model import node_names
from whence.trace.measures import Value

HANDSHAKE = (b"alpha", b"beta", b"pi", b"rho")  # opener and target take turns


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
