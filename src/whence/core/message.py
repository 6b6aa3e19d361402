"""The nouns: who (NodeId), what (Message, MessageId), and what travels (Packet)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

NodeId: TypeAlias = str
NUMBER_MAX = 2**62  # of messages: what a trace's 64-bit column can hold, with room to compute

# A packet is a NamedTuple that its protocol defines: plain integers, strings, bytes and tuples of
# them, so that any host can encode it without knowing what it means.
Packet: TypeAlias = tuple[Any, ...]


# In the annotation of a packet's field: many packets have the same there, and it may be long. Who decodes it
# need not do so again for each.
REPEATED = "repeated"


class Together(list[Packet]):
    """Packets that arrived together, and their bytes: a core or a log that keeps many keeps those instead."""

    __slots__ = ("_decode", "encoded")

    def __init__(self, decode: Callable[[int, list[bytes]], list[Packet]]) -> None:
        self.encoded: list[bytes] = []  # each of one packet, or of several that follow each other
        self._decode = decode  # makes that many packets of such bytes

    def again(self) -> tuple[Callable[[], list[Packet]], int]:
        """A way to have them again that does not hold them, and no fewer bytes than their payloads have."""
        return partial(self._decode, len(self), self.encoded), sum(map(len, self.encoded))


# What a core saves: dict with string keys, list, int, str, bytes, bool, None. Any codec can carry it.
State: TypeAlias = dict[str, Any]


class MessageId(NamedTuple):
    """The `number`-th broadcast (from 1, without holes) of `origin`."""

    origin: NodeId
    number: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.number}"


class Message(NamedTuple):
    """What an application broadcasts and what it is given."""

    origin: NodeId
    number: int
    payload: bytes

    @property
    def id(self) -> MessageId:
        return MessageId(self.origin, self.number)


# A message that no one has looked at: the fields of a `Message`. The garbage collector goes through named
# tuples again and again, and forgets plain ones of numbers, text and bytes, so that what waits costs nothing.
Unread: TypeAlias = tuple[NodeId, int, bytes]


class Expired(NamedTuple):
    """What an application that asks for outcomes is given in place of a message whose time was over."""

    origin: NodeId
    number: int
    payload: bytes  # empty: the message is worthless
    reason: str

    @property
    def id(self) -> MessageId:
        return MessageId(self.origin, self.number)


class Waiting(NamedTuple):
    """A message that is held back: since when, and the ids that it waits for."""

    id: MessageId
    since_us: int
    missing: tuple[MessageId, ...]


class Sizes(NamedTuple):
    """What one packet costs on the wire, its frame included."""

    total_bytes: int
    control_bytes: int  # all that is not payload
