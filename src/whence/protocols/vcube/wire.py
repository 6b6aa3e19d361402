"""What travels between the nodes of VCube, and what it costs: on the wire, and in the paper's account."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from whence.core.clocks import Delta
from whence.core.message import Sizes
from whence.core.sizes import (
    FRAME_BYTES,
    array_header_bytes,
    binary_header_bytes,
    uint_array_bytes,
    uint_bytes,
)

PAPER_PACKET_BYTES = 20  # section 5: the header of a packet
PAPER_ENTRY_BYTES = 4  # section 5.2: one entry of the vector clock


class VCubeMessage(NamedTuple):
    """Message `number` of the member at `origin`, to be delivered after its `number - 1` and `after`."""

    origin: int
    number: int
    after: Delta  # flat pairs (member index, count), indices ascending, without the origin's own
    payload: bytes


class VCubePacket(NamedTuple):
    """What a node passes to a child together: one message, or several that are causally related."""

    messages: tuple[VCubeMessage, ...]


class SizeModel(NamedTuple):
    """What is held against the MTU: bytes of a packet of n messages, and of each message in it."""

    packet_bytes: Callable[[int], int]
    message_bytes: Callable[[VCubeMessage], int]


def wire_packet_bytes(count: int) -> int:
    """The frame and the two arrays around `count` messages."""
    return FRAME_BYTES + array_header_bytes(1) + array_header_bytes(count)


def wire_message_bytes(message: VCubeMessage) -> int:
    """One message in MessagePack, its payload included."""
    origin, number, after, payload = message
    control_bytes = array_header_bytes(4) + uint_bytes(origin) + uint_bytes(number)
    control_bytes += uint_array_bytes(after)
    return control_bytes + binary_header_bytes(len(payload)) + len(payload)


def paper_packet_bytes(count: int) -> int:
    """Section 5: the header, however many messages there are."""
    return PAPER_PACKET_BYTES


# rule 000 section 5.2: the paper's size of a message
def paper_message_bytes(message: VCubeMessage) -> int:
    """Section 5.2: the payload, and four bytes for each dependency and for the message's own entry."""
    return len(message.payload) + PAPER_ENTRY_BYTES * (len(message.after) // 2 + 1)


SIZE_MODELS = {
    "wire": SizeModel(wire_packet_bytes, wire_message_bytes),
    "paper": SizeModel(paper_packet_bytes, paper_message_bytes),
}


def packet_sizes(packet: VCubePacket) -> Sizes:
    """The real frame of a packet."""
    messages = packet.messages
    total_bytes = wire_packet_bytes(len(messages)) + sum(map(wire_message_bytes, messages))
    return Sizes(total_bytes, total_bytes - sum(len(message.payload) for message in messages))


# rule 000 section 5: packets are split at the MTU
def split(messages: Sequence[VCubeMessage], model: SizeModel, mtu_bytes: int) -> list[VCubePacket]:
    """Section 5: a packet that the next message would take beyond the MTU is sent as it is.

    A message that is too large alone travels alone; `mtu_bytes = 0` sets no limit.
    """
    if not mtu_bytes or len(messages) == 1:
        return [VCubePacket(tuple(messages))]
    packets: list[VCubePacket] = []
    first = taken_bytes = 0
    for at, message in enumerate(messages):
        more_bytes = model.message_bytes(message)
        if at > first and model.packet_bytes(at - first + 1) + taken_bytes + more_bytes > mtu_bytes:
            packets.append(VCubePacket(tuple(messages[first:at])))
            first, taken_bytes = at, 0
        taken_bytes += more_bytes
    packets.append(VCubePacket(tuple(messages[first:])))
    return packets
