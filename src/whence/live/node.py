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

from whence.core.effects import Missed, Reason
from whence.core.group import base_of_life
from whence.core.lives import BACK, CUT_OFF, News, Rejoined, RolledBack
from whence.core.message import MessageId, NodeId, Packet
from whence.core.protocol import Protocol as Core
from whence.errors import GroupClosedError, InvariantError, MisuseError, WhenceError
from whence.live.settings import NodeSettings
from whence.live.tcp import Connection, TcpTransport
from whence.live.udp import UdpOutlet, UdpTransport
from whence.live.waiting import CoreTimers, Waiters, WallClock
from whence.protocols import registry
from whence.session.admission import UNKNOWN, Admission, Listed
from whence.session.clocks import ClockWatch
from whence.session.datagrams import DatagramLink, Datagrams, header_of
from whence.session.durable import DurableServer
from whence.session.flow import Flow, Way
from whence.session.handshake import Identity
from whence.session.host import Host
from whence.session.journal import Journal, log
from whence.session.links import Channel, Link
from whence.session.peering import Peering
from whence.session.roll import Roll
from whence.session.rooms import Rooms, refusal
from whence.session.session import Session
from whence.session.wire import BATCH_BYTES, ClockNews, FrameReader, Known, MembersNews, Packets, RoomNews
from whence.trace.schema import Recorder

POLL_S = 0.1
ALONE_S = 0.5  # so long a node without a store waits for somebody who knows whether it had an earlier life
BEGIN_AFTER_S = 0.3  # so long a node that has come back listens to what its peers know of it


