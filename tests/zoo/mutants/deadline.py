"""Deliberately broken variants of ODCA, one mistake each. Figure 8's own flaws are in tests/paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from whence.core.effects import Deliver, Effects, Send
from whence.core.message import Message, NodeId, Packet
from whence.protocols.deadline.odca import Odca
from whence.protocols.deadline.wire import MESSAGE, REPLY, DeadlineMessage, DeadlinePacket, broadcast_packet


class Unchecked(Odca):
    """Mutants break invariants on purpose: the verdict must come from what they do."""

    def check(self) -> None:
        pass


class ClockStampsUnpurged(Unchecked):
    """Stamps are clock values (flaw 9), and what has become stale is not given up (flaw 5).

    Either alone costs messages at the most: with stamps that rise along causality nothing in the queue ever
    becomes stale, and with a purge nothing that has become stale is delivered.
    """

    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        self.greatest_stamp = 0
        return super().broadcast_within(payload, lifetime_us, now_us)

    def _purge(self, effects: Effects) -> None:
        pass


class NoMerge(Unchecked):
    """A delivery raises V only for its own sender, not for all that the message follows."""

    def _raise(self, member: int, newest: int, end_us: int) -> None:
        pass


class SecondChance(Unchecked):
    """What comes in time is delivered, though something that follows it has been."""

    def _come_too_late(self, message: DeadlineMessage, now_us: int, effects: Effects) -> None:
        if self._is_late(message, now_us):
            super()._come_too_late(message, now_us, effects)
        else:
            origin, number = message[0], message[1]
            self.holes[origin].remove(number)
            effects.append(Deliver(Message(self.members[origin], number, message.payload)))


class StalePast(Unchecked):
    """A message says what its sender had delivered before its last broadcast, not before this one."""

    told: tuple[int, ...] = ()

    def broadcast_within(self, payload: bytes, lifetime_us: int, now_us: int) -> Effects:
        effects = super().broadcast_within(payload, lifetime_us, now_us)
        before, self.told = self.told or (0,) * len(self.members), tuple(self.accepted)
        return [self._aged(effect, before) if isinstance(effect, Send) else effect for effect in effects]

    def _aged(self, effect: Send, before: tuple[int, ...]) -> Send:
        packet = cast(DeadlinePacket, effect.packet)
        if packet.kind != MESSAGE:
            return effect
        [message] = packet.messages
        after = list(before)
        after[message.origin] = message.number - 1
        return Send(effect.to, broadcast_packet(message._replace(after=tuple(after))))


class NeverLate(Unchecked):
    """Nobody looks at a deadline."""

    def _is_late(self, message: DeadlineMessage, now_us: int) -> bool:
        return False


class TrustsItsClock(Unchecked):
    """Deadlines are compared with the own clock, as if all clocks were equal."""

    def _is_late(self, message: DeadlineMessage, now_us: int) -> bool:
        return now_us > message.deadline_us


class UncheckedReplies(Unchecked):
    """A reply is what was asked for, so it is delivered."""

    def receive(self, peer: NodeId, packet: Packet, now_us: int) -> Effects:
        _, messages, *_ = cast(DeadlinePacket, packet)
        if packet[0] != REPLY:
            return super().receive(peer, packet, now_us)
        return [
            Deliver(Message(self.members[message.origin], message.number, message.payload))
            for message in messages
            if not self._is_late(message, now_us)
        ]


@dataclass(frozen=True)
class Variant:
    """A mutant, and what the judge must find of it."""

    make: type[Odca]
    found: frozenset[str]

    @property
    def name(self) -> str:
        """Of the class."""
        return self.make.__name__


DEADLINE = [
    Variant(ClockStampsUnpurged, frozenset({"causal"})),
    Variant(NoMerge, frozenset({"causal"})),
    Variant(SecondChance, frozenset({"causal", "fifo"})),
    Variant(StalePast, frozenset({"causal"})),
    Variant(NeverLate, frozenset({"late"})),
    Variant(TrustsItsClock, frozenset({"late"})),
    Variant(UncheckedReplies, frozenset({"causal", "duplicate"})),
]
