"""A durable server in memory: what its peers' lives do to it, while it runs and when its log is replayed."""

from __future__ import annotations

from session.pairs import Nothing, Timers
from whence.core.lives import CUT_OFF
from whence.protocols.domains.matrix import Matrix, MatrixPacket
from whence.session.addresses import Address
from whence.session.durable import DurableServer
from whence.session.links import Link, LinkState
from whence.session.records import Arrived, Commanded, Linked, Record, Retired


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
