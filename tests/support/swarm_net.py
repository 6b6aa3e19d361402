"""Swarms without sockets: the live overlay (live/swarm.py) over real cores and links in memory.

Everything is carried to its end after each event, so that what a join, a leave or a crash does to the arcs
can be counted. The same seed gives the same run: live/swarm.py draws from `random`, which is seeded here.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import cast

from whence.core.effects import CancelTimer, CloseLink, Effects, Send, SetTimer
from whence.live.swarm import Swarm
from whence.live.swarm_host import SwarmHost
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.wire import JOIN, PrcPacket
from whence.session.addresses import Address
from whence.session.links import Link, LinkState
from whence.session.overlay_wire import OVERLAY, word_of
from whence.session.wire import FrameReader, data_frame


class Member:
    """One process: what live/dynamic.py is to the overlay, without I/O."""

    def __init__(self, name: str, port: int, net: SwarmNet, view_min: int) -> None:
        self.name = name
        self.net = net
        self.overlaid = Prc(name, [name], links="dynamic")
        self.links: dict[str, Link] = {}
        self.host = cast(SwarmHost, self)  # `overlaid` and `command` are all that the overlay asks it for
        self.swarm = Swarm(name, Address("127.0.0.1", port), self, view_min)

    def command(self, verb: str, *names: str) -> None:
        self.carry_out(self.overlaid.command(verb, names, self.net.now_us))

    def carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                for peer in effect.to:
                    self.links[peer].out.pending.append(data_frame(effect.packet))
            elif isinstance(effect, SetTimer):
                self.net.timers[self.name, effect.key] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self.net.timers.pop((self.name, effect.key), None)
            elif isinstance(effect, CloseLink):
                self.hang_up(effect.peer, "the core")
        self.wake()

    def dial(self, peer: str, address: Address) -> None:
        self.net.soon.append(lambda: self.net.connect(self, peer))

    def hang_up(self, peer: str, why: str) -> None:
        link = self.links.get(peer)
        if link is not None and link.alive:
            link.end(LinkState.GIVEN_UP)
            self.net.soon.append(lambda: self.net.cut(self.name, peer, left=False))

    def wake(self) -> None:
        self.net.awake[self.name] = None

    def link_up(self, peer: str, *, dials: bool) -> None:
        link = self.links[peer] = Link(peer, Address("127.0.0.1", 1), dials=dials)
        self.carry_out(self.overlaid.link_up(peer, self.net.now_us))
        self.swarm.up(link)

    def link_gone(self, peer: str, *, left: bool) -> None:
        link = self.links.pop(peer, None)
        if link is not None:
            link.end(LinkState.LEFT if left else LinkState.GIVEN_UP)
            if peer in self.overlaid.links:
                self.carry_out(self.overlaid.link_down(peer, self.net.now_us))
            self.swarm.lost(peer)

    def receive(self, peer: str, packet: PrcPacket) -> None:
        """As `DynamicNode._receive`, one packet at a time."""
        if packet.kind == OVERLAY:
            self.swarm.hear(peer, word_of(packet, peer))
            return
        had = peer in self.overlaid.in_view
        self.carry_out(self.overlaid.receive(peer, packet, self.net.now_us))
        if packet.kind == JOIN and peer in self.overlaid.in_view and not had:
            self.swarm.took_in(peer)
        elif self.overlaid.is_joined:
            self.swarm.contact = None
        if packet.kind:
            self.swarm.tidy()


class SwarmNet:
    """A group, and what each kind of event has added to its arcs (`made`)."""

    def __init__(self, seed: int, view_min: int = 4) -> None:
        random.seed(seed)
        self.view_min = view_min
        self.members: dict[str, Member] = {}
        self.now_us = 0
        self.born = 0
        self.made: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.awake: dict[str, None] = {}
        self.soon: deque[Callable[[], None]] = deque()
        self.timers: dict[tuple[str, str], int] = {}

    # Events

    def join(self, contact: str | None = None) -> str:
        """One process more, through a contact drawn at random."""
        with_arcs = self.arcs()
        name = f"p{self.born:05d}"
        self.born += 1
        contacts = sorted(self.members)
        member = self.members[name] = Member(name, 1 + self.born % 60_000, self, self.view_min)
        if not contacts:
            member.command("found")
        else:
            contact = contact or random.choice(contacts)
            member.swarm.contact = contact
            member.swarm.view.take([contact])
            self.connect(member, contact)
        self._done("join", with_arcs)
        assert member.overlaid.is_joined
        return name

    def leave(self, name: str | None = None) -> str:
        """One process goes in good order, as `DynamicNode._part` has it."""
        with_arcs = self.arcs()
        name = name or random.choice(sorted(self.members))
        member = self.members[name]
        member.swarm.introduce_neighbours()
        self.deliver()
        assert member.swarm.is_settled()
        del self.members[name]
        self._forget(member, left=True)
        self._done("leave", with_arcs)
        return name

    def crash(self, name: str | None = None) -> str:
        """One process is gone without a word."""
        with_arcs = self.arcs()
        name = name or random.choice(sorted(self.members))
        self._forget(self.members.pop(name), left=False)
        self._done("crash", with_arcs)
        return name

    def shuffle(self) -> None:
        """Every process shuffles once, in an order drawn at random."""
        with_arcs = self.arcs()
        for name in random.sample(sorted(self.members), len(self.members)):
            self.members[name].swarm.shuffle()
            self.deliver()
        self._done("shuffle", with_arcs)

    # What can be seen

    def arcs(self) -> int:
        """Of all processes."""
        return sum(len(member.swarm.view.arcs) for member in self.members.values())

    def degree(self) -> float:
        """Safe links of a process, on average."""
        return sum(len(member.swarm.safe_links()) for member in self.members.values()) / len(self.members)

    def pieces(self) -> int:
        """Into how many pieces the graph of safe links falls: 1 is right."""
        left, pieces = set(self.members), 0
        while left:
            pieces += 1
            reached = [left.pop()]
            while reached:
                near = left.intersection(self.members[reached.pop()].swarm.safe_links())
                left -= near
                reached += near
        return pieces

    # The world

    def connect(self, member: Member, peer: str) -> None:
        """A call; if both call each other, the second finds the link."""
        other = self.members.get(peer)
        if member.name not in self.members or peer in member.links:
            return
        if other is None:
            member.swarm.unreachable(peer)
            return
        member.link_up(peer, dials=True)
        other.link_up(member.name, dials=False)

    def cut(self, one: str, other: str, *, left: bool) -> None:
        """The end of a link, at both ends."""
        for near, far in ((one, other), (other, one)):
            if near in self.members:
                self.members[near].link_gone(far, left=left)

    def _forget(self, member: Member, *, left: bool) -> None:
        for peer in sorted(member.links):
            self.members[peer].link_gone(member.name, left=left)
        for key in [key for key in self.timers if key[0] == member.name]:
            del self.timers[key]

    def _done(self, event: str, arcs_before: int) -> None:
        """Carry everything to its end, time-outs included."""
        self.deliver()
        while self.timers:
            name, key = min(self.timers, key=lambda each: (self.timers[each], each))
            self.now_us = max(self.now_us, self.timers.pop((name, key)))
            member = self.members[name]
            member.carry_out(member.overlaid.timer(key, self.now_us))
            member.swarm.tidy()
            self.deliver()
        self.events[event] += 1
        self.made[event] += self.arcs() - arcs_before

    def deliver(self) -> None:
        """Until nothing is under way."""
        while self.awake or self.soon:
            while self.soon:
                self.soon.popleft()()
            if not self.awake:
                continue
            name = next(iter(self.awake))
            del self.awake[name]
            member = self.members.get(name)
            for peer in sorted(member.links) if member is not None else ():
                self._carry(cast(Member, member), peer)

    def _carry(self, member: Member, peer: str) -> None:
        link, other = member.links.get(peer), self.members.get(peer)
        if link is None or other is None:
            return
        reader = FrameReader(PrcPacket, 1 << 24)
        for packet in cast(list[PrcPacket], reader.feed(b"".join(link.out.drain()))):
            if link.alive and member.name in other.links and other.links[member.name].alive:
                other.receive(member.name, packet)
