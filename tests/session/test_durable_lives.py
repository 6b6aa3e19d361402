"""A durable server in memory: what its peers' lives do to it, while it runs and when its log is replayed."""

from __future__ import annotations

import msgspec

from session.pairs import Nothing, Timers
from whence.core.lives import CUT_OFF
from whence.protocols.domains.matrix import Matrix, MatrixPacket
from whence.session.addresses import Address
from whence.session.durable import DurableServer
from whence.session.links import Link, LinkState
from whence.session.records import Arrived, Commanded, Linked, Record, Restarted, Retired, Submitted


def server() -> DurableServer:
    links = {peer: Link(peer, Address("127.0.0.1", 1), dials=False) for peer in "ab"}
    return DurableServer(Matrix("c", "abc"), links, Timers(), Told(), lambda: 0)


class Told(Nothing):
    def told(self, news: object) -> None:
        """The journal has it."""


RECORDS: list[Record] = [
    Linked(1, "a", True),
    Linked(2, "b", True),
    Arrived(3, "b", 1, (MatrixPacket(1, 1, 1, (0, 2, 2), b"after two of a"),)),
    Retired(4, "a", 7),
]


def test_a_running_server_and_its_replay_release_what_waited_for_a_retired_peer() -> None:
    running, replayed = server(), server()
    for record in RECORDS:
        if isinstance(record, Retired):
            running._links["a"].end(LinkState.RETIRED)  # the links know it before the disk does
        running.apply(record)
    replayed.recover(None, RECORDS)
    for each in (running, replayed):
        assert [message.payload for message in each.inbox] == [b"after two of a"]
    assert running.save() == replayed.save()


def test_a_replay_knows_which_peers_its_core_holds_for_cut_off() -> None:
    first = server()
    first.recover(None, [*RECORDS[:2], Commanded(3, CUT_OFF, ("b",))])
    second = server()
    second.recover(first.save(), [])
    for each in (first, second):
        assert [peer for peer, link in each._links.items() if link.is_cut_off] == ["b"]


def test_two_numberings_that_begin_before_the_disk_knows_of_either_lose_nothing() -> None:
    """The first of them is said to begin after what the peer has; of the second it has nothing."""
    records: list[Record] = [Linked(1, "a", True), Linked(2, "b", True)]
    running, replayed = server(), server()
    for record in records:
        running.apply(record)
    link = running._links["a"]
    channel = link.channel = Sink()

    def happens(record: Record) -> None:
        records.append(record)
        running.apply(record)

    for at in range(5):
        happens(Submitted(3 + at, "a", b"%d" % at, None, None))
    link.flush(100, may_ack=True, ack_now=False)
    link.out.acknowledge(3)
    begin = []
    for session in (71, 72):  # two connections, in the time of one commit
        link.restarting += 1
        begin.append(Restarted(10, "a", session, link.followed, False))
    channel.written = 0
    for record in begin:
        link.flush(100, may_ack=True, ack_now=False)
        assert channel.written == 0  # the peer expects the second
        happens(record)
        happens(Submitted(11, "a", b"later", None, None))
    packets = link.out.unacknowledged_packets()
    assert [msgspec.msgpack.decode(packet)[-1] for packet in packets] == [b"3", b"4", b"later", b"later"]
    replayed.recover(None, records)
    replayed_packets = replayed._links["a"].out.unacknowledged_packets()
    assert replayed_packets == packets
    link.flush(100, may_ack=True, ack_now=False)
    assert channel.written > 0


class Sink:
    """A connection that takes all."""

    writable = True

    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def close(self, last_words: bytes = b"") -> None: ...

    def abort(self) -> None: ...
