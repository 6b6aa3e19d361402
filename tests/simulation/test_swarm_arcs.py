"""The number of arcs follows the size of the group, whoever comes and goes, and however they go.

The live overlay over real cores on the one net, without sockets: every join brings as many arcs, on average,
as a leave or a crash takes. A leave that takes fewer lets the views grow without end, and every message then
costs a copy for each link.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from math import log
from typing import cast

import pytest

from support.net import Flight, Net
from whence.core.effects import Effects
from whence.core.rng import stream
from whence.overlay.spray import Spray
from whence.protocols.prc.prc import Prc
from whence.protocols.prc.wire import JOIN, PrcPacket
from whence.session.addresses import Address
from whence.session.host import Host
from whence.session.links import Link, LinkState
from whence.session.overlay import Draw, SprayByMessages
from whence.session.overlay_wire import OVERLAY, word_of
from whence.session.wire import FrameReader, encode_packet, packets_frame

# Everything is carried to its end after each event, so that what a join, a leave or a crash does to the arcs
# can be counted. The same seed gives the same run: the overlay draws from `random`, which is seeded here.


class Member:
    """One process: what live/overlay.py is to the overlay, without I/O."""

    def __init__(self, name: str, port: int, group: SwarmGroup, view_min: int) -> None:
        self.name = name
        self.group = group
        group.net.add(name)
        self.overlaid = group.net.cores[name]
        self.links: dict[str, Link] = {}
        self.core = self.overlaid
        host = cast(Host, self)  # `core` and `command` are all that the overlay asks it for here
        self.swarm = SprayByMessages(
            name, Address("127.0.0.1", port), self, host, view_min, cast(Draw, random)
        )

    def command(self, verb: str, *names: str) -> None:
        self.group.net.do(self.name, lambda core, now_us: core.command(verb, names, now_us))

    def dial(self, peer: str, address: Address) -> None:
        self.group.soon.append(lambda: self.group.connect(self, peer))

    def hang_up(self, peer: str, why: str) -> None:
        link = self.links.get(peer)
        if link is not None and link.alive:
            link.end(LinkState.GIVEN_UP)
            self.group.soon.append(lambda: self.group.cut(self.name, peer, left=False))

    def wake(self) -> None:
        self.group.awake[self.name] = None

    def link_up(self, peer: str, *, dials: bool) -> None:
        link = self.links[peer] = Link(peer, Address("127.0.0.1", 1), dials=dials)
        self.group.net.do(self.name, lambda core, now_us: core.link_up(peer, now_us))
        self.swarm.up(link)

    def link_gone(self, peer: str, *, left: bool) -> None:
        link = self.links.pop(peer, None)
        if link is not None:
            link.end(LinkState.LEFT if left else LinkState.GIVEN_UP)
            self.group.net.up[self.name, peer] = 0
            if peer in self.overlaid.links:
                self.group.net.do(self.name, lambda core, now_us: core.link_down(peer, now_us))
            self.swarm.lost(peer)

    def receive(self, peer: str, packet: PrcPacket) -> None:
        """As `SprayByMessages.receive`, one packet at a time."""
        if packet.kind == OVERLAY:
            self.swarm.hear(peer, word_of(packet, peer))
            return
        had = peer in self.overlaid.in_view
        self.group.net.receive(self.name, peer, packet)
        if packet.kind == JOIN and peer in self.overlaid.in_view and not had:
            self.swarm.took_in(peer)
        elif self.overlaid.is_joined:
            self.swarm.contact = None
        if packet.kind:
            self.swarm.tidy()


class SwarmGroup:
    """A group, and what each kind of event has added to its arcs (`made`)."""

    def __init__(self, seed: int, view_min: int = 4) -> None:
        random.seed(seed)
        self.view_min = view_min
        self.members: dict[str, Member] = {}
        self.net = Net(lambda name, _: Prc(name, [name], links="dynamic"), ())
        self.net.on_send = self._frame
        self.net.on_close = lambda name, peer: self.members[name].hang_up(peer, "the core")
        self.net.after = self._wake
        self.born = 0
        self.made: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.awake: dict[str, None] = {}
        self.soon: deque[Callable[[], None]] = deque()

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
        """One process goes in good order, as `OpenMembership.part` has it."""
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

    def _frame(self, flight: Flight) -> None:
        """What a core sends goes over its link as a frame, with the overlay's words."""
        self.net.flying.remove(flight)
        self.members[flight.sender].links[flight.to].out.pending.append(encode_packet(flight.packet))

    def _wake(self, name: str, effects: Effects) -> None:
        self.awake[name] = None

    def connect(self, member: Member, peer: str) -> None:
        """A call; if both call each other, the second finds the link."""
        other = self.members.get(peer)
        if member.name not in self.members or peer in member.links:
            return
        if other is None:
            member.swarm.unreachable(peer)
            return
        self.net.up[member.name, peer] = self.net.up[peer, member.name] = 1
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
        for key in [key for key in self.net.timers if key[0] == member.name]:
            del self.net.timers[key]

    def _done(self, event: str, arcs_before: int) -> None:
        """Carry everything to its end, time-outs included."""
        self.deliver()
        while self.net.timers:
            self.net.now_us = max(self.net.now_us, min(self.net.timers.values()))
            name, key = min(self.net.timers, key=lambda each: (self.net.timers[each], each))
            del self.net.timers[name, key]
            self.net.do(name, lambda core, now_us, key=key: core.timer(key, now_us))
            self.members[name].swarm.tidy()
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
        if link is None or other is None or not link.out.pending:
            return
        reader = FrameReader(PrcPacket, 1 << 24)
        for packet in cast(list[PrcPacket], reader.feed(b"".join(map(packets_frame, link.out.drain())))):
            if link.alive and member.name in other.links and other.links[member.name].alive:
                other.receive(member.name, packet)


