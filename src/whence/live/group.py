"""The application's view: `join` a group, `broadcast` to it, iterate over what it delivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import NoReturn, Self, cast

import msgspec

from whence.core.effects import Missed
from whence.core.lives import News
from whence.core.message import Expired, Message, MessageId, Waiting
from whence.errors import (
    GroupClosedError,
    MisuseError,
    ParameterError,
    PayloadTooLargeError,
    PeerError,
    WhenceError,
)
from whence.live.arguments import lifetime_us
from whence.live.durable import DurableMembership, serve
from whence.live.log import LogMembership
from whence.live.node import Membership, Node
from whence.live.stats import LinkStats, Stats
from whence.live.waiting import RAISE, WAIT
from whence.session.clocks import ClockWatch
from whence.session.durable import Agent, DeadLetter
from whence.session.flow import Flow
from whence.session.host import Host
from whence.session.journal import GroupEvent
from whence.session.links import Link
from whence.session.log_host import LogMessage, LogOutcome
from whence.session.records import Dropped, Revived
from whence.trace.writer import TraceWriter

KEY_MAX_BYTES = 255
_make = tuple.__new__  # of a named tuple: half the cost of its own constructor


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
        self._log = member if isinstance(member, LogMembership) else None
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
    def max_payload_bytes(self) -> int:
        """The longest payload that the group takes."""
        return self._max_payload_bytes

    @property
    def protocol(self) -> str:
        """The protocol that orders its messages."""
        return self._node.settings.protocol

    @property
    def is_durable(self) -> bool:
        """Whether what is accepted here survives a crash: then messages are to be `done`."""
        return self._durable is not None or (self._log is not None and self._log.is_durable)

    @property
    def membership(self) -> Membership:
        """How the node belongs to its group: for daemons and tools, not for applications."""
        return self._node.membership

    @property
    def members(self) -> tuple[str, ...]:
        """Every configured member, sorted, this node included.

        Without a list: those that this node has heard of and that have not left (`log`), or its neighbours.
        """
        return self._node.membership.members

    async def broadcast(
        self,
        payload: bytes,
        *,
        deadline: float | None = None,
        key: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it bounds the waiting for room only, as documented
        on_full: str = WAIT,
        copies: int = 0,
    ) -> MessageId:
        """Send `payload` to every member, this node included; returns the message's id.

        `deadline` is in seconds from now, for protocols with lifetimes: who cannot deliver the message
        in causal order by then does not deliver it at all.

        Returns as soon as the message is on its way, and waits only for back-pressure: while a member
        has too much unacknowledged, or too much is unread here. `timeout` is how many seconds it may wait for
        that, and with `on_full="raise"` it does not wait at all: then `NoRoomError` says for whom there is no
        room, and nothing was sent.

        `key` says, at a durable node, which message this is: one that is tried again with a key among the
        newest 65,536 is not sent again, and the id of the first is returned.

        In a group that remembers no peer is waited for, unless `copies` asks that this many have it; with
        `timeout`, `NotCopiedError` says that fewer do. With `stability` a message waits in the outbox, with a
        store on the disk, until a member has admitted this node: it is sent then, also by a later life if
        this one ends; `NotAdmittedError` says that `timeout` was too short for that.
        """
        if isinstance(payload, bytes) and len(payload) > self._max_payload_bytes:
            raise self._too_large(len(payload))
        if key is not None and (known := self._known(key)) is not None:
            return known
        within_us = None if deadline is None else lifetime_us("deadline", deadline)
        if timeout is not None or copies or on_full is not WAIT:
            self._check_options(timeout, on_full, copies)
        log, id_ = self._log, None
        if self._flow.room <= 0:
            if log is not None and not log.may_speak and _choice(on_full) == WAIT:
                id_ = await log.post(payload, within_us, key, _seconds(timeout))
            else:
                await self._waiters.room(timeout_s=_seconds(timeout), on_full=_choice(on_full))
        if log is not None:
            if id_ is None:
                id_ = log.broadcast(payload, within_us, key)
                if log.is_durable:
                    await log.written()
            if copies:
                await log.copied(id_.number, copies, _seconds(timeout))
            return id_
        durable = self._durable
        if durable is None:
            return self._node.broadcast(payload, within_us)
        if within_us is not None or key is not None:
            return await durable.submit(payload, within_us, None, key)
        saying, at = durable.broadcast(payload)
        await saying
        return saying.outcome(at)

    async def send(
        self,
        to: str,
        payload: bytes,
        *,
        key: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as for `broadcast`
        on_full: str = WAIT,
    ) -> MessageId:
        """Send `payload` to the member `to` alone, under a point-to-point protocol; returns its id.

        As `broadcast`, but it waits for the link that the message takes and, where nodes route, for room at
        `to`, and for no other. To a member that was retired, or has left, nothing is sent: `MisuseError`.
        """
        if isinstance(payload, bytes) and len(payload) > self._max_payload_bytes:
            raise self._too_large(len(payload))
        if key is not None and (known := self._known(key)) is not None:
            return known
        way = self._node.way_to(to)
        if not self._flow.may_go(way, reading=False, waited=False) or self._flow.closed is not None:
            await self._waiters.room(way, timeout_s=_seconds(timeout), on_full=_choice(on_full))
        self._node.leaves(way)
        if self._durable is None:
            return self._node.broadcast(payload, None, to)
        if way.link is None:
            return await self._durable.submit(payload, None, to, key)
        way.link.promised += 1  # or all that wait for room would leave together
        try:
            return await self._durable.submit(payload, None, to, key)
        finally:
            way.link.promised -= 1

    def _known(self, key: bytes) -> MessageId | None:
        """The id of the message that has this key; None if it is new."""
        if not isinstance(key, bytes) or not 0 < len(key) <= KEY_MAX_BYTES:
            raise MisuseError("key", f"{key!r} is not 1 to {KEY_MAX_BYTES} bytes", "Choose a short key")
        if self._log is not None:
            return self._log.host.log.id_of(key)
        return self._need_store("key").host.keys.get(key)

    async def serve(self, agent: Agent, *, attempts: int | None = None) -> None:
        """Let `agent` react to every message, until the group is closed; of a durable node.

        `agent(state, message)` returns its new state and the messages to send, `Output(to, payload)`; it may
        be a coroutine. Reaction, state and messages are one step: a crash leaves all of it or nothing.
        If it raises, `AgentError` says at which message, which stays in the queue. With `attempts` it is
        tried again instead, that many times in all, and then becomes a dead letter: the next one follows.
        """
        if attempts is not None and attempts < 1:
            raise ParameterError("attempts", f"{attempts} is not a number from 1", "Let it try at least once")
        await serve(self._need_store("serve"), agent, lambda _: attempts)

    async def serve_many(
        self, agent: Agent, who: Callable[[Message], str], attempts: Callable[[str], int]
    ) -> None:
        """As `serve`, of many agents under one roof: `who` names the one that a message is for.

        `agent` is given the state of that one, and `attempts` says how often it may fail at one message.
        """
        await serve(self._need_store("serve"), agent, attempts, who)

    def hold(self, names: Collection[str]) -> None:
        """Where nodes route: let every `send` to these members wait, until another call names others."""
        if self._node.rooms is not None:
            self._node.rooms.held = frozenset(names)
            self._waiters.refresh()

    @property
    def full(self) -> list[str]:
        """Where nodes route: the members to which a `send` waits now, because they take no more; sorted."""
        return [] if self._node.rooms is None else sorted(self._node.rooms.full)

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Of a durable node: the messages at which its agent failed permanently, oldest first."""
        return list(self._need_store("dead_letters").host.dead.values())

    async def revive(self, id_: MessageId) -> None:
        """Let the agent of a durable node try a dead letter again, after all messages that wait now."""
        member = self._need_store("revive")
        await member.log.submit(Revived(member.host.now_us(), id_))

    async def drop(self, id_: MessageId) -> None:
        """Forget a dead letter of a durable node."""
        member = self._need_store("drop")
        await member.log.submit(Dropped(member.host.now_us(), id_))

    def done(self, message: Message) -> None:
        """Of a durable node: this message, which `receive` returned, need not come again after a restart.

        Messages may be done in any order. `async for` says it of each when it asks for the next.
        """
        if self._log is not None and isinstance(message, LogMessage):
            self._log.done(message)
        else:
            self._need_store("done").finished(message.id)

    def done_if_in_hand(self, message: Message) -> None:
        """As a loop says it of the message before: done, unless a reader said so, or put it back."""
        if self._log is not None and isinstance(message, LogMessage):
            if message.lsn in self._log.host.hand:
                self._log.done(message)
        elif self._durable is not None:
            self._durable.finished_if_in_hand(message.id)

    def again(self, message: Message) -> None:
        """Put back a message that `receive` returned: it is the next that a reader is given."""
        if self._log is not None and isinstance(message, LogMessage):
            self._log.host.put_back(message)
        elif self._durable is not None:
            self._durable.put_back(message.id)
        else:
            self._inbox.appendleft(message)
            self._host.unread_bytes += len(message.payload)
        self._waiters.wake_readers()

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

    def __aiter__(self) -> AsyncIterator[Message]:
        """Every message, once to one of the tasks that read.

        At a durable node a message is done when its loop asks for the next: not if the body raised.
        """
        self._waiters.reads()
        durable, log = self._durable, self._log
        if durable is not None:
            return DurableReading(durable, self._wait, self._relieve)
        if log is not None:
            return LogReading(log, self._wait, self._take)
        return Reading(self._host, self._flow, self._wait, self._relieve)

    async def outcomes(self) -> AsyncIterator[Message | Expired | Missed | News]:
        """Every message, and from now on also an `Expired` for each that came or waited too long here, and a
        `Missed` for those that this node will not be given: it was away, their sender's disk is lost, or
        they cannot be had any more.

        News of nodes and lives as well: `Rejoined` where a node was out of its group and is in again; in a
        group that remembers `Joined`, `Left`, `Suspected`, `RolledBack`, `OtherLife`, `Retired`, `Forked`.
        """
        if self._log is not None:
            async for outcome in self._outcomes_of_log(self._log):
                yield outcome
            return
        if self._durable is not None:
            raise MisuseError("outcomes", "a durable node does not keep them", "Read messages only")
        self._waiters.reads()
        self._host.tells_outcomes = True
        while True:
            try:
                yield await self._next()
            except StopAsyncIteration:
                return

    async def _next(self) -> Message | Expired | Missed | News:
        if not self._inbox or self._durable is not None:
            await self._wait()
        return self._take()

    async def _wait(self) -> None:
        """Wait until the inbox has something."""
        inbox = self._inbox
        if self._durable is not None:
            self._durable.check_reader()
        while not inbox:
            if self._log is not None and self._log.host.may_refill:
                self._log.host.refill()
                continue
            if self._flow.closed is not None:
                if self._node.failed:
                    raise _again(self._flow.closed)
                raise StopAsyncIteration
            self._waiters.reads()
            await self._waiters.arrival()

    def _take(self) -> Message | Expired | Missed | News:
        """The first of the inbox, which is not empty."""
        outcome: Message | Expired | Missed | News = self._host.hand_out()
        if self._log is not None and self._log.is_paused:
            self._log.relieve()
        if self._flow.full:
            self._relieve()
        return outcome

    def _relieve(self) -> None:
        """A reader has taken a message while too much was unread."""
        if self._waiters.relieved():
            self._node.wake()

    async def _outcomes_of_log(self, log: LogMembership) -> AsyncIterator[LogOutcome]:
        self._waiters.reads()
        while True:
            try:
                outcome = cast(LogOutcome, await self._next())
            except StopAsyncIteration:
                return
            yield outcome
            if log.is_durable and isinstance(outcome, LogMessage) and outcome.lsn in log.host.hand:
                log.done(outcome)  # the loop has asked for the next

    async def receive(self) -> Message:
        """The next message; own messages are delivered too. `GroupClosedError` when there are no more.

        Several tasks may ask. At a durable node the message comes again after a restart unless it is `done`.
        """
        self._waiters.reads()
        try:
            while True:
                if not self._inbox or self._durable is not None:
                    await self._wait()
                if isinstance(outcome := self._take(), Message):
                    return outcome
        except StopAsyncIteration:
            raise _again(self._flow.closed) from None

    @property
    def unread(self) -> int:
        """Messages that are delivered here and wait to be read."""
        return len(self._inbox) if self._log is None else self._log.host.unread

    # A group that remembers

    def stable(self) -> dict[str, int]:
        """Of each stream ("name/life") how many messages are stable; of a group with `stability`.

        Nothing that is concurrent with these will be delivered here without being flagged `late`.
        """
        return self._need_log("stable").host.log.stable()

    async def stable_cuts(self) -> AsyncIterator[dict[str, int]]:
        """What `stable` returns, whenever it has grown, until the group is closed."""
        async for cut in self._need_log("stable_cuts").stable_cuts():
            yield cut

    async def retire(self, name: str) -> None:
        """Take a member out of the group, for all: no member waits for it any more. Anyone may say so.

        In a group with a list what is for the member is void; if it lives, it comes back as another life, and
        so does a node that is started in its place. In a group that remembers it no longer counts for what is
        stable; what it says is still delivered, perhaps `late`.
        """
        if self._log is not None:
            await self._log.retire(name)
        else:
            self._node.retire(name)

    def ask(self, *_: object, **__: object) -> NoReturn:
        """Questions and replies are of groups with a codec (`TypedGroup`)."""
        raise MisuseError(
            "ask and reply",
            "messages of this group are bytes, which carry no questions",
            "Join with a codec, as in codec='json'",
        )

    reply = ask

    def cut(self) -> bytes:
        """What the readers here are done with: with the application's state at this moment, a snapshot.

        A newcomer that is given the state begins there, with `join(..., history=cut)`.
        """
        return self._need_log("cut").cut()

    def _check_options(self, timeout_s: float | None, on_full: str, copies: object) -> None:
        """Refuse bad options of a broadcast before anything is sent."""
        _seconds(timeout_s)
        _choice(on_full)
        if isinstance(copies, bool) or not isinstance(copies, int) or copies < 0:
            raise MisuseError(
                "copies", f"{copies!r} is not a number of peers", "Leave it out, or ask for some"
            )
        if copies:
            self._need_log("copies")

    def _need_log(self, what: str) -> LogMembership:
        if self._log is None:
            protocol = self._node.settings.protocol
            raise MisuseError(what, f"groups of protocol {protocol!r} have none", "Use protocol 'log'")
        return self._log

    def explain(self) -> list[Waiting]:
        """Every message that waits here: since when, and for which messages."""
        return self._host.core.explain()

    def stats(self) -> Stats:
        """Counters since the node joined, and the state of every link."""
        stats = _gather(self._node)
        if self._log is not None:
            return msgspec.structs.replace(stats, log=self._log.log_stats())
        if self._durable is None:
            return stats
        return msgspec.structs.replace(stats, store=self._durable.store_stats())

    def events(self) -> list[GroupEvent]:
        """The newest events of the links (at most 1000), oldest first."""
        return list(self._node.journal.events)

    async def wait_connected(self, timeout_s: float | None = None) -> None:
        """Wait until every member is connected (those that left or were given up do not count).

        A group that remembers is no mesh beyond 64 nodes: there, one link is enough.
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
        # Another caller waits for the same leaving, and may be cancelled without disturbing it.
        await asyncio.shield(self._leaving)

    async def _leave(self) -> None:
        try:
            await self._node.leave()
        finally:
            if self._trace is not None:
                self._trace.close()


class Reading:
    """One loop over a group's messages. What it does for each is all here: this runs once per delivery."""

    def __init__(
        self, host: Host, flow: Flow, wait: Callable[[], Awaitable[None]], relieve: Callable[[], None]
    ) -> None:
        self._host = host
        self._inbox = host.inbox
        self._flow = flow
        self._wait = wait
        self._relieve = relieve

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while True:
            if not self._inbox:
                await self._wait()
            outcome = self._inbox.popleft()
            if type(outcome) is tuple or type(outcome) is Message:
                self._host.unread_bytes -= len(outcome[2])
                if self._flow.full:
                    self._relieve()
                return _make(Message, outcome)


