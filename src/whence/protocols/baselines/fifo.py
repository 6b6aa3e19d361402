"""FIFO: reliable flooding that keeps each sender's order, and nothing more (baseline).

Guarantee     every node delivers each message at most once, and the messages of one origin in the
              order in which it broadcast them. Two messages of different origins may be delivered
              in any order: **causal order is not promised**, and the verifier must catch it.
Assumptions   a known group; links that are reliable while they are up; a connected graph of links.
Source        Hadzilacos and Toueg, "Fault-tolerant broadcasts and related problems" (1993), FIFO
              broadcast over a flooding reliable broadcast.

    symbol                          here
    next[s], next expected of s     delivered[s] + 1
    msgBag, received, undelivered   held[s][number]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import length_hint
from typing import Any, ClassVar, NamedTuple, cast

from whence.core.effects import Deliver, Discard, Effects, Reason, Send, Spoken, close_run
from whence.core.group import Gaps, check_payload, refuse_id
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Unread, Waiting
from whence.core.protocol import State
from whence.core.sizes import FRAME_BYTES, array_header_bytes, binary_header_bytes, uint_bytes
from whence.protocols.baselines.flooding import Flooding


class FifoPacket(NamedTuple):
    """Message `number` of the member at `origin` in the sorted group."""

    origin: int
    number: int
    payload: bytes


class Fifo(Flooding):
    """Reliable flooding in each sender's order."""

    name: ClassVar[str] = "fifo"
    packet_type: ClassVar[type[Packet]] = FifoPacket

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members, **given)
        self.delivered = [0] * len(self.members)
        self.held: dict[int, dict[int, tuple[FifoPacket, int]]] = {}  # origin -> number -> since
        self.held_count = 0

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        self.last += 1
        self.delivered[self.my_index] = self.last
        effects: Effects = [Deliver(Message(self.me, self.last, payload))]
        if self.neighbours:
            effects.append(Send(self.neighbours, FifoPacket(self.my_index, self.last, payload)))
        return effects

    def broadcast_many(self, payloads: Sequence[bytes], now_us: int) -> Spoken | None:
        me, mine, first = self.me, self.my_index, self.last + 1
        self.last = self.delivered[mine] = self.last + len(payloads)
        messages = [(me, number, payload) for number, payload in enumerate(payloads, first)]
        return Spoken(messages, self.neighbours, [(mine, number, payload) for _, number, payload in messages])

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        """The common case, the next message of its origin, goes straight through."""
        origin, number, payload = packet
        delivered = self.delivered
        if (
            not 0 <= origin < len(delivered)
            or number != delivered[origin] + 1
            or origin == self.my_index
            or origin in self.held
            or peer not in self._without
            or (self._direct and self.members[origin] != peer)
            or self.lives.marks
        ):
            return super().receive(peer, packet, now_us)
        effects: Effects = []
        if self.relay:
            self._pass_on(peer, packet, effects)
        elif self.kept is not None:
            self._keep(packet, effects)
        delivered[origin] = number
        effects.append(Deliver(Message(self.members[origin], number, payload)))
        return effects

    def _receive_runs(
        self, peer: NodeId, only: int, packets: list[Packet], first: int, stop: int, now_us: int
    ) -> Effects:
        delivered, held, marks = self.delivered, self.held, self.lives.marks
        wanted, kept = self._wanted_by, self.kept
        effects: Effects = []
        run: list[Unread] = []
        rest = iter(packets if stop - first == len(packets) else packets[first:stop])
        for packet in rest:
            origin, number, payload = packet
            if origin == only and number == delivered[origin] + 1 and not (origin in held or marks or wanted):
                delivered[origin] = number
                run.append((peer, number, payload))
            else:
                if kept is not None:
                    at = stop - length_hint(rest)
                    kept.add_run(packets, first, at - 1)
                    first = at
                run = self._take_alone(peer, packet, now_us, run, effects)
        if kept is not None:
            kept.add_run(packets, first, stop)
        close_run(run, effects)
        return effects

    def _refuse(self, packet: Packet) -> Reason | None:
        origin, number, _ = packet
        refused = refuse_id(origin, number, self.delivered, self.my_index)
        if refused is None and number in self.held.get(origin, ()):
            return Reason.DUPLICATE
        return refused

    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        origin, number, payload = packet
        if number != self.delivered[origin] + 1:
            self.held.setdefault(origin, {})[number] = (cast(FifoPacket, packet), now_us)
            self.held_count += 1
            return
        self.delivered[origin] = number
        effects.append(Deliver(Message(self.members[origin], number, payload)))
        self._release(origin, effects)

    def _release(self, origin: int, effects: Effects) -> None:
        """Deliver what is held of an origin and next."""
        name, held = self.members[origin], self.held.get(origin)
        while held:
            entry = held.pop(self.delivered[origin] + 1, None)
            if entry is None:
                return
            self.held_count -= 1
            self.delivered[origin] += 1
            effects.append(Deliver(Message(name, self.delivered[origin], entry[0].payload)))
        self.held.pop(origin, None)

    def _counts(self) -> list[int]:
        return self.delivered

    def _skip_to(self, member: int, number: int, effects: Effects) -> None:
        self.delivered[member] = number
        held = self.held.get(member, {})
        for early in [each for each in held if each <= number]:
            del held[early]
            self.held_count -= 1
            id_ = MessageId(self.members[member], early)
            effects.append(Discard(id_, self.members[member], Reason.OVERTAKEN))
        if not held:
            self.held.pop(member, None)
        self._release(member, effects)

    def _control(self, number: int, payload: bytes) -> Packet:
        return FifoPacket(self.my_index, number, payload)

    @property
    def waiting(self) -> int:
        return self.held_count

    def explain(self) -> list[Waiting]:
        waiting = []
        gaps = Gaps(self.delivered)
        for origin in sorted(self.held):
            for number in sorted(self.held[origin]):
                ids = tuple(MessageId(self.members[origin], gap) for _, gap in gaps.before(origin, number))
                id_ = MessageId(self.members[origin], number)
                waiting.append(Waiting(id_, self.held[origin][number][1], ids))
        return waiting

    def check(self) -> None:
        self._require(self.delivered[self.my_index] == self.last, "own messages are delivered immediately")
        self._require(self.held_count == sum(map(len, self.held.values())), "what is held is counted")
        for origin, held in self.held.items():
            self._require(bool(held), "an origin with nothing held is forgotten")
            first = self.delivered[origin] + 1
            self._require(min(held) > first, f"nothing deliverable is held ({origin}:{first})")

    def save(self) -> State:
        return {
            "last": self.last,
            "neighbours": list(self.neighbours),
            "delivered": list(self.delivered),
            "held": [
                [*packet, since_us] for held in self.held.values() for packet, since_us in held.values()
            ],
            **self._save_lives(),
        }

    def restore(self, state: State) -> None:
        self.last = state["last"]
        self._set_neighbours(set(state["neighbours"]))
        self.delivered = list(state["delivered"])
        for origin, number, payload, since_us in state["held"]:
            packet = FifoPacket(origin, number, payload)
            self.held.setdefault(origin, {})[number] = (packet, since_us)
        self.held_count = len(state["held"])
        self._restore_lives(state)

    def sizes(self, packet: Packet) -> Sizes:
        origin, number, payload = packet
        control = FRAME_BYTES + array_header_bytes(3) + uint_bytes(origin) + uint_bytes(abs(number))
        control += binary_header_bytes(len(payload))
        return Sizes(control + len(payload), control)

    def entries(self) -> int:
        kept = 0 if self.kept is None else len(self.kept)
        return len(self.delivered) + sum(map(len, self.held.values())) + kept
