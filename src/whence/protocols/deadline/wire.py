"""What travels between the nodes of TDCA and ODCA, and what it costs on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from whence.core.message import Sizes
from whence.core.sizes import (
    FRAME_BYTES,
    array_header_bytes,
    binary_header_bytes,
    uint_array_bytes,
    uint_bytes,
)

UINT_MAX_BYTES = 9
MESSAGE, SOLICITATION, REPLY = 0, 1, 2  # the kinds of packets (Figure 8: B-RECV, SOLICIT-RECV, RPY-RECV)


class DeadlineMessage(NamedTuple):
    """Message `number` of the member at `origin`, worthless after `deadline_us` of the group's clock.

    In `published` mode `after` is Figure 8's MVector: stamps instead of numbers, the own one included.
    """

    origin: int
    number: int
    stamp: int  # of the origin's hybrid logical clock
    deadline_us: int
    after: tuple[int, ...]  # for each member its newest message before this one; own: number - 1
    left: tuple[int, ...]  # for each of these: 0 unknown, else 1 + how long it is good after `stamp`; or ()
    payload: bytes


class DeadlinePacket(NamedTuple):
    """One packet of TDCA or ODCA; the fields that its kind does not use are empty."""

    kind: int
    messages: tuple[DeadlineMessage, ...]  # one if it is broadcast, any number in a reply
    have: tuple[int, ...]  # solicitation: MVector_rcvr
    upper: tuple[int, ...]  # solicitation: MVector_upper
    wants: tuple[int, ...]  # exact solicitation: flat pairs (member, number)


def broadcast_packet(message: DeadlineMessage) -> DeadlinePacket:
    """A message on its way from its origin."""
    return DeadlinePacket(MESSAGE, (message,), (), (), ())


def reply_packets(messages: Iterable[DeadlineMessage], limit_bytes: int) -> Iterator[DeadlinePacket]:
    """Replies with all the messages, none above `limit_bytes` (0: no limit) unless one alone is larger.

    Each message counts with the most that it can take: to add up what every integer takes would cost more
    than everything else about a reply.
    """
    taken: list[DeadlineMessage] = []
    taken_bytes = 0
    for message in messages:
        more_bytes = len(message.payload) + UINT_MAX_BYTES * (len(message.after) + len(message.left) + 8)
        if limit_bytes and taken and taken_bytes + more_bytes > limit_bytes:
            yield DeadlinePacket(REPLY, tuple(taken), (), (), ())
            taken, taken_bytes = [], 0
        taken.append(message)
        taken_bytes += more_bytes
    if taken:
        yield DeadlinePacket(REPLY, tuple(taken), (), (), ())


def message_bytes(message: DeadlineMessage) -> int:
    """One message in MessagePack, its payload included."""
    origin, number, stamp, deadline_us, after, left, payload = message
    control_bytes = array_header_bytes(7) + uint_array_bytes(after) + uint_array_bytes(left)
    control_bytes += uint_bytes(origin) + uint_bytes(number) + uint_bytes(stamp) + uint_bytes(deadline_us)
    return control_bytes + binary_header_bytes(len(payload)) + len(payload)


def packet_sizes(packet: DeadlinePacket) -> Sizes:
    """The real frame of a packet."""
    kind, messages, have, upper, wants = packet
    total_bytes = FRAME_BYTES + array_header_bytes(5) + uint_bytes(kind) + array_header_bytes(len(messages))
    total_bytes += sum(map(message_bytes, messages))
    total_bytes += uint_array_bytes(have) + uint_array_bytes(upper) + uint_array_bytes(wants)
    return Sizes(total_bytes, total_bytes - sum(len(message.payload) for message in messages))
