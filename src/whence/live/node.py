"""A node on real sockets: writes once per turn of the loop, keeps its links alive, and leaves in order.

One class for every kind of group. The parts decide: `session/host.py` has the core and its effects,
`session/peering.py` the life of the links with the judgements of its admission, `session/flow.py` the bounds,
a `Membership` how a node comes into its group and parts from it: listed members here, with a store in
`durable.py`, over changing links in `overlay.py`. Here is what ties them to the event loop: the clock and the
timers of the core, the tasks that wait, the turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakSet

from whence.core.effects import Reason
from whence.core.message import MessageId, NodeId, Packet
from whence.core.protocol import Protocol as Core
from whence.errors import (
    GroupClosedError,
    InvariantError,
    MisuseError,
    NoRoomError,
    PeerError,
    WhenceError,
)
from whence.live.secure import SecureConnection
from whence.live.settings import NodeSettings
from whence.live.tcp import Connection, TcpTransport
from whence.live.udp import UdpOutlet, UdpTransport
from whence.session.admission import Admission
from whence.session.datagrams import DatagramLink, Datagrams, header_of
from whence.session.flow import Flow
from whence.session.handshake import Identity
from whence.session.host import Host
from whence.session.journal import Journal, log
from whence.session.limits import Limits
from whence.session.links import Channel, Link
from whence.session.peering import Peering
from whence.session.session import Session
from whence.session.wire import FrameReader, Known
from whence.trace.schema import Recorder

RELEASE_AFTER_S = 0.25
WAIT, RAISE = "wait", "raise"  # what to do with a message for which there is no room
BATCH_BYTES = 256 * 1024  # one write: about as much as the transport takes before it asks to wait
_READINGS = 10


def _reading(_: int) -> tuple[int, int]:
    """How long it took to read both clocks, and by how much they differ, in nanoseconds."""
    before_ns = time.monotonic_ns()
    wall_ns = time.time_ns()
    took_ns = time.monotonic_ns() - before_ns
    return took_ns, wall_ns - before_ns - took_ns // 2


class WallClock:
    """Microseconds of wall-clock time, anchored once, so that they never go back."""

    speed = 1.0

    def __init__(self) -> None:
        # Between two readings we may lose the processor, so the closest pair of several counts: the
        # processes of one machine must agree to a few microseconds, or deadlines would mean nothing.
        self._offset_ns = min(map(_reading, range(_READINGS)))[1]

    def now_us(self) -> int:
        """The time now."""
        return (time.monotonic_ns() + self._offset_ns) // 1000


class CoreTimers:
    """The timers of one core; `expired` is called with the key of each, not early."""

    def __init__(
        self,
        now_us: Callable[[], int],
        expired: Callable[[str], None],
        speed: float = 1.0,
    ) -> None:
        self._now_us = now_us
        self._second_us = 1e6 * speed  # of the loop's time
        self._call_later = asyncio.get_running_loop().call_later
        self._expired = expired
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._handles

    def set(self, key: str, at_us: int) -> None:
        """Expire at `at_us`, and not at the time of an earlier setting."""
        self.cancel(key)
        self._handles[key] = self._call_later(
            (at_us - self._now_us()) / self._second_us, self._due, key, at_us
        )

    def cancel(self, key: str) -> None:
        """Do not expire."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _due(self, key: str, at_us: int) -> None:
        if self._now_us() < at_us:  # the loop's clock is coarser, and a core must not be called early
            self.set(key, at_us)
            return
        del self._handles[key]
        self._expired(key)

    def close(self) -> None:
        """No timer expires any more."""
        for key in list(self._handles):
            self.cancel(key)


