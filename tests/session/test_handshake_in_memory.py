"""The handshake between two nodes in memory: who is let in, who is not, and what both learn of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from session.pairs import LIMITS, End, Wire, World, durable, listed, pair, refusals
from whence.session.admission import Listed
from whence.session.handshake import Certified
from whence.session.links import LinkState
from whence.session.wire import (
    BYE_FRAME,
    HEADER,
    Answer,
    Challenge,
    FrameReader,
    FrameType,
    Hello,
    answer_frame,
    challenge_frame,
    data_frame,
    hello_frame,
)


def greetings(data: bytes) -> list[Any]:
    """The frames of a handshake."""
    reader, found = FrameReader(tuple, 10_000), []
    while (frame := reader.greeting(data)) is not None:
        found.append(frame)
        data = b""
    return found


@pytest.mark.parametrize("step_bytes", [1, 2, 7, 1 << 20])
def test_both_ends_agree_in_four_frames_whatever_the_pieces(step_bytes: int) -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    world.carry(step_bytes)
    first, answer = greetings(ours.sent)
    challenge, last = greetings(theirs.sent)
    assert isinstance(first, Hello)
    assert first.nonce == 1001
    assert challenge == Challenge(1002)
    assert answer == Answer(1002)
    assert isinstance(last, Hello)
    assert (last.node, last.to, last.nonce) == ("b", "a", 1001)
    for end, wire, peer, session in ((a, ours, "b", 11), (b, theirs, "a", 10)):
        link = end.links[peer]
        assert link.channel is wire
        assert (link.peer_session, link.connections) == (session, 1)
        assert wire.session.deadline_s is None
        assert end.events == [f"met {peer} in {session}"]
    assert not b.peering.strangers


def test_the_same_script_gives_the_same_bytes() -> None:
    def script() -> list[Any]:
        world, a, b = pair()
        wires = world.connect(a, b)
        world.carry(3)
        for number in range(5):
            a.say(b"a%d" % number)
            b.say(b"b%d" % number)
            world.carry(11)
        world.wait(30)
        return [wires[0].sent, wires[1].sent, a.events, b.events, a.journal.events, b.journal.events]

    assert script() == script()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group": "kitchen"}, "the group ('kitchen' at 'a', 'room' at 'b')"),
        ({"protocol": "vector"}, "the protocol"),
        ({"parameters": {"relay": "true"}}, "parameter 'relay' (true at 'a', false at 'b')"),
        ({"members": ("a", "b", "c")}, "the members ('c' only at 'a')"),
        ({"max_payload_bytes": 5}, "max_payload_bytes"),
    ],
)
def test_a_node_that_is_configured_otherwise_is_refused_and_learns_why(changes: Any, words: str) -> None:
    world = World()
    b = listed(world, "b")
    a = listed(world, "a", **changes)
    ours, theirs = world.connect(a, b)
    world.carry()
    assert words in refusals(b)[0]
    assert refusals(a) == ["HandshakeError: this connection is refused"]  # whoever it is: no names
    assert ours.is_closed
    assert theirs.is_closed
    assert a.links["b"].channel is None
    assert b.links["a"].last_error is not None
    assert not b.peering.strangers
    assert (a.links["b"].alive, b.links["a"].alive) == (True, True)


def test_another_version_is_refused_before_the_rest_is_read() -> None:
    world, a, b = pair()
    ours, _ = world.connect(a, b)
    hello = msgspec.structs.replace(a.identity.hello(a.links["b"]), version=4)
    ours.data[:] = hello_frame(hello)
    world.carry()
    assert refusals(b) == ["VersionError: the peer speaks version 4, this node version 3"]
    assert refusals(a) == ["VersionError: the peer speaks version 4, this node version 3"]


def test_a_recorded_dialler_cannot_answer_the_challenge() -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    world.carry()
    a.say(b"once")
    world.carry()
    recording = ours.sent
    world.cut((ours, theirs))
    received = b.links["a"].incoming.received
    again, victim = world.connect(a, b)
    again.data[:] = recording
    world.carry(5)
    assert "ReplayError" in refusals(b)[0]
    assert b.links["a"].incoming.received == received
    assert b.got == [b"once"]
    assert victim.session.link is None


def test_a_recorded_acceptor_does_not_repeat_the_diallers_nonce() -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    world.carry()
    recording = theirs.sent
    world.cut((ours, theirs))
    ours, theirs = world.connect(a, b)
    ours.take(recording)
    assert "ReplayError" in refusals(a)[0]
    assert a.links["b"].channel is None


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(answer_frame(5), id="an answer before anything was asked"),
        pytest.param(challenge_frame(5), id="a challenge by the dialler"),
        pytest.param(data_frame((0, 1, b"x")), id="data before HELLO"),
        pytest.param(HEADER.pack(1, FrameType.PING), id="ping before HELLO"),
        pytest.param(HEADER.pack(0, 0), id="nothing"),
        pytest.param(HEADER.pack(1 << 30, FrameType.HELLO), id="too long a HELLO"),
        pytest.param(b"\x16\x03\x01\x00\xff", id="TLS"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
    ],
)
def test_a_stranger_that_says_anything_else_is_shown_out(frames: bytes) -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    ours.data[:] = frames
    world.carry()
    assert len(refusals(b)) == 1
    assert theirs.is_closed
    assert not b.peering.strangers
    assert b.events == []


def test_a_second_hello_is_refused() -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    theirs.take(2 * bytes(ours.data))
    assert refusals(b) == ["FrameError: it is the second one"]


def test_a_handshake_that_takes_too_long_ends() -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    ours.data.clear()  # lost on the way
    world.wait(LIMITS.handshake_timeout_s - 1)
    assert not theirs.is_closed
    world.wait(1)
    assert refusals(b) == ["HandshakeError: no complete HELLO within 5.0 s"]
    assert theirs.is_closed
    assert a.links["b"].last_error is not None


def test_no_more_strangers_are_held_than_allowed() -> None:
    world, a, b = pair()
    allowed = b.peering.admission.strangers_max
    for _ in range(allowed + 3):
        ours, _ = world.connect(a, b)
        ours.data.clear()  # it says nothing
    assert len(b.peering.strangers) == allowed
    assert refusals(b) == 3 * ["HandshakeError: too many connections have not said HELLO"]
    b.peering.abort_strangers()
    world.carry()
    assert not b.peering.strangers


def test_what_tls_has_proved_must_be_what_hello_says() -> None:
    for certified, words in (
        (Certified("kitchen", "b", 1e9), "its certificate is for group 'kitchen'"),
        (Certified("room", "c", 1e9), "'b' was dialled, and its certificate is for 'c'"),
    ):
        world, a, b = pair()
        ours, _ = world.connect(a, b)
        written = len(ours.sent)
        ours.session.opened(certified)
        assert words in refusals(a)[0]
        assert ours.is_closing
        assert len(ours.sent) > written  # the reason; HELLO was not said again
        assert ours.session.peer is None
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    theirs.session.opened(Certified("room", "c", 1e9))
    world.carry()
    assert "it says that it is 'a' of group 'room', and its certificate is for 'c'" in refusals(b)[0]


def test_the_acceptor_is_not_dialled_and_the_dialler_not_awaited() -> None:
    world = World()
    a, b, c = (listed(world, name, ("a", "b", "c")) for name in "abc")
    world.connect(b, a, b.links["a"])  # the smaller name dials
    world.carry()
    assert "HandshakeError: it must wait to be dialled" in refusals(a)
    world.connect(a, c, a.links["b"])  # another node listens at that address
    world.carry()
    assert "HandshakeError: it wants to speak to 'b', and this is 'c'" in refusals(c)


# Another life of the peer


def test_a_peer_that_has_lost_its_state_returns_at_a_cut() -> None:
    world, a, b = pair()
    wires = world.connect(a, b)
    world.carry()
    a.say(b"before")
    world.carry()
    world.cut(wires)
    again = listed(world, "a", session=77)
    world.connect(again, b)
    world.carry()
    assert b.events[-2:] == ["welcomed a", "met a in 77"]
    b.flush()
    world.carry()
    told = [event for event in again.events if event.startswith("told")]
    assert told == ["told RolledBack(life='', had=0, seen=1)"]  # so much of its earlier life is known
    again.host.begin_life(1_800_000_000_000 << 20)
    again.say(b"after")
    world.carry()
    assert b.got == [b"before", b"after"]


@pytest.mark.parametrize(("lost", "other"), [("a", "c"), ("c", "a")])
def test_who_returns_where_nobody_is_left_that_met_it_is_told_all_the_same(lost: str, other: str) -> None:
    """All have begun anew while it was away, and know of its earlier life by the cuts of others."""
    world, members = World(), ("a", "b", "c")

    def connect(one: End, two: End) -> tuple[Wire, Wire]:
        wires = world.connect(*sorted((one, two), key=lambda end: end.identity.node))
        world.carry()
        for end in (one, two):
            end.flush()
        world.carry()
        return wires

    first, witness, before = (listed(world, name, members) for name in (lost, "b", other))
    wires = [connect(first, witness), connect(before, witness)]
    first.say(b"of a life that nobody will have met")
    world.carry()
    for each in wires:
        world.cut(each)
    second = listed(world, other, members, session=78)
    world.cut(connect(second, witness))
    again = listed(world, lost, members, session=77)
    connect(again, second)
    connect(again, second)  # who dials learns it from the answer, and calls again
    assert f"welcomed {lost}" in second.events
    assert [event for event in again.events if "RolledBack(life='', had=0, seen=1)" in event]


def test_a_restarted_acceptor_learns_from_the_diallers_memory() -> None:
    world, a, b = pair()
    wires = world.connect(a, b)
    world.carry()
    world.cut(wires)
    again = listed(world, "b", session=78)
    world.connect(a, again)
    world.carry()
    assert "welcomed b" in a.events
    assert a.links["b"].channel is not None
    assert again.links["a"].channel is not None


def test_where_members_come_back_a_new_life_renews_the_link() -> None:
    world, a, b = pair(renews=True)
    wires = world.connect(a, b)
    world.carry()
    a.say(b"before")
    world.carry()
    again = listed(world, "a", session=77, renews=True)
    world.connect(again, b)
    world.carry()
    assert any("another process takes part" in each for each in refusals(b))  # the old one is not dead yet
    assert "renewed a" not in b.events
    world.cut(wires)
    world.connect(again, b)
    world.carry()
    assert b.events[-2:] == ["renewed a", "met a in 77"]
    b.say(b"welcome")
    world.carry()
    assert again.got == [b"welcome"]


def test_a_durable_member_keeps_a_peer_that_lost_its_store() -> None:
    world, a, b = pair(make_admission=durable)
    wires = world.connect(a, b)
    world.carry()
    b.say(b"for a")
    world.cut(wires)
    fixed = partial(Listed, keeps=True, returns=False)  # of a protocol that takes nobody back
    b.peering.admission = fixed(b.identity, b.links)
    world.connect(listed(world, "a", session=77, make_admission=durable), b)
    world.carry()
    assert "RestartedError" in refusals(b)[0]
    assert b.links["a"].alive
    assert b.links["a"].out.unacknowledged == 1
    world.connect(a, b)
    world.carry()
    b.flush()
    world.carry()
    assert a.got == [b"for a"]


def test_nothing_that_a_hello_says_ends_a_node_or_touches_another_link() -> None:
    world = World()
    members = ("a", "b", "c")
    a, b, c = (listed(world, name, members) for name in members)
    world.connect(a, b)
    world.connect(a, c)
    world.carry()
    before = [list(b.events), b.links["c"].__dict__.copy()]
    stranger = listed(world, "a", members, session=55)
    stranger.links["b"].peer_session = 12345  # a session of b that b knows nothing of: W2
    ours, _ = world.connect(stranger, b)
    world.carry()
    assert not any(event.startswith(("gone", "failed")) for event in b.events)
    assert b.links["c"].__dict__ == before[1]
    assert b"c" not in ours.sent[-1:]  # the stranger is refused while a is connected
    assert [each for each in refusals(stranger) if "refused" not in each] == []
    a.say(b"still here")
    world.carry()
    assert b.got == c.got == [b"still here"]


def test_good_bye_is_answered_and_repeated_if_the_answer_was_lost() -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    world.carry()
    a.peering.parting = True
    a.peering.say_goodbye(a.links["b"])
    theirs.take(bytes(ours.data))
    assert b.links["a"].state is LinkState.LEFT
    assert b.events[-1] == "gone a"
    world.cut((ours, theirs))  # the answer is lost
    assert a.links["b"].alive
    world.connect(a, b)
    world.carry()
    assert a.links["b"].state is LinkState.LEFT
    assert b.events.count("gone a") == 1


def test_good_bye_is_said_by_both_and_ends_the_link_at_both_ends() -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    world.carry()
    a.say(b"last words")
    a.peering.parting = True
    a.peering.say_goodbye(a.links["b"])
    world.carry()
    assert b.got == [b"last words"]
    assert a.links["b"].state is b.links["a"].state is LinkState.LEFT
    assert theirs.sent.endswith(BYE_FRAME)
    assert (ours.is_closed, theirs.is_closed) == (True, True)


def test_durable_members_take_no_good_bye() -> None:
    world, a, b = pair(make_admission=durable)
    world.connect(a, b)
    world.carry()
    a.peering.say_goodbye(a.links["b"])
    world.carry()
    assert b.links["a"].state is LinkState.ALIVE
    assert "gone a" not in b.events