class DurableReading:
    """One loop at a durable node: a message is done, or passed, when the next is asked for."""

    def __init__(
        self, durable: DurableMembership, wait: Callable[[], Awaitable[None]], relieve: Callable[[], None]
    ) -> None:
        self._durable = durable
        self._host = durable.host
        self._inbox = durable.host.inbox
        self._flow = durable.node.flow
        self._wait = wait
        self._relieve = relieve
        self._last: Message | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        host, last, inbox = self._host, self._last, self._inbox
        if last is None or host.lent is not last or host.hand or not inbox:
            return await self._next_slowly(last)
        # The usual: this loop is alone, and has the oldest message; so no agent serves, and all is in order.
        host.passed = passed = host.passed + 1
        if passed == 1:
            self._durable.log.passed()
        message: Message
        host.lent = self._last = message = _make(Message, inbox.popleft())
        host.unread_bytes -= len(message[2])
        if self._flow.full:
            self._relieve()
        return message

    async def _next_slowly(self, last: Message | None) -> Message:
        host, self._last = self._host, None
        if last is not None and host.lent is last:
            host.lent = None
            host.passed += 1
            self._durable.log.passed()
        elif last is not None:
            self._durable.finished_if_in_hand(last.id)
        await self._wait()
        self._durable.check_reader()
        self._last = message = host.lend()
        if self._flow.full:
            self._relieve()
        return message


