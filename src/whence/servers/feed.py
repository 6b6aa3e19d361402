"""Who sees a server's messages besides its agent: the tails.

Where an agent serves, a tail is told each message after the reaction; a slow reader misses some, and is told
how many. Where there is no agent, the tails are the readers: a message stays in QueueIN until one of them
says that it took it, so that a reader which dies half-way has lost nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable
from typing import Any

from whence.core.message import Message
from whence.servers.requests import Told
from whence.session.records import Output

LINES_KEPT = 1000  # for a reader that is slower than the agent


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


class Feed:
    """The tails of one server. `react` is what the server gives to `serve`."""

    def __init__(self, agent: Any = None) -> None:
        self.agent = agent
        self.reactions = 0
        self._tails: set[Tail] = set()
        self._in_hand: Told | None = None  # without an agent: what waits to be taken
        self._taken = asyncio.Event()

    def attach(self) -> Tail:
        """A new reader."""
        tail = Tail()
        self._tails.add(tail)
        if self._in_hand is not None:
            tail.tell(self._in_hand)
        return tail

    def detach(self, tail: Tail) -> None:
        """The reader is gone."""
        self._tails.discard(tail)

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
        if self._tails:  # the reaction is not on the disk yet: after a crash it may be told once more
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
        for tail in self._tails:
            tail.tell(line)


def _told(message: Message, outputs: list[Output]) -> Told:
    return Told(
        origin=message.origin,
        number=message.number,
        payload=message.payload,
        outputs=[(to, payload) for to, payload in outputs],
    )
