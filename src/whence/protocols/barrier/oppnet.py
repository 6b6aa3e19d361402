"""Oppnet: causal and Δ-causal broadcast in an opportunistic network: barriers over store-carry-forward (001).

Guarantee     that of `broadcast.py`: each message at most once, in causal order, before its deadline or not
              at all. That everything arrives is not promised: it depends on who meets whom.
Assumptions   links come and go (contacts) and may lose what is in flight when they go. Clocks differ by
              `skew_us` at most. No node knows the group.
Source        "Causal and Δ-causal broadcast in opportunistic networks", sections III and V-B for the
              layer below (`carry.py`), IV and V for the order (`safe.py`, `published.py`).

    paper                          here
    oppnet_broadcast(m, dln)       _acquire: into the cache, offered to all contacts
    oppnet_receive                 _take, for a message that is not in the cache
    oppnet_discard                 Order.advance, at the deadline of a pending message
    cache                          carry.Cache; what is pending is pinned in safe mode (F10)

Late messages (safe mode) end as in `barrier`: what first comes after its deadline is an `Expire`, once, if it
is late by `late_us` at most. As published the network purges them without a word (section V-B).

Parameters: those of `barrier` but `relay`, and of the layer below `seed` (of the random order and the set-up
times), `gap_us` (between two messages in one direction of a contact), `setup_max_us`, `capacity` (messages in
the cache, 0: no limit).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, cast

from whence.core.effects import CancelTimer, Discard, Effects, Expire, Reason, Send, SetTimer
from whence.core.group import NUMBER_MAX, check_payload, check_peer
from whence.core.message import MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters, whole
from whence.core.protocol import Protocol, State
from whence.core.sizes import FRAME_BYTES, array_header_bytes, text_bytes, uint_bytes
from whence.protocols.barrier.broadcast import WAKE, check_message_lifetime, make_order, order_parameters
from whence.protocols.barrier.carry import Cache, ContactSides
from whence.protocols.barrier.order import LIFETIME_MAX_US, Arrivals
from whence.protocols.barrier.safe import SafeOrder
from whence.protocols.barrier.wire import (
    NAME_MAX,
    NEVER_US,
    BarrierPacket,
    Key,
    message_bytes,
    named,
    plain,
    told,
    unplain,
)

HELLO, ANSWER, HAVE, DATA = 0, 1, 2, 3  # kinds of packets
WORDS = ("hello", "answer", "have")  # for the first three, in a trace


class OppnetPacket(NamedTuple):
    """Ids of messages that the sender has (HELLO, ANSWER, HAVE), or one message (DATA)."""

    kind: int
    ids: tuple[tuple[NodeId, int], ...]
    messages: tuple[BarrierPacket, ...]


class Oppnet(Protocol):
    """A causal order over a cache and contacts."""

    name: ClassVar[str] = "oppnet"
    packet_type: ClassVar[type[Packet]] = OppnetPacket
    parameters: ClassVar[Parameters] = order_parameters(
        whole("seed", 1, 0, LIFETIME_MAX_US),
        whole("gap_us", 125_000, 1, LIFETIME_MAX_US),
        whole("setup_max_us", 10_000_000, 0, LIFETIME_MAX_US),
        whole("capacity", 0, 0, LIFETIME_MAX_US),
    )

    def __init__(
        self,
        me: NodeId,
        members: Iterable[NodeId],  # not used: no node needs to know the group
        **given: Any,
    ) -> None:
        options = self.parameters.read(self.name, given)
        self.me = me
        self.last = 0
        self.order = make_order(me, options)
        self.cache = Cache(options["capacity"])
        self.seen = Arrivals(options["late_us"])
        self.contacts = ContactSides(me, options["seed"], options["gap_us"], options["setup_max_us"])
        self._wake_us: int | None = None

    # From above

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        return self._broadcast(payload, None, now_us)

    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        check_payload(payload)
        check_message_lifetime(self.order, lifetime_us)
        return self._broadcast(payload, lifetime_us, now_us)

    def _broadcast(self, payload: bytes, lifetime_us: int | None, now_us: int) -> Effects:
        effects = self._advanced(now_us)
        order = self.order
        packet = order.broadcast(payload, lifetime_us, now_us, effects)
        self.last = order.last
        self.last_lifetime_us = order.lifetime_us if lifetime_us is None else lifetime_us
        self._acquire(packet, None, now_us, effects)
        return self._with_timer(effects)

    # From below

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        check_peer(self.me, peer)
        effects = self._advanced(now_us)
        self.contacts.begin(peer, now_us)
        return self._with_timer(effects)

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        effects = self._advanced(now_us)
        self.contacts.end(peer)
        return self._with_timer(effects)

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        packet = cast(OppnetPacket, packet)
        contact = self.contacts.of.get(peer)
        if contact is None:
            return [Discard(None, peer, Reason.NOT_A_NEIGHBOUR)]
        effects = self._advanced(now_us)
        kind, ids, messages = packet
        if not _well_formed(packet):
            effects.append(Discard(self.message_of(packet), peer, Reason.MALFORMED))
        elif kind == DATA:
            contact.known.add((messages[0].origin, messages[0].number))
            self._take(peer, messages[0], now_us, effects)
        elif kind == HAVE:
            contact.known.update(ids)
        else:
            if kind == HELLO:
                answer = OppnetPacket(ANSWER, tuple(self.cache.messages), ())
                effects.append(Send((peer,), answer))
            self.contacts.exchange(peer, ids, self.cache, now_us)
        return self._with_timer(effects)

    # rule 001 section V-B: oppnet_receive
    def _take(self, peer: NodeId, packet: BarrierPacket, now_us: int, effects: Effects) -> None:
        order = self.order
        refused = order.refuse(packet, now_us)
        if refused is None and (packet.origin, packet.number) in self.cache:
            refused = Reason.DUPLICATE
        if refused is None and self._has_no_room(packet, now_us):
            refused = Reason.TOO_FAR_AHEAD
        if refused is not None:
            effects.append(self._end(peer, packet, refused, now_us))
            return
        if order.mode == "safe" and packet.deadline_us is not None:
            self.seen.note((packet.origin, packet.number), packet.deadline_us)
        order.receive(packet, now_us, effects)
        self._acquire(packet, peer, now_us, effects)

    def _end(self, peer: NodeId, packet: BarrierPacket, refused: Reason, now_us: int) -> Discard | Expire:
        """What becomes of a message that is not accepted."""
        if self.order.mode == "published":
            return Discard(named(packet), peer, refused)
        return self.seen.end(packet, peer, refused, now_us)

    def _has_no_room(self, packet: BarrierPacket, now_us: int) -> bool:
        """Whether the cache is full of what is pinned, and the message would be pinned too."""
        order = self.order
        if not isinstance(order, SafeOrder) or not self.cache.is_full():
            return False
        return all(map(order.is_pending, self.cache.messages)) and not order.deliverable(packet, now_us)

    # rule 001 section V-B: oppnet_broadcast, into the cache and to all contacts
    def _acquire(self, packet: BarrierPacket, giver: NodeId | None, now_us: int, effects: Effects) -> None:
        """A message is new here: carry it, and let the others have it."""
        order = self.order
        for key in self.cache.add(packet, order.is_pending if order.pins else _nothing_is_pinned):
            order.evicted(key)
        key = (packet.origin, packet.number)
        told = self.contacts.offer(key, giver, now_us)
        if told:
            effects.append(Send(told, OppnetPacket(HAVE, (key,), ())))

    def timer(self, key: str, now_us: int) -> Effects:
        self._wake_us = None
        effects = self._advanced(now_us)
        for peer in self.contacts.due_hellos(now_us):
            effects.append(Send((peer,), OppnetPacket(HELLO, tuple(self.cache.messages), ())))
        for peer, packet in self.contacts.due_messages(self.cache, now_us):
            effects.append(Send((peer,), OppnetPacket(DATA, (), (packet,))))
        return self._with_timer(effects)

    def _advanced(self, now_us: int) -> Effects:
        """What time alone has brought about, before anything else happens."""
        effects: Effects = []
        self.order.advance(now_us, effects)
        self.cache.purge(now_us)
        self.seen.forget(now_us)
        return effects

    def _with_timer(self, effects: Effects) -> Effects:
        wake_us = self._next_us()
        if wake_us != self._wake_us:
            self._wake_us = wake_us
            effects.append(CancelTimer(WAKE) if wake_us is None else SetTimer(WAKE, wake_us))
        return effects

    def _next_us(self) -> int | None:
        order_us, contacts_us = self.order.next_us(), self.contacts.next_us()
        wake_us = contacts_us if order_us is None else min(order_us, contacts_us)
        return None if wake_us == NEVER_US else wake_us

    # The rest of the contract

    @property
    def waiting(self) -> int:
        return len(self.order.pending)

    def explain(self) -> list[Waiting]:
        return self.order.explain()

    def check(self) -> None:
        self.order.check()
        pinned = self.order.pins and all(map(self.order.is_pending, self.cache.messages))
        within = not self.cache.capacity or len(self.cache) <= self.cache.capacity
        self._require(self.last == self.order.last, "the order counts our broadcasts")
        self._require(self._wake_us == self._next_us(), "the timer is set to what comes next")
        self._require(within or pinned, "the cache keeps to its capacity")
        if isinstance(self.order, SafeOrder):
            for key in self.order.pending:
                self._require(key in self.cache, f"{key} is pending and not carried (F10)")

    def save(self) -> State:
        return {
            "order": self.order.save(),
            "cache": [plain(packet) for packet in self.cache.messages.values()],
            "contacts": self.contacts.save(),
            "seen": self.seen.save(),
            "wake_us": self._wake_us,
            "last_lifetime_us": self.last_lifetime_us,
        }

    def restore(self, state: State) -> None:
        self.order.restore(state["order"])
        for saved in state["cache"]:
            self.cache.add(unplain(saved), _everything_is_pinned)
        self.contacts.restore(state["contacts"], self.cache)
        self.seen.restore(state["seen"])
        self._wake_us = state["wake_us"]
        self.last = self.order.last
        self.last_lifetime_us = state["last_lifetime_us"]

    def message_of(self, packet: Packet) -> MessageId | None:
        messages = cast(OppnetPacket, packet).messages
        return named(messages[0]) if len(messages) == 1 else None

    def detail_of(self, packet: Packet) -> str | None:
        """Of a control packet what it says."""
        kind, ids, _ = cast(OppnetPacket, packet)
        return told(WORDS[kind], ids) if HELLO <= kind < DATA else None

    def sizes(self, packet: Packet) -> Sizes:
        kind, ids, messages = cast(OppnetPacket, packet)
        total_bytes = FRAME_BYTES + array_header_bytes(3) + uint_bytes(kind)
        total_bytes += array_header_bytes(len(ids)) + array_header_bytes(len(messages))
        for origin, number in ids:
            total_bytes += array_header_bytes(2) + text_bytes(origin) + uint_bytes(number)
        total_bytes += sum(map(message_bytes, messages))
        return Sizes(total_bytes, total_bytes - sum(len(message.payload) for message in messages))

    def entries(self) -> int:
        return self.order.entries() + len(self.cache) + self.contacts.entries() + len(self.seen)


def _well_formed(packet: OppnetPacket) -> bool:
    kind, ids, messages = packet
    if kind == DATA:
        return len(messages) == 1 and not ids
    if not HELLO <= kind < DATA or messages:
        return False
    return all(0 < len(origin) <= NAME_MAX and 0 < number < NUMBER_MAX for origin, number in ids)


def _nothing_is_pinned(key: Key) -> bool:
    return False


def _everything_is_pinned(key: Key) -> bool:
    return True
