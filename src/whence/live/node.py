"""A node on real sockets: takes part, writes once per turn of the loop, and leaves in order.

Sockets are the transport's business (tcp.py, udp.py), the core and its effects the host's (host.py), bounds
and waiting are flow.py's, the life of the links is peering.py's. Here is what ties them to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

from whence.core.effects import Reason
from whence.core.message import MessageId, NodeId, Packet
from whence.errors import (
    GroupClosedError,
    InvariantError,
    MisuseError,
    PeerError,
    PeerTooSlowError,
    WhenceError,
)
from whence.live.flow import Flow
from whence.live.host import Host
from whence.live.housekeeping import keep_house
from whence.live.peering import Peering
from whence.live.settings import Settings
from whence.live.tcp import TcpTransport
from whence.live.udp import UdpTransport
from whence.protocols import registry
from whence.session.handshake import Identity, canonical_parameters
from whence.session.journal import Journal, log
from whence.session.links import Link
from whence.trace.schema import Recorder

BATCH_BYTES = 256 * 1024  # one write: about as much as the transport takes before it asks to wait


class Node:
    """One member of the group. Create it inside the event loop, `start` it, `leave`."""

    # What dynamic.py replaces, where there is no list of members.
    identity_type: ClassVar[type[Identity]] = Identity
    host_type: ClassVar[type[Host]] = Host
    peering_type: ClassVar[type[Peering]] = Peering

    def __init__(self, settings: Settings) -> None:
        members = tuple(sorted(settings.addresses))
        info = registry.lookup(settings.protocol)
        self.settings = settings
        self.limits = limits = settings.limits
        core = registry.make(settings.protocol, settings.node, members, settings.params)
        self.packet_type: type[Packet] = core.packet_type
        self.point_to_point = info.point_to_point
        self.max_frame_bytes = limits.max_frame_bytes(len(members), matrix=info.point_to_point)
        udp = settings.transport == "udp"
        self.transport: TcpTransport | UdpTransport = (
            UdpTransport(self) if udp else TcpTransport(self, renews=core.renews)
        )
        self.links: dict[NodeId, Link] = {
            peer: self.transport.make_link(peer, settings.addresses[peer])
            for peer in members
            if peer != settings.node and (core.linked is None or peer in core.linked)
        }
        parameters = canonical_parameters(info.shared({**info.parameters, **settings.params}))
        if settings.store is not None:
            parameters["store"] = "true"  # durable members only: the others could not come back
        self.identity = self.identity_type(
            group=settings.group,
            protocol=settings.protocol,
            parameters=parameters,
            members=members,
            max_payload_bytes=settings.max_payload_bytes,
            node=settings.node,
            session=self._session(members, parameters),
        )
        self.journal = Journal(settings.node, time.time)
        self.host = self.host_type(core, self.links, self.wake, self.fail, self._count_on, self._stopped)
        self.peering = self.peering_type(
            self.identity, self.links, limits, self.journal, self._link_gone, self._link_renewed, self.fail
        )
        self._link_list: Collection[Link] = self.links.values()
        self.flow = Flow(self.host, self._link_list, limits, self.journal, self.wake)
        self.bytes_sent = self.bytes_received = 0
        self.leaving = self.failed = False
        self._hard_messages = limits.hard_messages(len(members))
        self._hard_bytes = limits.hard_bytes(len(members))
        self._loop = asyncio.get_running_loop()
        self._readers: list[asyncio.Future[None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._flush_scheduled = False
        self._ack_timer: asyncio.TimerHandle | None = None

    @property
    def members(self) -> tuple[NodeId, ...]:
        """Every configured member, sorted."""
        return self.identity.members

    def _session(self, members: tuple[NodeId, ...], parameters: Mapping[str, str]) -> int:
        """This node's incarnation; never 0, which means "never met"."""
        return secrets.randbits(62) + 1

    # Life

    async def listen(self) -> None:
        """Bind the address; nobody is answered yet."""
        await self.transport.listen()

    async def start(self, recorder: Recorder | None = None) -> None:
        """Bring the links up, begin to answer and to call."""
        self.host.start(recorder)
        now_s = self._loop.time()
        for link in self._link_list:
            link.lost_s = now_s
        await self._bring_up()
        self.flow.refresh()
        work = await self.transport.start()
        self.wake()  # a core may have something to say to a new link
        self._tasks = [self._loop.create_task(each) for each in (*work, keep_house(self))]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    async def _bring_up(self) -> None:
        """Tell the core that its links exist."""
        for link in self._link_list:
            self.host.link_up(link.peer)

    async def leave(self) -> None:
        """Wait until all that was sent is acknowledged, say good-bye, close. Takes a bounded time."""
        if self.leaving:
            return
        self.leaving = True
        name = f"group {self.settings.group!r}"
        self._close_to_users(GroupClosedError(name, "it was left", "Join again to take part"))
        try:
            if not self.failed:
                await self._part()
        finally:
            await self._shut()

    async def _part(self) -> None:
        deadline_s = self._loop.time() + self.limits.leave_timeout_s
        if self.host.core.renews:
            self.host.leave()
            self.wake()
            await self._until(lambda: self.host.stopped, deadline_s)
        # Only what is queued now: while others broadcast, a node that relays never has an empty queue.
        totals = [(link, link.out.total) for link in self._link_list if link.alive]
        await self._until(
            lambda: all(link.out.acknowledged >= total or not link.alive for link, total in totals),
            deadline_s,
        )
        self.peering.parting = True
        met = [link for link in self._link_list if link.alive and link.peer_session]
        # Nothing of ours is under way any more: it is enough that a peer had the time to connect again.
        deadline_s = min(deadline_s, self._loop.time() + 2 * self.limits.backoff_max_s)
        for until_s in self.transport.goodbye_times(deadline_s):
            for link in met:
                if link.alive:
                    self.peering.say_goodbye(link)
            await self._until(lambda: not any(link.alive for link in met), until_s)
        for link, total in totals:
            missing = total - link.out.acknowledged
            if missing > 0:
                self.peering.lost_frames += missing
                detail = f"{missing} messages for it were not acknowledged before this node left"
                self.journal.note("lost", link.peer, detail, logging.WARNING)

    async def _until(self, condition: Callable[[], bool], deadline_s: float | None) -> None:
        changed = self.peering.changed
        while not condition():
            changed.clear()
            try:
                async with asyncio.timeout_at(deadline_s):
                    await changed.wait()
            except TimeoutError:
                return

    async def wait_connected(self, timeout_s: float | None) -> list[Link]:
        """Until every living peer is connected; answers those that are not when time is up."""
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        missing: list[Link] = []

        def connected() -> bool:
            missing[:] = [link for link in self._link_list if link.alive and link.channel is None]
            return not missing or self.flow.closed is not None

        await self._until(connected, deadline_s)
        return missing

    async def _shut(self) -> None:
        self.host.close()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.transport.close()
        for link in self._link_list:
            if link.channel is not None:
                link.channel.close()
                link.channel = None
        await asyncio.sleep(0)  # the transports close in the next turn of the loop

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """This node cannot go on: everybody who uses the group is told why."""
        if self.failed:
            return
        self.failed = True
        reason = f"the node has failed ({error})"
        self.journal.note("failed", None, reason, logging.ERROR)
        if isinstance(error, WhenceError) and not isinstance(error, InvariantError):
            fix = error.fix  # a full disk, a peer that refuses us: no bug, so no traceback
        else:
            fix = "This is a bug in Whence; please report it with the log"
            log.error("%s: where it failed:", self.settings.node, exc_info=error)
        self._close_to_users(GroupClosedError(f"group {self.settings.group!r}", reason, fix))

    def _close_to_users(self, why: WhenceError) -> None:
        if self.flow.closed is None:
            self.flow.closed = why
        self.flow.refresh()
        self.peering.changed.set()
        self._wake_readers()

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
        if self._readers:
            self._wake_readers()
        return id_

    def receive(self, link: Link, packets: list[Packet], data_bytes: int) -> None:
        """DATA frames have arrived."""
        if self.peering.parting or self.failed:
            return  # not acknowledged: nobody will believe that they were delivered here
        link.incoming.take(len(packets), data_bytes)
        try:
            self.host.receive(link.peer, packets)
        except Exception as error:  # noqa: BLE001 - it must end the group, and not just one connection
            self.fail(error)
        if self._readers and self.host.inbox:
            self._wake_readers()
        if not self._flush_scheduled:
            self.wake()

    def acknowledged(self) -> None:
        """A peer has acknowledged something."""
        if self.flow.waiting:
            self.flow.refresh()
        self.peering.changed.set()

    def arrival(self) -> asyncio.Future[None]:
        """Done when something may be in the inbox, or the group is closed."""
        future = self._loop.create_future()
        self._readers.append(future)
        return future

    def _wake_readers(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)

    def _link_gone(self, link: Link) -> None:
        if not self.failed:
            try:
                self.host.link_down(link.peer)
            except Exception as error:  # noqa: BLE001 - it must end the group, and not just one connection
                self.fail(error)
            if self._readers and self.host.inbox:
                self._wake_readers()
        self.flow.refresh()
        self.wake()

    # Members that come and go

    def _link_renewed(self, link: Link) -> None:
        """The peer is another process than the one we knew."""
        self._link_gone(link)
        link.renew()
        if not self.failed:
            self.host.link_up(link.peer)

    def _count_on(self, peer: NodeId, counts: bool) -> None:
        link = self.links[peer]
        if link.alive != counts:
            self.peering.count_on(link, counts)

    def _stopped(self, reason: Reason) -> None:
        if reason is not Reason.LEFT:
            fix = "Start it again with joins = true; see docs/vcube.md"
            self.fail(PeerError(f"node {self.settings.node!r}", reason.value, fix))
        self.peering.changed.set()

    # One turn of the loop

    def wake(self) -> None:
        """Write in this turn of the loop."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self, ack_now: bool = False) -> None:
        """One joined write per peer; then see who may go on and who is too slow."""
        self._flush_scheduled = False
        if self._readers and self.host.inbox:  # a timer or the end of a link may deliver, too
            self._wake_readers()
        flow = self.flow
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
                    self._give_up_slow(link)  # it is out of the group, and yet it makes us talk
        if ack_later and may_ack and self._ack_timer is None:
            self._ack_timer = self._loop.call_later(self.limits.ack_delay_s, self._ack_all)
        flow.refresh()
        if -flow.free > self._hard_messages or -flow.free_bytes > self._hard_bytes:
            self._give_up_slow_peers()

    def _ack_all(self) -> None:
        self._ack_timer = None
        self._flush(ack_now=True)

    def _give_up_slow_peers(self) -> None:
        for link in list(self._link_list):
            messages, queue_bytes = link.out.unacknowledged, link.out.unacknowledged_bytes()
            over = messages > self._hard_messages or queue_bytes > self._hard_bytes
            if link.alive and over:
                self._give_up_slow(link)

    def _give_up_slow(self, link: Link) -> None:
        messages, queue_bytes = link.out.unacknowledged, link.out.unacknowledged_bytes()
        error = PeerTooSlowError(
            f"node {link.peer!r}",
            f"{messages} messages ({queue_bytes} bytes) are unacknowledged, above the hard limit",
            "Make it read faster, or raise queue_messages, queue_bytes or hard_factor",
        )
        self.peering.give_up(link, error)
