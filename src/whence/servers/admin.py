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
from typing import Any, Protocol

import msgspec

from whence.core.message import Message, MessageId
from whence.errors import PlatformError, RequestError, WhenceError
from whence.servers.letters import opened_letter
from whence.servers.requests import (
    LINE_SLACK_BYTES,
    Accepted,
    Answer,
    AskDead,
    AskDrop,
    AskFlush,
    AskHold,
    AskLearn,
    AskQueued,
    AskRetire,
    AskRevive,
    AskSend,
    AskStatus,
    AskStop,
    AskTail,
    DeadLetters,
    Done,
    Queued,
    Refused,
    Request,
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
    letter = opened_letter(message.payload)
    sent = [(to, opened_letter(payload)) for to, payload in outputs]
    return Told(
        origin=letter.sender or message.origin,
        number=message.number,
        payload=letter.payload,
        outputs=[(each.to or to, each.payload) for to, each in sent],
        to=letter.to,
    )


class Administered(Protocol):
    """The server that is asked."""

    def status(self) -> Status:
        """How it is."""

    async def send(self, to: str, payload: bytes, timeout_s: float | None) -> MessageId:
        """Send a message; returns when it is durable."""

    def dead(self) -> DeadLetters:
        """The messages at which agents failed permanently."""

    async def revive(self, id_: MessageId) -> None:
        """Let an agent try a dead letter again."""

    async def drop(self, id_: MessageId) -> None:
        """Forget a dead letter."""

    async def retire(self, name: str) -> None:
        """Wait for a server no more."""

    async def flush(self) -> None:
        """Put what was traced on the disk."""

    def hold(self, names: list[str], seconds: float | None) -> None:
        """Let senders to `names` wait."""

    def queued(self, names: list[str], leaving: list[str]) -> Queued:
        """What a change could strand here."""

    async def learn(self) -> None:
        """Take over what was applied."""

    @property
    def stop(self) -> Callable[[bool], None]:
        """Stop in order, and start again if so asked."""


class Admin:
    """Replies to requests until it is closed."""

    def __init__(self, path: Path, tails: Tails, server: Administered, max_payload_bytes: int) -> None:
        self._path = path
        self._tails = tails
        self._of = server
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
        try:
            request = decode_request(line)
            if isinstance(request, AskTail):
                return conversation.tail()
            if isinstance(request, Took):
                return conversation.took()
            return await self._carry_out(request) or Done()
        except WhenceError as error:
            return Refused.of(error)

    async def _carry_out(self, request: Request) -> Answer | None:
        """Do what is asked of the server; None: that is all there is to say."""
        server = self._of
        match request:
            case AskStatus():
                return server.status()
            case AskSend(to, payload, timeout_s):
                origin, number = await server.send(to, payload, timeout_s)
                return Accepted(origin=origin, number=number)
            case AskDead():
                return server.dead()
            case AskQueued(names, leaving):
                return server.queued(names, leaving)
            case AskRevive(origin, number):
                await server.revive(MessageId(origin, number))
            case AskDrop(origin, number):
                await server.drop(MessageId(origin, number))
            case AskRetire(name):
                await server.retire(name)
            case AskFlush():
                await server.flush()
            case AskHold(names, seconds):
                server.hold(names, seconds)
            case AskLearn():
                await server.learn()
            case AskStop(again):
                server.stop(again)
        return None


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