class Waiters:
    """Every task that waits."""

    def __init__(self, flow: Flow, limits: Limits, journal: Journal, wake: Callable[[], None]) -> None:
        self.arrivals: list[asyncio.Future[None]] = []  # of readers that found nothing
        # Of messages that wait for room: whether the task reads, and the one link that it waits for.
        self.broadcasts: list[tuple[asyncio.Future[None], bool, Link | None]] = []
        self._flow = flow
        self._limits = limits
        self._journal = journal
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._reading: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._warning: asyncio.TimerHandle | None = None  # set, or due already, while something waits

    # Readers

    def arrival(self) -> asyncio.Future[None]:
        """Done when something may be in the inbox, or the group is closed."""
        future = self._loop.create_future()
        self.arrivals.append(future)
        return future

    def wake_readers(self) -> None:
        """Something has arrived, or will never."""
        arrivals, self.arrivals = self.arrivals, []
        for reader in arrivals:
            if not reader.done():
                reader.set_result(None)

    def reads(self) -> None:
        """The running task reads the group."""
        task = asyncio.current_task()
        if task is not None:
            self._reading.add(task)

    # Broadcasts

    def refresh(self) -> None:
        """Look at the queues; wake the broadcasts that may go on. Once per turn of the loop."""
        flow = self._flow
        flow.refresh()
        if self.broadcasts:
            staying = []
            for waiter, reading, link in self.broadcasts:
                if waiter.done():
                    continue
                if flow.closed is None and not flow.may_go(link, reading=reading):
                    staying.append((waiter, reading, link))
                else:
                    waiter.set_result(None)
            self.broadcasts = staying

    def relieved(self) -> bool:
        """The application has read; True if acknowledgements that were withheld may leave now."""
        if not self._flow.full or not self._flow.half_read():
            return False
        self.refresh()
        return True

    async def room(
        self, link: Link | None = None, *, timeout_s: float | None = None, on_full: str = WAIT
    ) -> None:
        """Wait until the next message may leave, to all or over one link; `NoRoomError` when time is over.

        With `on_full` "raise" it may not wait at all.
        """
        flow = self._flow
        reading = asyncio.current_task() in self._reading
        waited = False
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                while True:
                    self.refresh()
                    if flow.closed is not None:
                        raise GroupClosedError(flow.closed.what, flow.closed.reason, flow.closed.fix)
                    if flow.may_go(link, reading=reading, waited=waited):
                        return
                    if on_full == RAISE:
                        raise NoRoomError("message", *flow.why_waiting(link))
                    waited = True
                    await self._wait(link, reading=reading)
        except TimeoutError:
            reason, fix = flow.why_waiting(link)
            raise NoRoomError("message", f"after {timeout_s:g} s {reason}", fix) from None

    async def _wait(self, link: Link | None, *, reading: bool) -> None:
        """Wait until the queues have changed; the first that waits for long says why."""
        loop = self._loop
        if self._warning is None:
            self._warning = loop.call_later(self._limits.warn_after_s, self._warn, link)
        waiter: asyncio.Future[None] = loop.create_future()
        self.broadcasts.append((waiter, reading, link))
        stuck = loop.call_later(RELEASE_AFTER_S, self._stuck, waiter) if reading else None
        try:
            await waiter
        finally:
            if stuck is not None:
                stuck.cancel()
            if not any(not other.done() for other, _, _ in self.broadcasts):
                self._end_warning()

    def _stuck(self, waiter: asyncio.Future[None]) -> None:
        """A task that reads waits for a peer, and the peer perhaps for our acknowledgements."""
        if self._flow.may_release():
            self._flow.release = True
            self._wake()
        if not waiter.done():  # it may have been woken in this very turn of the loop
            waiter.set_result(None)  # it looks again, and comes back here in another moment if it must

    def _warn(self, link: Link | None) -> None:
        """Once, until there is room again: however many tasks wait."""
        reason, fix = self._flow.why_waiting(link)
        waits = f"a message has been waiting for {self._limits.warn_after_s:g} s"
        self._journal.note("waiting", None, f"{waits}: {reason}. {fix}", logging.WARNING)

    def _end_warning(self) -> None:
        if self._warning is not None:
            self._warning.cancel()
            self._warning = None


