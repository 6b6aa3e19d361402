"""The order as printed: Codes 1-7 without, Codes 8-13 with a lifetime, line by line.

For the reproduction of the paper and for tests: it has the flaws that docs/barrier.md lists. A sequence tag
is the message's number, or with a lifetime its deadline. Entries of a barrier carry both, so that one packet
serves both modes, but this order looks at the tag alone.

`advance` stands for the networking layer's purge: it reports each pending message whose deadline is over
(`oppnet_discard`), the earliest first. As in the paper nothing else wakes a pending message.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import ClassVar, TypeAlias

from whence.core.effects import Deliver, Effects, Expire, Reason
from whence.core.message import Message, MessageId, NodeId, Waiting
from whence.core.protocol import State
from whence.protocols.barrier.order import BarrierOrder
from whence.protocols.barrier.wire import BarrierEntry, BarrierPacket, Key, plain, unplain, well_formed

Barrier: TypeAlias = dict[NodeId, tuple[int, int]]  # CB_TYPE: source -> (sequence tag, number)


class PrintedPending:
    """An entry of the pending registry; `packet` is None once the cache has evicted the message."""

    __slots__ = ("barrier", "id", "packet", "seq", "since_us", "tag")

    def __init__(self, packet: BarrierPacket, tag: int, barrier: Barrier, seq: int, since_us: int) -> None:
        self.id = MessageId(packet.origin, packet.number)
        self.packet: BarrierPacket | None = packet
        self.tag = tag
        self.barrier = barrier
        self.seq = seq
        self.since_us = since_us


class PublishedOrder(BarrierOrder):
    """Codes 1 to 13 as printed. `lifetime_us` is None: Codes 1-7; else the lifetime of Code 8."""

    mode: ClassVar[str] = "published"
    pins: ClassVar[bool] = False

    def __init__(self, me: NodeId, lifetime_us: int | None) -> None:
        super().__init__(me, lifetime_us)
        self.c_barrier: Barrier = {}
        self.co_delivered: dict[NodeId, int] = {}
        self.pending: dict[Key, PrintedPending] = {}
        self._seq = 0
        self._dying: list[tuple[int, int, Key]] = []  # (deadline, seq, key) of what is pending

    # rule 001 Code 2: as printed
    # rule 001 Code 9: as printed
    def broadcast(
        self, payload: bytes, lifetime_us: int | None, now_us: int, effects: Effects
    ) -> BarrierPacket:
        self.last += 1
        deadline_us = self._deadline_us(lifetime_us, now_us)
        if deadline_us is not None:
            _expunge_expired(self.c_barrier, now_us)
        packet = BarrierPacket(self.me, self.last, deadline_us, self._entries(), payload)
        self.c_barrier = {}
        self._perform_delivery(packet, effects)
        return packet

    def _entries(self) -> tuple[BarrierEntry, ...]:
        timed = self.lifetime_us is not None
        return tuple(
            BarrierEntry(source, number, tag if timed else None)
            for source, (tag, number) in sorted(self.c_barrier.items())
        )

    def _tag(self, packet: BarrierPacket) -> int:
        return packet.number if packet.deadline_us is None else packet.deadline_us

    # rule 001 Code 3: as printed
    def _perform_delivery(self, packet: BarrierPacket, effects: Effects) -> None:
        source, tag = packet.origin, self._tag(packet)
        self.co_delivered[source] = tag
        self.c_barrier[source] = (tag, packet.number)
        effects.append(Deliver(Message(source, packet.number, packet.payload)))
        self._forget_dependency(source, tag)

    # rule 001 Code 4: as printed
    def _forget_dependency(self, source: NodeId, tag: int) -> None:
        for held in self.pending.values():
            if source in held.barrier and held.barrier[source][0] <= tag:
                del held.barrier[source]

    def refuse(self, packet: BarrierPacket, now_us: int) -> Reason | None:
        """What the networking layer refuses (section V-B); duplicates are the business of its cache."""
        if not well_formed(packet) or not packet.number:
            return Reason.MALFORMED
        if (packet.deadline_us is None) != (self.lifetime_us is None):
            return Reason.MALFORMED
        if any((entry.deadline_us is None) != (self.lifetime_us is None) for entry in packet.barrier):
            return Reason.MALFORMED
        if packet.origin == self.me:
            return Reason.DUPLICATE if packet.number <= self.last else Reason.FORGED
        if packet.deadline_us is not None and packet.deadline_us < now_us:
            return Reason.EXPIRED
        return None

    # rule 001 Code 5: as printed
    # rule 001 Code 11: as printed
    def receive(self, packet: BarrierPacket, now_us: int, effects: Effects) -> None:
        barrier: Barrier = {}
        for source, number, deadline_us in packet.barrier:
            barrier[source] = (number if deadline_us is None else deadline_us, number)
        if self.lifetime_us is not None:
            _expunge_expired(barrier, now_us)
        self._expunge_delivered(barrier)
        if barrier:
            self._seq += 1
            key = (packet.origin, packet.number)
            self.pending[key] = PrintedPending(packet, self._tag(packet), barrier, self._seq, now_us)
            if packet.deadline_us is not None:
                heappush(self._dying, (packet.deadline_us, self._seq, key))
        else:
            self._perform_delivery(packet, effects)
            self._check_pending(now_us, effects)

    # rule 001 Code 6: as printed
    def _expunge_delivered(self, barrier: Barrier) -> None:
        for source in [each for each in barrier if self.co_delivered.get(each, -1) >= barrier[each][0]]:
            del barrier[source]

    # rule 001 Code 7: as printed
    # rule 001 Code 13: as printed
    def _check_pending(self, now_us: int, effects: Effects) -> None:
        if self.lifetime_us is not None:
            self._forget_expired(now_us)
        delivered = True
        while delivered:
            delivered = False
            for key, held in list(self.pending.items()):
                if held.barrier:
                    continue
                del self.pending[key]
                if held.packet is None:  # cache.extract(mid) finds nothing: F10
                    effects.append(Expire(held.id, Reason.EXPIRED))
                    continue
                self._perform_delivery(held.packet, effects)
                delivered = True

    # rule 001 Code 12: as printed
    def _forget_expired(self, now_us: int) -> None:
        for held in self.pending.values():
            _expunge_expired(held.barrier, now_us)
        for source in [each for each, tag in self.co_delivered.items() if tag < now_us]:
            del self.co_delivered[source]

    # rule 001 section V-C: oppnet_discard, as printed
    def advance(self, now_us: int, effects: Effects) -> None:
        while self._dying and self._dying[0][0] < now_us:
            _, seq, key = heappop(self._dying)
            held = self.pending.get(key)
            if held is None or held.seq != seq:
                continue  # delivered meanwhile
            del self.pending[key]
            effects.append(Expire(held.id, Reason.EXPIRED))
            self._forget_dependency(key[0], held.tag)
            self._check_pending(now_us, effects)

    def next_us(self) -> int | None:
        while self._dying:
            deadline_us, seq, key = self._dying[0]
            held = self.pending.get(key)
            if held is not None and held.seq == seq:
                return deadline_us + 1
            heappop(self._dying)
        return None

    # The rest of the contract

    def is_pending(self, key: Key) -> bool:
        return key in self.pending

    def evicted(self, key: Key) -> None:
        held = self.pending.get(key)
        if held is not None:
            held.packet = None

    def registries(self) -> tuple[int, int, int]:
        return len(self.c_barrier), len(self.co_delivered), len(self.pending)

    def explain(self) -> list[Waiting]:
        return [
            Waiting(
                held.id,
                held.since_us,
                tuple(MessageId(source, number) for source, (_, number) in sorted(held.barrier.items())),
            )
            for _, held in sorted(self.pending.items())
        ]

    def entries(self) -> int:
        return sum(self.registries()) + sum(len(held.barrier) for held in self.pending.values())

    def check(self) -> None:
        for key in self.pending:
            self._require(self.lifetime_us is not None or key[0] != self.me, f"{key} is our own and pending")

    def save(self) -> State:
        return {
            "last": self.last,
            "seq": self._seq,
            "c_barrier": [[source, *pair] for source, pair in sorted(self.c_barrier.items())],
            "co_delivered": [list(pair) for pair in sorted(self.co_delivered.items())],
            "pending": [
                [
                    *key, held.packet and plain(held.packet), held.tag,
                    [[source, *pair] for source, pair in sorted(held.barrier.items())],
                    held.seq, held.since_us,
                ]
                for key, held in self.pending.items()
            ],
        }  # fmt: skip

    def restore(self, state: State) -> None:
        self.last, self._seq = state["last"], state["seq"]
        self.c_barrier = {source: (tag, number) for source, tag, number in state["c_barrier"]}
        self.co_delivered = dict(state["co_delivered"])
        for origin, number, saved, tag, entries, seq, since_us in state["pending"]:
            packet = BarrierPacket(origin, number, None, (), b"") if saved is None else unplain(saved)
            barrier = {source: (mark, place) for source, mark, place in entries}
            held = PrintedPending(packet, tag, barrier, seq, since_us)
            self.pending[origin, number] = held
            if saved is None:
                held.packet = None
            if self.lifetime_us is not None:
                heappush(self._dying, (tag, seq, (origin, number)))


# rule 001 Code 10: as printed
def _expunge_expired(barrier: Barrier, now_us: int) -> None:
    for source in [each for each, (tag, _) in barrier.items() if tag < now_us]:
        del barrier[source]
