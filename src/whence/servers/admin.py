"""A server's administration: a Unix socket for its owner alone, one JSON object per line (requests.py).

Who sees a server's messages besides its agent are the tails. Where an agent serves, a tail receives each
message after the reaction; a slow reader misses some, and learns how many. Where there is no agent, the tails
are the readers: a message stays in QueueIN until one of them says that it took it, so that a reader which
dies half-way has lost nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from whence.core.message import Message, MessageId
from whence.errors import PlatformError, RequestError, WhenceError
from whence.servers.requests import (
    LINE_SLACK_BYTES,
    Accepted,
    Answer,
    AskDead,
    AskDrop,
    AskRevive,
    AskSend,
    AskStatus,
    AskStop,
    AskTail,
    DeadLetters,
    Done,
    Refused,
    Status,
    Told,
    Took,
    decode_request,
    encode,
)
from whence.session.records import Output

LINES_KEPT = 1000  # for a reader that is slower than the agent
_BACKLOG = 64


class Tail:
    """One reader: what it has not been told yet."""

    def __init__(self) -> None:
        self._lines: deque[Told] = deque()
        self._missed = 0
        self._some = asyncio.Event()
        self.told: Told | None = None  # the line that it was given last

    def tell(self, line: Told) -> None:
        """Queue a line."""
        if len(self._lines) == LINES_KEPT:
            self._lines.popleft()
            self._missed += 1
        self._lines.append(line)
        self._some.set()

    async def next(self) -> tuple[Told, int]:
        """The next line, and how many were missed before it."""
        while not self._lines:
            self._some.clear()
            await self._some.wait()
        self.told = self._lines.popleft()
        missed, self._missed = self._missed, 0
        return self.told, missed


class Tails:
    """The tails of one server. `react` is what the server gives to `serve`."""

    def __init__(self, agent: Any = None) -> None:
        self.agent = agent
        self.reactions = 0
        self._all: set[Tail] = set()
        self._in_hand: Told | None = None  # without an agent: what waits to be taken
        self._taken = asyncio.Event()

    def attach(self) -> Tail:
        """A new reader."""
        tail = Tail()
        self._all.add(tail)
        if self._in_hand is not None:
            tail.tell(self._in_hand)
        return tail

    def detach(self, tail: Tail) -> None:
        """The reader is gone."""
        self._all.discard(tail)

    def took(self, tail: Tail) -> None:
        """A reader has the message that it was told last; two may say so of one message."""
        if self._in_hand is not None and tail.told is self._in_hand:
            self._in_hand = None
            self._taken.set()

    def react(self, state: bytes, message: Message) -> Any:
        """What to give to `serve`: the agent, overheard. A coroutine if the agent is one."""
        answer: Any = self.agent(state, message)
        if inspect.isawaitable(answer):
            return self._later(answer, message)
        self._overhear(message, answer)
        return answer

    async def _later(self, answer: Awaitable[Any], message: Message) -> Any:
        known = await answer
        self._overhear(message, known)
        return known

    def _overhear(self, message: Message, answer: Any) -> None:
        self.reactions += 1
        if self._all:  # the reaction is not on the disk yet: after a crash it may be told once more
            _, outputs = answer
            self._tell(_told(message, outputs))

    async def hand_over(self, message: Message) -> None:
        """Without an agent: wait until a reader has taken the message."""
        self._in_hand = line = _told(message, [])
        self._taken.clear()
        self._tell(line)
        try:
            await self._taken.wait()
        finally:
            self._in_hand = None

    def _tell(self, line: Told) -> None:
        for tail in self._all:
            tail.tell(line)


def _told(message: Message, outputs: list[Output]) -> Told:
    return Told(
        origin=message.origin,
        number=message.number,
        payload=message.payload,
        outputs=[(to, payload) for to, payload in outputs],
    )


class Admin:
    """Replies to requests until it is closed."""

    def __init__(
        self,
        path: Path,
        tails: Tails,
        *,
        status: Callable[[], Status],
        send: Callable[[str, bytes], Awaitable[MessageId]],
        dead: Callable[[], DeadLetters],
        revive: Callable[[MessageId], Awaitable[None]],
        drop: Callable[[MessageId], Awaitable[None]],
        stop: Callable[[], None],
        max_payload_bytes: int,
    ) -> None:
        self._path = path
        self._tails = tails
        self._status = status
        self._send = send
        self._dead = dead
        self._revive = revive
        self._drop = drop
        self._stop = stop
        self._max_line_bytes = max_payload_bytes * 4 // 3 + LINE_SLACK_BYTES  # base64
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. The caller holds the server's lock, so a socket that is there is a dead server's."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # never open to others, not even for a moment
        try:
            self._path.unlink(missing_ok=True)
            listening.bind(str(self._path))
        except OSError as error:
            listening.close()
            raise PlatformError(
                str(self._path), f"it cannot be made ({error})", "Set `folder` to one that may be written"
            ) from error
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(
            self._accept, sock=listening, limit=self._max_line_bytes, backlog=_BACKLOG
        )

    async def close(self) -> None:
        """Reply to no one any more."""
        if self._server is not None:
            self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = _Conversation(self._tails, writer)
        try:
            while line := await self._line(reader, writer):
                if line.strip():
                    writer.write(encode(await self._answer(line, conversation)))
                    await writer.drain()
        except ConnectionError:
            return  # the client is gone
        finally:
            conversation.end()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            return await reader.readline()
        except ValueError:  # longer than any request: where the next one begins is unknown
            too_long = RequestError(
                "a request", f"it has more than {self._max_line_bytes} bytes", "Send a shorter payload"
            )
            writer.write(encode(Refused.of(too_long)))
            await writer.drain()
            return b""

    async def _answer(self, line: bytes, conversation: _Conversation) -> Answer:
        answer: Answer = Done()
        try:
            match decode_request(line):
                case AskStatus():
                    answer = self._status()
                case AskSend(to, payload):
                    origin, number = await self._send(to, payload)
                    answer = Accepted(origin=origin, number=number)
                case AskTail():
                    answer = conversation.tail()
                case Took():
                    answer = conversation.took()
                case AskDead():
                    answer = self._dead()
                case AskRevive(origin, number):
                    await self._revive(MessageId(origin, number))
                case AskDrop(origin, number):
                    await self._drop(MessageId(origin, number))
                case AskStop():
                    self._stop()
        except WhenceError as error:
            answer = Refused.of(error)
        return answer


class _Conversation:
    """What one connection has asked for so far."""

    def __init__(self, tails: Tails, writer: asyncio.StreamWriter) -> None:
        self._tails = tails
        self._writer = writer
        self._tail: Tail | None = None
        self._telling: asyncio.Task[None] | None = None

    def tail(self) -> Answer:
        if self._tail is not None:
            raise RequestError("tail", "this connection is a tail already", "Open another connection")
        self._tail = self._tails.attach()
        self._telling = asyncio.get_running_loop().create_task(self._tell(self._tail))
        return Done(takes=self._tails.agent is None)

    def took(self) -> Answer:
        if self._tail is None:
            raise RequestError("took", "this connection is no tail", "Ask for a tail first")
        self._tails.took(self._tail)
        return Done()

    async def _tell(self, tail: Tail) -> None:
        with contextlib.suppress(ConnectionError):  # the reading side finds out, too, and ends the talk
            while True:
                line, missed = await tail.next()
                self._writer.write(encode(msgspec.structs.replace(line, missed=missed) if missed else line))
                await self._writer.drain()

    def end(self) -> None:
        if self._tail is not None:
            self._tails.detach(self._tail)
        if self._telling is not None:
            self._telling.cancel()
