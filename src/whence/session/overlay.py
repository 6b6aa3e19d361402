"""Spray by messages: which nodes are linked, without a list of members and without I/O.

The view is overlay/spray.py's; here is what a simulator does in no time and with one hand: names travel with
addresses (overlay_wire.py), links are dialled, and both ends must agree before a link is closed.

    shuffle     Give to the oldest neighbour, Give back. The taker dials those that it is not linked to, says
                Ready, and opens the link through the giver, which keeps its links to both until that is done
    join        the contact takes us in; it gives our name to the nodes that it names
    leave       the neighbours are introduced to each other in a ring, so that no node is cut off. Each names
                its successor there instead of the leaver, or of another: no more arcs than after a crash
    crash       arcs to the lost node are replaced as Spray does it; a node with fewer than `view_min` links
                asks a neighbour for More
    close       when neither end names the other, routes a handshake there, or is about to (`ReleaseLink`,
                `ClaimLink`)

`view_min` is ours. A node keeps that many safe links, named or not: where ln(N) is 2 or 3, one crash or one
handshake that fails could cut it off, and a node that is cut off cannot come back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol, TypeVar, cast

from whence.core.message import NodeId, Packet
from whence.errors import FrameError
from whence.overlay.spray import Spray
from whence.protocols.prc.links import Overlaid
from whence.protocols.prc.wire import JOIN, PrcPacket
from whence.session.addresses import Address
from whence.session.host import Host
from whence.session.links import Link
from whence.session.overlay_wire import (
    ANSWERS,
    ARCS_MAX,
    BEGINS,
    INTRODUCES,
    LEAVES,
    OVERLAY,
    ClaimLink,
    Give,
    More,
    Oldest,
    OpeningLinks,
    Ready,
    ReleaseLink,
    Word,
    address_of,
    overlay_packet,
    word_of,
)
from whence.session.wire import encode_packet

T = TypeVar("T")

VIEW_MAX = 1024  # arcs; more than any correct group leads to
CALLS_MAX = 64  # at a time


class Draw(Protocol):
    """Randomness, as `random.Random` has it."""

    def getrandbits(self, bits: int, /) -> int:
        """An integer of that many bits."""

    def choice(self, names: Sequence[T], /) -> T:
        """One of `names`."""

    def sample(self, names: Sequence[T], count: int, /) -> list[T]:
        """That many of `names`."""


class Lines(Protocol):
    """What the overlay needs of the node."""

    links: dict[NodeId, Link]

    def dial(self, peer: NodeId, address: Address) -> None:
        """Call a node; `SprayByMessages.up` or `SprayByMessages.unreachable` follows."""

    def hang_up(self, peer: NodeId, why: str) -> None:
        """End the link to `peer`; `SprayByMessages.lost` follows."""

    def wake(self) -> None:
        """There is something to write."""

    def told_oldest(self, peer: NodeId, said: Oldest) -> None:
        """A peer has named the oldest process of its part."""


class SprayByMessages:
    """The overlay of one node. The host's core is one over changing links."""

    def __init__(
        self, me: NodeId, address: Address, lines: Lines, host: Host, view_min: int, draw: Draw
    ) -> None:
        self.me = me
        self.address = address
        self.view: Spray[NodeId] = Spray(me)
        self.view_min = view_min
        self.addresses: dict[NodeId, Address] = {}  # of those that we are linked to or call
        self.contact: NodeId | None = None  # the node that we ask to take us in
        self.ready: set[NodeId] = set()  # both ends of the link are up
        self.claims: set[NodeId] = set()  # they need their link to us
        self.released: set[NodeId] = set()  # we have told them that we do not need ours
        self.planned: dict[NodeId, NodeId] = {}  # links to be opened once they are ready -> mediator
        self.given: dict[NodeId, deque[list[NodeId]]] = {}  # taker -> names of each unanswered Give
        self.successors: dict[NodeId, NodeId] = {}  # neighbours that are leaving -> whom to name instead
        self.is_leaving = False
        self.opened = self.closed = self.shuffles = 0
        self.core = cast(Overlaid, host.core)
        self._host = host
        self._lines = lines
        self._draw = draw

    # Packets

    def receive(self, link: Link, packets: list[PrcPacket]) -> bool:
        """The protocol's packets, and between them the overlay's words; returns whether any was control.

        Raises `FrameError` for what no correct node says.
        """
        peer, core, host = link.peer, self.core, self._host
        batch: list[Packet] = []
        control = False
        for packet in packets:
            if packet.kind not in (OVERLAY, JOIN):
                control = control or bool(packet.kind)
                batch.append(packet)
                continue
            host.receive(peer, batch)
            batch = []
            if not link.alive:
                return False
            if packet.kind == OVERLAY:
                self.hear(peer, word_of(packet, peer))
            elif peer not in self.ready:
                raise FrameError("JOIN packet", "it comes before Ready", "Check the peer's release")
            else:
                had = peer in core.in_view
                host.receive(peer, [packet])
                if peer in core.in_view and not had:
                    self.took_in(peer)
        host.receive(peer, batch)
        if control:
            self.tidy()
        return control

    # Links

    def is_safe(self, peer: NodeId) -> bool:
        """Whether arcs to `peer` may move: its link is used in both directions, and stays."""
        if peer not in self.ready or peer in self.successors:
            return False
        return self.core.is_safe_with(peer) and self._lines.links[peer].alive

    def safe_links(self) -> list[NodeId]:
        """All peers with a safe link, sorted."""
        return sorted(filter(self.is_safe, self._lines.links))

    def up(self, link: Link) -> None:
        """The link's two nodes have shaken hands; ours says so."""
        self.claims.add(link.peer)  # until it says otherwise
        self.say(link.peer, Ready(str(self.address)))

    def lost(self, peer: NodeId) -> None:
        """The link to `peer` is over: it has crashed, or it left, or the other end closed the link."""
        self.ready.discard(peer)
        self.claims.discard(peer)
        self.released.discard(peer)
        self.given.pop(peer, None)
        self.planned.pop(peer, None)
        successor = self.successors.pop(peer, None)
        self.successors = {leaver: name for leaver, name in self.successors.items() if name != peer}
        if successor is None:
            self.view.lost(peer, self._draw.getrandbits(64))
        else:
            self.view.left(peer, successor, self._draw.getrandbits(64))
        self.addresses.pop(peer, None)
        self.tidy()

    def unreachable(self, peer: NodeId) -> None:
        """A call came to nothing."""
        if peer not in self._lines.links:
            self.lost(peer)

    def tidy(self) -> None:
        """Say what we need, and close the links that neither end needs."""
        needed = self._needed()
        spare = len(self.safe_links()) - self.view_min
        # Those that we have released first: what is said should not change from one time to the next.
        for peer in sorted(self.ready, key=lambda peer: (peer not in self.released, peer)):
            if not self._lines.links[peer].alive:
                continue
            is_needed = peer in needed or self.core.is_using(peer)
            if not is_needed and self.is_safe(peer):
                # Where handshakes fail, the link that is to replace this one may never be made.
                is_needed = spare <= 0
                spare -= 1
            if is_needed:
                if peer in self.released:
                    self.released.discard(peer)
                    self.say(peer, ClaimLink())
            elif peer not in self.claims and peer in self.released:
                self.closed += 1
                self._lines.hang_up(peer, "neither end needs the link")
            elif peer not in self.released:
                self.released.add(peer)
                self.say(peer, ReleaseLink())

    def _needed(self) -> set[NodeId]:
        """Peers whose links the overlay itself cannot do without."""
        needed = {*self.view.arcs, *self.planned, *self.planned.values()}
        needed |= {*self.successors, *self.successors.values()}
        for taker, gives in self.given.items():
            needed.add(taker)
            needed.update(name for names in gives for name in names)
        if self.contact is not None:
            needed.add(self.contact)
        return needed

    # What others say

    def hear(self, peer: NodeId, word: Word) -> None:
        """A word of the node at the other end of a link. Raises `FrameError` if it makes no sense."""
        if isinstance(word, Ready):
            self._on_ready(peer, address_of(word.listens))
        elif isinstance(word, Give):
            arcs = [(name, address_of(where)) for name, where in word.arcs]
            self._on_give(peer, word.why, arcs)
        elif isinstance(word, OpeningLinks):
            self._on_opening(peer, word.names)
        elif isinstance(word, ClaimLink):
            self.claims.add(peer)
        elif isinstance(word, ReleaseLink):
            self.claims.discard(peer)
        elif isinstance(word, Oldest):
            self._lines.told_oldest(peer, word)
            return
        else:
            self._on_more(peer, set(word.known))
        self.tidy()

    def _on_ready(self, peer: NodeId, address: Address) -> None:
        self.addresses[peer] = address
        self.ready.add(peer)
        mediator = self.planned.pop(peer, None)
        if peer == self.contact:
            self._host.command("join", peer)
        elif mediator is not None:
            self.opened += 1
            self._host.command("open", self.me, mediator, peer)

    def _on_give(self, giver: NodeId, why: int, arcs: list[tuple[NodeId, Address]]) -> None:
        if self.is_leaving:
            if why == BEGINS:  # half of its view, which must not go with us
                self.given.setdefault(giver, deque()).append([])
                self.say(giver, Give(ANSWERS, [(name, str(address)) for name, address in arcs]))
            self.say(giver, OpeningLinks([]))
            return
        answer: list[tuple[NodeId, NodeId]] = []
        if why == BEGINS:
            answer = self.view.give(giver, self.is_safe, self._draw.getrandbits(64), begins=False)
        calls: list[NodeId] = []
        if why == LEAVES:
            for name, address in arcs[:1]:
                if name != self.me and self._reach(giver, name, address, calls):
                    self.successors[giver] = name
        else:
            self._take(giver, arcs, calls, self.view.welcome if why == INTRODUCES else self._name)
        self.say(giver, OpeningLinks(calls))
        if why == BEGINS:
            self._give(giver, ANSWERS, answer)

    def _name(self, name: NodeId) -> None:
        self.view.take([name])

    def _take(
        self,
        giver: NodeId,
        arcs: list[tuple[NodeId, Address]],
        calls: list[NodeId],
        add: Callable[[NodeId], None],
    ) -> None:
        """Add arcs to the view; those for which a link will be opened are added to `calls`."""
        for name, address in arcs:
            if len(self.view.arcs) >= VIEW_MAX:
                break
            if name == self.me:  # it has moved in a circle
                self.view.take([giver])
            elif self._reach(giver, name, address, calls):
                add(name)

    def _reach(self, giver: NodeId, name: NodeId, address: Address, calls: list[NodeId]) -> bool:
        """Whether we are linked to `name` or going to be; if we are to open the link, `calls` has it."""
        if name in self._lines.links or name in self.planned:
            return True
        if len(self.planned) >= CALLS_MAX:
            return False
        self.planned[name] = giver
        self.addresses[name] = address
        calls.append(name)
        self._lines.dial(name, address)
        return True

    def _on_opening(self, taker: NodeId, names: list[NodeId]) -> None:
        gives = self.given.get(taker)
        if not gives:
            return
        given = gives.popleft()
        if not gives:
            del self.given[taker]
        for name in names:
            if name in given and self.is_safe(name) and self.is_safe(taker):
                self._host.command("mediate", taker, name)

    def _on_more(self, peer: NodeId, known: set[NodeId]) -> None:
        others = [name for name in self.safe_links() if name not in known and name != peer]
        if self.is_safe(peer) and others and not self.is_leaving:
            count = min(len(others), max(1, self.view_min - len(known)))
            self._give(peer, ANSWERS, [(name, name) for name in self._draw.sample(others, count)])

    # What we do

    def took_in(self, joiner: NodeId) -> None:
        """The core has let a joiner in: have the nodes that we name name it."""
        names = [name for name in self.view.introductions(self.is_safe) if name != joiner]
        others = [name for name in self.safe_links() if name != joiner and name not in names]
        lacking = self.view_min - 1 - len(set(names) - {self.me})  # it has its link to us
        if lacking > 0:
            names += self._draw.sample(others, min(lacking, len(others)))
        for name in names:
            if name == self.me:
                self.view.welcome(joiner)
            else:
                self._give(name, INTRODUCES, [(joiner, joiner)])

    def shuffle(self) -> None:
        """Exchange half of the view with the neighbour that was named first; see to a small view."""
        if self.is_leaving:
            return
        safe = self.safe_links()
        if safe and not self.view.arcs:  # the arcs that we were given led nowhere
            self.view.take([self._draw.choice(safe)])
        partner = self.view.partner(self.is_safe)
        if partner is not None:
            self.shuffles += 1
            given = self.view.give(partner, self.is_safe, self._draw.getrandbits(64), begins=True)
            self._give(partner, BEGINS, given)
        if safe and len(safe) < self.view_min:
            known = sorted({*self._lines.links, *self.planned})
            self.say(self._draw.choice(safe), More(known[:ARCS_MAX]))
        self.tidy()

    def introduce_neighbours(self) -> None:
        """Before we leave: link our neighbours in a ring, so that none depends on us."""
        self.is_leaving = True
        safe = self.safe_links()
        ring = [*safe, safe[0]] if len(safe) > 2 else safe
        for name, other in pairwise(ring):
            self._give(name, LEAVES, [(other, other)])

    def is_settled(self) -> bool:
        """No node waits for us to mediate."""
        return not self.given and not self.core.relays

    def _give(self, taker: NodeId, why: int, arcs: list[tuple[NodeId, NodeId]]) -> None:
        """Hand arcs over, each as (named here, named there); links that they need are kept meanwhile."""
        arcs = arcs[:ARCS_MAX]
        where = {**self.addresses, self.me: self.address}
        self.given.setdefault(taker, deque()).append([was for was, becomes in arcs if was == becomes])
        self.say(taker, Give(why, [(becomes, str(where[becomes])) for _, becomes in arcs]))

    def say(self, peer: NodeId, word: Word) -> None:
        """Say something over the link to `peer`, if it lives."""
        link = self._lines.links.get(peer)
        if link is not None and link.alive:
            link.out.pending.append(encode_packet(overlay_packet(self.me, word)))
            self._lines.wake()
