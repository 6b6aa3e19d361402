"""Room at destinations: who is full is told along the ways to it, once for each change."""

from __future__ import annotations

import pytest

from whence.errors import MisuseError
from whence.protocols.domains.domains import Domains
from whence.session.addresses import Address
from whence.session.limits import Limits
from whence.session.links import Link, LinkState
from whence.session.rooms import Rooms
from whence.session.wire import HEADER, FrameType, RoomNews, room_frame

CHAIN = [["a", "b"], ["b", "c"], ["c", "d"]]


class Wire:
    """A connection that keeps what is written."""

    writable = True

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self, last_words: bytes = b"") -> None: ...

    def abort(self) -> None: ...


def rooms_of(me: str, *peers: str) -> tuple[Rooms, dict[str, Link], dict[str, Wire]]:
    core = Domains(me, "abcd", domains=CHAIN)
    links = {peer: Link(peer, Address("x", 1), dials=True) for peer in peers}
    wires = {}
    for peer, link in links.items():
        link.channel = wires[peer] = Wire()
    return Rooms(core, links, Limits(queue_messages=4)), links, wires


def test_a_full_queue_is_told_once_and_passed_on() -> None:
    c, links, wires = rooms_of("c", "b", "d")
    for _ in range(4):
        links["d"].out.pending.append(b"frame")
    for _ in range(3):
        c.refresh(reads_too_little=False)
    assert c.full == {"d"}
    assert wires["b"].written == [room_frame(RoomNews(["d"], []))]
    assert HEADER.unpack_from(wires["b"].written[0])[1] == FrameType.ROOM
    b, b_links, b_wires = rooms_of("b", "a", "c")
    b.hear(b_links["c"], RoomNews(["d", "a"], []))  # a is not beyond c: nobody's word counts for it
    b.refresh(reads_too_little=True)
    assert b.full == {"b", "d"}
    assert b_wires["a"].written == [room_frame(RoomNews(["b", "d"], []))]
    assert b.why("d")[0] == "d takes no more, says c"
    assert not b.may_go("d", must_read=False)
    assert b.may_go("c", must_read=False)
    links["d"].out.take(2)
    links["d"].out.acknowledge(2)
    c.refresh(reads_too_little=False)
    assert c.full == set()  # half of it is empty
    b.met(b_links["c"])  # a new connection, on which nothing was said
    b.refresh(reads_too_little=False)
    assert b.full == set()


def test_a_reader_in_a_circle_may_pass_by_one_queue() -> None:
    a, links, _ = rooms_of("a", "b")
    a.hear(links["b"], RoomNews(["d"], []))
    a.refresh(reads_too_little=True)
    for _ in range(4):
        assert a.may_go("d", must_read=True)
        a.sent("d")
    assert not a.may_go("d", must_read=True)


def test_who_was_retired_is_refused_and_told_once() -> None:
    c, links, wires = rooms_of("c", "b", "d")
    links["d"].out.pending += [b"frame"] * 9
    links["d"].end(LinkState.RETIRED)
    for _ in range(3):
        c.refresh(reads_too_little=False)
    assert wires["b"].written == [room_frame(RoomNews([], ["d"]))]
    b, b_links, _ = rooms_of("b", "a", "c")
    b.hear(b_links["c"], RoomNews(["d"], ["d"]))
    b.refresh(reads_too_little=False)
    assert (b.full, b.gone) == (set(), {"d"})
    assert b.may_go("d", must_read=False)  # nobody waits for it ...
    with pytest.raises(MisuseError, match="it was retired"):
        b.sent("d")  # ... and nothing is sent to it


def test_whom_only_a_retired_router_leads_to_is_refused_with_it() -> None:
    b, links, _ = rooms_of("b", "a", "c")
    links["c"].end(LinkState.RETIRED)
    b.refresh(reads_too_little=False)
    assert b.gone == {"c", "d"}
    with pytest.raises(MisuseError, match="'c', the only way to it, was retired"):
        b.sent("d")
