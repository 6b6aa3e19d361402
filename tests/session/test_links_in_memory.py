"""Links between two nodes in memory: resumption, acknowledgements, back-pressure, hostile bytes, timers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.pairs import LIMITS, End, World, durable, pair, refusals
from whence.errors import PeerError
from whence.session.links import ACK_PACKETS, LinkState
from whence.session.wire import HEADER, PING_FRAME, FrameType, ack_frame, data_frame, error_frame


def connected() -> tuple[World, End, End]:
    world, a, b = pair()
    world.connect(a, b)
    world.carry()
    return world, a, b


# Resumption


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 200)), max_size=12))
def test_whatever_is_cut_every_message_arrives_once_and_in_order(steps: list[tuple[int, int, int]]) -> None:
    world, a, b = pair()
    said: dict[str, list[bytes]] = {"a": [], "b": []}
    for here, there, cut_at in steps:
        wires = world.connect(a, b)
        world.carry()
        for end, count in ((a, here), (b, there)):
            for _ in range(count):
                said[end.identity.node].append(b"%d" % len(said[end.identity.node]))
                end.say(said[end.identity.node][-1])
            end.flush(ack_now=True)
        for one, other in (wires, wires[::-1]):  # some of it arrives, then the wire breaks
            other.take(bytes(one.data[:cut_at]))
        world.cut(wires)
    world.connect(a, b)
    world.carry()
    for _ in range(2):
        a.flush(ack_now=True)
        b.flush(ack_now=True)
        world.carry()
    assert [payload for origin, _, payload in b.host.inbox if origin == "a"] == said["a"]
    assert [payload for origin, _, payload in a.host.inbox if origin == "b"] == said["b"]
    assert a.links["b"].out.unacknowledged == b.links["a"].out.unacknowledged == 0
    assert refusals(a) == refusals(b) == []


def test_a_newer_connection_replaces_the_one_that_the_acceptor_believes_alive() -> None:
    world, a, b = connected()
    [(ours, theirs)] = world.pairs
    a.say(b"first")
    ours.lose(PeerError("connection", "it was cut", "Wait"))  # only the dialler notices
    world.pairs.clear()
    world.connect(a, b)
    world.carry()
    a.flush()
    world.carry()
    assert b.got == [b"first"]
    assert theirs.is_closing
    assert b.links["a"].connections == 2


def test_a_peer_that_has_what_was_never_sent_begins_a_new_numbering() -> None:
    world, a, b = pair()
    a.links["b"].incoming.received = 5
    world.connect(a, b)
    world.carry()
    assert "restarted a" in b.events  # b's own store may be an old copy: the numbering begins anew
    assert b.links["a"].incoming.received == 0


# Acknowledgements


def test_acknowledgements_travel_with_data_or_when_they_are_due() -> None:
    world, a, b = connected()
    a.say(b"x")
    world.carry()
    b.flush()
    assert a.links["b"].out.unacknowledged == 1  # one message alone waits for company
    b.flush(ack_now=True)
    world.carry()
    assert a.links["b"].out.unacknowledged == 0
    assert a.events[-1] == "acknowledged"
    for _ in range(ACK_PACKETS):
        a.say(b"y")
    world.carry()
    b.flush()
    world.carry()
    assert a.links["b"].out.unacknowledged == 0
    a.say(b"z")
    world.carry()
    b.say(b"reply")
    world.carry()
    assert a.links["b"].out.unacknowledged == 0


@pytest.mark.parametrize("claimed", [2, 1 << 40])
def test_an_acknowledgement_of_what_was_not_sent_ends_the_connection_only(claimed: int) -> None:
    world, a, _ = connected()
    [(ours, theirs)] = world.pairs
    a.say(b"x")
    theirs.write(ack_frame(claimed))
    world.carry()
    assert f"FrameError: it acknowledges {claimed} packets" in refusals(a)[0]
    assert a.links["b"].channel is None
    assert a.links["b"].alive
    assert ours.is_closed


# Back-pressure


def test_a_wire_that_takes_no_more_keeps_the_rest_in_the_queue() -> None:
    world, a, b = connected()
    [(ours, _)] = world.pairs
    ours.writable = False
    for _ in range(3):
        a.say(b"x")
    world.carry()
    assert b.got == []
    assert a.links["b"].out.unacknowledged == 3
    ours.writable = True
    a.flush()
    world.carry()
    assert len(b.got) == 3


def test_a_reader_that_is_slow_withholds_its_acknowledgements_and_stops_the_sender() -> None:
    limits = msgspec.structs.replace(LIMITS, queue_messages=4, unread_messages=3)
    world, a, b = pair(limits=limits)
    world.connect(a, b)
    world.carry()
    a.host.inbox.clear()
    for _ in range(4):
        assert a.flow.room > 0
        a.say(b"x")
        a.host.inbox.clear()  # the sender reads its own
        a.flow.refresh()
        world.carry()
        b.flush(ack_now=True)
        world.carry()
    assert b.flow.full
    assert not b.flow.may_ack
    # Three were acknowledged before the third was found to be too many.
    a.flow.refresh()
    unacknowledged = a.links["b"].out.unacknowledged
    for _ in range(5):  # more than the queue takes
        if not a.flow.may_go(reading=False):
            break
        a.say(b"more")
        a.host.inbox.clear()
        world.carry()
        b.flush(ack_now=True)
        world.carry()
        a.flow.refresh()
    assert a.flow.room == 0
    assert a.links["b"].out.unacknowledged == 4 > unacknowledged
    assert "b (connected, 4 messages unacknowledged)" in a.flow.why_waiting()[0]
    b.host.inbox.clear()
    b.flow.refresh()
    assert b.flow.may_ack
    b.flush(ack_now=True)
    world.carry()
    a.flow.refresh()
    assert a.flow.room == 4


def test_a_task_that_reads_may_pass_the_soft_limit_and_releases_acknowledgements() -> None:
    limits = msgspec.structs.replace(LIMITS, queue_messages=4, unread_messages=3)
    world, a, b = pair(limits=limits)
    world.connect(a, b)
    world.carry()
    for _ in range(3):
        a.say(b"x")  # and does not read its own
    a.flow.refresh()
    assert a.flow.full
    assert not a.flow.may_go(reading=False)
    assert a.flow.may_go(reading=True)
    assert a.flow.may_release()  # its peers are connected
    for _ in range(5):
        a.say(b"y")
    a.flow.refresh()
    assert not a.flow.may_go(reading=True)  # twice the soft limit
    assert "messages are unread here" in a.flow.why_waiting()[0]
    world.cut(world.pairs[0])
    assert not a.flow.may_release()  # it waits for a peer that waits for no one


def test_a_peer_above_the_hard_limit_is_given_up_or_kept() -> None:
    for admission, state in ((None, LinkState.GIVEN_UP), (durable, LinkState.ALIVE)):
        world, a, b = pair() if admission is None else pair(make_admission=admission)
        world.connect(a, b)
        world.carry()
        a.say(b"x")
        a.peering.give_up_slow(a.links["b"])
        world.carry()
        assert a.links["b"].state is state
        assert a.links["b"].channel is None
        assert "PeerTooSlowError: 1 messages" in refusals(a)[0]
        assert a.peering.lost_frames == (1 if state is LinkState.GIVEN_UP else 0)
        world.connect(a, b)  # it comes back, and is told what it missed
        world.carry()
        a.flush()
        world.carry()
        assert a.links["b"].alive
        assert b.got == ([] if state is LinkState.GIVEN_UP else [b"x"])
        missed = [event for event in b.events if "Missed" in event]
        assert len(missed) == (1 if state is LinkState.GIVEN_UP else 0)


# Hostile bytes


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_before_the_handshake_are_refused_or_awaited(data: bytes, step_bytes: int) -> None:
    world, a, b = pair()
    ours, theirs = world.connect(a, b)
    ours.data[:] = data
    world.carry(step_bytes)
    world.wait(6)
    assert b.events in ([], ["cut off a"])
    assert theirs.is_closed
    assert not b.peering.strangers
    world.connect(a, b)
    world.carry()
    assert b.links["a"].channel is not None


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_after_the_handshake_end_the_connection_at_most(data: bytes, step_bytes: int) -> None:
    world, a, b = connected()
    a.say(b"kept")
    world.carry()
    [(ours, _)] = world.pairs
    ours.data[:] = data
    world.carry(step_bytes)
    kinds = {type(event.error).__name__ for event in b.journal.events if event.error}
    assert kinds <= {"FrameError", "FrameTooLargeError"}
    assert b.got[:1] == [b"kept"]
    assert b.links["a"].alive or b.links["a"].state is LinkState.LEFT  # `data` may be a good-bye


@settings(deadline=None)
@given(st.data())
def test_a_truncated_stream_is_waited_for_and_resumed(data: st.DataObject) -> None:
    world, a, b = connected()
    [wires] = world.pairs
    for number in range(3):
        a.say(b"%d" % number * 20)
    whole = bytes(wires[0].data)
    wires[1].take(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert refusals(b) == []
    world.cut(wires)
    world.connect(a, b)
    world.carry()
    a.flush()
    world.carry()
    assert b.got == [b"%d" % number * 20 for number in range(3)]


def test_nonsense_again_and_again_is_refused_for_longer_and_longer() -> None:
    world, a, b = pair()
    pauses = []
    for _ in range(4):
        ours, _ = world.connect(a, b)
        world.carry()
        assert b.links["a"].channel is not None
        ours.write(HEADER.pack(1, 99))
        world.carry()
        assert "its type 99 is not allowed here" in refusals(b)[-1]
        pauses.append(b.links["a"].refuse_until_s - world.now_s)
        if pauses[-1] > 0:
            world.connect(a, b)
            world.carry()
            assert "it has sent what cannot be decoded, again and again" in refusals(b)[-1]
            world.now_s += pauses[-1]
    assert pauses[0] < 0.001 < pauses[1] < pauses[2] < pauses[3]


def test_an_error_frame_ends_the_connection_and_nothing_else() -> None:
    world, a, _ = connected()
    [(_, theirs)] = world.pairs
    gone = PeerError("node 'a'", "it \x1b[31mis gone", "Go")
    theirs.write(error_frame("gone", gone))
    world.carry()
    assert refusals(a) == ["GoneError: it ?[31mis gone"]
    assert a.links["b"].alive
    assert a.links["b"].channel is None
    world, a, _ = connected()
    [(_, theirs)] = world.pairs
    theirs.write(error_frame("restarted", gone))
    world.carry()
    assert a.links["b"].alive
    assert not any(event.startswith(("gone", "failed")) for event in a.events)


def test_what_follows_good_bye_is_not_heard() -> None:
    world, _, b = connected()
    [(ours, _)] = world.pairs
    bye = HEADER.pack(1, FrameType.BYE)
    ours.write(data_frame((0, 1, b"before")) + bye + data_frame((0, 2, b"in the same segment")))
    world.carry()
    ours.data += data_frame((0, 3, b"after"))
    assert b.got[0] == b"before"
    assert b"after" not in b.got
    assert b.links["a"].state is LinkState.LEFT


# Timers


def test_a_quiet_link_has_heartbeats_and_a_silent_one_ends() -> None:
    world, a, _ = connected()
    [wires] = world.pairs
    before = len(wires[0].sent)
    world.wait(20)
    assert wires[0].sent[before:] == PING_FRAME * 10
    assert a.links["b"].channel is wires[0]
    world.pairs.clear()  # nothing is carried any more, and no one says so
    for _ in range(11):
        world.now_s += 1
        a.peering.look_after(a.links["b"])
    assert a.links["b"].channel is None
    assert a.links["b"].alive
    assert "nothing was heard for 10 s" in a.journal.events[-1].detail


@pytest.mark.parametrize("retire_after_s", [None, 30.0])
def test_a_peer_out_of_reach_is_retired_only_if_asked_for(retire_after_s: float | None) -> None:
    world, a, b = pair(limits=msgspec.structs.replace(LIMITS, retire_after_s=retire_after_s))
    wires = world.connect(a, b)
    world.carry()
    world.cut(wires)
    for _ in range(31):
        assert a.links["b"].alive
        world.now_s += 1
        for end in (a, b):
            end.roll.look_around()
    assert a.links["b"].alive == (retire_after_s is None)
    assert b.links["a"].alive  # one half of the group decides, and the other must not
    if retire_after_s is not None:
        assert a.links["b"].state is LinkState.RETIRED
        world.connect(a, b)  # b is told, and comes back as another life
        world.carry()
        assert "retired by a" in b.events
        world.connect(a, b)
        world.carry()
        assert a.links["b"].alive
        assert a.links["b"].channel is not None