class LogReading:
    """One loop over a group that remembers; with a store a message is read when the next is asked for."""

    def __init__(
        self, log: LogMembership, wait: Callable[[], Awaitable[None]], take: Callable[[], object]
    ) -> None:
        self._log = log
        self._host = log.host
        self._inbox = log.host.inbox
        self._flow = log.node.flow
        self._done = log.host.book.done
        self._hand = log.host.hand
        self._write_soon = log.write_soon
        self._wait = wait
        self._take = take
        self._is_durable = log.is_durable
        self._last = 0  # LSN of the message that the loop has in hand

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        last = self._last
        if last:
            self._last = 0
            if last in self._hand:  # nobody has said that it is done, or put it back
                self._hand.remove(last)
                self._done(last)
                self._write_soon()
        while True:
            if not self._inbox:
                await self._wait()
            outcome = self._inbox[0]
            if type(outcome) is LogMessage and not (self._log.is_paused or self._flow.full):
                # As `_take` does, without the calls: this runs once per delivery.
                del self._inbox[0]
                self._host.unread_bytes -= len(outcome[2])
                lsn: int = outcome[6]  # type: ignore[misc]
                if self._is_durable:
                    self._hand.add(lsn)
                    self._last = lsn
                else:
                    self._done(lsn)
                return outcome
            if isinstance(outcome := self._take(), LogMessage):
                if self._is_durable:
                    self._last = outcome.lsn
                return outcome


