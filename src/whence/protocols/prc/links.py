"""What protocols over changing links share: links that are up but not used yet, joining, mediating.

An overlay (overlay/spray.py) says `open`, `close`, `mediate`; a host brings links up at both ends first.
A process begins with `found` or `join`. A joiner has seen nothing, so both directions of its link to one
contact are safe immediately, with nothing expected (specification of paper 003, line 15); every other link
takes a handshake.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, cast

from whence.core.effects import CancelTimer, CloseLink, Discard, Effects, Reason, Send, SetTimer
from whence.core.group import check_peer
from whence.core.lives import BEGIN
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes
from whence.core.parameters import choice, whole
from whence.core.protocol import State
from whence.errors import MisuseError
from whence.protocols.prc.link_memory import LinkMemory
from whence.protocols.prc.wire import (
    JOIN,
    MESSAGE,
    NAMES,
    WELCOME,
    PrcPacket,
    direct,
    message_packet,
    packet_sizes,
)

LINKS = choice("links", "static", ("static", "dynamic"))
TIMEOUT_US = whole("timeout_us", 60_000_000, 1)
RELAY = "relay:"  # a timer, with the names of opener and target
_BETWEEN = "\0"  # stands in no name that a host lets through


class Overlaid(LinkMemory):
    """Links that open and close, joining and mediating."""

    packet_type: ClassVar[type[Packet]] = PrcPacket

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members, **given)
        self.timeout_us: int = self.options["timeout_us"]
        self.is_dynamic = self.options["links"] == "dynamic"
        self.is_joined = not self.is_dynamic
        self.links: set[NodeId] = set()  # both ends are up; safe or not
        self.contact: NodeId | None = None  # asked to take us in
        # (opener, target) of handshakes that pass here -> the neighbours on both sides
        self.relays: dict[tuple[NodeId, NodeId], tuple[NodeId, NodeId]] = {}
        self.closing: set[NodeId] = set()  # links to be closed as soon as no route needs them

    @property
    def ready(self) -> bool:
        return self.is_joined

    # What the overlay and the host say

    def found(self) -> None:
        """We are the first process of the group."""
        self._require_apart("found")
        self.is_joined = True

    def join(self, contact: NodeId, now_us: int) -> Effects:
        """Ask `contact`, whose link is up, to take us in: both directions of one link, nothing expected."""
        self._require_apart("join")
        self._require_link(contact)
        self.contact = contact
        return [Send((contact,), direct(JOIN, self.me, 1))]

    def command(self, verb: str, names: tuple[NodeId, ...], now_us: int) -> Effects:
        """The same as words, which a trace can keep: `open` names the whole route."""
        if verb == BEGIN and len(names) == 1:  # another node of this name may have used the first numbers
            self.last = int(names[0])
            return []
        if verb == "found" and not names:
            self.found()
            return []
        if verb == "join" and len(names) == 1:
            return self.join(names[0], now_us)
        if verb == "open" and len(names) > 1:
            return self.open(names[-1], names, now_us)
        if verb == "mediate" and len(names) == 2:
            return self.mediate(names[0], names[1], now_us)
        raise MisuseError(
            f"command {verb!r} with {len(names)} names",
            "there is none such",
            "Say begin, found, join, open or mediate, with the names that it takes",
        )

    @abstractmethod
    def open(self, peer: NodeId, route: tuple[NodeId, ...], now_us: int) -> Effects:
        """Make the link to `peer` safe; `route` leads there over safe links: (me, mediator, ..., peer)."""

    @abstractmethod
    def is_using(self, peer: NodeId) -> bool:
        """Whether a handshake needs the link to `peer`, as its route or because it is being opened."""

    @abstractmethod
    def buffered(self) -> int:
        """Entries in buffers: each delivered message once for each link that is being opened."""

    @abstractmethod
    def _is_under_way(self, peer: NodeId) -> bool:
        """Whether the link is used already or being opened."""

    def mediate(self, opener: NodeId, target: NodeId, now_us: int) -> Effects:
        """Keep our links to both until their handshake has passed here, or does not come."""
        return self._relay(opener, target, (opener, target), now_us)

    # rule 003 flaw 5: links that a handshake passes are kept until it is over
    def _relay(
        self, opener: NodeId, target: NodeId, neighbours: tuple[NodeId, NodeId], now_us: int
    ) -> Effects:
        self.relays[opener, target] = neighbours
        return [SetTimer(_relay_key(opener, target), now_us + 4 * self.timeout_us)]

    def _end_relay(self, opener: NodeId, target: NodeId, effects: Effects) -> None:
        if (opener, target) in self.relays:
            del self.relays[opener, target]
            effects.append(CancelTimer(_relay_key(opener, target)))

    def _relay_timed_out(self, key: str) -> None:
        opener, _, target = key[len(RELAY) :].partition(_BETWEEN)
        self.relays.pop((opener, target), None)

    def close(self, peer: NodeId, now_us: int) -> Effects:
        """Close the link to `peer` as soon as no handshake needs it as a route."""
        effects: Effects = []
        if peer in self.links:
            self.closing.add(peer)
            self._close_unused(effects)
        return effects

    def keep(self, peer: NodeId) -> None:
        """Take a `close` back that has not been carried out yet."""
        self.closing.discard(peer)

    def _close_unused(self, effects: Effects) -> None:
        for peer in sorted(self.closing):
            if not self.is_using(peer):
                self._close(peer, effects)

    def is_safe_with(self, peer: NodeId) -> bool:
        """Whether the link to `peer` is used in both directions here."""
        return peer in self.in_view and peer in self.out_view

    def _require_apart(self, verb: str) -> None:
        if not self.is_dynamic or self.is_joined or not self.is_fresh:
            raise MisuseError(
                f"{verb} at {self.me}",
                "it takes part already, or its links are static",
                "Make a new core with links='dynamic'; who has lost all links comes back under a new name",
            )

    def _require_route(self, peer: NodeId, route: tuple[NodeId, ...]) -> None:
        self._require_link(peer)
        if len(route) < 3 or len(set(route)) != len(route) or route[0] != self.me or route[-1] != peer:
            raise MisuseError(
                f"route {route!r}", "it does not lead from here to there", "Name every node of the way once"
            )

    def _require_link(self, peer: NodeId) -> None:
        check_peer(self.me, peer)
        if peer not in self.links:
            raise MisuseError(f"link {peer!r}", "it is not up", "Bring it up at both ends first")

    # Links

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
        self.links.add(peer)
        return [] if self.is_dynamic else super().link_up(peer, now_us)

    def _close(self, peer: NodeId, effects: Effects) -> None:
        """Forget the link, and have it closed at the other end."""
        if peer in self.links:
            self._forget(peer, effects)
            effects.append(CloseLink(peer))

    def _forget(self, peer: NodeId, effects: Effects) -> None:
        super()._forget(peer, effects)
        self.links.discard(peer)
        self.closing.discard(peer)
        if self.contact == peer:
            self.contact = None
        for (opener, target), neighbours in sorted(self.relays.items()):
            if peer in neighbours:
                self._end_relay(opener, target, effects)

    # Packets

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        if not self.is_joined:
            raise MisuseError(f"broadcast at {self.me}", "it has not joined", "`found` or `join` first")
        return super().broadcast(payload, now_us)

    def _packet(self, message: Message) -> Packet:
        return message_packet(message)

    # Joining

    # rule 003 flaw 15: both directions of a joiner's link to one contact, with nothing expected
    def _on_join(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        if not self.is_joined or packet.origin != peer or self._is_under_way(peer) or peer in self.in_view:
            return [Discard(None, peer, Reason.STALE)]
        self.in_view.add(peer)
        self._use_out(peer)
        return [Send((peer,), direct(WELCOME, peer, 1))]

    def _on_welcome(self, peer: NodeId, packet: PrcPacket, now_us: int) -> Effects:
        if peer != self.contact or packet.origin != self.me:
            return [Discard(None, peer, Reason.STALE)]
        self.contact = None
        self.is_joined = True
        self.in_view.add(peer)
        self._use_out(peer)
        return []

    # The contract

    def check(self) -> None:
        super().check()
        self._require(self.in_view | set(self.out_view) <= self.links, "views are made of links")

    def save(self) -> State:
        return super().save() | {
            "links": sorted(self.links),
            "is_joined": self.is_joined,
            "contact": self.contact,
            "relays": [[*pair, *neighbours] for pair, neighbours in sorted(self.relays.items())],
            "closing": sorted(self.closing),
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self.links = set(state["links"])
        self.is_joined = state["is_joined"]
        self.contact = state["contact"]
        self.relays = {(one, two): (left, right) for one, two, left, right in state["relays"]}
        self.closing = set(state["closing"])

    def message_of(self, packet: Packet) -> MessageId | None:
        packet = cast(PrcPacket, packet)
        return self._named(packet.origin, packet.number) if packet.kind == MESSAGE else None

    def further_messages_of(self, packet: Packet) -> tuple[MessageId, ...]:
        return tuple(MessageId(origin, number) for origin, number, _ in cast(PrcPacket, packet).messages)

    def detail_of(self, packet: Packet) -> str | None:
        """Of control, which attempt it is of: a link may be lost with one packet and be back for the next."""
        packet = cast(PrcPacket, packet)
        if packet.kind == MESSAGE:
            return None
        word = f"{NAMES.get(packet.kind, 'unknown')}/{packet.origin}/{packet.number}"
        return " ".join([word, *map(str, self.further_messages_of(packet))])

    def sizes(self, packet: Packet) -> Sizes:
        return packet_sizes(cast(PrcPacket, packet))


def _relay_key(opener: NodeId, target: NodeId) -> str:
    return f"{RELAY}{opener}{_BETWEEN}{target}"
