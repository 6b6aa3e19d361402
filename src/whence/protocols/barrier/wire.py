"""What travels under the barrier protocols: messages with immutable barriers, their size and their form.

A deadline is a reading of its sender's clock, in microseconds; None stands for a message that is good for
ever. Inside the cores it is a number, `NEVER_US`, so that deadlines can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple, TypeAlias

from whence.core.message import NUMBER_MAX, REPEATED, MessageId, NodeId, Sizes
from whence.core.sizes import FRAME_BYTES, array_header_bytes, binary_header_bytes, text_bytes, uint_bytes

NEVER_US = 1 << 62
NAME_MAX = 255  # characters of a node's name, as in live groups

Key: TypeAlias = tuple[NodeId, int]  # (origin, number) of a message


class BarrierEntry(NamedTuple):
    """A predecessor: message `number` of `origin`, with its deadline."""

    origin: NodeId
    number: int
    deadline_us: int | None


# rule 001 F1: a message's barrier is immutable
# rule 001 F3: number and deadline are two fields
# rule 001 F4: a lifetime that shrinks changes no number
class BarrierPacket(NamedTuple):
    """Message `number` of `origin`, to be delivered after those that `barrier` names.

    With number 0 it is no message: `barrier` then tells a new neighbour what `origin` has delivered, of each
    source the newest (see `broadcast.py`, late joiners).
    """

    origin: NodeId
    number: int
    deadline_us: int | None
    barrier: Annotated[tuple[BarrierEntry, ...], REPEATED]  # ascending by (origin, number)
    payload: bytes


def named(packet: BarrierPacket) -> MessageId | None:
    """The packet's message; None where it names none that can be."""
    if 0 < packet.number < NUMBER_MAX and 0 < len(packet.origin) <= NAME_MAX:
        return MessageId(packet.origin, packet.number)
    return None


def told(what: str, ids: Iterable[Iterable[object]]) -> str:
    """One word for a trace about a packet that names messages: what it is, how many, and which.

    Two packets of equal size may say different things, and a contact that is cut takes some of them: with the
    digest a replay finds the one that arrived. It is short where the ids are many.
    """
    words = [":".join(map(str, id_)) for id_ in ids]
    if len(words) == 1:
        return f"{what}:{words[0]}"
    digest = blake2b(" ".join(words).encode(errors="replace"), digest_size=8).hexdigest()
    return f"{what}:{len(words)}:{digest}"


def well_formed(packet: BarrierPacket) -> bool:
    """Whether a correct node could have made the packet; the entries are ascending and distinct."""
    origin, number, _, barrier, _ = packet
    if not names_possible(packet):
        return False
    before, count = "", 0
    for source, each, until_us in barrier:  # inline, because a barrier may name every member
        if source <= before and (source < before or each <= count):
            return False
        if not source or len(source) > NAME_MAX or not 0 < each < NUMBER_MAX:
            return False
        if until_us is not None and not 0 <= until_us < NEVER_US:
            return False
        if source == origin and number and each >= number:
            return False
        before, count = source, each
    return True


def names_possible(packet: BarrierPacket) -> bool:
    """Whether the message of a packet could be: `well_formed` without the barrier."""
    origin, number, until_us, _, _ = packet
    is_deadline = until_us is None or 0 <= until_us < NEVER_US
    return 0 < len(origin) <= NAME_MAX and 0 <= number < NUMBER_MAX and is_deadline


def as_number(deadline_us: int | None) -> int:
    """A deadline that can be compared."""
    return NEVER_US if deadline_us is None else deadline_us


def as_field(deadline_us: int) -> int | None:
    """A deadline as it travels."""
    return None if deadline_us >= NEVER_US else deadline_us


def packet_sizes(packet: BarrierPacket) -> Sizes:
    """The real frame of a packet."""
    total_bytes = FRAME_BYTES + message_bytes(packet)
    return Sizes(total_bytes, total_bytes - len(packet.payload))


def message_bytes(packet: BarrierPacket) -> int:
    """A message as a part of a frame."""
    origin, number, deadline_us, barrier, payload = packet
    size = array_header_bytes(5) + text_bytes(origin) + uint_bytes(number) + _deadline_bytes(deadline_us)
    size += array_header_bytes(len(barrier)) + binary_header_bytes(len(payload)) + len(payload)
    for entry in barrier:
        size += array_header_bytes(3) + text_bytes(entry.origin) + uint_bytes(entry.number)
        size += _deadline_bytes(entry.deadline_us)
    return size


def _deadline_bytes(deadline_us: int | None) -> int:
    return 1 if deadline_us is None else uint_bytes(deadline_us)


def plain(packet: BarrierPacket) -> list[Any]:
    """A packet as plain data, for `save`."""
    return [*packet[:3], [list(entry) for entry in packet.barrier], packet.payload]


def unplain(saved: list[Any]) -> BarrierPacket:
    """The packet that `plain` was given."""
    origin, number, deadline_us, barrier, payload = saved
    return BarrierPacket(
        origin, number, deadline_us, tuple(BarrierEntry(*entry) for entry in barrier), payload
    )
