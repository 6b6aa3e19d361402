"""Nodes in memory: real sessions, links, hosts and cores, joined by wires that are carried by hand.

Time is virtual and every number is given, so that the same script gives the same bytes. What follows for a
node (`LinkOwner`, `HostOwner`) is written down in `events`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

from whence.core.effects import Reason
from whence.core.message import NodeId
from whence.core.protocol import Protocol as Core
from whence.errors import PeerError
from whence.protocols import registry
from whence.session.addresses import Address
from whence.session.admission import Admission, Listed
from whence.session.flow import Flow
from whence.session.handshake import Identity, OwnLives
from whence.session.host import Host
from whence.session.journal import Journal
from whence.session.limits import Limits
from whence.session.links import Link
from whence.session.peering import Peering
from whence.session.roll import Roll
from whence.session.session import Session
from whence.session.wire import FrameReader, MembersNews

LIMITS = Limits(backoff_first_s=0.05, handshake_timeout_s=5.0, heartbeat_s=2.0, silence_s=10.0)
MakeAdmission = Callable[[Identity, dict[NodeId, Link]], Admission]
durable: MakeAdmission = partial(Listed, keeps=True)


class Nothing:
    """Timers that no core here sets, and an owner that is asked for nothing."""

    def __contains__(self, key: str) -> bool:
        return False

    def set(self, key: str, at_us: int) -> None:
        raise AssertionError(key)

    def cancel(self, key: str) -> None:
        raise AssertionError(key)

    def count_on(self, peer: str, counts: bool) -> None:
        raise AssertionError(peer)

    def stopped(self, reason: Reason) -> None:
        raise AssertionError(reason)

    def close_link(self, peer: str, why: str) -> None:
        raise AssertionError(why)

    def told(self, news: object) -> None:
        raise AssertionError(news)


class Timers(dict[str, int]):
    """Timers of a core that are set, and expire when a test says so."""

    def set(self, key: str, at_us: int) -> None:
        self[key] = at_us

    def cancel(self, key: str) -> None:
        self.pop(key, None)


class Wire:
    """One end of a connection: what is written waits until it is carried to the other end."""

    def __init__(self, end: End, dialled: Link | None, nonce: int) -> None:
        reader = FrameReader(end.host.core.packet_type, LIMITS.max_frame_bytes(len(end.identity.members)))
        self.writable = True
        self.data = bytearray()  # written, and not carried
        self.sent = b""  # all that was ever written
        self.is_closing = self.is_closed = False
        self.end = end
        self.session = Session(end.peering, self, reader, dialled, nonce)

    def write(self, data: bytes) -> None:
        self.data += data
        self.sent += data

    def close(self, last_words: bytes = b"") -> None:
        self.session.ended()
        if not self.is_closing:
            self.write(last_words)
            self.is_closing = True
            self.writable = False

    def abort(self) -> None:
        self.session.ended()
        self.data.clear()
        self.is_closing = True
        self.writable = False

    def take(self, data: bytes) -> None:
        """As the rim does with bytes that have arrived."""
        session, end = self.session, self.end
        packets = session.feed(data)
        if packets:
            link = session.link
            assert link is not None
            link.incoming.take(len(packets), len(data))
            end.host.receive(link.peer, packets)
        if session.reader.control or session.reader.error is not None:
            session.obey()

    def lose(self, why: Any) -> None:
        """The connection is gone: nothing that was on its way arrives."""
        if not self.is_closed:
            self.is_closed = self.is_closing = True
            self.writable = False
            self.data.clear()
            self.session.closed(why)


class End:
    """One node without sockets."""

    def __init__(
        self,
        world: World,
        identity: Identity,
        make_admission: MakeAdmission,
        core: Core,
        peers: Iterable[NodeId],
        limits: Limits = LIMITS,
        *,
        renews: bool = False,
    ) -> None:
        self.world = world
        self.identity = identity
        self.limits = limits
        self.events: list[str] = []
        self.links: dict[NodeId, Link] = {
            peer: Link(peer, Address("127.0.0.1", 1), dials=identity.node < peer, renews=renews)
            for peer in peers
        }
        self.timers = Timers()
        self.host = Host(core, self.links, self.timers, self, lambda: int(world.now_s * 1e6))
        self.journal = Journal(identity.node, lambda: world.now_s)
        self.peering = Peering(
            make_admission(identity, self.links),
            self.links,
            limits,
            self.journal,
            self,
            lambda: world.now_s,
            lambda: next(world.numbers),
        )
        self.roll = Roll(
            self.peering, self.links, lambda name, life: self.events.append(f"retired {name} in {life}")
        )
        self.flow = Flow(self.host, self.links.values(), limits)
        for peer in self.links:
            self.host.link_up(peer)
        self.flow.refresh()

    @property
    def got(self) -> list[bytes]:
        """The payloads that were delivered here."""
        return [payload for _, _, payload in self.host.inbox]

    def say(self, payload: bytes) -> None:
        """Broadcast, and write what can be written."""
        self.host.broadcast(payload)
        self.flush()

    def flush(self, *, ack_now: bool = False) -> None:
        """One turn of the loop."""
        flow = self.flow
        flow.refresh()
        may_ack, ack_now = flow.may_ack, ack_now or flow.release
        flow.release = False
        for link in list(self.links.values()):
            if link.flush(1000, may_ack=may_ack, ack_now=ack_now):
                link.wrote_s = self.world.now_s

    # LinkOwner and HostOwner

    def link_up(self, link: Link) -> None:
        self.events.append(f"up {link.peer}")
        self.links[link.peer] = link

    def link_gone(self, link: Link) -> None:
        self.events.append(f"gone {link.peer}")
        if self.peering.admission.lasting:
            self.host.link_down(link.peer)
        else:
            self.links.pop(link.peer, None)

    def link_renewed(self, link: Link) -> None:
        self.events.append(f"renewed {link.peer}")
        self.host.link_down(link.peer)
        link.renew()
        self.host.link_up(link.peer)

    def link_met(self, link: Link) -> None:
        self.events.append(f"met {link.peer} in {link.peer_session}")
        self.roll.greet(link)

    def link_restarted(self, link: Link, welcomes: bool) -> None:
        self.events.append(f"{'welcomed' if welcomes else 'restarted'} {link.peer}")
        self.host.restart_link(link.peer, link.followed, welcomes=welcomes)

    def has_heard_of(self, peer: NodeId) -> bool:
        return self.host.core.has_heard_of(peer)

    def link_cut_off(self, link: Link) -> None:
        self.events.append(f"cut off {link.peer}")

    def link_back(self, link: Link) -> None:
        self.events.append(f"back {link.peer}")

    def retired_by(self, link: Link) -> None:
        self.events.append(f"retired by {link.peer}")
        link.session = next(self.world.numbers)
        self.identity.lives.begin(next(self.world.numbers))

    def members_told(self, link: Link, news: MembersNews) -> None:
        self.roll.hear(link, news)

    def told(self, news: object) -> None:
        self.events.append(f"told {news}")

    def changed(self) -> None: ...

    def acknowledged(self) -> None:
        self.events.append("acknowledged")

    def wake(self) -> None: ...

    def count_on(self, peer: NodeId, counts: bool) -> None:
        self.peering.count_on(self.links[peer], counts)

    def stopped(self, reason: Reason) -> None:
        self.events.append(f"stopped: {reason.value}")

    def close_link(self, peer: NodeId, why: str) -> None:
        self.peering.close(self.links[peer], why)


class World:
    """Virtual time, the wires between nodes, and the next number to draw."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pairs: list[tuple[Wire, Wire]] = []
        self.numbers = count(1001)

    def connect(self, dialler: End, acceptor: End, link: Link | None = None) -> tuple[Wire, Wire]:
        """`dialler` calls `acceptor`, over its link to it or over `link`."""
        if link is None:
            link = dialler.links[acceptor.identity.node]
        ours, theirs = Wire(dialler, link, next(self.numbers)), Wire(acceptor, None, next(self.numbers))
        self.pairs.append((ours, theirs))
        ours.session.begin("127.0.0.1")
        theirs.session.begin("127.0.0.1")
        theirs.session.opened()
        ours.session.opened()
        return ours, theirs

    def carry(self, step_bytes: int = 1 << 30) -> None:
        """Carry bytes, in pieces, until nothing is on its way; then tell of what was closed."""
        moved = True
        while moved:
            moved = False
            for one, other in [*self.pairs, *[(there, here) for here, there in self.pairs]]:
                if one.data and not other.is_closed:
                    piece = bytes(one.data[:step_bytes])
                    del one.data[: len(piece)]
                    other.take(piece)
                    moved = True
                elif one.is_closing and not one.data and not one.is_closed:
                    moved = True
                    self.cut((one, other))

    def cut(self, pair: tuple[Wire, Wire]) -> None:
        """The connection ends, at both ends; what was on its way is lost."""
        why = PeerError("connection", "it was cut", "Wait")
        for wire in pair:
            wire.lose(why)
        self.pairs = [each for each in self.pairs if each[0] not in pair]

    def wait(self, seconds: float) -> None:
        """Time goes on, in steps of a second at most: deadlines pass, links are looked after."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(until_s, self.now_s + 1.0)
            for pair in list(self.pairs):
                for wire in pair:
                    deadline_s = wire.session.deadline_s
                    if deadline_s is not None and deadline_s <= self.now_s:
                        wire.session.timer()
            for end in {id(wire.end): wire.end for pair in self.pairs for wire in pair}.values():
                for link in list(end.links.values()):
                    end.peering.look_after(link)
            self.carry()


def identity_of(node: NodeId, members: tuple[NodeId, ...], session: int, **changes: Any) -> Identity:
    """As `join` makes it, with a session by hand."""
    given: dict[str, Any] = {
        "group": "room", "protocol": "fifo", "parameters": {"relay": "false"}, "members": members,
        "max_payload_bytes": LIMITS.max_payload_bytes, "node": node, "session": session,
    }  # fmt: skip
    return Identity(**{"lives": OwnLives(100 + session), **given, **changes})


def listed(
    world: World,
    node: NodeId,
    members: tuple[NodeId, ...] = ("a", "b"),
    session: int | None = None,
    make_admission: MakeAdmission = Listed,
    **options: Any,
) -> End:
    """A member of a listed group under `fifo`; `options` are those of `End` and changes of its identity."""
    of_end = {name: options.pop(name) for name in ("limits", "renews") if name in options}
    identity = identity_of(node, members, session or 10 + members.index(node), **options)
    core = registry.make("fifo", node, members, {"relay": False})
    peers = [member for member in members if member != node]
    return End(world, identity, make_admission, core, peers, **of_end)


def pair(**options: Any) -> tuple[World, End, End]:
    """Two members that are not connected yet."""
    world = World()
    return world, listed(world, "a", **options), listed(world, "b", **options)


def refusals(end: End) -> list[str]:
    """What the node holds against its peers, newest last: type and reason."""
    return [
        f"{type(event.error).__name__}: {re.sub(' +', ' ', event.error.reason)}"
        for event in end.journal.events
        if event.error is not None
    ]
