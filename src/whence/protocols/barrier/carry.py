"""Store, carry and forward: what lies under the order of messages in an opportunistic network.

A node keeps the messages that it has made or received in a `Cache` and gives them away at `Contacts`:
epidemic forwarding at a finite rate. Nothing here knows of causal order; `oppnet.py` puts the two together.

    contact begins    the node with the smaller name waits for a set-up time, drawn uniformly from
                      0 .. setup_max_us, and sends HELLO with the ids of all that it carries
    HELLO arrives     the other replies with its own ids (ANSWER) and begins to send
    ANSWER arrives    the first begins to send
    sending           one message every gap_us in each direction, from what the peer is not known to have,
                      in random order: by a hash of (seed, sender, receiver, message), so that no draw is
                      used up and the order is the same however a run is cut into steps
    a new message     is announced immediately to all contacts (HAVE), and takes its place in their queues
    contact ends      what was in flight is lost; the rest waits for the next contact

A message is handed over at the end of its slot: the n-th at n x gap_us after the exchange began. A node that
has something new in an idle contact waits for the slot's end too; by then it has mostly heard who else has
given it to the peer.

Eviction: a full cache drops the message that it has carried longest, but never one that is pinned (received
and not yet delivered). If all are pinned, a newcomer that would be pinned too is refused, and any other is
taken and leaves first. A message is purged when its deadline is over on the node's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from whence.core.message import NodeId
from whence.core.rng import below, bits, purpose, stream
from whence.protocols.barrier.wire import NEVER_US, BarrierPacket, Key, as_number

ORDER = purpose("carry order")
SETUP = purpose("carry set-up")


class Cache:
    """The messages that a node carries, at most `capacity` of them (0: no limit)."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.messages: dict[Key, BarrierPacket] = {}  # the one that was carried longest first
        self._deadlines: list[tuple[int, Key]] = []

    def __contains__(self, key: Key) -> bool:
        return key in self.messages

    def __len__(self) -> int:
        return len(self.messages)

    def is_full(self) -> bool:
        """Whether the next message makes another one leave."""
        return 0 < self.capacity <= len(self.messages)

    # rule 001 F10: eviction spares what is pinned
    def add(self, packet: BarrierPacket, is_pinned: Callable[[Key], bool]) -> list[Key]:
        """Take a message; returns what was dropped for it (itself, if all others are pinned)."""
        key = (packet.origin, packet.number)
        self.messages[key] = packet
        if packet.deadline_us is not None:
            heappush(self._deadlines, (packet.deadline_us, key))
        dropped = []
        while self.capacity and len(self.messages) > self.capacity:
            oldest = next((each for each in self.messages if not is_pinned(each)), None)
            if oldest is None:
                break
            del self.messages[oldest]
            dropped.append(oldest)
        return dropped

    def purge(self, now_us: int) -> None:
        """Drop what is worthless now."""
        while self._deadlines and self._deadlines[0][0] < now_us:
            self.messages.pop(heappop(self._deadlines)[1], None)

    def alive(self, key: Key, now_us: int) -> BarrierPacket | None:
        """The message, if it is here and may still be given away."""
        packet = self.messages.get(key)
        return None if packet is None or as_number(packet.deadline_us) < now_us else packet


