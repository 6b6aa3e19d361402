"""Datagrams between two nodes in memory: each is judged alone, and nothing is waited for."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.pairs import LIMITS, World, identity_of, refusals
from whence.protocols.baselines.fifo import FifoPacket
from whence.session.addresses import Address
from whence.session.admission import Listed
from whence.session.datagrams import DatagramLink, Datagrams, Header, digest_of, header_of
from whence.session.journal import Journal
from whence.session.links import LinkState
from whence.session.peering import Peering
from whence.session.wire import BYE_FRAME, FrameReader, encode_packet, hello_frame

MEMBERS = ("a", "b")


class Side:
    """One member: its link, what it has sent and not been carried, what it has received."""

    def __init__(self, world: World, node: str, session: int, **changes: Any) -> None:
        self.identity = identity_of(node, MEMBERS, session, **changes)
        self.peer = "b" if node == "a" else "a"
        self.dropped: Counter[str] = Counter()
        self.writable = True
        self.sent: list[bytes] = []
        self.got: list[bytes] = []
        self.events: list[str] = []
        self.journal = Journal(node, lambda: world.now_s)
        header = header_of(self.identity)
        self.link = DatagramLink(self.peer, Address("127.0.0.1", 1), LIMITS, self, header)
        links = {self.peer: self.link}
        owner: Any = self
        self.peering = Peering(
            Listed(self.identity, links), links, LIMITS, self.journal, owner, lambda: world.now_s, lambda: 99
        )
        reader = FrameReader(FifoPacket, 100_000, datagrams=True)
        self.datagrams = Datagrams(links, self.peering, self.journal, reader)

    def put(self, datagram: bytes, peer: str) -> None:
        assert peer == self.peer
        self.sent.append(datagram)

    def take(self, data: bytes, peer: str | None = None) -> None:
        """A datagram arrives."""
        peer = peer or self.peer
        self.got += [packet[2] for packet in self.datagrams.feed(data, peer, "127.0.0.1")]
        self.datagrams.obey(peer)

    def say(self, payload: bytes) -> None:
        self.link.out.pending.append(encode_packet((0, 1, payload)))
        self.link.flush(100, may_ack=True, ack_now=False)

    def changed(self) -> None: ...

    def link_gone(self, link: Any) -> None:
        self.events.append(f"gone {link.peer}")

    def fail(self, error: BaseException) -> None:
        self.events.append(f"failed: {error}")


def two(**changes: Any) -> tuple[World, Side, Side]:
    world = World()
    return world, Side(world, "a", 10), Side(world, "b", 11, **changes)


def carry(*sides: Side) -> None:
    """Until nothing is on its way."""
    while any(side.sent for side in sides):
        for here, there in (sides, sides[::-1]):
            sent, here.sent = here.sent, []
            for datagram in sent:
                there.take(datagram)


def test_peers_meet_by_hello_and_are_heard_without_it() -> None:
    _, a, b = two()
    a.say(b"early")
    carry(a, b)
    assert b.got == [b"early"]
    assert b.link.channel is None  # it has heard a, and does not know whether a hears it
    assert a.datagrams.call()
    carry(a, b)
    assert a.link.channel is a.link.port
    assert b.link.channel is b.link.port
    assert not a.datagrams.call()
    assert (a.link.peer_session, b.link.peer_session) == (11, 10)


def test_another_configuration_is_refused_by_both_with_the_difference() -> None:
    _, a, b = two(parameters={"relay": "true"})
    a.datagrams.call()
    carry(a, b)
    assert "parameter 'relay' (false at 'a', true at 'b')" in refusals(b)[0]
    assert "parameter 'relay'" in refusals(a)[0]
    assert b.got == []


def test_a_burst_of_refusals_is_one_refusal() -> None:
    world, a, b = two(group="kitchen")
    for _ in range(50):
        a.say(b"x")
    for datagram in a.sent:
        b.take(datagram)
    assert len(b.sent) == 1
    world.now_s += 1
    b.take(a.sent[0])
    assert len(b.sent) == 2


def test_another_life_of_the_peer_is_taken_once_the_earlier_is_silent_and_it_has_heard_us() -> None:
    world, a, b = two()
    a.datagrams.call()
    carry(a, b)
    again = Side(world, "a", 77)
    again.say(b"who")
    carry(again, b)
    assert "another process takes part under this name" in refusals(b)[0]
    assert again.events == []  # a refusal ends nothing
    a.say(b"still me")
    carry(a, b)
    b.link.channel = None  # it has been silent for long
    again.say(b"this could be a recording")
    carry(again, b)
    assert b.got == [b"still me"]
    again.say(b"here")
    carry(again, b)
    a.say(b"late")
    carry(a, b)
    assert "it is of a process that is over" in refusals(b)[-1]
    assert b.got == [b"still me", b"here"]


def test_good_bye_is_answered_again_and_again() -> None:
    _, a, b = two()
    a.datagrams.call()
    carry(a, b)
    a.peering.parting = True
    a.peering.say_goodbye(a.link)
    farewell = a.sent[-1]
    b.take(farewell)
    assert b.link.state is LinkState.LEFT
    b.sent.clear()  # the answer is lost
    b.take(farewell)
    assert len(b.sent) == 1
    carry(b, a)
    assert a.link.state is LinkState.LEFT
    assert b.events == ["gone a"]


def test_strangers_and_other_senders_are_not_heard() -> None:
    _, a, b = two()
    packet = a.identity.hello(a.link)
    b.datagrams.feed(header_of(a.identity).pack() + hello_frame(packet), None, "10.0.0.1")
    assert "no member has this address" in refusals(b)[0]
    b.take(header_of(b.identity).pack() + BYE_FRAME)
    assert "it names another sender" in refusals(b)[1]
    assert b.link.alive


@pytest.mark.parametrize("field", ["session", "peer_session"])
def test_sessions_out_of_range_are_refused(field: str) -> None:
    _, a, b = two()
    b.take(header_of(a.identity)._replace(**{field: 2**63}).pack())
    assert "its sessions are out of range" in refusals(b)[0]


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.booleans(), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_any_datagram_is_judged_and_breaks_nothing(
    body: bytes, has_header: bool, session: int, peer_session: int
) -> None:
    _, a, b = two()
    a.datagrams.call()
    carry(a, b)
    header = Header(0, digest_of(a.identity), session, peer_session).pack() if has_header else b""
    b.take(header + body)
    b.sent.clear()
    if b.link.alive:
        a.say(b"on")
        carry(a, b)
        assert b.got[-1:] == [b"on"]


def test_a_socket_that_takes_nothing_keeps_the_newest() -> None:
    _, a, _ = two()
    a.writable = False
    for number in range(LIMITS.queue_messages + 5):
        a.say(b"%d" % number)
    assert a.dropped["send queue full"] == 5
    assert a.link.out.unacknowledged == LIMITS.queue_messages
    a.writable = True
    a.say(b"last")
    assert a.link.out.unacknowledged == 0
    assert all(len(datagram) <= LIMITS.datagram_bytes for datagram in a.sent)