def _seconds(timeout_s: float | None) -> float | None:
    if timeout_s is None or (isinstance(timeout_s, int | float) and timeout_s >= 0):
        return timeout_s
    raise MisuseError("timeout", f"{timeout_s!r} is not a number of seconds", "Leave it out to wait")


def _choice(on_full: str) -> str:
    if on_full in (WAIT, RAISE):
        return on_full
    raise MisuseError("on_full", f"{on_full!r} is neither 'wait' nor 'raise'", "Leave it out to wait")


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
        f"{link.peer} at {link.address} ({link.last_error or _no_problem(link)})" for link in missing
    )
    return kind(
        f"group {group!r}",
        f"not connected after {timeout_s:g} s: {problems}",
        "Start the missing nodes, and check their addresses and configuration",
    )


def _no_problem(link: Link) -> str:
    """Of two members the one with the smaller name calls, and it calls those in its list alone."""
    return "it has not connected" if link.dials else "it has not called: does its list name this node?"


def _gather(node: Node) -> Stats:
    """What `node` has counted so far."""
    host = node.host
    links = {peer: _of_link(link, node.clocks) for peer, link in node.links.items()}
    return Stats(
        broadcasts=host.broadcasts,
        deliveries=host.deliveries,
        packets_sent=sum(link.packets_sent for link in links.values()),
        packets_received=sum(link.packets_received for link in links.values()),
        bytes_sent=node.bytes_sent,
        bytes_received=node.peering.bytes_received,
        discards={reason.value: count for reason, count in host.discards.items()},
        expiries={reason.value: count for reason, count in host.expiries.items()},
        reconnects=sum(max(0, link.connections - 1) for link in links.values()),
        peer_errors=dict(node.journal.peer_errors),
        unread_messages=len(host.inbox),
        unread_bytes=host.unread_bytes,
        held_messages=host.held,
        control_entries=host.core.entries(),
        dropped=dict(node.transport.dropped),
        lost_frames=node.peering.lost_frames,
        missed_messages=host.missed,
        rejoins=node.rejoins,
        splits=node.splits,
        links=links,
    )


def _of_link(link: Link, clocks: ClockWatch | None) -> LinkStats:
    offset = None if clocks is None else clocks.offset(link.peer)
    connected = "connected" if link.channel is not None else "disconnected"
    return LinkStats(
        state=connected if link.alive else link.state.value,
        connections=link.connections,
        unacknowledged_messages=link.out.messages,
        unacknowledged_bytes=link.out.unacknowledged_bytes(),
        packets_sent=link.out.total,
        packets_received=link.incoming.received,
        last_error=str(link.last_error) if link.last_error else None,
        clock_offset_us=None if offset is None else offset.offset_us,
        clock_error_us=None if offset is None else offset.error_us,
    )
