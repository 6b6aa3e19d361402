"""Preventive: causal broadcast over links that change, which uses a link only when that is safe (baseline).

Guarantee     every process delivers each message once, after everything that happened before its broadcast. A
              message carries one number. Memory grows with the number of processes that ever broadcast: O(N).
Assumptions   as prc.py: reliable FIFO links, control and messages in one queue, a connected graph of safe
              links.
Source        Nédelec, Molli, Mostéfaoui, "Breaking the scalability barrier of causal broadcast for large
              and dynamic systems" (2018), as the third line of Table 1 of paper 003: three control
              messages for each direction of a link that has a mediator.

    symbol                          here
    Q, safe links                   out_view; in_view guards the receiver
    B[q], since the ping to q       pinged[q]
    received messages, per origin   seen[origin]

The opener pings the target over safe links and keeps what it delivers from then on; the target pongs over
the new link: by then it has delivered all that the opener had before the ping. The opener sends its
buffer, then uses the link. Duplicates are found by the number of each origin's newest message, forever.
The target does the same for the other direction. A handshake that gets stuck closes the link; what the
target kept goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast

from whence.core.effects import CancelTimer, Deliver, Discard, Effects, Reason, Send, SetTimer
from whence.core.message import Message, MessageId, NodeId, Packet
from whence.core.parameters import Parameters
from whence.core.protocol import State
from whence.protocols.prc.links import LINKS, RELAY, TIMEOUT_US, Overlaid
from whence.protocols.prc.wire import (
    ALPHA,
    BETA,
    BUFFER,
    JOIN,
    MESSAGE,
    WELCOME,
    PrcPacket,
    direct,
    is_well_formed,
    next_hop,
    routed,
)

PING, PONG = ALPHA, BETA  # the same packets as PRC's, but a pong goes straight over the new link
_PINGED = "ping:"


class Preventive(Overlaid):
    """Causal broadcast that uses a link only when that is safe."""

    name: ClassVar[str] = "preventive"

    parameters: ClassVar[Parameters] = Parameters(LINKS, TIMEOUT_US)

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members, **given)
        self.epoch = 0
        self.seen: dict[NodeId, int] = {}
        self.pinged: dict[NodeId, tuple[int, list[Message]]] = {}  # epoch, what was delivered since the ping
        self.routes: dict[NodeId, NodeId] = {}  # links that are not used in both directions yet -> first hop

    # Dissemination

    def _receive_message(self, peer: NodeId, message: Message, now_us: int) -> Effects:
        origin, number, _ = message
        if not self._is_safe(peer):
            return [Discard(self._named(origin, number), peer, Reason.NOT_A_NEIGHBOUR)]
        refused = self._refuse(origin, number)
        if refused is not None:
            return [Discard(None, peer, refused)]
        if number <= self.seen.get(origin, 0):
            return [Discard(MessageId(origin, number), peer, Reason.DUPLICATE)]
        if origin == self.me:
            return [Discard(MessageId(origin, number), peer, Reason.FORGED)]
        effects: Effects = []
        self._take(message, peer, now_us, effects)
        return effects

    def _take(self, message: Message, came_from: NodeId | None, now_us: int, effects: Effects) -> None:
        self.is_fresh = False
        self.seen[message.origin] = message.number
        targets = tuple(peer for peer in self.out_view if peer != came_from)
        if targets:
            effects.append(Send(targets, self._packet(message)))
        for _, delivered in self.pinged.values():
            delivered.append(message)
        effects.append(Deliver(message))

    # Links

    def open(self, peer: NodeId, route: tuple[NodeId, ...], now_us: int) -> Effects:
        self._require_route(peer, route)
        self.closing.discard(peer)
        if self._is_under_way(peer):
            return []
        effects: Effects = []
        if route[1] not in self.out_view:
            self._close(peer, effects)
            return effects
        return self._ping(peer, route, now_us)

    def _is_under_way(self, peer: NodeId) -> bool:
        return peer in self.out_view or peer in self.pinged

    def is_using(self, peer: NodeId) -> bool:
        if peer in self.pinged or (peer in self.out_view) != (peer in self.in_view):
            return True
        if any(peer in neighbours for neighbours in self.relays.values()):
            return True
        return peer in self.routes.values()

    def _ping(self, peer: NodeId, route: tuple[NodeId, ...], now_us: int) -> Effects:
        self.epoch += 1
        self.pinged[peer] = (self.epoch, [])
        self.routes[peer] = route[1]
        return [
            Send((route[1],), routed(PING, self.me, self.epoch, route)),
            SetTimer(_PINGED + peer, now_us + self.timeout_us),
        ]

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        packet = cast(PrcPacket, packet)
        kind = packet.kind
        if kind == MESSAGE and not packet.route and not packet.messages:
            return self._receive_message(peer, Message(packet.origin, packet.number, packet.payload), now_us)
        if peer not in self.links:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        if not is_well_formed(packet):
            return [Discard(None, peer, Reason.MALFORMED)]
        known = {
            PING: self._on_ping,
            PONG: self._on_pong,
            BUFFER: self._on_buffer,
            JOIN: self._on_join,
            WELCOME: self._on_welcome,
        }
        if kind not in known:
            return [Discard(None, peer, Reason.MALFORMED)]
        effects = known[kind](peer, packet, now_us)
        self._close_unused(effects)
        return effects

    def _on_ping(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        if not self._is_safe(peer):
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        hop = next_hop(packet, self.me, peer)
        opener, target = packet.route[0], packet.route[-1]
        if hop is None:
            return [Discard(None, peer, Reason.MALFORMED)]
        if hop != self.me:
            if hop not in self.out_view:
                return [Discard(None, peer, Reason.NO_ROUTE)]
            effects: Effects = [Send((hop,), packet)]
            if (target, opener) in self.relays:  # the ping of the other direction: both are through
                self._end_relay(target, opener, effects)
            else:
                effects += self._relay(opener, target, (peer, hop), now_us)
            return effects
        if opener not in self.links or opener in self.in_view:
            return [Discard(None, peer, Reason.STALE)]
        effects = [Send((opener,), PrcPacket(PONG, opener, packet.number, b"", packet.route, ()))]
        if not self._is_under_way(opener) and peer in self.out_view:
            effects += self._ping(opener, packet.route[::-1], now_us)
        return effects

    def _on_pong(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        pinged = self.pinged.get(peer)
        if pinged is None or packet.origin != self.me or pinged[0] != packet.number:
            return [Discard(None, peer, Reason.STALE)]
        del self.pinged[peer]
        self._use_out(peer)
        self._end_route(peer)
        messages = tuple((origin, number, payload) for origin, number, payload in pinged[1])
        return [
            CancelTimer(_PINGED + peer),
            Send((peer,), direct(BUFFER, self.me, packet.number, messages)),
        ]

    def _on_buffer(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        if peer in self.in_view or packet.origin != peer:
            return [Discard(None, peer, Reason.STALE)]
        effects: Effects = []
        for origin, number, payload in packet.messages:
            if number > self.seen.get(origin, 0) and origin != self.me:
                self._take(Message(origin, number, payload), None, now_us, effects)
        self.in_view.add(peer)
        self._end_route(peer)
        return effects

    def _end_route(self, peer: NodeId) -> None:
        if self.is_safe_with(peer):
            self.routes.pop(peer, None)

    # Joining: without the contact's memory a joiner would take what it missed for new

    def _on_join(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        effects = super()._on_join(peer, packet, now_us)
        memory = tuple((origin, number, b"") for origin, number in sorted(self.seen.items()))
        return [
            Send(each.to, direct(WELCOME, peer, 1, memory)) if isinstance(each, Send) else each
            for each in effects
        ]

    def _on_welcome(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        effects = super()._on_welcome(peer, packet, now_us)
        if not effects:
            self.seen = {origin: number for origin, number, _ in packet.messages}
        return effects

    def _forget(self, peer: NodeId, effects: Effects) -> None:
        super()._forget(peer, effects)
        self.routes.pop(peer, None)
        if self.pinged.pop(peer, None) is not None:
            effects.append(CancelTimer(_PINGED + peer))

    def timer(self, key: str, now_us: int) -> Effects:
        effects: Effects = []
        if key.startswith(_PINGED) and key[len(_PINGED) :] in self.pinged:
            self._close(key[len(_PINGED) :], effects)
        elif key.startswith(RELAY):
            self._relay_timed_out(key)
        self._close_unused(effects)
        return effects

    # The contract

    def check(self) -> None:
        super().check()
        self._require(self.pinged.keys() <= self.links, "handshakes are for links")
        self._require(not self.pinged.keys() & set(self.out_view), "a used link is not pinged")
        self._require(self.seen.get(self.me, 0) == self.last, "own messages are delivered immediately")

    def save(self) -> State:
        return super().save() | {
            "epoch": self.epoch,
            "seen": dict(self.seen),
            "pinged": {
                peer: [epoch, [list(each) for each in delivered]]
                for peer, (epoch, delivered) in self.pinged.items()
            },
            "routes": dict(self.routes),
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self.epoch = state["epoch"]
        self.seen = dict(state["seen"])
        self.pinged = {
            peer: (epoch, [Message(*each) for each in delivered])
            for peer, (epoch, delivered) in state["pinged"].items()
        }
        self.routes = dict(state["routes"])

    def buffered(self) -> int:
        return sum(len(delivered) for _, delivered in self.pinged.values())

    def entries(self) -> int:
        return super().entries() + self.buffered() + len(self.seen) + len(self.pinged) + len(self.relays)
