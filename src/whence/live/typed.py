"""Messages that fit applications: values in place of bytes, headers, questions with replies.

    async with whence.join("room", node="ann", listen=..., codec=Note) as group:   # Note: a msgspec struct
        await group.broadcast(Note("milk"), headers={"shelf": "3"})
        async for received in group:
            print(received.origin, received.value.text, received.headers)

A `TypedGroup` stands before a `Group` and adds an envelope to every payload; the order, and whatever else the
group does, is the group's. All members of a group must use the same codec. A payload that is no envelope, or
whose body the codec refuses, is given to the application all the same: its `value` raises `CodecError`.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from whence.core.effects import Missed
from whence.core.lives import News
from whence.core.message import Expired, Message, MessageId
from whence.errors import CodecError, GroupClosedError, MisuseError, NoReplyError
from whence.live.group import Group

Value = TypeVar("Value")

PLAIN, QUESTION, REPLY = 0, 1, 2


class Codec(NamedTuple, Generic[Value]):
    """How values become bytes and back; `decode` raises `ValueError` for what is none."""

    encode: Callable[[Value], bytes]
    decode: Callable[[bytes], Value]


CodecLike: TypeAlias = Codec[Value] | type[Value] | str


class Envelope(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What travels as the payload of a typed group."""

    kind: int
    token: str  # of a question, and of its reply
    headers: dict[str, str]
    body: bytes


_envelope_encoder = msgspec.msgpack.Encoder()
_envelope_decoder = msgspec.msgpack.Decoder(Envelope)


class Received(Generic[Value]):
    """A message as the application sees it."""

    __slots__ = ("_decode", "envelope", "message")

    def __init__(self, message: Message, envelope: Envelope | None, decode: Callable[[bytes], Value]) -> None:
        self.message = message
        self.envelope = envelope
        self._decode = decode

    @property
    def origin(self) -> str:
        """The node that sent it."""
        return self.message.origin

    @property
    def id(self) -> MessageId:
        """Its id."""
        return self.message.id

    @property
    def headers(self) -> Mapping[str, str]:
        """What its sender wrote beside the value."""
        return {} if self.envelope is None else self.envelope.headers

    @property
    def is_question(self) -> bool:
        """Whether its sender waits for a reply (`TypedGroup.reply`)."""
        return self.envelope is not None and self.envelope.kind == QUESTION

    @contextmanager
    def processed(self) -> Iterator[None]:
        """A span of OpenTelemetry around what is done with the message, linked to the one that sent it."""
        from opentelemetry import propagate, trace

        sender = trace.get_current_span(propagate.extract(dict(self.headers))).get_span_context()
        links = [trace.Link(sender)] if sender.is_valid else []
        attributes = {"messaging.system": "whence", "messaging.operation.type": "process"}
        attributes |= {"messaging.message.id": str(self.id), "whence.origin": self.origin}
        with trace.get_tracer("whence").start_as_current_span(
            "process", kind=trace.SpanKind.CONSUMER, links=links, attributes=attributes
        ):
            yield

    @property
    def value(self) -> Value:
        """The value; `CodecError` if the payload is not one of this codec."""
        if self.envelope is None:
            raise CodecError(f"message {self.id}", "its payload has no envelope", _SAME_CODEC)
        try:
            return self._decode(self.envelope.body)
        except ValueError as error:  # msgspec's errors are ValueErrors, too
            raise CodecError(f"message {self.id}", f"the codec refuses it ({error})", _SAME_CODEC) from error


_SAME_CODEC = "Give every member of the group the same codec, or read `message.payload`"


def codec_of(given: CodecLike[Any]) -> Codec[Any]:
    """The codec that is meant: a `Codec`, "json", "msgpack", or a type that msgspec knows."""
    if isinstance(given, Codec):
        return given
    if given == "json":
        return Codec(msgspec.json.encode, msgspec.json.decode)
    if given == "msgpack":
        return Codec(msgspec.msgpack.encode, msgspec.msgpack.decode)
    try:
        if not isinstance(given, str):
            return Codec(msgspec.msgpack.encode, msgspec.msgpack.Decoder(given).decode)
        reason = f"{given!r} is not a codec"
    except TypeError as error:
        reason = str(error)
    raise MisuseError("codec", reason, "Give 'json', 'msgpack', a msgspec struct, or Codec(encode, decode)")


