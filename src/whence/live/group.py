"""The application's view: `join` a group, `broadcast` to it, iterate over what it delivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Self

import msgspec

from whence.core.message import Expired, Message, MessageId, Waiting
from whence.errors import (
    GroupClosedError,
    MisuseError,
    PayloadTooLargeError,
    PeerError,
    WhenceError,
)
from whence.live.agents import serve
from whence.live.arguments import lifetime_us
from whence.live.durable import DurableMembership
from whence.live.node import Node
from whence.live.stats import Stats, gather
from whence.session.durable import Agent
from whence.session.journal import GroupEvent
from whence.session.links import Link
from whence.trace.writer import TraceWriter


class Group:
    """A node's membership in a group. Made by `join`; safe to use from any task of its event loop."""

    def __init__(self, node: Node, trace: TraceWriter | None) -> None:
        self._node = node
        self._flow = node.flow
        self._host = node.host
        self._inbox = node.host.inbox
        self._trace = trace
        member = node.membership
        self._durable = member if isinstance(member, DurableMembership) else None
        self._waiters = node.waiters
        self._leaving: asyncio.Task[None] | None = None
        self._max_payload_bytes = node.identity.max_payload_bytes

    @property
    def name(self) -> str:
        """The group's name."""
        return self._node.settings.group

    @property
    def node(self) -> str:
        """This node's name."""
        return self._node.settings.node

    @property
    def members(self) -> tuple[str, ...]:
        """Every configured member, sorted, this node included; without a list, it and its neighbours."""
        return self._node.membership.members

    async def broadcast(self, payload: bytes, *, deadline: float | None = None) -> MessageId:
        """Send `payload` to every member, this node included; returns the message's id.

        `deadline` is in seconds from now, for protocols with lifetimes: who cannot deliver the message
        in causal order by then does not deliver it at all.

        Returns as soon as the message is on its way, and waits only for back-pressure: while a member
        has too much unacknowledged, or too much is unread here.
        """
        if isinstance(payload, bytes) and len(payload) > self._max_payload_bytes:
            raise self._too_large(len(payload))
        if self._flow.room <= 0:
            await self._waiters.room()
        within_us = None if deadline is None else lifetime_us("deadline", deadline)
        if self._durable is not None:
            return await self._durable.submit(payload, within_us, None)
        return self._node.broadcast(payload, within_us)

    async def send(self, to: str, payload: bytes) -> MessageId:
        """Send `payload` to the member `to` alone, under a point-to-point protocol; returns its id.

        Returns and waits as `broadcast` does.
        """
        if isinstance(payload, bytes) and len(payload) > self._max_payload_bytes:
            raise self._too_large(len(payload))
        if self._flow.room <= 0:
            await self._waiters.room()
        if self._durable is not None:
            return await self._durable.submit(payload, None, to)
        return self._node.broadcast(payload, None, to)

    async def serve(self, agent: Agent) -> None:
        """Let `agent` react to every message, until the group is closed; of a durable node.

        `agent(state, message)` returns its new state and the messages to send, `Output(to, payload)`; it may
        be a coroutine. Reaction, state and messages are one step: a crash leaves all of it or nothing.
        If it raises, `AgentError` says at which message, which stays in the queue.
        """
        await serve(self._need_store("serve"), agent)

    def done(self) -> None:
        """Of a durable node: the messages taken so far need not come again after a restart.

        Asking for the next message says so too.
        """
        self._need_store("done").finished()

    @property
    def agent_state(self) -> bytes:
        """What the agent of a durable node returned last; empty before its first reaction."""
        return self._need_store("agent_state").host.agent_state

    def _need_store(self, what: str) -> DurableMembership:
        if self._durable is None:
            raise MisuseError(what, "this node has no store", "Give `store=` to whence.join")
        return self._durable

    def _too_large(self, size_bytes: int) -> PayloadTooLargeError:
        limit_bytes = self._max_payload_bytes
        if limit_bytes < self._node.limits.max_payload_bytes:
            whose, fix = f"the {limit_bytes} that fit into one datagram", "Split it, or use transport='tcp'"
        else:
            whose = f"the group's limit of {limit_bytes}"
            fix = "Split it, or raise max_payload_bytes at every member"
        return PayloadTooLargeError("payload", f"it has {size_bytes} bytes, more than {whose}", fix)

    def __aiter__(self) -> Self:
        self._waiters.reads()
        return self

    async def __anext__(self) -> Message:
        while True:
            outcome = await self._next()
            if isinstance(outcome, Message):
                return outcome

    async def outcomes(self) -> AsyncIterator[Message | Expired]:
        """Every message, and from now on also an `Expired` for each that came or waited too long here."""
        if self._durable is not None:
            raise MisuseError("outcomes", "a durable node does not keep them", "Read messages only")
        self._waiters.reads()
        self._host.tells_outcomes = True
        while True:
            try:
                yield await self._next()
            except StopAsyncIteration:
                return

    async def _next(self) -> Message | Expired:
        inbox, durable = self._inbox, self._durable
        if durable is not None:
            durable.finished()
        while not inbox:
            if self._flow.closed is not None:
                if self._node.failed:
                    raise _again(self._flow.closed)
                raise StopAsyncIteration
            self._waiters.reads()
            await self._waiters.arrival()
        if durable is not None:
            message: Message | Expired = durable.host.hand_out()
        else:
            message = inbox.popleft()
            self._host.unread_bytes -= len(message[2])
        if self._flow.full and self._waiters.relieved():
            self._node.wake()
        return message

    async def receive(self) -> Message:
        """The next message; own messages are delivered too. `GroupClosedError` when there are no more."""
        self._waiters.reads()
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise _again(self._flow.closed) from None

    @property
    def unread(self) -> int:
        """Messages that are delivered here and wait to be read."""
        return len(self._inbox)

    def explain(self) -> list[Waiting]:
        """Every message that waits here: since when, and for which messages."""
        return self._host.core.explain()

    def stats(self) -> Stats:
        """Counters since the node joined, and the state of every link."""
        stats = gather(self._node)
        if self._durable is None:
            return stats
        return msgspec.structs.replace(stats, store=self._durable.store_stats())

    @property
    def events(self) -> list[GroupEvent]:
        """The newest events of the links (at most 1000), oldest first."""
        return list(self._node.journal.events)

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """Wait until every member is connected (those that left or were given up do not count).

        There is no need to: what is broadcast earlier waits in the queues. When the time
        is over, the error names the missing members and the last problem with each.
        """
        missing = await self._node.wait_connected(timeout_s)
        if self._flow.closed is not None:
            raise _again(self._flow.closed)
        if missing:
            raise _not_connected(self.name, missing, timeout_s)

    def flush_trace(self) -> None:
        """Put what was recorded on disk: called right after `broadcast`, before the message leaves."""
        if self._trace is not None:
            self._trace.flush()

    async def leave(self) -> None:
        """Wait (a bounded time) until what was broadcast is acknowledged, say good-bye, and close."""
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave())
        # Whoever else calls this waits for the same leaving, and may be cancelled without disturbing it.
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        try:
            await self._node.leave()
        finally:
            if self._trace is not None:
                self._trace.close()


def _again(closed: WhenceError | None) -> GroupClosedError:
    """A fresh exception for each caller, because raising one object twice mixes up its traceback."""
    if closed is None:
        return GroupClosedError("group", "it was left", "Join again to take part")
    return GroupClosedError(closed.what, closed.reason, closed.fix)


def _not_connected(group: str, missing: list[Link], timeout_s: float | None) -> PeerError:
    """Typed as the most telling problem: a refusal says more than a connection that no one took."""
    refusals = [link.last_error for link in missing if isinstance(link.last_error, PeerError)]
    kind = type(refusals[0]) if refusals else PeerError
    problems = "; ".join(
        f"{link.peer} at {link.address} ({link.last_error or 'it has not connected'})" for link in missing
    )
    return kind(
        f"group {group!r}",
        f"not connected after {timeout_s:g} s: {problems}",
        "Start the missing nodes, and check their addresses and configuration",
    )
