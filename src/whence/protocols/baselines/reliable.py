"""Reliable: flooding that delivers each message once, in any order, remembering every origin (baseline).

Guarantee     every node delivers each message once. No order is promised, not even that of one origin.
Assumptions   a known group; links that are reliable while they are up; a connected graph of links.
Source        Hadzilacos and Toueg, "Fault-tolerant broadcasts and related problems" (1993), as the first
              line of Table 1 of paper 003: O(1) on a message, O(1) to deliver it, O(N) memory, no control
              for a new link.

    symbol                          here
    received, per origin            upto[s], and what came before its turn in beyond[s]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple, cast

from whence.core.effects import Deliver, Effects, Reason, Send
from whence.core.group import check_payload, is_too_far
from whence.core.message import Message, NodeId, Packet, Sizes, Waiting
from whence.core.protocol import State
from whence.core.sizes import FRAME_BYTES, array_header_bytes, binary_header_bytes, uint_bytes
from whence.protocols.baselines.flooding import Flooding


class ReliablePacket(NamedTuple):
    """Message `number` of the member at `origin` in the sorted group."""

    origin: int
    number: int
    payload: bytes


class Reliable(Flooding):
    """Reliable flooding without any order."""

    name: ClassVar[str] = "reliable"
    packet_type: ClassVar[type[Packet]] = ReliablePacket

    def __init__(self, me: NodeId, members: Iterable[NodeId], **given: Any) -> None:
        super().__init__(me, members, **given)
        self.upto: dict[int, int] = {}  # only origins that ever broadcast: the N of Table 1
        self.beyond: dict[int, set[int]] = {}

    def broadcast(self, payload: bytes, now_us: int) -> Effects:
        check_payload(payload)
        self.last += 1
        self.upto[self.my_index] = self.last
        effects: Effects = [Deliver(Message(self.me, self.last, payload))]
        if self.neighbours:
            effects.append(Send(self.neighbours, ReliablePacket(self.my_index, self.last, payload)))
        return effects

    def _refuse(self, packet: Packet) -> Reason | None:
        origin, number, _ = cast(ReliablePacket, packet)
        if not 0 <= origin < len(self.members):
            return Reason.UNKNOWN_ORIGIN
        if number < 1:
            return Reason.MALFORMED
        upto = self.upto.get(origin, 0)
        if number <= upto or number in self.beyond.get(origin, ()):
            return Reason.DUPLICATE
        if origin == self.my_index:
            return Reason.FORGED
        return Reason.TOO_FAR_AHEAD if is_too_far(number, upto) else None

    def _accept(self, packet: Packet, now_us: int, effects: Effects) -> None:
        origin, number, payload = cast(ReliablePacket, packet)
        effects.append(Deliver(Message(self.members[origin], number, payload)))
        beyond = self.beyond.setdefault(origin, set())
        beyond.add(number)
        upto = self.upto.get(origin, 0)
        while upto + 1 in beyond:
            upto += 1
            beyond.discard(upto)
        if upto:
            self.upto[origin] = upto
        if not beyond:
            del self.beyond[origin]

    def _counts(self) -> list[int]:
        return [self.upto.get(member, 0) for member in range(len(self.members))]

    def _skip_to(self, member: int, number: int, effects: Effects) -> None:
        beyond = {each for each in self.beyond.pop(member, set()) if each > number}
        while number + 1 in beyond:
            number += 1
            beyond.discard(number)
        self.upto[member] = number
        if beyond:
            self.beyond[member] = beyond

    def _control(self, number: int, payload: bytes) -> Packet:
        return ReliablePacket(self.my_index, number, payload)

    @property
    def waiting(self) -> int:
        return 0

    def explain(self) -> list[Waiting]:
        return []

    def check(self) -> None:
        self._require(self.upto.get(self.my_index, 0) == self.last, "own messages are delivered immediately")
        for origin, beyond in self.beyond.items():
            first = self.upto.get(origin, 0) + 1
            self._require(bool(beyond) and min(beyond) > first, f"what has no gap is one number ({origin})")

    def save(self) -> State:
        return {
            "last": self.last,
            "neighbours": list(self.neighbours),
            "upto": [[origin, number] for origin, number in self.upto.items()],
            "beyond": [[origin, *sorted(numbers)] for origin, numbers in self.beyond.items()],
            **self._save_lives(),
        }

    def restore(self, state: State) -> None:
        self.last = state["last"]
        self._set_neighbours(set(state["neighbours"]))
        self.upto = dict(state["upto"])
        self.beyond = {origin: set(numbers) for origin, *numbers in state["beyond"]}
        self._restore_lives(state)

    def sizes(self, packet: Packet) -> Sizes:
        origin, number, payload = cast(ReliablePacket, packet)
        control = FRAME_BYTES + array_header_bytes(3) + uint_bytes(origin) + uint_bytes(number)
        control += binary_header_bytes(len(payload))
        return Sizes(control + len(payload), control)

    def entries(self) -> int:
        return len(self.upto) + sum(map(len, self.beyond.values()))
