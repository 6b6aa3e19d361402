"""Matrix: causal delivery of point-to-point messages by matrix clocks, in one domain (paper 004, section 3).

Guarantee     every message is delivered at its destination at most once, after every message to the same
              destination that was sent causally before it. On reliable links every message is delivered.
Assumptions   a known group in which every two servers are linked; links that are reliable while they are up.
              Links need not be FIFO and may duplicate.
Source        paper 004, sections 3 and 4.2, appendix A (with the repairs that `clock.py` lists).

    paper                       here
    S_i                         members[i]
    Mat                         consumer.clock.value
    Updates                     stamps = "updates" (with a change list) or "updates-scan"; "full": the matrix

A number counts the messages of one origin, wherever they go; a count is per pair of servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, cast

from whence.core.effects import Deliver, Discard, Effects, Reason
from whence.core.group import NUMBER_MAX, id_of
from whence.core.message import Message, MessageId, NodeId, Packet, Sizes, Waiting
from whence.core.parameters import Parameters
from whence.core.protocol import State
from whence.core.sizes import (
    FRAME_BYTES,
    array_header_bytes,
    binary_header_bytes,
    uint_array_bytes,
    uint_bytes,
)
from whence.protocols.domains.clock import CLOCKS, STAMPS, Stamp
from whence.protocols.domains.consumer import Consumer, HandOn
from whence.protocols.domains.unicast import Unicast, pair


class MatrixPacket(NamedTuple):
    """Message `number` of the member at `origin`, the `sent`-th to this receiver."""

    origin: int
    number: int
    sent: int
    stamp: Stamp  # the whole matrix row by row, or flat triples (from, to, count)
    payload: bytes


class Matrix(Unicast):
    """Causal delivery of point-to-point messages in one domain."""

    name: ClassVar[str] = "matrix"
    packet_type: ClassVar[type[Packet]] = MatrixPacket

    parameters: ClassVar[Parameters] = Parameters(STAMPS)

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members)
        stamps = self.parameters.read(self.name, given)["stamps"]
        self.consumer = Consumer(CLOCKS[stamps](len(self.members), self.my_index))

    def send(self, to: NodeId, payload: bytes, now_us: int) -> Effects:
        """Count the message, stamp it, give it to the link. A message to oneself is delivered immediately."""
        self._check_send(to, payload)
        self.last += 1
        if to == self.me:
            return [Deliver(Message(self.me, self.last, payload))]
        effects: Effects = []
        count, stamp = self.consumer.clock.next_stamp(self.index[to])
        self._pass_to(to, MatrixPacket(self.my_index, self.last, count, stamp, payload), effects)
        return effects

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        origin, number, count, stamp, _ = cast(MatrixPacket, packet)
        refused = self._refuse(peer, cast(MatrixPacket, packet))
        effects: Effects = []
        if refused is Reason.IMPOSSIBLE and self._is_of_a_copy(self.consumer, origin, stamp, effects):
            refused = self._refuse(peer, cast(MatrixPacket, packet))
        if refused is not None:
            effects.append(Discard(id_of(self.members, origin, number), peer, refused))
            self._tell_and_ask(self.consumer, effects)
            return effects
        if number <= 0:
            return self._hear(peer, self.consumer, origin, number, count, stamp)
        deliver = self._hand_on_to(effects)
        self.consumer.accept(origin, count, stamp, packet, now_us, deliver)
        if self.consumer.marks:
            self.consumer.begin_lives(deliver)
        if self.consumer.skipped or self.consumer.doubts:
            self._tell_and_ask(self.consumer, effects)
        return effects

    def _hand_on_to(self, effects: Effects) -> HandOn:
        def deliver(source: int, packet: Packet) -> None:
            origin, number, _, _, payload = cast(MatrixPacket, packet)
            effects.append(Deliver(Message(self.members[origin], number, payload)))

        return deliver

    def _shared_with(self, peer: NodeId) -> list[tuple[Consumer, int]]:
        return [(self.consumer, self.index[peer])]

    def _word(self, consumer: Consumer, number: int, sent: int, stamp: Stamp) -> Packet:
        return MatrixPacket(self.my_index, number, sent, stamp, b"")

    def _refuse(self, peer: NodeId, packet: MatrixPacket) -> Reason | None:
        origin, number, count, stamp, _ = packet
        if peer not in self.neighbours or peer not in self.index:
            return Reason.NOT_A_NEIGHBOUR
        if not 0 <= origin < len(self.members):
            return Reason.UNKNOWN_ORIGIN
        if self.members[origin] != peer:
            return Reason.FORGED
        if abs(number) >= NUMBER_MAX:
            return Reason.MALFORMED
        return self.consumer.refuse(origin, count, stamp) if number > 0 else None

    @property
    def waiting(self) -> int:
        return len(self.consumer.held)

    def explain(self) -> list[Waiting]:
        members, consumer = self.members, self.consumer
        waiting = []
        for (source, count), (early, since_us) in consumer.held.items():
            ids = tuple(pair(members[k], self.me, c) for k, c in consumer.missing(source, count))
            number = cast(MatrixPacket, early.packet).number
            waiting.append(Waiting(MessageId(members[source], number), since_us, ids))
        return sorted(waiting)

    def check(self) -> None:
        broken = self.consumer.broken_rule()
        self._require(broken is None, broken or "")

    def save(self) -> State:
        return {**self._save_links(), "consumer": self.consumer.save()}

    def restore(self, state: State) -> None:
        self._restore_links(state)
        self.consumer.restore(state["consumer"], MatrixPacket)

    def message_of(self, packet: Packet) -> MessageId | None:
        return id_of(self.members, packet[0], packet[1])

    def sizes(self, packet: Packet) -> Sizes:
        origin, number, count, stamp, payload = cast(MatrixPacket, packet)
        control = FRAME_BYTES + array_header_bytes(5)
        control += uint_bytes(origin) + uint_bytes(abs(number)) + uint_bytes(count)
        control += uint_array_bytes(stamp)
        control += binary_header_bytes(len(payload))
        return Sizes(control + len(payload), control)

    def entries(self) -> int:
        return self.consumer.entries()