class TypedGroup(Generic[Value]):
    """A group whose messages are values. Made by `join(..., codec=...)`; `group` is the group beneath."""

    def __init__(self, group: Group, codec: Codec[Value]) -> None:
        self.group = group
        self._codec = codec
        self._unread: deque[Received[Value]] = deque()
        self._questions: dict[str, asyncio.Future[Received[Value]]] = {}
        self._reader = asyncio.Lock()  # one task takes from the group for all that wait

    @property
    def node(self) -> str:
        """This node's name."""
        return self.group.node

    async def broadcast(
        self, value: Value, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> MessageId:
        """Send a value to every member; `options` are those of `Group.broadcast`."""
        return await self.group.broadcast(self._sealed(PLAIN, "", value, headers), **options)

    async def send(
        self, to: str, value: Value, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> MessageId:
        """Send a value to one member (point-to-point protocols); `options` are those of `Group.send`."""
        return await self.group.send(to, self._sealed(PLAIN, "", value, headers), **options)

    async def ask(
        self, to: str, value: Value, *, headers: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> Received[Value]:
        """Send a question to one member and return its reply; `NoReplyError` when the time is over.

        Question and reply are messages like all others: the reply comes after all that its sender knew. While
        this waits, other messages are kept for the readers of the group.
        """
        token = secrets.token_hex(8)
        reply: asyncio.Future[Received[Value]] = asyncio.get_running_loop().create_future()
        self._questions[token] = reply
        try:
            async with asyncio.timeout(timeout_s):
                await self.group.send(to, self._sealed(QUESTION, token, value, headers))
                await self._read_until(reply.done)
                return reply.result()
        except TimeoutError:
            raise NoReplyError(
                f"the question to {to!r}",
                f"no reply came within {timeout_s} s",
                "Look whether it is up and reads its messages; asking again may be answered twice",
            ) from None
        finally:
            del self._questions[token]

    async def reply(
        self, question: Received[Value], value: Value, *, headers: Mapping[str, str] | None = None
    ) -> MessageId:
        """Send the reply to a question that was received."""
        if question.envelope is None or not question.is_question:
            raise MisuseError("reply", f"message {question.id} is not a question", "Use `send`")
        return await self.group.send(
            question.origin, self._sealed(REPLY, question.envelope.token, value, headers)
        )

    async def receive(self) -> Received[Value]:
        """The next message; `GroupClosedError` when there are no more."""
        await self._read_until(lambda: bool(self._unread))
        return self._unread.popleft()

    async def __aiter__(self) -> AsyncIterator[Received[Value]]:
        """Every message but replies, which `ask` returns; done when the next is asked for (`Group.done`)."""
        while True:
            try:
                received = await self.receive()
            except GroupClosedError:
                return
            yield received
            self.group.done_if_in_hand(received.message)

    async def outcomes(self) -> AsyncIterator[Received[Value] | Expired | Missed | News]:
        """As `Group.outcomes`, with values in place of bytes."""
        async for outcome in self.group.outcomes():
            yield self._opened(outcome) if isinstance(outcome, Message) else outcome

    def done(self, received: Received[Value]) -> None:
        """Of a durable node: this message need not come again after a restart."""
        if self.group.is_durable:
            self.group.done(received.message)

    async def leave(self) -> None:
        """As `Group.leave`."""
        await self.group.leave()

    def _sealed(self, kind: int, token: str, value: Value, headers: Mapping[str, str] | None) -> bytes:
        carried = {**(headers or {})}
        if "opentelemetry" in sys.modules:  # the program traces itself: its context travels along
            from opentelemetry import propagate

            propagate.inject(carried)
        try:
            envelope = Envelope(kind, token, carried, self._codec.encode(value))
            return _envelope_encoder.encode(envelope)
        except (TypeError, ValueError) as error:
            raise CodecError(
                f"value {value!r:.80}", f"it cannot be encoded ({error})", "Give a value of the codec's type"
            ) from error

    def _opened(self, message: Message) -> Received[Value]:
        try:
            envelope: Envelope | None = _envelope_decoder.decode(message.payload)
        except ValueError:
            envelope = None
        return Received(message, envelope, self._codec.decode)

    async def _read_until(self, ready: Callable[[], bool]) -> None:
        """Take messages from the group until `ready`; several may wait, and one of them takes for all."""
        while not ready():
            async with self._reader:
                if not ready():
                    self._sort(self._opened(await self.group.receive()))

    def _sort(self, received: Received[Value]) -> None:
        envelope = received.envelope
        if envelope is None or envelope.kind != REPLY:
            self._unread.append(received)
            return
        self.done(received)
        asked = self._questions.get(envelope.token)
        if asked is not None and not asked.done():
            asked.set_result(received)  # and one that came too late is over: its caller was told


class _Joins(Protocol):
    async def __aenter__(self) -> Group: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


_ENTER = "Write `async with whence.join(...) as group:`, and use the group inside"


class Unentered:
    """What people try first with the result of `join`, each with the reason why it cannot be.

    There is nothing to have without an event loop, and a group is left in the end.
    """

    def __enter__(self) -> NoReturn:
        raise MisuseError("join", "it is entered with a plain `with`", _ENTER)

    def __exit__(self, *error: object) -> None:
        """Never entered."""

    def __await__(self) -> NoReturn:
        raise MisuseError("join", "it is awaited, and nobody would leave the group", _ENTER)

    def __aiter__(self) -> NoReturn:
        raise MisuseError("join", "it is iterated over before the group is entered", _ENTER)

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and (hasattr(Group, name) or hasattr(TypedGroup, name)):
            raise MisuseError("join", f"{name!r} is asked for before the group is entered", _ENTER)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class TypedJoining(Unentered, Generic[Value]):
    """The result of `join` with a codec: enter it to be a member."""

    def __init__(self, joining: _Joins, codec: Codec[Value]) -> None:
        self._joining = joining
        self._codec = codec

    async def __aenter__(self) -> TypedGroup[Value]:
        return TypedGroup(await self._joining.__aenter__(), self._codec)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._joining.__aexit__(kind, error, traceback)
