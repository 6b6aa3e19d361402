"""Membership in a group without a list of members: links come and go while messages flow.

A link is one connection: it begins with it and ends with it, and what was in flight then is lost from the
first loss on, as `protocols/prc/prc.py` demands. Which nodes are linked is `session/overlay.py`'s decision,
which are let in `session/admission.py`'s; here are the calls and the pace.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, cast

from whence.core.group import base_of_life
from whence.core.lives import BEGIN
from whence.core.message import NodeId, Packet
from whence.errors import FrameError, HandshakeError, PeerError
from whence.live.node import Node
from whence.live.tcp import TcpTransport
from whence.protocols import registry
from whence.protocols.prc.wire import PrcPacket
from whence.session.addresses import Address
from whence.session.admission import UNKNOWN
from whence.session.handshake import RefusedForNowError
from whence.session.links import Link, LinkState
from whence.session.overlay import SprayByMessages
from whence.session.overlay_wire import Oldest
from whence.session.parts import COUNT_S, SETTLED_S, Lost, Part, Seen
from whence.session.wire import Known, Packets

KNOWN_MAX = 256  # neighbours whose addresses are kept
ROUND_S = 1.0  # between two rounds of asking to be taken in again
FOUND_AFTER_ROUNDS = 2  # in which nobody took us in, and of those who are out as well none has a smaller name
WAIT_ROUNDS = 8  # for one with a smaller name, which may know nobody who answers it


class OpenMembership:
    """A node that a contact takes in, and that its neighbours know."""

    def __init__(self, node: Node) -> None:
        settings = node.settings
        assert settings.overlay is not None
        self.node = node
        self.links = node.links
        self.settings = settings
        self._asked = settings.overlay
        self._host = node.host
        self._peering = node.peering
        self._calls = node.peering.admission.calls
        self._contact: Link | None = None  # the call to the node that takes us in
        self._known: dict[NodeId, Address] = {}  # where neighbours were found, the newest last
        self._first: tuple[NodeId, Address] | None = None  # whom to ask before all others
        self._lost = Lost()
        self._is_coming_back = False
        self.overlay = self._new_overlay()
        self._part = self._new_part()

    @property
    def members(self) -> tuple[NodeId, ...]:
        """This node and those that it is linked to, sorted: no node knows the others."""
        return tuple(sorted({self.settings.node, *self.links}))

    def _new_overlay(self) -> SprayByMessages:
        assert self.settings.listen is not None
        return SprayByMessages(
            self.settings.node, self.settings.listen, self, self._host, self._asked.view_min, random.Random()
        )

    def _new_part(self) -> Part:
        # Within `silence_s` a neighbour that is stopped, and passes nothing on, has lost its links.
        patience_s = self.node.limits.silence_s + 3 * COUNT_S
        return Part(self.settings.node, self.node.clock.now_us(), patience_s, self._peering.now_s())

    # Coming

    async def prepare(self) -> None:
        """No connection is there yet; another node of this name may have used the first numbers."""
        self._number_anew()

    def _number_anew(self) -> None:
        """No number is used twice under one name."""
        self._host.command(BEGIN, str(base_of_life(self.node.clock.now_us())))

    async def enter(self) -> list[Coroutine[Any, Any, None]]:
        """Be taken in by the contact, or be the first."""
        if self._asked.contact is None:
            self._found()
        else:
            await self._join(self._asked.contact)
            self._part = self._new_part()  # it counts from now on
        self._host.mark_joined()
        return [self._keep_shuffling(), self._keep_together()]

    def _found(self) -> None:
        self._host.command("found")
        self._part.founded(self._peering.now_s())

    async def _join(self, contact: Address) -> None:
        """Call the contact until it takes us in, for as long as a connection and a handshake may take."""
        limits, core, now_s = self.node.limits, self.overlay.core, self._peering.now_s
        deadline_s = now_s() + limits.connect_timeout_s + limits.handshake_timeout_s
        pause_s = limits.backoff_first_s
        problem: object = "it does not answer"
        while now_s() < deadline_s:
            link = self._contact = Link(self.settings.node, contact, dials=True)
            try:
                await self._ask(link, deadline_s)
            except OSError as error:  # TimeoutError is one
                problem = error.strerror or error
            if core.is_joined:
                self.overlay.contact = None
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
        node, core = self.node, self.overlay.core
        async with asyncio.timeout_at(deadline_s):
            connection = await cast(TcpTransport, node.transport).dial(link)
        closed = connection.closed
        closed.add_done_callback(lambda _: node.changed())
        await node.until(lambda: core.is_joined or node.failed or closed.done(), deadline_s)

    async def _keep_shuffling(self) -> None:
        while True:
            await asyncio.sleep(self._asked.shuffle_s * random.uniform(0.8, 1.2))
            if not self._is_coming_back:
                self.overlay.shuffle()

    # Parts of a group that was split

    async def _keep_together(self) -> None:
        """Know which part this is; call those that were lost, who may be in another one."""
        while True:
            await asyncio.sleep(COUNT_S * random.uniform(0.8, 1.2))
            if self._is_coming_back or self.node.leaving:
                continue
            now_s = self._peering.now_s()
            if self._part.tick(now_s):
                self._tell_part()
            for name, address in self._lost.due({*self.links, *self._calls}, now_s):
                self._dial(name, address, notes=False)

    def _tell_part(self) -> None:
        for peer in self.overlay.safe_links():
            self._say_part(peer)

    def _say_part(self, peer: NodeId) -> None:
        if self.overlay.core.is_joined:
            self.overlay.say(peer, self._part.word(self._peering.now_s()))

    def told_oldest(self, peer: NodeId, said: Oldest) -> None:
        """A neighbour tells of our part; another node may be in another one."""
        now_s, part = self._peering.now_s(), self._part
        if not self.overlay.core.is_joined:
            return
        if self.overlay.is_safe(peer):
            self._lost.found(peer)
            if part.hear(said, now_s):
                self._tell_part()
            return
        seen = part.judge(said, now_s)
        if seen is Seen.SAME and self._lost.lost_for_s(peer, now_s) > part.patience_s + SETTLED_S:
            self._lost.found(peer)
        elif seen is Seen.OLDER:
            self.node.met_another_part(peer, f"it is in another part of the group, with {said.name!r}")
            self._first = (peer, self.overlay.addresses.get(peer, self.links[peer].address))
            why = f"the group was split, and the part of {said.name!r} is older"
            asyncio.get_running_loop().call_soon(self.node.try_step, self.come_back, why)
        elif seen is Seen.YOUNGER:
            self.node.met_another_part(peer, f"it is in another part of the group, with {said.name!r}")

    # Coming back

    def come_back(self, why: str) -> None:
        """This node can no longer prove what it has seen: it is another life from now on, and joins again."""
        if self._is_coming_back or self.node.leaving or self.node.failed:
            return
        self._is_coming_back = True
        self._peering.admission.is_apart = True
        self.node.journal.note("out", None, f"this node is out of the group: {why}", logging.WARNING)
        for link in list(self.links.values()):
            self._peering.close(link, "this node comes back as another life")
        self.links.clear()
        self._calls.clear()
        settings = self.settings
        core = registry.make(settings.protocol, settings.node, [settings.node], settings.params)
        self.node.goes_on_as_another(why, core)
        self._number_anew()
        self.overlay = self._new_overlay()
        self._part = self._new_part()
        for name, address in self._known.items():  # all may have come back, and not all together
            self._lost.add(name, address, self._peering.now_s())
        self.node.spawn(self._join_again(why))

    async def _join_again(self, why: str) -> None:
        """Ask those that were neighbours, and the contact; if all are out, the smallest name founds it.

        A process that only begins does not: it waits to be taken in itself. If two found it after all, theirs
        are parts that will meet.
        """
        rounds = waited = 0
        while not self._is_in() and not self.node.failed:
            answered = await self._ask_all()
            is_first = all(self.settings.node < name for name, is_out in answered.items() if name and is_out)
            rounds = rounds + 1 if answered and is_first else 0
            waited += bool(answered)
            if self._is_in():
                self._part = self._new_part()
                break
            if rounds >= FOUND_AFTER_ROUNDS or waited >= WAIT_ROUNDS:
                self._found()
            else:
                await asyncio.sleep(ROUND_S * random.uniform(0.5, 1.0))
        self.overlay.contact = None
        self._is_coming_back = self._peering.admission.is_apart = False
        if self._is_in():
            self._host.mark_joined()
            self.node.rejoined(why)

    def _is_in(self) -> bool:
        return self.overlay.core.is_joined

    async def _ask_all(self) -> dict[NodeId, bool]:
        """Call every node that is known, until one takes us in; of each that answered, whether it is out."""
        addresses = dict(self._known)
        if self._asked.contact is not None:
            addresses.setdefault("", self._asked.contact)
        answered: dict[NodeId, bool] = {}
        asked = random.sample(list(addresses.items()), len(addresses))
        if self._first is not None:
            asked.insert(0, self._first)
            self._first = None
        for name, address in asked:
            link = self._contact = Link(self.settings.node, address, dials=True)
            deadline_s = self._peering.now_s() + min(2.0, self.node.limits.connect_timeout_s)
            with suppress(OSError):  # TimeoutError is one
                await self._ask(link, deadline_s)
                answered[name] = isinstance(link.last_error, RefusedForNowError)
            if self._is_in():
                break
        return answered

    def slept(self, seconds: float) -> None:
        """Others hold a process for dead that is silent for so long: what it still has is another group."""
        if seconds > self.node.limits.silence_s and self.overlay.core.is_joined and self._known:
            self.come_back(f"it did nothing for {seconds:.0f} s")

    # Messages

    def receive(self, link: Link, packets: Packets, data_bytes: int) -> None:
        """DATA frames have arrived: the protocol's packets, and between them the overlay's words."""
        assert isinstance(packets, list)
        if self._peering.parting or self.node.failed:
            return
        link.incoming.take(len(packets), data_bytes)
        self.node.try_step(self._receive, link, packets)
        self.node.wake()

    def _receive(self, link: Link, packets: list[Packet]) -> None:
        try:
            if self.overlay.receive(link, cast(list[PrcPacket], packets)):
                self.node.changed()
        except FrameError as error:
            if link.channel is not None:
                self._peering.fault(link.channel, link.peer, link, error, established=True)

    def timer(self, key: str) -> None:
        """A timer of the core has expired."""
        self._host.timer(key)

    # Links

    def link_up(self, link: Link) -> None:
        """A connection has become a link."""
        self.links[link.peer] = link
        self._remember(link)
        if link is self._contact:
            self.overlay.contact = link.peer
            self.overlay.view.take([link.peer])
        self._host.link_up(link.peer)
        self.overlay.up(link)
        self._say_part(link.peer)

    def _remember(self, link: Link) -> None:
        """Keep where neighbours are found: a node that loses them all asks them."""
        where = self.overlay.addresses.get(link.peer, link.address)
        if where != UNKNOWN:
            self._known.pop(link.peer, None)
            self._known[link.peer] = where
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]

    def link_gone(self, link: Link) -> None:
        """The connection has ended, whichever side ended it."""
        if self.links.get(link.peer) is not link or self.node.failed:
            return
        self._remember(link)
        if link.state is not LinkState.LEFT and link.peer not in self.overlay.released:
            self._miss(link.peer)
        self.node.try_step(self._lose, link)
        self._look_around(link)

    def _miss(self, peer: NodeId) -> None:
        if peer in self._known:
            self._lost.add(peer, self._known[peer], self._peering.now_s())

    def _lose(self, link: Link) -> None:
        if link.peer in self.overlay.core.links:
            self._host.link_down(link.peer)
        del self.links[link.peer]
        self.overlay.lost(link.peer)

    def _look_around(self, link: Link) -> None:
        """Without a single link this node can no longer prove what it has seen."""
        core = self.overlay.core
        if not core.is_joined or self.node.leaving or core.in_view or core.out_view:
            return
        if link.state is LinkState.LEFT:
            self.node.journal.note("alone", None, "the last neighbour has left")
            return
        self.come_back(f"it has lost all its links, {link.peer!r} the last")

    def link_met(self, link: Link) -> None:
        """A link has one session, which ends with it."""

    def introduced(self, link: Link, known: Known) -> None:
        """No one is introduced: the overlay has words of its own."""

    def link_restarted(self, link: Link, welcomes: bool) -> None:
        """No link outlives its connection."""

    def command(self, verb: str, *names: NodeId) -> None:
        """Its overlay commands the core."""

    def begin_life(self, base: int) -> None:
        """Names are for one life."""

    def retired(self, name: NodeId, life: int) -> None:
        """No member is retired where none is listed."""

    def new_life(self) -> None:
        """Names are for one life."""

    def missing(self) -> list[Link]:
        """Nothing to wait for: a member is linked to another, and no node knows how many there are."""
        return []

    def is_too_slow(self, link: Link) -> bool:
        """Whether more is unacknowledged than a peer may have."""
        return self.node.is_above_hard_limit(link)

    # What the overlay asks for

    def wake(self) -> None:
        """There is something to write."""
        self.node.wake()

    def hang_up(self, peer: NodeId, why: str) -> None:
        """End the link to `peer`, in the middle of what the overlay does."""
        self.node.close_link(peer, why)

    def dial(self, peer: NodeId, address: Address) -> None:
        """Call a node; one attempt, because there are others."""
        self._dial(peer, address, notes=True)

    def _dial(self, peer: NodeId, address: Address, *, notes: bool) -> None:
        settings = self.settings
        if settings.keys is None and not settings.plaintext and not address.is_loopback:
            # Addresses come from peers: none of them may lead us to speak in the clear beyond this machine.
            detail = f"{address} is not on this machine, and there are no keys"
            self.node.journal.note("unreachable", peer, detail)
            asyncio.get_running_loop().call_soon(self.overlay.unreachable, peer)
            return
        link = self._calls[peer] = Link(peer, address, dials=True)
        self.node.spawn(self._call(link, notes=notes))

    async def _call(self, link: Link, *, notes: bool) -> None:
        problem = "it does not answer"
        try:
            async with asyncio.timeout(self.node.limits.connect_timeout_s):
                connection = await cast(TcpTransport, self.node.transport).dial(link)
            await connection.closed
        except OSError as error:
            problem = error.strerror or str(error)
        if not link.connections:  # it never became a link
            if self._calls.get(link.peer) is link:
                del self._calls[link.peer]
            if notes:
                self.node.journal.note("unreachable", link.peer, str(link.last_error or problem))
            self.overlay.unreachable(link.peer)

    # Going

    async def part(self, deadline_s: float) -> None:
        """Introduce the neighbours to each other, let them take what is for them, say good-bye."""
        node, peering = self.node, self._peering
        self.overlay.introduce_neighbours()
        await node.until(self.overlay.is_settled, deadline_s)
        totals = [(link, link.out.total) for link in self.links.values()]
        await node.until(
            lambda: all(link.out.acknowledged >= total or not link.alive for link, total in totals),
            deadline_s,
        )
        peering.parting = True
        for link in list(self.links.values()):
            peering.say_goodbye(link)
        await node.until(lambda: not self.links, min(deadline_s, peering.now_s() + 1.0))

    async def close(self) -> None:
        """Nothing is left open."""
