"""What a core asks its host to do, in the order in which it must be done.

A host carries out the effects of one input before it gives the core the next one. `Send` names all
receivers at once, so that a host encodes the packet once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from whence.core.message import Message, MessageId, NodeId, Packet


class Reason(StrEnum):
    """Why a packet or a message ended without being delivered."""

    DUPLICATE = "duplicate"
    MALFORMED = "malformed"
    UNKNOWN_ORIGIN = "unknown origin"
    FORGED = "forged origin"
    IMPOSSIBLE = "impossible dependency"
    TOO_FAR_AHEAD = "too far ahead"
    NOT_A_NEIGHBOUR = "not a neighbour"
    STALE = "stale attempt"  # control of an attempt to open a link that is over, or that was never made
    NO_ROUTE = "no route"  # a routed packet whose next hop is not a safe link


class Send(NamedTuple):
    """Give `packet` to the link of every node in `to`."""

    to: tuple[NodeId, ...]
    packet: Packet


class Deliver(NamedTuple):
    """Give `message` to the application: its causal past has been delivered here."""

    message: Message


class SetTimer(NamedTuple):
    """Call `timer(key)` at `at_us`; a timer of the same key is replaced."""

    key: str
    at_us: int


class CancelTimer(NamedTuple):
    """Forget the timer of that key, if there is one."""

    key: str


class CloseLink(NamedTuple):
    """Close the link to `peer`, which the core has forgotten already: the other end is told `link_down`."""

    peer: NodeId


class Discard(NamedTuple):
    """A packet ends here. `id` is None when the packet does not even name a message."""

    id: MessageId | None
    peer: NodeId
    reason: Reason


Effect: TypeAlias = Send | Deliver | SetTimer | CancelTimer | CloseLink | Discard
Effects: TypeAlias = list[Effect]
