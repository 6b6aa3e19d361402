"""Flooding, and what the baselines share besides: a known group and the duplicate guard.

Flooding: a node passes the first copy of a message on to every neighbour but the one that it came
from, so that a message reaches everybody over any connected graph of links, even if its origin
crashes after the first send. With `relay = False` only the origin sends: right where every node is
linked to every other and origins do not crash in the middle of a broadcast. A message then comes from its
origin or not at all: a copy from anybody else is forged.

`Relaying` is the links and the passing on, for any group. In a group whose members are known, a subclass of
`Flooding` says when a first copy may be delivered (`_accept`) and what a packet looks like.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from whence.core.effects import Discard, Effects, Reason, Send
from whence.core.message import MessageId, NodeId, Packet
from whence.core.protocol import Protocol
from whence.errors import InvariantError, MisuseError, ParameterError

# A number further ahead than this can only be a mistake or an attack: it would be held for ever.
WINDOW_MAX = 1_000_000
NUMBER_MAX = 2**62  # what a trace's 64-bit column can hold, with room to compute


class Relaying(Protocol):
    """A node, its neighbours, and how a first copy is passed on; nothing about who is in the group."""

    def __init__(self, me: NodeId, *, relay: bool = True) -> None:
        if not isinstance(relay, bool):
            raise ParameterError("relay", f"{relay!r} is not a boolean", "Use true or false")
        self.me = me
        self.relay = relay
        self.last = 0
        self.neighbours: tuple[NodeId, ...] = ()
        # For each neighbour all the others, made when first needed: a full mesh has n^2 of them.
        self._without: dict[NodeId, tuple[NodeId, ...] | None] = {}

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        if peer == self.me:
            raise MisuseError(f"link {peer!r}", "a node has no link to itself", "Name another node")
        self._set_neighbours({*self.neighbours, peer})
        return []

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        self._set_neighbours(set(self.neighbours) - {peer})
        return []

    def _set_neighbours(self, peers: set[NodeId]) -> None:
        self.neighbours = tuple(sorted(peers))
        self._without = dict.fromkeys(self.neighbours)

    def _pass_on(self, peer: NodeId, packet: Packet, effects: Effects) -> None:
        """Flood: send a first copy to every neighbour but the one that it came from."""
        others = self._without[peer]
        if others is None:
            others = self._without[peer] = tuple(other for other in self.neighbours if other != peer)
        if others:
            effects.append(Send(others, packet))

    def _require(self, holds: bool, rule: str) -> None:
        if not holds:
            raise InvariantError(f"{self.name} at {self.me}", rule)


class Flooding(Relaying):
    """Members are indexed by their place in the sorted list, so that all nodes agree without talking."""

    def __init__(self, me: NodeId, members: Iterable[NodeId], *, relay: bool = True) -> None:
        self.members = tuple(sorted(set(members)))
        if me not in self.members:
            raise ParameterError(
                f"node {me!r}", "it is not among the group's members", "Add it to the members"
            )
        super().__init__(me, relay=relay)
        self.my_index = self.members.index(me)
        self.index = {name: at for at, name in enumerate(self.members)}

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if peer not in self._without:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        refused = self._refuse(packet)
        if refused is not None:
            return [Discard(self._named(packet), peer, refused)]
        if not self.relay and self.members[packet[0]] != peer:
            return [Discard(self._named(packet), peer, Reason.FORGED)]
        effects: Effects = []
        if self.relay:
            self._pass_on(peer, packet, effects)
        self._accept(packet, now_us, effects)
        return effects

    @abstractmethod
    def _refuse(self, packet: Packet) -> Reason | None:
        """Why the packet ends here (malformed, forged, seen before), or None for a first copy."""

    @abstractmethod
    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        """Deliver a first copy and whatever it was the last obstacle for, or hold it."""

    def _refuse_id(self, origin: int, number: int, delivered: list[int]) -> Reason | None:
        """The part of `_refuse` that needs only the id and what has been delivered of each member."""
        if not 0 <= origin < len(delivered):
            return Reason.UNKNOWN_ORIGIN
        if number < 1:
            return Reason.MALFORMED
        if number <= delivered[origin]:
            return Reason.DUPLICATE
        if origin == self.my_index:
            return Reason.FORGED
        if number > delivered[origin] + WINDOW_MAX:
            return Reason.TOO_FAR_AHEAD
        return None

    def _named(self, packet: Packet) -> MessageId | None:
        """The packet's message id, or None where it names a member or a number that cannot be."""
        origin, number = packet[0], packet[1]
        if 0 <= origin < len(self.members) and 0 < number < NUMBER_MAX:
            return MessageId(self.members[origin], number)
        return None

    def message_of(self, packet: Packet) -> MessageId | None:
        return self._named(packet)


def check_payload(payload: bytes) -> None:
    """Refuse anything but bytes: text needs an encoding that only the application knows."""
    if not isinstance(payload, bytes):
        raise MisuseError(
            "payload", f"it is {type(payload).__name__}, not bytes", "Encode it, as in text.encode()"
        )


class Gaps:
    """What is missing before each held message, asked in ascending order: linear in what is held."""

    def __init__(self, delivered: list[int]) -> None:
        self._seen = list(delivered)  # of each origin, the newest number that is delivered or was asked about
        self._missing: dict[int, list[tuple[int, int]]] = {}

    def before(self, origin: int, number: int) -> list[tuple[int, int]]:
        """The numbers of `origin` below `number` that are neither delivered nor held."""
        missing = self._missing.setdefault(origin, [])
        missing += [(origin, gap) for gap in range(self._seen[origin] + 1, number)]
        self._seen[origin] = number
        return list(missing)