class Membership(Protocol):
    """How a node belongs to its group; a failure of the core ends the node (`Node.fail`)."""

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Every member that this node knows, itself included, sorted."""

    async def prepare(self) -> None:
        """Bring up what is there before the first connection."""

    async def enter(self) -> list[Coroutine[Any, Any, None]]:
        """Become a member; returns the work that goes on until the node leaves."""

    def receive(self, link: Link, packets: list[Packet], data_bytes: int) -> None:
        """DATA frames have arrived."""

    def timer(self, key: str) -> None:
        """A timer of the core has expired."""

    def link_up(self, link: Link) -> None:
        """A connection has become a link."""

    def link_gone(self, link: Link) -> None:
        """A link has ended permanently."""

    def link_met(self, link: Link) -> None:
        """The peer's session is known."""

    def told(self, link: Link, known: Known) -> None:
        """The peer has said where it listens, and where others do; only where nodes introduce each other."""

    def missing(self) -> list[Link]:
        """The links without a connection that a member waits for."""

    def is_too_slow(self, link: Link) -> bool:
        """Whether more is unacknowledged than a peer may have, which is then abandoned."""

    async def part(self, deadline_s: float) -> None:
        """Take leave of the others."""

    async def close(self) -> None:
        """When all connections are closed."""


@dataclass(frozen=True)
class GroupKind:
    """The parts in which nodes of different kinds of groups differ."""

    admission: Callable[[Identity, Mapping[NodeId, Link]], Admission]
    host: Callable[..., Host]
    membership: Callable[[Node], Membership]
    waits_for_peers: bool = True  # a broadcast waits while a peer has too much unacknowledged


