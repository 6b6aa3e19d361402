"""A group whose messages say what they followed: which of them were concurrent can be told.

    async with whence.join("room", ..., protocol="prc") as group:
        ordered = whence.Ordered(group)
        await ordered.broadcast(b"hello")
        async for message, after in ordered: ...
        ordered.relation(one, other)            # before, after, concurrent

All processes of the group must use it: it writes what `core/partial_order.py` names in front of the payload.
A message follows what its sender's application had *read* when it asked to broadcast.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, NamedTuple, Self, TypeAlias

import msgspec
from msgspec import Meta

from whence.core.message import Message, MessageId
from whence.core.partial_order import PartialOrder, Relation
from whence.live.group import Group

PAST_MAX = 65_536  # names; a message follows at most one of each sender directly

_Name: TypeAlias = tuple[Annotated[str, Meta(min_length=1)], Annotated[int, Meta(ge=1, le=2**63 - 1)]]
_Past: TypeAlias = Annotated[list[_Name], Meta(max_length=PAST_MAX)]
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[tuple[_Past, bytes]] = msgspec.msgpack.Decoder(tuple[_Past, bytes])


class Placed(NamedTuple):
    """A message and its direct predecessors; None if it does not say: its sender uses no `Ordered`."""

    message: Message
    after: frozenset[MessageId] | None


def with_past(past: tuple[MessageId, ...], payload: bytes) -> bytes:
    """The payload as it travels."""
    return _encode((past, payload))


def past_of(message: Message) -> tuple[Message, list[MessageId]] | None:
    """The message as it was broadcast and what it names; None if it is none of ours."""
    try:
        past, payload = _decoder.decode(message.payload)
    except ValueError:  # msgspec's errors are ValueErrors
        return None
    return Message(message.origin, message.number, payload), [MessageId(*each) for each in past]


class Ordered:
    """A group with the past of its messages. Read the group through this alone."""

    def __init__(self, group: Group, keep: int = 10_000) -> None:
        self.order = PartialOrder(group.node, keep)
        self._group = group
        self._reading: AsyncIterator[Message] | None = None
        self._turn = asyncio.Lock()  # names must go out in the order in which they were taken

    async def broadcast(self, payload: bytes, *, deadline: float | None = None) -> MessageId:
        """As `Group.broadcast`."""
        async with self._turn:
            past = self.order.name_past()
            try:
                return await self._group.broadcast(with_past(past, payload), deadline=deadline)
            except BaseException:
                self.order.take_back(past)
                raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Placed:
        if self._reading is None:
            self._reading = aiter(self._group)
        message = await anext(self._reading)
        known = past_of(message)
        if known is None:
            self.order.delivered(message.id, ())
            return Placed(message, None)
        return Placed(known[0], self.order.delivered(message.id, known[1]))

    def relation(self, one: MessageId, other: MessageId) -> Relation:
        """How `one` stands to `other`, both among the newest `keep` that were read here."""
        return self.order.relation(one, other)