class Membership(Protocol):
    """How a node belongs to its group; a failure of the core ends the node (`Node.fail`)."""

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Every member that this node knows, itself included, sorted."""

    async def prepare(self) -> None:
        """Bring up what is there before the first connection."""

    async def enter(self) -> list[Coroutine[Any, Any, None]]:
        """Become a member; returns the work that goes on until the node leaves."""

    def receive(self, link: Link, packets: Packets, data_bytes: int) -> None:
        """DATA frames have arrived; only a node with a store is given them unopened."""

    def timer(self, key: str) -> None:
        """A timer of the core has expired."""

    def link_up(self, link: Link) -> None:
        """A connection has become a link."""

    def link_gone(self, link: Link) -> None:
        """A link has ended permanently."""

    def link_met(self, link: Link) -> None:
        """The peer's session is known."""

    def introduced(self, link: Link, known: Known) -> None:
        """The peer has said where it listens, and where others do; only where nodes introduce each other."""

    def link_restarted(self, link: Link, welcomes: bool) -> None:
        """The numbering of a link begins anew; with `welcomes` its peer is told where this node is."""

    def command(self, verb: str, *names: NodeId) -> None:
        """Tell the core what is known of links and lives."""

    def begin_life(self, base: int) -> None:
        """This node's numbers go on after `base`."""

    def retired(self, name: NodeId, life: int) -> None:
        """A life of a member is out of the group."""

    def new_life(self) -> None:
        """This node shows another life from now on."""

    def come_back(self, why: str) -> None:
        """This node is out of the group, and did not leave it: come back."""

    def slept(self, seconds: float) -> None:
        """This process did nothing for so long."""

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
        self.rejoins = 0  # how often it was out of the group and came back
        self.splits = 0  # how often it met a process of another part of its group
        self._hard_messages = limits.hard_messages(len(settings.addresses))
        self._hard_bytes = limits.hard_bytes(len(settings.addresses))
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flush_scheduled = False
        self._ack_timer: asyncio.TimerHandle | None = None
        self._link_list = self.links.values()
        self.clock = settings.clock or WallClock()
        self.clocks = self._watch() if registry.lookup(settings.protocol).promises.timely else None
        self.timers = CoreTimers(self.clock.now_us, self._timer_expired, self.clock.speed)
        self.host = kind.host(core, self.links, self.timers, self, self.clock.now_us)
        self.peering = Peering(
            kind.admission(identity, self.links),
            self.links,
            limits,
            self.journal,
            self,
            self._loop.time,
            draw_session,
        )
        self._alone: asyncio.TimerHandle | None = None
        self._begins: asyncio.TimerHandle | None = None  # of a later life
        self.rooms = Rooms(core, self.links, limits) if core.routes_for_others else None
        self.flow = Flow(self.host, self._link_list if kind.waits_for_peers else (), limits, self.rooms)
        self.waiters = Waiters(self.flow, limits, self.journal, self.wake)
        self.membership = kind.membership(self)
        self.roll = Roll(self.peering, self.links, self.membership.retired)
        self.transport: TcpTransport | UdpTransport = (
            TcpTransport(settings.listen, self.links, self._connection, self.peering, self.journal)
            if outlet is None
            else self._udp(outlet, datagram_links)
        )

    def _make_links(self, core: Core, outlet: UdpOutlet | None) -> dict[NodeId, DatagramLink]:
        """One link to each member that this one needs; returns those of datagrams."""
        settings, links = self.settings, {}
        linked = core.linked if settings.linked is None else settings.linked
        for peer in self.identity.members if linked is None else sorted(linked):
            if peer == settings.node:
                continue
            address = settings.addresses.get(peer, UNKNOWN)
            if outlet is None:
                self.links[peer] = Link(peer, address, dials=settings.node < peer, renews=core.renews)
            else:
                header = header_of(self.identity)
                links[peer] = DatagramLink(peer, address, settings.limits, outlet, header)
        self.links.update(links)
        return links

    def _watch(self) -> ClockWatch:
        """Deadlines rest on clocks that agree: look whether they do."""
        slack_us = max(round(self.limits.clock_slack_s * 1e6), self.settings.params.get("clock_error_us", 0))
        return ClockWatch(self.clock.now_us, slack_us, self.journal)

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
        return Connection(self._session, receive, self.wake, self.limits, link, keys)

    def _session(self, channel: Channel, link: Link | None) -> Session:
        reader = FrameReader(
            self.packet_type,
            self.settings.max_frame_bytes,
            keeps_encoded=self.host.core.keeps_packets,
            opens=not isinstance(self.host, DurableServer),
        )
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
        if self.host.core.begins_at_once and self.peering.admission.returns:
            self._begin_life()
        elif isinstance(self.membership, ListedMembership) and self.links and self._may_be_back():
            self.host.is_unsure = True
            self._alone = self._loop.call_later(ALONE_S, self._nobody_met)
        self.waiters.refresh()
        work = await self.transport.start()
        self.wake()  # a core may have something to say to a new link
        for each in (*work, *await self.membership.enter(), self._keep_house()):
            self.spawn(each)

    def _may_be_back(self) -> bool:
        """Whether this may be a later life, which the others take back."""
        core = self.host.core
        return self.peering.admission.returns or (core.renews and core.ready)

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
            late_s = now_s - due_s
            due_s = now_s + period_s
            if late_s > period_s:
                self.try_step(self.membership.slept, late_s)
                continue  # we were asleep ourselves: what has arrived meanwhile is not read yet
            for link in list(self._link_list):
                self.peering.look_after(link)
                if self.clocks is not None:
                    self.clocks.tell(link)
            self.roll.look_around()
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
        for timer in (self._begins, self._alone):
            if timer is not None:
                timer.cancel()
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

    def way_to(self, to: NodeId) -> Way:
        """The way that a message to one node takes."""
        return Way(to, self.links.get(self.host.core.next_hop(to)))

    def leaves(self, way: Way) -> None:
        """A message to one node leaves; `MisuseError` if that is out of the group: nobody would have it."""
        if self.rooms is not None:
            self.rooms.sent(way.to)
        elif way.link is not None and not way.link.alive:
            raise refusal(way.to, way.link)

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
        self.roll.greet(link)
        if self.rooms is not None:
            self.rooms.met(link)
        if self.host.is_unsure:
            if link.knows_other and self.host.core.renews:
                self.host.is_unsure = False
                self._loop.call_soon(self.try_step, self.membership.come_back, "it was there before")
            elif link.knows_other:
                self._begin_soon(BEGIN_AFTER_S)
            elif self._begins is None and all(each.peer_session for each in self._link_list):
                if len(self.links) + 1 < len(self.identity.members):
                    self._begin_life()  # others, whom it does not meet, may know an earlier life
                else:
                    self._be_sure()  # nobody knows an earlier life: this is the first

    def _be_sure(self) -> None:
        self.try_step(self.host.be_sure)
        self.waiters.refresh()
        self.wake()

    def link_restarted(self, link: Link, welcomes: bool) -> None:
        """The numbering of a link begins anew: one of the two is another life."""
        if welcomes:
            self.journal.note("returned", link.peer, f"{link.peer} is back as another life, and begins anew")
        self.try_step(self.membership.link_restarted, link, welcomes)
        self.wake()

    def link_cut_off(self, link: Link) -> None:
        """There has been no connection for a while."""
        if self.peering.admission.returns and not self.failed:
            self.try_step(self.membership.command, CUT_OFF, link.peer)
            self.wake()

    def link_back(self, link: Link) -> None:
        """There is a connection again."""
        if self.peering.admission.returns and not self.failed:
            self.try_step(self.membership.command, BACK, link.peer)
            self.wake()

    def retired_by(self, link: Link) -> None:
        """A peer says that this life was retired: go on as another one."""
        why = f"{link.peer} says that this life was retired; this node goes on as another one"
        self.journal.note("retired", link.peer, why, logging.WARNING)
        link.session = draw_session()
        self.identity.lives.begin(draw_session())
        self.membership.new_life()

    def members_told(self, link: Link, news: MembersNews) -> None:
        """A peer tells of members that are out of the group, or of reach."""
        self.roll.hear(link, news)

    def room_told(self, link: Link, news: RoomNews) -> None:
        """A peer tells of destinations that take no message now."""
        if self.rooms is not None:
            self.rooms.hear(link, news)
            self.waiters.refresh()
            self.wake()

    def retire(self, name: NodeId) -> None:
        """Take a member out of the group, for all."""
        if self.settings.transport == "udp":
            raise MisuseError(
                "retire over datagrams",
                "nothing waits for a member there",
                "Leave it: what is for it is lost, and it may come back at any time",
            )
        if not isinstance(self.peering.admission, Listed) or not self.peering.admission.returns:
            waits = isinstance(self.peering.admission, Listed) and not self.host.core.renews
            raise MisuseError(
                f"retire under protocol {self.settings.protocol!r}",
                "it takes nobody back, and waits for all" if waits else "it finds out itself who is gone",
                "Restart the group" if waits else "Stop the process, and the others go on without it",
            )
        self.roll.retire(name)

    def told(self, news: Missed | News) -> None:
        """What the application should know of what it misses, and of lives."""
        if isinstance(news, Missed):
            detail = f"{news.origin} {news.first} to {news.last}: {news.reason}"
            self.journal.note("missed", news.origin, detail, logging.WARNING)
        elif isinstance(news, RolledBack):
            detail = (
                f"others have number {news.seen} of this node, which knew {news.had}: a later life begins"
            )
            self.journal.note("rolled back", None, detail, logging.WARNING)
            # A life that has begun goes on, unless others have more than it: a clock was set back.
            if not self.host.lives_begun or news.seen >= self.host.core.last:
                self._begin_soon(BEGIN_AFTER_S)

    def _begin_soon(self, delay_s: float) -> None:
        if self._begins is None:
            self._begins = self._loop.call_later(delay_s, self._begin_life)

    def _begin_life(self) -> None:
        self._begins = None
        if not self.failed and not self.leaving:
            base = max(base_of_life(self.clock.now_us()), self.host.core.last + 1)
            self.try_step(self.membership.begin_life, base)
            self.waiters.refresh()
            self.wake()

    def _nobody_met(self) -> None:
        """Not all could say whether this is a first life: then its numbers are those of a later one."""
        if self.host.is_unsure and self._begins is None:
            self._begin_life()

    def introduced(self, link: Link, known: Known) -> None:
        """The peer has said where it listens, and where others do."""
        self.membership.introduced(link, known)

    def has_heard_of(self, peer: NodeId) -> bool:
        """Whether others have told this node, when it came back, of an earlier life of a peer."""
        return self.host.core.has_heard_of(peer)

    def acknowledged(self) -> None:
        """A peer has acknowledged packets."""
        if self._begins is None:
            self.host.unheard = None  # somebody has them: this is a first life, as far as that one knows
        if self.waiters.broadcasts or (self.rooms is not None and self.rooms.full):
            self.waiters.refresh()  # a task here, or a server that was told, waits for room
        self._changed.set()

    def clock_told(self, link: Link, news: ClockNews) -> None:
        """The peer tells what time it is there."""
        if self.clocks is not None:
            self.clocks.hear(link, news)

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
        """The core is out of the group: if it has not left, it comes back as another life."""
        if reason is not Reason.LEFT and not self.leaving:
            self.journal.note("out", None, f"this node is out of the group ({reason.value})", logging.WARNING)
            self._loop.call_soon(self.try_step, self.membership.come_back, reason.value)
        self.waiters.refresh()  # nothing more is said in this life
        self.changed()

    def rejoined(self, why: str) -> None:
        """This node is in its group again."""
        self.rejoins += 1
        detail = f"in the group again as another life, after it was out ({why}); what it missed is unknown"
        self.journal.note("rejoined", None, detail, logging.WARNING)
        self.waiters.refresh()

    def met_another_part(self, peer: NodeId, detail: str) -> None:
        """A process that this node knew is in another part of the group: it was split."""
        self.splits += 1
        self.journal.note("split", peer, detail, logging.WARNING)

    def goes_on_as_another(self, why: str, core: Core) -> None:
        """Another life begins here: the application is given what is of that, and waits with what it says."""
        self.timers.close()
        self.host.tell(Rejoined(why))
        self.host.replace_core(core)
        self.waiters.wake_readers()
        self.waiters.refresh()  # there is no room before it is in again

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
        if self.rooms is not None:
            flow.refresh()  # who is full must be told before what made it full is acknowledged
        may_ack, ack_now = flow.may_ack, ack_now or flow.release
        flow.release = False
        max_packets = max(1, BATCH_BYTES // self.host.largest_frame_bytes)
        now_s = self._loop.time()
        ack_later = False
        for link in self._link_list:
            incoming = link.incoming
            if link.out.pending or incoming.received > incoming.told:
                written = link.flush(max_packets, may_ack=may_ack, ack_now=ack_now)
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

    def receive(self, link: Link, packets: Packets, data_bytes: int) -> None:
        """DATA frames have arrived."""
        assert isinstance(packets, list)
        node = self.node
        if self._peering.parting or node.failed:
            return  # not acknowledged: no peer will believe that they were delivered here
        incoming = link.incoming
        incoming.received += len(packets)
        incoming.untold_bytes += data_bytes
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
        """A link is up from the start; where there are no connections, again when its peer is back."""
        self.node.try_step(self._host.link_up, link.peer)

    def link_gone(self, link: Link) -> None:
        """A peer has left, or is abandoned."""
        if not self.node.failed:
            self.node.try_step(self._host.link_down, link.peer)

    def link_met(self, link: Link) -> None:
        """Its link knows the peer's session; no one else needs it."""

    def introduced(self, link: Link, known: Known) -> None:
        """No one is introduced: the members are listed."""

    def link_restarted(self, link: Link, welcomes: bool) -> None:
        """The numbering of a link begins anew."""
        self._host.restart_link(link.peer, link.followed, welcomes=welcomes)

    def command(self, verb: str, *names: NodeId) -> None:
        """Tell the core what is known of links and lives."""
        self._host.command(verb, *names)

    def begin_life(self, base: int) -> None:
        """This node's numbers go on after `base`."""
        self._host.begin_life(base)

    def retired(self, name: NodeId, life: int) -> None:
        """Nothing is written down."""

    def new_life(self) -> None:
        """Nothing is written down."""

    def come_back(self, why: str) -> None:
        """Knock as a joiner does, over links that begin anew."""
        node, settings = self.node, self.node.settings
        params = {**settings.params, "joins": True}
        node.goes_on_as_another(why, registry.make(settings.protocol, settings.node, self.members, params))
        for link in self._links.values():
            if link.channel is not None:
                self._peering.drop(link, "this node comes back as another life")
            link.renew()
            link.session = draw_session()
            self._host.link_up(link.peer)
        node.spawn(self._until_back(why))

    async def _until_back(self, why: str) -> None:
        while not self._host.core.ready:  # noqa: ASYNC110 - a core has no events
            await asyncio.sleep(POLL_S)
        self.node.rejoined(why)

    def slept(self, seconds: float) -> None:
        """Links last, and what was said meanwhile is said again."""

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
            missing = link.out.messages_before(total)
            if missing > 0:
                peering.lost_frames += missing
                detail = f"{missing} messages for it were not acknowledged before this node left"
                node.journal.note("lost", link.peer, detail, logging.WARNING)

    async def close(self) -> None:
        """Nothing is left open."""


def draw_session() -> int:
    """A number that no one can guess: of an incarnation, or of a connection; never 0 ("never met")."""
    return secrets.randbits(62) + 1
