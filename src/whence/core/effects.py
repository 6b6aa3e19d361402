"""What a core asks its host to do, in the order in which it must be done.

A host carries out the effects of one input before it gives the core the next one; packets that arrived
together are one input (`Protocol.receive_many`). `Send` names all receivers together, so that a host encodes
the packet once.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

from whence.core.lives import Life, News, Stream, split_stream
from whence.core.message import Message, MessageId, NodeId, Packet, Unread


class Reason(StrEnum):
    """Why a packet or a message ended without being delivered."""

    DUPLICATE = "duplicate"
    MALFORMED = "malformed"
    UNKNOWN_ORIGIN = "unknown origin"
    FORGED = "forged origin"
    IMPOSSIBLE = "impossible dependency"
    TOO_FAR_AHEAD = "too far ahead"
    NOT_A_NEIGHBOUR = "not a neighbour"
    EXPIRED = "expired"  # its deadline had passed before its turn came
    OVERTAKEN = "overtaken"  # something that follows it had to be delivered first
    NO_ROOM = "no room"  # the buffer is full of messages with more time left
    MISROUTED = "misrouted"
    ORPHAN = "its past is lost"  # it follows a message that no node that is left has
    GONE = "declared faulty"  # the sender, or this node itself, is out of the group
    NOT_JOINED = "not joined yet"
    LEFT = "left the group"
    STALE = "stale attempt"  # control of an attempt to open a link that is over, or that was never made
    NO_ROUTE = "no route"  # a routed packet whose next hop is not a safe link


class Send(NamedTuple):
    """Give `packet` to the link of every node in `to`."""

    to: tuple[NodeId, ...]
    packet: Packet


class Deliver(NamedTuple):
    """Give `message` to the application: its causal past has been delivered here."""

    message: Message
    lsn: int = 0  # its place in the node's log, where the protocol keeps one
    late: bool = False  # it is concurrent with something that this node has called stable


class Deliveries(NamedTuple):
    """A `Deliver` of each message, one after the other: how `Protocol.receive_many` says so of a run."""

    messages: list[Unread]


class Spoken(NamedTuple):
    """A `Deliver` and a `Send` of each of several messages: how `Protocol.broadcast_many` says so."""

    messages: list[Unread]
    to: tuple[NodeId, ...]
    packets: list[Packet]  # of `to`, if there is anybody


class Logged(NamedTuple):
    """A `Deliver` of each of these messages of a stream, with LSNs from `lsn` on: a run where a log is kept.

    They are as they stand in the log: (stream's index, number, until, after, payload, mark).
    """

    stream: Stream
    lsn: int
    entries: list[tuple[int, int, int, tuple[int, ...], bytes, int]]
    payload_bytes: int  # of all


def close_run(run: list[Unread], effects: Effects) -> list[Unread]:
    """Put a run of deliveries among the effects, if there is one; returns the next, which is empty."""
    if run:
        effects.append(Deliveries(run))
        return []
    return run


class Missed(NamedTuple):
    """The application will not be given these messages: they cannot be had any more, or it asked not to.

    As an outcome it says whose they are: `origin` is a name, `life` which of its lives.
    """

    stream: Stream
    first: int
    last: int
    reason: str  # "expired", "truncated", "before joining" or "unread"
    lsn: int = 0

    @property
    def origin(self) -> NodeId:
        """The node that broadcast them."""
        return split_stream(self.stream)[0]

    @property
    def life(self) -> Life:
        """The life of the node in which it did."""
        return split_stream(self.stream)[1]


class Internal(NamedTuple):
    """A message of the protocol's own is delivered here: a row of the trace, nothing for the application."""

    message: Message
    speaks: bool  # this node broadcasts it now, by itself


class Stable(NamedTuple):
    """From now on nothing that is concurrent with these prefixes of streams is delivered here unflagged."""

    cut: tuple[tuple[NodeId, int], ...]  # what has grown, ascending


class Tell(NamedTuple):
    """News of nodes and lives for an application that asks for outcomes; it changes no delivery."""

    news: News


class SetTimer(NamedTuple):
    """Call `timer(key)` at `at_us`; a timer of the same key is replaced."""

    key: str
    at_us: int


class CancelTimer(NamedTuple):
    """Forget the timer of that key, if there is one."""

    key: str


class CloseLink(NamedTuple):
    """Close the link to `peer`, which the core has forgotten already: the other end receives `link_down`."""

    peer: NodeId


class Discard(NamedTuple):
    """A packet ends here. `id` is None when the packet does not even name a message."""

    id: MessageId | None
    peer: NodeId
    reason: Reason


class Expire(NamedTuple):
    """A message that has reached this node ends here undelivered: its time was over before its turn came.

    At most once per message, and never for one that was delivered. A further copy of it is a `Discard`.
    """

    id: MessageId
    reason: Reason


class CountOn(NamedTuple):
    """Whether the group counts on `peer` from now on.

    If not, what waits for it and has not left is void, and nothing waits for it any more; the link
    itself stays, because a peer that lives must be told.
    """

    peer: NodeId
    counts: bool


class Stop(NamedTuple):
    """This node is out of the group: the last effect. Give the core no more inputs, tell the application."""

    reason: Reason


Effect: TypeAlias = (
    Send
    | Deliver
    | Deliveries
    | Logged
    | SetTimer
    | CancelTimer
    | Discard
    | Expire
    | CloseLink
    | CountOn
    | Stop
    | Missed
    | Internal
    | Stable
    | Tell
)
Effects: TypeAlias = list[Effect]