class ContactSide:
    """One side of a contact."""

    __slots__ = ("base_us", "hello_us", "key", "known", "queue", "slot_us", "told")

    def __init__(self, key: int) -> None:
        self.key = key  # of the random order in this direction
        self.hello_us = NEVER_US  # when to say HELLO
        self.told = False  # the peer knows, or will, what we had when we told it: tell it what is new
        self.base_us = NEVER_US  # when the exchange began; NEVER_US: it has not
        self.slot_us = NEVER_US  # the end of the slot in which the next message goes
        self.known: set[Key] = set()  # what the peer has, or was sent
        self.queue: list[tuple[int, Key]] = []  # (random place, message)

    def put(self, key: Key, now_us: int, gap_us: int) -> None:
        """Queue a message that the peer is not known to have."""
        heappush(self.queue, (bits(self.key ^ purpose(key[0]), key[1]), key))
        if self.slot_us == NEVER_US:  # otherwise one is planned, perhaps for this very moment
            self.plan_slot(now_us, gap_us)

    def plan_slot(self, now_us: int, gap_us: int) -> None:
        """The next slot ends strictly after now, if there is something to send."""
        self.slot_us = NEVER_US
        if self.queue:
            self.slot_us = self.base_us + ((now_us - self.base_us) // gap_us + 1) * gap_us


class ContactSides:
    """All contacts of one node. Methods that answer keys leave the sending to the caller."""

    def __init__(self, me: NodeId, seed: int, gap_us: int, setup_max_us: int) -> None:
        self.me = me
        self.seed = seed
        self.gap_us = gap_us
        self.setup_max_us = setup_max_us
        self.of: dict[NodeId, ContactSide] = {}  # ascending by name

    def begin(self, peer: NodeId, now_us: int) -> None:
        """A contact begins; the smaller name draws the set-up time and says HELLO."""
        mine, theirs = purpose(self.me), purpose(peer)
        contact = ContactSide(stream(self.seed, ORDER, mine, theirs))
        if self.me < peer:
            setup_us = below(stream(self.seed, SETUP, mine, theirs), now_us, self.setup_max_us + 1)
            contact.hello_us = now_us + setup_us
        self.of[peer] = contact
        self.of = dict(sorted(self.of.items()))

    def end(self, peer: NodeId) -> None:
        """A contact ends."""
        self.of.pop(peer, None)

    def due_hellos(self, now_us: int) -> Iterator[NodeId]:
        """The peers that are to be told now what we carry."""
        for peer, contact in self.of.items():
            if contact.hello_us <= now_us:
                contact.hello_us = NEVER_US
                contact.told = True
                yield peer

    # rule 001 section III: epidemic exchange at a contact
    def exchange(self, peer: NodeId, ids: tuple[Key, ...], cache: Cache, now_us: int) -> None:
        """The peer has told what it carries: begin to send what it lacks."""
        contact = self.of[peer]
        contact.told = True
        contact.known.update(ids)
        if contact.base_us == NEVER_US:
            contact.base_us = now_us
            self._fill(contact, cache)
            contact.plan_slot(now_us, self.gap_us)

    def _fill(self, contact: ContactSide, cache: Cache) -> None:
        contact.queue = [
            (bits(contact.key ^ purpose(key[0]), key[1]), key)
            for key in cache.messages
            if key not in contact.known
        ]
        heapify(contact.queue)

    def offer(self, key: Key, giver: NodeId | None, now_us: int) -> tuple[NodeId, ...]:
        """A message is new here: queue it for all that lack it; returns whom to tell that we have it."""
        told = []
        for peer, contact in self.of.items():
            if peer == giver:
                contact.known.add(key)
                continue
            if contact.told:
                told.append(peer)
            if contact.base_us != NEVER_US and key not in contact.known:
                contact.put(key, now_us, self.gap_us)
        return tuple(told)

    def due_messages(self, cache: Cache, now_us: int) -> Iterator[tuple[NodeId, BarrierPacket]]:
        """What goes out in the slots that end now."""
        for peer, contact in self.of.items():
            if contact.slot_us > now_us:
                continue
            packet = self._pick(contact, cache, now_us)
            if packet is not None:
                contact.known.add((packet.origin, packet.number))
                yield peer, packet
            contact.plan_slot(now_us, self.gap_us)

    def _pick(self, contact: ContactSide, cache: Cache, now_us: int) -> BarrierPacket | None:
        while contact.queue:
            _, key = heappop(contact.queue)
            packet = cache.alive(key, now_us)
            if packet is not None and key not in contact.known:
                return packet
        return None

    def next_us(self) -> int:
        """When something is due next; NEVER_US if nothing is."""
        return min((min(each.hello_us, each.slot_us) for each in self.of.values()), default=NEVER_US)

    def entries(self) -> int:
        """Ids that are kept for the sake of the contacts."""
        return sum(len(contact.known) + len(contact.queue) for contact in self.of.values())

    def save(self) -> list[list[Any]]:
        """Plain data; the queues follow from the cache and from what is known."""
        return [
            [
                peer, each.hello_us, each.told, each.base_us, each.slot_us,
                [list(key) for key in sorted(each.known)],
            ]
            for peer, each in self.of.items()
        ]  # fmt: skip

    def restore(self, saved: list[list[Any]], cache: Cache) -> None:
        """Become what `save` described."""
        for peer, hello_us, told, base_us, slot_us, known in saved:
            contact = ContactSide(stream(self.seed, ORDER, purpose(self.me), purpose(peer)))
            contact.hello_us, contact.told, contact.base_us, contact.slot_us = (
                hello_us,
                told,
                base_us,
                slot_us,
            )
            contact.known = {(origin, number) for origin, number in known}
            if contact.base_us != NEVER_US:
                self._fill(contact, cache)
            self.of[peer] = contact
