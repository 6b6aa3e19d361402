"""Offsets of peers' clocks: what follows from an exchange, and when it is an event."""

from __future__ import annotations

import random
import re

from whence.session.addresses import Address
from whence.session.clocks import ClockWatch
from whence.session.journal import Journal
from whence.session.links import Link
from whence.session.wire import ClockNews, FrameReader


class Wire:
    """A channel that keeps what is written."""

    writable = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self, last_words: bytes = b"") -> None: ...

    def abort(self) -> None: ...


class Side:
    """A node with a clock of its own."""

    def __init__(self, peer: str, ahead_us: int, world: list[int], slack_us: int) -> None:
        self.journal = Journal("x", lambda: 0.0)
        self.watch = ClockWatch(lambda: world[0] + ahead_us, slack_us, self.journal)
        self.link = Link(peer, Address("127.0.0.1", 1), dials=True)
        self.wire = Wire()
        self.link.channel = self.wire

    def told(self) -> ClockNews:
        reader = FrameReader(tuple, 1000)
        reader.feed(self.wire.sent.pop())
        [news] = reader.control
        assert isinstance(news, ClockNews)
        return news


def exchange(a: Side, b: Side, world: list[int], rounds: int, draw: random.Random) -> None:
    for _ in range(rounds):
        for here, there in ((a, b), (b, a)):
            here.watch.tell(here.link)
            world[0] += draw.randrange(100, 3_000)
            there.watch.hear(there.link, here.told())
        world[0] += 1_000_000


def test_an_offset_is_within_its_error_and_the_best_exchange_counts() -> None:
    draw = random.Random(7)
    for _ in range(200):
        ahead_us = draw.randrange(-5_000_000, 5_000_000)
        world = [10**12]
        a, b = Side("b", 0, world, 10**9), Side("a", ahead_us, world, 10**9)
        exchange(a, b, world, 5, draw)
        found = a.watch.offset("b")
        assert found is not None
        assert abs(found.offset_us - ahead_us) <= found.error_us + 1 <= 3_001
        assert b.watch.offset("a") is not None


def test_a_clock_beyond_the_slack_is_an_event_once_and_so_is_its_end() -> None:
    world, draw = [10**12], random.Random(1)
    a, b = Side("b", 0, world, 5_000), Side("a", 2_000_000, world, 5_000)
    exchange(a, b, world, 4, draw)
    [event] = a.journal.events
    assert (event.kind, event.peer) == ("clock", "b")
    assert re.search(r"(1\.99|2\.00)\d s ahead", event.detail)
    assert "ahead of this node's" in event.detail
    assert "Set the clocks" in event.detail
    [other] = b.journal.events
    assert "behind this node's" in other.detail
    right = Side("a", 0, world, 5_000)
    exchange(a, right, world, 20, draw)
    assert [each.detail for each in a.journal.events][1:] == [
        "the clock of b is within the slack of 0.005 s again"
    ]


def test_clocks_that_agree_are_no_event() -> None:
    world = [10**12]
    a, b = Side("b", 0, world, 5_000), Side("a", 4_000, world, 5_000)
    exchange(a, b, world, 30, random.Random(3))
    assert not a.journal.events
    assert not b.journal.events