class Node:
    """One member of the group. Create it inside the event loop, `start` it, `leave`."""

    def __init__(self, settings: NodeSettings, identity: Identity, core: Core, kind: GroupKind) -> None:
        self.settings = settings
        self.limits = limits = settings.limits
        self.identity = identity
        self.packet_type: type[Packet] = core.packet_type
        self.journal = Journal(settings.node, time.time)
        self.links: dict[NodeId, Link] = {}
        outlet = UdpOutlet(identity, settings.faults) if settings.transport == "udp" else None
        datagram_links = self._make_links(core, outlet)
        self.bytes_sent = 0
        self.leaving = self.failed = False
        self._hard_messages = limits.hard_messages(len(settings.addresses))
        self._hard_bytes = limits.hard_bytes(len(settings.addresses))
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flush_scheduled = False
        self._ack_timer: asyncio.TimerHandle | None = None
        self._link_list = self.links.values()
        self.clock = settings.clock or WallClock()
        self.timers = CoreTimers(self.clock.now_us, self._timer_expired, self.clock.speed)
        self.host = kind.host(core, self.links, self.timers, self, self.clock.now_us)
        self.peering = Peering(
            kind.admission(identity, self.links), self.links, limits, self.journal, self, self._loop.time
        )
        self.flow = Flow(self.host, self._link_list if kind.waits_for_peers else (), limits)
        self.waiters = Waiters(self.flow, limits, self.journal, self.wake)
        self.membership = kind.membership(self)
        self.transport: TcpTransport | UdpTransport = (
            TcpTransport(settings.listen, self.links, self._connection, self.peering, self.journal)
            if outlet is None
            else self._udp(outlet, datagram_links)
        )

    def _make_links(self, core: Core, outlet: UdpOutlet | None) -> dict[NodeId, DatagramLink]:
        """One link to each member that this one needs; returns those of datagrams."""
        settings, links = self.settings, {}
        for peer in self.identity.members:
            if peer == settings.node or (core.linked is not None and peer not in core.linked):
                continue
            address = settings.addresses[peer]
            if outlet is None:
                self.links[peer] = Link(peer, address, dials=settings.node < peer, renews=core.renews)
            else:
                header = header_of(self.identity)
                links[peer] = DatagramLink(peer, address, settings.limits, outlet, header)
        self.links.update(links)
        return links

    def _udp(self, outlet: UdpOutlet, links: dict[NodeId, DatagramLink]) -> UdpTransport:
        reader = FrameReader(self.packet_type, self.settings.max_frame_bytes, datagrams=True)
        assert self.settings.listen is not None
        return UdpTransport(
            self.settings.listen,
            links,
            outlet,
            Datagrams(links, self.peering, self.journal, reader),
            self.limits,
            self.membership.receive,
            self.wake,
            lambda: self.flow.full,
        )

    def _connection(self, link: Link | None) -> Connection:
        """A new connection, dialled for `link` or accepted, secured if the node has keys."""
        keys, receive = self.settings.keys, self.membership.receive
        if keys is None:
            return Connection(self._session, receive, self.wake, self.limits, link)
        return SecureConnection(self._session, receive, self.wake, self.limits, link, keys)

    def _session(self, channel: Channel, link: Link | None) -> Session:
        reader = FrameReader(self.packet_type, self.settings.max_frame_bytes)
        return Session(self.peering, channel, reader, link, draw_session())

    # Life

    async def listen(self) -> None:
        """Bind the address; no one is answered yet."""
        await self.transport.listen()

    async def start(self, recorder: Recorder | None = None) -> None:
        """Bring the links up, begin to answer and to call."""
        self.host.record(recorder)
        now_s = self._loop.time()
        for link in self._link_list:
            link.lost_s = now_s
        await self.membership.prepare()
        self.waiters.refresh()
        work = await self.transport.start()
        self.wake()  # a core may have something to say to a new link
        for each in (*work, *await self.membership.enter(), self._keep_house()):
            self.spawn(each)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let `work` go on until it ends or the node leaves; its failure is the node's."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    async def _keep_house(self) -> None:
        """Look after every link twice per heartbeat, and sample for the trace."""
        period_s = self.limits.heartbeat_s / 2
        due_s = self._loop.time() + period_s
        while True:
            await asyncio.sleep(period_s)
            now_s = self._loop.time()
            late = now_s - due_s > period_s
            due_s = now_s + period_s
            if late:
                continue  # we were asleep ourselves: what has arrived meanwhile is not read yet
            for link in list(self._link_list):
                self.peering.look_after(link)
            self.host.sample()

    async def leave(self) -> None:
        """Take leave of the others, and close. Takes a bounded time."""
        if self.leaving:
            return
        self.leaving = True
        name = f"group {self.settings.group!r}"
        self._close_to_users(GroupClosedError(name, "it was left", "Join again to take part"))
        try:
            if not self.failed:
                await self.membership.part(self._loop.time() + self.limits.leave_timeout_s)
        finally:
            await self._shut()

    async def until(self, condition: Callable[[], bool], deadline_s: float | None) -> None:
        """Wait until `condition` holds, which can change with the links only, or for the deadline."""
        while not condition():
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def wait_connected(self, timeout_s: float | None) -> list[Link]:
        """Wait until every living peer is connected; returns those that are not when time is up."""
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        await self.until(lambda: not self.membership.missing() or self.flow.closed is not None, deadline_s)
        return self.membership.missing()

    async def _shut(self) -> None:
        self.timers.close()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.transport.close()
        for link in self._link_list:
            if link.channel is not None:
                link.channel.close()
                link.channel = None
        await asyncio.sleep(0)  # the transports close in the next turn of the loop
        await self.membership.close()
        self.timers.close()  # what was written last may have set one

    def fail(self, error: BaseException) -> None:
        """This node cannot go on: every user of the group learns why."""
        if self.failed:
            return
        self.failed = True
        reason = f"the node has failed ({error})"
        self.journal.note("failed", None, reason, logging.ERROR)
        if isinstance(error, WhenceError) and not isinstance(error, InvariantError):
            fix = error.fix  # a full disk, a peer that refuses us: not a bug, so no traceback
        else:
            fix = "This is a bug in Whence; please report it with the log"
            log.error("%s: where it failed:", self.settings.node, exc_info=error)
        self._close_to_users(GroupClosedError(f"group {self.settings.group!r}", reason, fix))

    def _close_to_users(self, why: WhenceError) -> None:
        if self.flow.closed is None:
            self.flow.closed = why
        self.waiters.refresh()
        self.changed()
        self.waiters.wake_readers()

    # Messages

    def broadcast(
        self, payload: bytes, lifetime_us: int | None = None, to: NodeId | None = None
    ) -> MessageId:
        """Broadcast now, or send `to` one node; the caller has waited for room."""
        host = self.host
        try:
            id_, frame_bytes = host.broadcast(payload, lifetime_us) if to is None else host.send(to, payload)
        except MisuseError:
            raise  # the caller's mistake, and nothing has happened
        except Exception as error:  # the core has moved, but its effects were not carried out
            self.fail(error)
            raise
        flow = self.flow
        flow.room -= 1
        flow.room_bytes -= frame_bytes
        if flow.room_bytes <= 0:
            flow.room = 0
        if not self._flush_scheduled:
            self.wake()
        if self.waiters.arrivals:
            self.waiters.wake_readers()
        return id_

    def try_step(self, step: Callable[..., None], *given: Any) -> None:
        """A step of the core outside the hot path: if it fails, so does the node."""
        try:
            step(*given)
        except Exception as error:  # noqa: BLE001 - it must end the group, and not just one connection
            self.fail(error)
        if self.waiters.arrivals and self.host.inbox:
            self.waiters.wake_readers()

    # From the links

    def link_up(self, link: Link) -> None:
        """A connection has become a link."""
        self.membership.link_up(link)
        self.waiters.refresh()

    def link_gone(self, link: Link) -> None:
        """A link has ended permanently."""
        self.membership.link_gone(link)
        self.waiters.refresh()
        self.wake()

    def link_renewed(self, link: Link) -> None:
        """The peer is another process than the one that the link knew."""
        self.link_gone(link)
        link.renew()
        if not self.failed:
            self.host.link_up(link.peer)

    def link_met(self, link: Link) -> None:
        """The peer's session is known."""
        self.membership.link_met(link)

    def told(self, link: Link, known: Known) -> None:
        """The peer has said where it listens, and where others do."""
        self.membership.told(link, known)

    def acknowledged(self) -> None:
        """A peer has acknowledged packets."""
        if self.waiters.broadcasts:
            self.waiters.refresh()
        self._changed.set()

    def changed(self) -> None:
        """A link was made or lost: those that wait look again."""
        self._changed.set()

    # From the core

    def _timer_expired(self, key: str) -> None:
        self.try_step(self.membership.timer, key)
        self.wake()

    def count_on(self, peer: NodeId, counts: bool) -> None:
        """The protocol goes on with `peer`, or without it."""
        link = self.links[peer]
        if link.alive != counts:
            self.peering.count_on(link, counts)

    def stopped(self, reason: Reason) -> None:
        """The core is out of the group."""
        if reason is not Reason.LEFT:
            fix = "Start it again with joins = true; see docs/vcube.md"
            self.fail(PeerError(f"node {self.settings.node!r}", reason.value, fix))
        self.changed()

    def close_link(self, peer: NodeId, why: str) -> None:
        """In the middle of a step of the core: the connection ends now, the consequences come after."""
        link = self.links.get(peer)
        if link is not None and link.alive:
            self.peering.close(link, why)
            self._loop.call_soon(self.link_gone, link)

    # One turn of the loop

    def wake(self) -> None:
        """Write in this turn of the loop."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self, ack_now: bool = False) -> None:
        """One joined write per peer; then see which tasks may go on and which peers are too slow."""
        self._flush_scheduled = False
        waiters, flow = self.waiters, self.flow
        if waiters.arrivals and self.host.inbox:  # a timer or the end of a link may deliver, too
            waiters.wake_readers()
        may_ack, ack_now = flow.may_ack, ack_now or flow.release
        flow.release = False
        max_frames = max(1, BATCH_BYTES // self.host.largest_frame_bytes)
        now_s = self._loop.time()
        ack_later = False
        for link in self._link_list:
            incoming = link.incoming
            if link.out.pending or incoming.received > incoming.told:
                written = link.flush(max_frames, may_ack=may_ack, ack_now=ack_now)
                if written:
                    self.bytes_sent += written
                    link.wrote_s = now_s
                ack_later = ack_later or incoming.received > incoming.told
                if not link.alive and link.out.unacknowledged > self._hard_messages:
                    self.peering.give_up_slow(link)  # it is out of the group, and yet it makes us talk
        if ack_later and may_ack and self._ack_timer is None:
            self._ack_timer = self._loop.call_later(self.limits.ack_delay_s, self._ack_all)
        waiters.refresh()
        if -flow.free > self._hard_messages or -flow.free_bytes > self._hard_bytes:
            for link in list(self._link_list):
                if link.alive and self.membership.is_too_slow(link):
                    self.peering.give_up_slow(link)

    def _ack_all(self) -> None:
        self._ack_timer = None
        self._flush(ack_now=True)

    def is_above_hard_limit(self, link: Link) -> bool:
        """Whether more is unacknowledged than a peer may have."""
        out = link.out
        return out.unacknowledged > self._hard_messages or out.unacknowledged_bytes() > self._hard_bytes


class ListedMembership:
    """Every member is listed, and has a link from the start, which outlives its connections."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._host = node.host
        self._links = node.links
        self._peering = node.peering
        self._waiters = node.waiters

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Every configured member, sorted."""
        return self.node.identity.members

    async def prepare(self) -> None:
        """Tell the core that its links exist."""
        self._host.mark_later_life()
        for peer in self._links:
            self._host.link_up(peer)

    async def enter(self) -> list[Coroutine[Any, Any, None]]:
        """Nothing to wait for: a member that is listed is in."""
        return []

    def receive(self, link: Link, packets: list[Packet], data_bytes: int) -> None:
        """DATA frames have arrived."""
        node = self.node
        if self._peering.parting or node.failed:
            return  # not acknowledged: no peer will believe that they were delivered here
        link.incoming.take(len(packets), data_bytes)
        host, waiters = self._host, self._waiters
        try:
            host.receive(link.peer, packets)
        except Exception as error:  # noqa: BLE001 - it must end the group, and not just one connection
            node.fail(error)
        if waiters.arrivals and host.inbox:
            waiters.wake_readers()
        node.wake()

    def timer(self, key: str) -> None:
        """A timer of the core has expired."""
        self._host.timer(key)

    def link_up(self, link: Link) -> None:
        """A link is up from the start."""

    def link_gone(self, link: Link) -> None:
        """A peer has left, or is abandoned."""
        if not self.node.failed:
            self.node.try_step(self._host.link_down, link.peer)

    def link_met(self, link: Link) -> None:
        """Its link knows the peer's session; no one else needs it."""

    def told(self, link: Link, known: Known) -> None:
        """No one is introduced: the members are listed."""

    def missing(self) -> list[Link]:
        """The living peers that are not connected."""
        return [link for link in self._links.values() if link.alive and link.channel is None]

    def is_too_slow(self, link: Link) -> bool:
        """Whether more is unacknowledged than a peer may have."""
        return self.node.is_above_hard_limit(link)

    async def part(self, deadline_s: float) -> None:
        """Wait until all that was sent is acknowledged, say good-bye."""
        node, host, peering = self.node, self._host, self._peering
        if host.core.renews:
            host.leave()
            node.wake()
            await node.until(lambda: host.is_stopped, deadline_s)
        # Only what is queued now: while others broadcast, a node that relays never has an empty queue.
        totals = [(link, link.out.total) for link in self._links.values() if link.alive]
        await node.until(
            lambda: all(link.out.acknowledged >= total or not link.alive for link, total in totals),
            deadline_s,
        )
        peering.parting = True
        met = [link for link in self._links.values() if link.alive and link.peer_session]
        # Nothing of ours is under way any more: it is enough that a peer had the time to connect again.
        deadline_s = min(deadline_s, peering.now_s() + 2 * node.limits.backoff_max_s)
        for until_s in node.transport.goodbye_times(deadline_s):
            for link in met:
                if link.alive:
                    peering.say_goodbye(link)
            await node.until(lambda: not any(link.alive for link in met), until_s)
        for link, total in totals:
            missing = total - link.out.acknowledged
            if missing > 0:
                peering.lost_frames += missing
                detail = f"{missing} messages for it were not acknowledged before this node left"
                node.journal.note("lost", link.peer, detail, logging.WARNING)

    async def close(self) -> None:
        """Nothing is left open."""


def draw_session() -> int:
    """A number that no one can guess: of an incarnation, or of a connection; never 0 ("never met")."""
    return secrets.randbits(62) + 1
