"""What both readings of Figure 8 share: members, links, what is named and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, cast

from whence.core.effects import Discard, Effects, Reason
from whence.core.message import MessageId, NodeId, Packet, Sizes
from whence.core.protocol import Protocol
from whence.errors import InvariantError, MisuseError, ParameterError
from whence.protocols.deadline_wire import REPLY, SOLICITATION, DeadlineMessage, DeadlinePacket, packet_sizes
from whence.protocols.flooding import NUMBER_MAX

AHEAD_MAX_US = 86_400_000_000  # a day: a stamp or a deadline further ahead is a mistake or an attack
LIFETIME_MAX_US = 3_600_000_000


class DeadlineBase(Protocol):
    """Members are indexed by their place in the sorted list, so that all nodes agree without talking."""

    packet_type: ClassVar[type[Packet]] = DeadlinePacket

    def __init__(self, me: NodeId, members: Iterable[NodeId]) -> None:
        self.members = tuple(sorted(set(members)))
        if me not in self.members:
            raise ParameterError(
                f"node {me!r}", "it is not among the group's members", "Add it to the members"
            )
        self.me = me
        self.index = {name: at for at, name in enumerate(self.members)}
        self.my_index = self.index[me]
        self.neighbours: tuple[NodeId, ...] = ()
        self.last = 0

    # Links

    def link_up(self, peer: NodeId, now_us: int) -> Effects:
        if peer == self.me:
            raise MisuseError(f"link {peer!r}", "a node has no link to itself", "Name another node")
        self.neighbours = tuple(sorted({*self.neighbours, peer}))
        return []

    def link_down(self, peer: NodeId, now_us: int) -> Effects:
        self.neighbours = tuple(each for each in self.neighbours if each != peer)
        return []

    def _named(self, message: DeadlineMessage) -> MessageId | None:
        """The message's id, or None where it names a member or a number that cannot be."""
        origin, number = message[0], message[1]
        if 0 <= origin < len(self.members) and 0 < number < NUMBER_MAX:
            return MessageId(self.members[origin], number)
        return None

    def _discard(self, message: DeadlineMessage, peer: NodeId, reason: Reason, effects: Effects) -> None:
        effects.append(Discard(self._named(message), peer, reason))

    def _require(self, holds: bool, rule: str) -> None:
        if not holds:
            raise InvariantError(f"{self.name} at {self.me}", rule)

    # The contract: what it costs

    def message_of(self, packet: Packet) -> MessageId | None:
        """The first message; `further_messages_of` has the others. A solicitation carries none."""
        kind, messages = packet[0], cast(DeadlinePacket, packet).messages
        return self._named(messages[0]) if messages and kind != SOLICITATION else None

    def further_messages_of(self, packet: Packet) -> tuple[MessageId, ...]:
        """All but the first, in the packet's order."""
        messages = cast(DeadlinePacket, packet).messages
        if len(messages) < 2 or packet[0] == SOLICITATION:
            return ()
        found = (self._named(message) for message in messages[1:])
        return tuple(id_ for id_ in found if id_ is not None)

    def detail_of(self, packet: Packet) -> str | None:
        """Of a solicitation what it asks for, as one word: two of equal size may ask for different things."""
        kind, _, have, upper, wants = cast(DeadlinePacket, packet)
        if kind != SOLICITATION:
            return super().detail_of(packet)
        return "asks:" + ";".join(",".join(map(str, part)) for part in (have, upper, wants))

    def is_control(self, packet: Packet) -> bool:
        """Solicitations and the replies to them."""
        return packet[0] in (SOLICITATION, REPLY)

    def sizes(self, packet: Packet) -> Sizes:
        return packet_sizes(cast(DeadlinePacket, packet))


def plain_message(message: DeadlineMessage) -> list[object]:
    """A message as plain data."""
    origin, number, stamp, deadline_us, after, left, payload = message
    return [origin, number, stamp, deadline_us, list(after), list(left), payload]


def read_message(plain: list[Any]) -> DeadlineMessage:
    """The message that `plain_message` described."""
    origin, number, stamp, deadline_us, after, left, payload = plain
    return DeadlineMessage(origin, number, stamp, deadline_us, tuple(after), tuple(left), payload)


def check_number(name: str, value: object, low: int, high: int) -> None:
    """Refuse anything but a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(name, f"{value!r} is not a whole number from {low} to {high}", "Use one that is")


def check_lifetime(lifetime_us: object) -> None:
    """Refuse a lifetime that is none."""
    if isinstance(lifetime_us, bool) or not isinstance(lifetime_us, int):
        raise MisuseError("lifetime", f"{lifetime_us!r} is not a number of microseconds", "Use an integer")
    if not 1 <= lifetime_us <= LIFETIME_MAX_US:
        raise MisuseError("lifetime", f"{lifetime_us} us is not between 1 us and one hour", "Use one that is")
