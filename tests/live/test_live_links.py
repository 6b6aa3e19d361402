"""A link without sockets: whatever is cut and whenever, every frame arrives once and in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.errors import FrameError, HandshakeError
from whence.protocols.baselines.fifo import FifoPacket
from whence.session.addresses import Address
from whence.session.links import ACK_PACKETS, Link, LinkOut, LinkState
from whence.session.wire import Ack, FrameReader, encode_packet, packets_frame


class Pipe:
    """A channel whose bytes are taken by hand."""

    def __init__(self) -> None:
        self.writable = True
        self.data = bytearray()
        self.writes: list[bytes] = []
        self.capacity: int | None = None

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.data += data
        if self.capacity is not None and len(self.data) >= self.capacity:
            self.writable = False

    def close(self, last_words: bytes = b"") -> None:
        self.writable = False

    def abort(self) -> None:
        self.writable = False


def link(peer: str = "bob") -> Link:
    return Link(peer, Address("127.0.0.1", 1), dials=True)


class Ends:
    """Both ends of a link, joined by pipes that can be cut at any byte."""

    def __init__(self) -> None:
        self.left, self.right = link("right"), link("left")
        self.got: list[int] = []
        self.queued = 0
        self.connect()

    def connect(self) -> None:
        # What a HELLO says must be known before either side attaches.
        left_has, right_has = self.left.incoming.received, self.right.incoming.received
        self.there, self.back = Pipe(), Pipe()
        self.left.attach(self.there, 2, right_has)
        self.right.attach(self.back, 1, left_has)
        self.right_reader = FrameReader(FifoPacket, 10_000)
        self.left_reader = FrameReader(FifoPacket, 10_000)

    def queue(self, count: int) -> None:
        for _ in range(count):
            self.queued += 1
            self.left.out.pending.append(encode_packet(FifoPacket(0, self.queued, b"x" * (self.queued % 7))))

    def move(self, count: int) -> None:
        """The first `count` bytes that are on their way arrive at the right."""
        data, self.there.data = bytes(self.there.data[:count]), self.there.data[count:]
        packets = self.right_reader.feed(data)
        assert self.right_reader.error is None
        self.right.incoming.take(len(packets), len(data))
        self.got += [packet[1] for packet in packets]

    def answer(self, now: bool) -> None:
        self.right.flush(100, may_ack=True, ack_now=now)
        self.left_reader.feed(bytes(self.back.data))
        self.back.data.clear()
        control, self.left_reader.control = self.left_reader.control, []
        for ack in control:
            assert isinstance(ack, Ack)
            self.left.out.acknowledge(ack.received)

    def check(self) -> None:
        assert self.got == list(range(1, len(self.got) + 1))
        out = self.left.out
        assert out.total == self.queued
        assert out.acknowledged <= len(self.got) <= self.queued
        assert out.unacknowledged == self.queued - out.acknowledged


steps = st.lists(
    st.one_of(
        st.tuples(st.just("queue"), st.integers(1, 9)),
        st.tuples(st.just("flush"), st.integers(1, 5)),
        st.tuples(st.just("move"), st.integers(1, 90)),
        st.tuples(st.just("answer"), st.integers(0, 1)),
        st.tuples(st.just("cut"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=500, deadline=None)
@given(steps)
def test_every_frame_arrives_once_and_in_order_whatever_is_cut(script: list[tuple[str, int]]) -> None:
    ends = Ends()
    for what, count in script:
        if what == "queue":
            ends.queue(count)
        elif what == "flush":
            ends.left.flush(count, may_ack=True, ack_now=True)
        elif what == "move":
            ends.move(count)
        elif what == "answer":
            ends.answer(bool(count))
        else:
            ends.connect()
        ends.check()
    ends.left.flush(1000, may_ack=True, ack_now=True)
    ends.move(1_000_000)
    ends.answer(True)
    assert ends.got == list(range(1, ends.queued + 1))
    assert ends.left.out.unacknowledged == 0
    assert ends.left.out.unacknowledged_bytes() == 0


@pytest.mark.parametrize("batches", [[1, 1, 1], [3, 2], [2, 4, 1], [7]])
def test_however_batches_are_cut_the_rest_is_exactly_what_was_not_received(batches: list[int]) -> None:
    frames = [b"frame %d" % number for number in range(sum(batches) + 2)]
    for acknowledged in range(sum(batches) + 1):
        for received in range(acknowledged, sum(batches) + 1):
            out = LinkOut()
            out.pending += frames
            for size in batches:
                out.take(size)
            out.acknowledge(acknowledged)
            assert out.unacknowledged == len(frames) - acknowledged
            assert out.unacknowledged_bytes() >= sum(map(len, frames[acknowledged:]))
            out.resume(received)
            assert out.pending == frames[received:]
            assert out.unacknowledged_bytes() == sum(map(len, frames[received:]))


def test_nothing_is_written_while_the_channel_is_full() -> None:
    one = link()
    pipe = Pipe()
    pipe.capacity = 20
    one.attach(pipe, 1, 0)
    one.out.pending += [b"a" * 8] * 5
    one.flush(1, may_ack=True, ack_now=False)
    assert bytes(pipe.data) == packets_frame(b"a" * 8) * 2  # the second frame filled it
    assert len(one.out.pending) == 3
    assert one.out.unacknowledged == 5
    assert one.out.unacknowledged_bytes() == 40


def test_one_write_carries_data_and_acknowledgement() -> None:
    one = link()
    pipe = Pipe()
    writes = pipe.writes
    one.attach(pipe, 1, 0)
    one.incoming.take(3, 100)
    one.flush(10, may_ack=True, ack_now=False)
    assert writes == []  # a lone acknowledgement waits for company
    one.out.pending += [b"data"]
    one.flush(10, may_ack=True, ack_now=False)
    assert writes == [b"\0\0\0\x02\x03\x03" + packets_frame(b"data")]
    one.incoming.take(ACK_PACKETS, 100)
    one.flush(10, may_ack=False, ack_now=True)
    assert len(writes) == 1  # withheld
    one.flush(10, may_ack=True, ack_now=False)
    assert len(writes) == 2  # so many need no company


@pytest.mark.parametrize("received", [0, 1, 6])
def test_an_impossible_acknowledgement_is_a_typed_error(received: int) -> None:
    out = LinkOut()
    out.pending += [b"x"] * 6
    out.take(5)
    out.acknowledge(2)
    with pytest.raises(FrameError):
        out.acknowledge(received)
    with pytest.raises(HandshakeError, match="where 2 to 5 are possible"):
        out.resume(received)
    assert out.unacknowledged == 4


def test_what_arrived_before_a_cut_may_be_acknowledged_after_it() -> None:
    """A durable peer counts a frame when it is on its disk, which may be after the next HELLO."""
    out = LinkOut()
    out.pending += [b"1", b"2", b"3", b"4"]
    out.take(3)
    out.resume(1)  # the second and the third were on their way to the disk
    out.acknowledge(3)
    assert (out.acknowledged, out.pending) == (1, [b"2", b"3", b"4"])  # it expects them on this connection
    assert out.take(1) == packets_frame(b"2")
    out.acknowledge(3)
    assert out.acknowledged == 2
    out.resume(3)  # cut once more, before the third could be written again
    assert (out.acknowledged, out.pending, out.unacknowledged) == (3, [b"4"], 1)
    with pytest.raises(HandshakeError, match="where 3 to 3 are possible"):
        out.resume(4)  # no connection was ever given that one


def test_a_peer_that_is_gone_leaves_nothing_behind() -> None:
    out = LinkOut()
    out.pending += [b"x" * 10] * 6
    out.take(5)
    out.acknowledge(2)
    assert out.clear() == 4
    assert (out.unacknowledged, out.unacknowledged_bytes(), out.total) == (0, 0, 6)


def test_a_peer_that_repeats_its_fault_is_refused_for_longer_and_longer() -> None:
    one = link()
    one.fault(100.0, 0.1, 5.0)
    assert one.refuse_until_s == 0.0  # once may be a damaged frame
    waits = []
    for _ in range(8):
        one.fault(100.0, 0.1, 5.0)
        waits.append(round(one.refuse_until_s - 100.0, 3))
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    one.incoming.take(1, 10)  # it got further: a new story
    one.refuse_until_s = 0.0
    one.fault(200.0, 0.1, 5.0)
    assert one.refuse_until_s == 0.0


def test_who_is_not_counted_on_gets_what_was_written_and_what_is_said_later() -> None:
    """The frames that are void were never numbered: so the link goes on where it was."""
    ends = Ends()
    ends.queue(3)
    ends.left.flush(2, may_ack=True, ack_now=True)
    ends.queue(4)
    ends.there.writable = False
    assert ends.left.count_on(False) == 4
    assert (ends.left.state, ends.left.alive) == (LinkState.OUT, False)
    ends.left.out.pending.append(encode_packet(FifoPacket(0, 99, b"")))
    ends.connect()
    ends.left.flush(9, may_ack=True, ack_now=True)
    ends.move(10_000)
    assert ends.got == [1, 2, 3, 99]
    ends.answer(True)
    assert ends.left.out.unacknowledged == 0
    assert ends.left.count_on(True) == 0
    assert (ends.left.state, ends.left.alive) == (LinkState.ALIVE, True)


def test_who_has_left_is_counted_on_only_after_it_came_back() -> None:
    one = link()
    one.peer_session = 7
    one.end(LinkState.LEFT)
    one.count_on(True)
    assert not one.alive
    one.out.pending.append(b"for the earlier process")
    one.renew()
    assert (one.alive, one.state, one.peer_session, one.out.total) == (True, LinkState.ALIVE, 0, 0)


def test_marks_are_not_counted_as_messages() -> None:
    out = LinkOut()
    out.append_mark(b"life")
    out.pending += [b"1", b"2"]
    out.append_mark(b"have")
    assert (out.messages, out.unacknowledged, out.messages_before(3)) == (2, 4, 2)
    out.take(3)
    assert out.drop_pending() == 0  # the second mark, which is no message
    out.append_mark(b"have")
    out.acknowledge(2)
    assert (out.messages, out.unacknowledged) == (1, 2)
    out.resume(2)
    assert (out.messages, out.pending) == (1, [b"2", b"have"])
    frames = out.restart(2)
    assert (frames, out.messages) == ([b"2", b"have"], 0)
    out.pending += frames
    out.mark([1])
    assert (out.messages, out.clear(), out.messages) == (1, 1, 0)