# The tests


SIZE = 30
PAIRS = 120  # a join and a departure each


@pytest.fixture(autouse=True)
def _draws() -> Iterator[None]:
    """What the nets seed is everybody's: put it back, or two workers would draw the same ports elsewhere."""
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.parametrize("how", ["leave", "crash", "mixed"])
def test_views_keep_their_size_when_as_many_come_as_go(how: str) -> None:
    net = SwarmGroup(seed=3)
    while len(net.members) < SIZE:
        net.join()
    net.shuffle()
    net.made.clear()
    net.events.clear()
    for at in range(PAIRS):
        goes = random.choice(["leave", "crash"]) if how == "mixed" else how
        (net.leave if goes == "leave" else net.crash)()
        assert net.pieces() == 1
        net.join()
        if at % 6 == 5:
            net.shuffle()
    assert net.pieces() == 1
    each = {event: round(made / net.events[event], 2) for event, made in net.made.items()}
    print(f"{how}: arcs for each {each}, {net.arcs() / SIZE:.2f} per process, degree {net.degree():.2f}")
    surplus = (net.made["join"] + net.made["leave"] + net.made["crash"]) / PAIRS
    assert abs(surplus) < 0.6, f"arcs for each join and departure: {surplus}; each alone moves more than four"
    assert net.view_min < net.degree() < 1.5 * 2 * log(SIZE)


@pytest.mark.parametrize("how", ["leave", "crash"])
def test_those_who_stay_for_a_short_time_leave_no_arcs_behind(how: str) -> None:
    """Only the six youngest go, before or soon after their first shuffle."""
    net = SwarmGroup(seed=3)
    while len(net.members) < SIZE:
        net.join()
    net.shuffle()
    for at in range(PAIRS // 2):
        name = random.choice(sorted(net.members)[-6:])
        (net.leave if how == "leave" else net.crash)(name)
        assert net.pieces() == 1
        net.join()
        if at % 6 == 5:
            net.shuffle()
    print(f"the youngest {how}: {net.arcs() / SIZE:.2f} arcs per process, degree {net.degree():.2f}")
    assert net.view_min < net.degree() < 1.7 * 2 * log(SIZE)


def test_an_arc_that_came_with_a_join_goes_with_the_joiner_until_it_has_moved() -> None:
    view: Spray[str] = Spray("me")
    view.take(["a", "b", "c", "d"])
    view.welcome("j")
    assert view.lost("j", stream(1, 1)) == []
    assert view.arcs == ["a", "b", "c", "d"]
    view.welcome("j")
    assert view.give("a", lambda name: name == "j", stream(1, 1), begins=False) == [("j", "j")]
    view.take(["j"])  # it comes back as one like any other
    assert any(view.lost("j", stream(seed, 1)) or view.take(["j"]) for seed in range(20))


def test_views_shrink_with_the_group() -> None:
    """All but ten of fifty leave, and nobody is cut off."""
    net = SwarmGroup(seed=4)
    while len(net.members) < 50:
        net.join()
    net.shuffle()
    large = net.arcs() / len(net.members)
    while len(net.members) > 10:
        net.leave()
        assert net.pieces() == 1
        if len(net.members) % 10 == 0:
            net.shuffle()
    assert net.arcs() / len(net.members) < large
    assert net.degree() < 1.5 * 2 * log(10)


def test_arcs_given_to_a_process_that_leaves_come_back() -> None:
    net = SwarmGroup(seed=5)
    while len(net.members) < 12:
        net.join()
    net.shuffle()
    shuffler = next(each.swarm for each in net.members.values() if each.swarm.view.arcs[3:])
    leaver = net.members[shuffler.view.arcs[0]].swarm
    before = sorted(shuffler.view.arcs)
    leaver.introduce_neighbours()
    shuffler.shuffle()  # to `leaver`, whose word has not arrived
    assert len(shuffler.view.arcs) < len(before)
    net.deliver()
    assert sorted(shuffler.view.arcs) == before
    assert leaver.is_settled()


def test_a_successor_is_named_without_an_arc_more() -> None:
    """As many arcs as a crash would leave, the successor among them; a second arc to somebody goes first."""
    sizes = set()
    for seed in range(200):
        draw = random.Random(seed)
        arcs = [draw.choice("abcdelp") for _ in range(draw.randrange(1, 8))]
        crashed, left = Spray("me"), Spray("me")
        crashed.take(arcs)
        left.take(arcs)
        key = stream(seed, 1)
        crashed.lost("l", key)
        left.left("l", "s", key)
        assert len(left.arcs) == max(1, len(crashed.arcs))
        assert "l" not in left.arcs
        assert "s" in left.arcs
        assert left.arcs.count("s") == 1
        sizes.add(len(left.arcs) - len(arcs))
        others = [name for name in arcs if name != "l"]
        if "l" not in arcs and len(set(others)) < len(others):
            assert set(left.arcs) == {*others, "s"}, "a double is given up before the only arc to a process"
    assert sizes >= {0, -1}


def test_a_successor_that_is_named_already_is_not_named_twice() -> None:
    view: Spray[str] = Spray("me")
    view.take(["a", "s"])
    view.left("l", "s", stream(1, 1))
    assert view.arcs == ["a", "s"]
