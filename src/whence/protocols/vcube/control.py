"""What the members of a VCube tell each other beside messages: tests, views, digests, joining.

Every packet of `members.py` is one of these: messages in the sender's present life, or one
`Control`. Both name the life, because a packet of a life that is over must never be taken for one
of the life that followed it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from whence.core.group import LIFE_BITS, NUMBER_MAX
from whence.core.message import Sizes
from whence.core.sizes import FRAME_BYTES, array_header_bytes, uint_array_bytes, uint_bytes
from whence.protocols.vcube.wire import VCubeMessage, wire_message_bytes

STAMP_MAX = 2 * NUMBER_MAX >> LIFE_BITS


class ControlKind(IntEnum):
    """Why a control packet was sent. Numbers are part of the format."""

    ASK = 0  # a test (section 2), replied to immediately
    ANSWER = 1
    NEWS = 2  # only the view: for those who are no longer in it, and from one who leaves
    JOIN = 3  # "let me in"; nothing but the life
    ADMIT = 4  # "you are in the view now"
    WELCOME = 5  # "all members know you: begin here"; `received` is the cut


class Control(NamedTuple):
    """Vectors have one entry per member, pairs are flat; what does not apply is empty."""

    kind: int
    stamps: tuple[int, ...]  # the sender's view (roster.py); empty in JOIN
    sealed: tuple[int, ...]  # the last view of which the sender knew that all in it had it
    caps: tuple[int, ...]  # pairs (member that is gone, its last number that any node can deliver)
    received: tuple[int, ...]  # the sender's contiguous prefixes; empty while it joins
    early: tuple[int, ...]  # pairs (member, number) that it has beyond a hole
    up: tuple[int, ...]  # to the parent: the sample of the sender's whole subtree (repair.py)
    down: tuple[int, ...]  # to a child: the sample of all members


class MemberPacket(NamedTuple):
    """Either messages or a control."""

    life: int  # of the sender
    messages: tuple[VCubeMessage, ...]
    control: Control | None


def is_malformed(packet: MemberPacket, size: int) -> bool:
    """Whether no correct member of a group of `size` sends such a packet."""
    life, messages, control = packet
    if not 0 <= life < STAMP_MAX // 2 or (control is None) != bool(messages):
        return True
    return control is not None and _is_malformed(control, size)


def _is_malformed(control: Control, size: int) -> bool:
    kind, stamps, sealed, caps, received, early, up, down = control
    if not ControlKind.ASK <= kind <= ControlKind.WELCOME or {len(stamps), len(sealed)} != {
        0 if kind == ControlKind.JOIN else size
    }:
        return True
    if (
        len(received) not in ((size,) if kind == ControlKind.WELCOME else (0, size))
        or _has_odd(caps, size)
        or _has_odd(early, size)
    ):
        return True
    return any(not 0 <= stamp < STAMP_MAX for view in (stamps, sealed) for stamp in view) or any(
        not 0 <= number <= NUMBER_MAX for vector in (received, up, down) for number in vector
    )


def _has_odd(pairs: tuple[int, ...], size: int) -> bool:
    """Whether something in `pairs` cannot be a pair (member, number)."""
    return (
        len(pairs) % 2 > 0
        or any(not 0 <= member < size for member in pairs[::2])
        or any(not 0 <= number <= NUMBER_MAX for number in pairs[1::2])
    )


def packet_sizes(packet: MemberPacket) -> Sizes:
    """The real frame of a packet."""
    life, messages, control = packet
    total_bytes = FRAME_BYTES + array_header_bytes(3) + uint_bytes(life) + array_header_bytes(len(messages))
    total_bytes += sum(map(wire_message_bytes, messages))
    total_bytes += 1 if control is None else _control_bytes(control)
    return Sizes(total_bytes, total_bytes - sum(len(message.payload) for message in messages))


def _control_bytes(control: Control) -> int:
    kind, *vectors = control
    return array_header_bytes(len(control)) + uint_bytes(kind) + sum(map(uint_array_bytes, vectors))
