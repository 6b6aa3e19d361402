"""Flooding, which the baselines share.

A node passes the first copy of a message on to every neighbour but the one that it came
from, so that a message reaches every node over any connected graph of links, even if its origin
crashes after the first send. With `relay = False` only the origin sends: right where every node is
linked to every other and origins do not crash in the middle of a broadcast. A message then comes from its
origin or not at all: a copy from another node is forged.

`Relaying` is the links and the passing on, for any group. In a group whose members are known, a subclass of
`Flooding` says when a first copy may be delivered (`_accept`) and what a packet looks like.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from whence.core.effects import Discard, Effects, Reason, Send
from whence.core.group import check_peer, group_of, id_of
from whence.core.message import MessageId, NodeId, Packet
from whence.core.parameters import Parameters, flag
from whence.core.protocol import Protocol

RELAY = flag("relay", default=True)


class Relaying(Protocol):
    """A node, its neighbours, and how a first copy is passed on; nothing about who is in the group."""

    def __init__(self, me: NodeId, *, relay: bool) -> None:
        self.me = me
        self.relay = relay
        self.last = 0
        self.neighbours: tuple[NodeId, ...] = ()
        # For each neighbour all the others, made when first needed: a full mesh has n^2 of them.
        self._without: dict[NodeId, tuple[NodeId, ...] | None] = {}

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
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


class Flooding(Relaying):
    """A known group, and the guard against duplicates."""

    parameters: ClassVar[Parameters] = Parameters(RELAY)

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        self.members, self.index, self.my_index = group_of(me, members)
        super().__init__(me, relay=self.parameters.read(self.name, given)["relay"])

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        if peer not in self._without:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        refused = self._refuse(packet)
        if refused is not None:
            return [Discard(self.message_of(packet), peer, refused)]
        if not self.relay and self.members[packet[0]] != peer:
            return [Discard(self.message_of(packet), peer, Reason.FORGED)]
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

    def message_of(self, packet: Packet) -> MessageId | None:
        return id_of(self.members, packet[0], packet[1])
