"""A live process of a group without a list of members: links come and go while messages flow.

A link is one connection: it begins with it and ends with it, and what was in flight then is lost from the
first loss on, as `protocols/prc/prc.py` demands. Who links to whom is swarm.py's decision, who is let in
swarm_peering.py's; the rest is node.py's.
"""

from __future__ import annotations

import asyncio
import random
from typing import ClassVar, cast

from whence.core.message import NodeId, Packet
from whence.errors import FrameError, HandshakeError, PeerError
from whence.live.connection import Connection
from whence.live.host import Host
from whence.live.housekeeping import keep_house
from whence.live.node import Node
from whence.live.peering import Peering
from whence.live.secure import connection_to
from whence.live.settings import SwarmSettings
from whence.live.swarm import Swarm
from whence.live.swarm_host import SwarmHost
from whence.live.swarm_peering import SwarmIdentity, SwarmPeering
from whence.protocols.prc.wire import JOIN, PrcPacket
from whence.session.addresses import Address
from whence.session.handshake import Identity, RefusedForNowError
from whence.session.links import Link, LinkState
from whence.session.overlay_wire import OVERLAY, word_of
from whence.trace.schema import Recorder

BUFFER_SLACK_BYTES = 64 * 1024


class DynamicNode(Node):
    """See the module."""

    identity_type: ClassVar[type[Identity]] = SwarmIdentity
    host_type: ClassVar[type[Host]] = SwarmHost
    peering_type: ClassVar[type[Peering]] = SwarmPeering

    host: SwarmHost
    peering: SwarmPeering
    settings: SwarmSettings

    def __init__(self, settings: SwarmSettings) -> None:
        super().__init__(settings)
        # A handshake's buffer holds what was delivered meanwhile; a longer one closes its link instead.
        limits = settings.limits
        self.max_frame_bytes = limits.max_payload_bytes + limits.queue_bytes + BUFFER_SLACK_BYTES
        self.host.max_frame_bytes = self.max_frame_bytes
        self.host.on_close = self._closed_by_core
        self.peering.dialling = {}
        self.peering.on_up = self._link_up
        self.peering.forget = self._forget
        address = settings.addresses[settings.node]
        self.swarm = Swarm(settings.node, address, self, settings.view_min)
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def members(self) -> tuple[NodeId, ...]:
        """This process and those that it is linked to, sorted: nobody knows the others."""
        return tuple(sorted({self.settings.node, *self.links}))

    # Life

    async def start(self, recorder: Recorder | None = None) -> None:
        """Begin to answer; be taken in by the contact, or be the first."""
        self.host.start(recorder)
        self.flow.refresh()
        await self.transport.start()
        if self.settings.contact is None:
            self.host.command("found")
        else:
            await self._join(self.settings.contact)
        self.host.joined()
        for work in (keep_house(self), self._keep_shuffling()):
            task = self._loop.create_task(work)
            task.add_done_callback(self._task_ended)
            self._tasks.append(task)

    async def _join(self, contact: Address) -> None:
        """Call the contact until it takes us in, for as long as a connection and a handshake may take."""
        limits, core = self.limits, self.host.overlaid
        deadline_s = self._loop.time() + limits.connect_timeout_s + limits.handshake_timeout_s
        pause_s = limits.backoff_first_s
        problem: object = "it does not answer"
        while self._loop.time() < deadline_s:
            link = self.peering.contact = Link(self.settings.node, contact, dials=True)
            try:
                await self._ask(link, deadline_s)
            except OSError as error:  # TimeoutError is one
                problem = error.strerror or error
            if core.is_joined:
                self.swarm.contact = None
                return
            problem = link.last_error or problem
            if isinstance(problem, HandshakeError) and not isinstance(problem, RefusedForNowError):
                break  # it would say the same again
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, limits.backoff_max_s)
        kind = type(problem) if isinstance(problem, PeerError) else PeerError
        raise kind(
            f"contact {contact}",
            f"it has not taken this process in ({problem})",
            "Start it first, or name a process that takes part",
        )

    async def _ask(self, link: Link, deadline_s: float) -> None:
        """One call to the contact: until it has taken us in, or hung up."""
        core, changed = self.host.overlaid, self.peering.changed
        async with asyncio.timeout_at(deadline_s):
            _, connection = await self._loop.create_connection(
                lambda: connection_to(self, link), *link.address
            )
        closed = connection.closed
        closed.add_done_callback(lambda _: changed.set())
        await self._until(lambda: core.is_joined or self.failed or closed.done(), deadline_s)

    async def _keep_shuffling(self) -> None:
        while True:
            await asyncio.sleep(self.settings.shuffle_s * random.uniform(0.8, 1.2))
            self.swarm.shuffle()

    async def wait_connected(self, timeout_s: float | None) -> list[Link]:
        """Nothing to wait for: who takes part is linked to somebody, and nobody knows how many there are."""
        return []

    async def _part(self) -> None:
        deadline_s = self._loop.time() + self.limits.leave_timeout_s
        self.swarm.introduce_neighbours()
        await self._until(self.swarm.is_settled, deadline_s)
        totals = [(link, link.out.total) for link in self.links.values()]
        await self._until(
            lambda: all(link.out.acknowledged >= total or not link.alive for link, total in totals),
            deadline_s,
        )
        self.peering.parting = True
        for link in list(self.links.values()):
            self.peering.say_goodbye(link)
        await self._until(lambda: not self.links, min(deadline_s, self._loop.time() + 1.0))

    async def _shut(self) -> None:
        for call in list(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await super()._shut()

    # Messages

    def receive(self, link: Link, packets: list[Packet], data_bytes: int) -> None:
        """DATA frames have arrived: the protocol's packets, and between them the overlay's words."""
        if self.peering.parting or self.failed:
            return
        link.incoming.take(len(packets), data_bytes)
        try:
            self._receive(link, cast(list[PrcPacket], packets))
        except FrameError as error:
            self.peering.fault(cast(Connection, link.channel), link, True, error)
        except Exception as error:  # noqa: BLE001 - it must end the group, and not just one connection
            self.fail(error)
        if self._readers and self.host.inbox:
            self._wake_readers()
        self.wake()

    def _receive(self, link: Link, packets: list[PrcPacket]) -> None:
        peer, core = link.peer, self.host.overlaid
        batch: list[Packet] = []
        control = False
        for packet in packets:
            if packet.kind not in (OVERLAY, JOIN):
                control = control or bool(packet.kind)
                batch.append(packet)
                continue
            self.host.receive(peer, batch)
            batch = []
            if not link.alive:
                return
            if packet.kind == OVERLAY:
                self.swarm.hear(peer, word_of(packet, peer))
            elif peer not in self.swarm.ready:
                raise FrameError("JOIN packet", "it comes before Ready", "Check the peer's release")
            else:
                had = peer in core.in_view
                self.host.receive(peer, [packet])
                if peer in core.in_view and not had:
                    self.swarm.took_in(peer)
        self.host.receive(peer, batch)
        if control:
            self.swarm.tidy()
            self.peering.changed.set()

    # Links

    def _link_up(self, link: Link) -> None:
        self.links[link.peer] = link
        if link is self.peering.contact:
            self.swarm.contact = link.peer
            self.swarm.view.take([link.peer])
        self.host.link_up(link.peer)
        self.swarm.up(link)
        self.flow.refresh()

    def _link_gone(self, link: Link) -> None:
        """The connection has ended, whoever ended it."""
        if self.links.get(link.peer) is not link or self.failed:
            return
        try:
            if link.peer in self.host.overlaid.links:
                self.host.link_down(link.peer)
            del self.links[link.peer]
            self.swarm.lost(link.peer)
        except Exception as error:  # noqa: BLE001 - it must end the group, and not just one connection
            self.fail(error)
        self._look_around(link)
        self.flow.refresh()
        self.wake()

    _forget = _link_gone

    def _look_around(self, link: Link) -> None:
        """Without a single link this process can no longer prove what it has seen."""
        core = self.host.overlaid
        if not core.is_joined or self.leaving or core.in_view or core.out_view:
            return
        if link.state is LinkState.LEFT:
            self.journal.note("alone", None, "the last neighbour has left")
            return
        self.fail(
            PeerError(
                f"node {self.settings.node!r}",
                f"it has lost all its links, {link.peer!r} the last",
                "Join again under a new name, through a process that takes part",
            )
        )

    def _closed_by_core(self, peer: NodeId, why: str) -> None:
        """In the middle of a step of the core: the connection ends now, the consequences come after."""
        link = self.links.get(peer)
        if link is not None and link.alive:
            self._end(link, why)
            self._loop.call_soon(self._link_gone, link)

    def _end(self, link: Link, why: str) -> None:
        link.end(LinkState.GIVEN_UP)
        if link.channel is not None:
            link.channel.close()
            link.channel = None
        self.journal.note("closed", link.peer, why)

    def hang_up(self, peer: NodeId, why: str) -> None:
        """End the link to `peer`, in the middle of what the overlay does."""
        self._closed_by_core(peer, why)

    def dial(self, peer: NodeId, address: Address) -> None:
        """Call a process; one attempt, because there are others."""
        settings = self.settings
        if settings.keys is None and not settings.plaintext and not address.is_loopback:
            # Addresses come from peers: none of them may lead us to speak in the clear beyond this machine.
            self.journal.note("unreachable", peer, f"{address} is not on this machine, and there are no keys")
            self._loop.call_soon(self.swarm.unreachable, peer)
            return
        link = self.peering.dialling[peer] = Link(peer, address, dials=True)
        call = self._loop.create_task(self._call(link))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        call.add_done_callback(self._task_ended)

    async def _call(self, link: Link) -> None:
        problem = "it does not answer"
        try:
            async with asyncio.timeout(self.limits.connect_timeout_s):
                _, connection = await self._loop.create_connection(
                    lambda: connection_to(self, link), *link.address
                )
            await connection.closed
        except OSError as error:
            problem = error.strerror or str(error)
        if not link.connections:  # it never became a link
            if self.peering.dialling.get(link.peer) is link:
                del self.peering.dialling[link.peer]
            self.journal.note("unreachable", link.peer, str(link.last_error or problem))
            self.swarm.unreachable(link.peer)
